"""An action's result, as the action cache keeps it and as later nodes read it.

A result is small: names and sizes of blobs, a delta of a tree, a few plain values. The bytes are in
the blob store. A cached result counts only while every blob that it names is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hq.model.digest import ActionKey, BlobRef, Digest
from hq.model.tree import Change, Delta, Entry

Json = None | bool | int | str | list["Json"] | dict[str, "Json"]

SCHEMA = "hq.result/1"


class ActionResult(NamedTuple):
    """What running one node gave.

    ``blobs``: named outputs (``tar``, ``report``, ``wheel``, ``index`` …).
    ``delta``: the files it adds, changes or removes, for nodes that make files.
    ``values``: facts that later nodes take as inputs (a DiffID, a media type, the knobs read).
    """

    key: ActionKey
    blobs: Mapping[str, BlobRef] = {}
    delta: Delta = ()
    values: Mapping[str, Json] = {}

    def references(self) -> Iterator[BlobRef]:
        """Every blob that must be there for the result to count."""
        yield from self.blobs.values()
        for _, entry in self.delta:
            if entry is not None:
                yield BlobRef(entry.digest, entry.size)


def to_json(result: ActionResult) -> dict[str, Json]:
    """The result as plain JSON values; ``from_json`` reads it back."""
    return {
        "schema": SCHEMA,
        "key": result.key,
        "blobs": {name: [ref.digest, ref.size] for name, ref in sorted(result.blobs.items())},
        "delta": [
            [path, None] if entry is None else [path, entry.kind, entry.digest, entry.size]
            for path, entry in result.delta
        ],
        "values": dict(result.values),
    }


def from_json(document: Mapping[str, object]) -> ActionResult:
    """Reads ``to_json``'s value.

    Raises ``ValueError``, ``TypeError`` or ``KeyError`` when it is anything else; the caller treats
    that as a damaged cache entry.
    """
    if document["schema"] != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA!r}, found {document['schema']!r}")
    blobs = document["blobs"]
    delta = document["delta"]
    values = document["values"]
    if not isinstance(blobs, dict) or not isinstance(delta, list) or not isinstance(values, dict):
        raise TypeError("blobs and values are objects, delta is an array")
    return ActionResult(
        key=ActionKey.parse(str(document["key"])),
        blobs={name: BlobRef(Digest.parse(ref[0]), int(ref[1])) for name, ref in blobs.items()},
        delta=tuple(
            Change(row[0], None)
            if row[1] is None
            else Change(row[0], Entry(row[1], Digest.parse(row[2]), int(row[3])))
            for row in delta
        ),
        values=values,
    )
