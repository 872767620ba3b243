"""What a build would do, found by doing the cheap part of it in memory.

Nodes that cost little (patches, knobs, overlays, their layers) are really run, over a store whose
writes go to memory and are forgotten. So the plan is exact as far as it can be: a patch whose
preamble alone changed is seen to leave its files as they were, and what follows it to be reused. A
wheel that is not there is not fetched; what hangs on it is unknown until it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from hq.execute.context import Machine, Sources
from hq.execute.walk import Observer, Outcome, Walk
from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef, Digest
from hq.model.errors import HqError
from hq.model.ports import ActionCache, BlobMissing, BlobStore, BlobWriter, RandomAccess
from hq.model.project import LockedDeb, LockedWheel
from hq.plan.node import Graph, Node
from hq.plan.reasons import Before
from hq.rules.context import Rule
from hq.wheels.index import WheelIndex


class _Bytes:
    """``RandomAccess`` over bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def pread(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length]


class _Writer:
    def __init__(self, store: ForgetfulStore) -> None:
        self._store = store
        self._parts: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._parts.append(bytes(data))

    def write_range(self, source: RandomAccess, offset: int, length: int) -> None:
        self._parts.append(source.pread(offset, length))

    def commit(self) -> BlobRef:
        return self._store.put(b"".join(self._parts))


class ForgetfulStore:
    """A blob store that reads through and writes to memory."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner
        self._blobs: dict[BlobRef, bytes] = {}

    def has(self, ref: BlobRef) -> bool:
        """Whether the blob is in memory or below."""
        return ref in self._blobs or self._inner.has(ref)

    def read(self, ref: BlobRef) -> bytes:
        """The blob."""
        return self._blobs[ref] if ref in self._blobs else self._inner.read(ref)

    def open(self, ref: BlobRef) -> AbstractContextManager[RandomAccess]:
        """The blob for reading in parts."""
        if ref in self._blobs:
            return nullcontext(_Bytes(self._blobs[ref]))
        return self._inner.open(ref)

    def put(self, data: bytes) -> BlobRef:
        """Keeps ``data`` in memory."""
        ref = BlobRef.of(data)
        self._blobs[ref] = data
        return ref

    def find(self, digest: Digest) -> bytes | None:
        """Content that was written here, by its digest alone."""
        return next((data for ref, data in self._blobs.items() if ref.digest == digest), None)

    @contextmanager
    def create(self) -> Iterator[BlobWriter]:
        """A blob in memory, in parts."""
        yield _Writer(self)


class _ForgetfulCache:
    def __init__(self, inner: ActionCache) -> None:
        self._inner = inner
        self._results: dict[ActionKey, ActionResult] = {}

    def get(self, key: ActionKey) -> ActionResult | None:
        return self._results.get(key) or self._inner.get(key)

    def put(self, result: ActionResult) -> None:
        self._results[result.key] = result

    def lock(self, _: ActionKey) -> AbstractContextManager[None]:
        return nullcontext()


class _ForgetfulMachine:
    def __init__(self, inner: Machine) -> None:
        self._inner = inner
        self.written = ForgetfulStore(inner.store)
        self.store: BlobStore = self.written
        self._indexes: dict[BlobRef, WheelIndex] = {}

    @property
    def sources(self) -> Sources:
        return self._inner.sources

    def fetch(self, wheel: LockedWheel, _: Callable[[int, int], None]) -> BlobRef:
        ref = BlobRef(wheel.sha256, wheel.size)
        raise BlobMissing(ref)

    def fetch_deb(self, deb: LockedDeb, _: Callable[[int, int], None]) -> BlobRef:
        raise BlobMissing(BlobRef(deb.sha256, deb.size))

    def base_image(
        self, digest: Digest, _os: str, _architecture: str, _: Callable[[int, int], None]
    ) -> BlobRef:
        raise BlobMissing(BlobRef(digest, 0))

    def index(self, ref: BlobRef) -> WheelIndex:
        if ref not in self._indexes:
            self._indexes[ref] = WheelIndex.decode(self.store.read(ref))
        return self._indexes[ref]


class Quiet:
    """An observer that shows nothing."""

    def started(self, node: str) -> None:
        """Ignored."""

    def progressed(self, node: str, done: int, total: int) -> None:
        """Ignored."""

    def finished(self, outcome: Outcome) -> None:
        """Ignored."""

    def fetched(self, label: str) -> None:
        """Ignored."""


_COSTLY = frozenset({"wheel", "deb", "base", "base-layer", "base-image"})


def is_costly(node: Node) -> bool:
    """Whether a plan leaves the node unrun."""
    return node.kind in _COSTLY or (node.kind == "layer" and node.params["layer"] == "wheel")


class Forecast(Walk):
    """A walk that changes nothing; ``run`` gives an outcome for every node."""

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        cache: ActionCache,
        rules: Mapping[str, Rule],
        before: Callable[[str], Before | None],
        observer: Observer,
    ) -> None:
        forgetful = _ForgetfulMachine(machine)
        super().__init__(graph, forgetful, _ForgetfulCache(cache), rules, before, observer)
        self._written = forgetful.written
        self.failure: HqError | None = None

    def content(self, digest: Digest) -> bytes | None:
        """Something that a node of this forecast made."""
        return self._written.find(digest)

    def run(self) -> dict[str, Outcome]:
        """The outcomes by node. A node that fails, and all that need it, are ``unknown``."""
        for node in self._graph.nodes.values():
            if any(self._outcomes[name].result is None for name in node.depends_on()):
                self._outcomes[node.name] = Outcome(node, "unknown", None, None, {})
                continue
            outcome = self._one(node)
            self._outcomes[node.name] = outcome
            if outcome.result is not None:
                self._results[node.name] = outcome.result
        return dict(self._outcomes)

    def _one(self, node: Node) -> Outcome:
        looked = self.look(node)
        if looked.status == "reused":
            return looked
        if is_costly(node):
            return looked._replace(status="built")
        try:
            return self._build(node)
        except HqError as error:
            self.failure = self.failure or error.in_node(node.name)
            return looked._replace(status="failed")
