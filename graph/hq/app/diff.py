"""``hq diff``: two builds node by node, then file by file, then as unified diffs of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hq.app.operands import Side
from hq.app.recorded import Content, RecordedTree
from hq.evidence.compare import FileDiff, NodeDiff, compare_files, compare_nodes, matching
from hq.evidence.text import columns, is_text, unified
from hq.model.tree import Entry
from hq.store.disk import DiskStore

SCHEMA = "hq.diff/1"
_MARKS = {"added": "A", "removed": "D", "changed": "M", "kind": "T"}


class Comparison(NamedTuple):
    """What differs between two sides. ``same_nodes`` and ``same_files`` count the rest."""

    a: Side
    b: Side
    nodes: tuple[NodeDiff, ...]
    same_nodes: int
    files: tuple[FileDiff, ...]
    same_files: int
    trees: tuple[RecordedTree, RecordedTree]


def compare(a: Side, b: Side, disk: DiskStore, paths: Sequence[str] = ()) -> Comparison:
    """Compares two sides; ``paths`` restricts the files. Raises ``UsageError``.

    RECORD and the lists that layers carry of themselves follow from the rest, and are left out.
    """
    nodes = compare_nodes(a.records, b.records)
    trees = RecordedTree(a.records, disk), RecordedTree(b.records, disk)
    one, other = (tree.files() for tree in trees)
    files = compare_files(one, other)
    same = sum(path in other and other[path] == entry for path, entry in one.items())
    both = sum(name in a.records for name in b.records)
    differing = sum(node.state == "differs" for node in nodes)
    chosen = tuple(matching(files, paths))
    return Comparison(a, b, tuple(nodes), both - differing, chosen, same, trees)


def text(found: Comparison, parts: Sequence[str]) -> Iterator[str]:
    """The comparison as lines; ``parts`` of ``nodes``, ``files`` and ``text``."""
    if "nodes" in parts:
        yield from _nodes(found)
    if "files" in parts:
        counts = _counts([file.state for file in found.files])
        yield f"files: {counts}{found.same_files} the same"
        for file in found.files:
            yield f"  {_MARKS[file.state]} {file.path}"
    if "text" in parts:
        for file in found.files:
            yield from hunks(found, file)


def _nodes(found: Comparison) -> Iterator[str]:
    words = {"only-a": f"only in {found.a.label}", "only-b": f"only in {found.b.label}"}
    counts = _counts([words.get(node.state, "differ") for node in found.nodes])
    yield f"nodes: {counts}{found.same_nodes} the same"
    for node in found.nodes:
        yield f"  {node.node}" + (f"  {words[node.state]}" if node.state in words else "")
        rows = [row for row in node.rows if row.what not in ("key", "result")]
        worded = [(_worded(found, node.node, row.what), row.pinned, row.built) for row in rows]
        yield from (f"    {line}" for line in columns(worded))


def _worded(found: Comparison, node: str, what: str) -> str:
    """An input as its record describes it."""
    kind, _, name = what.partition(" ")
    if kind != "input":
        return what
    sides = (found.b.records, found.a.records)
    return next((side[node].what[name] for side in sides if name in side[node].what), what)


def _counts(words: Sequence[str]) -> str:
    return "".join(f"{words.count(word)} {word}, " for word in dict.fromkeys(words))


def hunks(found: Comparison, file: FileDiff) -> Iterator[str]:
    """One file as a unified diff, or one line for what is no text."""
    old, new = (_content(tree, file.path) for tree in found.trees)
    if file.state == "kind":
        yield f"mode of {file.path}: {_kind(file.a)}, then {_kind(file.b)}"
        return
    was, now = (b"" if side is None else side.data for side in (old, new))
    if is_text(was) and is_text(now):
        yield from unified(file.path, was, now)
    else:
        yield f"binary {file.path}: {len(was)} bytes, then {len(now)} bytes"


def _content(tree: RecordedTree, path: str) -> Content | None:
    return tree.last(path)


def _kind(entry: Entry | None) -> str:
    names = {"f": "file", "x": "executable file", "l": "symlink"}
    return "nothing" if entry is None else names[entry.kind]


def to_json(found: Comparison) -> dict[str, Any]:
    """The document that ``hq diff --json`` prints."""
    return {
        "schema": SCHEMA,
        "a": found.a.label,
        "b": found.b.label,
        "nodes": {
            "same": found.same_nodes,
            "differ": [
                {
                    "node": node.node,
                    "state": node.state,
                    "what": [{"what": w, "a": one, "b": other} for w, one, other in node.rows],
                }
                for node in found.nodes
            ],
        },
        "files": {
            "same": found.same_files,
            "differ": [
                {
                    "path": file.path,
                    "state": file.state,
                    "a": None if file.a is None else file.a.digest,
                    "b": None if file.b is None else file.b.digest,
                    "diff": list(hunks(found, file)),
                }
                for file in found.files
            ],
        },
    }
