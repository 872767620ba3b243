"""Order and cycles."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.errors import UsageError
from hq.plan import draw
from hq.plan.graph import descendants, edges, ordered
from hq.plan.node import Graph, Node, ValueOf


def make(name: str, *needs: str) -> Node:
    return Node(name, "patch", 1, {}, {need: ValueOf(need, "x") for need in needs})


@st.composite
def acyclic(draw_: st.DrawFn) -> list[Node]:
    """Nodes in an order in which each needs only earlier ones."""
    count = draw_(st.integers(0, 12))
    return [
        make(f"n{number}", *(f"n{other}" for other in range(number) if draw_(st.booleans())))
        for number in range(count)
    ]


@given(acyclic())
def test_an_order_that_is_one_is_kept(nodes: list[Node]) -> None:
    assert list(ordered(nodes)) == [node.name for node in nodes]


@given(acyclic(), st.integers())
def test_any_order_gives_one_in_which_each_stands_after_its_needs(
    nodes: list[Node], seed: int
) -> None:
    random.Random(seed).shuffle(nodes)
    found = list(ordered(nodes))
    assert sorted(found) == sorted(node.name for node in nodes)
    place = {name: number for number, name in enumerate(found)}
    for node in nodes:
        assert all(place[need] < place[node.name] for need in node.depends_on())


@given(acyclic(), st.integers(), st.integers())
def test_two_orders_that_are_none_give_the_same(nodes: list[Node], one: int, other: int) -> None:
    first, second = list(nodes), list(nodes)
    random.Random(one).shuffle(first)
    random.Random(other).shuffle(second)
    found = [list(ordered(listed)) for listed in (first, second)]
    kept = [
        [node.name for node in listed] == names
        for listed, names in zip((first, second), found, strict=True)
    ]
    assert any(kept) or found[0] == found[1]


def test_a_cycle_is_shown() -> None:
    nodes = [make("a"), make("d", "c"), make("b", "a", "d"), make("c", "b")]
    with pytest.raises(UsageError) as caught:
        ordered(nodes)
    assert caught.value.render() == (
        "error: the graph has a cycle\n  b → d → c → b\n  help: take one of these dependencies away"
    )
    assert caught.value.exit_code == 2


def test_a_node_that_needs_itself() -> None:
    with pytest.raises(UsageError) as caught:
        ordered([make("a", "a")])
    assert caught.value.details == ("a → a",)


def test_a_name_twice() -> None:
    with pytest.raises(UsageError) as caught:
        ordered([make("a"), make("a")])
    assert caught.value.render() == ("error: two nodes are called a\n  help: rename one of them")


def test_a_need_that_is_nowhere() -> None:
    with pytest.raises(UsageError) as caught:
        ordered([make("a", "b")])
    assert caught.value.render() == "error: a depends on b, which is not in the graph"


def graph_of(nodes: list[Node]) -> Graph:
    return Graph(ordered(nodes), (), {})


@given(acyclic())
def test_drawn_edges_imply_all_others(nodes: list[Node]) -> None:
    graph = graph_of(nodes)
    drawn = edges(graph)
    reach: dict[str, set[str]] = {node.name: set() for node in nodes}
    for name in graph.nodes:
        for source, target in drawn:
            if target == name:
                reach[name] |= {source, *reach[source]}
    for node in nodes:
        assert set(node.depends_on()) <= reach[node.name]
    direct = {(need, node.name) for node in nodes for need in node.depends_on()}
    assert set(drawn) <= direct
    for name in graph.nodes:
        below = {other for other in graph.nodes if name in reach[other]}
        assert descendants(graph, [name]) == below


def test_names_that_drawings_must_escape() -> None:
    graph = graph_of([make('a"b\\c'), make("d", 'a"b\\c')])
    assert '  "a\\"b\\\\c" -> "d";\n' in draw.dot(graph)
    assert '  n0["a#quot;b\\c"]\n' in draw.mermaid(graph)
