# SPDX-License-Identifier: Apache-2.0
"""Which of the runner's rows got a new request since a builder last looked.

The runner calls ``note_new_request`` when it gives a row to a request.  Each
metadata builder owns a ``NewRows``; what a row's tail tiles held before belongs
to the row's former request and must not be read again.  Standard library only.
"""

import weakref


class NewRows:
    """Rows that were handed to a new request; read and cleared by ``take``."""

    __slots__ = ("__weakref__", "_pending")

    def __init__(self) -> None:
        self._pending: set[int] = set()
        _subscribers.add(self)

    def note(self, row: int) -> None:
        """Remember that ``row`` has a new request."""
        self._pending.add(row)

    def take(self) -> list[int]:
        """Rows noted since the last call, ascending."""
        rows = sorted(self._pending)
        self._pending.clear()
        return rows


_subscribers: "weakref.WeakSet[NewRows]" = weakref.WeakSet()


def note_new_request(row: int) -> None:
    """Tell every builder of this process that ``row`` has a new request."""
    for subscriber in _subscribers:
        subscriber.note(row)
