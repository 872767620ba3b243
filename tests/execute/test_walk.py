"""The walk over a graph, with rules that count how often they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.memory import MemoryActions, MemoryBlobs
from hq.execute.walk import Outcome, Walk, despite_damage
from hq.model.digest import BlobRef
from hq.model.errors import BuildError, HqError, InfrastructureError
from hq.model.ports import BlobMissing
from hq.plan.graph import ordered
from hq.plan.node import BlobOf, Graph, Node
from hq.plan.reasons import FIRST, LOST, Before
from hq.rules.context import Context, Made


class Machine:
    """What a walk needs and these rules do not use."""

    def __init__(self) -> None:
        self.store = MemoryBlobs()
        self.actions = MemoryActions()
        self.sources = self

    def ref(self, path: str) -> BlobRef:
        raise AssertionError(path)

    def index(self, ref: BlobRef) -> Any:
        raise AssertionError(ref)


class Watch:
    """An observer that writes down what it sees."""

    def __init__(self) -> None:
        self.started_: list[str] = []
        self.finished_: list[Outcome] = []

    def started(self, node: str) -> None:
        self.started_.append(node)

    def progressed(self, node: str, done: int, total: int) -> None:
        pass

    def finished(self, outcome: Outcome) -> None:
        self.finished_.append(outcome)

    def fetched(self, label: str) -> None:
        pass


def graph_of(needs: Mapping[str, tuple[str, ...]], texts: Mapping[str, str] | None = None) -> Graph:
    """Nodes that join what their needs made. ``layer`` nodes run in threads."""
    texts = texts or {}
    nodes = [
        Node(
            name,
            "layer" if name.startswith("heavy") else "patch",
            1,
            {"name": name, "text": texts.get(name, name), "layer": "series"},
            {need: BlobOf(need, "out") for need in needs[name]},
        )
        for name in needs
    ]
    return Graph(ordered(nodes), (), {})


def join(context: Context) -> Made:
    """The node's text and what its needs made; nothing for a text that says so."""
    text = str(context.params["text"])
    if text == "fail":
        raise BuildError("it does not work")
    if text == "bug":
        raise ZeroDivisionError
    parts = [context.store.read(context.blob(name)) for name in context.names("")]
    return Made({"out": context.store.put(b"(" + text.encode() + b"".join(parts) + b")")})


def walk(
    machine: Machine,
    graph: Graph,
    *,
    jobs: int = 1,
    rule: Callable[[Context], Made] = join,
    before: Callable[[str], Before | None] = lambda _: None,
    watch: Watch | None = None,
    force: bool = False,
) -> dict[str, Outcome]:
    rules = {"patch": rule, "layer": rule}
    return Walk(
        graph,
        machine,  # type: ignore[arg-type]
        machine.actions,
        rules,
        before,
        watch or Watch(),
        jobs=jobs,
        force=force,
    ).run()


def statuses(outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    return {name: outcome.status for name, outcome in outcomes.items()}


def made(machine: Machine, outcomes: Mapping[str, Outcome], name: str) -> bytes:
    result = outcomes[name].result
    assert result is not None
    return machine.store.read(result.blobs["out"])


@st.composite
def needs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Who needs whom, earlier ones only; some are heavy."""
    names: list[str] = []
    found: dict[str, tuple[str, ...]] = {}
    for number in range(draw(st.integers(1, 9))):
        name = f"{'heavy' if draw(st.booleans()) else 'light'}{number}"
        found[name] = tuple(other for other in names if draw(st.booleans()))
        names.append(name)
    return found


@given(needs())
def test_threads_give_what_one_thread_gives(needs: dict[str, tuple[str, ...]]) -> None:
    graph = graph_of(needs)
    one, many = Machine(), Machine()
    alone, together = walk(one, graph), walk(many, graph, jobs=4)
    assert list(alone) == list(together) == list(needs)
    assert set(statuses(alone).values()) == {"built"}
    for name in needs:
        assert alone[name].key == together[name].key
        assert made(one, alone, name) == made(many, together, name)
    assert one.actions.results == many.actions.results


@given(needs(), st.integers(1, 3))
def test_a_second_walk_runs_nothing_and_a_forced_one_everything(
    needs: dict[str, tuple[str, ...]], jobs: int
) -> None:
    machine, graph = Machine(), graph_of(needs)
    first = walk(machine, graph, jobs=jobs)
    watch = Watch()
    again = walk(machine, graph, jobs=jobs, watch=watch)
    assert set(statuses(again).values()) == {"reused"}
    assert watch.started_ == []
    assert sorted(outcome.node.name for outcome in watch.finished_) == sorted(needs)
    forced = walk(machine, graph, jobs=jobs, force=True)
    assert set(statuses(forced).values()) == {"built"}
    assert [outcome.result for outcome in forced.values()] == [o.result for o in first.values()]


@given(needs(), st.data())
def test_a_lost_blob_reruns_its_node_alone(
    needs: dict[str, tuple[str, ...]], data: st.DataObject
) -> None:
    machine, graph = Machine(), graph_of(needs)
    first = walk(machine, graph)
    lost = data.draw(st.sampled_from(sorted(needs)))
    result = first[lost].result
    assert result is not None
    del machine.store.data[result.blobs["out"].digest]
    again = walk(machine, graph, jobs=data.draw(st.sampled_from([1, 4])))
    assert [name for name, status in statuses(again).items() if status == "built"] == [lost]


CHAIN = {"a": (), "heavy b": ("a",), "c": ("heavy b",), "d": ()}


def test_a_result_that_did_not_change_stops_the_rebuild() -> None:
    machine = Machine()

    def constant(context: Context) -> Made:
        return Made({"out": context.store.put(b"always the same")})

    walk(machine, graph_of(CHAIN), rule=constant)
    again = walk(machine, graph_of(CHAIN, {"a": "changed"}), rule=constant)
    assert statuses(again) == {"a": "built", "heavy b": "reused", "c": "reused", "d": "reused"}
    assert statuses(walk(machine, graph_of(CHAIN, {"heavy b": "changed"}))) == {
        "a": "reused",
        "heavy b": "built",
        "c": "built",
        "d": "reused",
    }


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_failure_names_its_node_and_leaves_nothing(jobs: int) -> None:
    machine = Machine()
    with pytest.raises(BuildError) as caught:
        walk(machine, graph_of(CHAIN, {"heavy b": "fail"}), jobs=jobs)
    assert caught.value.render() == "error: it does not work\n  node: heavy b"
    built = {str(document["key"]) for document in machine.actions.results.values()}
    again = walk(machine, graph_of(CHAIN))
    assert {name for name, outcome in again.items() if outcome.key in built} >= {"a"}
    assert again["heavy b"].status == "built"


def test_of_several_failures_the_first_of_the_graph_is_told() -> None:
    graph = graph_of(
        {"heavy 1": (), "heavy 2": (), "z": ()}, {"heavy 1": "fail", "heavy 2": "fail"}
    )
    both = threading.Barrier(2, timeout=30)

    def meet(context: Context) -> Made:
        if context.node != "z":
            both.wait()
        return join(context)

    with pytest.raises(HqError) as caught:
        walk(Machine(), graph, jobs=4, rule=meet)
    assert caught.value.node == "heavy 1"


@pytest.mark.parametrize("name", ["a", "heavy b"])
@pytest.mark.parametrize("jobs", [1, 4])
def test_a_bug_is_not_hidden(name: str, jobs: int) -> None:
    with pytest.raises(ZeroDivisionError):
        walk(Machine(), graph_of(CHAIN, {name: "bug"}), jobs=jobs)


def test_heavy_nodes_run_beside_each_other_up_to_the_number_of_jobs() -> None:
    graph = graph_of({f"heavy {number}": () for number in range(6)})
    pair = threading.Barrier(2, timeout=30)
    now, most, guard = 0, 0, threading.Lock()

    def meet(context: Context) -> Made:
        nonlocal now, most
        with guard:
            now += 1
            most = max(most, now)
        pair.wait()
        with guard:
            now -= 1
        return join(context)

    walk(Machine(), graph, jobs=2, rule=meet)
    assert most == 2


def test_reasons_come_from_the_last_run() -> None:
    machine, graph = Machine(), graph_of(CHAIN)
    first = walk(machine, graph)
    assert first["a"].reasons[0].cause == FIRST

    def before(name: str) -> Before:
        outcome = first[name]
        assert outcome.key is not None
        return Before(outcome.key, 1, outcome.node.params, outcome.inputs)  # type: ignore[arg-type]

    machine.actions.results.clear()
    again = walk(machine, graph, before=before)
    assert {outcome.reasons[0].cause for outcome in again.values()} == {LOST}
    machine.actions.results.clear()
    changed = walk(machine, graph_of(CHAIN, {"a": "other"}), before=before)
    assert [(r.subject, r.old, r.new) for r in changed["a"].reasons] == [("text", "'a'", "'other'")]
    assert changed["heavy b"].reasons[0].subject == "out of a"


def test_damage_is_mended_once_per_blob() -> None:
    refs = [BlobRef.of(b"1"), BlobRef.of(b"2")]
    missing = list(refs)

    def attempt() -> str:
        if missing:
            raise BlobMissing(missing.pop())
        return "done"

    assert despite_damage(attempt) == "done"

    def hopeless() -> str:
        raise BlobMissing(refs[0])

    with pytest.raises(InfrastructureError) as caught:
        despite_damage(hopeless)
    assert caught.value.render() == (
        f"error: the store loses a blob again and again: {refs[0].digest}\n"
        "  help: look at the kernel's log for a failing disk; then run 'hq store verify'"
    )


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_node_that_fails_on_a_lost_blob_makes_its_giver_run_again(jobs: int) -> None:
    """A rule that reads in parts meets damage as nonsense; its store drops the blob."""
    machine, graph = Machine(), graph_of(CHAIN)
    whole = walk(machine, graph)
    lost = whole["a"].result
    assert lost is not None
    machine.actions.results = {lost.key: machine.actions.results[lost.key]}

    def rule(context: Context) -> Made:
        ref = lost.blobs["out"]
        if context.node != "a" and not spoilt:
            spoilt.append(ref)
            del machine.store.data[ref.digest]
            raise BuildError("the content makes no sense")
        return join(context)

    spoilt: list[BlobRef] = []
    again = despite_damage(lambda: walk(machine, graph, jobs=jobs, rule=rule))
    assert again["a"].status == "built"
    assert {name: one.result for name, one in again.items()} == {
        name: one.result for name, one in whole.items()
    }
