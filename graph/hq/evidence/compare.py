"""Two builds node by node, and two trees file by file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from hq.evidence.pins import Row, node_rows, pinned_node
from hq.evidence.records import Records
from hq.model.tree import Entry

NodeState = Literal["only-a", "only-b", "differs"]
FileState = Literal["added", "removed", "changed", "kind"]


class NodeDiff(NamedTuple):
    """A node that is not the same on both sides. ``rows``: what differs, on A, on B."""

    node: str
    state: NodeState
    rows: tuple[Row, ...] = ()


class FileDiff(NamedTuple):
    """A path that does not hold the same on both sides; ``kind``: only the mode differs."""

    path: str
    state: FileState
    a: Entry | None
    b: Entry | None


def compare_nodes(a: Records, b: Records) -> list[NodeDiff]:
    """The nodes that differ, in the order of ``b``, then those that only ``a`` has."""
    found: list[NodeDiff] = []
    for name, record in b.items():
        other = a.get(name)
        if other is None:
            found.append(NodeDiff(name, "only-b"))
        elif rows := tuple(node_rows(pinned_node(other), pinned_node(record))):
            found.append(NodeDiff(name, "differs", rows))
    return [*found, *(NodeDiff(name, "only-a") for name in a if name not in b)]


def compare_files(a: Mapping[str, Entry], b: Mapping[str, Entry]) -> list[FileDiff]:
    """The paths that differ, sorted."""
    return [
        FileDiff(path, _state(a.get(path), b.get(path)), a.get(path), b.get(path))
        for path in sorted({*a, *b})
        if a.get(path) != b.get(path)
    ]


def _state(a: Entry | None, b: Entry | None) -> FileState:
    if a is None:
        return "added"
    if b is None:
        return "removed"
    return "changed" if a.digest != b.digest else "kind"


def matching(files: Iterable[FileDiff], paths: Iterable[str]) -> list[FileDiff]:
    """Those at or beneath one of ``paths``; all of them when none is given."""
    wanted = [path.rstrip("/") for path in paths]
    return [
        file
        for file in files
        if not wanted
        or any(file.path == path or file.path.startswith(path + "/") for path in wanted)
    ]
