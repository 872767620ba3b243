"""Order, cycles and drawings of a graph; the one module that knows networkx.

The planner writes nodes down in an order that is already topological, and ``ordered`` proves it
with one linear pass. Only when the pass fails is networkx asked for an order or for the cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hq.model.errors import UsageError
from hq.plan.node import Graph, Node

if TYPE_CHECKING:
    import networkx as nx


def ordered(nodes: Iterable[Node]) -> dict[str, Node]:
    """The nodes by name, each after those it depends on.

    Keeps the given order where it is one; otherwise sorts, lexicographically among equals. Raises
    ``UsageError`` for a repeated name, a missing dependency or a cycle.
    """
    listed = list(nodes)
    by_name: dict[str, Node] = {}
    in_order = True
    for node in listed:
        if node.name in by_name:
            raise UsageError(f"two nodes are called {node.name}", hint="rename one of them")
        in_order = in_order and all(name in by_name for name in node.depends_on())
        by_name[node.name] = node
    return by_name if in_order else _sorted(by_name)


def _sorted(by_name: dict[str, Node]) -> dict[str, Node]:
    import networkx as nx

    for node in by_name.values():
        for name in node.depends_on():
            if name not in by_name:
                raise UsageError(f"{node.name} depends on {name}, which is not in the graph")
    graph = _digraph(by_name)
    try:
        return {name: by_name[name] for name in nx.lexicographical_topological_sort(graph)}
    except nx.NetworkXUnfeasible:
        raise UsageError(
            "the graph has a cycle",
            details=[" → ".join(_cycle(graph))],
            hint="take one of these dependencies away",
        ) from None


def _cycle(graph: nx.DiGraph[str]) -> list[str]:
    import networkx as nx

    # The smallest member first, so that the message is the same every time.
    members = [edge[0] for edge in nx.find_cycle(graph, sorted(graph.nodes))]
    start = members.index(min(members))
    turned = members[start:] + members[:start]
    # Edges point from what is needed to what needs it; read as "depends on" it goes backwards.
    path = [*turned, turned[0]]
    return list(reversed(path))


def _digraph(by_name: dict[str, Node]) -> nx.DiGraph[str]:
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(by_name)
    for node in by_name.values():
        graph.add_edges_from((name, node.name) for name in node.depends_on())
    return graph


def descendants(graph: Graph, names: Iterable[str]) -> set[str]:
    """Every node that depends on one of ``names``, at any distance."""
    import networkx as nx

    drawn = _digraph(dict(graph.nodes))
    return set().union(*(nx.descendants(drawn, name) for name in names))


def edges(graph: Graph) -> list[tuple[str, str]]:
    """(needed, needing) pairs without those that a longer path implies; sorted.

    The transitive reduction is what a person wants to see: a layer of thirty patches that build on
    each other hangs on the last one.
    """
    import networkx as nx

    return sorted(nx.transitive_reduction(_digraph(dict(graph.nodes))).edges)
