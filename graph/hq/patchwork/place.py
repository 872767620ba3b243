"""Where each hunk of a file goes: a closed set of outcomes, none of them a guess.

A hunk's *old side* is the lines it expects, its *new side* what it leaves. Hunks are placed in
order, in the file as the section found it:

1. First guess: the stated line, moved by the offset of the hunks above (and by what those that were
   already there had added). If the old side stands there, that is the place, twins or not:
   ``Exact`` when the offset is 0, else ``Offset``.
2. Else every place below the hunk above where the old side stands. One: ``Offset``. Several: the
   file's git blob id or the section heading must single one out, or it is ``Ambiguous``.
3. Wherever the old side stands *inside* a copy of the new side, the change is already in:
   ``AlreadyApplied``. So it is when the new side stands at the first guess, or at all while
   the old side does not, or nearer to the guess than the old side.
4. Else the old side with context dropped from its ends, as ``patch -F2`` would: ``Fuzzy``.
5. Else ``Conflict``, with the place that is most like it.

Ties. No context after the change and some before it: the hunk ends at the end of the file. Less
context before than after, at line 1: it begins at the start. A hunk without any context is not
tied. Fewer context lines after than before tie nothing (GNU patch ties them, git does not).

Searching runs over the file's lines as 32-bit ids in one byte string, so that the search is
``bytes.find``: linear, in C, and made only when a first guess fails.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from hq.patchwork.anchor import Heads, lies_in, names_definition
from hq.patchwork.patch import Hunk

MAX_FUZZ: Final = 2
MAX_CANDIDATES: Final = 10_000
MAX_SEARCHED: Final = 50


class Exact(NamedTuple):
    """At the stated line; only lines added above moved it. ``line`` is the line in the result."""

    line: int


class Offset(NamedTuple):
    """Elsewhere, and nowhere else: ``by`` lines from where it should be."""

    line: int
    by: int


class Ambiguous(NamedTuple):
    """Several equally good places (their lines), none of them the stated one."""

    candidates: tuple[int, ...]


class AlreadyApplied(NamedTuple):
    """What the hunk would leave stands there already."""

    line: int


class Fuzzy(NamedTuple):
    """Would fit with ``fuzz`` context lines ignored. Reported, never applied."""

    line: int
    fuzz: int


class Conflict(NamedTuple):
    """Fits nowhere. ``nearest``: the most similar place, 0 when nothing is alike."""

    nearest: int


class TargetMissing(NamedTuple):
    """The file is not in the tree."""


Placement = Exact | Offset | Ambiguous | AlreadyApplied | Fuzzy | Conflict | TargetMissing


class Placed(NamedTuple):
    """A hunk and its outcome.

    ``at``: index in the file as the section found it (for ``Conflict`` and ``Ambiguous`` where
    to look), -1 when unknown. ``note``: what a reader should know about an outcome that stands;
    ``outside``: the place is not in the definition that the hunk names. ``unchecked``: an
    insertion without context, which nothing can confirm. ``lands``: it may be applied.
    """

    hunk: Hunk
    placement: Placement
    at: int = -1
    note: str = ""
    outside: bool = False
    unchecked: bool = False
    lands: bool = False


class Image:
    """A file's lines, and on first need their index."""

    __slots__ = ("_code", "_ids", "heads", "lines")

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.heads = Heads(lines)
        self._ids: dict[bytes, int] = {}
        self._code = b""

    def places(self, wanted: Sequence[bytes], start: int) -> list[int]:
        """Every index from ``start`` on where ``wanted`` stands, ascending."""
        code = self._encode(wanted)
        if not code:
            return []
        found: list[int] = []
        start = max(start, 0)
        at = self._code.find(code, 4 * start)
        while at >= 0 and len(found) < MAX_CANDIDATES:
            if at & 3:
                at = self._code.find(code, at + 1)
                continue
            found.append(at >> 2)
            at = self._code.find(code, at + 4)
        return found

    def votes(self, wanted: Sequence[bytes]) -> dict[int, int]:
        """For each index: how many of ``wanted``'s telling lines stand where they would then be."""
        where: dict[bytes, list[int]] = {line: [] for line in wanted if line.strip()}
        for index, line in enumerate(self.lines):
            spots = where.get(line)
            if spots is not None and len(spots) < 64:
                spots.append(index)
        count: dict[int, int] = {}
        for shift, line in enumerate(wanted):
            for spot in where.get(line, ()):
                count[spot - shift] = count.get(spot - shift, 0) + 1
        return count

    def _encode(self, wanted: Sequence[bytes]) -> bytes:
        ids = self._ids
        if not self._code:
            self._code = array(
                "I", [ids.setdefault(line, len(ids)) for line in self.lines]
            ).tobytes()
        try:
            return array("I", [ids[line] for line in wanted]).tobytes()
        except KeyError:
            return b""


def _unknown() -> bool:
    return False


class Options(NamedTuple):
    """``blob_known`` tells whether the file is, by git blob id, the one the patch was made from.

    It is asked only where the answer matters.
    """

    blob_known: Callable[[], bool] = _unknown
    allow_repeat: bool = False


_DEFAULT: Final = Options()
# What a NamedTuple's own __new__ calls, without the call in between.
_NEW: Final = tuple.__new__


def place(image: Image, hunks: Sequence[Hunk], options: Options = _DEFAULT) -> list[Placed]:
    """Places ``hunks`` in order. Pure; the outcome of each is independent of the ones below."""
    walk = _Walk(image, options)
    placed = walk.straight(hunks)
    for hunk in hunks[len(placed) :]:
        placed.append(walk.next(hunk))
    return placed


class _Walk:
    """What placing has learnt from the hunks above."""

    __slots__ = (
        "added", "changed", "floor", "grown", "image", "options", "searched", "shift", "stated"
    )  # fmt: skip

    def __init__(self, image: Image, options: Options) -> None:
        self.image = image
        self.options = options
        self.shift = 0  # offset of the hunks above
        self.grown = 0  # lines that hunks above would have added and that are there already
        self.searched = 0  # how often the most similar place was looked for
        self.added = 0  # lines that hunks above add to the result
        self.floor = 0  # the end of the hunk above
        self.changed = 0  # the end of its last change: what follows is context, which may be shared
        self.stated = 0  # the same, by the line numbers of the patch

    def straight(self, hunks: Sequence[Hunk]) -> list[Placed]:
        """The common case in as few steps as can be: hunks that stand where they say.

        Ends before the first hunk about which there is anything to think.
        """
        lines = self.image.lines
        placed: list[Placed] = []
        added = floor = changed = 0
        for hunk in hunks:
            _, _, start, _, old, new, leading, trailing, heading = hunk
            start -= 1
            size = len(old)
            end = start + size
            if (
                start < changed
                or leading < trailing
                or not trailing
                or lines[start:end] != old
                or (leading > trailing and end != len(lines))
            ):
                break
            growth = len(new) - size
            if growth > 0 and (new.count(old[0]) > 1 or new.count(old[-1]) > 1):
                break
            if heading and names_definition(heading) and not lies_in(self.image.heads, start, hunk):
                break
            outcome = _NEW(Exact, (start + 1 + added,))
            placed.append(_NEW(Placed, (hunk, outcome, start, "", False, False, True)))
            added += growth
            floor = end
            changed = end - trailing
        self.added, self.floor = added, floor
        self.changed = self.stated = changed
        return placed

    def next(self, hunk: Hunk) -> Placed:
        """Places one hunk below those that were placed before."""
        start = _start(hunk)
        if start < self.stated and self._stands_above(hunk):
            return Placed(
                hunk, Conflict(0), -1,
                "is stated above the end of the hunk before it: they overlap or are out of order",
            )  # fmt: skip
        self.stated = start + len(hunk.old) - hunk.trailing
        placed = self._insertion(hunk, start) if not hunk.old else self._search(hunk, start)
        self._learn(placed, start)
        return placed

    def _learn(self, placed: Placed, start: int) -> None:
        hunk, at = placed.hunk, placed.at
        outcome = placed.placement
        growth = len(hunk.new) - len(hunk.old)
        if isinstance(outcome, AlreadyApplied):
            self.shift = at - start - self.grown
            self.grown += growth
            self.floor = at + len(hunk.new)
        elif isinstance(outcome, (Exact, Offset, Fuzzy)):
            self.shift = at - start - self.grown
            self.floor = at + len(hunk.old)
            self.added += 0 if isinstance(outcome, Fuzzy) else growth
        else:
            return
        self.changed = self.floor - hunk.trailing

    def _stands_above(self, hunk: Hunk) -> bool:
        """Whether a hunk stated out of order is right about its place: then no twin will do."""
        found = self.image.places(hunk.old, 0)
        return not hunk.old or any(at < self.changed for at in found)

    # -- placing --------------------------------------------------------------------------------

    def _search(self, hunk: Hunk, start: int) -> Placed:
        image = self.image
        guess = start + self.shift + self.grown
        if guess >= self.changed and self._stands(hunk, hunk.old, guess):
            if not self.options.allow_repeat and self._inside_copy(hunk, guess) >= 0:
                return self._already(hunk, self._inside_copy(hunk, guess))
            return self._landed(hunk, guess, start)
        if guess >= self.changed and hunk.new and self._stands(hunk, hunk.new, guess):
            there = [guess]
        else:
            there = self._fitting(hunk, hunk.new) if hunk.new else []
        forward = self._fitting(hunk, hunk.old)
        if self.options.allow_repeat and forward:
            there = []
        free = [at for at in forward if not there or self._inside_copy(hunk, at) < 0]
        if there and (guess in there or not free):
            return self._already(hunk, _nearest(there, guess))
        if not hunk.leading and not hunk.trailing:
            there = []  # lone lines stand in many places and prove nothing from afar
        if free:
            return self._choose(hunk, start, guess, free, there)
        return self._fuzzy(hunk, guess) or self._conflict(image, hunk, guess)

    def _choose(
        self, hunk: Hunk, start: int, guess: int, free: list[int], there: list[int]
    ) -> Placed:
        if len(free) > 1:
            settled = self._settled(hunk, guess, free)
            if settled is not None:
                at, why = settled
                return self._landed(hunk, at, start, f"one of {len(free)} places; {why}")
        nearest = _nearest(free, guess)
        if there and abs(_nearest(there, guess) - guess) <= abs(nearest - guess):
            return self._already(hunk, _nearest(there, guess))
        if len(free) == 1:
            return self._landed(hunk, nearest, start)
        lines = tuple(at + 1 + self.added for at in free)
        return Placed(hunk, Ambiguous(lines), nearest)

    def _settled(self, hunk: Hunk, guess: int, free: list[int]) -> tuple[int, str] | None:
        if self.options.blob_known():
            ranked = sorted(free, key=lambda at: abs(at - guess))
            if abs(ranked[0] - guess) != abs(ranked[1] - guess):
                return ranked[0], "the file's git blob id is the patch's"
        if names_definition(hunk.heading):
            named = [at for at in free if lies_in(self.image.heads, at, hunk)]
            if len(named) == 1:
                return named[0], f"the only one in '{_text(hunk.heading)}'"
        return None

    def _insertion(self, hunk: Hunk, start: int) -> Placed:
        """A hunk that adds lines and shows no context."""
        lines = self.image.lines
        guess = min(max(start + self.shift + self.grown, 0), len(lines))
        there = lines[guess : guess + len(hunk.new)] == hunk.new
        if there and not self.options.allow_repeat:
            return self._already(hunk, guess)
        if not lines or there or self.options.blob_known():
            return self._landed(hunk, guess, start)
        return Placed(
            hunk, Conflict(guess + 1 + self.added), guess,
            "an insertion without context cannot be checked", unchecked=True,
        )  # fmt: skip

    def _landed(self, hunk: Hunk, at: int, start: int, note: str = "") -> Placed:
        by = at - start - self.grown
        line = at + 1 + self.added
        notes = [note] if note else []
        if 0 < hunk.trailing < hunk.leading and at + len(hunk.old) != len(self.image.lines):
            notes.append(
                "fewer lines of context after the change than before it, not at the end of the file"
            )
        outside = names_definition(hunk.heading) and not lies_in(self.image.heads, at, hunk)
        if outside:
            notes.append(f"not in '{_text(hunk.heading)}', which the hunk names")
        placement = Offset(line, by) if by else Exact(line)
        return Placed(hunk, placement, at, "; ".join(notes), outside, False, True)

    def _already(self, hunk: Hunk, at: int) -> Placed:
        return Placed(hunk, AlreadyApplied(at + 1 + self.added), at)

    # -- matching -------------------------------------------------------------------------------

    def _stands(self, hunk: Hunk, side: list[bytes], at: int) -> bool:
        return (
            at >= 0 and self.image.lines[at : at + len(side)] == side and self._tied(hunk, side, at)
        )

    def _tied(self, hunk: Hunk, side: list[bytes], at: int) -> bool:
        """Whether the ends of the file are where the hunk says they are."""
        if at + len(side) != len(self.image.lines) and (
            (hunk.trailing == 0 and hunk.leading > 0)
            # Without this, -U0 could end a line without a newline in the middle of the file.
            or (hunk.new and not hunk.new[-1].endswith(b"\n"))
        ):
            return False
        return not (hunk.leading < hunk.trailing and hunk.old_start <= 1 and at != 0)

    def _fitting(self, hunk: Hunk, side: list[bytes]) -> list[int]:
        return [at for at in self.image.places(side, self.floor) if self._tied(hunk, side, at)]

    def _inside_copy(self, hunk: Hunk, at: int) -> int:
        """Where a copy of the new side stands around the old side at ``at``; -1 if nowhere."""
        room = len(hunk.new) - len(hunk.old)
        for shift in range(room + 1):
            if at - shift < 0:
                break
            if hunk.new[shift : shift + len(hunk.old)] == hunk.old and self._stands(
                hunk, hunk.new, at - shift
            ):
                return at - shift
        return -1

    # -- what does not fit ----------------------------------------------------------------------

    def _fuzzy(self, hunk: Hunk, guess: int) -> Placed | None:
        """GNU patch's rule: ``fuzz`` lines off the longer end, and off the other what is over."""
        context = max(hunk.leading, hunk.trailing)
        for fuzz in range(1, min(MAX_FUZZ, context) + 1):
            head = fuzz + hunk.leading - context
            tail = fuzz + hunk.trailing - context
            kept = hunk.old[max(head, 0) : len(hunk.old) - max(tail, 0)]
            if not kept:
                return None
            places = [
                at - max(head, 0)
                for at in self.image.places(kept, self.floor + max(head, 0))
                if (head >= 0 or hunk.old_start > 1 or at == 0)
                and (tail >= 0 or at + len(kept) == len(self.image.lines))
            ]
            if places:
                at = _nearest(places, guess)
                return Placed(hunk, Fuzzy(at + 1 + self.added, fuzz), at)
        return None

    def _conflict(self, image: Image, hunk: Hunk, guess: int) -> Placed:
        self.searched += 1
        votes = image.votes(hunk.old) if self.searched <= MAX_SEARCHED else {}
        at, best = guess, votes.get(guess, 0)
        for spot, count in sorted(votes.items()):
            nearer = abs(spot - guess) < abs(at - guess)
            if spot >= 0 and (count > best or (count == best and nearer)):
                at, best = spot, count
        if not best:
            at = min(max(guess, 0), max(len(image.lines) - 1, 0))
            return Placed(hunk, Conflict(0), at)
        return Placed(hunk, Conflict(max(at, 0) + 1 + self.added), at)


def _start(hunk: Hunk) -> int:
    """The index that the header states for the hunk's first line."""
    return hunk.old_start - 1 if hunk.old else hunk.old_start


def _nearest(places: list[int], guess: int) -> int:
    """The place nearest to ``guess``; of two the lower one, as in GNU patch."""
    return min(places, key=lambda at: (abs(at - guess), -at))


def _text(heading: bytes) -> str:
    return heading.decode("utf-8", "backslashreplace")
