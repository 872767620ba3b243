"""Which environment variables a Python file reads, and how: facts for the audit.

A file is looked at only where it can matter. A search on the bytes finds the lines that mention
``environ``, ``getenv`` or ``envs`` (most files have none and are not parsed at all); in a parsed
file only statements that span such a line are walked. Aliases are followed within the file: imports
under another name, ``env = os.environ``, ``env = os.environ.copy()``, ``get = os.getenv``. A name
that is a module-level text constant counts as that text.

Three kinds of read:

* ``raw``: past ``envs.py``: ``os.environ["X"]``, ``.get``, ``.pop``, ``.setdefault``, ``"X" in
  os.environ``, ``os.getenv("X")``, and the ``b`` variants. Writes are not reads.
* ``envs``: ``envs.X``, ``from vllm.envs import X``, ``getattr``/``hasattr`` on ``envs``,
  ``envs.is_set("X")``, ``envs.environment_variables["X"]``.
* ``dynamic``: a raw read whose name is computed; ``name`` is then the expression's source.
"""

from __future__ import annotations

from _ast import (
    AST,
    Assign,
    Attribute,
    Call,
    Compare,
    Constant,
    Import,
    ImportFrom,
    In,
    Load,
    Name,
    NamedExpr,
    NotIn,
    Subscript,
    expr,
)
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from hq.knobs.prefix import STOCK_PREFIX
from hq.knobs.source import NotPython, Source, children, occurrences

Kind = Literal["raw", "envs", "dynamic"]

ENVS_PATH: Final = "vllm/envs.py"
_TOKENS: Final = (b"environ", b"environb", b"getenv", b"getenvb", b"envs")
# ``from os import *`` and ``import os as o`` mention none of them.
_IMPORTS_OS: Final = (b"from os import", b"os as")
_GETENV: Final = frozenset(("getenv", "getenvb"))
_ENVIRON: Final = frozenset(("environ", "environb"))
_KEYED_METHODS: Final = frozenset(("get", "pop", "setdefault", "__getitem__", "__contains__"))
_TABLE: Final = "environment_variables"


class Read(NamedTuple):
    """One place that reads a variable. ``line`` counts from 1; 0 when it is not known."""

    kind: Kind
    name: str
    line: int


class FileReads(NamedTuple):
    """The reads of the file at ``path``, sorted by kind, name and line.

    ``unreadable`` is empty, or says why the file could not be parsed; ``line`` is then the place.
    """

    path: str
    reads: tuple[Read, ...] = ()
    unreadable: str = ""
    line: int = 0

    def counts(self) -> Counter[tuple[str, str]]:
        """How often each kind and name stands in the file."""
        if self.unreadable:
            return Counter({("unreadable", ""): 1})
        return Counter((read.kind, read.name) for read in self.reads)


Row = tuple[str, str, int, int]
"""Kind (or ``unreadable``), name, how many there are, how many of them the change added.

The last counts for computed names and raw reads of ``VLLM_`` names only: vLLM has such reads of its
own, and only those that a change adds are the fork's. Any other read is judged wherever it comes
from; it may stand as added.
"""


def facts(path: str, before: bytes | None, after: bytes | None) -> list[Row]:
    """What one node's change of a file means for the audit: rows, sorted, without line numbers.

    ``before`` is the file as the node found it, ``after`` as it left it; ``None`` for no file. The
    rows go into a key, and moving a read within its file changes none of them. A later node that
    changes the file again has rows of its own (``hq.knobs.audit.merged``).
    """
    if after is None or not path.endswith(".py"):
        return []
    now = reads(path, after).counts()
    # So the old file is rarely parsed.
    own = any(
        kind == "dynamic" or (kind == "raw" and name.startswith(STOCK_PREFIX)) for kind, name in now
    )
    old = reads(path, before).counts() if own and before is not None else Counter()
    return [
        (kind, name, now[kind, name], max(0, now[kind, name] - old[kind, name]))
        for kind, name in sorted(now)
    ]


def may_read(source: bytes) -> bool:
    """Whether ``reads`` would parse ``source``: a cheap test on the bytes."""
    return next(occurrences(source, _TOKENS), None) is not None


def reads(path: str, source: bytes) -> FileReads:
    """The facts of the Python file ``path``. Never raises: a file that is no Python says so."""
    if not may_read(source):
        return FileReads(path)
    try:
        parsed = Source(source)
    except NotPython as error:
        return FileReads(path, (), error.reason, error.line)
    return FileReads(path, tuple(sorted(_File(path, parsed).find())))


class _File:
    """One file's aliases and reads."""

    def __init__(self, path: str, source: Source) -> None:
        self.source = source
        self.package = path.rpartition("/")[0].split("/")
        self.os = {"os"}
        self.environ: set[str] = set()
        self.getenv: set[str] = set()
        self.envs: set[str] = set()
        self.table: set[str] = set()

    def find(self) -> Iterator[Read]:
        """Walks until no new alias turns up; an alias makes more lines worth a look."""
        names: set[str] = set()
        known = -1
        while known != self._aliases():
            known = self._aliases()
            nodes = list(self._nodes_that_mention(names))
            for node in nodes:
                self._note_alias(node)
            names = self.environ | self.getenv | self.envs | self.table
        for node in nodes:
            yield from self._reads_of(node)

    def _aliases(self) -> int:
        return sum(map(len, (self.os, self.environ, self.getenv, self.envs, self.table)))

    def _nodes_that_mention(self, names: set[str]) -> Iterator[AST]:
        words = {*_TOKENS, *_IMPORTS_OS, *(name.encode() for name in names)}
        lines = self.source.lines_of(words)
        pending: list[AST] = list(self.source.tree.body)
        while pending:
            node = pending.pop()
            first = getattr(node, "lineno", None)
            if first is not None and not lines.any_between(
                first, getattr(node, "end_lineno", first)
            ):
                continue
            yield node
            pending += children(node)

    # Aliases

    def _note_alias(self, node: AST) -> None:
        if isinstance(node, Import):
            self._note_import(node)
        elif isinstance(node, ImportFrom):
            self._note_import_from(node)
        elif isinstance(node, Assign):
            for target in node.targets:
                self._note_assignment(target, node.value)
        elif isinstance(node, NamedExpr):
            self._note_assignment(node.target, node.value)

    def _note_import(self, node: Import) -> None:
        for alias in node.names:
            if alias.name == "os" and alias.asname:
                self.os.add(alias.asname)
            elif alias.name == "vllm.envs" and alias.asname:
                self.envs.add(alias.asname)

    def _note_import_from(self, node: ImportFrom) -> None:
        module = self._module(node)
        for alias in node.names:
            name = alias.asname or alias.name
            if module == "os" and alias.name == "*":
                self.environ |= _ENVIRON
                self.getenv |= _GETENV
            elif module == "os" and alias.name in _ENVIRON:
                self.environ.add(name)
            elif module == "os" and alias.name in _GETENV:
                self.getenv.add(name)
            elif module == "vllm" and alias.name == "envs":
                self.envs.add(name)
            elif module == "vllm.envs" and alias.name == _TABLE:
                self.table.add(name)

    def _module(self, node: ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.package[: len(self.package) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])])

    def _note_assignment(self, target: expr, value: expr) -> None:
        if not isinstance(target, Name):
            return
        if self._is_environ(value) or self._is_copy(value):
            self.environ.add(target.id)
        elif self._is_getenv(value):
            self.getenv.add(target.id)
        elif self._is_envs(value):
            self.envs.add(target.id)
        elif self._is_table(value):
            self.table.add(target.id)

    # What an expression stands for

    def _is_environ(self, node: expr) -> bool:
        return self._is_attribute_of_os(node, _ENVIRON, self.environ)

    def _is_getenv(self, node: expr) -> bool:
        return self._is_attribute_of_os(node, _GETENV, self.getenv)

    def _is_attribute_of_os(self, node: expr, names: frozenset[str], aliases: set[str]) -> bool:
        if isinstance(node, Name):
            return node.id in aliases
        if isinstance(node, Attribute):
            return node.attr in names and isinstance(node.value, Name) and node.value.id in self.os
        if isinstance(node, Call) and _is_named(node.func, "getattr") and len(node.args) >= 2:
            of, name = node.args[0], node.args[1]
            return isinstance(of, Name) and of.id in self.os and _text(name) in names
        return False

    def _is_copy(self, node: expr) -> bool:
        """``os.environ.copy()`` and ``dict(os.environ)``: reading those is no better."""
        if not isinstance(node, Call):
            return False
        if isinstance(node.func, Attribute):
            return node.func.attr == "copy" and self._is_environ(node.func.value)
        return (
            _is_named(node.func, "dict") and len(node.args) == 1 and self._is_environ(node.args[0])
        )

    def _is_envs(self, node: expr) -> bool:
        if isinstance(node, Name):
            return node.id in self.envs
        return isinstance(node, Attribute) and node.attr == "envs" and _is_named(node.value, "vllm")

    def _is_table(self, node: expr) -> bool:
        if isinstance(node, Name):
            return node.id in self.table
        return isinstance(node, Attribute) and node.attr == _TABLE and self._is_envs(node.value)

    # Reads

    def _reads_of(self, node: AST) -> Iterator[Read]:
        if isinstance(node, Subscript):
            if isinstance(node.ctx, Load):
                yield from self._keyed(node.value, node.slice)
        elif isinstance(node, Compare):
            if len(node.ops) == 1 and isinstance(node.ops[0], (In, NotIn)):
                yield from self._keyed(node.comparators[0], node.left)
        elif isinstance(node, Call):
            yield from self._call(node)
        elif isinstance(node, Attribute):
            if isinstance(node.ctx, Load) and self._is_envs(node.value):
                yield Read("envs", node.attr, node.lineno)
        elif isinstance(node, ImportFrom) and self._module(node) == "vllm.envs":
            for alias in node.names:
                if alias.name not in ("*", _TABLE):
                    yield Read("envs", alias.name, alias.lineno)

    def _call(self, node: Call) -> Iterator[Read]:
        function = node.func
        if self._is_getenv(function):
            yield from self._raw(_argument(node, "key"), node)
        elif isinstance(function, Attribute) and node.args:
            if function.attr in _KEYED_METHODS:
                yield from self._keyed(function.value, node.args[0])
            elif function.attr == "is_set" and self._is_envs(function.value):
                yield from self._through_envs(node.args[0])
        elif (
            _is_named(function, "getattr", "hasattr")
            and len(node.args) >= 2
            and self._is_envs(node.args[0])
        ):
            yield from self._through_envs(node.args[1])

    def _keyed(self, container: expr, key: expr) -> Iterator[Read]:
        if self._is_environ(container) or self._is_copy(container):
            yield from self._raw(key, key)
        elif self._is_table(container):
            yield from self._through_envs(key)

    def _raw(self, key: expr | None, at: expr) -> Iterator[Read]:
        name = self._name(key)
        if name is not None:
            yield Read("raw", name, at.lineno)
        elif key is not None:
            yield Read("dynamic", self.source.text(key)[:80], at.lineno)

    def _through_envs(self, key: expr) -> Iterator[Read]:
        # A computed name cannot be told here; vLLM raises for one that it does not know.
        name = self._name(key)
        if name is not None:
            yield Read("envs", name, key.lineno)

    def _name(self, key: expr | None) -> str | None:
        if isinstance(key, Name):
            return self._constant(key.id)
        return None if key is None else _text(key)

    def _constant(self, name: str) -> str | None:
        """The text of a module-level constant that is assigned once."""
        values = [
            node.value
            for node in self.source.tree.body
            if isinstance(node, Assign) and any(_is_named(target, name) for target in node.targets)
        ]
        return _text(values[0]) if len(values) == 1 else None


def _text(node: expr) -> str | None:
    if not isinstance(node, Constant):
        return None
    if isinstance(node.value, bytes):
        return node.value.decode("utf-8", "replace")
    return node.value if isinstance(node.value, str) else None


def _argument(node: Call, keyword: str) -> expr | None:
    if node.args:
        return node.args[0]
    return next((item.value for item in node.keywords if item.arg == keyword), None)


def _is_named(node: expr, *names: str) -> bool:
    return isinstance(node, Name) and node.id in names
