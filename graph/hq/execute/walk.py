"""The walk over a graph.

Each node, in the graph's order: its inputs are resolved against the results before it, which gives
its key; a complete result under that key is reused; otherwise the node runs, alone among all builds
on this store (one lock per key), and its result is kept under the key. Nodes whose inputs are all
there run beside each other when they are heavy (they spend their time outside the interpreter
lock); light ones run at once in the calling thread, which costs less than handing them over.

A failure ends the walk when the running nodes have come home; nothing of the failed node is kept.
"""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol, TypeVar

from hq.execute.context import Machine, NodeContext
from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef
from hq.model.errors import HqError, InfrastructureError
from hq.model.ports import ActionCache, BlobMissing, BlobStore
from hq.plan.keys import key_of
from hq.plan.node import Graph, Node
from hq.plan.reasons import Before, Reason, reasons_to_run
from hq.plan.resolve import Resolved, Resolver
from hq.rules.context import Rule

T = TypeVar("T")

Status = Literal["reused", "built", "failed", "unknown"]

HEAVY = frozenset({"wheel", "layer", "installed", "deb", "base", "base-layer", "base-image"})


class Outcome(NamedTuple):
    """What became of one node. ``key`` and ``result`` are ``None`` only while unknown."""

    node: Node
    status: Status
    key: ActionKey | None
    result: ActionResult | None
    inputs: Mapping[str, str]
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()


class Observer(Protocol):
    """Sees what happens, as it happens; may be called from several threads."""

    def started(self, node: str) -> None:
        """A node begins to run."""
        ...

    def progressed(self, node: str, done: int, total: int) -> None:
        """A running node tells its bytes."""
        ...

    def finished(self, outcome: Outcome) -> None:
        """A node has a result, reused or new."""
        ...

    def fetched(self, label: str) -> None:
        """What ``started`` named is there; it is no node."""
        ...


class Walk:
    """One build of one graph."""

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        cache: ActionCache,
        rules: Mapping[str, Rule],
        before: Callable[[str], Before | None],
        observer: Observer,
        *,
        jobs: int = 1,
        force: bool = False,
    ) -> None:
        self._graph = graph
        self._machine = machine
        self._cache = cache
        self._rules = rules
        self._before = before
        self._observer = observer
        self._jobs = jobs
        self._force = force
        self._results: dict[str, ActionResult] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._ready: dict[str, Outcome] = {}
        self._resolver = Resolver(self._results, machine.sources.ref, machine.index)

    def run(self) -> dict[str, Outcome]:
        """Builds everything. Returns the outcomes by node name, in the graph's order.

        Raises the first ``HqError`` in the graph's order of those that occurred, with its node.
        """
        if self._jobs <= 1:
            for node in self._graph.nodes.values():
                self._finish(self._build(node))
        else:
            _Scheduler(self._graph, self._jobs, self._build, self._finish, self._is_heavy).run()
        return {name: self._outcomes[name] for name in self._graph.nodes}

    def finished(self) -> list[Outcome]:
        """The outcomes so far; all of them after ``run`` returned."""
        return list(self._outcomes.values())

    def _is_heavy(self, node: Node) -> bool:
        """Whether the node is worth a thread: one with a result costs less than handing it over."""
        if node.kind not in HEAVY or self._force:
            return node.kind in HEAVY
        try:
            resolved = {name: self._resolver.resolve(sel) for name, sel in node.inputs.items()}
        except (HqError, BlobMissing):
            return True  # it comes again when the node is built, and is told there
        inputs = {name: one.digest for name, one in resolved.items()}
        key = key_of(node, inputs)
        found = cached(self._cache, self._machine.store, key)
        if found is not None:
            self._ready[node.name] = Outcome(node, "reused", key, found, inputs)
        return found is None

    def _finish(self, outcome: Outcome) -> None:
        assert outcome.result is not None
        self._results[outcome.node.name] = outcome.result
        self._outcomes[outcome.node.name] = outcome
        self._observer.finished(outcome)

    def look(self, node: Node) -> Outcome:
        """Whether a node's result is there: an outcome ``reused``, or ``unknown`` with reasons."""
        resolved = {name: self._resolver.resolve(sel) for name, sel in node.inputs.items()}
        inputs = {name: one.digest for name, one in resolved.items()}
        key = key_of(node, inputs)
        found = cached(self._cache, self._machine.store, key)
        if found is not None:
            return Outcome(node, "reused", key, found, inputs)
        reasons = reasons_to_run(node, key, inputs, self._before(node.name))
        return Outcome(node, "unknown", key, None, inputs, reasons)

    def _build(self, node: Node) -> Outcome:
        ready = self._ready.pop(node.name, None)
        if ready is not None:
            return ready
        resolved = {name: self._resolver.resolve(sel) for name, sel in node.inputs.items()}
        inputs = {name: one.digest for name, one in resolved.items()}
        key = key_of(node, inputs)
        found = None if self._force else cached(self._cache, self._machine.store, key)
        if found is not None:
            return Outcome(node, "reused", key, found, inputs)
        with self._cache.lock(key):
            # Another build may have run it while this one waited for the lock.
            found = None if self._force else cached(self._cache, self._machine.store, key)
            if found is not None:
                return Outcome(node, "reused", key, found, inputs)
            return self._run(node, key, resolved, inputs)

    def _run(
        self,
        node: Node,
        key: ActionKey,
        resolved: Mapping[str, Resolved],
        inputs: Mapping[str, str],
    ) -> Outcome:
        reasons = reasons_to_run(node, key, inputs, self._before(node.name))
        warnings: list[str] = []
        self._observer.started(node.name)
        context = NodeContext(
            node,
            resolved,
            self._machine,
            self._results,
            lambda done, total: self._observer.progressed(node.name, done, total),
            warnings.append,
        )
        try:
            made = self._rules[node.kind](context)
        except HqError as error:
            lost = self._lost(node, context)
            if lost is not None:
                raise BlobMissing(lost) from error
            raise error.in_node(node.name) from error
        result = ActionResult(key, made.blobs, made.delta, made.values)
        self._cache.put(result)
        return Outcome(node, "built", key, result, inputs, reasons, tuple(warnings))

    def _lost(self, node: Node, context: NodeContext) -> BlobRef | None:
        """A blob that the node used and that is gone: it was damaged, and its reader failed."""
        results = (self._results[name] for name in node.depends_on())
        used = [*context.fetched, *(ref for result in results for ref in result.references())]
        return next((ref for ref in used if not self._machine.store.has(ref)), None)


def despite_damage(attempt: Callable[[], T]) -> T:
    """Runs ``attempt`` again when a blob that a result names turned out to be missing or damaged.

    A damaged blob is dropped by whoever reads it, so its result does not count the next time and
    its node runs. Raises ``InfrastructureError`` when the same blob is missing once more.
    """
    seen: set[BlobRef] = set()
    while True:
        try:
            return attempt()
        except BlobMissing as error:
            if error.ref in seen:
                raise InfrastructureError(
                    f"the store loses a blob again and again: {error.ref.digest}",
                    hint="look at the kernel's log for a failing disk; then run 'hq store verify'",
                ) from error
            seen.add(error.ref)


def cached(cache: ActionCache, store: BlobStore, key: ActionKey) -> ActionResult | None:
    """The result under ``key`` if every blob that it names is there."""
    result = cache.get(key)
    if result is None or not all(store.has(ref) for ref in result.references()):
        return None
    return result


class _Scheduler:
    """Runs heavy nodes in threads, light ones in the calling thread, in the graph's order."""

    def __init__(
        self,
        graph: Graph,
        jobs: int,
        build: Callable[[Node], Outcome],
        finish: Callable[[Outcome], None],
        is_heavy: Callable[[Node], bool],
    ) -> None:
        self._build = build
        self._finish = finish
        self._is_heavy = is_heavy
        self._jobs = jobs
        self._nodes = list(graph.nodes.values())
        self._rank = {node.name: rank for rank, node in enumerate(self._nodes)}
        self._waiting = [len(set(node.depends_on())) for node in self._nodes]
        self._needed_by: list[list[int]] = [[] for _ in self._nodes]
        for rank, node in enumerate(self._nodes):
            for name in set(node.depends_on()):
                self._needed_by[self._rank[name]].append(rank)
        self._light: list[int] = []
        self._heavy: list[int] = []
        self._running = 0
        self._done: queue.SimpleQueue[tuple[int, Outcome | BaseException]] = queue.SimpleQueue()
        self._failures: dict[int, BaseException] = {}

    def run(self) -> None:
        """Runs every node, or raises the first failure in the graph's order."""
        for rank, waiting in enumerate(self._waiting):
            if waiting == 0:
                self._enqueue(rank)
        while True:
            self._start_heavy()
            if self._light and not self._failures:
                rank = heapq.heappop(self._light)
                try:
                    self._complete(rank, self._build(self._nodes[rank]))
                except (HqError, BlobMissing) as error:
                    self._failures[rank] = error
            elif self._running:
                self._receive(*self._done.get())
            else:
                break
            while not self._done.empty():
                self._receive(*self._done.get())
        if self._failures:
            raise self._failures[min(self._failures)]

    def _enqueue(self, rank: int) -> None:
        heap = self._heavy if self._is_heavy(self._nodes[rank]) else self._light
        heapq.heappush(heap, rank)

    def _start_heavy(self) -> None:
        while self._heavy and self._running < self._jobs and not self._failures:
            rank = heapq.heappop(self._heavy)
            self._running += 1
            # Not daemons: an interrupted build waits for them to take their temporary files away.
            threading.Thread(target=self._work, args=(rank,), name=self._nodes[rank].name).start()

    def _work(self, rank: int) -> None:
        try:
            self._done.put((rank, self._build(self._nodes[rank])))
        except BaseException as error:  # noqa: BLE001  # carried to the calling thread and raised there
            self._done.put((rank, error))

    def _receive(self, rank: int, result: Outcome | BaseException) -> None:
        self._running -= 1
        if isinstance(result, BaseException):
            self._failures[rank] = result
        else:
            self._complete(rank, result)

    def _complete(self, rank: int, outcome: Outcome) -> None:
        self._finish(outcome)
        for later in self._needed_by[rank]:
            self._waiting[later] -= 1
            if self._waiting[later] == 0:
                self._enqueue(later)
