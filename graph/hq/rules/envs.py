"""``envs``: the knob registry written into the distribution's ``envs.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from hq.knobs.envsfile import read_envs
from hq.knobs.generate import generate_into
from hq.knobs.registry import from_values
from hq.model.action import Json
from hq.model.errors import BuildError, Location
from hq.model.tree import Entry, make_delta
from hq.rules.context import Context, Made


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
    registry = from_values(cast("Mapping[str, Any]", context.params["registry"]))
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
