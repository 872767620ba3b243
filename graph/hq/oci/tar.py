"""Tar headers that are the same bytes everywhere.

POSIX ustar (IEEE Std 1003.1, pax, "ustar Interchange Format") with uid and gid 0, no user and group
names, mode 0644, or 0755 for directories and executables, and one modification time for all. A pax
extended header precedes an entry only when ustar cannot say something: a name that is not ASCII or
does not fit even when split at a ``/``, such a link target, a size of 8 GiB or more. A root file
system needs other modes, owners by number, and hard links: ``attributes`` and the kind ``h``.
"""

from __future__ import annotations

from typing import Final, Literal

from hq.model.errors import UsageError

BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
"""The end of an archive: two blocks of zeros."""

DIRECTORY: Final = "d"
HARD_LINK: Final = "h"
EntryKind = Literal["f", "x", "l", "d", "h"]

MAX_MTIME: Final = 8**11 - 1
MAX_OWNER: Final = 8**7 - 1

_TYPES = {"f": b"0", "x": b"0", "l": b"2", "d": b"5", "h": b"1", "pax": b"x"}
_MODES = {"f": b"0000644\0", "x": b"0000755\0", "l": b"0000777\0", "d": b"0000755\0"}
_MODES["pax"] = _MODES["h"] = _MODES["f"]
_ZERO8 = b"0000000\0"
_ATTRIBUTES = {kind: mode + _ZERO8 + _ZERO8 for kind, mode in _MODES.items()}
_TAIL = b"ustar\00000" + bytes(64) + _ZERO8 + _ZERO8  # magic, version, names, device numbers
_PAX_NAME = b"././@PaxHeader"
_NO_PAD = b""


def check_mtime(mtime: int) -> int:
    """``mtime`` if a header can hold it. Raises ``UsageError``."""
    if not 0 <= mtime <= MAX_MTIME:
        raise UsageError(
            f"a modification time of {mtime} does not fit into a tar header",
            hint=f"set SOURCE_DATE_EPOCH to a number from 0 to {MAX_MTIME}",
        )
    return mtime


def padding(size: int) -> bytes:
    """The zeros that fill the last block after ``size`` bytes of content."""
    rest = -size % BLOCK
    return bytes(rest) if rest else _NO_PAD


def attributes(mode: int, uid: int, gid: int) -> bytes:
    """The three header fields, for ``entry``. Owners are at most ``MAX_OWNER``."""
    return b"%07o\0%07o\0%07o\0" % (mode, uid, gid)


def entry(
    path: str, kind: EntryKind, size: int, mtime: int, target: str = "", owned: bytes = b""
) -> bytes:
    """The header blocks of one entry: one, or three and more when pax records are needed.

    ``size`` in bytes, 0 for links and directories. ``target`` is a link's. ``mtime`` in seconds,
    checked by ``check_mtime``. ``owned``: ``attributes`` instead of the usual mode and owner.
    """
    name = (path + "/" if kind == DIRECTORY else path).encode("utf-8", "surrogateescape")
    link = target.encode("utf-8", "surrogateescape")
    records: dict[str, bytes] = {}
    place = _split(name)
    if place is None:
        records["path"] = name
        place = b"", _shorten(name)
    if len(link) > 100 or not link.isascii():
        records["linkpath"] = link
        link = _shorten(link)
    stated = size
    if size >= 8**11:
        records["size"] = b"%d" % size
        stated = 0
    block = _block(place, kind, stated, mtime, link, owned)
    return _pax(records, mtime) + block if records else block


def _block(
    place: tuple[bytes, bytes],
    kind: str,
    size: int,
    mtime: int,
    link: bytes,
    owned: bytes = b"",
) -> bytes:
    prefix, name = place
    head = b"%-100b%b%011o\0%011o\0" % (b"", owned or _ATTRIBUTES[kind], size, mtime)
    head = name.ljust(100, b"\0") + head[100:]
    tail = _TYPES[kind] + link.ljust(100, b"\0") + _TAIL + prefix.ljust(167, b"\0")
    # The sum is taken with the checksum field full of blanks.
    total = sum(head) + 8 * 32 + sum(tail)
    return b"%b%06o\0 %b" % (head, total, tail)


def _split(name: bytes) -> tuple[bytes, bytes] | None:
    """Prefix and name as ustar wants them, or ``None`` when it cannot hold ``name``."""
    if not name.isascii():
        return None
    if len(name) <= 100:
        return b"", name
    # The leftmost cut that leaves a name of at most 100 bytes, and not an empty one.
    cut = name.find(b"/", len(name) - 101, len(name) - 1)
    if not 0 < cut <= 155:
        return None
    return name[:cut], name[cut + 1 :]


def _shorten(text: bytes) -> bytes:
    """Something for readers that know no pax; all others take the record."""
    return text.decode("utf-8", "surrogateescape").encode("ascii", "replace")[:100]


def _pax(records: dict[str, bytes], mtime: int) -> bytes:
    body = b"".join(_record(key.encode(), records[key]) for key in sorted(records))
    head = _block((b"", _PAX_NAME), "pax", len(body), mtime, b"")
    return head + body + padding(len(body))


def _record(key: bytes, value: bytes) -> bytes:
    """``length key=value LF``; the length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)
