"""How far the weights that Marlin's int8 path holds are from those of the checkpoint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from fakes import replaced
from vllm.model_executor import parameter
from vllm.model_executor.kernels.linear.mixed_precision import marlin
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import (
    MPLinearLayerConfig,
)
from vllm.scalar_type import scalar_types

K, N, GROUP = 256, 128, 64


def pack(codes: torch.Tensor) -> torch.Tensor:
    """[K, N] codes of four bits to [K / 8, N] words, the first row lowest."""
    words = torch.zeros(codes.shape[0] // 8, codes.shape[1], dtype=torch.int64)
    for nibble in range(8):
        words |= codes[nibble::8].long() << (4 * nibble)
    return torch.where(words >= 2**31, words - 2**32, words).int()


def unpack(words: torch.Tensor) -> torch.Tensor:
    return torch.stack([(words >> (4 * i)) & 0xF for i in range(8)], 1).reshape(-1, words.shape[1])


def weights(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return (codes.float() - 8) * scales.float().repeat_interleave(GROUP, 0)


def _layer(codes: torch.Tensor, scales: torch.Tensor, transposed: bool) -> torch.nn.Module:
    layer = torch.nn.Module()
    words = pack(codes)
    dims = {"input_dim": 1, "output_dim": 0} if transposed else {"input_dim": 0, "output_dim": 1}
    with replaced(
        parameter,
        get_tensor_model_parallel_rank=lambda: 0,
        get_tensor_model_parallel_world_size=lambda: 1,
    ):
        layer.w_q = parameter.PackedvLLMParameter(
            data=words.t().contiguous() if transposed else words,
            packed_factor=8,
            packed_dim=dims["input_dim"],
            weight_loader=None,
            **dims,
        )
        layer.w_s = parameter.GroupQuantScaleParameter(
            data=scales.t().contiguous() if transposed else scales, weight_loader=None, **dims
        )
    return layer


def prepared(
    codes: torch.Tensor, scales: torch.Tensor, act_type: torch.dtype, transposed: bool = False
) -> torch.Tensor:
    """The weights as the kernel would read them, the repacking for its tiles left out."""
    kernel = object.__new__(marlin.MarlinLinearKernel)
    kernel.config = MPLinearLayerConfig(
        full_weight_shape=(K, N),
        partition_weight_shape=(K, N),
        weight_type=scalar_types.uint4b8,
        act_type=act_type,
        group_size=GROUP,
        zero_points=False,
        has_g_idx=False,
    )
    kernel.w_q_name, kernel.w_s_name = "w_q", "w_s"
    kernel.w_zp_name = kernel.w_gidx_name = None
    layer = _layer(codes, scales, transposed)
    repack = SimpleNamespace(gptq_marlin_repack=lambda words, **kwargs: words)
    with replaced(
        marlin,
        ops=repack,
        marlin_permute_scales=lambda scales, **kwargs: scales,
        marlin_make_workspace_new=lambda *args, **kwargs: None,
    ):
        kernel.process_weights_after_loading(layer)
    held = layer.w_s.data
    if act_type == torch.int8:
        held = held.view(torch.int16).float() * layer.input_global_scale
    return weights(unpack(layer.w_q.data), held)


def _error(scales: torch.Tensor, codes: torch.Tensor, **kwargs: Any) -> float:
    """Largest error, in steps of the largest scale; the int8 path's own rounding is below 0.01."""
    act_type = kwargs.pop("act_type", torch.int8)
    wanted = weights(codes, scales)
    held = prepared(codes, scales, act_type, **kwargs)
    return round(float((held - wanted).abs().max() / scales.abs().max().float()), 1)


def observe() -> dict[str, Any]:
    draw = torch.Generator().manual_seed(7)
    codes = torch.randint(1, 16, (K, N), generator=draw)
    scales = (torch.rand(K // GROUP, N, generator=draw) * 0.5 + 0.5).half() / 100
    signs = torch.where(torch.rand(scales.shape, generator=draw) < 0.5, -1.0, 1.0).half()
    # One sign with the larger magnitude, as a quantizer with signed scales makes them.
    mixed = torch.where(signs < 0, -scales, scales / 16)
    lowest = codes.clone()
    lowest[0, :] = 0
    return {
        "positive": _error(scales, codes),
        "negative": _error(-scales, codes),
        "mixed": _error(mixed, codes),
        "mixed, transposed": _error(mixed, codes, transposed=True),
        "mixed, with the code 0": _error(mixed, lowest),
        "mixed, 16 bits": _error(mixed, codes, act_type=torch.float16),
    }
