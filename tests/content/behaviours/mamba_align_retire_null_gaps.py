"""Which states an align-mode request gives back when null blocks lie between them."""

from __future__ import annotations

import os
from typing import Any

import conversation
import mamba_pool
from mamba_pool import BLOCK, REQUEST


def _passed(layout: str) -> dict[str, Any]:
    mamba = mamba_pool.manager()
    mamba_pool.table(mamba, layout)
    before = mamba_pool.free_count(mamba)
    mamba.remove_skipped_blocks(REQUEST, (len(layout) - 1) * BLOCK + 1)
    return {
        "freed": mamba_pool.free_count(mamba) - before,
        "left": mamba_pool.shape(mamba),
    }


def _long_prefill(chunks: int) -> int:
    """Most states held at once by a prompt whose chunks span three blocks each."""
    mamba = mamba_pool.manager(num_blocks=chunks + 8)
    most = 0
    for chunk in range(1, chunks + 1):
        mamba_pool.table(mamba, "..s")
        mamba.remove_skipped_blocks(REQUEST, chunk * 3 * BLOCK)
        most = max(most, mamba_pool.shape(mamba).count("s"))
    return most


def _looks(steps: int) -> int:
    """How many table entries are looked at while a long request decodes past its blocks."""
    looked = 0

    class Table(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(index)

    mamba = mamba_pool.manager(num_blocks=steps + 8)
    mamba.req_to_blocks[REQUEST] = Table()
    for step in range(1, steps + 1):
        mamba_pool.table(mamba, "s")
        mamba.remove_skipped_blocks(REQUEST, step * BLOCK)
    return looked


def _released() -> list[int]:
    """Free blocks before and after the request, and after a second one of the same name."""
    mamba = mamba_pool.manager()
    counts = [mamba_pool.free_count(mamba)]
    for _ in range(2):
        mamba_pool.table(mamba, "s..s.s")
        mamba.remove_skipped_blocks(REQUEST, 5 * BLOCK + 1)
        mamba.block_pool.free_blocks(reversed(mamba.pop_blocks_for_free(REQUEST)))
        counts.append(mamba_pool.free_count(mamba))
    return counts


def _conversation() -> dict[str, Any]:
    """A long prompt in chunks of four blocks: the states it holds, and what it leaves behind."""
    os.environ["VLLM_MAMBA_ALIGN_KEEP_CHECKPOINTS"] = "0"
    server = conversation.Server(num_blocks=200)
    server.turn("long", list(range(1000)), chunk=64, in_flight=True)
    del os.environ["VLLM_MAMBA_ALIGN_KEEP_CHECKPOINTS"]
    return {"states": server.most_states, "free": server.free}


def observe() -> dict[str, Any]:
    return {
        "conversation": _conversation(),
        "gaps": _passed("s..s.s"),
        "no gaps": _passed("ssssss"),
        "long prefill": _long_prefill(12),
        "looks": _looks(64) <= 64 * 8,
        "released": _released(),
    }
