"""Builds wheels in memory, right ones and wrong ones.

``make_wheel`` gives a correct wheel that computes its own RECORD. For a wrong one take
``wheel_items``, change an item (every field of the zip structure can be made to lie), and
``build_zip`` the list. Written without ``zipfile``, which refuses or repairs much of what a hostile
wheel contains.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

REGULAR = 0o100000
MODE_FILE = REGULAR | 0o644
MODE_EXECUTABLE = REGULAR | 0o755
MODE_SYMLINK = 0o120777
MODE_DIRECTORY = 0o040755

STORED = 0
DEFLATED = 8
DESCRIPTOR = 0x0008


@dataclass(frozen=True, kw_only=True)
class ZipItem:
    """One member. What is ``None`` is computed from ``data`` or copied from its neighbour."""

    name: bytes
    data: bytes = b""
    method: int = DEFLATED
    mode: int = MODE_FILE
    flags: int = 0
    level: int = 6
    raw: bytes | None = None
    """The compressed data."""
    crc: int | None = None
    size: int | None = None
    csize: int | None = None
    offset: int | None = None
    extra: bytes = b""
    local_name: bytes | None = None
    local_extra: bytes = b""
    local_crc: int | None = None
    local_size: int | None = None
    local_csize: int | None = None
    local_method: int | None = None
    local_mark: bytes = b"PK\x03\x04"
    descriptor: bytes = b""
    after: bytes = b""
    """Bytes between this member and the next."""
    listed: bool = True
    """Whether the central directory knows it."""

    @property
    def packed(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return deflate(self.data, self.level) if self.method == DEFLATED else self.data

    @property
    def true_crc(self) -> int:
        return zlib.crc32(self.data) if self.crc is None else self.crc


def deflate(data: bytes, level: int = 6) -> bytes:
    if level == 0:
        return _stored_blocks(data)
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def _stored_blocks(data: bytes) -> bytes:
    """A deflate stream that is the same with every zlib (RFC 1951, 3.2.4)."""
    blocks = [data[at : at + 0xFFFF] for at in range(0, len(data), 0xFFFF)] or [b""]
    return b"".join(
        struct.pack("<B2H", number == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
        for number, block in enumerate(blocks)
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _local(item: ZipItem) -> bytes:
    name = item.name if item.local_name is None else item.local_name
    csize = _or(item.local_csize, _or(item.csize, len(item.packed)))
    return (
        struct.pack(
            "<4s5H3L2H", item.local_mark, 20, item.flags, _or(item.local_method, item.method),
            0, 33,
            _or(item.local_crc, item.true_crc), csize,
            _or(item.local_size, _or(item.size, len(item.data))), len(name), len(item.local_extra),
        )
        + name
        + item.local_extra
    )  # fmt: skip


def _central(item: ZipItem, offset: int) -> bytes:
    return (
        struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", 0x0314, 20, item.flags, item.method, 0, 33,
            item.true_crc, _or(item.csize, len(item.packed)), _or(item.size, len(item.data)),
            len(item.name), len(item.extra), 0, 0, 0, item.mode << 16, _or(item.offset, offset),
        )
        + item.name
        + item.extra
    )  # fmt: skip


def build_zip(
    items: Sequence[ZipItem],
    *,
    before: bytes = b"",
    after: bytes = b"",
    comment: bytes = b"",
    directory_tail: bytes = b"",
    zip64: bool = False,
    entries: int | None = None,
    disk: int = 0,
    directory_shift: int = 0,
) -> bytes:
    """The archive. ``zip64`` adds a zip64 end record; its plain one then has the top values."""
    out = bytearray(before)
    central = bytearray()
    for item in items:
        offset = len(out)
        out += _local(item) + item.packed + item.descriptor + item.after
        if item.listed:
            central += _central(item, offset)
    central += directory_tail
    start = len(out)
    out += central
    count = sum(item.listed for item in items) if entries is None else entries
    size = len(central)
    if zip64:
        where = len(out)
        out += struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
        out += struct.pack("<4sLQL", b"PK\x06\x07", 0, where, 1)
        count, size, start = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF - directory_shift
    out += struct.pack(
        "<4s4H2LH",
        b"PK\x05\x06",
        disk,
        0,
        count,
        count,
        size,
        start + directory_shift,
        len(comment),
    )
    return bytes(out) + comment + after


def record_hash(data: bytes, algorithm: str = "sha256") -> str:
    digest = hashlib.new(algorithm, data).digest()
    return f"{algorithm}={urlsafe_b64encode(digest).decode().rstrip('=')}"


def record_for(files: Mapping[str, bytes], record_path: str) -> bytes:
    """RECORD for ``files``, with its own row last."""
    lines = [f"{_quoted(path)},{record_hash(data)},{len(data)}\n" for path, data in files.items()]
    return "".join([*lines, f"{record_path},,\n"]).encode()


def _quoted(path: str) -> str:
    return '"' + path.replace('"', '""') + '"' if set(path) & set(',"') else path


def metadata(project: str, version: str) -> bytes:
    return f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n\nText.\n".encode()


def wheel_metadata(*, purelib: bool = True, version: str = "1.0") -> bytes:
    flag = "true" if purelib else "false"
    return f"Wheel-Version: {version}\nRoot-Is-Purelib: {flag}\nTag: py3-none-any\n".encode()


def dist_info(project: str, version: str) -> str:
    return f"{project.replace('-', '_')}-{version}.dist-info"


def wheel_items(
    files: Mapping[str, bytes],
    *,
    project: str = "demo",
    version: str = "1.0",
    executables: Collection[str] = (),
    stored: Collection[str] = (),
    purelib: bool = True,
    extra_info: Mapping[str, bytes] | None = None,
    record: bytes | None = None,
    level: int = 6,
) -> list[ZipItem]:
    """The members of a correct wheel: ``files`` in their order, then the dist-info directory.

    ``extra_info`` adds files to the dist-info directory or replaces them; ``record`` replaces
    RECORD.
    """
    info = dist_info(project, version)
    everything = dict(files)
    own = {"METADATA": metadata(project, version), "WHEEL": wheel_metadata(purelib=purelib)}
    for name, data in {**own, **(extra_info or {})}.items():
        everything[f"{info}/{name}"] = data
    record_path = f"{info}/RECORD"
    if record is None:
        record = record_for(everything, record_path)
    everything[record_path] = record
    return [
        item(
            path,
            data,
            method=STORED if path in stored else DEFLATED,
            mode=MODE_EXECUTABLE if path in executables else MODE_FILE,
            level=level,
        )
        for path, data in everything.items()
    ]


def item(
    path: str, data: bytes = b"", *, method: int = DEFLATED, mode: int = MODE_FILE, level: int = 6
) -> ZipItem:
    """An ordinary member."""
    flags = 0 if path.isascii() else 0x0800
    return ZipItem(
        name=path.encode(), data=data, method=method, mode=mode, flags=flags, level=level
    )


def with_descriptor(member: ZipItem) -> ZipItem:
    """The member as a writer makes it that cannot seek: the numbers come after the data."""
    numbers = struct.pack("<3L", member.true_crc, len(member.packed), len(member.data))
    return replace(
        member,
        flags=member.flags | DESCRIPTOR,
        local_crc=0,
        local_size=0,
        local_csize=0,
        descriptor=b"PK\x07\x08" + numbers,
    )


def make_wheel(
    files: Mapping[str, bytes],
    *,
    project: str = "demo",
    version: str = "1.0",
    executables: Collection[str] = (),
    stored: Collection[str] = (),
    purelib: bool = True,
    extra_info: Mapping[str, bytes] | None = None,
    level: int = 6,
) -> bytes:
    """A correct wheel."""
    return build_zip(
        wheel_items(
            files,
            project=project,
            version=version,
            executables=executables,
            stored=stored,
            purelib=purelib,
            extra_info=extra_info,
            level=level,
        )
    )
