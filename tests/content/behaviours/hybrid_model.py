"""KV cache specs like those of a hybrid model of 64 layers with a five-layer drafter."""

from __future__ import annotations

from typing import Any

import torch
from fakes import config
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

GIB = 1 << 30
DRAFT_LAYERS = 5


def _strided(spec_class: Any) -> dict[str, Any]:
    """0.28.0 pads only what indexes pages by the block stride; 0.29.0 has no such field."""
    field = "indexes_kv_by_block_stride"
    return {field: True} if field in spec_class.__dataclass_fields__ else {}


def specs(kv: str, draft_layers: int = DRAFT_LAYERS, window: int = 2048) -> dict[str, Any]:
    """16 full attention, 48 Mamba and the drafter's layers, the cache in ``bf16`` or ``int8``."""
    state = ((48, 128, 128), (10240, 18))
    state_bytes = 48 * 128 * 128 * 4 + 10240 * 18 * 2
    # Per token: 4 KV heads of 256 channels, K and V; int8 with a float32 scale for each.
    head_bytes = 512 + 8 if kv == "int8" else 1024
    token_bytes = 4 * head_bytes
    block = -(-state_bytes // (token_bytes * 16)) * 16
    content = {"state_content_bytes": head_bytes} if kv == "int8" else {}
    if kv == "int8" and "state_content_bytes" not in FullAttentionSpec.__dataclass_fields__:
        content = {"page_size_padded": block * token_bytes}
    dtype = torch.int8 if kv == "int8" else torch.bfloat16
    full = FullAttentionSpec(
        block_size=block, num_kv_heads=4, head_size=256, dtype=dtype,
        **content, **_strided(FullAttentionSpec),
    )  # fmt: skip
    mamba = MambaSpec(
        block_size=block,
        shapes=state,
        dtypes=(torch.float32, torch.bfloat16),
        page_size_padded=full.page_size_bytes,
        mamba_cache_mode="align",
        num_speculative_blocks=0,
    )
    draft = SlidingWindowSpec(
        block_size=16, num_kv_heads=8, head_size=128, dtype=torch.bfloat16,
        sliding_window=window, **_strided(SlidingWindowSpec),
    )  # fmt: skip
    layers: dict[str, Any] = {f"full.{i}": full for i in range(16)}
    layers |= {f"mamba.{i}": mamba for i in range(48)}
    layers |= {f"draft.{i}": draft for i in range(draft_layers)}
    return layers


def plan(layers: dict[str, Any], method: str | None, memory: float = 5.5) -> dict[str, Any]:
    """The groups of a model and how many tokens one request can have in ``memory`` GiB."""
    groups = kv_cache_utils.get_kv_cache_groups(config(method=method), dict(layers))
    per_layer = {
        name: getattr(group.kv_cache_spec, "kv_cache_specs", {}).get(name, group.kv_cache_spec)
        for group in groups
        for name in group.layer_names
    }
    width = max(
        sum(per_layer[name].page_size_bytes for name in group.layer_names) for group in groups
    )
    num_blocks = int(memory * GIB) // width

    def fits(tokens: int) -> bool:
        cfg = config(max_model_len=tokens, method=method)
        needed = sum(
            -(-g.kv_cache_spec.max_memory_usage_bytes(cfg) // g.kv_cache_spec.page_size_bytes)
            for g in groups
        )
        return needed <= num_blocks

    low, high = 0, 1 << 20
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    draft = per_layer.get("draft.0")
    return {
        "capacity": low,
        "groups": len(groups),
        "width": max(len(group.layer_names) for group in groups),
        "draft block": draft.block_size if draft is not None else None,
        "primary block": per_layer["full.0"].block_size,
    }
