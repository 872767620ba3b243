# SPDX-License-Identifier: Apache-2.0
"""One layer's cache update and attention, on tensors alone.

The update flushes tiles that become final, then stores the sink and tail
tokens.  Attention takes one of two ways.  The *fused* way reads tiles where they
are; it serves decode and verification.  The *long* way serves prefill: context
is dequantized into a scratch of bounded size and attended part by part, the
step's own tokens are attended exactly as they came, and the parts are merged by
their log-sum-exp.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from . import reference
from .config import KVarNConfig, PoolSize
from .plan import StepPlan

DEFAULT_SCRATCH_TOKENS = 32768
MAX_SPLITS = 64
TILES_WORTH_SPLITTING = 8

Flash = Callable[..., tuple[torch.Tensor, torch.Tensor]]
"""``flash(q, k, v, q_len, k_len, *, causal, scale, window)`` of one request.

q [q, query heads, D]; k, v [k, heads, D], of which the first ``k_len`` (int32 [1], on
the device) count.  Returns the output like q and the natural log-sum-exp [query heads, q].
Causal aligns the last query with the last key.
"""


class Settings(NamedTuple):
    """The knobs that act on a layer; ``KVARN_`` and the upper-case name."""

    sinkhorn_iters: int = 8
    fast_flush: bool = True
    rtn_quantile: tuple[float, float] | None = None
    fused_decode: bool = True
    fused_verify: bool = True
    fused_verify_maxq: int = 8
    fused_verify_min_blocks: int = 64
    shared_verify: bool = False
    num_kv_splits: int | None = None
    split_k: bool | None = None
    fa_scratch_cap: int | None = None

    @property
    def torch_flush(self) -> bool:
        """True where tiles are quantized by the reference, which cannot be captured."""
        return not self.fast_flush or self.rtn_quantile is not None


class LayerPool(NamedTuple):
    """A layer's fp16 tiles outside the cache: [slots, heads, 128, D], rotated."""

    k: torch.Tensor
    v: torch.Tensor
    size: PoolSize

    @classmethod
    def empty(
        cls, size: PoolSize, heads: int, config: KVarNConfig, device: torch.device | str
    ) -> "LayerPool":
        """A zeroed pool: what a tail has not stored yet must at least be a number."""
        shape = (size.slots, heads, config.group, config.head_dim)
        k, v = (torch.zeros(shape, dtype=torch.float16, device=device) for _ in range(2))
        return cls(k, v, size)


def slot_bytes(heads: int, config: KVarNConfig) -> int:
    """Bytes of one pool slot of one layer, K and V."""
    return 2 * 2 * heads * config.group * config.head_dim


def fold_tiles(kv_cache: torch.Tensor) -> torch.Tensor:
    """Fold the runner's view [blocks, heads, tokens, bytes] to [blocks, heads, tile bytes].

    The tokens of a block and head must be one run of bytes, as the declared
    layout LBHNC has them.  ``view`` refuses any other layout; a copy would store
    tiles where nobody reads them.
    """
    blocks, heads, tokens, width = kv_cache.shape
    try:
        return kv_cache.view(blocks, heads, tokens * width)
    except RuntimeError as error:
        raise RuntimeError(
            "KVarN needs a KV cache whose heads are outside its tokens (LBHNC); found shape "
            f"{tuple(kv_cache.shape)} with strides {kv_cache.stride()}"
        ) from error


class Step(NamedTuple):
    """What a step says to every layer: the plan, the batch, and host-side bounds."""

    plan: StepPlan
    query_start_loc: torch.Tensor
    block_table: torch.Tensor
    query_lens: tuple[int, ...]
    """Query tokens of each request, on the host."""
    context_bounds: tuple[int, ...]
    """Upper bounds of each request's computed tokens, on the host."""
    prefilling: tuple[bool, ...]
    num_tokens: int
    max_seq_len: int
    num_spec: int
    capturing: bool = False

    @property
    def max_query_len(self) -> int:
        """The longest query of the batch."""
        return max(self.query_lens, default=0)


def update(
    tiles: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    pool: LayerPool,
    step: Step,
    config: KVarNConfig,
    settings: Settings,
) -> None:
    """Flush what is final, then store sink and tail.  k, v: rotated fp16 [tokens, heads, D]."""
    from . import kernels

    most = -(-(step.max_query_len + step.num_spec) // config.group)
    if settings.torch_flush:
        flush_in_torch(tiles, k, v, pool, step, config, settings)
    else:
        kernels.flush(
            tiles,
            k,
            v,
            pool.k,
            pool.v,
            step.plan,
            step.query_start_loc,
            step.block_table,
            config,
            iters=settings.sinkhorn_iters,
            most_tiles=max(most, 1),
        )
    kernels.store(
        k,
        v,
        pool.k,
        pool.v,
        step.plan,
        step.query_start_loc,
        config,
        sinks=pool.size.sink_tiles,
    )


def flush_in_torch(
    tiles: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    pool: LayerPool,
    step: Step,
    config: KVarNConfig,
    settings: Settings,
) -> list[tuple[int, int, torch.Tensor, torch.Tensor]]:
    """The flush by the reference, tile by tile.  Waits for the device.

    Returns (request, tile, K, V) of every tile flushed, K and V [heads, 128, D].
    """
    done = []
    for req, tile in flushed_tiles(step):
        source_k, source_v = (
            gather_tile(new, old, step, req, tile, config)
            for new, old in ((k, pool.k), (v, pool.v))
        )
        block = int(step.block_table[req, tile])
        tiles[block, :, : config.tile_bytes] = reference.encode_tile(
            source_k, source_v, config, settings.sinkhorn_iters, settings.rtn_quantile
        )
        done.append((req, tile, source_k, source_v))
    return done


def flushed_tiles(step: Step) -> list[tuple[int, int]]:
    """(request, tile) of each tile that this step flushes.  Waits for the device."""
    first, last = step.plan.first_flush.tolist(), step.plan.flushed.tolist()
    return [
        (req, tile)
        for req, (low, high) in enumerate(zip(first, last, strict=True))
        for tile in range(low, high)
    ]


def gather_tile(
    new: torch.Tensor, pool: torch.Tensor, step: Step, req: int, tile: int, config: KVarNConfig
) -> torch.Tensor:
    """A tile's source [heads, 128, D]: computed tokens from the pool, the others new."""
    group = config.group
    computed = int(step.plan.computed[req])
    old = min(max(computed - tile * group, 0), group)
    slot = int(step.plan.rows[req]) * 2 + tile % 2
    start = int(step.query_start_loc[req]) + tile * group + old - computed
    fresh = new[start : start + group - old].transpose(0, 1)
    return torch.cat((pool[slot, :, :old], fresh), dim=1)


def takes_long_way(step: Step, settings: Settings) -> list[bool]:
    """For each request, whether its context is dequantized rather than read in tiles.

    A captured graph always holds the fused way: it is replayed at any length.
    """
    if step.capturing:
        return [False] * len(step.query_lens)
    enough = step.max_seq_len >= settings.fused_verify_min_blocks * 128
    ways = []
    for length, prefilling in zip(step.query_lens, step.prefilling, strict=True):
        if length <= 1:
            ways.append(not settings.fused_decode)
        elif length <= settings.fused_verify_maxq:
            ways.append(not (settings.fused_verify and enough))
        else:
            ways.append(prefilling or not settings.fused_verify)
    return ways


def choose_splits(settings: Settings, *, programs: int, tiles: int, processors: int) -> int:
    """Shares that the tiles of a request are divided into.

    Args:
        programs: programs of the decode kernel without splitting.
        tiles: tiles of the longest request.
        processors: streaming multiprocessors of the device.
    """
    if settings.split_k is False:
        return 1
    if settings.num_kv_splits is not None:
        return max(1, min(settings.num_kv_splits, MAX_SPLITS))
    if settings.split_k is None and tiles < TILES_WORTH_SPLITTING:
        return 1
    wanted = -(-2 * processors // max(programs, 1))
    # A share of one tile would spend more on merging than on reading.
    most = max(min(tiles // 2, MAX_SPLITS), 1)
    return min(1 << max(wanted - 1, 0).bit_length(), most)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tiles: torch.Tensor,
    pool: LayerPool,
    step: Step,
    config: KVarNConfig,
    settings: Settings,
    *,
    scale: float,
    flash: Flash,
    processors: int,
    window: int = 0,
) -> torch.Tensor:
    """Attention of a step after its update.

    q [tokens, query heads, D], k and v [tokens, heads, D] as the model made them;
    the output is like q.  ``window`` > 0 limits how far back a query looks.
    """
    q_rotated = reference.rotate(q)
    long = takes_long_way(step, settings)
    out = torch.zeros_like(q)
    if not all(long):
        rotated = _attend_fused(
            q_rotated, tiles, pool, step, config, settings, long,
            scale=scale, processors=processors, window=window,
        )  # fmt: skip
        out = (rotated @ _matrix(rotated)).to(q.dtype)
    for req, is_long in enumerate(long):
        length = step.query_lens[req]
        if not is_long or not length:
            continue
        start = sum(step.query_lens[:req])
        rows = slice(start, start + length)
        out[rows] = _attend_long(
            q[rows], k[rows], v[rows], q_rotated[rows], tiles, pool, step, config, settings, req,
            scale=scale, flash=flash, window=window,
        )  # fmt: skip
    return out


def _matrix(like: torch.Tensor) -> torch.Tensor:
    return reference.hadamard(like.shape[-1], str(like.device), like.dtype)


def _attend_fused(
    q: torch.Tensor,
    tiles: torch.Tensor,
    pool: LayerPool,
    step: Step,
    config: KVarNConfig,
    settings: Settings,
    long: list[bool],
    *,
    scale: float,
    processors: int,
    window: int,
) -> torch.Tensor:
    from . import kernels

    plan = step.plan
    if any(long):
        # The other requests are skipped by having no tokens.
        skip = torch.tensor(long, device=q.device)
        plan = plan._replace(seq_lens=torch.where(skip, 0, plan.seq_lens))
    heads = tiles.shape[1]
    short = [n for n, is_long in zip(step.query_lens, long, strict=True) if not is_long]
    max_query = max(*short, 1)
    shared = settings.shared_verify and max_query > 1
    queries, _ = kernels.query_block(q.shape[1] // heads, max_query, shared)
    splits = choose_splits(
        settings,
        programs=len(short) * heads * -(-max_query // queries),
        tiles=-(-step.max_seq_len // config.group),
        processors=processors,
    )
    return kernels.decode(
        q,
        tiles,
        pool.k,
        pool.v,
        plan,
        step.query_start_loc,
        step.block_table,
        config,
        scale=scale,
        max_query=max_query,
        splits=splits,
        sinks=pool.size.sink_tiles,
        shared=shared,
        window=window,
    )


def _attend_long(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_rotated: torch.Tensor,
    tiles: torch.Tensor,
    pool: LayerPool,
    step: Step,
    config: KVarNConfig,
    settings: Settings,
    req: int,
    *,
    scale: float,
    flash: Flash,
    window: int,
) -> torch.Tensor:
    """One request: its own tokens exactly, its context dequantized part by part."""
    group = config.group
    length = q.shape[0]
    own = torch.full((1,), length, dtype=torch.int32, device=q.device)
    bound = step.context_bounds[req]
    if window:
        return _attend_window(
            q_rotated, k, v, tiles, pool, step, config, req, scale=scale, flash=flash, window=window
        ).to(q.dtype)
    out, lse = flash(q, k, v, own, own, causal=True, scale=scale, window=0)
    out = out.float()
    cap = settings.fa_scratch_cap or DEFAULT_SCRATCH_TOKENS
    part = max(cap // group, 1) * group
    context = step.plan.computed[req : req + 1]
    for first in range(0, bound, part):
        count = -(-(min(bound, first + part) - first) // group) * group
        scratch_k, scratch_v = dequantize(tiles, pool, step, config, req, first // group, count)
        valid = (context - first).clamp(0, count).to(torch.int32)
        got, got_lse = flash(
            q_rotated, scratch_k, scratch_v, own, valid, causal=False, scale=scale, window=0
        )
        got_lse = torch.where(valid > 0, got_lse, float("-inf"))
        out, lse = merge(out, lse, got.float() @ _matrix(out), got_lse)
    return out.to(q.dtype)


def _attend_window(
    q_rotated: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tiles: torch.Tensor,
    pool: LayerPool,
    step: Step,
    config: KVarNConfig,
    req: int,
    *,
    scale: float,
    flash: Flash,
    window: int,
) -> torch.Tensor:
    """A sliding window needs queries and keys in one call: context and own keys, rotated."""
    group = config.group
    context = int(step.plan.computed[req])
    first = max(context + 1 - window, 0) // group
    count = -(-context // group) * group - first * group
    scratch_k, scratch_v = dequantize(tiles, pool, step, config, req, first, max(count, 0))
    kept = context - first * group
    keys = torch.cat((scratch_k[:kept], reference.rotate(k)))
    values = torch.cat((scratch_v[:kept], reference.rotate(v)))
    q_len, k_len = (
        torch.full((1,), n, dtype=torch.int32, device=k.device)
        for n in (q_rotated.shape[0], keys.shape[0])
    )
    out, _ = flash(q_rotated, keys, values, q_len, k_len, causal=True, scale=scale, window=window)
    return out.float() @ _matrix(out.float())


def dequantize(
    tiles: torch.Tensor,
    pool: LayerPool,
    step: Step,
    config: KVarNConfig,
    req: int,
    first_tile: int,
    count: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``count`` tokens (whole tiles) of one request, rotated fp16."""
    from . import kernels

    shape = (count, tiles.shape[1], config.head_dim)
    k, v = (torch.empty(shape, dtype=torch.float16, device=tiles.device) for _ in range(2))
    if count:
        kernels.dequantize(
            tiles,
            pool.k,
            pool.v,
            step.plan,
            step.block_table,
            config,
            req=req,
            first_tile=first_tile,
            k_out=k,
            v_out=v,
        )
    return k, v


def merge(
    a: torch.Tensor, a_lse: torch.Tensor, b: torch.Tensor, b_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge two attentions [tokens, heads, D] over disjoint keys by log-sum-exp [heads, tokens]."""
    lse = torch.logaddexp(a_lse, b_lse)
    safe = torch.where(lse == float("-inf"), 0.0, lse)
    weight_a, weight_b = (
        (part - safe).exp().transpose(0, 1).unsqueeze(-1) for part in (a_lse, b_lse)
    )
    return a * weight_a + b * weight_b, lse


def flash_in_torch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_len: torch.Tensor,
    k_len: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    window: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A ``Flash`` in plain torch: what others are tested against, and for want of a kernel."""
    group = q.shape[1] // k.shape[1]
    keys = k.float().repeat_interleave(group, dim=1)
    values = v.float().repeat_interleave(group, dim=1)
    score = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    k_at = torch.arange(k.shape[0], device=q.device)
    q_at = torch.arange(q.shape[0], device=q.device).unsqueeze(1) + k_len - q_len
    seen = (k_at < k_len).expand(q.shape[0], -1)
    if causal:
        seen = seen & (k_at <= q_at)
    if window:
        seen = seen & (k_at > q_at - window)
    score = score.masked_fill(~seen, float("-inf"))
    lse = torch.logsumexp(score, dim=-1)
    weight = (score - torch.where(lse == float("-inf"), 0.0, lse).unsqueeze(-1)).exp()
    values = values.masked_fill(~(k_at < k_len).view(-1, 1, 1), 0.0)
    out = torch.einsum("hqk,khd->qhd", weight, values)
    return out.to(q.dtype), lse
