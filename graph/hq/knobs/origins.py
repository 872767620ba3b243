"""Which knob each line of a generated ``envs.py`` belongs to.

The lines are followed through the very edits that the generator makes, so nothing is guessed: a
line is one of the old file's, one of a knob's, or one that the generator changed for all of them
(the helper, the prefixes, a comma that was missing).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hq.knobs.envsfile import read_envs
from hq.knobs.generate import annotation, edits_of, entry
from hq.knobs.registry import Knob, Registry


class LineOrigin(NamedTuple):
    """``old``: the line of the file as it was, from 1, or 0. ``knob``: whose line it is, or ''."""

    old: int
    knob: str


_SHARED = LineOrigin(0, "")


def line_origins(before: bytes, registry: Registry, file: str) -> list[LineOrigin]:
    """An origin for each line of ``generate(before, registry, file)``; lines end with LF."""
    chunks = list(_chunks(before, registry, file))
    origins: list[LineOrigin] = []
    begun: set[LineOrigin] = set()
    for text, at in chunks:
        for place, line in enumerate(text.split(b"\n")):
            if place:
                origins.append(_one(begun))
                begun = set()
            if line or (place < text.count(b"\n")):
                begun.add(at[place] if place < len(at) else _SHARED)
    if begun:
        origins.append(_one(begun))
    return origins


def _one(parts: set[LineOrigin]) -> LineOrigin:
    return next(iter(parts)) if len(parts) == 1 else _SHARED


def _chunks(
    before: bytes, registry: Registry, file: str
) -> Iterator[tuple[bytes, Sequence[LineOrigin]]]:
    """The new file in pieces, each with an origin for every line that it is part of."""
    done = 0
    for start, end, text in edits_of(read_envs(before, file), registry):
        yield _old(before, done, start)
        yield text, [LineOrigin(0, name) for name in _names(text, registry.knobs)]
        done = end
    yield _old(before, done, len(before))


def _old(before: bytes, start: int, end: int) -> tuple[bytes, Sequence[LineOrigin]]:
    text = before[start:end]
    first = before.count(b"\n", 0, start) + 1
    return text, [LineOrigin(first + n, "") for n in range(text.count(b"\n") + 1)]


def _names(text: bytes, knobs: Sequence[Knob]) -> list[str]:
    """The knob of each line of an inserted text; empty names where it belongs to none."""
    lines = [line.strip() for line in text.decode().splitlines()]
    if lines == [annotation(knob) for knob in knobs]:
        return [knob.name for knob in knobs]
    entries = [(line.strip(), knob.name) for knob in knobs for line in entry(knob).splitlines()]
    if lines == [line for line, _ in entries]:
        return [name for _, name in entries]
    ignored = [line.strip('",') for line in lines]
    if {f'"{name}",' for name in ignored} == set(lines) and {
        knob.name for knob in knobs
    }.issuperset(ignored):
        return ignored
    return [""] * len(lines)
