"""The record that every node leaves.

It holds the key, the inputs by name with what they are and their digest, the parameters, the
result, hq's version, and the reason why the node ran. No time, user, host or path of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hq.model.action import ActionResult, Json, to_json

SCHEMA = "hq.record/1"


class Input(NamedTuple):
    """One input: its name, what it is in words, its digest."""

    name: str
    what: str
    digest: str


class Cause(NamedTuple):
    """Why a node ran, in words; ``details`` are lines that show the difference."""

    text: str
    details: tuple[str, ...] = ()


def record(
    *,
    node: str,
    kind: str,
    version: int,
    params: Mapping[str, Json],
    inputs: Sequence[Input],
    result: ActionResult,
    causes: Sequence[Cause],
    warnings: Sequence[str],
    tool: str,
) -> dict[str, Json]:
    """The record as JSON values."""
    return {
        "schema": SCHEMA,
        "node": node,
        "kind": kind,
        "version": version,
        "key": result.key,
        "params": dict(params),
        "inputs": [{"name": i.name, "what": i.what, "digest": i.digest} for i in inputs],
        "result": to_json(result),
        "reasons": [{"text": cause.text, "details": list(cause.details)} for cause in causes],
        "warnings": list(warnings),
        "tool": tool,
    }
