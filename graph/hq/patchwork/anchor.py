"""The text behind a hunk's second ``@@``: which definition the hunk is said to be in.

``diff -p`` and git put there the last line above the hunk's first line that looks like the head of
a definition, cut to 40 or 80 bytes. What looks like one depends on the writer's settings: any line
that begins with a letter, or ``def`` and ``class`` at any depth for Python. So the question asked
here is not "would git have written this heading?" but "does the place lie in the definition of
this name?": its line stands above the place, and no line in between begins another one at the same
depth or less.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from hq.patchwork.patch import Hunk

_PYTHON = re.compile(rb"\s*(?:async +def|def|class) +\w")
_KEYWORD = (
    rb"\s*(?:[\w:<>,*&\[\]()]+\s+)*"
    rb"(?:function|func|fn|fun|sub|proc|struct|enum|union|interface|namespace|module|impl|trait|type)"
    rb"\s+[\w$]"
)
_CALL = rb"\s*[A-Za-z_$~][\w\s:<>,*&\[\]$~.-]*\("
_STATEMENT = rb"\s*(?:if|for|while|switch|return|else|elif|with|print|assert|raise)\b"
_MAX_HEADING = 400
_SHORTEST_CUT = 39
_NEAR = 200  # lines above a place that are looked at one by one
_MOST_HEADS = 1000  # definitions above those that are looked at: a bound on hostile files
_LABEL = rb"\w+:\s*(?:$|//|/\*)"  # of a goto, or "public:": git's C driver skips it too


def names_definition(heading: bytes) -> bool:
    """Whether a section heading is the head of a function, class or the like."""
    if not heading or len(heading) > _MAX_HEADING:
        return False
    if _PYTHON.match(heading):
        return True
    if re.match(_STATEMENT, heading):
        return False
    return bool(re.match(_CALL, heading) or re.match(_KEYWORD, heading))


class Heads:
    """Where definitions may begin in a file: one pass over it, made on first need."""

    __slots__ = ("_found", "lines")

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines
        self._found: dict[bool, list[int]] = {}

    def above(self, at: int, python: bool) -> Iterator[int]:
        """Indices of lines above ``at``, nearest first: all that are near, then only heads."""
        near = max(at - _NEAR, 0)
        yield from range(at - 1, near - 1, -1)
        if near:
            found = self._all(python)
            last = bisect_left(found, near)
            yield from reversed(found[max(last - _MOST_HEADS, 0) : last])

    def _all(self, python: bool) -> list[int]:
        found = self._found.get(python)
        if found is None:
            if python:
                found = [
                    index
                    for index, line in enumerate(self.lines)
                    if b"def " in line or b"class " in line
                ]
            else:
                found = [i for i, line in enumerate(self.lines) if _begins_like(line)]
            self._found[python] = found
        return found


def lies_in(heads: Heads, at: int, hunk: Hunk) -> bool:
    """Whether a hunk placed with its first line at index ``at`` lies in what its heading names.

    The head may also stand in the hunk's own leading context, where a person would see it.
    """
    heading = hunk.heading
    return _encloses(heads, at, heading) or (
        hunk.leading > 0 and _encloses(heads, at + hunk.leading, heading)
    )


def _encloses(heads: Heads, at: int, heading: bytes) -> bool:
    python = bool(_PYTHON.match(heading))
    lines = heads.lines
    closed = None  # the least depth at which another definition began on the way up
    for index in heads.above(min(at, len(lines)), python):
        line = lines[index]
        if python and b"def " not in line and b"class " not in line:
            continue  # cheap, and true of nearly every line
        bare = line.lstrip(b" \t")
        depth = len(line) - len(bare)
        if _is_heading(bare.rstrip(), heading):
            return closed is None or closed > depth
        begins = _PYTHON.match(line) if python else depth == 0 and _begins_like(bare)
        if begins and (closed is None or depth < closed):
            closed = depth
            if depth == 0:
                return False
    return False


def _is_heading(line: bytes, heading: bytes) -> bool:
    if line == heading:
        return True
    # Only a heading that some writer may have cut is compared as a prefix.
    return len(heading) >= _SHORTEST_CUT and line.startswith(heading)


def _begins_like(bare: bytes) -> bool:
    """The default of git and GNU diff: a line that begins with a letter, ``_`` or ``$``."""
    first = bare[:1]
    return (first.isalpha() or first in (b"_", b"$")) and not re.match(_LABEL, bare)
