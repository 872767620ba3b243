"""The first chunk of an align-mode prefill, and the exponentials of the chunked output kernel."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from fakes import replaced
from triton.runtime.interpreter import InterpretedFunction
from vllm.third_party.flash_linear_attention.ops import chunk_o
from vllm.triton_utils import tl
from vllm.v1.worker.mamba_utils import preprocess_mamba_align_fused_kernel

BLOCK = 16


def _preprocessed(computed: int, chunk: int, state: int, accepted: int) -> dict[str, int]:
    """What the preprocess emits for one request in a slot that holds ``state, accepted``."""

    def column(value: int) -> torch.Tensor:
        return torch.tensor([value], dtype=torch.int32)

    states, accepteds = column(state), column(accepted)
    source, offset = column(-9), column(-9)
    preprocess_mamba_align_fused_kernel[(1,)](
        column(0),
        states,
        column(computed),
        torch.tensor([0, chunk], dtype=torch.int32),
        accepteds,
        source,
        offset,
        1,
        BLOCK_SIZE=16,
        MAMBA_BLOCK_SIZE=BLOCK,
    )
    return {
        "source": int(source),
        "offset": int(offset),
        "state": int(states),
        "accepted": int(accepteds),
    }


def _chunked(decay: float) -> tuple[float, bool]:
    """The kernel's error against torch and whether an exponential overflowed."""
    torch.manual_seed(3)
    tokens, width, size = 40, 64, 64
    q, k, v = (torch.randn(1, tokens, 1, width) / 4 for _ in range(3))
    state = torch.randn(1, 1, width, width) / 4
    g = torch.cumsum(torch.full((1, tokens, 1), -decay), 1)
    out = torch.empty_like(v)
    kernel = chunk_o.chunk_fwd_kernel_o
    while not isinstance(kernel, InterpretedFunction):
        kernel = kernel.fn  # past the heuristics and the autotuner
    # The interpreter replaces what is reached through ``tl``, and not a name bound before.
    exp = replaced(chunk_o, exp=lambda value: tl.exp(value))  # noqa: PLW0108
    with exp, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel[(1, 1, 1)](
            q, k, v, state, g, out, None, None, width**-0.5,
            T=tokens, H=1, Hg=1, K=width, V=width, BT=size, BK=64, BV=64,
            USE_G=True, IS_VARLEN=False,
        )  # fmt: skip
    q2, k2, v2, g2 = q[0, :, 0], k[0, :, 0], v[0, :, 0], g[0, :, 0]
    mask = torch.ones(tokens, tokens).tril().bool()
    gate = torch.where(mask, g2[:, None] - g2[None, :], float("-inf")).exp()
    wanted = (q2 @ state[0, 0].T) * g2.exp()[:, None] + ((q2 @ k2.T) * gate) @ v2
    error = float((out[0, :, 0] - wanted * width**-0.5).abs().max())
    overflow = any("overflow" in str(warning.message) for warning in caught)
    return round(error, 4), overflow


def observe() -> dict[str, Any]:
    return {
        "fresh, slot used before": _preprocessed(0, 40, state=3, accepted=4),
        "fresh, clean slot": _preprocessed(0, 40, state=-1, accepted=1),
        "second chunk": _preprocessed(48, 40, state=2, accepted=1),
        "decode within a block": _preprocessed(50, 3, state=3, accepted=2),
        "gentle decay": _chunked(0.1),
        "steep decay": _chunked(5.0),
    }
