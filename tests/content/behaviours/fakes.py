"""Stand-ins that more than one behaviour needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any


@contextlib.contextmanager
def replaced(target: Any, **attributes: Any) -> Iterator[None]:
    """Set attributes of a module or an object for the length of a block."""
    missing = object()
    before = {name: getattr(target, name, missing) for name in attributes}
    for name, value in attributes.items():
        setattr(target, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                delattr(target, name)
            else:
                setattr(target, name, value)


def _layout() -> Any:
    """The layout that attention backends of 0.29.0 agree on when nothing asks for another."""
    from vllm.v1.kv_cache_interface import KVCacheLayout

    return KVCacheLayout["LBNHC"]


def config(max_model_len: int = 120_000, method: str | None = None) -> SimpleNamespace:
    """As much of a VllmConfig as KV cache planning looks at."""
    speculative = None
    if method is not None:
        speculative = SimpleNamespace(
            method=method,
            use_eagle=lambda: method in ("mtp", "eagle", "dflash"),
            use_dflash=lambda: method == "dflash",
        )
    return SimpleNamespace(
        speculative_config=speculative,
        model_config=SimpleNamespace(max_model_len=max_model_len, model="m", hf_config=None),
        cache_config=SimpleNamespace(
            mamba_cache_mode="align",
            num_gpu_blocks_override=None,
            enable_prefix_caching=True,
            get_resolved_kv_cache_layout=_layout,
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            world_size=1,
            pipeline_parallel_size=1,
        ),
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=False,
            max_num_batched_tokens=2048,
            async_scheduling=False,
        ),
        max_in_flight_tokens=2048,
    )
