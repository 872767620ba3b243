#!/usr/bin/env python3
"""Planning many patch nodes, and answering a no-op build of as many files.

    bench/planning.py [N ...]        default: 1000 2000 5000 10000

For each N, in seconds: the graph of N patches (each touches one of N/10 files, so ten of them build
on each other), every key of it against results made up for the purpose, and the fast path's check
of N patch files on disk. The last column is the time for N against that for the first N, over the
growth of N: 1 is linear. Peer: one stat a file by find, the least that noticing a change can cost.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "graph"))

# The checkout's own package, not an installed one: hence after the path.
from hq.app import noop  # noqa: E402
from hq.model.action import ActionResult  # noqa: E402
from hq.model.digest import BlobRef, Digest  # noqa: E402
from hq.model.project import ImageSpec, LockedWheel, PinSpec, SeriesItem  # noqa: E402
from hq.model.tree import Change, Entry  # noqa: E402
from hq.plan.build import item_key, pin_graph  # noqa: E402
from hq.plan.keys import key_of  # noqa: E402
from hq.plan.node import Graph  # noqa: E402
from hq.plan.resolve import Resolver  # noqa: E402
from hq.wheels.content import Member  # noqa: E402
from hq.wheels.index import Meta, WheelIndex  # noqa: E402

NOTHING = BlobRef.of(b"")


def spec(count: int) -> PinSpec:
    wheel = LockedWheel("demo", "1.0", "demo-1.0-py3-none-any.whl", Digest.of(b"w"), 1)
    items = tuple(
        SeriesItem(f"p{n:05}.patch", f"patches/p{n:05}.patch", 1, reverse=False)
        for n in range(count)
    )
    image = ImageSpec(
        "demo", "image", "/opt/demo", "none", "linux", "amd64", {}, (), (), "", "", {}, {}, (), ()
    )
    return PinSpec("demo", "1.0", wheel, "patches/series", items, None, (), (image,), 0)


def path(number: int, count: int) -> str:
    return f"demo/m{number % max(1, count // 10):05}.py"


def index(count: int) -> WheelIndex:
    digest = Digest.of(b"stock")
    members = [
        Member(name, "f", 0, 1, 1, 0, 0, digest)
        for name in sorted({path(n, count) for n in range(count)} | {"demo-1.0.dist-info/RECORD"})
    ]
    return WheelIndex.build(
        Meta("demo", "1.0", "demo-1.0.dist-info", "demo-1.0.data", True, 1), members
    )


def keys(graph: Graph, count: int) -> None:
    """The key of every node, each with a made-up result."""
    results: dict[str, ActionResult] = {}
    found = index(count)
    resolver = Resolver(results, lambda _: NOTHING, lambda _: found)
    for node in graph.nodes.values():
        inputs = {name: resolver.resolve(sel).digest for name, sel in node.inputs.items()}
        key = key_of(node, inputs)
        delta = tuple(
            Change(name.removeprefix("file:"), Entry("f", Digest.of(key.encode()), 1))
            for name in node.inputs
            if name.startswith("file:")
        )
        blobs = dict.fromkeys(("wheel", "index", "blob"), NOTHING)
        results[node.name] = ActionResult(key, blobs, delta, {"layer": {}})


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def measure(count: int, folder: Path) -> tuple[float, float, float, float]:
    declared = spec(count)
    touched = {item_key(item): (path(n, count),) for n, item in enumerate(declared.series)}
    graphs: list[Graph] = []
    graph_time = timed(lambda: graphs.append(pin_graph(declared, touched)))
    key_time = timed(lambda: keys(graphs[0], count))
    folder.mkdir()
    state = noop.State("", "")
    for number in range(count):
        file = folder / f"p{number:05}.patch"
        file.write_bytes(b"x")
        os.utime(file, (1, 1))
        state.file(str(file), file.stat(), Digest.of(b"x").hex)
    state.folder(str(folder), noop.folder_field(noop.marked_names(str(folder))))
    lines = state.encode(time.time_ns() + 10**9).decode().split("\n")
    # The inner step alone: the command around it starts a process, which is not what is asked here.
    noop_time = timed(lambda: noop._unchanged(lines))  # noqa: SLF001
    if noop._unchanged(lines) is None:  # noqa: SLF001
        sys.exit("the fast path found a change where there is none: it was not measured whole")
    command = ["find", str(folder), "-printf", "%s %T@\\n"]
    peer = timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))
    return graph_time, key_time, noop_time, peer


def main() -> None:
    counts = [int(word) for word in sys.argv[1:]] or [1000, 2000, 5000, 10000]
    print(f"{'patches':>8}{'graph s':>10}{'keys s':>10}{'no-op s':>10}{'find s':>10}{'growth':>9}")
    first: tuple[int, float] | None = None
    with tempfile.TemporaryDirectory() as name:
        for count in counts:
            found = measure(count, Path(name) / str(count))
            total = sum(found[:3])
            first = first or (count, total)
            growth = (total / first[1]) / (count / first[0])
            print(f"{count:>8}" + "".join(f"{value:>10.3f}" for value in found) + f"{growth:>9.2f}")


if __name__ == "__main__":
    main()
