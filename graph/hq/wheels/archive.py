"""The structure of a zip archive, read once and strictly.

A zip archive is described twice: by the central directory at its end and by a local header before
each member. Readers that trust one of them see another archive than readers that trust the other,
and bytes that neither describes can hide a third. So everything must agree here: the end record
ends the file, the directory fills the room before it, members and their local headers tile the
rest from the first byte on, without overlap or gap, and each local header says what the directory
says. That also rules out the overlapping kind of decompression bomb; ``Limits`` rules out the
other.

Layout (APPNOTE.TXT 6.3.10, the sections given below)::

    [local header, name, extra, data, descriptor?]*  central directory  [zip64 end, locator]?  end

Methods other than stored and deflated, encryption, several disks, and any member that is not a
regular file or a directory are refused: no wheel needs them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from hq.model.errors import BuildError, Location
from hq.model.ports import RandomAccess
from hq.model.tree import path_problem
from hq.wheels.content import DEFLATED, STORED

_END = struct.Struct("<4s4H2LH")  # 4.3.16
_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7

_MAX16 = 0xFFFF
_MAX32 = 0xFFFFFFFF
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000  # 4.4.4: bits 0, 6 and 13
_DESCRIPTOR = 0x0008
_OPTIONS = 0x0006  # bits 1 and 2: how hard the encoder tried
_PATCHED = 0x0020
_UTF8 = 0x0800
_EXTRA_ZIP64 = 0x0001  # 4.5.3
_EXTRA_UNICODE_PATH = 0x7075  # 4.6.9: a second name, which some readers prefer

# Direction marks and overrides, line and paragraph separators, zero-width characters.
_INVISIBLE = frozenset(
    "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2066\u2067\u2068\u2069\ufeff"
)

_IFMT, _IFDIR, _IFREG, _IFLNK = 0o170000, 0o040000, 0o100000, 0o120000

_AGAIN = "the file is damaged or cut off; fetch the wheel again"
_HOSTILE = "no wheel builder writes this; do not use this file"


class Limits(NamedTuple):
    """What a wheel may at most be; far above any real one, far below what would do harm.

    Sizes in bytes. ``ratio`` holds for members larger than ``ratio_from``, ``total_ratio`` for
    archives whose content is larger than ``total_ratio_from``. Deflate reaches 1032.
    """

    members: int = 250_000
    directory: int = 64 << 20
    member: int = 16 << 30
    total: int = 64 << 30
    ratio: int = 250
    ratio_from: int = 16 << 20
    total_ratio: int = 100
    total_ratio_from: int = 1 << 30


class RawMember(NamedTuple):
    """A regular file of the archive. ``offset`` is where its data begins; sizes in bytes."""

    path: str
    executable: bool
    offset: int
    csize: int
    size: int
    crc: int
    method: int


class _Header(NamedTuple):
    """One entry of the central directory, directories among them (their ``path`` ends in ``/``)."""

    path: str
    name: bytes
    flags: int
    method: int
    crc: int
    csize: int
    size: int
    mode: int
    offset: int


class _Directory(NamedTuple):
    """Where the central directory is, and how many entries it should have."""

    offset: int
    size: int
    entries: int


def read_archive(
    reader: RandomAccess,
    wheel: str,
    limits: Limits = Limits(),  # noqa: B008 - immutable
) -> list[RawMember]:
    """The regular files of the archive, sorted by path. ``wheel`` is its name in errors.

    Raises ``BuildError`` for everything that the module docstring refuses.
    """
    return _Archive(reader, wheel, limits).read()


class _Archive:
    """One reading of one archive."""

    __slots__ = ("_limits", "_reader", "_wheel")

    def __init__(self, reader: RandomAccess, wheel: str, limits: Limits) -> None:
        self._reader = reader
        self._wheel = wheel
        self._limits = limits

    def read(self) -> list[RawMember]:
        directory = self._find_directory()
        headers = list(self._headers(directory))
        self._check_names(headers)
        self._check_sizes(headers)
        members = self._check_tiling(headers, directory.offset)
        members.sort()
        return members

    def _refuse(self, message: str, hint: str = _HOSTILE) -> NoReturn:
        raise BuildError(message, where=Location(self._wheel), hint=hint)

    def _exactly(self, offset: int, length: int, what: str) -> bytes:
        data = self._reader.pread(offset, length)
        if len(data) != length:
            self._refuse(f"{what} lies beyond the end of the file", _AGAIN)
        return data

    # The end of the file

    def _find_directory(self) -> _Directory:
        size = self._reader.size
        start = max(0, size - _END.size - _MAX16)
        tail = self._reader.pread(start, size - start)
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < _END.size:
            if self._reader.pread(0, 4) in (b"PK\x03\x04", b"PK\x05\x06"):
                self._refuse("the wheel is cut off: its zip archive has no end record", _AGAIN)
            self._refuse("the file is not a zip archive", _AGAIN)
        _, disk, first_disk, here, entries, length, offset, comment = _END.unpack_from(tail, at)
        if at + _END.size + comment != len(tail):
            self._refuse("there are bytes after the end of the zip archive")
        end = start + at
        directory = _Directory(offset, length, entries)
        zip64 = self._find_directory64(end, directory)
        if zip64 is not None:
            directory, end = zip64
        elif disk or first_disk or here != entries:
            self._refuse("the zip archive is spread over several disks")
        if directory.offset + directory.size != end:
            self._refuse(
                "the zip archive's central directory does not lie where its end record says: "
                f"expected it to end at byte {end}, found {directory.offset + directory.size}"
            )
        if directory.size > self._limits.directory or directory.entries > self._limits.members:
            self._refuse(
                f"the zip archive has {directory.entries} members in a directory of "
                f"{directory.size} bytes; the limits are {self._limits.members} and "
                f"{self._limits.directory}"
            )
        return directory

    def _find_directory64(self, end: int, plain: _Directory) -> tuple[_Directory, int] | None:
        """The zip64 end record, where a locator stands right before the plain one (4.3.15)."""
        at = end - _LOCATOR.size
        data = self._reader.pread(at, _LOCATOR.size) if at >= 0 else b""
        if data[:4] != b"PK\x06\x07":
            return None
        _, disk, where, disks = _LOCATOR.unpack(data)
        if where + _END64.size > at:
            self._refuse("the zip64 end record does not lie where its locator says")
        record = self._exactly(where, _END64.size, "the zip64 end record")
        mark, length, _, _, this, first, here, entries, size, offset = _END64.unpack(record)
        if mark != b"PK\x06\x06" or where + 12 + length != at:
            self._refuse("the zip64 end record does not lie where its locator says")
        if disk or this or first or disks > 1 or here != entries:
            self._refuse("the zip archive is spread over several disks")
        for name, old, new, top in (
            ("entries", plain.entries, entries, _MAX16),
            ("size", plain.size, size, _MAX32),
            ("offset", plain.offset, offset, _MAX32),
        ):
            if old not in (new, top):
                self._refuse(
                    f"the zip archive's two end records disagree about the directory's {name}: "
                    f"{old} and {new}"
                )
        return _Directory(offset, size, entries), where

    # The central directory

    def _headers(self, directory: _Directory) -> Iterator[_Header]:
        data = self._exactly(directory.offset, directory.size, "the central directory")
        at = 0
        for _ in range(directory.entries):
            if len(data) - at < _CENTRAL.size or data[at : at + 4] != b"PK\x01\x02":
                self._refuse(
                    "the zip archive's central directory is malformed at byte "
                    f"{directory.offset + at}",
                    _AGAIN,
                )
            fields = _CENTRAL.unpack_from(data, at)
            names = at + _CENTRAL.size
            extras = names + fields[10]
            comment = extras + fields[11]
            at = comment + fields[12]
            if at > len(data):
                self._refuse("the last entry of the central directory is cut off", _AGAIN)
            yield self._header(fields, data[names:extras], data[extras:comment])
        if at != len(data):
            self._refuse(
                f"the central directory has {len(data) - at} bytes after its "
                f"{directory.entries} entries"
            )

    def _header(self, fields: tuple[int, ...], name: bytes, extra: bytes) -> _Header:
        flags, method, crc, csize, size = fields[3], fields[4], fields[7], fields[8], fields[9]
        disk, attributes, offset = fields[13], fields[15], fields[16]
        path = self._path(name, flags)
        if extra:
            size, csize, offset = self._wide(path, extra, size, csize, offset)
        if flags & _ENCRYPTED:
            self._refuse(f"member {path!r} is encrypted")
        if method not in (STORED, DEFLATED) or flags & _PATCHED:
            self._refuse(
                f"member {path!r} has compression method {method}; "
                "expected 0 (stored) or 8 (deflated)",
                "repack the wheel with an ordinary wheel builder",
            )
        if method == STORED and size != csize:
            self._refuse(f"member {path!r} is stored, but its two sizes differ: {csize} and {size}")
        if disk not in (0, _MAX16):
            self._refuse("the zip archive is spread over several disks")
        return _Header(path, name, flags, method, crc, csize, size, attributes >> 16, offset)

    def _path(self, name: bytes, flags: int) -> str:
        try:
            path = name.decode("utf-8" if flags & _UTF8 else "ascii")
        except UnicodeDecodeError:
            self._refuse(f"a member's name is neither ASCII nor marked as UTF-8: {name!r}")
        problem = path_problem(path.removesuffix("/"))
        if problem is None and _deceives(path):
            problem = "an unprintable character in the path"
        if problem is None and (len(name) > 4096 or any(len(p) > 255 for p in name.split(b"/"))):
            problem = "a path or a part of it that no file system takes"
        if problem:
            self._refuse(f"member {path!r}: {problem}")
        return path

    def _wide(
        self, path: str, extra: bytes, size: int, csize: int, offset: int
    ) -> tuple[int, int, int]:
        """The sizes and the offset, with the zip64 field (4.5.3) for those that overflow."""
        values = [size, csize, offset]
        wide = self._extra(path, extra)
        at = 0
        for number, value in enumerate(values):
            if value != _MAX32 or wide is None:
                continue
            if len(wide) - at < 8:
                self._refuse(f"member {path!r} has a malformed zip64 field")
            values[number] = int.from_bytes(wide[at : at + 8], "little")
            at += 8
        return values[0], values[1], values[2]

    def _extra(self, path: str, extra: bytes) -> bytes | None:
        """The zip64 field's data, if there is one. Trailing zeros are padding, as some align."""
        wide: bytes | None = None
        at = 0
        while len(extra) - at >= 4:
            kind, length = struct.unpack_from("<2H", extra, at)
            if at + 4 + length > len(extra):
                self._refuse(f"member {path!r} has a malformed extra field")
            if kind == _EXTRA_UNICODE_PATH:
                self._refuse(f"member {path!r} has a second name in an extra field")
            if kind == _EXTRA_ZIP64:
                if wide is not None:
                    self._refuse(f"member {path!r} has two zip64 fields")
                wide = extra[at + 4 : at + 4 + length]
            at += 4 + length
        if extra[at:].strip(b"\0"):
            self._refuse(f"member {path!r} has a malformed extra field")
        return wide

    # What the members are

    def _check_names(self, headers: list[_Header]) -> None:
        seen: set[str] = set()
        directories: set[str] = set()
        for header in headers:
            path = header.path
            if path in seen:
                self._refuse(f"member {path!r} is there twice")
            seen.add(path)
            self._check_type(header)
            parent = path.rpartition("/")[0]
            while parent and parent not in directories:
                directories.add(parent)
                parent = parent.rpartition("/")[0]
        both = seen & directories
        if both:
            self._refuse(f"member {min(both)!r} is a file and a directory")

    def _check_type(self, header: _Header) -> None:
        kind = header.mode & _IFMT
        is_directory = header.path.endswith("/")
        if kind == _IFLNK:
            self._refuse(
                f"member {header.path!r} is a symbolic link",
                "wheels hold no links; repack the wheel with the file itself",
            )
        if kind not in (0, _IFDIR if is_directory else _IFREG):
            self._refuse(f"member {header.path!r} is neither a file nor a directory")
        if is_directory and header.size:
            self._refuse(f"member {header.path!r} is a directory with {header.size} bytes of data")

    def _check_sizes(self, headers: list[_Header]) -> None:
        limits = self._limits
        total = 0
        for header in headers:
            size = header.size
            total += size
            if size > limits.member:
                self._refuse(
                    f"member {header.path!r} would unpack to {size} bytes; "
                    f"the limit is {limits.member}"
                )
            if size > limits.ratio_from and size > limits.ratio * header.csize:
                self._refuse(
                    f"member {header.path!r} would unpack {header.csize} bytes to {size}, "
                    f"more than {limits.ratio} times as many"
                )
        if total > limits.total:
            self._refuse(f"the wheel would unpack to {total} bytes; the limit is {limits.total}")
        packed = self._reader.size
        if total > limits.total_ratio_from and total > limits.total_ratio * packed:
            self._refuse(
                f"the wheel would unpack {packed} bytes to {total}, "
                f"more than {limits.total_ratio} times as many"
            )

    # The local headers

    def _check_tiling(self, headers: list[_Header], end: int) -> list[RawMember]:
        """Checks that the members fill the file up to ``end``, and finds where their data is."""
        ordered = sorted(headers, key=lambda header: header.offset)
        starts = [header.offset for header in ordered]
        starts.append(end)
        members: list[RawMember] = []
        if starts[0] != 0:
            self._refuse("there are bytes before the first member of the zip archive")
        for header, following in zip(ordered, starts[1:], strict=True):
            data = self._data_offset(header)
            self._check_gap(header, data + header.csize, following)
            if not header.path.endswith("/"):
                members.append(_raw(header, data))
        return members

    def _data_offset(self, header: _Header) -> int:
        name = header.name
        local = self._reader.pread(header.offset, _LOCAL.size + len(name))
        if len(local) < _LOCAL.size or not local.startswith(b"PK\x03\x04"):
            self._refuse(f"member {header.path!r} has no local header", _AGAIN)
        _, _, flags, method, _, _, crc, csize, size, name_size, extra_size = _LOCAL.unpack_from(
            local
        )
        data: int = header.offset + _LOCAL.size + name_size + extra_size
        if local[_LOCAL.size :] != name or name_size != len(name):
            found = self._reader.pread(header.offset + _LOCAL.size, min(name_size, 4096))
            self._refuse(
                f"member {header.path!r} has another name in its local header: "
                f"{found.decode('utf-8', 'backslashreplace')!r}"
            )
        if extra_size:
            extra = self._exactly(data - extra_size, extra_size, f"member {header.path!r}")
            size, csize, _ = self._wide(header.path, extra, size, csize, 0)
        if (flags ^ header.flags) & ~_OPTIONS or method != header.method:
            self._refuse(f"member {header.path!r} has another method or flags in its local header")
        stated = ((crc, header.crc), (csize, header.csize), (size, header.size))
        # With a descriptor the local header comes before the numbers are known (4.4.4, bit 3).
        unknown = (0, _MAX32) if flags & _DESCRIPTOR else ()
        if any(here != there and here not in unknown for here, there in stated):
            self._refuse(f"member {header.path!r} has other sizes or CRC in its local header")
        return data

    def _check_gap(self, header: _Header, end: int, following: int) -> None:
        if end > following:
            self._refuse(f"member {header.path!r} overlaps what comes after it")
        if end == following:
            return
        gap = self._exactly(end, min(following - end, 25), f"member {header.path!r}")
        if not (header.flags & _DESCRIPTOR and gap in _descriptors(header)):
            self._refuse(f"there are {following - end} hidden bytes after member {header.path!r}")


def _deceives(path: str) -> bool:
    """Whether a terminal would show another path: control characters and changes of direction.

    Not ``str.isprintable`` for all: what it says of new characters differs between Pythons.
    """
    if path.isascii():
        return not path.isprintable()
    return any(mark < " " or "\x7f" <= mark <= "\x9f" or mark in _INVISIBLE for mark in path)


def _raw(header: _Header, data: int) -> RawMember:
    # As pip does: executable when the entry is marked as a regular file and any may execute it.
    executable = header.mode & _IFMT == _IFREG and bool(header.mode & 0o111)
    return RawMember(
        header.path, executable, data, header.csize, header.size, header.crc, header.method
    )


def _descriptors(header: _Header) -> tuple[bytes, ...]:
    """The forms that a data descriptor (4.3.9) of this member may have."""
    wide = struct.pack("<LQQ", header.crc, header.csize, header.size)
    forms = [wide, b"PK\x07\x08" + wide]
    if header.csize <= _MAX32 and header.size <= _MAX32:
        narrow = struct.pack("<3L", header.crc, header.csize, header.size)
        forms += [narrow, b"PK\x07\x08" + narrow]
    return tuple(forms)
