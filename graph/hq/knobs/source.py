"""Python source as syntax trees with byte positions, without importing ``ast``.

``_ast`` holds the node classes and is built in; ``ast`` costs 8 ms to import, more than it takes to
parse most files here. Positions of nodes are lines from 1 and UTF-8 byte columns; ``Source`` turns
them into offsets in the bytes as they are.
"""

from __future__ import annotations

import re
from _ast import AST, Module, PyCF_ONLY_AST
from _thread import allocate_lock
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Protocol

# Warnings are process-wide state; one thread at a time may hold them off.
_LOCK = allocate_lock()
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")
_BOM = b"\xef\xbb\xbf"


class NotPython(Exception):
    """The bytes are no Python source that this interpreter reads. ``line`` counts from 1, or 0."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class Positioned(Protocol):
    """A node that knows its place."""

    lineno: int
    col_offset: int
    end_lineno: int | None
    end_col_offset: int | None


class Lines:
    """Line numbers, ascending."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def any_between(self, first: int, last: int) -> bool:
        """Whether one of them is in ``first`` to ``last``, both included."""
        place = bisect_left(self.numbers, first)
        return place < len(self.numbers) and self.numbers[place] <= last


class Source:
    """Bytes, their syntax tree, and where each line starts."""

    __slots__ = ("data", "starts", "tree")

    def __init__(self, data: bytes) -> None:
        """Parses ``data``. Raises ``NotPython``."""
        self.data = data
        self.tree = _parse(data)
        # bytes.splitlines ends lines where Python's tokenizer does: LF, CR LF and CR alone.
        self.starts = list(accumulate(map(len, data.splitlines(keepends=True)), initial=0))

    def start(self, node: Positioned) -> int:
        """The offset of the node's first byte."""
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: Positioned) -> int:
        """The offset behind the node's last byte."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def text(self, node: Positioned) -> str:
        """The node's source on one line."""
        return " ".join(self.data[self.start(node) : self.end(node)].decode().split())

    def line_start(self, line: int) -> int:
        """The offset where ``line`` begins; the end of the data for a line behind the last."""
        return self.starts[line - 1] if line <= len(self.starts) else len(self.data)

    def lines_of(self, words: Iterable[bytes]) -> Lines:
        """The lines on which one of ``words`` begins."""
        return Lines(
            sorted({bisect_right(self.starts, at) for at in occurrences(self.data, words)})
        )

    def _offset(self, line: int, column: int) -> int:
        # Columns of the first line do not count a byte order mark.
        mark = len(_BOM) if line == 1 and self.data.startswith(_BOM) else 0
        return self.starts[line - 1] + column + mark


def occurrences(data: bytes, words: Iterable[bytes]) -> Iterator[int]:
    """Where ``words`` stand in ``data`` as whole words; ten times as fast as one pattern."""
    for word in words:
        at = data.find(word)
        while at >= 0:
            end = at + len(word)
            if not (at and data[at - 1] in _WORD) and not (end < len(data) and data[end] in _WORD):
                yield at
            at = data.find(word, end)


def children(node: AST) -> list[AST]:
    """The nodes directly below ``node``, in the order of the grammar."""
    found: list[AST] = []
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, AST):
            found.append(value)
        elif isinstance(value, list):
            found += [item for item in value if isinstance(item, AST)]
    return found


def _parse(data: bytes) -> Module:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotPython("not UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    for number, line in enumerate(data.split(b"\n", 2)[:2], 1):
        cookie = _COOKIE.match(line)
        if cookie and cookie[1].lower().replace(b"_", b"-") not in (b"utf-8", b"utf8"):
            raise NotPython(f"declared as {cookie[1].decode()}, and only UTF-8 is read", number)
    import warnings

    try:
        with _LOCK, warnings.catch_warnings():
            # Newer interpreters complain about stray backslashes in the files of others.
            warnings.simplefilter("ignore")
            tree = compile(data, "<source>", "exec", PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        raise NotPython(error.msg, error.lineno or 0) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise NotPython(str(error) or "nested too deeply", 0) from None
    assert isinstance(tree, Module)
    return tree
