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

import hashlib
import json
import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, NoReturn

from hq.model.digest import Digest
from hq.model.errors import BuildError, Location
from hq.model.ports import RandomAccess
from hq.model.tree import EXECUTABLE, FILE, Entry, Kind
from hq.wheels.archive import Limits, RawMember, read_archive
from hq.wheels.content import Contents, Member, zlib_codec
from hq.wheels.filename import normalize_project, same_version
from hq.wheels.record import Row, parse, sha256_of

INDEX_VERSION: Final = 1
"""Goes up when the meaning or the encoding of an index changes; part of the wheel node's key."""

_MAGIC = b"hqwhl/1\n"
_COUNTS = struct.Struct("<4L")
_ROW = struct.Struct("<LHBBLQQQ32s")
_NAME = struct.Struct("<LH")
_KINDS: tuple[Kind, Kind] = (FILE, EXECUTABLE)

_METADATA_LIMIT = 16 << 20
_RECORD_LIMIT = 128 << 20
_NONE = Digest("sha256:" + "0" * 64)


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


def read_index(
    reader: RandomAccess,
    *,
    project: str,
    version: str,
    wheel: str = "",
    limits: Limits = Limits(),  # noqa: B008 - immutable
) -> WheelIndex:
    """Reads and checks the wheel of ``project`` at ``version``, as the lock names them.

    ``wheel`` is its file name, for errors. Raises ``BuildError`` for a malformed archive, for
    RECORD, METADATA or WHEEL that is missing, malformed or at odds with the archive, and for a
    wheel of another project or version.
    """
    return _Wheel(reader, wheel or f"{project}-{version}.whl", limits).index(project, version)


class _Wheel:
    """One reading of one wheel."""

    __slots__ = ("_contents", "_dist_info", "_members", "_reader", "_wheel")

    def __init__(self, reader: RandomAccess, wheel: str, limits: Limits) -> None:
        self._reader = reader
        self._wheel = wheel
        self._members = {raw.path: raw for raw in read_archive(reader, wheel, limits)}
        self._contents = Contents(reader, wheel, zlib_codec())
        self._dist_info = ""

    def index(self, project: str, version: str) -> WheelIndex:
        self._dist_info = self._find_dist_info()
        record = self._read("RECORD", _RECORD_LIMIT)
        rows = {row.path: row for row in parse(record, file=self._file("RECORD"))}
        members = self._join(rows, Digest.of(record))
        purelib = self._check_wheel()
        found_project, found_version = self._check_metadata(project, version)
        self._check_dist_info(found_project, found_version)
        data_dir = self._dist_info.removesuffix(".dist-info") + ".data"
        size = self._reader.size
        meta = Meta(found_project, found_version, self._dist_info, data_dir, purelib, size)
        return WheelIndex.build(meta, members)

    def _refuse(self, message: str, hint: str = "", file: str = "", line: int = 0) -> NoReturn:
        where = Location(file or self._wheel, line)
        raise BuildError(message, where=where, hint=hint or "use a wheel of a current builder")

    def _file(self, name: str) -> str:
        return f"{self._wheel}/{self._dist_info}/{name}"

    def _find_dist_info(self) -> str:
        tops = {path.partition("/")[0] for path in self._members if "/" in path}
        found = sorted(top for top in tops if top.endswith(".dist-info"))
        if not found:
            self._refuse("the wheel has no .dist-info directory")
        if len(found) > 1:
            self._refuse(f"the wheel has several .dist-info directories: {', '.join(found)}")
        return found[0]

    def _read(self, name: str, limit: int) -> bytes:
        path = f"{self._dist_info}/{name}"
        raw = self._members.get(path)
        if raw is None:
            self._refuse(f"the wheel has no {path}")
        if raw.size > limit:
            self._refuse(f"{path} has {raw.size} bytes; the limit is {limit}")
        return b"".join(self._contents.chunks(_member(raw, _NONE)))

    # RECORD against the archive

    def _join(self, rows: Mapping[str, Row], record: Digest) -> list[Member]:
        members: list[Member] = []
        own = f"{self._dist_info}/RECORD"
        file = self._file("RECORD")
        unhashed = (own, own + ".jws", own + ".p7s")
        for path, raw in self._members.items():
            row = rows.get(path)
            if path == own:
                if row is None:
                    self._refuse("RECORD does not list itself", file=file)
                members.append(_member(raw, record))
            elif path in unhashed and (row is None or not row.hash):
                members.append(self._hashed(raw))
            elif row is None:
                self._refuse(f"member {path!r} is not in RECORD", file=file)
            else:
                members.append(_member(raw, sha256_of(row, file=file)))
                self._check_size(row, raw, file)
        for path, row in rows.items():
            if path not in self._members:
                self._refuse(
                    f"RECORD lists {path!r}, which is not in the wheel", file=file, line=row.line
                )
        return members

    def _check_size(self, row: Row, raw: RawMember, file: str) -> None:
        # The size may be left out; when it is there it has to be right.
        if row.size and row.size != str(raw.size):
            self._refuse(
                f"RECORD gives {row.path!r} a size of {row.size}; the archive has {raw.size}",
                file=file,
                line=row.line,
            )

    def _hashed(self, raw: RawMember) -> Member:
        whole = hashlib.sha256()
        for piece in self._contents.chunks(_member(raw, _NONE)):
            whole.update(piece)
        return _member(raw, Digest.from_hex(whole.hexdigest()))

    # METADATA and WHEEL

    def _fields(self, name: str) -> dict[str, tuple[str, int]]:
        """The header fields: lower-case name to value and line; the first of a name counts."""
        data = self._read(name, _METADATA_LIMIT)
        fields: dict[str, tuple[str, int]] = {}
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self._refuse(f"{name} is not UTF-8", file=self._file(name), line=line)
        for number, line_text in enumerate(text.split("\n"), 1):
            if not line_text.strip():
                break
            key, colon, value = line_text.partition(":")
            if colon and not line_text[0].isspace():
                fields.setdefault(key.strip().lower(), (value.strip(), number))
        return fields

    def _field(self, fields: Mapping[str, tuple[str, int]], file: str, name: str) -> str:
        value, _ = fields.get(name.lower(), ("", 0))
        if not value:
            self._refuse(f"{file} has no {name} field", file=self._file(file))
        return value

    def _check_wheel(self) -> bool:
        fields = self._fields("WHEEL")
        version = self._field(fields, "WHEEL", "Wheel-Version")
        if not re.fullmatch(r"1\.[0-9]+", version):
            self._refuse(
                f"the wheel has format version {version!r}; hq reads 1.x",
                file=self._file("WHEEL"),
                line=fields["wheel-version"][1],
            )
        purelib = self._field(fields, "WHEEL", "Root-Is-Purelib").lower()
        if purelib not in ("true", "false"):
            self._refuse(
                f"Root-Is-Purelib is {purelib!r}; expected 'true' or 'false'",
                file=self._file("WHEEL"),
                line=fields["root-is-purelib"][1],
            )
        return purelib == "true"

    def _check_metadata(self, project: str, version: str) -> tuple[str, str]:
        fields = self._fields("METADATA")
        found_project = self._field(fields, "METADATA", "Name")
        found_version = self._field(fields, "METADATA", "Version")
        for name, expected, found, same in (
            ("name", project, found_project,
             normalize_project(project) == normalize_project(found_project)),
            ("version", version, found_version, same_version(version, found_version)),
        ):  # fmt: skip
            if not same:
                self._refuse(
                    f"the wheel's {name} is {found!r}; the lock says {expected!r}",
                    "lock this wheel, or fetch the one that is locked",
                    self._file("METADATA"),
                    fields[name][1],
                )
        return found_project, found_version

    def _check_dist_info(self, project: str, version: str) -> None:
        name, dash, rest = self._dist_info.removesuffix(".dist-info").partition("-")
        same = normalize_project(name) == normalize_project(project)
        if not dash or not same or not same_version(rest.replace("_", "-"), version):
            self._refuse(
                f"the directory {self._dist_info!r} does not belong to {project} {version}, "
                "which METADATA names"
            )


def _member(raw: RawMember, digest: Digest) -> Member:
    kind: Kind = EXECUTABLE if raw.executable else FILE
    return Member(raw.path, kind, raw.offset, raw.csize, raw.size, raw.crc, raw.method, digest)
