"""Why a node has to run: what differs from the last time it ran here.

The reason is found while planning and kept in the node's record; ``hq why`` only prints it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hq.model.action import Json
from hq.model.digest import ActionKey
from hq.plan.node import BlobOf, DeltaOf, FileAt, Node, PathsOf, Source, ValueOf


class Before(NamedTuple):
    """What is remembered of a node's last run."""

    key: ActionKey
    version: int
    params: Mapping[str, Json]
    inputs: Mapping[str, str]


class Reason(NamedTuple):
    """One cause. ``subject`` says what changed; ``old`` and ``new`` are digests or values."""

    cause: str
    subject: str = ""
    old: str = ""
    new: str = ""


FIRST = "first"
LOST = "result-lost"
VERSION = "kind-version"
PARAMETER = "parameter"
INPUT = "input"
INPUT_NEW = "input-added"
INPUT_GONE = "input-removed"
ELSEWHERE = "built-elsewhere"


def reasons_to_run(
    node: Node, key: ActionKey, inputs: Mapping[str, str], before: Before | None
) -> tuple[Reason, ...]:
    """Every cause why ``node`` runs now, in a fixed order; never empty."""
    if before is None:
        return (Reason(FIRST),)
    if before.key == key:
        return (Reason(LOST),)
    found: list[Reason] = []
    if before.version != node.version:
        found.append(Reason(VERSION, "", str(before.version), str(node.version)))
    found += _parameter_changes(before.params, node.params)
    found += _input_changes(before.inputs, inputs, node)
    return tuple(found) or (Reason(ELSEWHERE),)


def _input_changes(old: Mapping[str, str], new: Mapping[str, str], node: Node) -> Iterator[Reason]:
    for name in sorted({*old, *new}):
        if name not in old:
            yield Reason(INPUT_NEW, describe_input(node, name), "", new[name])
        elif name not in new:
            yield Reason(INPUT_GONE, name, old[name], "")
        elif old[name] != new[name]:
            yield Reason(INPUT, describe_input(node, name), old[name], new[name])


def describe_input(node: Node, name: str) -> str:
    """What the input ``name`` of ``node`` is, in words."""
    match node.inputs[name]:
        case Source(path):
            return path
        case FileAt(path, providers):
            return f"{path} as {providers[0]} left it"
        case DeltaOf(other):
            return f"the files of {other}"
        case PathsOf(other):
            return f"the set of paths of {other}"
        case BlobOf(other, blob):
            return f"{blob} of {other}"
        case ValueOf(other, value):
            return f"{value} of {other}"


def _parameter_changes(old: object, new: object, path: str = "") -> Iterator[Reason]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            inner = f"{path}.{name}" if path else str(name)
            if name not in old:
                yield Reason(PARAMETER, inner, "nothing", _short(new[name]))
            elif name not in new:
                yield Reason(PARAMETER, inner, _short(old[name]), "nothing")
            else:
                yield from _parameter_changes(old[name], new[name], inner)
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        yield from _list_changes(list(old), list(new), path)
    elif old != new:
        yield Reason(PARAMETER, path, _short(old), _short(new))


def _list_changes(old: list[object], new: list[object], path: str) -> Iterator[Reason]:
    # Lists of things with names (knobs, facts, patches) are compared by name, so that one new knob
    # does not read as a change of all that follow it.
    if _named(old) and _named(new):
        yield from _parameter_changes(_by_name(old), _by_name(new), path)
    elif len(old) == len(new):
        for position, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _parameter_changes(one, other, f"{path}[{position}]")
    else:
        yield Reason(PARAMETER, path, _short(old), _short(new))


def _named(items: list[object]) -> bool:
    return bool(items) and all(isinstance(item, Mapping) and "name" in item for item in items)


def _by_name(items: list[object]) -> dict[str, object]:
    return {str(item["name"]): item for item in items if isinstance(item, Mapping)}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
