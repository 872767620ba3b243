"""Who computes attention for long queries at head size 256, and how well."""

from __future__ import annotations

import os
from typing import Any

import paged
import torch


def _error(case: paged.Batch, out: torch.Tensor) -> float:
    """The largest error in units of the largest output; eight bits leave less than 0.02."""
    return float((out.float() - case.expected).abs().max() / case.expected.abs().max())


def observe() -> dict[str, Any]:
    os.environ["VLLM_PREFILL_ATTN"] = "int8"
    os.environ["VLLM_PREFILL_ATTN_QMIN"] = "32"
    case = paged.batch([0, 45, 70], [70, 33, 1], 4, 2, 256)
    who, out = paged.forward(case)
    error = _error(case, out)
    seen: dict[str, Any] = {
        "mixed batch": who,
        "close": error < 0.02,
        "not the 16-bit product": error > 1e-4,
        "left to flash": {
            "a window": paged.forward(case, sliding_window=(31, 0))[0],
            "another head size": paged.forward(paged.batch([9], [40], 2, 1, 128))[0],
            "short queries": paged.forward(paged.batch([40], [4], 2, 1, 256))[0],
        },
    }
    del os.environ["VLLM_PREFILL_ATTN"], os.environ["VLLM_PREFILL_ATTN_QMIN"]
    seen["off"] = paged.forward(case)[0]
    return seen
