"""Which groups the offloading connector takes for a drafter's."""

from __future__ import annotations

from typing import Any

from offload_fakes import full, group_configs, mamba, window


def _flags(specs: list[Any], method: str | None) -> list[bool]:
    return [group.is_eagle_group for group in group_configs(specs, method)]


def observe() -> dict[str, Any]:
    return {
        "dflash": _flags([full(), mamba(), window()], "dflash"),
        "dflash without a window": _flags([full(), full()], "dflash"),
        "eagle": _flags([full(), window()], "eagle"),
        "none": _flags([full(), mamba(), window()], None),
    }
