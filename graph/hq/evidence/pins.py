"""What a build made, written down, and the first node at which another build departs from it.

A pinned node is its key, the digest of its result, and what its key was computed from: the inputs'
digests and the parameters' outline. So a difference can be told without the other build's store.
The first node that differs, in the graph's order, is where to look: the nodes after it differ
because it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from hq.evidence.outline import Leaf, digest, outline
from hq.evidence.records import NodeRecord, Records

SCHEMA = "hq.pins/1"


class PinnedImage(NamedTuple):
    """An image: the digest of its configuration, and of its manifest."""

    image_id: str
    manifest: str


class PinnedNode(NamedTuple):
    """A node: its key, its result's digest, and what its key is made of."""

    key: str
    version: int
    result: str
    inputs: Mapping[str, str]
    params: Mapping[str, Leaf]


class Pins(NamedTuple):
    """Everything that one pin file says. ``nodes`` are in the graph's order."""

    pin: str
    images: Mapping[str, PinnedImage]
    nodes: Mapping[str, PinnedNode]


class Row(NamedTuple):
    """One thing that differs: what it is, as pinned, as built; empty where there is none."""

    what: str
    pinned: str
    built: str


class Difference(NamedTuple):
    """The first node (or image) that differs. ``same``: inputs and parameters that do not."""

    name: str
    kind: Literal["differs", "new", "gone", "image"]
    rows: tuple[Row, ...]
    same: int = 0


def pinned_node(record: NodeRecord) -> PinnedNode:
    """What of a record goes into a pin file."""
    result = {name: record.result[name] for name in ("blobs", "delta", "values")}
    return PinnedNode(
        key=record.key,
        version=record.version,
        result=digest(result),
        inputs=dict(sorted(record.inputs.items())),
        params=outline(record.params),
    )


def pins_of(pin: str, images: Mapping[str, PinnedImage], records: Records) -> Pins:
    """What there is to write down of a build."""
    nodes = {name: pinned_node(record) for name, record in records.items()}
    return Pins(pin, dict(images), nodes)


def first_difference(pinned: Pins, built: Pins) -> Difference | None:
    """The first node, then the first image, that is not as pinned; ``None`` when all are."""
    for name in _in_order(pinned, built):
        difference = _node(name, pinned.nodes.get(name), built.nodes.get(name))
        if difference is not None:
            return difference
    for name in sorted({*pinned.images, *built.images}):
        old, new = pinned.images.get(name), built.images.get(name)
        if old != new:
            return Difference(f"image:{name}", "image", tuple(_image_rows(old, new)))
    return None


def _in_order(pinned: Pins, built: Pins) -> Iterator[str]:
    """The built graph's order; a node that is gone comes where it stood."""
    gone: dict[str, list[str]] = {}
    before = ""
    for name in reversed(list(pinned.nodes)):
        if name in built.nodes:
            before = name
        else:
            gone.setdefault(before, []).append(name)
    for name in built.nodes:
        yield from reversed(gone.get(name, ()))
        yield name
    yield from reversed(gone.get("", ()))


def _node(name: str, old: PinnedNode | None, new: PinnedNode | None) -> Difference | None:
    if old is None:
        assert new is not None
        return Difference(name, "new", (Row("key", "", new.key),))
    if new is None:
        return Difference(name, "gone", (Row("key", old.key, ""),))
    if old.key == new.key and old.result == new.result:
        return None
    rows = list(node_rows(old, new))
    total = len({*old.inputs, *new.inputs}) + len({*old.params, *new.params})
    told = sum(row.what.startswith(("input ", "parameter ")) for row in rows)
    return Difference(name, "differs", tuple(rows), total - told)


def node_rows(old: PinnedNode, new: PinnedNode) -> Iterator[Row]:
    """What differs between two nodes of one name: key, version, inputs, parameters, result."""
    if old.key != new.key:
        yield Row("key", old.key, new.key)
    if old.version != new.version:
        yield Row("kind version", str(old.version), str(new.version))
    yield from _entries("input", old.inputs, new.inputs)
    yield from _entries("parameter", old.params, new.params)
    if old.result != new.result:
        yield Row("result", old.result, new.result)


def _entries(word: str, old: Mapping[str, Leaf], new: Mapping[str, Leaf]) -> Iterator[Row]:
    for name in sorted({*old, *new}):
        was, now = _shown(old.get(name)), _shown(new.get(name))
        if was != now:
            yield Row(f"{word} {name}", was, now)


def _shown(leaf: Leaf | None) -> str:
    if leaf is None:
        return ""
    if isinstance(leaf, bool):
        return "true" if leaf else "false"
    # An empty text is a value, no input or parameter is none.
    return str(leaf) or '""'


def _image_rows(old: PinnedImage | None, new: PinnedImage | None) -> Iterator[Row]:
    for field in PinnedImage._fields:
        was, now = getattr(old, field, ""), getattr(new, field, "")
        if was != now:
            yield Row(field.replace("_", " "), was, now)
