"""The graph as a picture: columns by depth, curves for dependencies. Needs no Graphviz.

A node stands one column right of the furthest node it takes something from; within a column nodes
keep the graph's order. Sizes are fixed, so the same graph gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape

from hq.plan.graph import edges
from hq.plan.node import Graph

_CHAR = 7.2
_ROW = 34
_BOX = 24
_GAP = 60
_MARGIN = 16
_FILLS = {
    "wheel": "#dbe9f6",
    "patch": "#f6ecd2",
    "envs": "#e3f1df",
    "audit": "#f3dfe6",
    "overlay": "#e9e2f4",
    "layer": "#e8e8e8",
    "image": "#cfe3e0",
}


class _Place(NamedTuple):
    x: float
    y: float
    width: float


def svg(graph: Graph) -> str:
    """An SVG document."""
    arrows = edges(graph)
    places = _places(graph, _depths(graph, arrows))
    width = max(place.x + place.width for place in places.values()) + _MARGIN
    height = max(place.y for place in places.values()) + _BOX + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="12">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    lines += [_curve(places[source], places[target]) for source, target in arrows]
    for name, place in places.items():
        lines += _box(name, graph.nodes[name].kind, place)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _depths(graph: Graph, arrows: list[tuple[str, str]]) -> Mapping[str, int]:
    needs: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in arrows:
        needs[target].append(source)
    depths: dict[str, int] = {}
    for name in graph.nodes:
        depths[name] = 1 + max((depths[need] for need in needs[name]), default=-1)
    return depths


def _places(graph: Graph, depths: Mapping[str, int]) -> dict[str, _Place]:
    columns: dict[int, list[str]] = {}
    for name in graph.nodes:
        columns.setdefault(depths[name], []).append(name)
    tallest = max(len(names) for names in columns.values())
    places: dict[str, _Place] = {}
    x = float(_MARGIN)
    for depth in sorted(columns):
        names = columns[depth]
        width = max(len(name) for name in names) * _CHAR + 16
        top = _MARGIN + (tallest - len(names)) * _ROW / 2
        for row, name in enumerate(names):
            places[name] = _Place(x, top + row * _ROW, width)
        x += width + _GAP
    return places


def _curve(source: _Place, target: _Place) -> str:
    x1, y1 = source.x + source.width, source.y + _BOX / 2
    x2, y2 = target.x, target.y + _BOX / 2
    bend = (x2 - x1) / 2
    return (
        f'<path d="M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f}'
        f' {x2:.1f},{y2:.1f}" fill="none" stroke="#8a8a8a"/>'
    )


def _box(name: str, kind: str, place: _Place) -> list[str]:
    fill = _FILLS.get(kind, "#ffffff")
    return [
        f'<rect x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" height="{_BOX}"'
        f' rx="4" fill="{fill}" stroke="#555555"/>',
        f'<text x="{place.x + 8:.1f}" y="{place.y + 16:.1f}">{escape(name)}</text>',
    ]
