"""The tar inside a package, read strictly: what dpkg-deb writes, and nothing else.

Headers are ustar or GNU's, with GNU's long names and long link targets. As in dpkg, pax headers,
sparse files and multi-volume members are refused, and so are devices, FIFOs and whatever else is no
file, directory or link: an image is no place for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from hq.debian.refuse import MAX_NAME, link_problem, name_problem, refuse

BLOCK: Final = 512
MAX_ENTRIES: Final = 1_000_000
_MODE_BITS: Final = 0o7777
_MAX_ID: Final = 8**7  # beyond it a layer's tar would need pax headers

EntryType = Literal["f", "d", "l", "h"]
_TYPES: Final[dict[bytes, EntryType]] = {
    b"0": "f", b"\0": "f", b"7": "f", b"1": "h", b"2": "l", b"5": "d",
}  # fmt: skip
_OTHERS: Final = {
    b"3": "a character device", b"4": "a block device", b"6": "a FIFO", b"x": "a pax header",
    b"g": "a global pax header", b"S": "a sparse file", b"M": "a multi-volume member",
}  # fmt: skip


class Header(NamedTuple):
    """One entry. ``path``: without ``./``, empty for the root. ``offset``: of its content."""

    path: str
    type: EntryType
    mode: int
    uid: int
    gid: int
    size: int
    link: str
    offset: int


class TarReader:
    """Reads a tar from pieces. After each header, ``content`` gives what belongs to it."""

    def __init__(self, pieces: Iterator[bytes], package: str, what: str) -> None:
        self._pieces = pieces
        self._package = package
        self._what = what
        self._buffer = b""
        self._at = 0
        self._position = 0
        self._left = 0
        self._padding = 0

    def __iter__(self) -> Iterator[Header]:
        """Every header. Content that was not asked for is passed over."""
        count = 0
        while (header := self._next()) is not None:
            count += 1
            if count > MAX_ENTRIES:
                refuse(self._package, f"{self._what} has more than {MAX_ENTRIES} entries")
            yield header
        # What follows the end is padding to a record, in any amount; read so that it is checked.
        for piece in self._rest():
            if piece.strip(b"\0"):
                refuse(self._package, f"{self._what} goes on after its end")

    def content(self) -> Iterator[bytes]:
        """The current entry's content in pieces."""
        while self._left:
            piece = self._some(self._left)
            self._left -= len(piece)
            yield piece

    # Bytes

    def _some(self, most: int) -> bytes:
        """At least one and at most ``most`` bytes."""
        if self._at == len(self._buffer):
            self._buffer = next(self._pieces, b"")
            self._at = 0
            if not self._buffer:
                refuse(self._package, f"{self._what} is cut off at byte {self._position}")
        piece = self._buffer[self._at : self._at + most]
        self._at += len(piece)
        self._position += len(piece)
        return piece

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            parts.append(self._some(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def _rest(self) -> Iterator[bytes]:
        yield self._buffer[self._at :]
        yield from self._pieces

    # Headers

    def _next(self) -> Header | None:
        names: dict[bytes, str] = {}
        while True:
            for _ in self.content():
                pass
            self._exactly(self._padding)
            self._padding = 0
            block = self._exactly(BLOCK)
            if block == bytes(BLOCK):
                if names:
                    refuse(self._package, f"{self._what} ends after a long name")
                return None
            self._check_sum(block)
            kind = block[156:157]
            if kind not in (b"L", b"K"):
                return self._header(block, names)
            if kind in names:
                refuse(self._package, f"{self._what} gives one entry two long names")
            names[kind] = self._long_name(block)

    def _long_name(self, block: bytes) -> str:
        size = self._number(block[124:136], "size")
        if size > MAX_NAME + 1:
            refuse(self._package, f"{self._what} has a name of more than {MAX_NAME} bytes")
        text = self._exactly(size)
        self._exactly(-size % BLOCK)
        return _text(text)

    def _check_sum(self, block: bytes) -> None:
        stated = self._number(block[148:156], "checksum")
        if sum(block) - sum(block[148:156]) + 8 * 32 != stated:
            place = self._position - BLOCK
            refuse(self._package, f"{self._what} has a damaged header at byte {place}")

    def _number(self, field: bytes, what: str) -> int:
        if field[0] & 0x80:  # GNU: big numbers in base 256
            value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
            if field[0] == 0x80:
                return value
        digits = field.strip(b" \0")
        try:
            return int(digits or b"0", 8) if digits.isdigit() or not digits else int(b"x")
        except ValueError:
            refuse(self._package, f"{self._what} has a header whose {what} is no number")

    def _header(self, block: bytes, names: dict[bytes, str]) -> Header:
        name = names.get(b"L")
        if name is None:
            name = _text(block[:100])
            prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else ""
            name = f"{prefix}/{name}" if prefix else name
        kind = block[156:157]
        if kind in _OTHERS:
            refuse(self._package, f"{self._what}: {name!r} is {_OTHERS[kind]}")
        if kind not in _TYPES:
            refuse(self._package, f"{self._what}: {name!r} has the unknown type {kind!r}")
        type_ = _TYPES[kind]
        if type_ == "f" and name.endswith("/"):
            type_ = "d"  # as tar did before it had a type for directories
        size = self._number(block[124:136], "size")
        if type_ != "f":
            size = 0 if type_ == "d" else size
            if size:
                refuse(self._package, f"{self._what}: {name!r} is a link with content")
        path = self._path(name)
        link = names.get(b"K", _text(block[157:257])) if type_ in "lh" else ""
        link = self._link(path, type_, link)
        if not path and type_ != "d":
            refuse(self._package, f"{self._what}: the root {name!r} is no directory")
        self._left, self._padding = size, -size % BLOCK
        uid, gid = self._number(block[108:116], "uid"), self._number(block[116:124], "gid")
        if max(uid, gid) >= _MAX_ID:
            refuse(self._package, f"{self._what}: {name!r} belongs to {uid}:{gid}")
        mode = self._number(block[100:108], "mode") & _MODE_BITS
        return Header(path, type_, mode, uid, gid, size, link, self._position)

    def _path(self, name: str) -> str:
        path = name.removeprefix("./").removesuffix("/")
        if path in ("", "."):
            if name.startswith("/"):
                refuse(self._package, f"{self._what}: {name!r}: an absolute path")
            return ""
        problem = name_problem(path)
        if problem:
            refuse(self._package, f"{self._what}: {name!r}: {problem}")
        return path

    def _link(self, path: str, type_: EntryType, link: str) -> str:
        if type_ == "h":
            return self._path(link)
        problem = link_problem(path, link) if type_ == "l" else None
        if problem:
            refuse(self._package, f"{self._what}: {path!r}: {problem}")
        return link


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")
