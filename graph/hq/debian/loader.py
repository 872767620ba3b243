"""The dynamic loader's cache, ``/etc/ld.so.cache``, as ``ldconfig`` makes it.

Without it the loader still finds the system's own directories, but ``ldconfig -p`` fails, which
``ctypes.util.find_library`` and others ask. The cache is made for the directories that ldconfig
would look in: those of ``/etc/ld.so.conf.d`` and the loader's own.

Format (glibc, ``elf/cache.c`` and ``sysdeps/generic/dl-cache.h``, "new format"): a header of 48
bytes, one record of 24 bytes for each library in falling order of names, then the names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from hq.debian.root import Root, real_path

MAGIC: Final = b"glibc-ld.so.cache1.1"
_HEADER: Final = struct.Struct("<20sIIB3xI3I")
_RECORD: Final = struct.Struct("<iIIIQ")
_ELF64: Final = b"\x7fELF\x02\x01"
_LITTLE_ENDIAN: Final = 2
# FLAG_ELF_LIBC6 with the bits of the machine (sysdeps/unix/sysv/linux/*/dl-cache.h).
_FLAGS: Final = {62: 0x0303, 183: 0x0A03}  # x86-64, AArch64
_NAME: Final = re.compile(r"(lib[^/]*|ld-[^/]*)\.so(\.[^/]*)?\Z")
_SYSTEM: Final = ("lib", "usr/lib", "lib64", "usr/lib64")
_CONFIGURATION: Final = "etc/ld.so.conf.d/"
_LINKS: Final = 16
_LOAD, _DYNAMIC = 1, 2  # program headers (elf(5))
_END, _STRTAB, _SONAME = 0, 5, 14  # dynamic tags

Read = Callable[[str], bytes]
"""The content of a file of the root by its path."""


class Library(NamedTuple):
    """A name that programs link with, the absolute path of the file, and the record's flags."""

    name: str
    path: str
    flags: int


def loader_cache(root: Root, read: Read) -> bytes:
    """The content of the cache for ``root``."""
    found: dict[str, Library] = {}
    known: dict[str, tuple[int, str] | None] = {}

    def described(path: str) -> tuple[int, str] | None:
        if path not in known:
            known[path] = describe(read(path))
        return known[path]

    for real, spelled in _folders(root, read).items():
        for library in _libraries(root, described, real, spelled):
            found.setdefault(library.name, library)
    return encode(found.values())


def encode(libraries: Iterable[Library]) -> bytes:
    """The file of ``libraries``, whose names differ."""
    ordered = sorted(libraries, key=lambda library: _order(library.name), reverse=True)
    at = _HEADER.size + len(ordered) * _RECORD.size
    records: list[bytes] = []
    texts: list[bytes] = []
    for library in ordered:
        name, path = library.name.encode() + b"\0", library.path.encode() + b"\0"
        records.append(_RECORD.pack(library.flags, at, at + len(name), 0, 0))
        texts += [name, path]
        at += len(name) + len(path)
    length = sum(map(len, texts))
    header = _HEADER.pack(MAGIC, len(ordered), length, _LITTLE_ENDIAN, 0, 0, 0, 0)
    return b"".join([header, *records, *texts])


def _order(name: str) -> list[tuple[int, int]]:
    """Glibc's order of names: numbers by value, and after all other characters."""
    return [
        (2, int(part)) if part.isdigit() else (1, ord(part))
        for part in re.findall(r"[0-9]+|[^0-9]", name)
    ]


def _folders(root: Root, read: Read) -> dict[str, str]:
    """Real paths of the directories to look in, and how they are spelled, in order."""
    listed: list[str] = []
    for path in sorted(root):
        if path.startswith(_CONFIGURATION) and path.endswith(".conf"):
            for line in read(path).decode("ascii", "replace").split("\n"):
                text = line.partition("#")[0].strip()
                if text.startswith("/"):
                    listed.append(text.strip("/"))
    found: dict[str, str] = {}
    for folder in [*listed, *_SYSTEM]:
        found.setdefault(real_path(f"{folder}/").rstrip("/"), folder)
    return found


def _libraries(
    root: Root, described: Callable[[str], tuple[int, str] | None], real: str, spelled: str
) -> Iterator[Library]:
    beneath = f"{real}/"
    for path in root:
        name = path.removeprefix(beneath)
        if not path.startswith(beneath) or not _NAME.match(name) or not name.isascii():
            continue
        target = _file_at(root, path)
        seen = described(target) if target else None
        if seen is None:
            continue
        machine, soname = seen
        for_linking = root[path].item.type == "l" and name.endswith(".so")
        if machine in _FLAGS and (for_linking or name == (soname or name)):
            yield Library(name, f"/{spelled}/{name}", _FLAGS[machine])


def _file_at(root: Root, path: str) -> str | None:
    """The file that ``path`` leads to through symlinks, if there is one."""
    for _ in range(_LINKS):
        placed = root.get(path)
        if placed is None or placed.item.type in ("f", "h"):
            return path if placed else None
        if placed.item.type != "l":
            return None
        link = placed.item.link
        start = [] if link.startswith("/") else path.split("/")[:-1]
        for part in link.split("/"):
            if part == "..":
                start = start[:-1]
            elif part not in ("", "."):
                start.append(part)
        path = real_path("/".join(start))
    return None


def describe(data: bytes) -> tuple[int, str] | None:
    """Machine and soname (or ``""``) of a 64-bit shared object; ``None`` for all else."""
    if not data.startswith(_ELF64):
        return None
    try:
        return _describe(data)
    except (struct.error, ValueError, IndexError, OverflowError):
        return None


def _describe(data: bytes) -> tuple[int, str] | None:
    kind, machine = struct.unpack_from("<HH", data, 16)
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQ", data, table + size * n) for n in range(count)]
    dynamic = [header for header in headers if header[0] == _DYNAMIC]
    if kind != 3 or not dynamic:
        return None
    _, _, at, _, _, length = dynamic[0]
    tags: dict[int, int] = {}
    for position in range(at, at + length, 16):
        tag, value = struct.unpack_from("<QQ", data, position)
        if tag == _END:
            break
        tags.setdefault(tag, value)
    if _SONAME not in tags or _STRTAB not in tags:
        return machine, ""
    for _, _, offset, address, _, length in (head for head in headers if head[0] == _LOAD):
        if address <= tags[_STRTAB] < address + length:
            start = offset + tags[_STRTAB] - address + tags[_SONAME]
            return machine, data[start : data.index(b"\0", start)].decode("ascii")
    return machine, ""
