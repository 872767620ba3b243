"""What a command gave that was run in an image."""

from __future__ import annotations

from typing import NamedTuple


class Ran(NamedTuple):
    """A finished command. ``code`` is -1 when it ran out of time; ``output``: both streams."""

    code: int
    output: str
