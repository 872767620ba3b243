"""A node's record, read back as values.

The documents are those of ``hq.provenance.record``, by node name in the graph's order: what
``dist/IMAGE-PIN.records.json`` holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hq.model.errors import Location, UsageError

SCHEMA = "hq.record/1"


class NodeRecord(NamedTuple):
    """What one node was made from and what it gave.

    ``inputs``: digest by input name; ``what``: the same in words. ``result``: as
    ``hq.model.action.to_json`` gives it.
    """

    node: str
    kind: str
    version: int
    key: str
    params: Mapping[str, Any]
    inputs: Mapping[str, str]
    what: Mapping[str, str]
    result: Mapping[str, Any]


Records = Mapping[str, NodeRecord]


def read_records(document: object, file: str) -> Records:
    """Reads a records file's JSON value. Raises ``UsageError`` that names ``file``."""
    try:
        return {str(name): _record(name, value) for name, value in _rows(document).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{file} is no records file of hq: {error}",
            where=Location(file),
            hint="name a file that hq build wrote beside an image layout, *.records.json",
        ) from None


def _rows(document: object) -> Mapping[str, Any]:
    if not isinstance(document, dict) or not document:
        raise TypeError("expected an object with a record for every node")
    return document


def _record(name: str, value: Any) -> NodeRecord:
    if value["schema"] != SCHEMA:
        raise ValueError(f"{name}: expected schema {SCHEMA!r}, found {value['schema']!r}")
    if value["node"] != name:
        raise ValueError(f"{name}: it is the record of {value['node']}")
    return NodeRecord(
        node=name,
        kind=str(value["kind"]),
        version=int(value["version"]),
        key=str(value["key"]),
        params=dict(value["params"]),
        inputs={entry["name"]: entry["digest"] for entry in value["inputs"]},
        what={entry["name"]: entry["what"] for entry in value["inputs"]},
        result=dict(value["result"]),
    )
