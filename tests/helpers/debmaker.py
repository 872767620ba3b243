"""Debian packages made inline: good ones, and ones that no tool would make."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import zstandard

COMPRESSORS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gz": lambda data: gzip.compress(data, mtime=0),
    "xz": lzma.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
    "bz2": bz2.compress,
}


class Member(NamedTuple):
    """One entry of a tar. ``type``: the type flag."""

    name: str
    data: bytes = b""
    type: bytes = b"0"
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    link: str = ""


def folder(name: str, mode: int = 0o755, gid: int = 0) -> Member:
    return Member(name, type=b"5", mode=mode, gid=gid)


def symlink(name: str, target: str) -> Member:
    return Member(name, type=b"2", mode=0o777, link=target)


def hard_link(name: str, target: str) -> Member:
    return Member(name, type=b"1", link=target)


def tar_header(member: Member, size: int | None = None) -> bytes:
    """One GNU header block; nothing is checked."""
    name = member.name.encode("utf-8", "surrogateescape")
    link = member.link.encode("utf-8", "surrogateescape")
    stated = len(member.data) if size is None else size
    head = b"%-100b%07o\0%b%b%011o\0%011o\0" % (
        b"",
        member.mode,
        _number(member.uid),
        _number(member.gid),
        stated,
        1_600_000_000,
    )
    head = name[:100].ljust(100, b"\0") + head[100:]
    tail = member.type + link[:100].ljust(100, b"\0") + b"ustar  \0" + bytes(247)
    total = sum(head) + 256 + sum(tail)
    return head + b"%06o\0 " % total + tail


def _number(value: int) -> bytes:
    """Eight bytes; GNU's base 256 for what octal digits cannot say."""
    return b"%07o\0" % value if value < 8**7 else b"\x80" + value.to_bytes(7, "big")


def tar(members: Iterable[Member], *, end: bytes = bytes(1024)) -> bytes:
    """A tar as dpkg-deb writes it, with GNU's long names where they are needed."""
    out = b""
    for member in members:
        for flag, text in ((b"L", member.name), (b"K", member.link)):
            data = text.encode("utf-8", "surrogateescape") + b"\0"
            if len(data) > 101:
                long = Member("././@LongLink", data, flag)
                out += tar_header(long) + data + bytes(-len(data) % 512)
        out += tar_header(member) + member.data + bytes(-len(member.data) % 512)
    return out + end


def ar(members: Iterable[tuple[str, bytes]]) -> bytes:
    """An ar archive."""
    out = b"!<arch>\n"
    for name, data in members:
        out += b"%-16b%-12d%-6d%-6d%-8o%-10d`\n" % (name.encode(), 0, 0, 0, 0o100644, len(data))
        out += data + b"\n" * (len(data) % 2)
    return out


def control(name: str = "demo", version: str = "1.0", arch: str = "amd64", **more: str) -> str:
    """A control file; ``Multi_Arch="same"`` gives the field ``Multi-Arch``."""
    fields = {
        "Package": name,
        "Version": version,
        "Architecture": arch,
        **{key.replace("_", "-"): value for key, value in more.items()},
        "Maintainer": "Nobody <nobody@example.org>",
        "Description": "a package\n made for a test",
    }
    return "".join(f"{key}: {value}\n" for key, value in fields.items())


def md5sums(members: Iterable[Member]) -> bytes:
    lines = [
        f"{hashlib.md5(member.data).hexdigest()}  {member.name.removeprefix('./')}\n"
        for member in members
        if member.type == b"0"
    ]
    return "".join(lines).encode()


def deb(
    members: Sequence[Member] = (),
    *,
    text: str | None = None,
    files: Mapping[str, bytes] | None = None,
    compressor: str = "xz",
    data: bytes | None = None,
    end: bytes = bytes(1024),
) -> bytes:
    """A package of ``members``. ``files``: more control files; ``data``: another data tar."""
    held = {"control": (text if text is not None else control()).encode(), **(files or {})}
    control_tar = tar([folder("./"), *(Member(f"./{name}", held[name]) for name in held)])
    compress = COMPRESSORS[compressor]
    ending = f".{compressor}" if compressor else ""
    return ar(
        [
            ("debian-binary", b"2.0\n"),
            (f"control.tar{ending}", compress(control_tar)),
            (f"data.tar{ending}", compress(tar(members, end=end) if data is None else data)),
        ]
    )
