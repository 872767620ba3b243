"""Shows a build while it runs.

Everywhere: one plain line when a node that was run has finished. On a terminal, also a live line
with bytes for every node that takes longer than a moment; ``rich`` draws it, and loads only then.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from hq.cli.console import Console
from hq.execute.walk import Outcome

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_MOMENT = 0.4


class BuildObserver:
    """Implements ``hq.execute.walk.Observer`` for a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def started(self, node: str) -> None:
        """A node begins to run."""
        with self._lock:
            self._since[node] = time.monotonic()

    def progressed(self, node: str, done: int, total: int) -> None:
        """A node tells its bytes."""
        if not self._console.is_live or self._console.quiet:
            return
        with self._lock:
            if time.monotonic() - self._since[node] >= _MOMENT:
                self._draw(node, done, total)

    def _draw(self, node: str, done: int, total: int) -> None:
        if self._progress is None:
            self._progress = live_progress(self._console)
            self._progress.start()
        if node not in self._tasks:
            self._tasks[node] = self._progress.add_task(node, total=total or None)
        self._progress.update(self._tasks[node], completed=done)

    def finished(self, outcome: Outcome) -> None:
        """A node has a result."""
        if outcome.status != "built":
            return
        name = outcome.node.name
        with self._lock:
            seconds = time.monotonic() - self._since[name]
            if self._progress is not None and name in self._tasks:
                self._progress.remove_task(self._tasks.pop(name))
            mark = self._console.style("built", "green")
            self._console.note(f"{mark} {name} {self._console.style(f'{seconds:.2f} s', 'dim')}")
            for warning in outcome.warnings:
                self._console.warn(f"{name}: {warning}")

    def close(self) -> None:
        """Takes the live lines away."""
        if self._progress is not None:
            self._progress.stop()


def live_progress(console: Console) -> Progress:
    """Lines with bytes that go away at the end, on standard error."""
    from rich.console import Console as RichConsole
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=RichConsole(file=console.err),
        transient=True,
    )
