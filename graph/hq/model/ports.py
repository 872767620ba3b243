"""The interfaces between what computes and what touches the machine.

Adapters (``hq.store``, ``hq.transfer``) implement them; rules and the executor only see them. A
remote cache or a remote executor is another implementation of the same protocols, wrapped around
these.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef


class RandomAccess(Protocol):
    """Bytes that can be read at any offset, from several threads at once."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        ...

    def pread(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer only at the end."""
        ...


class BlobWriter(Protocol):
    """A blob in the making. Leaving the ``with`` block without ``commit`` leaves nothing behind."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends. Raises ``InfrastructureError`` when the disk is full."""
        ...

    def write_range(self, source: RandomAccess, offset: int, length: int) -> None:
        """Appends a part of another blob; an adapter may copy inside the kernel."""
        ...

    def commit(self) -> BlobRef:
        """Makes the blob appear under its name, whole; returns the name."""
        ...


class BlobStore(Protocol):
    """Bytes by name. Every read is verified against the name."""

    def has(self, ref: BlobRef) -> bool:
        """Whether the blob is there with its size. Reads no content."""
        ...

    def read(self, ref: BlobRef) -> bytes:
        """The blob, verified.

        Raises ``BlobMissing``. A damaged blob is dropped with a warning and counts as missing.
        """
        ...

    def open(self, ref: BlobRef) -> AbstractContextManager[RandomAccess]:
        """The blob for reading in parts, not verified: the reader checks what it takes."""
        ...

    def put(self, data: bytes) -> BlobRef:
        """Stores ``data``; a blob already there is left alone."""
        ...

    def create(self) -> AbstractContextManager[BlobWriter]:
        """A new blob to be written in parts."""
        ...


class ActionCache(Protocol):
    """Results by key."""

    def get(self, key: ActionKey) -> ActionResult | None:
        """The result, or ``None``; a damaged entry is a miss."""
        ...

    def put(self, result: ActionResult) -> None:
        """Stores the result under its key, whole or not at all."""
        ...

    def lock(self, key: ActionKey) -> AbstractContextManager[None]:
        """Holds off every other build, in any process, that wants to run the same key."""
        ...


class BlobMissing(Exception):
    """A named blob is not in the store."""

    def __init__(self, ref: BlobRef) -> None:
        super().__init__(f"blob {ref.digest} ({ref.size} bytes) is not in the store")
        self.ref = ref
