"""The order of package versions (deb-version(7), "Sorting algorithm")."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = re.compile(r"([^0-9]*)([0-9]*)")
_OPERATORS: Final = {
    "<<": (-1,), "<": (-1, 0), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">": (0, 1), ">>": (1,),
}  # fmt: skip


def compare(left: str, right: str) -> int:
    """-1, 0 or 1, as ``left`` comes before, is equal to, or comes after ``right``."""
    a, b = _key(left), _key(right)
    return (a > b) - (a < b)


def satisfies(version: str, operator: str, bound: str) -> bool:
    """Whether ``version`` fulfils the condition; an empty operator is none."""
    return not operator or compare(version, bound) in _OPERATORS[operator]


def _key(version: str) -> tuple[int, list[tuple[list[int], int]], list[tuple[list[int], int]]]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, hyphen, revision = rest.rpartition("-")
    if not hyphen:
        upstream, revision = rest, "0"
    return int(epoch) if epoch.isdigit() else 0, _order(upstream), _order(revision)


def _order(text: str) -> list[tuple[list[int], int]]:
    """Alternating texts and numbers; a missing part compares as the empty text and 0."""
    found = [
        ([_weight(char) for char in letters] + [0], int(digits or 0))
        for letters, digits in _PARTS.findall(text)
    ]
    # findall ends with an empty match; what follows the shorter one compares with that.
    return found or [([0], 0)]


def _weight(char: str) -> int:
    """``~`` before the end of the part, letters before all other characters."""
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256
