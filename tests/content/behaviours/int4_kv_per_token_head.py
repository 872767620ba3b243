"""Attention over the packed int4 cache with and without a causal mask, against torch."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.attention.ops import int4_per_token_head as int4
from vllm.v1.attention.ops.triton_unified_attention import unified_attention
from vllm.v1.kv_cache_interface import KVQuantMode

BLOCK, HEADS, KV_HEADS, SIZE = 16, 4, 2, 64
CONTEXT = (21, 37)
QUERY = (5, 8)


def _filled() -> tuple[dict[str, torch.Tensor], list[tuple[torch.Tensor, torch.Tensor]]]:
    """A cache with two sequences, and what each holds as the cache gives it back."""
    torch.manual_seed(11)
    blocks = 16
    cache = {
        "k": torch.zeros(blocks, BLOCK, KV_HEADS, SIZE // 2, dtype=torch.uint8),
        "v": torch.zeros(blocks, BLOCK, KV_HEADS, SIZE // 2, dtype=torch.uint8),
        "ks": torch.zeros(blocks, BLOCK, KV_HEADS),
        "vs": torch.zeros(blocks, BLOCK, KV_HEADS),
        "table": torch.arange(1, 9, dtype=torch.int32).view(2, 4),
    }
    held = []
    for sequence, (context, query) in enumerate(zip(CONTEXT, QUERY, strict=True)):
        length = context + query
        key, value = torch.randn(length, KV_HEADS, SIZE), torch.randn(length, KV_HEADS, SIZE)
        slots = cache["table"][sequence].long()[torch.arange(length) // BLOCK] * BLOCK
        slots = slots + torch.arange(length) % BLOCK
        int4.reshape_and_cache_int4(
            key, value, cache["k"], cache["v"], slots,
            k_scale_cache=cache["ks"], v_scale_cache=cache["vs"],
        )  # fmt: skip
        held.append(
            tuple(_read(cache[n].view(-1, KV_HEADS, SIZE // 2)[slots],
                        cache[n + "s"].view(-1, KV_HEADS)[slots]) for n in "kv")
        )  # fmt: skip
    return cache, held  # type: ignore[return-value]


def _read(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Undo the cache's format: nibbles, zero point in the scale's low bits, rotation."""
    codes = torch.stack([packed & 0xF, packed >> 4], -1).flatten(-2).float()
    bits = scale.view(torch.int32)
    zero = (bits & 0xF).float()[..., None]
    step = (bits & -16).view(torch.float32)[..., None]
    return int4.single_rht((codes - zero) * step, inverse=True) / SIZE


def _expected(query: torch.Tensor, held: Any, causal: list[bool], window: int) -> torch.Tensor:
    out, start = [], 0
    for (key, value), context, length, is_causal in zip(held, CONTEXT, QUERY, causal, strict=True):
        q = query[start : start + length].transpose(0, 1)
        start += length
        k = key.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1)
        v = value.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1)
        ahead = torch.arange(context + length) - (context + torch.arange(length))[:, None]
        allowed = ahead <= 0 if is_causal else torch.ones_like(ahead).bool()
        if window:
            allowed = allowed & (ahead.abs() < window)
        score = (q @ k.transpose(1, 2)) * SIZE**-0.5
        out.append((score.masked_fill(~allowed, float("-inf")).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(out)


def _error(causal: Any, window: int = 0) -> Any:
    cache, held = _filled()
    query = torch.randn(sum(QUERY), HEADS, SIZE)
    out = torch.full_like(query, float("nan"))
    lengths = torch.tensor([c + q for c, q in zip(CONTEXT, QUERY, strict=True)], dtype=torch.int32)
    try:
        unified_attention(
            q=query, k=cache["k"], v=cache["v"], out=out,
            cu_seqlens_q=torch.tensor([0, QUERY[0], sum(QUERY)], dtype=torch.int32),
            max_seqlen_q=max(QUERY), seqused_k=lengths, max_seqlen_k=int(lengths.max()),
            softmax_scale=SIZE**-0.5, causal=causal,
            window_size=(window - 1, window - 1) if window else (-1, -1),
            block_table=cache["table"], softcap=0, q_descale=None, k_descale=None, v_descale=None,
            kv_quant_mode=KVQuantMode.INT4_PER_TOKEN_HEAD,
            k_scale_cache=cache["ks"], v_scale_cache=cache["vs"],
        )  # fmt: skip
    except AssertionError as error:
        return str(error)
    flags = causal.tolist() if isinstance(causal, torch.Tensor) else [causal] * 2
    return round(float((out - _expected(query, held, flags, window)).abs().max()), 3)


def observe() -> dict[str, Any]:
    return {
        "causal": _error(True),
        "causal, window": _error(True, window=12),
        "non-causal": _error(False),
        "non-causal, window": _error(False, window=12),
        "per sequence": _error(torch.tensor([True, False])),
        "per sequence, window": _error(torch.tensor([False, True]), window=12),
    }
