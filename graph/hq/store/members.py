"""Content inside stored wheels, readable by its SHA-256 like a loose blob: a decorator.

A wheel's members are named by RECORD and verified when they are read. Nothing is unpacked: reading
inflates one member. Everything that is not such a member passes through to the store inside.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Self

from hq.model.digest import BlobRef, Digest
from hq.model.ports import BlobStore, BlobWriter, RandomAccess
from hq.wheels.content import Contents, Member
from hq.wheels.index import WheelIndex


class WheelMembers:
    """``BlobStore`` over ``inner`` that also finds what is inside the wheels it was told of."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner
        self._wheels: list[tuple[BlobRef, str, WheelIndex]] = []
        self._by_digest: list[dict[Digest, Member]] = []

    def add(self, wheel: BlobRef, index: WheelIndex, *, name: str = "") -> None:
        """Makes the wheel's members readable. ``name``: its file name, for errors."""
        self._wheels.append((wheel, name or wheel.digest, index))

    def has(self, ref: BlobRef) -> bool:
        """Whether the blob is there, or a wheel that is there contains it."""
        if self._inner.has(ref):
            return True
        found = self._find(ref)
        return found is not None and self._inner.has(found[0])

    def read(self, ref: BlobRef) -> bytes:
        """The content, verified. Raises ``BlobMissing``, ``BuildError`` for a wheel that lies."""
        found = None if self._inner.has(ref) else self._find(ref)
        if found is None:
            return self._inner.read(ref)
        wheel, name, member = found
        return self.read_member(wheel, member, name=name)

    def read_member(self, wheel: BlobRef, member: Member, *, name: str = "") -> bytes:
        """The content of a member that the caller found in the index itself, verified.

        Raises as ``read`` does.
        """
        with self._inner.open(wheel) as reader:
            return Contents(reader, name or wheel.digest).read(member)

    def open(self, ref: BlobRef) -> AbstractContextManager[RandomAccess]:
        """The content in parts; a member is inflated as a whole, and thus verified."""
        if self._inner.has(ref) or self._find(ref) is None:
            return self._inner.open(ref)
        return _Bytes(self.read(ref))

    def put(self, data: bytes) -> BlobRef:
        """Stores ``data`` in the inner store."""
        return self._inner.put(data)

    def create(self) -> AbstractContextManager[BlobWriter]:
        """A new blob of the inner store."""
        return self._inner.create()

    def _find(self, ref: BlobRef) -> tuple[BlobRef, str, Member] | None:
        """The member with this content. The tables of digests are made when first needed."""
        while len(self._by_digest) < len(self._wheels):
            index = self._wheels[len(self._by_digest)][2]
            self._by_digest.append({member.digest: member for member in index})
        for (wheel, name, _), members in zip(self._wheels, self._by_digest, strict=True):
            member = members.get(ref.digest)
            if member is not None and member.size == ref.size:
                return wheel, name, member
        return None


class _Bytes:
    """``RandomAccess`` over content in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Holds nothing that would have to be closed."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        return len(self._data)

    def pread(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``."""
        return self._data[offset : offset + length]
