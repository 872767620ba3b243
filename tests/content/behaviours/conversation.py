"""Turns of a conversation through the real KV cache manager of a hybrid model in align mode."""

from __future__ import annotations

from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.request import Request, RequestStatus

BLOCK = 16


class Server:
    """One request at a time, prefilled in chunks and then ended."""

    def __init__(self, num_blocks: int) -> None:
        kv_cache_utils.init_none_hash(sha256)
        page = {"num_kv_heads": 1, "head_size": 8, "dtype": torch.float32}
        full = FullAttentionSpec(block_size=BLOCK, **page)
        mamba = MambaSpec(
            block_size=BLOCK,
            shapes=((BLOCK * 16,),),
            dtypes=(torch.float32,),
            mamba_cache_mode="align",
        )
        groups = [KVCacheGroupSpec(["full"], full), KVCacheGroupSpec(["mamba"], mamba)]
        config = KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
        self.manager = KVCacheManager(
            config,
            max_model_len=4096,
            scheduler_block_size=BLOCK,
            hash_block_size=BLOCK,
            max_in_flight_tokens=256,
        )
        self.hasher = kv_cache_utils.get_request_block_hasher(BLOCK, sha256)
        self.most_states = 0

    @property
    def free(self) -> int:
        return int(self.manager.block_pool.get_num_free_blocks())

    def states(self, request: Request) -> int:
        [_, mamba] = self.manager.coordinator.single_type_managers
        held = getattr(mamba, "_kept_snapshots", {}).get(request.request_id, [])
        table = mamba.req_to_blocks[request.request_id]
        return len(held) + sum(not block.is_null for block in table)

    def turn(
        self, name: str, tokens: list[int], chunk: int, end: bool = True, in_flight: bool = False
    ) -> Any:
        """Prefill ``tokens``; the tokens that were hit, or None when a chunk had no room."""
        request = Request(
            name, tokens, SamplingParams(max_tokens=1), None, block_hasher=self.hasher
        )
        hit_blocks, num_hit, *_ = self.manager.get_computed_blocks(request)
        hit = num_hit
        while request.num_computed_tokens + num_hit < len(tokens):
            self.manager.new_step_starts()
            done = request.num_computed_tokens + num_hit
            # Align mode ends every chunk but the last on a block.
            new = min(chunk, len(tokens) - done)
            if done + new < len(tokens):
                new = (done + new) // BLOCK * BLOCK - done
            given = self.manager.allocate_slots(
                request, new, num_new_computed_tokens=num_hit, new_computed_blocks=hit_blocks
            )
            if given is None:
                self.manager.free(request)
                return None
            request.num_computed_tokens = done + new
            # The step just scheduled is still in flight when the next one is.
            request.num_in_flight_tokens = new if in_flight else 0
            request.status = RequestStatus.RUNNING
            num_hit, hit_blocks = 0, None
            self.most_states = max(self.most_states, self.states(request))
        if end:
            self.manager.free(request)
        return hit
