# SPDX-License-Identifier: Apache-2.0
"""Which tile is where, worked out once per step on the device.  Torch only.

Terms, per request: ``computed`` tokens were in the cache before the step, ``seq_len``
are after it.  A token is *final* once no rejected draft can take it back: all
computed ones are, and of the new ones all but the last ``num_spec``.  A tile is
*flushed*, that is quantized into its page, in the step in which all of its
tokens are final; each tile is flushed once.  ``flushed`` counts them.

Tiles from ``flushed`` on are the tail.  At most ``num_spec`` (up to 128) tokens
are not final, so the tail spans two tiles, and tile ``j`` of the request in
the runner's row ``r`` lives in pool slot ``2 * r + j % 2``.  Rows are exclusive, so
a tail is never evicted and needs no search.

A sink tile is flushed like any other; the fp16 copy beside it belongs to the
row that wrote it and is found by physical block, so a request whose prefix was
cached shares it.  It lasts until its row begins another request.  Afterwards the
quantized tile is read: a sink lost costs precision, never correctness.

All results are written into buffers that keep their addresses, because a
captured graph reads them again.  Nothing here waits for the device.
"""

from typing import NamedTuple

import torch

from .config import TAIL_TILES, TILE_TOKENS, PoolSize

NULL_BLOCK = 0
"""vLLM's placeholder for an evicted block; never a real tile."""


class StepPlan(NamedTuple):
    """One step of one KV cache group; tensors are on the device, [num_reqs] unless said."""

    rows: torch.Tensor
    """int32: the runner's row; the spare row, one past the last, for padding."""
    computed: torch.Tensor
    """int32: tokens in the cache before the step."""
    seq_lens: torch.Tensor
    """int32: tokens after the step; 0 for padding."""
    first_flush: torch.Tensor
    """int32: the first tile to flush in this step."""
    flushed: torch.Tensor
    """int32: tiles that are quantized once this step's update is done."""
    sink_lead: torch.Tensor
    """int32: leading tiles to read from ``sink_read`` instead of their pages."""
    sink_read: torch.Tensor
    """int32 [num_reqs, sink_tiles]: pool slot of a sink tile, or -1."""
    sink_write: torch.Tensor
    """int32 [num_reqs, sink_tiles]: pool slot that this step's sink tokens go to, or -1."""


class TilePlanner:
    """The state behind ``StepPlan``: one per KV cache group and runner."""

    def __init__(
        self,
        pool: PoolSize,
        *,
        num_spec: int,
        device: torch.device | str,
        lookup_blocks: int = 0,
    ) -> None:
        """``lookup_blocks`` > 0 finds sinks by a table of so many blocks instead of a search."""
        if num_spec > TILE_TOKENS:
            raise ValueError(
                f"KVarN's tail holds {TILE_TOKENS} drafted tokens, found num_spec={num_spec}"
            )
        self.pool = pool
        self.num_spec = num_spec
        self.spare_row = pool.rows
        self._width = max(pool.sink_tiles, 1)

        def ints(*shape: int, fill: int = 0) -> torch.Tensor:
            return torch.full(shape, fill, dtype=torch.int32, device=device)

        # One row more than there are requests takes what padding writes.
        self._flushed_of_row = ints(pool.rows + 1, fill=-1)
        self._sink_block = ints(pool.rows + 1, self._width, fill=-1)
        self._slot_of_block = ints(lookup_blocks, fill=-1) if lookup_blocks else None
        count = pool.rows + 1
        self._out = StepPlan(
            rows=ints(count),
            computed=ints(count),
            seq_lens=ints(count),
            first_flush=ints(count),
            flushed=ints(count),
            sink_lead=ints(count),
            sink_read=ints(count, self._width),
            sink_write=ints(count, self._width),
        )

    def forget(self, rows: list[int]) -> None:
        """The rows got new requests: nothing in their tails counts any more."""
        if rows:
            index = torch.tensor(rows, dtype=torch.int64).to(
                self._flushed_of_row.device, non_blocking=True
            )
            self._flushed_of_row[index] = -1

    def step(
        self,
        *,
        rows: torch.Tensor,
        seq_lens: torch.Tensor,
        query_start_loc: torch.Tensor,
        block_table: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> StepPlan:
        """Plan one step.

        Args:
            rows: [at most num_reqs], the runner's row of each request.
            seq_lens: [num_reqs], tokens after the step; 0 for padding.
            query_start_loc: [num_reqs + 1].
            block_table: [num_reqs, tiles], physical tile of each logical tile.
            slot_mapping: [num_tokens], negative for tokens that are not stored.
        """
        count = seq_lens.shape[0]
        queries = query_start_loc[: count + 1].to(torch.int32)
        lengths = queries[1:] - queries[:-1]
        padded = torch.full_like(lengths, self.spare_row)
        padded[: min(rows.shape[0], count)] = rows[:count].to(torch.int32)
        first_token = queries[:-1].clamp(max=slot_mapping.shape[0] - 1).long()
        alive = (
            (lengths > 0)
            & (seq_lens >= lengths)
            & (slot_mapping[first_token] >= 0)
            & (padded >= 0)
            & (padded < self.spare_row)
        )
        padded = torch.where(alive, padded, self.spare_row)
        seq = torch.where(alive, seq_lens.to(torch.int32), 0)
        computed = torch.where(alive, seq - lengths, 0)

        index = padded.long()
        known = self._flushed_of_row[index]
        first = torch.where(known < 0, computed // TILE_TOKENS, known)
        final = torch.maximum(computed, seq - self.num_spec) // TILE_TOKENS
        flushed = torch.where(alive, torch.maximum(first, final), 0)
        self._flushed_of_row[index] = flushed
        self._flushed_of_row[self.spare_row] = -1

        out = StepPlan(*(buffer[:count] for buffer in self._out))
        out.rows.copy_(padded)
        out.computed.copy_(computed)
        out.seq_lens.copy_(seq)
        out.first_flush.copy_(torch.where(alive, first, 0))
        out.flushed.copy_(flushed)
        self._plan_sinks(out, block_table[:count], alive)
        return out

    def _plan_sinks(self, out: StepPlan, block_table: torch.Tensor, alive: torch.Tensor) -> None:
        out.sink_read.fill_(-1)
        out.sink_write.fill_(-1)
        out.sink_lead.zero_()
        sinks = min(self.pool.sink_tiles, block_table.shape[1])
        if not sinks or not self.pool.sink_rows:
            return
        device = block_table.device
        tile = torch.arange(sinks, dtype=torch.int32, device=device)
        start = tile * TILE_TOKENS
        blocks = block_table[:, :sinks].to(torch.int32)
        seq, computed = out.seq_lens.unsqueeze(1), out.computed.unsqueeze(1)
        real = alive.unsqueeze(1) & (blocks != NULL_BLOCK) & (start < seq)
        owner = (out.rows < self.pool.sink_rows).unsqueeze(1)
        own_slot = self._slot(out.rows.unsqueeze(1), tile)

        begins = real & owner & (computed <= start)
        self._claim(out.rows, blocks, begins, own_slot)
        held = self._sink_block[out.rows.long()][:, :sinks]
        writes = real & owner & (computed < start + TILE_TOKENS) & (held == blocks)
        out.sink_write[:, :sinks] = torch.where(writes, own_slot, -1)

        slots = torch.where(real, self._find(blocks), -1)
        out.sink_read[:, :sinks] = slots
        leading = (slots >= 0).to(torch.int32).cumprod(1).sum(1).to(torch.int32)
        out.sink_lead.copy_(torch.minimum(leading, out.flushed))

    def _slot(self, rows: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
        base = self.pool.rows * TAIL_TILES
        return base + rows * self.pool.sink_tiles + tile

    def _claim(
        self,
        rows: torch.Tensor,
        blocks: torch.Tensor,
        begins: torch.Tensor,
        own_slot: torch.Tensor,
    ) -> None:
        """Rows that begin a sink tile own its block's fp16 copy; any older copy is void."""
        sinks = blocks.shape[1]
        taken = torch.where(begins, blocks, -2)
        stale = (self._sink_block.reshape(-1, 1) == taken.reshape(1, -1)).any(1)
        self._sink_block.masked_fill_(stale.view_as(self._sink_block), -1)
        index = rows.long()
        held = self._sink_block[index][:, :sinks]
        self._sink_block[index, :sinks] = torch.where(begins, blocks, held)
        self._sink_block[self.spare_row] = -1
        if self._slot_of_block is not None:
            inside = begins & (blocks < self._slot_of_block.shape[0])
            # What is not claimed writes its old value back.
            at = torch.where(inside, blocks, 0).long()
            old = self._slot_of_block[at]
            self._slot_of_block[at.reshape(-1)] = torch.where(inside, own_slot, old).reshape(-1)

    def _find(self, blocks: torch.Tensor) -> torch.Tensor:
        """Pool slot of the fp16 copy of each block, or -1."""
        base = self.pool.rows * TAIL_TILES
        held = self._sink_block[: self.pool.sink_rows, : self.pool.sink_tiles].reshape(-1)
        if self._slot_of_block is None:
            match = held.view(1, 1, -1) == blocks.unsqueeze(-1)
            place = match.to(torch.int32).argmax(-1).to(torch.int32)
            return torch.where(match.any(-1), base + place, -1)
        inside = (blocks >= 0) & (blocks < self._slot_of_block.shape[0])
        slot = self._slot_of_block[torch.where(inside, blocks, 0).long()]
        place = (slot - base).clamp(min=0).long()
        right = inside & (slot >= 0) & (held[place] == blocks)
        return torch.where(right, slot, -1)
