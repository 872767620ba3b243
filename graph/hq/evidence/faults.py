"""Deliberate faults: one small wrong thing put into a file of a project.

Each takes the bytes of a file and gives the bytes with the fault in it, or raises ``FaultError``
when the file has no place for it: a fault that does not take is a control that proves nothing.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)", re.DOTALL)


class FaultError(Exception):
    """The fault has no place in the file. The text says why."""


def edit(data: bytes, find: str, replace: str) -> bytes:
    """Puts ``replace`` in place of ``find``, which must stand there once."""
    count = data.count(find.encode())
    if count != 1:
        raise FaultError(f"{find!r} stands there {count} times, expected once")
    if find == replace:
        raise FaultError("find and replace are the same")
    return data.replace(find.encode(), replace.encode())


def drop_patch(series: bytes, name: str) -> bytes:
    """A series without the line that names the patch."""
    lines = series.splitlines(keepends=True)
    kept = [line for line in lines if line.split(b"#")[0].split()[:1] != [name.encode()]]
    if len(kept) != len(lines) - 1:
        raise FaultError(f"the series names {name} {len(lines) - len(kept)} times, expected once")
    return b"".join(kept)


def drop_knob(registry: bytes, name: str) -> bytes:
    """A registry without the ``[[knob]]`` of that name."""
    text = registry.decode("utf-8")
    parts = re.split(r"(?m)^(?=[ \t]*\[)", text)
    kept = [part for part in parts if not _declares(part, name)]
    if len(kept) != len(parts) - 1:
        raise FaultError(f"the registry has {len(parts) - len(kept)} knobs {name}, expected one")
    return "".join(kept).encode()


def _declares(part: str, name: str) -> bool:
    if not part.lstrip().startswith("[[knob]]"):
        return False
    try:
        return bool(tomllib.loads(part)["knob"][0].get("name") == name)
    except (ValueError, KeyError, IndexError):
        return False


def shift_hunk(
    patch: bytes, number: int, by: int, context: int | None = None, *, heading: bool = True
) -> bytes:
    """Moves where the patch's hunk ``number`` (from 1, over all files) says that it belongs.

    ``context`` leaves at most so many lines of context on each side; without ``heading`` the name
    of the function is taken off the header.
    """
    lines = patch.splitlines(keepends=True)
    headers = [place for place, line in enumerate(lines) if _HUNK.match(line)]
    if not 1 <= number <= len(headers):
        raise FaultError(f"the patch has {len(headers)} hunks, there is no hunk {number}")
    start = headers[number - 1]
    found = _HUNK.match(lines[start])
    assert found is not None
    old, new = int(found[1]), int(found[3])
    end = start + 1 + _length(lines[start + 1 :], _count(found[2]), _count(found[4]))
    body = lines[start + 1 : end]
    cut = 0
    if context is not None:
        body, cut = _trimmed(body, context)
    olds = sum(line[:1] in (b" ", b"-") for line in body)
    news = sum(line[:1] in (b" ", b"+") for line in body)
    rest = found[5] if heading else b"\n"
    if old + by + cut < 1:
        raise FaultError(f"hunk {number} would begin before line 1")
    head = b"@@ -%d,%d +%d,%d @@%s" % (old + by + cut, olds, new + by + cut, news, rest)
    return b"".join([*lines[:start], head, *body, *lines[end:]])


def _count(text: bytes | None) -> int:
    return 1 if text is None else int(text)


def _length(lines: list[bytes], old: int, new: int) -> int:
    """How many lines of the patch the hunk takes."""
    for place, line in enumerate(lines):
        if old == 0 and new == 0 and not line.startswith(b"\\"):
            return place
        old -= line[:1] in (b" ", b"-", b"\n")
        new -= line[:1] in (b" ", b"+", b"\n")
    return len(lines)


def _trimmed(body: list[bytes], context: int) -> tuple[list[bytes], int]:
    """The body with at most ``context`` lines around its changes, and how many went in front."""
    changed = [place for place, line in enumerate(body) if line[:1] in (b"+", b"-")]
    first, last = max(changed[0] - context, 0), min(changed[-1] + context + 1, len(body))
    return body[first:last], first
