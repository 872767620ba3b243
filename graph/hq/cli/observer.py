"""Shows a build while it runs.

Everywhere: one plain line when a node that was run has finished. On a terminal, also a live line
for every node that takes longer than a second: its bytes, or that it still runs and for how long.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from hq.cli.console import Console
from hq.cli.live import LiveArea, Task
from hq.execute.walk import Outcome

LONG: Final = 1.0
"""Seconds that a node runs before it is shown."""

_LOOK: Final = 0.2  # seconds between two looks for such a node
_AFTER: Final = {"wheel": "checking", "deb": "unpacking"}


class BuildObserver:
    """Implements ``hq.execute.walk.Observer`` for a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: dict[str, Task] = {}
        self._area = LiveArea(console, self._long)
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None
        self._lock = threading.Lock()

    def started(self, node: str) -> None:
        """A node begins to run."""
        self._running[node] = Task(node, _AFTER.get(node.partition(":")[0], "finishing"))
        if self._console.is_live and not self._console.quiet:
            with self._lock:
                if self._watch is None:
                    self._watch = threading.Thread(target=self._look, name="watch", daemon=True)
                    self._watch.start()

    def _look(self) -> None:
        """Draws from the moment that a node has run for long; until then it costs nothing."""
        while not self._closed.wait(_LOOK):
            if self._long():
                self._area.start()
                return

    def _long(self) -> Sequence[Task]:
        return [task for task in list(self._running.values()) if task.age >= LONG]

    def progressed(self, node: str, done: int, total: int) -> None:
        """A node tells its bytes."""
        task = self._running[node]
        task.done, task.total = done, total

    def finished(self, outcome: Outcome) -> None:
        """A node has a result."""
        if outcome.status != "built":
            return
        self._done("built", outcome.node.name, outcome.warnings)

    def fetched(self, label: str) -> None:
        """Something is there that no node stands for."""
        self._done("fetched", label)

    def _done(self, word: str, name: str, warnings: Sequence[str] = ()) -> None:
        seconds = self._running.pop(name).age
        mark = self._console.style(word, "green")
        with self._lock:
            self._console.note(f"{mark} {name} {self._console.style(f'{seconds:.2f} s', 'dim')}")
            for warning in warnings:
                self._console.warn(f"{name}: {warning}")

    def close(self) -> None:
        """Takes the live lines away."""
        self._closed.set()
        if self._watch is not None:
            self._watch.join()
        self._area.stop()
