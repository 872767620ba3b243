"""Placing a series: hq's engine in one process against one GNU patch process per patch.

Run: ``python bench/series_vs_gnu_patch.py``. Prints a JSON object with medians in seconds and the
ratio. Two jobs: a long file with many hunks per patch, and many small patches.
"""

from __future__ import annotations

import difflib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "graph"))

from hq.patchwork.apply import File
from hq.patchwork.series import apply_series, parse_series

ROUNDS = 7


def make_series(lines: int, patches: int, hunks: int, seed: int) -> tuple[bytes, dict[str, bytes]]:
    """A file and patches that apply to it one after the other."""
    pick = random.Random(seed)
    now = [f"line {n} {pick.random():.9f}\n" for n in range(lines)]
    start = "".join(now).encode()
    series: dict[str, bytes] = {}
    for number in range(patches):
        after = list(now)
        for at in sorted(pick.sample(range(5, lines - 5, 12), hunks), reverse=True):
            after[at : at + 1] = [f"patch {number} at {at}\n", *after[at + 1 : at + 1]]
        diff = difflib.unified_diff(now, after, "a/f.py", "b/f.py")
        series[f"{number:03}.patch"] = "".join(diff).encode()
        now = after
    return start, series


def median(action: Callable[[], object]) -> float:
    """The median duration of ``ROUNDS`` runs, after one to warm up."""
    action()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def gnu(start: bytes, series: dict[str, bytes], folder: str) -> bytes:
    place = os.path.join(folder, "f.py")
    with open(place, "wb") as file:
        file.write(start)
    for name in series:
        subprocess.run(
            ["patch", "-p1", "-F0", "-s", "-f", "-i", os.path.join(folder, name)],
            cwd=folder,
            check=True,
        )
    with open(place, "rb") as file:
        return file.read()


def ours(start: bytes, series: dict[str, bytes]) -> bytes:
    entries = parse_series("".join(f"{name}\n" for name in series).encode())
    outcome = apply_series(entries, series.__getitem__, {"f.py": File("f", start)}.get)
    changed = outcome.changes["f.py"]
    assert outcome.applied and changed is not None
    return changed.data


def compare(lines: int, patches: int, hunks: int) -> dict[str, float]:
    start, series = make_series(lines, patches, hunks, seed=lines)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in series.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        assert gnu(start, series, folder) == ours(start, series)
        theirs = median(lambda: gnu(start, series, folder))
    mine = median(lambda: ours(start, series))
    return {"gnu": round(theirs, 5), "hq": round(mine, 5), "ratio": round(theirs / mine, 1)}


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "2000 lines, 20 patches of 50 hunks": compare(2000, 20, 50),
                "400 lines, 40 patches of 2 hunks": compare(400, 40, 2),
            },
            indent=1,
        )
    )
