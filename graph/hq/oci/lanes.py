"""Lanes: calls that are made in order, on a thread of their own or at once.

Writing a large layer is three kinds of work on one stream: inflating, hashing, writing the blob.
Each releases the interpreter's lock while it works on a chunk. So hashing and writing get a lane
each, and the producer, which inflates, puts calls into them. A lane holds a bounded number of
calls: memory stays small, and a fast producer waits.

Nothing hangs, because a lane that has failed goes on taking calls without making them, until it is
closed. The producer looks for a failed lane now and then and stops early. Which error is raised
does not depend on timing: all calls before the one that failed are made, and the caller raises the
earliest error by position in the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Failure(NamedTuple):
    """An error, and the position of the call that raised it."""

    position: int
    error: BaseException


class Lane(Protocol):
    """Takes calls. ``position`` orders the errors of several lanes."""

    def put(self, function: Callable[[Any], object], argument: object, position: int) -> None:
        """Makes the call ``function(argument)`` after those already put."""
        ...


class Direct:
    """A lane that makes each call at once; errors come straight through."""

    __slots__ = ()

    def put(self, function: Callable[[Any], object], argument: object, position: int) -> None:
        """Makes the call."""
        del position
        function(argument)


class Queued:
    """A lane whose calls are made by whoever runs ``run``, at most ``depth`` waiting."""

    __slots__ = ("_room", "_tasks", "failure")

    def __init__(self, depth: int) -> None:
        # SimpleQueue is written in C, a Queue in Python: 40 times the cost for each call. Tokens
        # in a second one give it the bound that it lacks.
        from _queue import SimpleQueue

        self._tasks: SimpleQueue[tuple[Callable[[Any], object], object, int] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        self.failure: Failure | None = None
        for _ in range(depth):
            self._room.put(None)

    def put(self, function: Callable[[Any], object], argument: object, position: int) -> None:
        """Adds the call; waits while the lane is full."""
        self._room.get()
        self._tasks.put((function, argument, position))

    def close(self) -> None:
        """No more calls will come."""
        self._tasks.put(None)

    def run(self) -> None:
        """Makes the calls until the lane is closed. Raises nothing; see ``failure``."""
        position = 0
        while True:
            try:
                while (task := self._tasks.get()) is not None:
                    self._room.put(None)
                    if self.failure is None:
                        function, argument, position = task
                        function(argument)
                    task = None  # frees the chunk before waiting for the next
                return
            except BaseException as error:  # noqa: BLE001 - raised by the caller, in order
                self.failure = self.failure or Failure(position, error)
