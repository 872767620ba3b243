"""In-memory adapters for the ports of ``hq.model.ports``: fakes with the real behaviour.

They are what tests of the pure packages compute against. A damaged blob counts as missing, a
writer that is not committed leaves nothing, reads are verified: the contract of the real store.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from hq.model.action import ActionResult, from_json, to_json
from hq.model.digest import ActionKey, BlobRef, Digest
from hq.model.ports import BlobMissing, RandomAccess


class MemoryBytes:
    """``RandomAccess`` over bytes; counts what was read, for tests about laziness."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.reads = 0
        self.bytes_read = 0

    @property
    def size(self) -> int:
        return len(self._data)

    def pread(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise ValueError(f"pread({offset}, {length}): negative")
        piece = self._data[offset : offset + length]
        self.reads += 1
        self.bytes_read += len(piece)
        return piece


class MemoryWriter:
    """``BlobWriter`` that appears in its store on ``commit``."""

    def __init__(self, store: MemoryBlobs) -> None:
        self._store = store
        self._data = bytearray()
        self._open = True
        self.ranges = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        self._data += data

    def write_range(self, source: RandomAccess, offset: int, length: int) -> None:
        self._check()
        piece = source.pread(offset, length)
        if len(piece) != length:
            raise ValueError(f"write_range({offset}, {length}): the source ends early")
        self._data += piece
        self.ranges += 1

    def seal(self) -> BlobRef:
        self._check()
        return BlobRef.of(bytes(self._data))

    def commit(self) -> BlobRef:
        self._check()
        self._open = False
        return self._store.put(bytes(self._data))

    def _check(self) -> None:
        if not self._open:
            raise ValueError("the writer is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._open = False
        self._data = bytearray()


class MemoryBlobs:
    """``BlobStore`` in a dictionary. ``data`` is open to tests that damage or drop blobs."""

    def __init__(self) -> None:
        self.data: dict[Digest, bytes] = {}

    def has(self, ref: BlobRef) -> bool:
        found = self.data.get(ref.digest)
        return found is not None and len(found) == ref.size

    def read(self, ref: BlobRef) -> bytes:
        found = self.data.get(ref.digest)
        if found is None or len(found) != ref.size:
            raise BlobMissing(ref)
        if hashlib.sha256(found).hexdigest() != ref.digest.hex:
            del self.data[ref.digest]
            raise BlobMissing(ref)
        return found

    @contextmanager
    def open(self, ref: BlobRef) -> Iterator[MemoryBytes]:
        if not self.has(ref):
            raise BlobMissing(ref)
        yield MemoryBytes(self.data[ref.digest])

    def put(self, data: bytes) -> BlobRef:
        ref = BlobRef.of(data)
        self.data.setdefault(ref.digest, data)
        return ref

    def create(self) -> MemoryWriter:
        return MemoryWriter(self)


class MemoryActions:
    """``ActionCache`` in a dictionary, through JSON so that only what survives it is kept."""

    def __init__(self) -> None:
        self.results: dict[ActionKey, dict[str, object]] = {}
        self._locks: dict[ActionKey, threading.Lock] = {}
        self._guard = threading.Lock()

    def get(self, key: ActionKey) -> ActionResult | None:
        document = self.results.get(key)
        if document is None:
            return None
        try:
            return from_json(document)
        except (KeyError, TypeError, ValueError, IndexError):
            return None

    def put(self, result: ActionResult) -> None:
        self.results[result.key] = dict(to_json(result))

    @contextmanager
    def lock(self, key: ActionKey) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            yield
