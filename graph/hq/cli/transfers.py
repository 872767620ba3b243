"""Shows what is sent or fetched: live lines on a terminal, one plain line a blob elsewhere."""

from __future__ import annotations

import threading
from typing import Self

from hq.app.session import Session
from hq.app.ship import Shipment, changed_since
from hq.cli.console import Console
from hq.cli.live import LiveArea, Task
from hq.store.faults import human_size

_WORTH_A_LINE = 1 << 20  # bytes


def warn_of_changes(console: Console, shipment: Shipment, session: Session | None) -> None:
    """Says so when the image that goes out is not what a build would make now."""
    path = changed_since(shipment, session)
    if path:
        console.warn(f"{path} changed since {shipment.name} was built; hq build makes it anew")


class TransferView:
    """Takes the progress of a push, pull or load; a context manager.

    ``verb``: what is done, for the lines: ``pushed``.
    """

    def __init__(self, console: Console, verb: str) -> None:
        self._console = console
        self._verb = verb
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._area = LiveArea(console, lambda: list(self._tasks.values()))
        self._seen: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._area.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """``done`` of ``total`` bytes of ``what`` are there."""
        if self._console.quiet or total < _WORTH_A_LINE:
            return
        with self._lock:
            if self._console.is_live:
                self._draw(what, done, total)
            elif done >= total and what not in self._seen:
                self._seen.add(what)
                mark = self._console.style(self._verb, "green")
                self._console.note(f"{mark} {_short(what)} {human_size(total)}")

    def _draw(self, what: str, done: int, total: int) -> None:
        task = self._tasks.get(what)
        if task is None:
            task = self._tasks[what] = Task(_short(what), self._verb)
        task.done, task.total = done, total
        self._area.start()


def _short(what: str) -> str:
    """A digest as a person tells it from others on a line; for the eye only."""
    return what[7:19] if what.startswith("sha256:") else what
