"""Who may have written a path: the bookkeeping behind per-file inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hq.plan.node import FileAt, Selector


class Writers:
    """Which nodes may have written a path, something above it or something beneath it."""

    __slots__ = ("_at", "_beneath", "_found", "_rank", "base")

    def __init__(self, base: str) -> None:
        self.base = base
        self._at: dict[str, list[str]] = {}
        self._beneath: dict[str, list[str]] = {}
        # What the last node of each list in _at found there.
        self._found: dict[str, FileAt] = {}
        self._rank: dict[str, int] = {}

    def add(self, node: str, paths: Iterable[str]) -> None:
        """Notes that ``node``, later than all before it, may write ``paths``.

        It must take each of them as an input, as ``file_inputs`` gives it.
        """
        self._rank[node] = len(self._rank)
        for path in paths:
            self._found[path] = self.file_at(path)
        for path in paths:
            self._at.setdefault(path, []).append(node)
            for above in _above(path):
                self._beneath.setdefault(above, []).append(node)

    def file_at(self, path: str) -> FileAt:
        """What stands at ``path`` after all the nodes so far."""
        last = self._at.get(path, ())[-1:]
        since = self._rank[last[0]] if last else -1
        later = set(last)
        later.update(self._after(since, self._beneath.get(path, ())))
        for above in _above(path):
            later.update(self._after(since, self._at.get(above, ())))
        latest_first = sorted(later, key=self._rank.__getitem__, reverse=True)
        return FileAt(path, (*latest_first, self.base), self._found.get(path))

    def _after(self, since: int, nodes: Sequence[str]) -> Iterator[str]:
        for node in reversed(nodes):
            if self._rank[node] <= since:
                return
            yield node

    def nodes(self) -> tuple[str, ...]:
        """Every writer, in order."""
        return tuple(self._rank)


def _above(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def file_inputs(paths: Iterable[str], writers: Writers) -> Mapping[str, Selector]:
    """An input ``file:PATH`` for each path."""
    return {f"file:{path}": writers.file_at(path) for path in paths}
