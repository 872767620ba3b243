"""Functions and classes of a Python file: their qualified names and the lines they take.

A file that is not Python has no outline. A definition's text runs from its first decorator to its
last line; comments above it belong to what is above.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from hq.patchwork.apply import split_lines

_EXACT = 1500  # lines; beyond this a change is measured by counting lines


class Definition(NamedTuple):
    """A function or class: ``first`` and ``last`` are lines from 1, decorators among them."""

    name: str
    first: int
    last: int
    is_class: bool

    @property
    def simple(self) -> str:
        """How callers call it: the last part of the name; the class's for ``__init__``."""
        parts = self.name.split(".")
        if parts[-1] in ("__init__", "__new__", "__post_init__") and len(parts) > 1:
            return parts[-2]
        return parts[-1]


def parse_python(data: bytes) -> ast.Module | None:
    """The syntax tree, or ``None`` when the file is not Python that this interpreter reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are upstream's affair
        try:
            return ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def outline(data: bytes) -> tuple[Definition, ...]:
    """The definitions of a file, outer before inner; none when it is not Python."""
    tree = parse_python(data)
    return () if tree is None else tuple(_definitions(tree, ""))


def _definitions(node: ast.AST, prefix: str) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
            name = f"{prefix}{child.name}"
            is_class = isinstance(child, ast.ClassDef)
            yield Definition(name, first, child.end_lineno or first, is_class)
            yield from _definitions(child, f"{name}.")
        elif isinstance(child, ast.stmt):
            yield from _definitions(child, prefix)


def enclosing(definitions: Sequence[Definition], line: int) -> Definition | None:
    """The innermost definition that ``line`` lies in."""
    found = None
    for definition in definitions:
        if definition.first <= line <= definition.last:
            found = definition
    return found


def named(definitions: Sequence[Definition], name: str) -> Definition | None:
    """The last definition of this qualified name: the one that counts when there are several."""
    return next((d for d in reversed(definitions) if d.name == name), None)


def text_of(lines: Sequence[bytes], definition: Definition) -> list[bytes]:
    """A definition's lines."""
    return list(lines[definition.first - 1 : definition.last])


def change_size(before: Sequence[bytes], after: Sequence[bytes]) -> tuple[int, int]:
    """Lines added and removed between two texts."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    room = min(len(before), len(after)) - start
    while end < room and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if len(old) + len(new) > _EXACT:
        left, right = Counter(old), Counter(new)
        return sum((right - left).values()), sum((left - right).values())
    added = removed = 0
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal":
            removed += old_to - old_from
            added += new_to - new_from
    return added, removed


def file_change(before: bytes, after: bytes) -> tuple[int, int]:
    """Lines added and removed between two files."""
    return change_size(split_lines(before), split_lines(after))
