"""The Triton kernels in the interpreter, and a layer's steps, against torch."""

import os
from typing import Any

import pytest
from kvarnload import load

os.environ.setdefault("TRITON_INTERPRET", "1")
import torch

config = load("config")
reference = load("reference")
plan = load("plan")
attention = load("attention")
kernels = load("kernels")

TILE = 128
# The head sizes of real models; the interpreter takes its time over 256.
DIMS = [64, 128, 256]


class World:
    """One layer with a paged cache, and every token that it was ever given."""

    def __init__(
        self,
        dim: int = 64,
        *,
        heads: int = 2,
        group: int = 2,
        sink: int = 128,
        num_spec: int = 3,
        settings: Any = None,
        window: int = 0,
        content: int | None = None,
    ):
        self.config = config.KVarNConfig.from_cache_dtype("kvarn_k4v2_g128", dim)
        self.heads, self.group, self.window = heads, group, window
        size = config.plan_pool(max_requests=3, sink_tokens=sink)
        self.pool = attention.LayerPool.empty(size, heads, self.config, "cpu")
        self.planner = plan.TilePlanner(size, num_spec=num_spec, device="cpu")
        content = content or self.config.token_bytes()
        self.tiles = attention.fold_tiles(torch.zeros(40, heads, TILE, content, dtype=torch.uint8))
        self.settings = settings or attention.Settings(fused_verify_min_blocks=0)
        self.made = torch.Generator().manual_seed(dim + num_spec)
        self.keys = self.random(3, 900, heads, dim) * 2
        self.values = self.random(3, 900, heads, dim)
        self.num_spec = num_spec
        # Physical tiles in no order, none of them the null block.
        order = torch.randperm(39, generator=self.made)[:24].reshape(3, 8) + 1
        self.table = order.to(torch.int32)
        self.step_of: Any = None

    def random(self, *shape: int) -> Any:
        return torch.randn(*shape, generator=self.made)

    def step(self, requests: list[tuple[int, int, int]], *, prefilling: bool = True) -> Any:
        """Update and attend; each request is (row, computed, new).  Returns queries and output."""
        starts = [0]
        for _, _, new in requests:
            starts.append(starts[-1] + new)
        rows = [row for row, _, _ in requests]
        table = self.table[rows]
        loc = torch.tensor(starts, dtype=torch.int32)
        seq = torch.tensor([old + new for _, old, new in requests], dtype=torch.int32)
        planned = self.planner.step(
            rows=torch.tensor(rows),
            seq_lens=seq,
            query_start_loc=loc,
            block_table=table,
            slot_mapping=torch.arange(starts[-1]),
        )
        step = attention.Step(
            planned,
            loc,
            table,
            query_lens=tuple(new for _, _, new in requests),
            context_bounds=tuple(old for _, old, _ in requests),
            prefilling=(prefilling,) * len(requests),
            num_tokens=starts[-1],
            max_seq_len=int(seq.max()),
            num_spec=self.num_spec,
        )
        k, v = (
            torch.cat([kept[row, old : old + new] for row, old, new in requests])
            for kept in (self.keys, self.values)
        )
        q = self.random(starts[-1], self.heads * self.group, self.config.head_dim)
        attention.update(
            self.tiles,
            reference.rotate(k),
            reference.rotate(v),
            self.pool,
            step,
            self.config,
            self.settings,
        )
        out = attention.attend(
            q,
            k,
            v,
            self.tiles,
            self.pool,
            step,
            self.config,
            self.settings,
            scale=self.config.head_dim**-0.5,
            flash=attention.flash_in_torch,
            processors=4,
            window=self.window,
        )
        self.step_of = step
        return q, out

    def stored(self, row: int, length: int, flushed: int, lead: int) -> tuple[Any, Any]:
        """What the cache holds of a request, read by the reference: unrotated K and V."""
        parts = []
        for tile in range(-(-length // TILE)):
            span = slice(tile * TILE, min(tile * TILE + TILE, length))
            if lead <= tile < flushed:
                page = self.tiles[int(self.table[row, tile]), :, : self.config.tile_bytes]
                k, v = reference.decode_tile(page, self.config)
                k, v = (x.transpose(0, 1)[: span.stop - span.start] for x in (k, v))
            else:
                k, v = (reference.rotate(x[row, span]).float() for x in (self.keys, self.values))
            parts.append((k, v))
        matrix = reference.hadamard(self.config.head_dim)
        k, v = (torch.cat(side) @ matrix for side in zip(*parts, strict=True))
        return k, v

    def check(self, requests: list[tuple[int, int, int]], q: Any, out: Any, tol: float) -> None:
        """The output is the attention over what is stored."""
        start = 0
        for i, (row, old, new) in enumerate(requests):
            planned = self.step_of.plan
            k, v = self.stored(row, old + new, int(planned.flushed[i]), int(planned.sink_lead[i]))
            lengths = (torch.tensor([new]), torch.tensor([old + new]))
            want, _ = attention.flash_in_torch(
                q[start : start + new],
                k,
                v,
                *lengths,
                causal=True,
                scale=self.config.head_dim**-0.5,
                window=self.window,
            )
            assert torch.allclose(out[start : start + new], want, atol=tol, rtol=tol)
            start += new


@pytest.mark.parametrize("dim", DIMS)
def test_the_flush_kernel_stores_what_the_reference_does(dim: int) -> None:
    fast = World(dim, heads=1, num_spec=0)
    slow = World(dim, heads=1, num_spec=0, settings=attention.Settings(fast_flush=False))
    for world in (fast, slow):
        world.step([(0, 0, 130)])
    block = int(fast.table[0, 0])
    tile = fast.config
    got, want = (w.tiles[block, :, : tile.tile_bytes] for w in (fast, slow))
    parts = zip(reference.split_tile(got, tile), reference.split_tile(want, tile), strict=True)
    for mine, theirs in parts:
        # Sums in another order may move a value over the edge between two codes.
        moved = (mine.codes.int() - theirs.codes.int()).abs()
        assert moved.max() <= 1
        assert (moved > 0).float().mean() < 0.01
        for name in ("scale", "zero", "other"):
            a, b = getattr(mine, name).float(), getattr(theirs, name).float()
            assert torch.allclose(a, b, rtol=4e-3, atol=1e-3)


@pytest.mark.parametrize("dim", DIMS)
def test_each_value_of_a_flushed_tile_is_within_half_a_step(dim: int) -> None:
    world = World(dim, heads=1, num_spec=0)
    world.step([(0, 0, 128)])
    page = world.tiles[int(world.table[0, 0]), :, : world.config.tile_bytes]
    qk, qv = reference.split_tile(page, world.config)
    k, v = (reference.rotate(x[0, :TILE]).transpose(0, 1) for x in (world.keys, world.values))
    for x, q, restored, axis in (
        (k, qk, reference.dequantize_k(qk), -2),
        (v, qv, reference.dequantize_v(qv), -1),
    ):
        step = q.scale.float().unsqueeze(axis)
        other = q.other.float().unsqueeze(-1 if axis == -2 else -2)
        bound = other * (step / 2 + 2**-10 * (q.zero.float().abs().unsqueeze(axis) + 16 * step))
        assert ((restored - x.float()).abs() <= bound + 1e-4).all()


@pytest.mark.parametrize("dim", DIMS)
def test_decode_attends_over_what_is_stored(dim: int) -> None:
    world = World(dim, heads=1, group=3)
    world.step([(0, 0, 300)])
    requests = [(0, 300, 1)]
    q, out = world.step(requests, prefilling=False)
    world.check(requests, q, out, 4e-3)


SETTINGS = {
    "as it comes": {},
    "shared verify": {"shared_verify": True},
    "three splits": {"num_kv_splits": 3},
    "no splits": {"split_k": False},
    "splits": {"split_k": True},
    "dequantized decode": {"fused_decode": False},
    "dequantized verify": {"fused_verify": False},
    "dequantized by the tile": {"fused_verify": False, "fused_decode": False, "fa_scratch_cap": 1},
    "short context": {"fused_verify_min_blocks": 64},
    "reference flush": {"fast_flush": False},
    "clipped": {"rtn_quantile": (0.99, 0.95)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_life_of_two_requests(name: str) -> None:
    """Prefill in chunks, verification with rejected drafts, decode, both in one batch."""
    settings = attention.Settings(**{"fused_verify_min_blocks": 0, **SETTINGS[name]})
    world = World(settings=settings)
    for requests, prefilling in (
        ([(0, 0, 300), (1, 0, 40)], True),
        ([(0, 300, 1), (1, 40, 4)], False),
        ([(0, 301, 4), (1, 41, 90)], True),
        ([(0, 303, 4), (1, 131, 4)], False),
        ([(1, 132, 1)], False),
        ([(0, 304, 90), (1, 133, 4)], True),
        ([(0, 394, 1), (1, 134, 4)], False),
    ):
        q, out = world.step(requests, prefilling=prefilling)
        if prefilling:
            continue
        world.check(requests, q, out, 6e-3)


def test_a_long_query_outside_prefill_reads_tiles() -> None:
    world = World()
    world.step([(0, 0, 300)])
    requests = [(0, 300, 12)]
    q, out = world.step(requests, prefilling=False)
    world.check(requests, q, out, 4e-3)


def test_a_prefill_attends_its_own_tokens_exactly() -> None:
    world = World()
    q, out = world.step([(0, 0, 200)])
    n = torch.tensor([200])
    want, _ = attention.flash_in_torch(
        q, world.keys[0, :200], world.values[0, :200], n, n, causal=True, scale=64**-0.5, window=0
    )
    assert torch.equal(out, want)


def test_a_chunk_sees_its_context() -> None:
    world = World(num_spec=0)
    world.step([(0, 0, 200)])
    requests = [(0, 200, 60)]
    q, out = world.step(requests)
    # 56 tokens of the second tile were flushed with this chunk's first.
    assert world.step_of.plan.flushed.tolist() == [2]
    k = torch.cat((world.stored(0, 256, 2, 1)[0][:200], world.keys[0, 200:260]))
    v = torch.cat((world.stored(0, 256, 2, 1)[1][:200], world.values[0, 200:260]))
    lengths = (torch.tensor([60]), torch.tensor([260]))
    want, _ = attention.flash_in_torch(q, k, v, *lengths, causal=True, scale=64**-0.5, window=0)
    assert torch.allclose(out, want, atol=4e-3)


@pytest.mark.parametrize("sink", [0, 128, 256])
def test_the_sink_is_exact(sink: int) -> None:
    world = World(sink=sink)
    world.step([(0, 0, 400)])
    requests = [(0, 400, 1)]
    q, out = world.step(requests, prefilling=False)
    assert world.step_of.plan.sink_lead.tolist() == [sink // TILE]
    world.check(requests, q, out, 4e-3)


def test_a_sliding_window_looks_back_no_further() -> None:
    world = World(window=150)
    world.step([(0, 0, 300)])
    for requests, prefilling in (([(0, 300, 1)], False), ([(0, 301, 4)], False)):
        q, out = world.step(requests, prefilling=prefilling)
        world.check(requests, q, out, 4e-3)


def test_pages_may_be_wider_than_a_tile() -> None:
    world = World(content=64)
    world.step([(0, 0, 300)])
    requests = [(0, 300, 1)]
    q, out = world.step(requests, prefilling=False)
    world.check(requests, q, out, 4e-3)


def view(order: tuple[int, ...], heads: int = 2) -> Any:
    """The runner's logical [blocks, heads, tokens, content] over another physical order."""
    shape = (6, heads, TILE, 57)
    flat = torch.zeros(*(shape[i] for i in order), dtype=torch.uint8)
    return flat.permute(*(order.index(i) for i in range(4)))


def test_heads_outside_tokens_fold_without_a_copy() -> None:
    cache = view((0, 1, 2, 3))
    folded = attention.fold_tiles(cache)
    assert folded.shape == (6, 2, TILE * 57)
    assert folded.data_ptr() == cache.data_ptr()


def test_tokens_outside_heads_are_refused() -> None:
    with pytest.raises(RuntimeError) as caught:
        attention.fold_tiles(view((0, 2, 1, 3)))
    assert str(caught.value) == (
        "KVarN needs a KV cache whose heads are outside its tokens (LBHNC); found shape "
        "(6, 2, 128, 57) with strides (14592, 57, 114, 1)"
    )


@pytest.mark.parametrize(
    ("settings", "programs", "tiles", "splits"),
    [
        ({}, 4, 1000, 64),
        ({}, 4, 7, 1),
        ({}, 4, 40, 20),
        ({}, 1000, 1000, 1),
        ({"split_k": False}, 4, 1000, 1),
        ({"split_k": True}, 4, 7, 3),
        ({"num_kv_splits": 5}, 4, 7, 5),
        ({"num_kv_splits": 500}, 4, 7, 64),
    ],
)
def test_splits(settings: dict[str, Any], programs: int, tiles: int, splits: int) -> None:
    got = attention.choose_splits(
        attention.Settings(**settings), programs=programs, tiles=tiles, processors=132
    )
    assert got == splits


def test_a_captured_graph_always_reads_tiles() -> None:
    step = attention.Step(None, None, None, (1, 4, 90), (0, 0, 0), (True,) * 3, 95, 100, 3)
    settings = attention.Settings()
    assert attention.takes_long_way(step, settings) == [False, True, True]
    assert attention.takes_long_way(step._replace(max_seq_len=64 * 128), settings) == [
        False,
        False,
        True,
    ]
    assert attention.takes_long_way(step._replace(capturing=True), settings) == [False] * 3
