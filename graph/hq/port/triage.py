"""The three lists of a port: what fails, what is doubtful, and what is clean on moved ground.

``fails``     hunks that stand nowhere, and patches that fail as a whole
``doubtful``  hunks with a place that is no proof: only with context ignored, one of several, there
              already, far from where it should be, or outside the definition that the hunk names
``moved``     hunks that apply, in a file that upstream changed between the two releases

The first list is visible to any tool. In the third lie the silent faults: a patch that applies
cleanly and whose premise is gone. Its rows say how much of the file and of the functions around the
hunks changed, and who calls those functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from hq.model.errors import Location
from hq.patchwork.apply import FileReport, split_lines, verdict
from hq.patchwork.names import show
from hq.patchwork.place import (
    AlreadyApplied,
    Ambiguous,
    Exact,
    Fuzzy,
    Offset,
    Placed,
    TargetMissing,
)
from hq.patchwork.report import outcome_name
from hq.port.corpus import Corpus, Place
from hq.port.moves import find_move
from hq.port.outline import (
    Definition,
    change_size,
    enclosing,
    file_change,
    named,
    outline,
    text_of,
)
from hq.port.replay import PatchStep, Replay, Step, Tried, replay
from hq.port.tree import Tree, same_file

LARGE_OFFSET: Final = 100
SHOWN_CALLERS: Final = 3

List = Literal["fails", "doubtful", "clean"]


class HunkRow(NamedTuple):
    """A hunk on the new tree. ``n`` is 0 for a section that fails as a whole.

    ``where``: its header in the patch file; ``outcome`` as in ``hq.series/1``; ``text``: the
    verdict as the predicate of a sentence.
    """

    patch: str
    where: Location
    path: str
    n: int
    list: List
    outcome: str
    line: int
    offset: int
    fuzz: int
    text: str


class Change(NamedTuple):
    """A definition around a hunk: how upstream changed it, and who calls it.

    ``old`` and ``new``: its first line in each release, 0 where it is not. ``callers`` counts;
    ``called`` shows the first few.
    """

    name: str
    added: int
    removed: int
    old: int
    new: int
    callers: int
    called: tuple[Place, ...]


class Ground(NamedTuple):
    """A file that a patch stands in and that upstream changed; ``hunks`` that apply in it."""

    patch: str
    path: str
    hunks: tuple[int, ...]
    added: int
    removed: int
    definitions: tuple[Change, ...]

    @property
    def weight(self) -> tuple[int, int]:
        """Changed lines of the definitions around the hunks, then of the file."""
        return sum(d.added + d.removed for d in self.definitions), self.added + self.removed


class PatchRow(NamedTuple):
    """A patch: ``outcome`` of the whole; ``reason``: why it did not apply, else empty.

    ``behind``: patches before it that did not apply and that change a file of its own.
    """

    name: str
    file: str
    group: str
    outcome: str
    reason: str
    hunks: int
    behind: tuple[str, ...]


class Missing(NamedTuple):
    """A file that a patch changes and that the new tree has not; ``moved`` where it seems to be."""

    patch: str
    path: str
    moved: str


class Triage(NamedTuple):
    """The lists, each in the order of the series; ``moved`` by weight."""

    old: str
    new: str
    patches: tuple[PatchRow, ...]
    hunks: tuple[HunkRow, ...]
    moved: tuple[Ground, ...]
    missing: tuple[Missing, ...]
    taken: tuple[str, ...]

    def of(self, name: List) -> tuple[HunkRow, ...]:
        """The hunks of one list."""
        return tuple(row for row in self.hunks if row.list == name)


def triage(
    old: Tree,
    new: Tree,
    steps: Sequence[Step],
    corpus: Callable[[], Corpus],
    large: int = LARGE_OFFSET,
    done: Replay | None = None,
) -> Triage:
    """Tries ``steps`` on ``new``; ``corpus`` gives the Python of ``new``, asked for if needed.

    ``done``: the replay on ``new``, if it is there already.
    """
    after = done or replay(new, steps)
    judge = _Judge(old, new, after, corpus, large)
    return Triage(
        old.version,
        new.version,
        tuple(_patch_rows(after.tried)),
        tuple(row for tried in after.tried for row in judge.hunks(tried)),
        judge.grounds(),
        tuple(judge.missing()),
        tuple(step.path for step in after.taken),
    )


def _patch_rows(tried: Sequence[Tried]) -> Iterator[PatchRow]:
    failed: list[Tried] = []
    for one in tried:
        outcome = one.outcome
        touched = set(one.touched)
        behind = tuple(other.step.name for other in failed if touched & set(other.touched))
        hunks = sum(len(section.hunks) for section in one.patch.sections)
        yield PatchRow(
            one.step.name, one.step.file, one.step.group,
            outcome.outcome, outcome.reason, hunks, behind,
        )  # fmt: skip
        if not one.applied:
            failed.append(one)


class _Judge:
    def __init__(
        self, old: Tree, new: Tree, after: Replay, corpus: Callable[[], Corpus], large: int
    ) -> None:
        self._old = old
        self._new = new
        self._after = after
        self._corpus = corpus
        self._large = large
        self._outlines: dict[bytes, tuple[Definition, ...]] = {}
        self._callers: dict[str, tuple[int, list[Place]]] = {}

    # -- hunks ----------------------------------------------------------------------------------

    def hunks(self, tried: Tried) -> Iterator[HunkRow]:
        step = tried.step
        outcome = tried.outcome
        if not outcome.files and outcome.outcome == "refused":
            yield self._whole(step, "", outcome.line, outcome.reason)
        for report in outcome.files:
            if report.trouble is not None and not report.hunks:
                yield self._whole(step, report.path, report.trouble.line, report.trouble.message)
            for placed in report.hunks:
                yield self._hunk(step, report, placed)

    def _whole(self, step: PatchStep, path: str, line: int, text: str) -> HunkRow:
        place = Location(step.file, line)
        return HunkRow(step.name, place, path, 0, "fails", "refused", 0, 0, 0, text)

    def _hunk(self, step: PatchStep, report: FileReport, placed: Placed) -> HunkRow:
        name, line, offset, fuzz, text = self._judged(placed)
        where = Location(step.file, placed.hunk.line)
        outcome = outcome_name(placed.placement)
        return HunkRow(
            step.name, where, report.path, placed.hunk.n, name, outcome, line, offset, fuzz, text
        )

    def _judged(self, placed: Placed) -> tuple[List, int, int, int, str]:
        text = verdict(placed)
        match placed.placement:
            case Exact(line):
                doubtful = placed.outside
                return ("doubtful" if doubtful else "clean"), line, 0, 0, _noted(text, placed)
            case Offset(line, by):
                doubtful = placed.outside or abs(by) > self._large
                return ("doubtful" if doubtful else "clean"), line, by, 0, _noted(text, placed)
            case Fuzzy(line, fuzz):
                return "doubtful", line, 0, fuzz, text
            case Ambiguous(candidates):
                return "doubtful", candidates[0], 0, 0, text
            case AlreadyApplied(line):
                return "doubtful", line, 0, 0, text
            case TargetMissing():
                return "fails", 0, 0, 0, text
            case _:
                nearest = placed.placement.nearest
                near = f"; most alike at line {nearest}" if nearest else ""
                return "fails", nearest, 0, 0, f"{text}{near}"

    # -- ground ---------------------------------------------------------------------------------

    def grounds(self) -> tuple[Ground, ...]:
        rows: list[Ground] = []
        for tried in self._after.tried:
            rows += self._ground_of(tried)
        return tuple(sorted(rows, key=lambda row: row.weight, reverse=True))

    def _ground_of(self, tried: Tried) -> Iterator[Ground]:
        for report in tried.outcome.files:
            path = report.path
            landed = [placed for placed in report.hunks if placed.lands]
            there = self._old.digest(path) and self._new.digest(path)
            if not landed or not there or same_file(self._old, self._new, path):
                continue
            before, after = self._text(self._old, path), self._text(self._new, path)
            added, removed = file_change(before, after)
            names = self._names(report, landed)
            changes = tuple(self._change(name, before, after) for name in names)
            hunks = tuple(placed.hunk.n for placed in landed)
            yield Ground(tried.step.name, path, hunks, added, removed, changes)

    def _names(self, report: FileReport, landed: Sequence[Placed]) -> list[str]:
        """Definitions around the changes, in the file as the patch found it."""
        found = self._outline(b"".join(report.lines))
        names: dict[str, None] = {}
        for placed in landed:
            hunk = placed.hunk
            first = placed.at + hunk.leading + 1
            last = max(first, placed.at + len(hunk.old) - hunk.trailing)
            for line in {max(1, first - 1), first, last}:
                around = enclosing(found, line)
                if around is not None:
                    names[around.name] = None
        return sorted(names)

    def _change(self, name: str, before: bytes, after: bytes) -> Change:
        old, new = named(self._outline(before), name), named(self._outline(after), name)
        left = text_of(split_lines(before), old) if old else []
        right = text_of(split_lines(after), new) if new else []
        added, removed = change_size(left, right)
        count = 0
        called: tuple[Place, ...] = ()
        if (added or removed) and (new or old):
            simple = (new or old or Definition(name, 0, 0, False)).simple
            count, places = self._calls(simple)
            called = tuple(places)
        return Change(
            name, added, removed, old.first if old else 0, new.first if new else 0, count, called
        )

    def _calls(self, simple: str) -> tuple[int, list[Place]]:
        if simple not in self._callers:
            self._callers[simple] = self._corpus().calls(simple, SHOWN_CALLERS)
        return self._callers[simple]

    def _outline(self, data: bytes) -> tuple[Definition, ...]:
        if data not in self._outlines:
            self._outlines[data] = outline(data)
        return self._outlines[data]

    def _text(self, tree: Tree, path: str) -> bytes:
        file = tree.read(path)
        return file.data if file is not None else b""

    # -- files ----------------------------------------------------------------------------------

    def missing(self) -> Iterator[Missing]:
        for tried in self._after.tried:
            for report in tried.outcome.files:
                if not any(isinstance(p.placement, TargetMissing) for p in report.hunks):
                    continue
                moved = find_move(self._old, self._new, report.path)
                yield Missing(tried.step.name, show(report.path), moved.path if moved else "")


def _noted(text: str, placed: Placed) -> str:
    return f"{text} ({placed.note})" if placed.note else text
