r"""What is in a wheel: path, place and SHA-256 of every member, as one small blob.

``read_index`` reads a wheel's structure (``archive``), RECORD, METADATA and WHEEL, checks that they
agree with each other and with the lock, and gives a ``WheelIndex``. It reads no other content: the
digests are RECORD's, believed until a member is read and verified (``content``). Only RECORD's own
digest, which RECORD cannot hold, is computed.

A ``WheelIndex`` is its encoded bytes, and a lookup is a binary search in them, so that taking one
member out of 4,910 costs microseconds, not a parse::

    magic        8 bytes   "hqwhl/1\n"
    counts       4 u32     bytes of meta, members, bytes of names, 0
    meta         canonical JSON: project, version, dist_info, data_dir, purelib, size
    members      68 bytes each, sorted by path: name's offset u32, length u16, kind u8, method u8,
                 crc u32, offset, csize, size u64, sha256 32 bytes
    names        UTF-8, one after the other

Numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from hq.model.digest import Digest
from hq.model.tree import EXECUTABLE, FILE, Entry, Kind
from hq.wheels.content import Member

INDEX_VERSION: Final = 1
"""Goes up when the meaning or the encoding of an index changes; part of the wheel node's key."""

_MAGIC = b"hqwhl/1\n"
_COUNTS = struct.Struct("<4L")
_ROW = struct.Struct("<LHBBLQQQ32s")
_NAME = struct.Struct("<LH")
_KINDS: tuple[Kind, Kind] = (FILE, EXECUTABLE)


class Meta(NamedTuple):
    """What the wheel says of itself.

    ``project`` and ``version`` as METADATA writes them, ``dist_info`` and ``data_dir`` are names of
    directories, ``purelib`` is WHEEL's ``Root-Is-Purelib``, ``size`` the wheel's in bytes.
    """

    project: str
    version: str
    dist_info: str
    data_dir: str
    purelib: bool
    size: int


class WheelIndex:
    """The members of a wheel by path. Made by ``read_index`` or ``decode``; never changes."""

    __slots__ = ("_data", "_names", "_rows", "count", "meta")

    def __init__(self, data: bytes, meta: Meta, count: int, rows: int, names: int) -> None:
        self._data = data
        self._rows = rows
        self._names = names
        self.meta = meta
        self.count = count

    @classmethod
    def build(cls, meta: Meta, members: Iterable[Member]) -> WheelIndex:
        """The index of ``members``. Raises ``ValueError`` when a path comes twice."""
        ordered = sorted(members)
        rows: list[bytes] = []
        names: list[bytes] = []
        at = 0
        for member in ordered:
            name = member.path.encode("utf-8")
            if names and names[-1] >= name:
                raise ValueError(f"{member.path!r} is there twice")
            rows.append(
                _ROW.pack(
                    at, len(name), _KINDS.index(member.kind), member.method, member.crc,
                    member.offset, member.csize, member.size, bytes.fromhex(member.digest.hex),
                )
            )  # fmt: skip
            names.append(name)
            at += len(name)
        text = json.dumps(meta._asdict(), sort_keys=True, separators=(",", ":")).encode("ascii")
        head = _MAGIC + _COUNTS.pack(len(text), len(ordered), at, 0)
        return cls.decode(b"".join((head, text, *rows, *names)))

    @classmethod
    def decode(cls, data: bytes) -> WheelIndex:
        """Opens ``encode``'s bytes. Raises ``ValueError`` when they are anything else."""
        start = len(_MAGIC) + _COUNTS.size
        if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
            raise ValueError("not a wheel index")
        meta_size, count, names_size, _ = _COUNTS.unpack_from(data, len(_MAGIC))
        rows = start + meta_size
        names = rows + count * _ROW.size
        if names + names_size != len(data):
            raise ValueError(f"a wheel index of {names + names_size} bytes has {len(data)}")
        try:
            meta = Meta(**json.loads(data[start:rows]))
        except TypeError as error:
            raise ValueError(f"not a wheel index: {error}") from None
        return cls(data, meta, count, rows, names)

    def encode(self) -> bytes:
        """The bytes that ``decode`` opens: equal indexes have equal bytes."""
        return self._data

    def __len__(self) -> int:
        return self.count

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.get(path) is not None

    def __iter__(self) -> Iterator[Member]:
        """Every member, sorted by path."""
        data, names = self._data, self._names
        rows = memoryview(data)[self._rows : names]
        for at, length, kind, method, crc, offset, csize, size, sha in _ROW.iter_unpack(rows):
            path = data[names + at : names + at + length].decode("utf-8")
            digest = Digest("sha256:" + sha.hex())
            yield Member(path, _KINDS[kind], offset, csize, size, crc, method, digest)

    def get(self, path: str) -> Member | None:
        """The member at ``path``, or ``None``."""
        name = path.encode("utf-8", "surrogateescape")
        number = self._find(name)
        if number == self.count or self._name(number) != name:
            return None
        _, _, kind, method, crc, offset, csize, size, sha = _ROW.unpack_from(
            self._data, self._rows + number * _ROW.size
        )
        digest = Digest("sha256:" + sha.hex())
        return Member(path, _KINDS[kind], offset, csize, size, crc, method, digest)

    def entry(self, path: str) -> Entry | None:
        """What stands at ``path`` as an entry of a tree, or ``None``."""
        member = self.get(path)
        return None if member is None else Entry(member.kind, member.digest, member.size)

    def entries(self) -> dict[str, Entry]:
        """The whole tree."""
        return {m.path: Entry(m.kind, m.digest, m.size) for m in self}

    def has_directory(self, path: str) -> bool:
        """Whether some member lies below ``path``."""
        name = path.encode("utf-8", "surrogateescape") + b"/"
        number = self._find(name)
        return number < self.count and self._name(number).startswith(name)

    def file_above(self, path: str) -> str | None:
        """The member that stands where ``path`` needs a directory, or ``None``."""
        parent = path.rpartition("/")[0]
        while parent:
            if self.get(parent) is not None:
                return parent
            parent = parent.rpartition("/")[0]
        return None

    def _find(self, name: bytes) -> int:
        return bisect_left(range(self.count), name, key=self._name)

    def _name(self, number: int) -> bytes:
        at, length = _NAME.unpack_from(self._data, self._rows + number * _ROW.size)
        at += self._names
        return self._data[at : at + length]
