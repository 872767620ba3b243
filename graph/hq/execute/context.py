"""A rule's view of one run of one node, over real stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from hq.model.action import ActionResult, Json
from hq.model.canonical import Value
from hq.model.digest import BlobRef, Digest
from hq.model.ports import BlobStore
from hq.model.project import LockedDeb, LockedWheel
from hq.model.tree import Delta
from hq.plan.node import FileAt, Node
from hq.plan.resolve import Resolved
from hq.rules.context import FileState, SourceState
from hq.wheels.content import extract
from hq.wheels.index import WheelIndex

T = TypeVar("T")


class Sources(Protocol):
    """The project's own files."""

    def ref(self, path: str) -> BlobRef:
        """The digest and size of a file; from the stat cache where it can be trusted."""
        ...

    def read(self, path: str) -> bytes:
        """The file's content, which must still be what ``ref`` said."""
        ...


class Machine(Protocol):
    """What a run needs besides the store."""

    @property
    def store(self) -> BlobStore:
        """The blob store."""
        ...

    @property
    def sources(self) -> Sources:
        """The project's files."""
        ...

    def fetch(self, wheel: LockedWheel, progress: Callable[[int, int], None], /) -> BlobRef:
        """A locked wheel, hash-checked, in the store."""
        ...

    def fetch_deb(self, deb: LockedDeb, progress: Callable[[int, int], None], /) -> BlobRef:
        """A locked Debian package, hash-checked, in the store."""
        ...

    def base_image(
        self, digest: Digest, os: str, architecture: str, progress: Callable[[int, int], None], /
    ) -> BlobRef:
        """An image that the declaration names, with all its blobs in the store: its manifest."""
        ...

    def index(self, ref: BlobRef) -> WheelIndex:
        """A wheel's index, decoded once."""
        ...


class NodeContext:
    """Implements ``hq.rules.context.Context``."""

    def __init__(
        self,
        node: Node,
        inputs: Mapping[str, Resolved],
        machine: Machine,
        results: Mapping[str, ActionResult],
        on_progress: Callable[[int, int], None],
        on_warning: Callable[[str], None],
    ) -> None:
        self._node = node
        self._inputs = inputs
        self._machine = machine
        self._results = results
        self.progress = on_progress
        self.warn = on_warning
        self.fetched: list[BlobRef] = []

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node.name

    @property
    def params(self) -> Mapping[str, Value]:
        """The node's parameters."""
        return self._node.params

    @property
    def store(self) -> BlobStore:
        """The blob store."""
        return self._machine.store

    def names(self, prefix: str) -> list[str]:
        """The inputs under ``prefix``."""
        return sorted(name.removeprefix(prefix) for name in self._inputs if name.startswith(prefix))

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self._inputs[name].value
        if not isinstance(value, kind):
            raise TypeError(f"{self.node}: input {name} is a {type(value).__name__}")
        return value

    def source(self, name: str) -> SourceState:
        """A project file."""
        return self._typed(name, SourceState)

    def source_bytes(self, name: str) -> bytes:
        """A project file's content; kept in the store, so that a later change can be shown."""
        data = self._machine.sources.read(self.source(name).path)
        self.store.put(data)
        return data

    def file(self, name: str) -> FileState:
        """What stands at a path of the tree."""
        return self._typed(name, FileState)

    def file_bytes(self, name: str) -> bytes:
        """The content of a file of the tree."""
        selector = self._node.inputs[name]
        wheel = selector.providers[-1] if isinstance(selector, FileAt) else "wheel"
        return self._content(self.file(name), wheel)

    def _content(self, state: FileState, wheel: str) -> bytes:
        if state.entry is None:
            raise KeyError(state.path)
        if state.member is None or state.wheel is None:
            return self.store.read(BlobRef(state.entry.digest, state.entry.size))
        with self.store.open(state.wheel) as reader:
            return extract(reader, state.member, wheel=wheel)

    def delta(self, name: str) -> Delta:
        """A node's changes."""
        return self._typed(name, tuple)

    def paths(self, name: str) -> tuple[tuple[str, bool], ...]:
        """A node's changed paths."""
        return self._typed(name, tuple)

    def value(self, name: str) -> Json:
        """A node's value."""
        return self._inputs[name].value  # type: ignore[return-value]  # resolved from values

    def blob(self, name: str) -> BlobRef:
        """A node's blob."""
        return self._typed(name, BlobRef)

    def content_of(self, node: str, path: str) -> bytes | None:
        """A file as ``node`` left it, for messages."""
        for changed, entry in self._results[node].delta:
            if changed == path and entry is not None:
                return self.store.read(BlobRef(entry.digest, entry.size))
        return None

    def fetch(self, wheel: LockedWheel) -> BlobRef:
        """The wheel, hash-checked."""
        return self._took(self._machine.fetch(wheel, self.progress))

    def fetch_deb(self, deb: LockedDeb) -> BlobRef:
        """The package, hash-checked."""
        return self._took(self._machine.fetch_deb(deb, self.progress))

    def base_image(self, digest: Digest, os: str, architecture: str) -> BlobRef:
        """The image's manifest; all its blobs are in the store."""
        return self._took(self._machine.base_image(digest, os, architecture, self.progress))

    def _took(self, ref: BlobRef) -> BlobRef:
        self.fetched.append(ref)
        return ref
