"""The table of kinds: what each does. Kinds load when they first run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from hq.rules.context import Context, Made, Rule

_MODULES = {
    "wheel": "hq.rules.wheel",
    "patch": "hq.rules.patch",
    "envs": "hq.rules.envs",
    "audit": "hq.rules.audit",
    "overlay": "hq.rules.overlay",
    "layer": "hq.rules.layer",
    "launch": "hq.rules.launch",
    "installed": "hq.rules.installed",
    "image": "hq.rules.image",
    "deb": "hq.rules.deb",
    "base": "hq.rules.base",
    "base-layer": "hq.rules.base_layer",
    "base-image": "hq.rules.base_image",
}


class _Lazy(Mapping[str, Rule]):
    def __getitem__(self, kind: str) -> Rule:
        module = _MODULES[kind]

        def run(context: Context) -> Made:
            made: Made = import_module(module).run(context)
            return made

        return run

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


RULES: Mapping[str, Rule] = _Lazy()
