"""Blobs and action results in a directory.

Layout, below the root::

    format                  "hq store 1": the version of this layout
    cas/sha256/ab/<hex>     blobs, mode 0444, modification time 1980-01-01
    ac/ab/<key>             results: a line with the SHA-256 of the rest, then JSON
    tmp/                    files and directories in the making, each locked by its owner
    locks/                  single flight of keys; builds against collection
    stat/ projects/         stat caches; what is known about each project

**Blobs.** Written to ``tmp/``, flushed, renamed. The directory is not flushed: a rename lost with
the power makes the blob missing, which is a miss. The flush before the rename is needed, or a power
cut could leave the right name and the right length on wrong bytes.

**Damage seen by stat.** A finished blob's modification time is always the same old date. Whoever
writes into one later, through a hard link in an output directory say, moves that time, so ``has``
notices for the price of the stat it does anyway. Such a blob is hashed again: good ones get their
date back, bad ones are dropped with a warning. Reads are checked in any case.

**Results.** An entry that is cut short, altered or not of this version is a miss, and is written
anew.

**Permission.** A store that cannot be written still serves reads; only writing raises.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from hq.model.digest import BlobRef, Digest
from hq.model.errors import InfrastructureError, Location
from hq.model.ports import BlobMissing
from hq.store.actions import DiskActions
from hq.store.faults import disk_fault, human_size
from hq.store.files import (
    TMP,
    Temp,
    discard,
    make_temp_dir,
    make_temp_file,
    move,
    remove_temp_dir,
    replace_file,
    sweep,
    write_all,
)
from hq.store.reader import FileReader
from hq.store.root import Warn, is_store, make_store, share, silent
from hq.store.writer import DiskWriter

BLOB_TIME = 315532800  # seconds; 1980-01-01, the oldest date that zip files can hold
_BLOB_TIME_NS = BLOB_TIME * 10**9
_HASH_PART = 1 << 20


class DiskStore:
    """``hq.model.ports.BlobStore`` in the directory ``root``; ``actions`` is its ``ActionCache``.

    Safe for any number of threads and processes. Made if it is not there. ``warn`` gets one line
    for each damaged thing that was dropped. While it is open, ``gc`` in another process waits.

    Raises ``UsageError`` when ``root`` holds something else or a newer store, and
    ``InfrastructureError`` when the disk refuses.
    """

    def __init__(self, root: str, *, warn: Warn = silent) -> None:
        self.root = os.path.abspath(root)
        self.warn = warn
        self._cas = f"{self.root}/cas/sha256/"
        self._tmp = f"{self.root}/{TMP}"
        self.actions = DiskActions(self.root, warn)
        if not is_store(self.root):
            make_store(self.root)
        self._use = share(self.root, warn)
        sweep(self._tmp)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets a waiting collection run. Blobs that are open stay readable."""
        if self._use >= 0:
            # A pip whose hq was killed dies a moment later, and may write until then.
            sweep(self._tmp)
            os.close(self._use)
            self._use = -1

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Holds the store for this process alone; waits until no other has it open.

        Raises ``InfrastructureError`` when the file system has no locks.
        """
        if self._use < 0:
            raise InfrastructureError("the store cannot be locked", where=Location(self.root))
        try:
            fcntl.flock(self._use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.warn("waiting for running builds to end")
            fcntl.flock(self._use, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._use, fcntl.LOCK_SH)

    # Blobs.

    def path(self, ref: BlobRef) -> str:
        """Where the blob is, if it is there. For hard links and for tools; never write to it."""
        digest = ref.digest
        return f"{self._cas}{digest[7:9]}/{digest[7:]}"

    def has(self, ref: BlobRef) -> bool:
        """Whether the blob is there with its size; re-hashed only if it looks touched.

        Raises ``InfrastructureError`` when that cannot be told.
        """
        path = self.path(ref)
        found = self._status(path)
        if found is None:
            return False
        if found.st_size == ref.size and found.st_mtime_ns == _BLOB_TIME_NS:
            return True
        return self._recheck(path, ref)

    def size_of(self, digest: Digest) -> int | None:
        """The length of a blob known by its digest alone, or ``None`` when it is not there.

        Raises ``InfrastructureError`` when that cannot be told.
        """
        found = self._status(self.path(BlobRef(digest, 0)))
        return None if found is None else found.st_size

    def _status(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:  # a folder that cannot be entered is not an empty one
            raise disk_fault(error, "look for a blob", self.root) from error

    def read(self, ref: BlobRef) -> bytes:
        """The blob, verified. Raises ``BlobMissing``, ``InfrastructureError``."""
        with self.open(ref) as blob:
            data = blob.pread(0, ref.size)
            if hashlib.sha256(data).hexdigest() == ref.digest.hex:
                return data
            self._drop(blob.fd, ref, "its content has another SHA-256")
        raise BlobMissing(ref)

    def open(self, ref: BlobRef) -> FileReader:
        """The blob for reading in parts, not verified. Raises ``BlobMissing``.

        When the ``with`` block fails, the blob is verified after all, and dropped if it is bad.
        """
        path = self.path(ref)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise BlobMissing(ref) from None
        except OSError as error:
            raise disk_fault(error, "open a blob", self.root) from error
        found = os.fstat(fd)
        untouched = found.st_size == ref.size and found.st_mtime_ns == _BLOB_TIME_NS
        if not untouched and not self._recheck(path, ref):
            os.close(fd)
            raise BlobMissing(ref)
        return BlobReader(fd, ref, self)

    def put(self, data: bytes) -> BlobRef:
        """Stores ``data``. Raises ``InfrastructureError``."""
        ref = BlobRef.of(data)
        if self.has(ref):
            return ref
        temp = self._temp_file(ref.size)
        try:
            write_all(temp.fd, data)
        except OSError as error:
            discard(temp)
            raise self.fault(error, ref.size) from error
        except BaseException:
            discard(temp)
            raise
        self.publish(temp, ref)
        return ref

    def create(self) -> DiskWriter:
        """A new blob to be written in parts. Raises ``InfrastructureError``."""
        return DiskWriter(self, self._temp_file(0))

    def adopt(self, path: str, ref: BlobRef) -> None:
        """Moves a finished file in the store's ``tmp/`` into place, without copying it.

        The caller has hashed it and is the only one who has it open.
        Raises ``InfrastructureError``.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise self.fault(error, ref.size) from error
        self.publish(Temp(fd, path), ref)

    def publish(self, temp: Temp, ref: BlobRef) -> None:
        """Names a finished temporary file and closes it. Raises ``InfrastructureError``."""
        try:
            if self.has(ref):
                os.unlink(temp.path)
            else:
                os.fchmod(temp.fd, 0o444)
                os.utime(temp.fd, ns=(_BLOB_TIME_NS, _BLOB_TIME_NS))
                os.fsync(temp.fd)
                move(temp.path, self.path(ref))
        except OSError as error:
            discard(temp)
            raise self.fault(error, ref.size) from error
        except BaseException:
            discard(temp)
            raise
        os.close(temp.fd)

    def fault(self, error: OSError, size: int) -> InfrastructureError:
        """The error for a blob that could not be written; it needs ``size`` bytes or more."""
        return disk_fault(error, "write a blob to the store", self.root, size=size)

    def drop(self, ref: BlobRef) -> None:
        """Forgets a blob, for a reader that found it damaged in its own way. Never raises."""
        with suppress(OSError):
            os.unlink(self.path(ref))

    def suspect(self, fd: int, ref: BlobRef) -> None:
        """Verifies an open blob whose reader failed, and drops it if it is bad. Never raises."""
        with suppress(OSError):
            if hash_file(fd) != ref.digest.hex:
                self._drop(fd, ref, "its content was changed")

    def _recheck(self, path: str, ref: BlobRef) -> bool:
        """Looks into a blob whose size or date is not as ``publish`` left it."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            size = os.fstat(fd).st_size
            if hash_file(fd) != ref.digest.hex:
                changed = size == ref.size
                why = "its content was changed" if changed else f"it has {size} bytes"
                return self._drop(fd, ref, why)
            _restore(fd)
            # A good blob of another size: whoever asks (a lock with a wrong size) is mistaken.
            return size == ref.size
        except OSError:
            return False
        finally:
            os.close(fd)

    def _drop(self, fd: int, ref: BlobRef, why: str) -> bool:
        """Removes a damaged blob, unless its name stands for another file by now. Returns false."""
        unlink_same(fd, self.path(ref))
        self.warn(
            f"dropped a damaged blob from the store: {ref.digest} ({human_size(ref.size)}): {why}"
        )
        return False

    # Temporary places, and small files of other parts of the store.

    def staging(self) -> Staging:
        """A directory in ``tmp/`` that goes away at the end of the ``with`` block."""
        return Staging(self)

    def write_file(self, name: str, data: bytes) -> None:
        """Replaces ``<root>/<name>``, whole or not at all, for what can be made again.

        Raises ``InfrastructureError``.
        """
        try:
            replace_file(self._tmp, f"{self.root}/{name}", data, flush=False)
        except OSError as error:
            raise disk_fault(error, "write to the store", self.root, size=len(data)) from error

    def _temp_file(self, size: int) -> Temp:
        try:
            return make_temp_file(self._tmp)
        except OSError as error:
            raise self.fault(error, size) from error


class BlobReader(FileReader):
    """A blob of a store; who fails while reading it may have met damage."""

    __slots__ = ("_ref", "_store")

    def __init__(self, fd: int, ref: BlobRef, store: DiskStore) -> None:
        super().__init__(fd, ref.size, store.root)
        self._ref = ref
        self._store = store

    def __exit__(self, *failure: object) -> None:
        if isinstance(failure[1], Exception):
            self._store.suspect(self.fd, self._ref)
        super().__exit__()


class Staging:
    """A temporary directory inside the store; leaving the ``with`` block removes it.

    It is locked by its owner like any temporary file, so a killed owner's is swept later.
    """

    __slots__ = ("_store", "_temp")

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._temp: Temp | None = None

    def __enter__(self) -> str:
        try:
            self._temp = make_temp_dir(f"{self._store.root}/{TMP}")
        except OSError as error:
            raise disk_fault(error, "write to the store", self._store.root) from error
        return self._temp.path

    def __exit__(self, *_: object) -> None:
        if self._temp is not None:
            remove_temp_dir(self._temp)
            self._temp = None


def hash_file(fd: int) -> str:
    """SHA-256 in hex of a whole open file, in pieces. Raises ``OSError``."""
    whole = hashlib.sha256()
    piece = bytearray(_HASH_PART)
    offset = 0
    with memoryview(piece) as view:
        while got := os.preadv(fd, [view], offset):
            whole.update(view[:got])
            offset += got
    return whole.hexdigest()


def unlink_same(fd: int, path: str) -> None:
    """Removes the open file's name, unless it stands for another file by now. Never raises."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False)):
            os.unlink(path)


def _restore(fd: int) -> None:
    """Gives a good blob back its date and mode, where that is permitted."""
    with suppress(OSError):
        os.fchmod(fd, 0o444)
        os.utime(fd, ns=(_BLOB_TIME_NS, _BLOB_TIME_NS))
