"""File names and dates on the header lines of a diff.

Grammar of what follows ``--- `` (git's diff.c and apply.c, GNU patch's pch.c)::

    side  = quoted [TAB date] | name TAB [date] | name " " date | name
    quoted = '"' C-escapes with octal bytes '"'

A name without a tab after it may hold blanks (git writes a bare tab behind such a name, GNU diff
always writes a date). Where neither a tab nor a date tells, both readings are kept.

The epoch stands for "not there" (``diff -N``), in whatever time zone the writer's clock was set.
"""

from __future__ import annotations

import re

from hq.patchwork.patch import Side

_ESCAPES = {
    ord("a"): 7,
    ord("b"): 8,
    ord("t"): 9,
    ord("n"): 10,
    ord("v"): 11,
    ord("f"): 12,
    ord("r"): 13,
    ord('"'): ord('"'),
    ord("\\"): ord("\\"),
}
_DAY = 86400
_WIDEST_ZONE = 14 * 3600
_LONGEST = 5000  # no file name is longer; a longer line is not searched for a date
_MONTHS = {b"dec": (1969, 12, 31, -_DAY), b"jan": (1970, 1, 1, 0)}
_CLOCK = rb"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d+))?"
_ZONE = rb"(?:\s*(?P<z>[+-]\d\d:?\d\d|Z|GMT|UTC))?"
# Compiled when first met: most patches have no date near the epoch.
_ISO = rb"\s*(?P<y>\d{4})-(?P<mo>\d\d)-(?P<d>\d\d)[ T]" + _CLOCK + _ZONE
_CTIME = (
    rb"\s*[A-Za-z]{3},?\s+(?P<mon>[A-Za-z]{3})\s+(?P<d>\d\d?)\s+" + _CLOCK
    + rb"(?:\s+[A-Z]{3,4})?\s+(?P<y>\d{4})" + _ZONE
)  # fmt: skip
_RFC = (
    rb"\s*(?:[A-Za-z]{3},\s+)?(?P<d>\d\d?)\s+(?P<mon>[A-Za-z]{3})\s+(?P<y>\d{4})\s+"
    + _CLOCK
    + _ZONE
)
_DATES = (_ISO, _CTIME, _RFC)
# What other tools write behind a name with blanks and no tab: a date, or Subversion's revision.
_TAIL = (
    rb"\s+(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d.*|[A-Z][a-z]{2},? +[A-Z][a-z]{2} +\d+ \d\d:\d\d.*"
    rb"|\d\d? [A-Z][a-z]{2} \d{4} \d\d:\d\d.*|\((?:revision \d+|working copy|nonexistent)\))$"
)


def decode(raw: bytes) -> str:
    """A file name's bytes as text; any bytes survive the round trip."""
    return raw.decode("utf-8", "surrogateescape")


def unquote(text: bytes) -> tuple[bytes, bytes] | None:
    """Reads a C-quoted name at the start of ``text``: the name and what follows the quote.

    ``None`` when it is not one.
    """
    if not text.startswith(b'"'):
        return None
    out = bytearray()
    at = 1
    while at < len(text):
        byte = text[at]
        if byte == 0x22:
            return bytes(out), text[at + 1 :]
        if byte != 0x5C:
            out.append(byte)
            at += 1
            continue
        octal = text[at + 1 : at + 4]
        if len(octal) == 3 and octal.translate(None, b"01234567") == b"" and octal[0] <= 0x33:
            out.append(int(octal, 8))
            at += 4
        elif at + 1 < len(text) and text[at + 1] in _ESCAPES:
            out.append(_ESCAPES[text[at + 1]])
            at += 2
        else:
            return None
    return None


def read_side(text: bytes) -> Side:
    """What follows ``--- `` or ``+++ `` on a header line, its line end already gone."""
    quoted = unquote(text)
    if quoted is not None:
        name, stamp = quoted
        return Side((decode(name),), is_epoch(stamp))
    name, tab, stamp = text.partition(b"\t")
    if not tab and b" " in text and len(text) <= _LONGEST:
        tail = re.search(_TAIL, text)
        if tail:
            name, stamp = text[: tail.start()], text[tail.start() :]
    if name.partition(b" ")[0] == b"/dev/null":
        return Side((), is_epoch(stamp))
    first = name.partition(b" ")[0]
    names = (name,) if tab or first in (name, b"") else (name, first)
    return Side(tuple(decode(n) for n in names), is_epoch(stamp))


def is_epoch(stamp: bytes) -> bool:
    """Whether a date is 1970-01-01 00:00:00 UTC.

    Without a time zone, any quarter of an hour that is that moment somewhere counts.
    """
    if b"1970" not in stamp and b"1969" not in stamp:
        return False
    for pattern in _DATES:
        match = re.match(pattern, stamp)
        if match:
            return _is_epoch_date(match)
    return False


def _is_epoch_date(match: re.Match[bytes]) -> bool:
    part = match.groupdict()
    month = part.get("mon")
    if month is not None:
        day = _MONTHS.get(month.lower())
    else:
        day = next((d for d in _MONTHS.values() if d[1] == int(part["mo"])), None)
    if day is None or (int(part["y"]), int(part["d"])) != (day[0], day[2]):
        return False
    if part["f"] and part["f"].strip(b"0"):
        return False
    seconds = day[3] + int(part["h"]) * 3600 + int(part["m"]) * 60 + int(part["s"])
    zone = part["z"]
    if zone is None:
        return seconds % 900 == 0 and abs(seconds) <= _WIDEST_ZONE
    return seconds == _zone_seconds(zone)


def _zone_seconds(zone: bytes) -> int:
    if zone in (b"Z", b"GMT", b"UTC"):
        return 0
    digits = zone[1:].replace(b":", b"")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone.startswith(b"-") else seconds


def read_git_names(text: bytes) -> tuple[str, str]:
    """The two names after ``diff --git ``, or two empty texts where they cannot be told apart.

    Without quotes the line is ambiguous when a name has blanks; as in git, it is read only when
    both halves are the same name under their first directories.
    """
    quoted = unquote(text)
    if quoted is not None:
        old, rest = quoted
        new = unquote(rest.lstrip(b" "))
        if new is not None:
            return decode(old), decode(new[0])
        rest = rest.lstrip(b" ")
        return (decode(old), decode(rest)) if rest else ("", "")
    if text.endswith(b'"'):
        start = text.find(b' "')
        new = unquote(text[start + 1 :]) if start > 0 else None
        return (decode(text[:start]), decode(new[0])) if new is not None else ("", "")
    return _same_halves(text)


def _same_halves(text: bytes) -> tuple[str, str]:
    if len(text) > 2 * _LONGEST:
        return "", ""
    at = text.find(b" ")
    while at > 0:
        old, new = text[:at], text[at + 1 :]
        if old == new or (
            b"/" in old and b"/" in new and old.partition(b"/")[2] == new.partition(b"/")[2]
        ):
            return decode(old), decode(new)
        at = text.find(b" ", at + 1)
    return "", ""


def strip_name(name: str, strip: int) -> str | None:
    """``name`` without its first ``strip`` directories and without ``.`` and empty parts.

    ``None`` when nothing is left. A run of slashes counts once, as in GNU patch.
    """
    for _ in range(strip):
        _, slash, name = name.partition("/")
        if not slash:
            return None
        name = name.lstrip("/")
    if "//" in name or "./" in name or name == ".":
        name = "/".join(part for part in name.split("/") if part not in ("", "."))
    return name or None


def name_problem(raw: str, stripped: str) -> str | None:
    """Why a patch may not name this file, or ``None`` (threats: path traversal, git hooks)."""
    if raw.startswith("/"):
        return "an absolute path"
    if "\0" in raw:
        return "a NUL byte in the path"
    if "\n" in raw:
        return "a line break in the path"
    if stripped.endswith("/"):
        return "a path that ends in '/'"
    parts = stripped.split("/")
    if ".." in parts:
        return "a '..' in the path"
    if any(part.lower() == ".git" for part in parts):
        return "a path inside '.git'"
    return None


def show(name: str) -> str:
    """A file name for people: control characters and undecodable bytes escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
