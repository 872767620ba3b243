"""Brings an image of an OCI layout on disk into the store, as it is.

The layout is a stranger's: its documents are read with limits, every blob is hashed on its way, and
one that is not what its descriptor says leaves nothing behind. Blobs in the store already are not
read. ``index.json`` is not asked: the digest names the image, wherever the layout lists it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, Location
from hq.oci.image import Platform, blob_path
from hq.oci.remote import MAX_DOCUMENT, ImageManifest, choose, read_document
from hq.store.disk import DiskStore
from hq.store.faults import disk_fault
from hq.store.reader import FileReader

_DEPTH: Final = 3
_STEP: Final = 16 << 20


def import_layout(
    store: DiskStore,
    folder: str,
    digest: Digest,
    platform: Platform,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> BlobRef:
    """The manifest of the image ``digest``; it and all its blobs are in the store.

    An index leads to the image for ``platform``. Raises ``BuildError`` when something is missing or
    is not what its name says, ``InfrastructureError``.
    """
    for _ in range(_DEPTH):
        data = _document(store, folder, digest)
        document = read_document(data, _place(folder, digest))
        ref = store.put(data)
        if isinstance(document, ImageManifest):
            _blobs(store, folder, document, progress)
            return ref
        digest = choose(document, platform, _place(folder, digest)).ref.digest
    raise BuildError(
        f"indexes within indexes, more than {_DEPTH} deep", where=Location(_place(folder, digest))
    )


def _place(folder: str, digest: Digest) -> str:
    return f"{folder}/{blob_path(digest)}"


def _document(store: DiskStore, folder: str, digest: Digest) -> bytes:
    size = store.size_of(digest)
    if size is not None and size <= MAX_DOCUMENT and store.has(BlobRef(digest, size)):
        return store.read(BlobRef(digest, size))
    path = _place(folder, digest)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_DOCUMENT + 1)
    except OSError as error:
        raise _unreadable(folder, digest, error) from error
    if len(data) > MAX_DOCUMENT:
        raise BuildError(
            f"a manifest of more than {MAX_DOCUMENT} bytes is refused", where=Location(path)
        )
    _check(BlobRef.of(data), BlobRef(digest, len(data)), path)
    return data


def _blobs(
    store: DiskStore, folder: str, image: ImageManifest, progress: Callable[[int, int], None]
) -> None:
    refs = [image.config.ref, *(layer.ref for layer in image.layers)]
    total = sum(ref.size for ref in refs)
    done = 0
    for ref in refs:
        if not store.has(ref):
            before = done
            # The default binds this round's value; mypy cannot type a lambda with one.
            _blob(store, folder, ref, lambda part, before=before: progress(before + part, total))  # type: ignore[misc]
        done += ref.size
        progress(done, total)


def _blob(store: DiskStore, folder: str, ref: BlobRef, progress: Callable[[int], None]) -> None:
    path = _place(folder, ref.digest)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(folder, ref.digest, error) from error
    try:
        with FileReader(fd, os.fstat(fd).st_size, path) as source, store.create() as writer:
            if source.size != ref.size:
                _refuse(path, f"{ref.size} bytes", f"{source.size} bytes")
            for start in range(0, source.size, _STEP):
                writer.write_range(source, start, min(_STEP, source.size - start))
                progress(start)
            _check(writer.seal(), ref, path)
            writer.commit()
    except OSError as error:
        raise disk_fault(error, f"copy {path}", store.root, size=ref.size) from error


def _check(found: BlobRef, expected: BlobRef, path: str) -> None:
    if found != expected:
        _refuse(path, expected.digest, found.digest)


def _refuse(path: str, expected: str, found: str) -> None:
    raise BuildError(
        "a blob of the layout is not what its name or descriptor says",
        where=Location(path),
        details=[f"expected: {expected}", f"found:    {found}"],
        hint="the layout is damaged; make it again",
    )


def _unreadable(folder: str, digest: Digest, error: OSError) -> BuildError:
    if isinstance(error, FileNotFoundError):
        there = os.path.isfile(f"{folder}/oci-layout")
        return BuildError(
            f"the layout has no blob {digest}" if there else "there is no OCI layout",
            where=Location(folder),
            hint="check the folder and the digest in the image's base",
        )
    return BuildError(
        f"cannot read the layout: {(error.strerror or '').lower()}",
        where=Location(_place(folder, digest)),
    )
