"""Drawings of a graph as text: an indented list, DOT (Graphviz), Mermaid.

Only edges that no longer path implies are drawn, and everything is sorted, so that a drawing
changes only when the graph does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hq.plan.graph import edges
from hq.plan.node import Graph

_SHOWN: Final = 8
_SHAPES = {
    "wheel": "cylinder",
    "patch": "note",
    "envs": "note",
    "audit": "diamond",
    "overlay": "note",
    "layer": "box3d",
    "image": "folder",
}


def text(graph: Graph) -> str:
    """A line for each node with what it takes, in order; the other formats name all of many."""
    needed: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in edges(graph):
        needed[target].append(source)
    width = max(len(name) for name in graph.nodes)
    lines = [f"{name:<{width}}  {_few(needed[name])}".rstrip() for name in graph.nodes]
    return "\n".join(lines) + "\n"


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def dot(graph: Graph) -> str:
    """The graph in Graphviz's language."""
    lines = ["digraph hq {", "  rankdir=LR;", '  node [fontname="sans-serif", fontsize=11];']
    for name, node in graph.nodes.items():
        lines.append(f"  {_quoted(name)} [shape={_SHAPES.get(node.kind, 'box')}];")
    lines += [f"  {_quoted(source)} -> {_quoted(target)};" for source, target in edges(graph)]
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(graph: Graph) -> str:
    """The graph in Mermaid's language, as GitHub renders it."""
    ids = {name: f"n{number}" for number, name in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    lines += [f'  {ids[name]}["{_escaped(name)}"]' for name in graph.nodes]
    lines += [f"  {ids[source]} --> {ids[target]}" for source, target in edges(graph)]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(name: str) -> str:
    return name.replace('"', "#quot;")
