"""Triage of fifty patches against a wheel, beside a shell loop of GNU ``patch --dry-run``.

``python bench/port_triage.py OLD.whl NEW.whl [COUNT]``. The patches are made here: each changes one
line in the middle of a Python file of the old wheel that the new one has too, some of them changed
since. Both sides start from the new wheel as a file. The shell loop has to unpack it, and tells
what fails, what lands by fuzz and what at an offset; hq reads the members it needs and adds what
moved around the hunks that apply, and, in the last row, the review of their meaning.

Only ratios in one run mean anything. Medians of three.
"""

from __future__ import annotations

import difflib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "graph"))

from hq.app.port_trees import WheelTree
from hq.port.program import Parsed
from hq.port.replay import PatchStep, Step, replay
from hq.port.review import review, side
from hq.port.triage import triage
from hq.store.reader import FileReader
from hq.wheels.filename import parse_filename
from hq.wheels.reading import read_index

ROUNDS = 3


def open_wheel(path: str) -> WheelTree:
    """The wheel as a tree."""
    name = parse_filename(os.path.basename(path))
    reader = FileReader(os.open(path, os.O_RDONLY), os.stat(path).st_size, path)
    index = read_index(reader, project=name.project, version=name.version, wheel=path)
    return WheelTree(index, reader, name.version, path)


def made_patches(old: WheelTree, new: WheelTree, count: int) -> Iterator[PatchStep]:
    """One patch for each of ``count`` files, spread evenly; every second one changed since."""
    python = [p for p in old.paths() if p.endswith(".py") and new.digest(p)]
    big = [path for path in python if old.size(path) > 8_000]
    moved = [path for path in big if old.digest(path) != new.digest(path)]
    same = [path for path in big if old.digest(path) == new.digest(path)]
    half = count // 2
    chosen = moved[:: len(moved) // half][:half] + same[:: len(same) // half][: count - half]
    for number, path in enumerate(chosen):
        file = old.read(path)
        assert file is not None
        lines = file.data.decode().splitlines(keepends=True)
        middle = len(lines) // 2
        after = [*lines[:middle], "# one more line\n", *lines[middle:]]
        text = "".join(difflib.unified_diff(lines, after, f"a/{path}", f"b/{path}"))
        yield PatchStep(f"{number}.patch", f"{number}.patch", text.encode())


def by_gnu_patch(wheel: str, patches: Path) -> None:
    """The shell loop."""
    with tempfile.TemporaryDirectory(prefix="hq-bench-") as folder:
        subprocess.run(["unzip", "-q", wheel, "vllm/*", "-d", folder], check=True)
        loop = f'for p in "{patches}"/*.patch; do patch -p1 -N --dry-run < "$p" || true; done'
        subprocess.run(["sh", "-c", loop], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def by_hq(old: str, new: str, steps: list[Step], *, reviewed: bool) -> None:
    """What ``hq port triage`` does."""
    before, after = open_wheel(old), open_wheel(new)
    parsed: Parsed = {}
    done = side(replay(after, steps), parsed)
    triage(before, after, steps, done.whole, done=done.replay)
    if reviewed:
        review(side(replay(before, steps), parsed), done)


def median(run: Callable[[], None]) -> float:
    """Seconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Prints the table."""
    old, new = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    steps: list[Step] = list(made_patches(open_wheel(old), open_wheel(new), count))
    with tempfile.TemporaryDirectory(prefix="hq-patches-") as folder:
        for step in steps:
            (Path(folder) / step.file).write_bytes(step.data)
        gnu = median(lambda: by_gnu_patch(new, Path(folder)))
    reading = median(lambda: (open_wheel(old), open_wheel(new), None)[2])
    placing = median(lambda: by_hq(old, new, steps, reviewed=False))
    everything = median(lambda: by_hq(old, new, steps, reviewed=True))
    print(f"{len(steps)} patches                      seconds   ratio")
    for name, value in (
        ("unzip, patch --dry-run", gnu),
        ("hq: open both wheels", reading),
        ("hq: triage", placing),
        ("hq: triage and review", everything),
    ):
        print(f"{name:<32} {value:8.2f} {value / gnu:7.2f}")


if __name__ == "__main__":
    main()
