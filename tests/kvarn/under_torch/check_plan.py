"""Which tile is where, against a model that keeps every token by hand."""

import random
from typing import Any

import pytest
import torch
from kvarnload import load

config = load("config")
plan = load("plan")

TILE = 128


class Bench:
    """A planner with two rows, stepped by plain lists."""

    def __init__(self, *, sink: int = 128, num_spec: int = 0, rows: int = 2, lookup: int = 0):
        self.pool = config.plan_pool(max_requests=rows, sink_tokens=sink)
        self.planner = plan.TilePlanner(
            self.pool, num_spec=num_spec, device="cpu", lookup_blocks=lookup
        )

    def step(self, requests: list[tuple[int, int, int, list[int]]], pad: int = 0) -> Any:
        """Each request: row, computed tokens, new tokens, blocks."""
        starts = [0]
        for _, _, new, _ in requests:
            starts.append(starts[-1] + new)
        starts += [starts[-1]] * pad
        width = max(len(blocks) for *_, blocks in requests)
        table = [blocks + [0] * (width - len(blocks)) for *_, blocks in requests]
        table += [[0] * width] * pad
        return self.planner.step(
            rows=torch.tensor([row for row, *_ in requests]),
            seq_lens=torch.tensor([old + new for _, old, new, _ in requests] + [0] * pad),
            query_start_loc=torch.tensor(starts, dtype=torch.int32),
            block_table=torch.tensor(table, dtype=torch.int32),
            slot_mapping=torch.arange(max(starts[-1], 1)),
        )


def test_a_prefill_flushes_its_complete_tiles() -> None:
    bench = Bench()
    got = bench.step([(0, 0, 300, [5, 6, 7]), (1, 0, 100, [8])])
    assert got.computed.tolist() == [0, 0]
    assert got.first_flush.tolist() == [0, 0]
    assert got.flushed.tolist() == [2, 0]
    assert got.sink_write.tolist() == [[4], [5]]
    assert got.sink_lead.tolist() == [1, 0]


def test_a_tile_is_flushed_once_and_only_when_final() -> None:
    bench = Bench(num_spec=3)
    bench.step([(0, 0, 120, [5, 6])])
    # 128 tokens, but the last three were drafted.
    assert bench.step([(0, 120, 8, [5, 6])]).flushed.tolist() == [0]
    # All but one were rejected.
    assert bench.step([(0, 125, 4, [5, 6])]).flushed.tolist() == [0]
    got = bench.step([(0, 129, 4, [5, 6])])
    assert (got.first_flush.tolist(), got.flushed.tolist()) == ([0], [1])
    got = bench.step([(0, 131, 4, [5, 6])])
    assert (got.first_flush.tolist(), got.flushed.tolist()) == ([1], [1])


def test_a_cached_prefix_is_taken_as_flushed() -> None:
    bench = Bench()
    bench.planner.forget([0])
    got = bench.step([(0, 256, 10, [5, 6, 7])])
    assert (got.first_flush.tolist(), got.flushed.tolist()) == ([2], [2])
    # Nobody has an fp16 copy of that sink.
    assert got.sink_lead.tolist() == [0]
    assert got.sink_write.tolist() == [[-1]]


def test_a_row_with_a_new_request_forgets_the_old_tail() -> None:
    bench = Bench()
    bench.step([(0, 0, 700, [5, 6, 7, 8, 9, 10])])
    bench.planner.forget([0])
    got = bench.step([(0, 0, 130, [11, 12])])
    assert (got.first_flush.tolist(), got.flushed.tolist()) == ([0], [1])


@pytest.mark.parametrize("lookup", [0, 64])
def test_a_sink_is_shared_by_block_until_its_row_begins_another(lookup: int) -> None:
    bench = Bench(lookup=lookup)
    bench.step([(0, 0, 300, [5, 6, 7])])
    got = bench.step([(1, 256, 9, [5, 6, 9])])
    assert got.sink_read.tolist() == [[4]]
    assert got.sink_lead.tolist() == [1]
    bench.planner.forget([0])
    bench.step([(0, 0, 300, [20, 21, 22])])
    got = bench.step([(1, 265, 1, [5, 6, 9])])
    assert got.sink_read.tolist() == [[-1]]
    assert got.sink_lead.tolist() == [0]


@pytest.mark.parametrize("lookup", [0, 64])
def test_a_block_that_is_written_again_voids_the_older_copy(lookup: int) -> None:
    bench = Bench(rows=3, lookup=lookup)
    bench.step([(0, 0, 300, [5, 6, 7])])
    bench.planner.forget([1])
    bench.step([(1, 0, 300, [5, 8, 9])])
    got = bench.step([(2, 256, 9, [5, 8, 10])])
    assert got.sink_read.tolist() == [[7]]


def test_a_block_beyond_the_table_has_no_fp16_sink() -> None:
    bench = Bench(lookup=8)
    bench.step([(0, 0, 300, [50, 6, 7])])
    assert bench.step([(0, 300, 1, [50, 6, 7])]).sink_lead.tolist() == [0]


def test_padding_and_unstored_tokens_touch_nothing() -> None:
    bench = Bench()
    bench.step([(0, 0, 300, [5, 6, 7])])
    before = bench.planner._flushed_of_row.clone(), bench.planner._sink_block.clone()
    got = bench.planner.step(
        rows=torch.tensor([0, 1]),
        seq_lens=torch.tensor([900, 900]),
        query_start_loc=torch.tensor([0, 900, 1800], dtype=torch.int32),
        block_table=torch.zeros(2, 8, dtype=torch.int32),
        slot_mapping=torch.full((1800,), -1),
    )
    assert got.seq_lens.tolist() == [0, 0]
    assert got.rows.tolist() == [2, 2]
    assert torch.equal(before[0], bench.planner._flushed_of_row)
    assert torch.equal(before[1], bench.planner._sink_block)
    got = bench.step([(0, 300, 1, [5, 6, 7])], pad=2)
    assert got.seq_lens.tolist() == [301, 0, 0]


def test_results_keep_their_addresses() -> None:
    bench = Bench()
    first = bench.step([(0, 0, 300, [5, 6, 7]), (1, 0, 9, [8])])
    second = bench.step([(1, 9, 1, [8]), (0, 300, 1, [5, 6, 7])])
    assert [a.data_ptr() for a in first] == [b.data_ptr() for b in second]


def test_more_drafts_than_the_tail_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="holds 128 drafted tokens, found num_spec=129"):
        Bench(num_spec=129)


@pytest.mark.parametrize("seed", range(12))
def test_every_token_is_where_the_plan_says(seed: int) -> None:
    """Random prefill chunks, verification with rejected drafts, and new requests in old rows."""
    rng = random.Random(seed)
    num_spec = rng.choice([0, 1, 3, 7, 128])
    bench = Bench(num_spec=num_spec, rows=3, lookup=rng.choice([0, 4096]))
    pool: dict[tuple[int, int], Any] = {}  # (slot, offset) -> token
    pages: dict[int, list[Any]] = {}
    live: dict[int, dict[str, Any]] = {}
    next_block = 1
    for _ in range(60):
        row = rng.randrange(3)
        if row not in live or rng.random() < 0.05:
            prompt = rng.randrange(1, 900)
            blocks = list(range(next_block, next_block + 20))
            next_block += 20
            live[row] = {"blocks": blocks, "computed": 0, "prompt": prompt, "tokens": {}}
            bench.planner.forget([row])
        batch = sorted(live) if rng.random() < 0.5 else [row]
        wanted = []
        for r in batch:
            request = live[r]
            left = request["prompt"] - request["computed"]
            if left > 0:
                new = min(left, rng.choice([1, 40, 128, 500]))
            else:
                new = 1 + rng.randrange(num_spec + 1)
            new = min(new, 20 * TILE - request["computed"])
            if new > 0:
                wanted.append((r, request["computed"], new, request["blocks"]))
        if not wanted:
            live.pop(row)
            continue
        got = bench.step(wanted)
        for i, (r, computed, new, blocks) in enumerate(wanted):
            request = live[r]
            fresh = {computed + n: object() for n in range(new)}
            request["tokens"].update(fresh)
            first, flushed = int(got.first_flush[i]), int(got.flushed[i])
            for tile in range(first, flushed):
                assert blocks[tile] not in pages, "each tile is flushed once"
                pages[blocks[tile]] = [
                    pool[2 * r + tile % 2, p - tile * TILE] if p < computed else fresh[p]
                    for p in range(tile * TILE, tile * TILE + TILE)
                ]
            for p, token in fresh.items():
                tile = p // TILE
                if flushed <= tile:
                    assert tile < flushed + 2
                    pool[2 * r + tile % 2, p % TILE] = token
                if tile < bench.pool.sink_tiles and int(got.sink_write[i, tile]) >= 0:
                    pool[int(got.sink_write[i, tile]), p % TILE] = token
            assert flushed * TILE <= max(computed, computed + new - num_spec)
            for p in range(computed + new):
                tile = p // TILE
                if tile < int(got.sink_lead[i]):
                    found = pool[int(got.sink_read[i, tile]), p % TILE]
                elif tile < flushed:
                    found = pages[blocks[tile]][p % TILE]
                else:
                    found = pool[2 * r + tile % 2, p % TILE]
                assert found is request["tokens"][p]
            drafts = min(num_spec, new - 1) if computed >= request["prompt"] else 0
            request["computed"] = computed + new - rng.randrange(drafts + 1)
