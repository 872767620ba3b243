"""Parameters of a node as short lines of text, for pin files and for showing what differs.

A parameter is told under its dotted name. A short text, a number or a flag stands there as it is,
another short value as ``json:`` and its JSON; a longer table, or a list of things with names, is
told entry by entry, down to a fixed depth; whatever is still long stands as the digest of its
canonical encoding. So equal parameters have equal outlines, different ones different outlines, and
a registry of a hundred knobs takes a hundred lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from blake3 import blake3

from hq.model.canonical import encode

Leaf = str | int | bool

_SHORT: Final = 80
_DEPTH: Final = 3


def outline(params: Mapping[str, object]) -> dict[str, Leaf]:
    """The parameters by dotted name, sorted."""
    return dict(sorted(_entries(params, "", _DEPTH)))


def digest(value: object) -> str:
    """The name of any value that JSON can say."""
    plain = json.loads(json.dumps(value))
    return "blake3:" + blake3(b"hq.outline/1\n" + encode(plain)).hexdigest()


def _entries(value: Mapping[str, object], above: str, depth: int) -> Iterator[tuple[str, Leaf]]:
    for name, item in value.items():
        path = f"{above}.{name}" if above else name
        text = json.dumps(item, sort_keys=True, ensure_ascii=True)
        inner = _inner(item)
        if len(text) <= _SHORT:
            yield path, _leaf(item, text)
        elif inner is not None and depth > 1:
            yield from _entries(inner, path, depth - 1)
        else:
            yield path, digest(item)


def _leaf(item: object, text: str) -> Leaf:
    if isinstance(item, (bool, int)):
        return item
    if isinstance(item, str) and not item.startswith(("json:", "blake3:")):
        return item
    return f"json:{text}"


def _inner(item: object) -> Mapping[str, object] | None:
    """A value as a table: itself, or a list of things with different names, by name."""
    if isinstance(item, Mapping):
        return item
    if not isinstance(item, (list, tuple)):
        return None
    named: dict[str, object] = {}
    for place, one in enumerate(item):
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            return None
        # The place is part of the value: an order that changed is a change.
        named[one["name"]] = {"place": place, **one}
    return named if len(named) == len(item) else None
