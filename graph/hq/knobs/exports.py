r"""What launchers and profiles set: the names that a shell script exports, and those it reads.

A launcher is a POSIX shell script. It is cut into words as a shell does it (quotes, backslashes,
comments), no further: an export is the word ``export`` where a command can begin, with the names
that follow it. Names made by ``eval`` are not seen; a launcher that is to be checked writes them
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<end>\n|[;&|()]+)          # ends a command
      | (?P<blank>(?:[ \t\r]|\\\n)+)
      | (?P<comment>\#[^\n]*)         # at the start of a word only
      | (?P<part>\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s\\'";&|()\#]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_BEFORE: Final = frozenset(
    ("then", "do", "else", "elif", "if", "while", "until", "!", "{")
)  # words after which a command begins
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=.*)?", re.DOTALL)
_READ: Final = re.compile(r"\$(?:\{#?)?([A-Z][A-Z0-9_]*)")


def exported(script: str) -> Iterator[tuple[str, int]]:
    """Each name that the script exports, with its line, in their order."""
    for command in _commands(script):
        words = iter(command)
        for word, _ in words:
            if word not in _BEFORE:
                if word == "export":
                    yield from _names(words)
                break


def _names(words: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for word, line in words:
        found = _NAME.fullmatch(word)
        if found is not None:
            yield found[1], line


def settings(script: str) -> frozenset[str]:
    """The names in capitals whose values the script looks at."""
    words = (word for command in _commands(script) for word, _ in command)
    return frozenset(name for word in words for name in _READ.findall(word))


def _commands(script: str) -> Iterator[list[tuple[str, int]]]:
    """The words of each command as they are written, with their lines."""
    command: list[tuple[str, int]] = []
    word, line, at = "", 1, 0
    while at < len(script):
        token = _TOKEN.match(script, at)
        assert token is not None
        text = token[0]
        kind = token.lastgroup
        if kind == "comment" and word:  # a # inside a word is no comment
            kind, text = "part", "#"
        if kind == "part":
            word += text
        elif word:
            command.append((word, line - word.count("\n")))
            word = ""
        if kind == "end":
            yield command
            command = []
        line += text.count("\n")
        at += len(text)
    yield [*command, (word, line)] if word else command
