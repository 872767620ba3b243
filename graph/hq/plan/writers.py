"""Who may have written a path: the bookkeeping behind per-file inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hq.plan.node import FileAt, Selector


class Writers:
    """Which nodes may have written a path, something above it or something beneath it."""

    __slots__ = ("_at", "_beneath", "_rank", "base")

    def __init__(self, base: str) -> None:
        self.base = base
        self._at: dict[str, list[str]] = {}
        self._beneath: dict[str, list[str]] = {}
        self._rank: dict[str, int] = {}

    def add(self, node: str, paths: Iterable[str]) -> None:
        """Notes that ``node``, later than all before it, may write ``paths``."""
        self._rank[node] = len(self._rank)
        for path in paths:
            self._at.setdefault(path, []).append(node)
            for above in _above(path):
                self._beneath.setdefault(above, []).append(node)

    def providers(self, path: str) -> tuple[str, ...]:
        """The nodes whose results say what stands at ``path``, the latest first."""
        found = set(self._at.get(path, ()))
        found.update(self._beneath.get(path, ()))
        for above in _above(path):
            found.update(self._at.get(above, ()))
        return (*sorted(found, key=self._rank.__getitem__, reverse=True), self.base)

    def nodes(self) -> tuple[str, ...]:
        """Every writer, in order."""
        return tuple(self._rank)


def _above(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def file_inputs(paths: Iterable[str], writers: Writers) -> Mapping[str, Selector]:
    """An input ``file:PATH`` for each path."""
    return {f"file:{path}": FileAt(path, writers.providers(path)) for path in paths}
