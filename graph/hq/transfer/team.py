"""Several transfers at a time, of which the first failure ends all.

The error that is raised is that first failure, not what the others say when they are told to stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from hq.model.errors import HqError

T = TypeVar("T")


class GivenUp(HqError):
    """Ends a transfer because another one failed; never seen outside."""


class Team:
    """Runs a function over items in threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def check(self) -> None:
        """To be called now and then by the function. Raises when it is to end."""
        if self._stop.is_set():
            raise GivenUp("given up")

    def run(self, items: Sequence[T], work: Callable[[T], None], threads: int) -> None:
        """Does ``work`` for every item. Raises the first failure."""
        from concurrent.futures import ThreadPoolExecutor, wait

        def guarded(item: T) -> None:
            try:
                self.check()
                work(item)
            except BaseException as error:
                self._fail(error)
                raise

        with ThreadPoolExecutor(threads, thread_name_prefix=self._name) as pool:
            futures = [pool.submit(guarded, item) for item in items]
            try:
                wait(futures)
            except BaseException:
                self._stop.set()  # Ctrl-C
                raise
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error
        self._stop.set()
