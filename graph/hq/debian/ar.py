"""The outer container of a package: an ar archive of three members (deb(5)).

``debian-binary`` with the text ``2.0``, then ``control.tar`` and ``data.tar`` with the ending of
their compressor. Members between whose names begin with ``_`` are passed over, as dpkg does; any
other order or number of members is refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hq.debian.refuse import refuse
from hq.model.ports import RandomAccess

MAGIC: Final = b"!<arch>\n"
_HEADER: Final = 60
_MAX_MEMBERS: Final = 16
_ORDER: Final = ("debian-binary", "control.tar", "data.tar")
_COMPRESSORS: Final = ("", "gz", "xz", "zst", "bz2")


class Part(NamedTuple):
    """A compressed tar in the package: where it is, in bytes, and how it is compressed."""

    name: str
    offset: int
    size: int
    compressor: str


def read_parts(reader: RandomAccess, package: str) -> tuple[Part, Part]:
    """The control and the data member. Raises ``BuildError``, which names ``package``."""
    if reader.pread(0, len(MAGIC)) != MAGIC:
        refuse(package, "this is no Debian package: it does not begin as an ar archive")
    found: list[Part] = []
    at = len(MAGIC)
    for _ in range(_MAX_MEMBERS):
        if at >= reader.size:
            break
        part = _member(reader, at, package)
        at = part.offset + part.size + part.size % 2
        if not (part.name.startswith("_") and found):
            found.append(part)
    else:
        refuse(package, f"the package has more than {_MAX_MEMBERS} members")
    return _in_order(reader, found, package)


def _member(reader: RandomAccess, at: int, package: str) -> Part:
    header = reader.pread(at, _HEADER)
    if len(header) < _HEADER:
        refuse(package, f"the package ends in the middle of a member's header, at byte {at}")
    name = header[:16].rstrip(b" ").rstrip(b"/")
    size = header[48:58].rstrip(b" ")
    if header[58:] != b"`\n" or not size.isdigit() or not name.isascii() or not name:
        refuse(package, f"the member header at byte {at} cannot be read")
    offset = at + _HEADER
    if offset + int(size) > reader.size:
        refuse(
            package,
            f"member {name.decode()!r} states {int(size)} bytes, {reader.size - offset} are left",
        )
    stem, _, ending = name.decode().partition(".tar.")
    is_tar = ".tar." in name.decode()
    return Part(f"{stem}.tar" if is_tar else name.decode(), offset, int(size), ending)


def _in_order(reader: RandomAccess, found: list[Part], package: str) -> tuple[Part, Part]:
    names = tuple(part.name for part in found)
    if names != _ORDER:
        refuse(
            package,
            f"expected the members {', '.join(_ORDER)}, found {', '.join(names) or 'none'}",
        )
    version = reader.pread(found[0].offset, min(found[0].size, 16))
    if not version.startswith(b"2.") or not version.endswith(b"\n"):
        refuse(package, f"expected a package of format 2.0, found {version!r}")
    for part in found[1:]:
        if part.compressor not in _COMPRESSORS:
            refuse(package, f"{part.name} has the unknown compressor {part.compressor!r}")
    return found[1], found[2]
