"""Ten thousand patches: a graph that is linear in them, counted and not timed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.project import SOURCE
from hq.model.digest import Digest
from hq.model.project import ImageSpec, LockedWheel, PinSpec, SeriesItem
from hq.plan.build import item_key, pin_graph
from hq.plan.node import FileAt, Graph

IMAGE = ImageSpec(
    *("demo", "image", "/opt/demo", "gzip", "linux", "amd64", {}, (), (), "", "", {}, {}, (), ())
)


def planned(count: int, file_of: Callable[[int], str]) -> Graph:
    """The graph of ``count`` patches, each of which touches one file."""
    wheel = LockedWheel("demo", "1.0", "demo-1.0-py3-none-any.whl", Digest.of(b""), 1)
    names = [f"n{number:05}" for number in range(count)]
    series = tuple(SeriesItem(f"{n}.patch", f"patches/{n}.patch", 1, False) for n in names)
    touched = {item_key(item): (file_of(number),) for number, item in enumerate(series)}
    spec = PinSpec("demo", "1.0", wheel, "patches/series", series, None, (), (IMAGE,), 0)
    return pin_graph(spec, touched)


SHAPES: dict[str, Callable[[int], str]] = {
    "a file each": lambda number: f"vllm/m{number}.py",
    "ten to a file": lambda number: f"vllm/m{number // 10}.py",
    "one file for all": lambda _: "vllm/one.py",
    "one below the other": lambda number: "/".join(["vllm"] * (number % 20 + 1)) + ".py",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_edges_are_linear(shape: str) -> None:
    graph = planned(10_000, SHAPES[shape])
    assert len(graph.nodes) == 10_004
    needs = [len(list(node.depends_on())) for node in graph.nodes.values()]
    assert sum(needs) < 5 * 10_000
    assert list(graph.nodes)[:2] == ["wheel:demo", "patch:n00000"]


def calls(work: Callable[[], object]) -> int:
    """How many Python functions ``work`` calls."""
    count = 0

    def see(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_work_is_linear(shape: str) -> None:
    one, two = (calls(lambda n=n: planned(n, SHAPES[shape])) for n in (500, 1000))  # type: ignore[misc]
    assert two < 2.2 * one


def test_an_early_patch_is_found_from_the_last(  # the chain may be as long as the series
) -> None:
    graph = planned(3_000, SHAPES["one file for all"])
    at = graph.nodes["patch:n02999"].inputs["file:vllm/one.py"]
    length = 0
    while isinstance(at, FileAt) and at.before is not None:
        at, length = at.before, length + 1
    assert length == 2_999


def test_planning_does_without_networkx() -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from plan.test_scale import planned\n"
        "planned(100, lambda number: 'a.py')\n"
        "print('networkx' in sys.modules)"
    )
    tests = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program, str(SOURCE), tests],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n"
