"""Two contents side by side: the first place where they part, and unified diffs.

Content is bytes. It is shown as text when it is UTF-8 without NUL, as everything a person writes
is; anything else is compared and never printed. Control characters are escaped, since what is
shown comes out of wheels and patches and goes to a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from typing import Final, NamedTuple

_WIDTH: Final = 160
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Parting(NamedTuple):
    """Where two contents part. ``line`` counts from 1; 0 when they are no text."""

    line: int
    old: str
    new: str

    def __str__(self) -> str:
        if not self.line:
            return f"{self.old}, then {self.new}"
        return f"line {self.line}: {self.old or '(no line)'} | {self.new or '(no line)'}"


def is_text(data: bytes) -> bool:
    """Whether the content can be shown."""
    if b"\0" in data:
        return False
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def first_difference(old: bytes, new: bytes) -> Parting:
    """The first line, or the first byte, that differs. The contents must differ."""
    if not (is_text(old) and is_text(new)):
        at = next(
            (place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
            min(len(old), len(new)),
        )
        return Parting(0, f"{len(old)} bytes", f"{len(new)} bytes, different from byte {at} on")
    left, right = old.split(b"\n"), new.split(b"\n")
    at = 0
    while at < min(len(left), len(right)) and left[at] == right[at]:
        at += 1
    return Parting(at + 1, _line(left, at), _line(right, at))


def _line(lines: list[bytes], at: int) -> str:
    return shown(lines[at].decode("utf-8"))[:_WIDTH] if at < len(lines) else ""


def shown(text: str) -> str:
    """Text without a control character in it, except tab."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def unified(path: str, old: bytes, new: bytes, context: int = 3) -> Iterator[str]:
    """The lines of a unified diff, without line ends; git's note where a last line has none."""
    for line in unified_diff(
        _lines(old), _lines(new), f"a/{path}", f"b/{path}", lineterm="", n=context
    ):
        text, newline, rest = line.partition("\n")
        yield shown(text)
        if newline and rest:
            yield rest


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8").split("\n")
    last = lines.pop()
    # difflib compares lines: one without an end must differ from one with an end.
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines


def columns(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Three columns; digests are cut to a length that two of fit on a line."""
    cut = [tuple(map(short, row)) for row in rows]
    widths = [max((len(row[column]) for row in cut), default=0) for column in (0, 1)]
    for what, old, new in cut:
        yield f"{what:<{widths[0]}}  {old:<{widths[1]}}  {new}".rstrip()


def short(text: str) -> str:
    """A digest as far as a person compares it; any other text whole, ``-`` for none."""
    head, colon, rest = text.rpartition(":")
    if len(rest) == 64 and not rest.strip("0123456789abcdef"):
        return f"{head}{colon}{rest[:16]}"
    return text
