"""The scheduler half of the offloading connector on a hybrid model, its tier a dictionary."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from fakes import config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading import scheduler
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
    SchedulerOffloadConfig,
)
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)

CHUNK = 16


def full() -> Any:
    return FullAttentionSpec(block_size=CHUNK, num_kv_heads=1, head_size=8, dtype=torch.float16)


def window(size: int = 64) -> Any:
    return SlidingWindowSpec(
        block_size=CHUNK, num_kv_heads=1, head_size=8, dtype=torch.float16, sliding_window=size
    )


def mamba() -> Any:
    return MambaSpec(
        block_size=CHUNK, shapes=((8, 8),), dtypes=(torch.float32,), mamba_cache_mode="align"
    )


def cache_config(specs: list[Any]) -> Any:
    groups = [KVCacheGroupSpec([f"layer.{i}"], spec) for i, spec in enumerate(specs)]
    return SimpleNamespace(kv_cache_groups=groups, num_blocks=64)


class Tier:
    """An offloading manager that holds what it is told to."""

    def __init__(self) -> None:
        self.held: set[Any] = set()
        self.offered: list[Any] = []

    def lookup(self, key: Any, context: Any) -> Any:
        results = scheduler.LookupResult
        return results.HIT if key in self.held else results.MISS

    def touch(self, keys: Any, context: Any) -> None:
        pass

    def on_new_request(self, context: Any) -> Any:
        return SimpleNamespace(policy=scheduler.OffloadPolicy.BLOCK_LEVEL)

    def prepare_store(self, keys: Any, context: Any) -> Any:
        self.offered += list(keys)
        return SimpleNamespace(keys_to_store=list(keys), store_spec=None)


def offloading_spec(specs: list[Any], tier: Tier) -> Any:
    return SimpleNamespace(
        tokens_per_block=[CHUNK] * len(specs),
        blocks_per_chunk=1,
        tokens_per_hash=CHUNK,
        offload_prompt_only=False,
        get_manager=lambda: tier,
        kv_events_config=SimpleNamespace(
            enable_kv_cache_events=False, self_describing_kv_events=False
        ),
    )


def group_configs(specs: list[Any], method: str | None) -> Any:
    spec = offloading_spec(specs, Tier())
    return SchedulerOffloadConfig.from_spec(
        spec, config(method=method), cache_config(specs)
    ).kv_group_configs


def connector(specs: list[Any], method: str | None, tier: Tier) -> OffloadingConnectorScheduler:
    return OffloadingConnectorScheduler(
        offloading_spec(specs, tier), config(method=method), cache_config(specs)
    )


def request(num_prompt: int, num_output: int = 0, computed: int = 0) -> Any:
    total = num_prompt + num_output
    return SimpleNamespace(
        request_id="request",
        num_tokens=total,
        num_prompt_tokens=num_prompt,
        num_output_tokens=num_output,
        num_computed_tokens=computed,
        block_hashes=[index.to_bytes(32, "big") for index in range(total // CHUNK)],
        kv_transfer_params=None,
        skip_reading_prefix_cache=False,
        status=None,
        is_finished=lambda: num_output > 0,
    )


def key(group: int, chunk: int) -> Any:
    return scheduler.make_offload_key(chunk.to_bytes(32, "big"), group)
