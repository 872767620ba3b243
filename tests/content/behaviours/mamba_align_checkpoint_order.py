"""Which cached snapshots are still there when other requests have pressed on the pool."""

from __future__ import annotations

import os
from typing import Any

import conversation
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
    """Free blocks, how many of the held snapshots come back when asked for, and free blocks."""
    mamba, blocks = _run()
    if not hasattr(mamba, "release_kept_snapshots"):
        return None
    before = mamba_pool.free_count(mamba)
    # The newest one is hit by the allocation that asks, so it must not become a free block.
    hit = {blocks[-1].block_id}
    return [before, mamba.release_kept_snapshots(hit), mamba_pool.free_count(mamba)]


def _make_room() -> list[bool] | None:
    """Whether allocations that need two held blocks, three, and a hit one get them."""
    from types import SimpleNamespace

    from vllm.v1.core.kv_cache_manager import KVCacheManager

    if not hasattr(KVCacheManager, "_make_room"):
        return None

    def room(more: int, num_hit: int) -> bool:
        mamba, blocks = _run()
        owner = SimpleNamespace(block_pool=mamba.block_pool, coordinator=mamba)
        needed = mamba_pool.free_count(mamba) + more
        hit = (blocks[len(blocks) - num_hit :],)
        return bool(KVCacheManager._make_room(owner, needed, hit))

    return [room(0, 0), room(3, 0), room(4, 0), room(2, 1), room(3, 1)]


def _second_turn(pressure: int) -> Any:
    """Hit tokens of a second turn after another request pressed on the pool."""
    server = conversation.Server(num_blocks=96)
    first = list(range(600))
    server.turn("first", first, chunk=64)
    server.turn("other", list(range(5000, 5000 + pressure)), chunk=64)
    return server.turn("second", [*first, *range(9000, 9050)], chunk=64)


def _full_pool() -> list[Any]:
    """A prompt beside a running one that leaves room only if its held snapshots come back."""
    server = conversation.Server(num_blocks=96)
    server.turn("running", list(range(600)), chunk=64, end=False)
    other = server.turn("other", list(range(5000, 5000 + 52 * BLOCK)), chunk=64)
    return [other, server.turn("again", list(range(600)), chunk=64)]


def observe() -> dict[str, Any]:
    seen = {
        "under pressure": _under_pressure(),
        "evicted in order": _after_the_end(),
        "soft": _soft(),
        "second turn": {
            pressure: _second_turn(pressure) for pressure in (400, 760, 820, 880, 1200)
        },
        "full pool": _full_pool(),
        "make room": _make_room(),
    }
    os.environ["VLLM_MAMBA_ALIGN_KEEP_CHECKPOINTS"] = "0"
    seen["off"] = _under_pressure()
    del os.environ["VLLM_MAMBA_ALIGN_KEEP_CHECKPOINTS"]
    return seen
