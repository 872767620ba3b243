"""The planning benchmark runs: it uses more of hq's inside than types can check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_planning_benchmark_prints_a_row_for_each_size() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "planning.py"), "20", "40"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert rows == ["20", "40"]
