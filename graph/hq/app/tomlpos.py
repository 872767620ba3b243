"""Line numbers for what a TOML document says.

``tomllib`` gives values without places, and a message about a mistake needs a place. This module
scans the text a second time, only when there is something to report, and remembers on which line
every key, table and array element stands.

Paths are those of the parsed value: ``("pins", "0.29.0", "wheel")``, with an integer for an element
of an array or of an array of tables: ``("knob", 3, "name")``. The scan follows TOML 1.0.0 and takes
for granted that ``tomllib`` accepted the text: it splits tokens and does not judge them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from typing import NamedTuple

Path = tuple[str | int, ...]

# A multi-line string may end with up to two quotes of its own before the closing three.
_TOKEN = re.compile(
    r"""
      (?P<string> \"{3} (?: \\. | (?!\"{3}) [^\\] )* \"{3} \"{0,2}
                | '{3} .*? '{3} '{0,2}
                | " (?: \\. | [^"\\\n] )* "
                | ' [^'\n]* ' )
    | (?P<skip> [\ \t\r]+ | \#[^\n]* )
    | (?P<newline> \n )
    | (?P<mark> [\[\]{},=.] )
    | (?P<bare> [^\s\[\]{},=."'\#]+ )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_END = "end"


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def locate(text: str) -> Callable[[Path], int]:
    """A function from a path to the line, counted from 1, where it stands in ``text``.

    For a path that is not there (a missing key, say) it answers the line of the longest part of it
    that is: the table that lacks the key. The empty path is line 1.
    """
    lines = _Scan(text).document()

    def line_of(path: Path) -> int:
        for length in range(len(path), 0, -1):
            line = lines.get(path[:length])
            if line is not None:
                return line
        return 1

    return line_of


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind != "skip":
            yield _Token(kind, match.group(), line)
        if kind in ("newline", "string"):
            line += match.group().count("\n")
    yield _Token(_END, "", line)


def _unquoted(token: str) -> str:
    try:
        return str(tomllib.loads(f"key = {token}")["key"])
    except ValueError:
        # Only in a text that tomllib refuses.
        return token


def long_key(text: str, limit: int) -> int:
    """The line of the first key of more than ``limit`` parts, or 0. ``text`` may be no TOML."""
    if not any(line.count(".") >= limit for line in text.split("\n")):
        return 0
    dots = 0
    for token in _tokens(text):
        if token.kind == "mark" and token.text == ".":
            dots += 1
            if dots == limit:
                return token.line
        elif token.kind not in ("bare", "string"):
            dots = 0
    return 0


def long_number(text: str, limit: int) -> int:
    """The line of the first decimal integer of more than ``limit`` digits, or 0."""
    for token in _tokens(text):
        digits = token.text.lstrip("+-").replace("_", "")
        if token.kind == "bare" and len(digits) > limit and digits.isdigit():
            return token.line
    return 0


class _Scan:
    """One pass over the tokens; ``lines`` grows as statements are read."""

    __slots__ = ("lengths", "lines", "next", "tokens")

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.next = next(self.tokens)
        self.lines: dict[Path, int] = {}
        # How many elements each array of tables has so far.
        self.lengths: dict[Path, int] = {}

    def take(self) -> _Token:
        token = self.next
        if token.kind != _END:
            self.next = next(self.tokens)
        return token

    def document(self) -> dict[Path, int]:
        table: Path = ()
        while self.next.kind != _END:
            if self.next.kind == "newline":
                self.take()
            elif self.next.text == "[" and self.next.kind == "mark":
                table = self.header()
            else:
                self.assignment(table)
        return self.lines

    def header(self) -> Path:
        """``[a.b]`` or ``[[a.b]]``; the path that the statements below it belong to."""
        line = self.take().line
        is_array = self.next.kind == "mark" and self.next.text == "["
        if is_array:
            self.take()
        keys = self.keys("]")
        if is_array:
            self.take()
        path: Path = ()
        for key in keys[:-1]:
            path = self.latest((*path, key), line)
        path = (*path, keys[-1]) if keys else path
        if not is_array:
            return self.latest(path, line)
        index = self.lengths.get(path, 0)
        self.lengths[path] = index + 1
        self.lines.setdefault(path, line)
        self.lines[*path, index] = line
        return (*path, index)

    def latest(self, path: Path, line: int) -> Path:
        """A header's part names the last element where it stands for an array of tables."""
        self.lines.setdefault(path, line)
        length = self.lengths.get(path, 0)
        return (*path, length - 1) if length else path

    def assignment(self, table: Path) -> None:
        """``a.b = value``, at the top, in a table or in an inline table."""
        line = self.next.line
        path = table
        for key in self.keys("="):
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.value(path)

    def keys(self, end: str) -> list[str]:
        """A dotted key and the mark that ends it."""
        found: list[str] = []
        while True:
            token = self.take()
            if token.kind == _END or (token.kind == "mark" and token.text == end):
                return found
            if token.kind == "string":
                found.append(_unquoted(token.text))
            elif token.kind == "bare":
                found.append(token.text)

    def value(self, path: Path) -> None:
        first = self.next
        if first.kind == "mark" and first.text == "[":
            self.array(path)
        elif first.kind == "mark" and first.text == "{":
            self.inline_table(path)
        else:
            # A number or a date may hold dots and blanks, so it is several tokens here.
            while not self.at_end_of_value():
                self.take()

    def at_end_of_value(self) -> bool:
        kind, text, _ = self.next
        return kind in ("newline", _END) or (kind == "mark" and text in ",]}")

    def array(self, path: Path) -> None:
        self.take()
        index = 0
        while not self.closes():
            self.lines[*path, index] = self.next.line
            self.value((*path, index))
            index += 1

    def inline_table(self, path: Path) -> None:
        self.take()
        while not self.closes():
            self.assignment(path)

    def closes(self) -> bool:
        """Skips commas and line ends; takes the closing mark when it is next."""
        while self.next.kind == "newline" or (self.next.kind == "mark" and self.next.text == ","):
            self.take()
        if self.next.kind == _END or (self.next.kind == "mark" and self.next.text in "]}"):
            self.take()
            return True
        return False
