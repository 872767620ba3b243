"""KVarN's kernels on a GPU: right against torch, and how long they take against torch's SDPA.

``python bench/kvarn_gpu.py [--quick]`` needs torch and Triton, no vLLM. It prints tables and writes
``kvarn_gpu.json`` into ``$OUT``, if that is set. It exits with 1 if a result is wrong.

A world is one attention layer with a paged cache. It is filled through the same update that serves
a model, chunk by chunk, so what is measured afterwards was written by the flush kernel. Times are
medians of captured graphs: they leave out launches from Python and prove that the path can be
captured. The peer is the fastest of SDPA's kernels over the same keys and values unquantized,
contiguous, in bf16: the best case of a cache of almost five times the bytes. Only the ratios in one
run mean anything.

``TRITON_INTERPRET=1`` without a GPU runs the checks alone, small.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

OPS = Path(__file__).resolve().parents[1] / "kvarn/files/vllm/v1/attention/ops/kvarn"
TILE = 128
NUM_SPEC = 7
# Every file below the overlay's root is installed; bytecode must not appear there.
sys.dont_write_bytecode = True
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def load(name: str) -> Any:
    """A module of the overlay, by file."""
    if "kvarn_ops" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "kvarn_ops", OPS / "__init__.py", submodule_search_locations=[str(OPS)]
        )
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["kvarn_ops"] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"kvarn_ops.{name}")


config, reference, plan = load("config"), load("reference"), load("plan")
attention, kernels = load("attention"), load("kernels")


class Shape(NamedTuple):
    dim: int
    heads: int
    group: int

    def __str__(self) -> str:
        return f"D={self.dim} heads={self.heads * self.group}/{self.heads}"


SHAPES = (Shape(128, 8, 4), Shape(256, 4, 6))


class World:
    """One layer whose cache was filled with ``contexts`` tokens, one request each."""

    def __init__(self, shape: Shape, contexts: list[int], chunk: int = 8192, seed: int = 0):
        self.shape, self.contexts = shape, contexts
        self.config = config.KVarNConfig.from_cache_dtype("kvarn_k4v2_g128", shape.dim)
        size = config.plan_pool(max_requests=len(contexts), sink_tokens=TILE)
        self.pool = attention.LayerPool.empty(size, shape.heads, self.config, DEVICE)
        self.planner = plan.TilePlanner(size, num_spec=NUM_SPEC, device=DEVICE)
        self.settings = attention.Settings(fused_verify_min_blocks=0)
        self.random = torch.Generator(DEVICE).manual_seed(seed)
        self.room = max(contexts) + 64
        width = -(-self.room // TILE)
        count = width * len(contexts)
        order = torch.randperm(count, generator=self.random, device=DEVICE) + 1
        self.table = order.reshape(len(contexts), width).to(torch.int32)
        content = self.config.token_bytes()
        cache = torch.zeros(count + 1, shape.heads, TILE, content, dtype=torch.uint8, device=DEVICE)
        self.tiles = attention.fold_tiles(cache)
        self.processors = torch.cuda.get_device_properties(0).multi_processor_count if CUDA else 4
        kept = (len(contexts), self.room, shape.heads, shape.dim)
        spread = torch.rand(shape.dim, generator=self.random, device=DEVICE).mul(2).exp()
        self.keys = (self.randn(*kept) * spread).to(torch.bfloat16)
        self.values = self.randn(*kept).to(torch.bfloat16)
        for row, length in enumerate(contexts):
            for start in range(0, length, chunk):
                self.update([(row, start, min(chunk, length - start))])

    def randn(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.random, device=DEVICE)

    def step(self, requests: list[tuple[int, int, int]]) -> Any:
        starts = [0]
        for _, _, new in requests:
            starts.append(starts[-1] + new)
        rows = [row for row, _, _ in requests]
        seq = [old + new for _, old, new in requests]
        loc = torch.tensor(starts, dtype=torch.int32, device=DEVICE)
        table = self.table[rows]
        planned = self.planner.step(
            rows=torch.tensor(rows, device=DEVICE),
            seq_lens=torch.tensor(seq, dtype=torch.int32, device=DEVICE),
            query_start_loc=loc,
            block_table=table,
            slot_mapping=torch.arange(starts[-1], device=DEVICE),
        )
        return attention.Step(
            planned,
            loc,
            table,
            query_lens=tuple(new for _, _, new in requests),
            context_bounds=tuple(old for _, old, _ in requests),
            prefilling=(False,) * len(requests),
            num_tokens=starts[-1],
            max_seq_len=max(seq),
            num_spec=NUM_SPEC,
        )

    def new(self, requests: list[tuple[int, int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """The step's own K and V, rotated."""
        k, v = (
            torch.cat([kept[row, old : old + new] for row, old, new in requests])
            for kept in (self.keys, self.values)
        )
        return reference.rotate(k), reference.rotate(v)

    def update(self, requests: list[tuple[int, int, int]]) -> Any:
        step = self.step(requests)
        k, v = self.new(requests)
        attention.update(self.tiles, k, v, self.pool, step, self.config, self.settings)
        return step

    def decode(self, q: torch.Tensor, step: Any, **knobs: Any) -> torch.Tensor:
        """Rotated queries to a rotated output, through the fused path."""
        max_query = step.max_query_len
        shared = bool(knobs.pop("shared", False)) and max_query > 1
        queries, _ = kernels.query_block(self.shape.group, max_query, shared)
        splits = knobs.pop("splits", None) or attention.choose_splits(
            self.settings,
            programs=len(step.query_lens) * self.shape.heads * -(-max_query // queries),
            tiles=-(-step.max_seq_len // TILE),
            processors=self.processors,
        )
        out: torch.Tensor = kernels.decode(
            q,
            self.tiles,
            self.pool.k,
            self.pool.v,
            step.plan,
            step.query_start_loc,
            step.block_table,
            self.config,
            scale=self.shape.dim**-0.5,
            max_query=max_query,
            splits=splits,
            sinks=self.pool.size.sink_tiles,
            shared=shared,
            **knobs,
        )
        return out

    def queries(self, count: int) -> torch.Tensor:
        q = self.randn(count, self.shape.heads * self.shape.group, self.shape.dim)
        return reference.rotate(q)

    def dequantized(self, req: int, step: Any, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        count = -(-length // TILE) * TILE
        k, v = attention.dequantize(self.tiles, self.pool, step, self.config, req, 0, count)
        return k[:length], v[:length]


def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, old: int) -> torch.Tensor:
    """Attention in fp32: q [n, query heads, D] from ``old`` on over k, v [length, heads, D]."""
    n, q_heads, dim = q.shape
    heads = k.shape[1]
    grouped = q.float().view(n, heads, q_heads // heads, dim)
    score = torch.einsum("nhgd,khd->hgnk", grouped, k.float()) * dim**-0.5
    at = torch.arange(k.shape[0], device=q.device)
    last = torch.arange(n, device=q.device).unsqueeze(1) + old
    score.masked_fill_(at > last, float("-inf"))
    out = torch.einsum("hgnk,khd->nhgd", score.softmax(-1), v.float())
    return out.reshape(n, q_heads, dim)


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.float() - want.float()).norm() / want.float().norm().clamp(min=1e-30))


class Check(NamedTuple):
    name: str
    shape: str
    error: float
    bound: float

    @property
    def right(self) -> bool:
        return self.error <= self.bound


def check_tiles(shape: Shape) -> list[Check]:
    """The flush and dequantize kernels against the reference, tile by tile."""
    length = 8 * TILE if CUDA else TILE
    world = World(shape, [length + NUM_SPEC])
    step = world.step([(0, length + NUM_SPEC, 1)])
    blocks = world.table[0, : length // TILE].long()
    stored = world.tiles[blocks, :, : world.config.tile_bytes]
    sources = [
        reference.rotate(kept[0, :length]).unflatten(0, (-1, TILE)).transpose(1, 2)
        for kept in (world.keys, world.values)
    ]
    wanted = reference.encode_tile(*sources, world.config)
    got_k, got_v = reference.decode_tile(stored, world.config)
    want_k, want_v = reference.decode_tile(wanted, world.config)
    moved = [
        float((a.codes != b.codes).float().mean())
        for a, b in zip(
            reference.split_tile(stored, world.config),
            reference.split_tile(wanted, world.config),
            strict=True,
        )
    ]
    k, v = world.dequantized(0, step, length)
    flat_k, flat_v = (x.transpose(1, 2).flatten(0, 1) for x in (got_k, got_v))
    # The leading tile is the sink, which is read in fp16.
    skip = slice(TILE, None) if CUDA else slice(0, 0)
    checks = [
        Check("flush: K codes that differ from the reference's", str(shape), moved[0], 0.01),
        Check("flush: V codes that differ from the reference's", str(shape), moved[1], 0.01),
        Check(
            "flush: K restored, against the reference", str(shape), relative(got_k, want_k), 0.02
        ),
        Check(
            "flush: V restored, against the reference", str(shape), relative(got_v, want_v), 0.05
        ),
        Check("K quantization error", str(shape), relative(got_k, sources[0]), 0.13),
        Check("V quantization error", str(shape), relative(got_v, sources[1]), 0.65),
    ]
    if CUDA:
        checks += [
            Check("dequantize: K", str(shape), relative(k[skip], flat_k[skip]), 2e-3),
            Check("dequantize: V", str(shape), relative(v[skip], flat_v[skip]), 2e-3),
        ]
    return checks


def check_attention(shape: Shape, contexts: list[int], queries: int) -> list[Check]:
    """Decode and verify against attention in fp32 over the dequantized cache."""
    world = World(shape, contexts)
    requests = [(row, length, queries) for row, length in enumerate(contexts)]
    step = world.update(requests)
    q = world.queries(queries * len(contexts))
    checks = []
    for name, knobs in (
        ("as it comes", {}),
        ("one split", {"splits": 1}),
        ("seven splits", {"splits": 7}),
        ("shared", {"shared": True}),
    ):
        if name == "shared" and queries == 1:
            continue
        out = world.decode(q, step, **knobs)
        worst = 0.0
        for row, length, new in requests:
            k, v = world.dequantized(row, step, length + new)
            span = slice(row * new, row * new + new)
            worst = max(worst, relative(out[span], exact(q[span], k, v, length)))
        checks.append(Check(f"q={queries} over {contexts}, {name}", str(shape), worst, 4e-3))
    return checks


def timed(work: Any, calls: int = 10, rounds: int = 7) -> float:
    """Median milliseconds of one call, inside a captured graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            work()
    graph.replay()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / calls)
    return sorted(times)[len(times) // 2]


PEERS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


def time_sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, calls: int = 10) -> float:
    """Milliseconds of the fastest of SDPA's kernels; no mask, which only makes it faster."""
    times = []
    for peer in PEERS:
        try:
            with sdpa_kernel(peer):
                times.append(
                    timed(lambda: scaled_dot_product_attention(q, k, v, enable_gqa=True), calls)
                )
        except RuntimeError:
            # This kernel does not take the shape.
            continue
    return min(times)


def unquantized(world: World, length: int) -> list[torch.Tensor]:
    """Keys and values of every request, bf16, contiguous per head."""
    return [x[:, :length].transpose(1, 2).contiguous() for x in (world.keys, world.values)]


def batch_of_queries(world: World, queries: int) -> torch.Tensor:
    heads = world.shape.heads * world.shape.group
    return world.randn(len(world.contexts), heads, queries, world.shape.dim).to(torch.bfloat16)


def time_attention(shape: Shape, batch: int, length: int, queries: int) -> dict[str, Any]:
    world = World(shape, [length] * batch)
    step = world.update([(row, length, queries) for row in range(batch)])
    q = world.queries(queries * batch)
    row = {"shape": str(shape), "batch": batch, "context": length, "q": queries}
    row["sdpa ms"] = time_sdpa(
        batch_of_queries(world, queries), *unquantized(world, length + queries)
    )
    row["kvarn ms"] = timed(lambda: world.decode(q, step))
    if queries > 1:
        row["shared ms"] = timed(lambda: world.decode(q, step, shared=True))
        row["shared / sdpa"] = row["shared ms"] / row["sdpa ms"]
    row["kvarn / sdpa"] = row["kvarn ms"] / row["sdpa ms"]
    return row


def time_update(shape: Shape, length: int, chunk: int) -> dict[str, Any]:
    """A prefill chunk: quantizing it, and dequantizing its context, against its attention."""
    world = World(shape, [length])
    requests = [(0, length, chunk)]
    world.room = length + chunk
    more = (1, chunk, shape.heads, shape.dim)
    world.keys = torch.cat((world.keys[:, :length], world.randn(*more).to(torch.bfloat16)), 1)
    world.values = torch.cat((world.values[:, :length], world.randn(*more).to(torch.bfloat16)), 1)
    spare = torch.arange(chunk // TILE + 2, device=DEVICE, dtype=torch.int32).unsqueeze(0)
    used = world.table[:, : length // TILE]
    # The tiles of the chunk overwrite pages of the context; nothing reads them here.
    world.table = torch.cat((used, spare % world.tiles.shape[0]), 1)
    step = world.step(requests)
    k, v = world.new(requests)
    first, last = (int(x[0]) for x in (step.plan.first_flush, step.plan.flushed))
    row: dict[str, Any] = {"shape": str(shape), "context": length, "chunk": chunk}
    row["tiles"] = last - first
    row["flush+store ms"] = timed(
        lambda: attention.update(world.tiles, k, v, world.pool, step, world.config, world.settings)
    )
    row["dequantize ms"] = timed(lambda: world.dequantized(0, step, length // TILE * TILE))
    row["sdpa ms"] = time_sdpa(
        batch_of_queries(world, chunk), *unquantized(world, length + chunk), calls=3
    )
    row["update / sdpa"] = row["flush+store ms"] / row["sdpa ms"]
    row["dequantize / sdpa"] = row["dequantize ms"] / row["sdpa ms"]
    return row


def compare_launches(shape: Shape, length: int) -> list[dict[str, Any]]:
    """The decode kernel's launches and splits against each other."""
    world = World(shape, [length])
    step = world.update([(0, length, 1)])
    q = world.queries(1)
    rows = []
    for block_n in (32, 64, 128):
        for warps in (4, 8):
            for splits in (32, 64, 128):
                launch = kernels.Launch(block_n, warps)
                took = timed(
                    lambda launch=launch, splits=splits: world.decode(
                        q, step, launch=launch, splits=splits
                    )
                )
                rows.append(
                    {
                        "shape": str(shape),
                        "context": length,
                        "block_n": block_n,
                        "warps": warps,
                        "splits": splits,
                        "kvarn ms": took,
                        "chosen": launch
                        == kernels.decode_launch(
                            shape.dim, kernels.shared_memory(torch.device(DEVICE))
                        ),
                    }
                )
    best = min(row["kvarn ms"] for row in rows)
    for row in rows:
        row["of the best"] = row["kvarn ms"] / best
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    names = list(dict.fromkeys(name for row in rows for name in row))

    def cell(value: Any) -> str:
        return f"{value:.4f}" if isinstance(value, float) else str(value)

    cells = [names] + [[cell(row.get(name, "")) for name in names] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short contexts only")
    quick = parser.parse_args().quick or not CUDA
    checks: list[Check] = []
    for shape in SHAPES if CUDA else (Shape(64, 1, 2),):
        checks += check_tiles(shape)
        for contexts in ([300, 5], *([] if quick else [[131_072], [8000, 129, 32_768]])):
            for queries in (1, 8):
                checks += check_attention(shape, list(contexts), queries)
    show("Right?", [{**c._asdict(), "right": c.right} for c in checks])
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if CUDA else "Triton's interpreter",
        "torch": torch.__version__,
        "checks": [{**c._asdict(), "right": c.right} for c in checks],
    }
    if CUDA:
        lengths = (2048, 8192) if quick else (2048, 8192, 32_768, 131_072)
        cases = [(1, n, q) for n in lengths for q in (1, 8)] + [(8, 8192, 1)]
        found["attention"] = [time_attention(s, *case) for s in SHAPES for case in cases]
        show("Attention over the cache", found["attention"])
        found["update"] = [time_update(s, n, 2048) for s in SHAPES for n in lengths[1:]]
        show("A prefill chunk", found["update"])
        if not quick:
            found["launches"] = [row for s in SHAPES for row in compare_launches(s, 32_768)]
            show("Launches of the decode kernel", found["launches"])
    if os.environ.get("OUT"):
        path = Path(os.environ["OUT"]) / "kvarn_gpu.json"
        path.write_text(json.dumps(found, indent=1) + "\n")
    wrong = [check for check in checks if not check.right]
    print(f"\n{len(checks) - len(wrong)} of {len(checks)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
