"""From a node and its resolved inputs to its key."""

from __future__ import annotations

from collections.abc import Mapping

from hq.model.canonical import action_key, encode
from hq.model.digest import ActionKey
from hq.plan.node import Node

SCHEMA = "hq.action/1"


def key_of(node: Node, inputs: Mapping[str, str]) -> ActionKey:
    """The key of ``node`` when its inputs have the digests ``inputs`` (by input name)."""
    return action_key(
        {
            "schema": SCHEMA,
            "kind": node.kind,
            "version": node.version,
            "params": node.params,
            "inputs": inputs,
        }
    )


def value_digest(value: object) -> str:
    """The digest under which a plain value of a result enters a key."""
    from blake3 import blake3

    return "blake3:" + blake3(b"hq.value/1\n" + encode(value)).hexdigest()  # type: ignore[arg-type]
