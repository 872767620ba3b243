"""What a selector stands for, once the nodes before it have results.

``Resolved.digest`` enters the key; ``Resolved.value`` is what the node's rule is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, assert_never

from hq.model.action import ActionResult
from hq.model.digest import BlobRef
from hq.model.tree import FILE, Delta, Entry
from hq.plan.keys import value_digest
from hq.plan.node import BlobOf, DeltaOf, FileAt, PathsOf, Selector, Source, ValueOf
from hq.rules.context import FileState, SourceState
from hq.wheels.index import WheelIndex


class Resolved(NamedTuple):
    """One input of a node, ready for use."""

    digest: str
    value: object


class Resolver:
    """Resolves selectors against results; knows the wheels' indexes."""

    __slots__ = ("_index_of", "_results", "_source_of")

    def __init__(
        self,
        results: Mapping[str, ActionResult],
        source_of: Callable[[str], BlobRef],
        index_of: Callable[[BlobRef], WheelIndex],
    ) -> None:
        self._results = results
        self._source_of = source_of
        self._index_of = index_of

    def resolve(self, selector: Selector) -> Resolved:
        """The selected part and its digest. The nodes it names must have results."""
        match selector:
            case Source(path):
                content = self._source_of(path)
                return Resolved(content.digest, SourceState(path, content))
            case FileAt():
                state = self._file(selector)
                return Resolved(_state_digest(state), state)
            case DeltaOf(node):
                delta = self._results[node].delta
                return Resolved(value_digest(_rows(delta)), delta)
            case PathsOf(node):
                paths = tuple(
                    (path, entry is not None) for path, entry in self._results[node].delta
                )
                return Resolved(value_digest([list(pair) for pair in paths]), paths)
            case BlobOf(node, blob):
                ref = self._results[node].blobs[blob]
                return Resolved(ref.digest, ref)
            case ValueOf(node, value):
                found = self._results[node].values[value]
                return Resolved(value_digest(found), found)
            case _:
                assert_never(selector)

    def _file(self, selector: FileAt) -> FileState:
        at: FileAt | None = selector
        while at is not None:
            for name in at.providers[:-1]:
                left = self._left_by(name, selector.path)
                if left is not None:
                    return left
            at = at.before
        return self._in_wheel(selector.path, self._results[selector.providers[-1]])

    def _left_by(self, node: str, path: str) -> FileState | None:
        """What the node made of the path; ``None`` when it left it alone."""
        beneath = path + "/"
        for changed, entry in self._results[node].delta:
            if changed == path:
                return FileState(path, entry)
            if entry is None:
                continue
            if changed.startswith(beneath):
                return FileState(path, None, directory=True)
            if path.startswith(changed + "/"):
                return FileState(path, None, above=(changed, entry.kind))
        return None

    def _in_wheel(self, path: str, wheel: ActionResult) -> FileState:
        index = self._index_of(wheel.blobs["index"])
        member = index.get(path)
        if member is not None:
            entry = Entry(member.kind, member.digest, member.size)
            return FileState(path, entry, member, wheel.blobs["wheel"])
        if index.has_directory(path):
            return FileState(path, None, directory=True)
        above = index.file_above(path)
        return FileState(path, None, above=None if above is None else (above, FILE))


def _state_digest(state: FileState) -> str:
    if state.entry is not None:
        return f"{state.entry.kind}:{state.entry.digest}"
    if state.above is not None:
        return f"beneath:{state.above[1]}:{state.above[0]}"
    return "directory" if state.directory else "absent"


def _rows(delta: Delta) -> list[list[str | None]]:
    return [
        [path, None, None] if entry is None else [path, entry.kind, entry.digest]
        for path, entry in delta
    ]
