"""An OCI image layout on disk, made of links to the store's blobs.

Layout (OCI image-layout.md): ``oci-layout``, ``index.json``, ``blobs/sha256/<hex>``. A reader
begins at ``index.json``, so that file decides what the layout is:

1. the blobs that are missing appear, each whole, under names that no old index uses,
2. ``index.json`` is replaced by rename,
3. blobs that the new index does not reach are removed.

Killed before 2 the layout is the old one, after it the new one, with spare blobs at worst; the next
write removes them. Two writers of one directory wait for each other (``flock`` on the directory).
Whoever removes the directory under a writer removes the lock too, so a writer that finds itself in
another directory in the end, or misses what it has just made, does it all again.

A blob is a hard link where that works, else a reflink (``FICLONE``, ioctl_ficlone(2)), else a copy.
A hard link shares its bytes with the store. They are read-only, and whoever writes to one all the
same also moves the file's date, so that the store sees it and makes the blob again (``disk``). The
store may also drop such a blob when it verifies; the link then outlives it. So a link counts only
while it is the store's own file. A copy bears another date, by which it is known.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress

from hq.model.digest import BlobRef
from hq.model.ports import BlobMissing
from hq.store.disk import BLOB_TIME, DiskStore
from hq.store.faults import OUTPUT, disk_fault
from hq.store.files import Temp, discard, make_dir, make_temp_file, move, read_file, replace_file

_LINK_TIME_NS = BLOB_TIME * 10**9
_COPY_TIME_NS = _LINK_TIME_NS + 10**9
_FICLONE = 0x40049409
_LINK_REFUSED = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
)
_DISTURBED = frozenset((errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY))
_TRIES = 100


def missing(store: DiskStore, directory: str, refs: Iterable[BlobRef]) -> list[BlobRef]:
    """Those of ``refs`` that the layout lacks, by stat alone. Never raises."""
    return [ref for ref in refs if not _is_there(_blob_path(directory, ref), ref, store.path(ref))]


def write_layout(
    store: DiskStore,
    directory: str,
    refs: Iterable[BlobRef],
    index: bytes,
    *,
    marker: bytes = b'{"imageLayoutVersion":"1.0.0"}',
) -> None:
    """Makes ``directory`` the layout of ``index`` (``index.json``) with exactly the blobs ``refs``.

    ``marker``: the bytes of ``oci-layout``. Files of other names in ``directory`` stay.
    Raises ``BlobMissing`` before anything is changed; ``InfrastructureError`` when the disk
    refuses, and then the old layout is still whole.
    """
    wanted = sorted(set(refs))
    for ref in wanted:
        if not store.has(ref):
            raise BlobMissing(ref)
    try:
        for _ in range(_TRIES):
            if _write_locked(store, directory, wanted, index, marker):
                return
        raise FileNotFoundError(errno.ENOENT, "other programs remove it again and again")
    except OSError as error:
        size = sum(ref.size for ref in wanted)
        raise disk_fault(
            error, "write the image layout", directory, size=size, elsewhere=OUTPUT
        ) from error


def _write_locked(
    store: DiskStore, directory: str, wanted: list[BlobRef], index: bytes, marker: bytes
) -> bool:
    """Writes the layout; false when the directory was removed or replaced meanwhile."""
    make_dir(f"{directory}/blobs/sha256")
    try:
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _write(store, directory, wanted, index, marker)
        os.fsync(lock)
        return os.path.samestat(os.fstat(lock), os.stat(directory))
    except OSError as error:
        if error.errno in _DISTURBED:
            return False
        raise
    finally:
        os.close(lock)


def _write(
    store: DiskStore, directory: str, wanted: list[BlobRef], index: bytes, marker: bytes
) -> None:
    temporary = f"{directory}/.hq-tmp"
    _remove_all(temporary)  # of a killed writer: the lock says that no other one is at work
    try:
        for ref in missing(store, directory, wanted):
            _bring(store, ref, _blob_path(directory, ref), temporary)
        for name, data in (("oci-layout", marker), ("index.json", index)):
            if not _holds(f"{directory}/{name}", data):
                replace_file(temporary, f"{directory}/{name}", data)
    finally:
        _remove_all(temporary)
    _prune(f"{directory}/blobs/sha256", {ref.digest.hex for ref in wanted})


def _bring(store: DiskStore, ref: BlobRef, target: str, temporary: str) -> None:
    """Puts one blob into the layout, whole or not at all."""
    try:
        _link(store.path(ref), target, temporary)
    except FileNotFoundError:
        if os.path.lexists(store.path(ref)):  # the target's folder is gone
            raise
        raise BlobMissing(ref) from None
    except OSError as error:
        if error.errno not in _LINK_REFUSED:
            raise
        _copy(store, ref, target, temporary)


def _link(source: str, target: str, temporary: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:  # not the blob, or not untouched: replaced
        make_dir(temporary)
        spare = f"{temporary}/link"
        os.link(source, spare)
        os.rename(spare, target)


def _copy(store: DiskStore, ref: BlobRef, target: str, temporary: str) -> None:
    temp = make_temp_file(temporary)
    try:
        with store.open(ref) as blob:
            _clone_or_copy(blob.fd, temp.fd, ref.size)
        os.fchmod(temp.fd, 0o444)
        os.utime(temp.fd, ns=(_COPY_TIME_NS, _COPY_TIME_NS))
        os.fsync(temp.fd)
        move(temp.path, target)
    finally:
        discard(Temp(temp.fd, temp.path))


def _clone_or_copy(source: int, target: int, size: int) -> None:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        done = 0
        while done < size and (part := os.sendfile(target, source, done, size - done)):
            done += part


def _is_there(path: str, ref: BlobRef, original: str) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
        if found.st_size != ref.size:
            return False
        if found.st_mtime_ns == _COPY_TIME_NS:
            return True
        return os.path.samestat(found, os.stat(original, follow_symlinks=False))
    except OSError:
        return False


def _holds(path: str, data: bytes) -> bool:
    try:
        return read_file(path, len(data) + 1) == data
    except OSError:
        return False


def _prune(folder: str, keep: set[str]) -> None:
    for name in os.listdir(folder):
        if name not in keep:
            with suppress(OSError):
                os.unlink(f"{folder}/{name}")


def _remove_all(folder: str) -> None:
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)


def _blob_path(directory: str, ref: BlobRef) -> str:
    return f"{directory}/blobs/sha256/{ref.digest.hex}"
