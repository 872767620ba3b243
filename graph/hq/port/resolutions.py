"""Conflicts that were resolved once, so that the same conflict is not asked about again.

As git's rerere does: a conflict is known by the text between its markers, without labels. What was
made of it is applied to the next file with the same conflict as a change of its own, so the rest of
the file may have moved on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from hq.patchwork.apply import split_lines
from hq.port.rebase import Merge

_MARKS = (b"<<<<<<< ", b"||||||| ", b">>>>>>> ")


def markers(data: bytes) -> list[int]:
    """The lines, from 1, on which conflict markers stand."""
    return [n for n, line in enumerate(split_lines(data), 1) if line.startswith(_MARKS)]


def plain(data: bytes) -> bytes:
    """A file with conflicts, its labels cut, which name releases and so differ the next time."""
    return re.sub(rb"(?m)^(<{7}|\|{7}|>{7}) .*$", rb"\1 -", data)


def conflict_id(data: bytes) -> str:
    """What the conflicts of a file are known by; empty when it has none."""
    regions = list(_regions(plain(data)))
    return sha256(b"\0".join(regions)).hexdigest() if regions else ""


def _regions(data: bytes) -> Iterator[bytes]:
    inside: list[bytes] = []
    for line in split_lines(data):
        if line.startswith(b"<<<<<<< "):
            inside = [line]
        elif inside:
            inside.append(line)
            if line.startswith(b">>>>>>> "):
                yield b"".join(inside)
                inside = []


def resolved(conflicted: bytes, before: bytes, after: bytes, merge: Merge) -> bytes | None:
    """The file as a remembered resolution (``before`` to ``after``) leaves it, if it fits."""
    if plain(conflicted) == before:
        return after
    text = merge(before, plain(conflicted), after)
    return None if text.conflicts or markers(text.data) else text.data
