"""The steps of a port on a tree, in order: what became of each, and who wrote which line.

A step is a patch or a new file. A patch that does not apply is left out whole, and those after it
are tried on top of the ones that did. For every file that changes, each line of the result keeps
its origin: the patch and the line in it (a new file: the line itself), or ``None`` for upstream's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hq.patchwork.apply import File, FileReport, Lines, PatchOutcome, apply_patch, split_lines
from hq.patchwork.parse import parse_patch
from hq.patchwork.patch import Hunk, Patch
from hq.patchwork.place import AlreadyApplied
from hq.patchwork.target import touched_paths
from hq.port.tree import Tree, View


class PatchStep(NamedTuple):
    """A patch of a series. ``group``: ``series``, or ``overlay:NAME``; ``file``: its path."""

    name: str
    file: str
    data: bytes
    strip: int = 1
    reverse: bool = False
    group: str = "series"


class FileStep(NamedTuple):
    """A file that is copied to ``path`` of the tree; ``file``: where it comes from."""

    path: str
    file: str
    data: bytes
    group: str = ""


Step = PatchStep | FileStep


class Origin(NamedTuple):
    """Who wrote a line: the file of a step and the line in it, from 1."""

    file: str
    line: int


class Tried(NamedTuple):
    """A patch that was tried. ``touched``: every path that its outcome depends on."""

    step: PatchStep
    patch: Patch
    outcome: PatchOutcome
    touched: tuple[str, ...]

    @property
    def applied(self) -> bool:
        """Whether it is in the result."""
        return self.outcome.outcome == "applied"


class Replay(NamedTuple):
    """What the steps made of a tree.

    ``origins``: for each changed file of the result one entry a line. ``taken``: paths at which a
    new file would stand over one of the tree's.
    """

    tree: Tree
    tried: tuple[Tried, ...]
    view: View
    origins: dict[str, list[Origin | None]]
    taken: tuple[FileStep, ...]


def replay(tree: Tree, steps: Iterable[Step], strict: bool = False) -> Replay:
    """Takes the steps in order. The tree is only read; nothing is raised for what a step holds."""
    run = _Run(tree, strict)
    for step in steps:
        if isinstance(step, FileStep):
            run.copy(step)
        else:
            run.patch(step)
    return Replay(tree, tuple(run.tried), run.view, run.origins, tuple(run.taken))


class _Run:
    def __init__(self, tree: Tree, strict: bool) -> None:
        self.view = View(tree)
        self.tried: list[Tried] = []
        self.origins: dict[str, list[Origin | None]] = {}
        self.taken: list[FileStep] = []
        self._lines = Lines()
        self._strict = strict

    def copy(self, step: FileStep) -> None:
        if self.view.read(step.path) is not None:
            self.taken.append(step)
        self.view.changes[step.path] = File("f", step.data)
        count = len(split_lines(step.data))
        self.origins[step.path] = [Origin(step.file, line) for line in range(1, count + 1)]

    def patch(self, step: PatchStep) -> None:
        patch = parse_patch(step.data, step.name)
        outcome = apply_patch(
            patch, self.view.read, step.strip, step.reverse, self._strict, self._lines
        )
        touched = touched_paths(patch, step.strip, step.reverse)
        self.tried.append(Tried(step, patch, outcome, touched))
        if outcome.outcome != "applied":
            return
        before = {path: self._count(path) for path in outcome.changes}
        text = split_lines(step.data)
        for report in outcome.files:
            self._credit(step, text, report, before)
        self.view.changes.update(outcome.changes)
        self._settle(outcome)

    def _count(self, path: str) -> int:
        return len(split_lines(self.view.data(path)))

    def _credit(
        self, step: PatchStep, text: list[bytes], report: FileReport, before: dict[str, int]
    ) -> None:
        path = report.path
        old = self.origins.get(path) or [None] * before.get(path, 0)
        new: list[Origin | None] = []
        at = 0
        for placed in report.hunks:
            if not placed.lands or isinstance(placed.placement, AlreadyApplied):
                continue
            new += old[at : placed.at]
            at = placed.at
            for sign, line in body(text, placed.hunk, step.reverse):
                if sign == "+":
                    new.append(Origin(step.file, line))
                    continue
                if sign == " ":
                    new.append(old[at] if at < len(old) else None)
                at += 1
        self.origins[path] = new + old[at:]

    def _settle(self, outcome: PatchOutcome) -> None:
        """Makes the origins fit the result where a patch moved or removed files."""
        for path, file in outcome.changes.items():
            if file is None:
                self.origins.pop(path, None)
                continue
            count = self._count(path)
            found = self.origins.get(path)
            if found is None or len(found) != count:
                source = next((r.path for r in outcome.files if r.path in self.origins), "")
                moved = self.origins.get(source, [])
                self.origins[path] = moved if len(moved) == count else [None] * count


def body(text: list[bytes], hunk: Hunk, reverse: bool = False) -> Iterator[tuple[str, int]]:
    """A hunk's lines as (sign, line of the patch file): ``" "``, ``"-"`` or ``"+"``."""
    old, new = (len(hunk.new), len(hunk.old)) if reverse else (len(hunk.old), len(hunk.new))
    swap = {"-": "+", "+": "-"} if reverse else {}
    at = hunk.line
    while (old or new) and at < len(text):
        sign = chr(text[at][0]) if text[at].rstrip(b"\r\n") else " "
        at += 1
        if sign == "\\":
            continue
        old -= sign in " -"
        new -= sign in " +"
        yield swap.get(sign, sign), at
