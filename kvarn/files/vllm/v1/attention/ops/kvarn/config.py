# SPDX-License-Identifier: Apache-2.0
"""Geometry of a KVarN tile: names, sizes and offsets.  Standard library only.

A tile holds G = 128 tokens of one KV head, K and V together.  In the cache it
is one run of bytes, in this order (all parameters are fp16):

    K codes        G rows of D * kb / 8 bytes
    K scale        D      K zero      D      K token scale    G
    V codes        G rows of D * vb / 8 bytes
    V scale        G      V zero      G      V channel scale  D

so that K costs ``D*G*kb/8 + 2*(2*D + G)`` bytes and V ``G*D*vb/8 + 2*(D + 2*G)``.
A value is restored as ``(code * scale + zero) * other_scale``.  K's scale and zero
belong to a channel and its other scale to a token; V's are the other way round.

Codes are packed by stride, not by neighbour: with P codes to a byte, byte ``i``
of a row holds the channels ``i, i + D/P, i + 2*D/P, ...``, lowest bits first.
A kernel then unpacks a row into P contiguous runs of channels without shuffling.
"""

import re
from typing import NamedTuple

CACHE_DTYPE = "kvarn_k4v2_g128"
BACKEND = "KVARN"
LAYOUT = "LBHNC"
TILE_TOKENS = 128
PARAM_BYTES = 2

_NAME = re.compile(r"kvarn_k(\d)v(\d)_g(\d+)")
_SUPPORTED_BITS = (2, 4, 8)


class TileOffsets(NamedTuple):
    """Where each part of a tile begins, in bytes from the tile's start."""

    k_codes: int
    k_scale: int
    k_zero: int
    k_other: int
    v_codes: int
    v_scale: int
    v_zero: int
    v_other: int
    end: int


class KVarNConfig(NamedTuple):
    """What a cache dtype and a head size determine."""

    head_dim: int
    k_bits: int = 4
    v_bits: int = 2
    group: int = TILE_TOKENS

    @classmethod
    def from_cache_dtype(cls, name: str, head_dim: int) -> "KVarNConfig":
        """Read a dtype such as ``kvarn_k4v2_g128``.

        Raises ValueError for a name that is no KVarN dtype, or a head size that a
        Hadamard rotation or a whole number of bytes per token does not allow.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(
                f"{name!r} is no KVarN cache dtype; expected kvarn_k<bits>v<bits>_g<tokens>, "
                f"such as {CACHE_DTYPE}"
            )
        k_bits, v_bits, group = (int(part) for part in match.groups())
        if k_bits not in _SUPPORTED_BITS or v_bits not in _SUPPORTED_BITS:
            raise ValueError(f"{name!r}: bits must be one of {_SUPPORTED_BITS}")
        if group != TILE_TOKENS:
            raise ValueError(f"{name!r}: tiles hold {TILE_TOKENS} tokens, found g{group}")
        if not supports_head_dim(head_dim):
            raise ValueError(
                f"{name!r}: head size must be a power of two of at least 64, found {head_dim}"
            )
        return cls(head_dim=head_dim, k_bits=k_bits, v_bits=v_bits, group=group)

    @property
    def k_bytes(self) -> int:
        """Bytes of one tile's K: codes, scale and zero per channel, scale per token."""
        d, g = self.head_dim, self.group
        return d * g * self.k_bits // 8 + PARAM_BYTES * (2 * d + g)

    @property
    def v_bytes(self) -> int:
        """Bytes of one tile's V: codes, scale and zero per token, scale per channel."""
        d, g = self.head_dim, self.group
        return g * d * self.v_bits // 8 + PARAM_BYTES * (d + 2 * g)

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile, K and V together (26,880 for a head size of 256)."""
        return self.k_bytes + self.v_bytes

    @property
    def offsets(self) -> TileOffsets:
        """Where the parts of a tile begin."""
        d, g = self.head_dim, self.group
        k_scale = d * g * self.k_bits // 8
        k_other = k_scale + 2 * PARAM_BYTES * d
        v_codes = k_other + PARAM_BYTES * g
        v_scale = v_codes + g * d * self.v_bits // 8
        v_other = v_scale + 2 * PARAM_BYTES * g
        return TileOffsets(
            k_codes=0,
            k_scale=k_scale,
            k_zero=k_scale + PARAM_BYTES * d,
            k_other=k_other,
            v_codes=v_codes,
            v_scale=v_scale,
            v_zero=v_scale + PARAM_BYTES * g,
            v_other=v_other,
            end=v_other + PARAM_BYTES * d,
        )

    def token_bytes(self, pow2: bool = False) -> int:
        """Bytes of cache per token and KV head; the content size of the layer's page.

        ``pow2`` rounds up to a power of two: pages then align with those of
        layers that are not quantized, at the price of the rounding.
        """
        exact = self.tile_bytes // self.group
        return 1 << (exact - 1).bit_length() if pow2 else exact


def is_kvarn(cache_dtype: str | None) -> bool:
    """True for the cache dtypes that this package stores."""
    return cache_dtype is not None and _NAME.fullmatch(cache_dtype) is not None


def supports_head_dim(head_dim: int) -> bool:
    """True for a power of two of at least 64."""
    return head_dim >= 64 and head_dim & (head_dim - 1) == 0


def parse_quantiles(text: str) -> tuple[float, float] | None:
    """Read KVARN_RTN_QUANTILE: empty for none, ``q`` for both, ``qk,qv`` for K and V.

    Raises ValueError for anything else, or a number outside (0.5, 1].
    """
    if not text.strip():
        return None
    parts = [part.strip() for part in text.split(",")]
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if len(values) not in (1, 2) or not all(0.5 < value <= 1.0 for value in values):
        raise ValueError(
            f"KVARN_RTN_QUANTILE: expected one or two numbers in (0.5, 1], found {text!r}"
        )
    return values[0], values[-1]


class PoolSize(NamedTuple):
    """How the fp16 pool is divided, in tiles per layer."""

    rows: int
    """Requests that can be live at once; each owns ``TAIL_TILES`` tail tiles."""
    sink_tiles: int
    """Sink tiles per request."""
    sink_rows: int
    """Requests whose sink is kept in fp16; the others read the quantized sink."""

    @property
    def slots(self) -> int:
        """Tiles in the pool."""
        return self.rows * TAIL_TILES + self.sink_rows * self.sink_tiles


TAIL_TILES = 2
"""A tail spans two tiles at most while up to 128 drafted tokens may be rejected."""


def plan_pool(
    *, max_requests: int, sink_tokens: int, slots: int = 0, max_slots: int | None = None
) -> PoolSize:
    """Divide the pool: tails first, since nothing else holds them, then sinks.

    Args:
        max_requests: requests the runner may hold at once.
        sink_tokens: KVARN_SINK_TOKENS.
        slots: KVARN_POOL_SLOTS; 0 for as many as ``max_requests`` can use.
        max_slots: what KVARN_POOL_MEM_FRAC leaves room for; None for no cap.

    Raises ValueError when the sink is no whole number of tiles or the tails do
    not fit.
    """
    if sink_tokens < 0 or sink_tokens % TILE_TOKENS:
        raise ValueError(
            f"KVARN_SINK_TOKENS: expected a multiple of {TILE_TOKENS}, found {sink_tokens}"
        )
    sink_tiles = sink_tokens // TILE_TOKENS
    tails = max_requests * TAIL_TILES
    room = slots or tails + max_requests * sink_tiles
    if max_slots is not None:
        room = min(room, max_slots)
    if room < tails:
        raise ValueError(
            f"KVarN's pool has room for {room} tiles; {max_requests} requests need {tails} for "
            "their tails: raise KVARN_POOL_SLOTS or KVARN_POOL_MEM_FRAC, or lower max_num_seqs"
        )
    sink_rows = min((room - tails) // sink_tiles, max_requests) if sink_tiles else 0
    return PoolSize(rows=max_requests, sink_tiles=sink_tiles, sink_rows=sink_rows)
