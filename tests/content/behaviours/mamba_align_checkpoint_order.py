"""Which cached snapshots are still there when other requests have pressed on the pool."""

from __future__ import annotations

import os
from typing import Any

import mamba_pool
from mamba_pool import BLOCK, REQUEST
from vllm.v1.core.kv_cache_utils import KVCacheBlock


def _run(num_snapshots: int = 5) -> tuple[Any, list[KVCacheBlock]]:
    """A request with cached snapshots that has passed all but the running one."""
    mamba = mamba_pool.manager(num_blocks=17)
    blocks: list[KVCacheBlock] = []
    for index in range(num_snapshots):
        blocks += mamba_pool.table(mamba, "s")[-1:]
        mamba_pool.cache(mamba, blocks[index], index)
        mamba.remove_skipped_blocks(REQUEST, index * BLOCK + 1)
    mamba_pool.table(mamba, "s")
    mamba.remove_skipped_blocks(REQUEST, num_snapshots * BLOCK + 1)
    return mamba, blocks


def _survivors(blocks: list[KVCacheBlock]) -> str:
    return "".join("x" if block.block_hash is None else "s" for block in blocks)


def _under_pressure() -> str:
    """Other requests take every free block while this one runs."""
    mamba, blocks = _run()
    mamba.block_pool.get_new_blocks(mamba_pool.free_count(mamba))
    return _survivors(blocks)


def _after_the_end() -> list[int]:
    """The order in which the snapshots are evicted once the request has ended."""
    mamba, blocks = _run()
    attention = mamba.block_pool.get_new_blocks(2)
    for index, block in enumerate(attention):
        mamba_pool.cache(mamba, block, 100 + index)
    mamba.block_pool.free_blocks(attention)
    mamba.block_pool.free_blocks(reversed(mamba.pop_blocks_for_free(REQUEST)))
    names = {id(block): index for index, block in enumerate(blocks)}
    names |= {id(block): 100 + index for index, block in enumerate(attention)}
    queue = mamba.block_pool.free_block_queue.get_all_free_blocks()
    return [names[id(block)] for block in queue if id(block) in names]


def _soft() -> list[int] | None:
    """Free blocks before and after the held snapshots are asked back."""
    mamba, _ = _run()
    if not hasattr(mamba, "release_kept_snapshots"):
        return None
    before = mamba_pool.free_count(mamba)
    return [before, mamba.release_kept_snapshots(), mamba_pool.free_count(mamba)]


def _make_room() -> list[bool] | None:
    """Whether an allocation that needs the held blocks gets them."""
    from types import SimpleNamespace

    from vllm.v1.core.kv_cache_manager import KVCacheManager

    if not hasattr(KVCacheManager, "_make_room"):
        return None
    mamba, _ = _run()
    owner = SimpleNamespace(block_pool=mamba.block_pool, coordinator=mamba)
    free = mamba_pool.free_count(mamba)
    return [
        KVCacheManager._make_room(owner, needed, 0)
        for needed in (free, free + 3, mamba_pool.free_count(mamba) + 4)
    ]


def observe() -> dict[str, Any]:
    seen = {
        "under pressure": _under_pressure(),
        "evicted in order": _after_the_end(),
        "soft": _soft(),
        "make room": _make_room(),
    }
    os.environ["VLLM_MAMBA_ALIGN_KEEP_CHECKPOINTS"] = "0"
    seen["off"] = _under_pressure()
    del os.environ["VLLM_MAMBA_ALIGN_KEEP_CHECKPOINTS"]
    return seen
