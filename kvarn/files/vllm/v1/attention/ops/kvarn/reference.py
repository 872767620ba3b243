# SPDX-License-Identifier: Apache-2.0
"""The KVarN method in torch: the definition that the kernels are tested against.

One tile is a matrix of G tokens by D channels, for K and for V.  After a
Hadamard rotation of the channels no channel stands out by itself, but tokens
and channels still differ in spread, and a rounding grid shared by a row or a
column wastes its levels on the widest.  Rows and columns are therefore divided
by their standard deviations in turn, in log space; neither pass leaves the
other's work intact, so the most balanced state seen is kept, not the last.

K is then rounded per channel and V per token.  The deviation of the rounded
axis is folded into its scale and zero; the other axis keeps a factor of its
own.  Parameters are rounded to fp16 *before* codes are chosen, so that a code
makes up for its parameters' rounding.

Everything here takes leading batch dimensions and works on any device.
"""

import functools
from typing import NamedTuple

import torch

from .config import KVarNConfig

FP16_MAX = 65504.0
MIN_SCALE = 2.0**-14
"""The smallest normal fp16: a flatter channel is stored with this step."""


@functools.cache
def hadamard(dim: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The orthonormal Hadamard matrix of order ``dim`` (a power of two); its own inverse."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < dim:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)), 0)
    if matrix.shape[0] != dim:
        raise ValueError(f"a Hadamard matrix of this construction has a power of two, not {dim}")
    return (matrix / dim**0.5).to(device=device, dtype=dtype)


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotate the last dimension; twice gives ``x`` back.  fp16 result, clamped to its range."""
    matrix = hadamard(x.shape[-1], str(x.device), torch.float32)
    return (x.float() @ matrix).clamp_(-FP16_MAX, FP16_MAX).half()


def _log_std(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Logarithm of the deviation along ``dim``; 0, that is no change, where there is none."""
    std = x.var(dim=dim, correction=0).sqrt()
    return torch.where(std > 1e-12, std, torch.ones_like(std)).log()


def _spread(log_std: torch.Tensor) -> torch.Tensor:
    return log_std.amax(-1) - log_std.amin(-1)


def normalize(x: torch.Tensor, iters: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Balance rows and columns of ``x`` [..., G, D] in ``iters`` rounds.

    Returns the logarithms of the row factors [..., G] and column factors
    [..., D] with the least spread of deviations, over rows plus over columns.
    """
    log_row = x.new_zeros(x.shape[:-1])
    log_col = x.new_zeros(x.shape[:-2] + x.shape[-1:])
    best_row, best_col = log_row, log_col
    best = x.new_full(x.shape[:-2], float("inf"))
    for step in range(iters + 1):
        scaled = x * (-log_row).exp().unsqueeze(-1) * (-log_col).exp().unsqueeze(-2)
        row_std = _log_std(scaled, -1)
        spread = _spread(row_std) + _spread(_log_std(scaled, -2))
        better = spread < best
        best = torch.where(better, spread, best)
        best_row = torch.where(better.unsqueeze(-1), log_row, best_row)
        best_col = torch.where(better.unsqueeze(-1), log_col, best_col)
        if step == iters:
            break
        log_row = log_row + row_std
        scaled = scaled * (-row_std).exp().unsqueeze(-1)
        log_col = log_col + _log_std(scaled, -2)
    return best_row, best_col


class Quantized(NamedTuple):
    """Codes of one matrix and how to undo them: ``(codes * scale + zero) * other``.

    ``scale`` and ``zero`` belong to the rounded axis (K: channels, V: tokens),
    ``other`` to the other one.  Codes are uint8, not packed.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor
    other: torch.Tensor


def _quantize_columns(x: torch.Tensor, bits: int, iters: int, quantile: float | None) -> Quantized:
    """Round ``x`` [..., G, D] per column; the row factors are ``other``."""
    log_row, log_col = normalize(x, iters)
    mean = log_row.mean(-1, keepdim=True)
    other = (log_row - mean).exp().half()
    column = (log_col + mean).exp()
    rows = x / other.float().unsqueeze(-1)
    balanced = rows / column.unsqueeze(-2)
    if quantile is None:
        low, high = balanced.amin(-2), balanced.amax(-2)
    else:
        bounds = torch.tensor([1.0 - quantile, quantile], dtype=x.dtype, device=x.device)
        low, high = torch.quantile(balanced, bounds, dim=-2)
    levels = 2**bits - 1
    zero = (low * column).clamp(-FP16_MAX, FP16_MAX).half()
    scale = ((high - low) / levels * column).clamp(MIN_SCALE, FP16_MAX).half()
    steps = (rows - zero.float().unsqueeze(-2)) / scale.float().unsqueeze(-2)
    codes = (steps + 0.5).floor().clamp(0, levels).to(torch.uint8)
    return Quantized(codes, scale, zero, other)


def quantize_k(
    k: torch.Tensor, bits: int = 4, iters: int = 8, quantile: float | None = None
) -> Quantized:
    """Round rotated keys [..., G, D] per channel; ``other`` is per token."""
    return _quantize_columns(k.float(), bits, iters, quantile)


def quantize_v(
    v: torch.Tensor, bits: int = 2, iters: int = 8, quantile: float | None = None
) -> Quantized:
    """Round rotated values [..., G, D] per token; ``other`` is per channel."""
    done = _quantize_columns(v.float().transpose(-1, -2), bits, iters, quantile)
    return done._replace(codes=done.codes.transpose(-1, -2))


def dequantize_k(q: Quantized) -> torch.Tensor:
    """Rotated keys, fp32: scale and zero per channel, ``other`` per token."""
    values = q.codes.float() * q.scale.float().unsqueeze(-2) + q.zero.float().unsqueeze(-2)
    return values * q.other.float().unsqueeze(-1)


def dequantize_v(q: Quantized) -> torch.Tensor:
    """Rotated values, fp32: scale and zero per token, ``other`` per channel."""
    values = q.codes.float() * q.scale.float().unsqueeze(-1) + q.zero.float().unsqueeze(-1)
    return values * q.other.float().unsqueeze(-2)


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack codes [..., D] into bytes [..., D * bits / 8]; see ``config`` for the order."""
    per_byte = 8 // bits
    parts = codes.reshape(*codes.shape[:-1], per_byte, codes.shape[-1] // per_byte)
    packed = torch.zeros_like(parts[..., 0, :])
    for part in range(per_byte):
        packed |= parts[..., part, :] << (part * bits)
    return packed


def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The inverse of ``pack``."""
    mask = 2**bits - 1
    parts = [(packed >> (part * bits)) & mask for part in range(8 // bits)]
    return torch.cat(parts, dim=-1)


def _as_bytes(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.uint8)


def encode_tile(
    k: torch.Tensor,
    v: torch.Tensor,
    config: KVarNConfig,
    iters: int = 8,
    quantiles: tuple[float, float] | None = None,
) -> torch.Tensor:
    """Quantize rotated K and V [..., G, D] into tiles [..., tile_bytes] of uint8."""
    k_quantile, v_quantile = quantiles or (None, None)
    qk = quantize_k(k, config.k_bits, iters, k_quantile)
    qv = quantize_v(v, config.v_bits, iters, v_quantile)
    parts = (
        pack(qk.codes, config.k_bits).flatten(-2),
        _as_bytes(qk.scale),
        _as_bytes(qk.zero),
        _as_bytes(qk.other),
        pack(qv.codes, config.v_bits).flatten(-2),
        _as_bytes(qv.scale),
        _as_bytes(qv.zero),
        _as_bytes(qv.other),
    )
    return torch.cat(parts, dim=-1)


def split_tile(tile: torch.Tensor, config: KVarNConfig) -> tuple[Quantized, Quantized]:
    """Read tiles [..., tile_bytes] back into K's and V's codes and parameters."""
    at, group, dim = config.offsets, config.group, config.head_dim

    def half(start: int, count: int) -> torch.Tensor:
        return tile[..., start : start + 2 * count].contiguous().view(torch.float16)

    def codes(start: int, end: int, bits: int) -> torch.Tensor:
        return unpack(tile[..., start:end].unflatten(-1, (group, dim * bits // 8)), bits)

    qk = Quantized(
        codes(at.k_codes, at.k_scale, config.k_bits),
        half(at.k_scale, dim),
        half(at.k_zero, dim),
        half(at.k_other, group),
    )
    qv = Quantized(
        codes(at.v_codes, at.v_scale, config.v_bits),
        half(at.v_scale, group),
        half(at.v_zero, group),
        half(at.v_other, dim),
    )
    return qk, qv


def decode_tile(tile: torch.Tensor, config: KVarNConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated K and V [..., G, D] in fp32 from tiles [..., tile_bytes]."""
    qk, qv = split_tile(tile, config)
    return dequantize_k(qk), dequantize_v(qv)
