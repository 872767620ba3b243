"""Reading a wheel into an index: the archive, RECORD, METADATA and WHEEL, held against each other.

Kept apart from the index itself, which every build reads, while a wheel is read once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import NoReturn

from hq.model.digest import Digest
from hq.model.errors import BuildError, Location
from hq.model.ports import RandomAccess
from hq.model.tree import EXECUTABLE, FILE, Kind
from hq.wheels.archive import Limits, RawMember, read_archive
from hq.wheels.content import Contents, Member, zlib_codec
from hq.wheels.filename import normalize_project, same_version
from hq.wheels.index import Meta, WheelIndex
from hq.wheels.record import Row, parse, sha256_of

_METADATA_LIMIT = 16 << 20
_RECORD_LIMIT = 128 << 20
_NONE = Digest("sha256:" + "0" * 64)


def read_index(
    reader: RandomAccess,
    *,
    project: str,
    version: str,
    wheel: str = "",
    limits: Limits = Limits(),  # noqa: B008 - immutable
    trust_record: bool = True,
) -> WheelIndex:
    """Reads and checks the wheel of ``project`` at ``version``, as the lock names them.

    ``wheel`` is its file name, for errors. Without ``trust_record`` every member is hashed and
    RECORD is not looked at: some published wheels were changed after their RECORD was written, and
    the wheel's own hash in the lock still says what they hold.

    Raises ``BuildError`` for a malformed archive, for RECORD, METADATA or WHEEL that is missing,
    malformed or at odds with the archive, and for a wheel of another project or version.
    """
    read = _Wheel(reader, wheel or f"{project}-{version}.whl", limits)
    return read.index(project, version, trust_record=trust_record)


class _Wheel:
    """One reading of one wheel."""

    __slots__ = ("_contents", "_dist_info", "_members", "_reader", "_wheel")

    def __init__(self, reader: RandomAccess, wheel: str, limits: Limits) -> None:
        self._reader = reader
        self._wheel = wheel
        self._members = {raw.path: raw for raw in read_archive(reader, wheel, limits)}
        self._contents = Contents(reader, wheel, zlib_codec())
        self._dist_info = ""

    def index(self, project: str, version: str, *, trust_record: bool) -> WheelIndex:
        self._dist_info = self._find_dist_info()
        members = (
            self._recorded()
            if trust_record
            else [self._hashed(raw) for raw in self._members.values()]
        )
        purelib = self._check_wheel()
        found_project, found_version = self._check_metadata(project, version)
        self._check_dist_info(found_project, found_version)
        data_dir = self._dist_info.removesuffix(".dist-info") + ".data"
        size = self._reader.size
        meta = Meta(found_project, found_version, self._dist_info, data_dir, purelib, size)
        return WheelIndex.build(meta, members)

    def _recorded(self) -> list[Member]:
        record = self._read("RECORD", _RECORD_LIMIT)
        rows = {row.path: row for row in parse(record, file=self._file("RECORD"))}
        return self._join(rows, Digest.of(record))

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
