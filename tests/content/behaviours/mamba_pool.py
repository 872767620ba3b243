"""A real block pool with an align-mode Mamba manager on it."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock, make_block_hash_with_group_id
from vllm.v1.core.single_type_kv_cache_manager import MambaManager
from vllm.v1.kv_cache_interface import MambaSpec

BLOCK = 16
REQUEST = "request"


def manager(num_blocks: int = 32) -> MambaManager:
    pool = BlockPool(num_gpu_blocks=num_blocks, enable_caching=True, hash_block_size=BLOCK)
    spec = MambaSpec(
        block_size=BLOCK,
        shapes=((8, 8),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
    )
    return MambaManager(
        spec,
        block_pool=pool,
        enable_caching=True,
        kv_cache_group_id=0,
        scheduler_block_size=BLOCK,
    )


def table(mamba: MambaManager, layout: str, hashed: bool = False) -> list[KVCacheBlock]:
    """Give the request one block for each letter: ``s`` a state, ``.`` a gap."""
    blocks: list[KVCacheBlock] = mamba.req_to_blocks[REQUEST]
    for index, letter in enumerate(layout):
        if letter == ".":
            blocks.append(mamba.block_pool.null_block)
            continue
        [block] = mamba.block_pool.get_new_blocks(1)
        if hashed:
            cache(mamba, block, index)
        blocks.append(block)
    return list(blocks)


def cache(mamba: MambaManager, block: KVCacheBlock, index: int) -> None:
    """Enter a block into the prefix cache under a name that its index makes."""
    name: Any = make_block_hash_with_group_id(index.to_bytes(32, "big"), 0)
    block._block_hash = name
    mamba.block_pool.cached_block_hash_to_block.insert(name, block)


def free_count(mamba: MambaManager) -> int:
    return int(mamba.block_pool.get_num_free_blocks())


def shape(mamba: MambaManager) -> str:
    blocks = mamba.req_to_blocks[REQUEST]
    return "".join("." if block.is_null else "s" for block in blocks)
