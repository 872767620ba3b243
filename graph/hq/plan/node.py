"""A node is data: a kind, parameters, and inputs that select from sources and earlier results.

An input is not "that node" but *what is taken from it*: one file as it left it, the set of paths it
changed, one value. The digest of the selected part enters the key, so a node reruns only when
something it can see has changed (early cutoff).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hq.model.canonical import Value


class Source(NamedTuple):
    """A file of the project, by its path from the project's root."""

    path: str


class BlobOf(NamedTuple):
    """A named blob of a node's result."""

    node: str
    blob: str


class ValueOf(NamedTuple):
    """A named value of a node's result."""

    node: str
    value: str


class DeltaOf(NamedTuple):
    """All the files that a node changed, with their content."""

    node: str


class PathsOf(NamedTuple):
    """Only the paths that a node added, changed (``+``) or removed (``-``)."""

    node: str


class FileAt(NamedTuple):
    """One file as the nodes in ``providers`` left it, the latest first; the last is a wheel.

    Only providers that may touch the path need to be named, and of those only as far back as the
    last one that takes the file itself as an input: when it left the file alone, the file is what
    that node found, which is ``before``. So a path that a thousand patches touch costs each of them
    one provider and not all that came before.
    """

    path: str
    providers: tuple[str, ...]
    before: FileAt | None = None


Selector = Source | BlobOf | ValueOf | DeltaOf | PathsOf | FileAt


class Node(NamedTuple):
    """One step of the graph.

    ``name`` is stable and readable (``patch:memory-profile-after-warmup``); it is no part of the
    key. ``version`` is the kind's version: it is bumped when the kind's meaning changes.
    """

    name: str
    kind: str
    version: int
    params: Mapping[str, Value]
    inputs: Mapping[str, Selector]

    def depends_on(self) -> Iterator[str]:
        """The names of the nodes it takes something from, in input order, with repeats."""
        for selector in self.inputs.values():
            match selector:
                case FileAt():
                    yield from selector.providers
                case Source():
                    pass
                case _:
                    yield selector.node


class Graph(NamedTuple):
    """Nodes by name, in an order in which every node stands after those it depends on."""

    nodes: Mapping[str, Node]
    sources: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
