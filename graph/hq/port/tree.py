"""A release's files, and the files with changes on top.

Digests come from the wheel's RECORD, so two releases are compared without reading either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hq.patchwork.apply import File


class Tree(Protocol):
    """The files of one release."""

    @property
    def version(self) -> str:
        """How the release is called in reports."""
        ...

    def paths(self) -> Sequence[str]:
        """Every file, sorted."""
        ...

    def digest(self, path: str) -> str:
        """A digest of a file's content; empty where there is none."""
        ...

    def read(self, path: str) -> File | None:
        """A file. Raises ``HqError`` when it cannot be read."""
        ...


class View:
    """A tree with changes on top; itself readable like one."""

    __slots__ = ("_cache", "changes", "tree")

    def __init__(self, tree: Tree, changes: Mapping[str, File | None] | None = None) -> None:
        self.tree = tree
        self.changes: dict[str, File | None] = dict(changes or {})
        self._cache: dict[str, File | None] = {}

    @property
    def version(self) -> str:
        """The release's."""
        return self.tree.version

    def read(self, path: str) -> File | None:
        """The file as the changes leave it."""
        if path in self.changes:
            return self.changes[path]
        if path not in self._cache:
            self._cache[path] = self.tree.read(path)
        return self._cache[path]

    def data(self, path: str) -> bytes:
        """A regular file's content, else nothing."""
        file = self.read(path)
        return file.data if file is not None and file.kind in ("f", "x") else b""


def same_file(old: Tree, new: Tree, path: str) -> bool:
    """Whether both releases have the same content at ``path`` (or neither has the file)."""
    return old.digest(path) == new.digest(path)
