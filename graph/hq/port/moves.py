"""Where a file went that the new release no longer has."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hq.patchwork.apply import split_lines
from hq.port.tree import Tree

_LEAST = 0.5
_MOST = 400  # files that are read to find one


class Moved(NamedTuple):
    """A file's likely new place: ``alike`` is the share of common lines, 0 to 1."""

    path: str
    alike: float


def find_move(old: Tree, new: Tree, path: str) -> Moved | None:
    """The file that only the new tree has and that is most like ``path`` was."""
    file = old.read(path)
    if file is None or file.kind not in ("f", "x"):
        return None
    name = path.rpartition("/")[2]
    suffix = name.rpartition(".")[2]
    fresh = [p for p in new.paths() if p.endswith(f".{suffix}") and not old.digest(p)]
    fresh.sort(key=lambda p: (p.rpartition("/")[2] != name, p))
    lines = Counter(split_lines(file.data))
    best: Moved | None = None
    for candidate in fresh[:_MOST]:
        alike = _alike(lines, new, candidate)
        if alike >= _LEAST and (best is None or alike > best.alike):
            best = Moved(candidate, alike)
    return best


def _alike(lines: Counter[bytes], new: Tree, path: str) -> float:
    file = new.read(path)
    other = Counter(split_lines(file.data)) if file is not None else Counter()
    total = max(sum(lines.values()), sum(other.values()))
    return sum((lines & other).values()) / total if total else 0.0
