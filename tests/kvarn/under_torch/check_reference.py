"""The method in torch: rotation, normalization, rounding, packing, bytes."""

import itertools
import math
from typing import Any

import pytest
import torch
from kvarnload import load

config = load("config")
reference = load("reference")

DIMS = [64, 128, 256]


def tile_config(dim: int) -> Any:
    return config.KVarNConfig.from_cache_dtype("kvarn_k4v2_g128", dim)


def keys(dim: int, seed: int, *batch: int) -> Any:
    """Keys as models have them: some channels far wider than others, some off centre."""
    made = torch.Generator().manual_seed(seed)
    wide = torch.rand(dim, generator=made).mul(4).exp()
    centre = torch.randn(dim, generator=made) * 3
    tokens = torch.rand(128, 1, generator=made).add(0.2)
    return torch.randn(*batch, 128, dim, generator=made) * wide * tokens + centre


@pytest.mark.parametrize("dim", DIMS)
def test_the_rotation_is_orthonormal_and_its_own_inverse(dim: int) -> None:
    matrix = reference.hadamard(dim, "cpu", torch.float64)
    assert torch.equal(matrix, matrix.T)
    assert torch.allclose(matrix @ matrix, torch.eye(dim, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(matrix.abs(), torch.full_like(matrix, dim**-0.5))


@pytest.mark.parametrize("dim", DIMS)
def test_scores_do_not_change_under_rotation(dim: int) -> None:
    made = torch.Generator().manual_seed(dim)
    q, k = torch.randn(2, 16, dim, generator=made)
    turned = reference.rotate(q).float() @ reference.rotate(k).float().T
    assert torch.allclose(turned, q @ k.T, atol=0.05)


def test_a_hadamard_matrix_of_another_order_is_refused() -> None:
    with pytest.raises(ValueError, match="power of two, not 96"):
        reference.hadamard(96)


def test_rotation_stays_in_the_range_of_fp16() -> None:
    assert reference.rotate(torch.full((1, 64), 60_000.0)).abs().max() == 65_504


@pytest.mark.parametrize("seed", range(4))
def test_normalization_balances_and_more_rounds_are_never_worse(seed: int) -> None:
    x = keys(64, seed)

    def spread(iters: int) -> float:
        row, col = reference.normalize(x, iters)
        y = x / row.exp()[:, None] / col.exp()[None, :]
        stds = [y.var(dim=dim, correction=0).sqrt().log() for dim in (0, 1)]
        return sum(float(std.max() - std.min()) for std in stds)

    found = [spread(iters) for iters in range(9)]
    assert found[8] < 0.1 * found[0]
    assert all(later <= earlier + 1e-4 for earlier, later in itertools.pairwise(found))


def test_a_flat_matrix_needs_no_factors() -> None:
    row, col = reference.normalize(torch.full((128, 64), 3.0), 8)
    assert not row.any()
    assert not col.any()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packing_round_trips_and_fills_every_bit(bits: int) -> None:
    made = torch.Generator().manual_seed(bits)
    codes = torch.randint(0, 2**bits, (3, 128, 64), generator=made, dtype=torch.uint8)
    packed = reference.pack(codes, bits)
    assert packed.shape == (3, 128, 64 * bits // 8)
    assert torch.equal(reference.unpack(packed, bits), codes)
    full = torch.full((1, 64), 2**bits - 1, dtype=torch.uint8)
    assert (reference.pack(full, bits) == 255).all()


def test_channels_are_packed_by_stride_lowest_bits_first() -> None:
    codes = torch.arange(8, dtype=torch.uint8)
    assert reference.pack(codes, 4).tolist() == [0x40, 0x51, 0x62, 0x73]
    assert reference.pack(codes % 4, 2).tolist() == [0b10001000 | 0b0, 0b11011101]


@pytest.mark.parametrize("dim", DIMS)
def test_a_tile_has_the_bytes_of_the_formula_and_reads_back(dim: int) -> None:
    tile = tile_config(dim)
    k, v = reference.rotate(keys(dim, 1, 2)), reference.rotate(keys(dim, 2, 2))
    stored = reference.encode_tile(k, v, tile)
    assert stored.dtype == torch.uint8
    assert stored.shape == (2, tile.tile_bytes)
    qk, qv = reference.quantize_k(k), reference.quantize_v(v)
    got_k, got_v = reference.split_tile(stored, tile)
    for want, got in ((qk, got_k), (qv, got_v)):
        assert all(torch.equal(a, b) for a, b in zip(want, got, strict=True))
    assert torch.equal(qk.scale.shape and got_k.scale, qk.scale)
    assert qk.scale.shape == (2, dim)
    assert qk.other.shape == (2, 128)
    assert qv.scale.shape == (2, 128)
    assert qv.other.shape == (2, dim)


def within_half_a_step(x: Any, q: Any, restored: Any, axis: int) -> None:
    """Every value is at most half a step away, up to the rounding of the parameters."""
    step = q.scale.float().unsqueeze(axis)
    other = q.other.float().unsqueeze(-1 if axis == -2 else -2)
    ends = 2**-10 * (q.zero.float().abs().unsqueeze(axis) + 16 * step)
    bound = other * (step / 2 + ends) + 1e-4
    assert ((restored - x.float()).abs() <= bound).all()


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("seed", range(3))
def test_each_value_of_a_tile_is_within_half_a_step(dim: int, seed: int) -> None:
    k, v = reference.rotate(keys(dim, seed, 2)), reference.rotate(keys(dim, seed + 9, 2))
    qk, qv = reference.quantize_k(k), reference.quantize_v(v)
    assert qk.codes.max() == 15
    assert qv.codes.max() == 3
    within_half_a_step(k, qk, reference.dequantize_k(qk), -2)
    within_half_a_step(v, qv, reference.dequantize_v(qv), -1)


@pytest.mark.parametrize("dim", [128, 256])
def test_the_error_of_a_tile_is_bounded(dim: int) -> None:
    # Uniform rounding of a bell over its whole range: 4 bits of 128 tokens, 2 bits of D channels.
    k, v = reference.rotate(keys(dim, 5, 4)), reference.rotate(keys(dim, 6, 4))
    k_error = reference.dequantize_k(reference.quantize_k(k)) - k.float()
    v_error = reference.dequantize_v(reference.quantize_v(v)) - v.float()
    assert k_error.norm() / k.float().norm() < 0.13
    assert v_error.norm() / v.float().norm() < 0.65


def test_normalization_pays_where_tokens_and_channels_differ() -> None:
    x = keys(128, 3) * torch.rand(128, 1).mul(5).exp()
    plain = reference.dequantize_k(reference.quantize_k(x, iters=0)) - x
    balanced = reference.dequantize_k(reference.quantize_k(x, iters=8)) - x
    weight = 1 / x.norm(dim=1, keepdim=True)
    assert (balanced * weight).norm() < 0.5 * (plain * weight).norm()


def test_a_quantile_clips_outliers_and_helps_the_rest() -> None:
    made = torch.Generator().manual_seed(0)
    x = torch.randn(128, 64, generator=made)
    x[0] *= 40
    rest = slice(1, None)
    full = reference.dequantize_k(reference.quantize_k(x, iters=0)) - x
    clipped = reference.dequantize_k(reference.quantize_k(x, iters=0, quantile=0.98)) - x
    assert clipped[rest].norm() < 0.3 * full[rest].norm()


@pytest.mark.parametrize("value", [0.0, 1.0, -7.5, 65_504.0])
def test_a_constant_tile_is_kept(value: float) -> None:
    tile = tile_config(64)
    x = torch.full((128, 64), value)
    k, v = reference.decode_tile(reference.encode_tile(x, x, tile), tile)
    assert torch.allclose(k, x, rtol=1e-3, atol=1e-4)
    assert torch.allclose(v, x, rtol=1e-3, atol=1e-4)


def test_a_tile_is_made_of_numbers() -> None:
    tile = tile_config(64)
    x = torch.zeros(128, 64)
    x[3, 5] = 65_504
    parts = reference.split_tile(reference.encode_tile(x, x, tile), tile)
    for part in parts:
        assert all(math.isfinite(float(p.float().sum())) for p in part)
