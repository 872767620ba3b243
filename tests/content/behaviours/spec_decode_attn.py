"""Who computes attention for a few query tokens per request, and how well."""

from __future__ import annotations

import os
from typing import Any

import paged
import torch

CASES = {
    "head size 64": ([70, 3, 0], [4, 2, 1], 4, 2, 64),
    "head size 128": ([37, 130], [5, 8], 6, 1, 128),
    "head size 256": ([90, 17], [3, 2], 4, 2, 256),
}


def _error(case: paged.Batch, out: torch.Tensor) -> float:
    return round(float((out.float() - case.expected).abs().max()), 2)


def _case(name: str) -> list[Any]:
    case = paged.batch(*CASES[name])
    who, out = paged.forward(case)
    return [who, _error(case, out) if who == "own" else None]


def _splits() -> list[float] | None:
    """The error by the number of slices, among them more slices than tiles."""
    try:
        from vllm.v1.attention.ops.spec_decode_attn import spec_decode_attention
    except ImportError:
        return None
    case = paged.batch(*CASES["head size 64"])
    key, value = case.cache.transpose(1, 2).split(64, -1)
    errors = []
    for splits in (1, 4, 32):
        out = torch.zeros_like(case.query)
        spec_decode_attention(
            case.query, key, value, out, case.starts, case.lengths, case.table, 4, 64**-0.5, splits
        )
        errors.append(_error(case, out))
    return errors


def observe() -> dict[str, Any]:
    try:
        from vllm.v1.attention.ops import spec_decode_attn
    except ImportError:
        spec_decode_attn = None
    if spec_decode_attn is not None:
        spec_decode_attn._num_multiprocessors = lambda index: 8
    os.environ["VLLM_SPEC_DECODE_ATTN"] = "1"
    seen: dict[str, Any] = {name: _case(name) for name in CASES}
    case = paged.batch(*CASES["head size 64"])
    seen["left to flash"] = {
        "a window": paged.forward(case, sliding_window=(31, 0))[0],
        "a soft cap": paged.forward(case, logits_soft_cap=30.0)[0],
        "not causal": paged.forward(case, causal=False)[0],
        "one token each": paged.forward(paged.batch([9], [1], 2, 1, 64))[0],
        "many tokens": paged.forward(paged.batch([9], [17], 2, 1, 64))[0],
    }
    del os.environ["VLLM_SPEC_DECODE_ATTN"]
    seen["off"] = paged.forward(case)[0]
    seen["splits"] = _splits()
    return seen
