"""``envs``: the knob registry written into the distribution's ``envs.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hq.knobs.envsfile import read_envs
from hq.knobs.generate import generate_into
from hq.knobs.registry import Knob, Registry
from hq.model.action import Json
from hq.model.canonical import Value
from hq.model.errors import BuildError, Location
from hq.model.tree import Entry, make_delta
from hq.rules.context import Context, Made

_FIELDS = Knob._fields


def to_values(registry: Registry) -> dict[str, Value]:
    """The registry as values that can stand in a key and in JSON."""
    return {
        "knobs": [
            {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in zip(_FIELDS, knob, strict=True)
            }
            for knob in registry.knobs
        ],
        "prefixes": list(registry.prefixes),
        "retired": [{"name": old.name, "reason": old.reason} for old in registry.retired],
    }


def from_values(values: object) -> Registry:
    """Reads ``to_values``'s value, without what is retired."""
    assert isinstance(values, Mapping)
    knobs = [_knob(fields) for fields in values["knobs"]]
    return Registry.of(knobs, values["prefixes"])


def _knob(fields: Mapping[str, Any]) -> Knob:
    lists = {name: tuple(fields[name]) for name in ("exported_by", "choices")}
    return Knob(**{**fields, **lists})


def run(context: Context) -> Made:
    """A delta of one file; values ``variables`` and ``attributes``, the names that it defines."""
    target = str(context.params["target"])
    state = context.file(f"file:{target}")
    if state.entry is None:
        raise BuildError(
            f"there is no {target} to write the knobs into",
            where=Location(target),
            hint="name the module in build.toml: knobs.target",
        )
    envs = read_envs(context.file_bytes(f"file:{target}"), target)
    registry = from_values(context.params["registry"])
    data = generate_into(envs, registry)
    ref = context.store.put(data)
    added = registry.names()
    values: dict[str, Json] = {
        "variables": list[Json](sorted({*envs.variables, *added})),
        "attributes": list[Json](sorted({*envs.attributes, *added})),
    }
    entry = Entry(state.entry.kind, ref.digest, ref.size)
    changed = {target: entry} if entry != state.entry else {}
    return Made(delta=make_delta(changed), values=values)
