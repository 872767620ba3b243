# SPDX-License-Identifier: Apache-2.0
"""Triton kernels over KVarN tiles: flush, store, decode, combine, dequantize.

All of them work on rotated K and V.  ``tiles`` is the layer's cache folded to
[blocks, heads, bytes]; ``pool`` K and V are fp16 [slots, heads, 128, D].  Where a
tile is read from follows ``plan.StepPlan``: a leading sink tile from its pool
slot, a flushed tile from its page, a tail tile from the pool slot of its row.

A row of codes holds channels by stride (see ``config``), so K is handled as two
halves of channels and V as four quarters; queries, accumulators and outputs
are split the same way and nothing is shuffled.

Decoding multiplies codes as they are, which fp16 holds exactly.  Everything else
is moved to where there is less of it: K's scale and zero per channel into the
query, its factor per token onto the scores; V's scale and zero per token into
the weights, its factor per channel onto the tile's share of the output.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .config import KVarNConfig
from .plan import StepPlan


@triton.jit
def _log_std(x, axis: tl.constexpr, count: tl.constexpr):
    """Log of the standard deviation along an axis; 0 where there is none."""
    mean = tl.sum(x, axis=axis) / count
    centered = x - tl.expand_dims(mean, axis)
    std = tl.sqrt(tl.sum(centered * centered, axis=axis) / count)
    return tl.log(tl.where(std > 1e-12, std, 1.0))


@triton.jit
def _balance(x, iters, G: tl.constexpr, D: tl.constexpr, ROWS_FIRST: tl.constexpr):
    """Row and column log factors of the most balanced state; see ``reference.normalize``.

    The reference transposes V, so its first pass there is over what are columns here.
    """
    log_row = tl.zeros((G,), tl.float32)
    log_col = tl.zeros((D,), tl.float32)
    best_row = log_row
    best_col = log_col
    best = float("inf")
    for _ in range(iters + 1):
        scaled = x.to(tl.float32) * tl.exp(-log_row)[:, None] * tl.exp(-log_col)[None, :]
        row_std = _log_std(scaled, 1, D)
        col_std = _log_std(scaled, 0, G)
        spread = (
            tl.max(row_std, axis=0)
            - tl.min(row_std, axis=0)
            + tl.max(col_std, axis=0)
            - tl.min(col_std, axis=0)
        )
        better = spread < best
        best = tl.where(better, spread, best)
        best_row = tl.where(better, log_row, best_row)
        best_col = tl.where(better, log_col, best_col)
        if ROWS_FIRST:
            log_row += row_std
            log_col += _log_std(scaled * tl.exp(-row_std)[:, None], 0, G)
        else:
            log_col += col_std
            log_row += _log_std(scaled * tl.exp(-col_std)[None, :], 1, D)
    return best_row, best_col


@triton.jit
def _clamp_half(x):
    return tl.minimum(tl.maximum(x, -65504.0), 65504.0)


@triton.jit
def _clamp_scale(x):
    """Between the smallest normal and the largest fp16."""
    return tl.minimum(tl.maximum(x, 0.00006103515625), 65504.0)


@triton.jit
def _codes(x, scale, zero, LEVELS: tl.constexpr):
    steps = tl.floor((x - zero) / scale + 0.5)
    return tl.minimum(tl.maximum(steps, 0.0), LEVELS * 1.0).to(tl.int32)


@triton.jit
def _load_tile(
    new_ptr,
    pool_ptr,
    slot,
    head,
    tile_start,
    computed,
    query_start,
    new_stride_t,
    new_stride_h,
    first_channel,
    HEADS: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """WIDTH channels of a tile, fp16: computed tokens from the pool, others from the step."""
    token = tl.arange(0, G)
    channel = first_channel + tl.arange(0, WIDTH)
    pool_at = ((slot * HEADS + head) * G + token).to(tl.int64) * D
    pool_at = pool_at[:, None] + channel[None, :]
    position = tile_start + token
    row = query_start + position - computed
    step_at = row.to(tl.int64)[:, None] * new_stride_t + head * new_stride_h + channel[None, :]
    # Most tiles are wholly of one kind.
    if tile_start >= computed:
        x = tl.load(new_ptr + step_at)
    elif tile_start + G <= computed:
        x = tl.load(pool_ptr + pool_at)
    else:
        old = (position < computed)[:, None]
        x = tl.load(pool_ptr + pool_at, mask=old, other=0.0)
        x += tl.load(new_ptr + step_at, mask=position[:, None] >= computed, other=0.0)
    return x


@triton.jit
def _flush_kernel(
    tiles_ptr,
    k_ptr,
    v_ptr,
    k_pool_ptr,
    v_pool_ptr,
    rows_ptr,
    computed_ptr,
    first_ptr,
    flushed_ptr,
    query_start_ptr,
    block_table_ptr,
    block_table_stride,
    tile_stride_b,
    tile_stride_h,
    new_stride_t,
    new_stride_h,
    iters,
    HEADS: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    K_BITS: tl.constexpr,
    V_BITS: tl.constexpr,
    K_SCALE: tl.constexpr,
    K_ZERO: tl.constexpr,
    K_OTHER: tl.constexpr,
    V_CODES: tl.constexpr,
    V_SCALE: tl.constexpr,
    V_ZERO: tl.constexpr,
    V_OTHER: tl.constexpr,
):
    """Quantize one complete tile of K (program axis 2 even) or V (odd) into its page."""
    req = tl.program_id(0)
    tile = tl.load(first_ptr + req) + tl.program_id(1)
    if tile >= tl.load(flushed_ptr + req):
        return
    head = tl.program_id(2) // 2
    is_v = tl.program_id(2) % 2
    computed = tl.load(computed_ptr + req)
    slot = tl.load(rows_ptr + req) * 2 + tile % 2
    query_start = tl.load(query_start_ptr + req)
    block = tl.load(block_table_ptr + req * block_table_stride + tile).to(tl.int64)
    page = tiles_ptr + block * tile_stride_b + head * tile_stride_h
    token = tl.arange(0, G)
    channel = tl.arange(0, D)
    half = tl.pointer_type(tl.float16)
    # The parameters first. Codes are then chosen from the stored, rounded ones, part
    # by part of the channels, which packs them without moving them between threads.
    if is_v == 0:
        x = _load_tile(
            k_ptr, k_pool_ptr, slot, head, tile * G, computed, query_start,
            new_stride_t, new_stride_h, 0, HEADS, G, D, D,
        )  # fmt: skip
        log_row, log_col = _balance(x, iters, G, D, True)
        mean = tl.sum(log_row, axis=0) / G
        other = tl.exp(log_row - mean).to(tl.float16)
        column = tl.exp(log_col + mean)
        balanced = x.to(tl.float32) / other.to(tl.float32)[:, None] / column[None, :]
        low = tl.min(balanced, axis=0)
        high = tl.max(balanced, axis=0)
        LEVELS: tl.constexpr = 2**K_BITS - 1
        zero = _clamp_half(low * column).to(tl.float16)
        scale = _clamp_scale((high - low) / LEVELS * column).to(tl.float16)
        tl.store((page + K_SCALE).to(half) + channel, scale)
        tl.store((page + K_ZERO).to(half) + channel, zero)
        tl.store((page + K_OTHER).to(half) + token, other)
        tl.debug_barrier()
        BYTES: tl.constexpr = D * K_BITS // 8
        byte = tl.arange(0, BYTES)
        packed = tl.zeros((G, BYTES), tl.int32)
        for part in range(0, 8 // K_BITS):
            piece = _load_tile(
                k_ptr, k_pool_ptr, slot, head, tile * G, computed, query_start,
                new_stride_t, new_stride_h, part * BYTES, HEADS, G, D, BYTES,
            )  # fmt: skip
            s = tl.load((page + K_SCALE).to(half) + part * BYTES + byte).to(tl.float32)
            z = tl.load((page + K_ZERO).to(half) + part * BYTES + byte).to(tl.float32)
            o = tl.load((page + K_OTHER).to(half) + token).to(tl.float32)
            codes = _codes(piece.to(tl.float32) / o[:, None], s[None, :], z[None, :], LEVELS)
            packed = packed | (codes << (part * K_BITS))
        tl.store(page + token[:, None] * BYTES + byte[None, :], packed.to(tl.uint8))
    else:
        y = _load_tile(
            v_ptr, v_pool_ptr, slot, head, tile * G, computed, query_start,
            new_stride_t, new_stride_h, 0, HEADS, G, D, D,
        )  # fmt: skip
        log_token, log_chan = _balance(y, iters, G, D, False)
        vmean = tl.sum(log_chan, axis=0) / D
        vother = tl.exp(log_chan - vmean).to(tl.float16)
        across = tl.exp(log_token + vmean)
        vbalanced = y.to(tl.float32) / vother.to(tl.float32)[None, :] / across[:, None]
        vlow = tl.min(vbalanced, axis=1)
        vhigh = tl.max(vbalanced, axis=1)
        VLEVELS: tl.constexpr = 2**V_BITS - 1
        vzero = _clamp_half(vlow * across).to(tl.float16)
        vscale = _clamp_scale((vhigh - vlow) / VLEVELS * across).to(tl.float16)
        tl.store((page + V_SCALE).to(half) + token, vscale)
        tl.store((page + V_ZERO).to(half) + token, vzero)
        tl.store((page + V_OTHER).to(half) + channel, vother)
        tl.debug_barrier()
        VBYTES: tl.constexpr = D * V_BITS // 8
        vbyte = tl.arange(0, VBYTES)
        vpacked = tl.zeros((G, VBYTES), tl.int32)
        for part in range(0, 8 // V_BITS):
            vpiece = _load_tile(
                v_ptr, v_pool_ptr, slot, head, tile * G, computed, query_start,
                new_stride_t, new_stride_h, part * VBYTES, HEADS, G, D, VBYTES,
            )  # fmt: skip
            vs = tl.load((page + V_SCALE).to(half) + token).to(tl.float32)
            vz = tl.load((page + V_ZERO).to(half) + token).to(tl.float32)
            vo = tl.load((page + V_OTHER).to(half) + part * VBYTES + vbyte).to(tl.float32)
            vcodes = _codes(vpiece.to(tl.float32) / vo[None, :], vs[:, None], vz[:, None], VLEVELS)
            vpacked = vpacked | (vcodes << (part * V_BITS))
        tl.store(page + V_CODES + token[:, None] * VBYTES + vbyte[None, :], vpacked.to(tl.uint8))


@triton.jit
def _store_kernel(
    k_ptr,
    v_ptr,
    k_pool_ptr,
    v_pool_ptr,
    rows_ptr,
    computed_ptr,
    seq_lens_ptr,
    flushed_ptr,
    sink_write_ptr,
    sink_width,
    query_start_ptr,
    new_stride_t,
    new_stride_h,
    SINKS: tl.constexpr,
    HEADS: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Copy a step's tokens of one sink or tail tile into its pool slot."""
    req = tl.program_id(0)
    place = tl.program_id(1)
    head = tl.program_id(2)
    computed = tl.load(computed_ptr + req)
    seq_len = tl.load(seq_lens_ptr + req)
    if place < SINKS:
        tile = place
        slot = tl.load(sink_write_ptr + req * sink_width + place)
    else:
        tile = tl.load(flushed_ptr + req) + place - SINKS
        slot = tl.load(rows_ptr + req) * 2 + tile % 2
    start = tl.maximum(computed, tile * G)
    end = tl.minimum(seq_len, tile * G + G)
    if slot < 0:
        end = start
    query_start = tl.load(query_start_ptr + req)
    channel = tl.arange(0, D)
    base = (slot.to(tl.int64) * HEADS + head) * G
    for first in range(start, end, CHUNK):
        position = first + tl.arange(0, CHUNK)
        live = (position < end)[:, None]
        source = (query_start + position - computed).to(tl.int64)
        source = source[:, None] * new_stride_t + head * new_stride_h + channel[None, :]
        target = (base + position - tile * G)[:, None] * D + channel[None, :]
        tl.store(k_pool_ptr + target, tl.load(k_ptr + source, mask=live), mask=live)
        tl.store(v_pool_ptr + target, tl.load(v_ptr + source, mask=live), mask=live)


@triton.jit
def _half(codes, centre: tl.constexpr):
    """Small codes less ``centre``, a whole number, as fp16, exactly.

    1024 + code has the code as its lowest bits; a conversion would be slower.
    """
    return (codes.to(tl.int16) | 0x6400).to(tl.float16, bitcast=True) - (1024.0 + centre)


@triton.jit
def _page_k(page, token, D: tl.constexpr, PART: tl.constexpr, K_SCALE: tl.constexpr,
            K_ZERO: tl.constexpr, BYTES):  # fmt: skip
    """One half of the channels of K [tokens, D / 2], fp16, without the factor per token."""
    HALF: tl.constexpr = D // 2
    channel = tl.arange(0, HALF)
    half = tl.pointer_type(tl.float16)
    scale = tl.load((page + K_SCALE).to(half) + PART * HALF + channel)
    zero = tl.load((page + K_ZERO).to(half) + PART * HALF + channel)
    codes = (BYTES >> (4 * PART)) & 15
    return _half(codes, 0) * scale[None, :] + zero[None, :]


@triton.jit
def _attend(q0, q1, k0, k1, bias, k_other, k_position, q_position, live_row, seq_len, scale,
            highest, total, WINDOW: tl.constexpr):  # fmt: skip
    """Scores and softmax weights of some keys, with the running maximum and sum."""
    score = tl.dot(q0, tl.trans(k0)) + tl.dot(q1, tl.trans(k1)) + bias[:, None]
    score = score * (k_other.to(tl.float32) * scale)[None, :]
    seen = live_row[:, None] & (k_position[None, :] <= q_position[:, None])
    seen = seen & (k_position < seq_len)[None, :]
    if WINDOW > 0:
        seen = seen & (k_position[None, :] > q_position[:, None] - WINDOW)
    score = tl.where(seen, score, float("-inf"))
    peak = tl.maximum(highest, tl.max(score, axis=1))
    # A row that has seen nothing keeps -inf; subtract 0 instead of it.
    anchor = tl.where(peak == float("-inf"), 0.0, peak)
    weight = tl.exp2(score - anchor[:, None])
    fade = tl.exp2(highest - anchor)
    return weight, fade, peak, total * fade + tl.sum(weight, axis=1)


@triton.jit
def _decode_kernel(
    q_ptr,
    out_ptr,
    lse_ptr,
    tiles_ptr,
    k_pool_ptr,
    v_pool_ptr,
    rows_ptr,
    computed_ptr,
    seq_lens_ptr,
    flushed_ptr,
    sink_lead_ptr,
    sink_read_ptr,
    sink_width,
    query_start_ptr,
    block_table_ptr,
    block_table_stride,
    tile_stride_b,
    tile_stride_h,
    q_stride_t,
    q_stride_h,
    scale,
    num_splits,
    max_query,
    SINKS: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    QUERIES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    K_SCALE: tl.constexpr,
    K_ZERO: tl.constexpr,
    K_OTHER: tl.constexpr,
    V_CODES: tl.constexpr,
    V_SCALE: tl.constexpr,
    V_ZERO: tl.constexpr,
    V_OTHER: tl.constexpr,
):
    """One request, KV head, block of query rows and share of the tiles.

    Row ``i`` of a block is query token ``i // GROUP`` of its ``QUERIES``, head
    ``i % GROUP`` of the KV head's.  Writes the normalized output and log2-sum-exp
    of its share: out [splits, tokens, query heads, D], lse [splits, tokens, query heads].
    """
    req = tl.program_id(0)
    head = tl.program_id(1) % HEADS
    first_query = (tl.program_id(1) // HEADS) * QUERIES
    split = tl.program_id(2)
    HALF: tl.constexpr = D // 2
    QUARTER: tl.constexpr = D // 4

    seq_len = tl.load(seq_lens_ptr + req)
    computed = tl.load(computed_ptr + req)
    if first_query >= seq_len - computed:
        return
    query_start = tl.load(query_start_ptr + req)
    flushed = tl.load(flushed_ptr + req)
    lead = tl.load(sink_lead_ptr + req)
    num_tiles = (seq_len + G - 1) // G
    earliest = 0
    if WINDOW > 0:
        earliest = tl.maximum(computed + first_query + 1 - WINDOW, 0) // G
    share = (num_tiles - earliest + num_splits - 1) // num_splits
    low = earliest + split * share
    high = tl.minimum(low + share, num_tiles)

    row = tl.arange(0, BLOCK_M)
    query = first_query + row // GROUP
    live_row = (row < QUERIES * GROUP) & (query < seq_len - computed)
    q_position = computed + query
    q_head = head * GROUP + row % GROUP
    q_row = (query_start + query).to(tl.int64) * q_stride_t + q_head * q_stride_h
    k_channel = tl.arange(0, HALF)
    v_channel = tl.arange(0, QUARTER)
    q_at = q_ptr + q_row[:, None] + k_channel[None, :]

    highest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    o0 = tl.zeros((BLOCK_M, QUARTER), tl.float32)
    o1 = tl.zeros((BLOCK_M, QUARTER), tl.float32)
    o2 = tl.zeros((BLOCK_M, QUARTER), tl.float32)
    o3 = tl.zeros((BLOCK_M, QUARTER), tl.float32)
    half = tl.pointer_type(tl.float16)
    ones = tl.full((BLOCK_N,), 1.0, tl.float32)
    none = tl.zeros((BLOCK_M,), tl.float32)

    for tile in range(tl.maximum(low, lead), tl.minimum(high, flushed)):
        block = tl.load(block_table_ptr + req * block_table_stride + tile).to(tl.int64)
        page = tiles_ptr + block * tile_stride_b + head * tile_stride_h
        # Scale and zero of K's channels go into the query, once per tile: the score is
        # (q * scale) . (codes - 8) + q . (zero + 8 * scale). Centred codes keep the two
        # terms small. The query is read again rather than held.
        s_at = (page + K_SCALE).to(half) + k_channel
        z_at = (page + K_ZERO).to(half) + k_channel
        q0 = tl.load(q_at, mask=live_row[:, None], other=0.0).to(tl.float32)
        q1 = tl.load(q_at + HALF, mask=live_row[:, None], other=0.0).to(tl.float32)
        s0 = tl.load(s_at).to(tl.float32)
        s1 = tl.load(s_at + HALF).to(tl.float32)
        bias = tl.sum(q0 * (tl.load(z_at).to(tl.float32) + 8.0 * s0)[None, :], axis=1)
        bias += tl.sum(q1 * (tl.load(z_at + HALF).to(tl.float32) + 8.0 * s1)[None, :], axis=1)
        q0 = (q0 * s0[None, :]).to(tl.float16)
        q1 = (q1 * s1[None, :]).to(tl.float16)
        f_at = (page + V_OTHER).to(half) + v_channel
        f0 = tl.load(f_at).to(tl.float32)
        f1 = tl.load(f_at + QUARTER).to(tl.float32)
        f2 = tl.load(f_at + 2 * QUARTER).to(tl.float32)
        f3 = tl.load(f_at + 3 * QUARTER).to(tl.float32)
        for part in range(0, G // BLOCK_N):
            token = part * BLOCK_N + tl.arange(0, BLOCK_N)
            k_bytes = tl.load(page + token[:, None] * HALF + k_channel[None, :])
            k0 = _half(k_bytes & 15, 8)
            k1 = _half(k_bytes >> 4, 8)
            k_other = tl.load((page + K_OTHER).to(half) + token)
            weight, fade, highest, total = _attend(
                q0, q1, k0, k1, bias, k_other, tile * G + token, q_position, live_row, seq_len,
                scale, highest, total, WINDOW,
            )  # fmt: skip
            v_bytes = tl.load(page + V_CODES + token[:, None] * QUARTER + v_channel[None, :])
            # V's scale and zero belong to tokens: they go into the weights, codes less 1.
            v_scale = tl.load((page + V_SCALE).to(half) + token).to(tl.float32)
            v_zero = tl.load((page + V_ZERO).to(half) + token).to(tl.float32)
            p = (weight * v_scale[None, :]).to(tl.float16)
            shift = tl.sum(weight * (v_zero + v_scale)[None, :], axis=1)[:, None]
            o0 = o0 * fade[:, None] + (tl.dot(p, _half(v_bytes & 3, 1)) + shift) * f0[None, :]
            v1 = _half((v_bytes >> 2) & 3, 1)
            o1 = o1 * fade[:, None] + (tl.dot(p, v1) + shift) * f1[None, :]
            v2 = _half((v_bytes >> 4) & 3, 1)
            o2 = o2 * fade[:, None] + (tl.dot(p, v2) + shift) * f2[None, :]
            o3 = o3 * fade[:, None] + (tl.dot(p, _half(v_bytes >> 6, 1)) + shift) * f3[None, :]

    for place in range(SINKS + 2):
        tile = place
        slot = -1
        if place < SINKS:
            if place < lead:
                slot = tl.load(sink_read_ptr + req * sink_width + place)
        else:
            tile = flushed + place - SINKS
            slot = tl.load(rows_ptr + req) * 2 + tile % 2
        if slot >= 0 and tile >= low and tile < high:
            base = (slot.to(tl.int64) * HEADS + head) * G
            raw0 = tl.load(q_at, mask=live_row[:, None], other=0.0)
            raw1 = tl.load(q_at + HALF, mask=live_row[:, None], other=0.0)
            for part in range(0, G // BLOCK_N):
                token = part * BLOCK_N + tl.arange(0, BLOCK_N)
                stored = (tile * G + token < seq_len)[:, None]
                k_at = k_pool_ptr + (base + token)[:, None] * D + k_channel[None, :]
                k0 = tl.load(k_at, mask=stored, other=0.0)
                k1 = tl.load(k_at + HALF, mask=stored, other=0.0)
                weight, fade, highest, total = _attend(
                    raw0, raw1, k0, k1, none, ones, tile * G + token, q_position, live_row, seq_len,
                    scale, highest, total, WINDOW,
                )  # fmt: skip
                p = weight.to(tl.float16)
                v_at = v_pool_ptr + (base + token)[:, None] * D + v_channel[None, :]
                v0 = tl.load(v_at, mask=stored, other=0.0)
                o0 = o0 * fade[:, None] + tl.dot(p, v0)
                v1 = tl.load(v_at + QUARTER, mask=stored, other=0.0)
                o1 = o1 * fade[:, None] + tl.dot(p, v1)
                v2 = tl.load(v_at + 2 * QUARTER, mask=stored, other=0.0)
                o2 = o2 * fade[:, None] + tl.dot(p, v2)
                v3 = tl.load(v_at + 3 * QUARTER, mask=stored, other=0.0)
                o3 = o3 * fade[:, None] + tl.dot(p, v3)

    norm = 1.0 / tl.where(total > 0.0, total, 1.0)
    lse = tl.where(total > 0.0, highest + tl.log2(tl.where(total > 0.0, total, 1.0)), float("-inf"))
    out_row = (split.to(tl.int64) * max_query + query_start + query) * (HEADS * GROUP) + q_head
    tl.store(lse_ptr + out_row, lse, mask=live_row)
    out_at = out_ptr + out_row[:, None] * D + v_channel[None, :]
    tl.store(out_at, o0 * norm[:, None], mask=live_row[:, None])
    tl.store(out_at + QUARTER, o1 * norm[:, None], mask=live_row[:, None])
    tl.store(out_at + 2 * QUARTER, o2 * norm[:, None], mask=live_row[:, None])
    tl.store(out_at + 3 * QUARTER, o3 * norm[:, None], mask=live_row[:, None])


@triton.jit
def _combine_kernel(
    part_ptr,
    lse_ptr,
    out_ptr,
    num_splits,
    rows,
    D: tl.constexpr,
):
    """Merge the splits of one (token, query head) by their log2-sum-exp."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, D)
    highest = float("-inf")
    for split in range(num_splits):
        highest = tl.maximum(highest, tl.load(lse_ptr + split * rows + row))
    anchor = tl.where(highest == float("-inf"), 0.0, highest)
    total = 0.0
    out = tl.zeros((D,), tl.float32)
    for split in range(num_splits):
        lse = tl.load(lse_ptr + split * rows + row)
        weight = tl.exp2(lse - anchor)
        part = tl.load(part_ptr + (split * rows + row) * D + channel)
        # A split without tiles wrote nothing that counts, not even zeros.
        out += tl.where(weight > 0.0, part, 0.0) * weight
        total += weight
    tl.store(out_ptr + row * D + channel, out / tl.where(total > 0.0, total, 1.0))


@triton.jit
def _dequantize_kernel(
    k_out_ptr,
    v_out_ptr,
    tiles_ptr,
    k_pool_ptr,
    v_pool_ptr,
    rows_ptr,
    flushed_ptr,
    sink_lead_ptr,
    sink_read_ptr,
    sink_width,
    block_table_ptr,
    block_table_stride,
    tile_stride_b,
    tile_stride_h,
    req,
    first_tile,
    HEADS: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    K_SCALE: tl.constexpr,
    K_ZERO: tl.constexpr,
    K_OTHER: tl.constexpr,
    V_CODES: tl.constexpr,
    V_SCALE: tl.constexpr,
    V_ZERO: tl.constexpr,
    V_OTHER: tl.constexpr,
):
    """Rotated K and V of one tile and head, fp16, into [tokens, heads, D]."""
    place = tl.program_id(0)
    head = tl.program_id(1)
    tile = first_tile + place
    HALF: tl.constexpr = D // 2
    QUARTER: tl.constexpr = D // 4
    token = tl.arange(0, G)
    flushed = tl.load(flushed_ptr + req)
    out_row = ((place * G + token).to(tl.int64) * HEADS + head) * D
    slot = -1
    if tile >= flushed:
        slot = tl.load(rows_ptr + req) * 2 + tile % 2
    elif tile < tl.load(sink_lead_ptr + req):
        slot = tl.load(sink_read_ptr + req * sink_width + tile)
    if slot >= 0:
        channel = tl.arange(0, D)
        source = ((slot.to(tl.int64) * HEADS + head) * G + token)[:, None] * D + channel[None, :]
        target = out_row[:, None] + channel[None, :]
        tl.store(k_out_ptr + target, tl.load(k_pool_ptr + source))
        tl.store(v_out_ptr + target, tl.load(v_pool_ptr + source))
    else:
        half = tl.pointer_type(tl.float16)
        block = tl.load(block_table_ptr + req * block_table_stride + tile).to(tl.int64)
        page = tiles_ptr + block * tile_stride_b + head * tile_stride_h
        k_channel = tl.arange(0, HALF)
        k_bytes = tl.load(page + token[:, None] * HALF + k_channel[None, :])
        k_other = tl.load((page + K_OTHER).to(half) + token)[:, None]
        k_target = k_out_ptr + out_row[:, None] + k_channel[None, :]
        tl.store(k_target, _page_k(page, token, D, 0, K_SCALE, K_ZERO, k_bytes) * k_other)
        tl.store(k_target + HALF, _page_k(page, token, D, 1, K_SCALE, K_ZERO, k_bytes) * k_other)
        v_channel = tl.arange(0, QUARTER)
        v_bytes = tl.load(page + V_CODES + token[:, None] * QUARTER + v_channel[None, :])
        v_scale = tl.load((page + V_SCALE).to(half) + token)[:, None]
        v_zero = tl.load((page + V_ZERO).to(half) + token)[:, None]
        for part in tl.static_range(0, 4):
            factor = tl.load((page + V_OTHER).to(half) + part * QUARTER + v_channel)[None, :]
            v = _half((v_bytes >> (2 * part)) & 3, 0) * v_scale + v_zero
            v_target = v_out_ptr + out_row[:, None] + part * QUARTER + v_channel[None, :]
            tl.store(v_target, v * factor)


class Launch(NamedTuple):
    """How the decode kernel is launched; ``bench/kvarn_gpu.py`` compares the choices."""

    block_n: int
    """Tokens taken at once; divides a tile."""
    num_warps: int


def flush_warps(dim: int) -> int:
    """Warps of the flush kernel: each thread holds 64 values of a tile."""
    return 16 if dim >= 256 else 8


ROOMY = 160 * 1024
"""Bytes of shared memory of a block from which a whole tile is taken at once."""


def decode_launch(dim: int, shared: int = 0) -> Launch:
    """The launch for a head size on a device whose blocks have ``shared`` bytes.

    Cards of capability 8.6 and 8.9 have 99 KiB, and take a quarter of a tile at a time.
    """
    return Launch(128 if shared >= ROOMY else 32, 8 if dim >= 256 else 4)


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a block may have; 0 where there is no GPU."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


def _parts(config: KVarNConfig) -> dict[str, int]:
    """Offsets in a tile as the kernels' constants."""
    at = config.offsets
    if (config.k_bits, config.v_bits) != (4, 2):
        raise ValueError("the kernels are written for K in 4 bits and V in 2")
    return {
        "K_SCALE": at.k_scale,
        "K_ZERO": at.k_zero,
        "K_OTHER": at.k_other,
        "V_CODES": at.v_codes,
        "V_SCALE": at.v_scale,
        "V_ZERO": at.v_zero,
        "V_OTHER": at.v_other,
    }


def flush(
    tiles: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: StepPlan,
    query_start_loc: torch.Tensor,
    block_table: torch.Tensor,
    config: KVarNConfig,
    *,
    iters: int,
    most_tiles: int,
) -> None:
    """Quantize the tiles that become final in this step, ``most_tiles`` per request at most.

    k, v: rotated fp16 [tokens, heads, D] of the step.  Call before ``store``.
    """
    heads = k.shape[1]
    assert k.stride() == v.stride() and k.stride(-1) == 1
    _flush_kernel[(plan.seq_lens.shape[0], most_tiles, heads * 2)](
        tiles,
        k,
        v,
        k_pool,
        v_pool,
        plan.rows,
        plan.computed,
        plan.first_flush,
        plan.flushed,
        query_start_loc,
        block_table,
        block_table.stride(0),
        tiles.stride(0),
        tiles.stride(1),
        k.stride(0),
        k.stride(1),
        iters,
        HEADS=heads,
        G=config.group,
        D=config.head_dim,
        K_BITS=config.k_bits,
        V_BITS=config.v_bits,
        num_warps=flush_warps(config.head_dim),
        **_parts(config),
    )


def store(
    k: torch.Tensor,
    v: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: StepPlan,
    query_start_loc: torch.Tensor,
    config: KVarNConfig,
    *,
    sinks: int,
) -> None:
    """Copy a step's sink and tail tokens into the pool.  Call after ``flush``."""
    heads = k.shape[1]
    assert k.stride() == v.stride() and k.stride(-1) == 1
    _store_kernel[(plan.seq_lens.shape[0], sinks + 2, heads)](
        k,
        v,
        k_pool,
        v_pool,
        plan.rows,
        plan.computed,
        plan.seq_lens,
        plan.flushed,
        plan.sink_write,
        plan.sink_write.stride(0),
        query_start_loc,
        k.stride(0),
        k.stride(1),
        SINKS=sinks,
        HEADS=heads,
        G=config.group,
        D=config.head_dim,
        CHUNK=16,
    )


def decode(
    q: torch.Tensor,
    tiles: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: StepPlan,
    query_start_loc: torch.Tensor,
    block_table: torch.Tensor,
    config: KVarNConfig,
    *,
    scale: float,
    max_query: int,
    splits: int,
    sinks: int,
    shared: bool = False,
    window: int = 0,
    launch: Launch | None = None,
) -> torch.Tensor:
    """Attention of rotated fp16 queries [tokens, query heads, D]; rotated fp32 output.

    Covers requests of up to ``max_query`` query tokens.  ``shared`` has one program
    serve several query tokens, which dequantizes each tile once for all of them;
    otherwise each query token reads the tiles by itself.
    """
    tokens, q_heads, dim = q.shape
    heads = tiles.shape[1]
    group = q_heads // heads
    queries, block_m = query_block(group, max_query, shared)
    launch = launch or decode_launch(dim, shared_memory(q.device))
    part = torch.empty(splits, tokens, q_heads, dim, dtype=torch.float32, device=q.device)
    # Splits without tiles, and padding, leave their entries as they are.
    lse = torch.full((splits, tokens, q_heads), float("-inf"), device=q.device)
    blocks = -(-max_query // queries)
    _decode_kernel[(plan.seq_lens.shape[0], heads * blocks, splits)](
        q,
        part,
        lse,
        tiles,
        k_pool,
        v_pool,
        plan.rows,
        plan.computed,
        plan.seq_lens,
        plan.flushed,
        plan.sink_lead,
        plan.sink_read,
        plan.sink_read.stride(0),
        query_start_loc,
        block_table,
        block_table.stride(0),
        tiles.stride(0),
        tiles.stride(1),
        q.stride(0),
        q.stride(1),
        scale * 1.4426950408889634,
        splits,
        tokens,
        SINKS=sinks,
        HEADS=heads,
        GROUP=group,
        G=config.group,
        D=dim,
        QUERIES=queries,
        BLOCK_M=block_m,
        BLOCK_N=launch.block_n,
        WINDOW=window,
        num_warps=launch.num_warps,
        **_parts(config),
    )
    out = torch.empty(tokens, q_heads, dim, dtype=torch.float32, device=q.device)
    _combine_kernel[(tokens * q_heads,)](part, lse, out, splits, tokens * q_heads, D=dim)
    return out


def query_block(group: int, max_query: int, shared: bool) -> tuple[int, int]:
    """Query tokens per program, and the rows of its block (16 at least, for the matrix unit)."""
    queries = min(max_query, max(32 // group, 1)) if shared else 1
    return queries, max(16, 1 << (queries * group - 1).bit_length())


def dequantize(
    tiles: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    plan: StepPlan,
    block_table: torch.Tensor,
    config: KVarNConfig,
    *,
    req: int,
    first_tile: int,
    k_out: torch.Tensor,
    v_out: torch.Tensor,
) -> None:
    """Rotated fp16 K and V of request ``req`` into [tokens, heads, D], from ``first_tile`` on.

    Fills the whole of ``k_out`` and ``v_out``, whose length is whole tiles.
    """
    heads = tiles.shape[1]
    extra: dict[str, Any] = _parts(config)
    _dequantize_kernel[(k_out.shape[0] // config.group, heads)](
        k_out,
        v_out,
        tiles,
        k_pool,
        v_pool,
        plan.rows,
        plan.flushed,
        plan.sink_lead,
        plan.sink_read,
        plan.sink_read.stride(0),
        block_table,
        block_table.stride(0),
        tiles.stride(0),
        tiles.stride(1),
        req,
        first_tile,
        HEADS=heads,
        G=config.group,
        D=config.head_dim,
        num_warps=8,
        **extra,
    )
