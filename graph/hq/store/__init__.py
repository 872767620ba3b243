"""The store: one directory that keeps bytes by their SHA-256 and results by their action key.

There is no server and no database. What makes it safe is the order of a few system calls:

* A blob is written under a temporary name, flushed, and renamed to its final name. Whoever sees
  the final name sees the whole blob, also when a writer is killed at any moment.
* Who owns a temporary file is told by ``flock``: the kernel drops the lock when its process dies,
  so the next process that opens the store can tell litter from work in progress (``files``).
* Nothing in the store is ever changed in place. Two processes that make the same blob make the
  same bytes, so it does not matter whose rename comes last.
* Every read is checked against the name. Damage is therefore a miss and never a wrong result.

Modules: ``disk`` (blobs), ``actions`` (results), ``root`` (what makes a directory a store),
``writer`` and ``reader`` (a blob in the making; a blob in parts), ``files`` (temporary files),
``locks`` (single flight), ``members`` (a decorator: content inside stored wheels), ``stat``
(digests of source files), ``layout`` (OCI layouts made of links), ``gc`` (collection, verification,
statistics), ``faults`` (what the disk refused, in words).
"""
