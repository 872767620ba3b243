"""All Python of a tree as one text, to ask where a word stands.

A word that is common is found at once and one that is gone costs one pass in C (some hundredths of
a second over the 38 MB of a release), which is what makes questions to the whole tree affordable.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hq.port.tree import View

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_GAP = b"\n\0\n"


class Place(NamedTuple):
    """A line of a tree, from 1, and its text."""

    path: str
    line: int
    text: bytes


class Corpus:
    """The Python files of a view below some folders."""

    def __init__(self, view: View, paths: Iterable[str]) -> None:
        self._paths: list[str] = []
        self._starts: list[int] = []
        parts: list[bytes] = []
        at = 0
        for path in paths:
            data = view.data(path)
            self._paths.append(path)
            self._starts.append(at)
            parts += [data, _GAP]
            at += len(data) + len(_GAP)
        self._text = b"".join(parts)

    def find(self, word: str) -> Iterator[int]:
        """Every offset of ``word`` as a whole word."""
        wanted = word.encode()
        text = self._text
        at = text.find(wanted)
        while at >= 0:
            end = at + len(wanted)
            before = text[at - 1] if at else 0
            if before not in _WORD and (end >= len(text) or text[end] not in _WORD):
                yield at
            at = text.find(wanted, end)

    def around(self, at: int, word: str) -> tuple[bytes, bytes]:
        """The text of the line before and after the word at an offset."""
        start = self._text.rfind(b"\n", 0, at) + 1
        stop = self._text.find(b"\n", at)
        return self._text[start:at], self._text[at + len(word.encode()) : stop]

    def place(self, at: int) -> Place:
        """The line of an offset."""
        number = bisect_right(self._starts, at) - 1
        start = self._starts[number]
        line = self._text.count(b"\n", start, at) + 1
        begin = self._text.rfind(b"\n", 0, at) + 1
        stop = self._text.find(b"\n", at)
        return Place(self._paths[number], line, self._text[begin:stop])

    def path(self, at: int) -> str:
        """The file of an offset."""
        return self._paths[bisect_right(self._starts, at) - 1]

    def calls(self, name: str, most: int) -> tuple[int, list[Place]]:
        """How often ``name`` is called or launched, and the first ``most`` places."""
        count = 0
        places: list[Place] = []
        for at in self.find(name):
            before, after = self.around(at, name)
            if not re.match(rb"\s*[(\[]", after) or re.search(rb"\b(?:def|class)\s+$", before):
                continue
            if b"#" in before or re.match(rb"\s*\[[^\]]*\](?!\s*\()", after):
                continue
            count += 1
            if len(places) < most:
                places.append(self.place(at))
        return count, places

    def setters(self, name: str) -> Iterator[int]:
        """Offsets at which something may give an attribute ``name``: set, define, declare, name."""
        for at in self.find(name):
            before, after = self.around(at, name)
            if _sets(before, after):
                yield at


def _sets(before: bytes, after: bytes) -> bool:
    if re.search(rb"\b(?:def|class|as|import|for)\s+$", before):
        return True
    quoted = before[-1:] in (b'"', b"'") and after[:1] == before[-1:]
    if quoted:
        # A name in a setattr, __slots__ or a table of names sets it; in a getattr it only asks.
        return not re.search(rb"\b(?:getattr|hasattr|delattr)\s*\([^()]*$", before[:-1])
    if not re.match(rb"\s*(?::(?!=)|[-+*/|&^%@]?=(?!=)|,)", after):
        return False
    if re.match(rb"\s*:", after) or b"." in before[-1:]:
        return not re.match(rb"\s*,", after)
    # ``name=…`` inside parentheses is an argument, at the start of a line a statement or a field.
    return not before.strip() or bool(re.match(rb"\s*,", after) and b"import" in before)
