"""One patch carried from an old tree to a new one: a 3-way merge of every file it changes.

For the patch at its place in the series, *base* is the old release with the patches before it,
*ours* the same with the patch, *theirs* the new release with the patches before it as they were
carried over. So a merge sees what upstream changed and what this patch changes, and nothing twice.

A file that upstream moved is merged at its new place. A merge that leaves nothing of the patch is
told (``absorbed``); whether the patch may go is for a person to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from hq.patchwork.apply import File, split_lines
from hq.patchwork.patch import Hunk
from hq.port.moves import find_move
from hq.port.replay import Tried, body
from hq.port.tree import Tree, View

Outcome = Literal["clean", "conflict", "absorbed"]


class Text(NamedTuple):
    """A merge: with ``conflicts`` the data has markers."""

    data: bytes
    conflicts: int


Merge = Callable[[bytes, bytes, bytes], Text]
"""Base, ours, theirs."""


class FileMerge(NamedTuple):
    """A file after the merge. ``path`` in the new tree, ``was`` in the old one.

    ``outcome``: ``clean``, ``conflict``, or ``absorbed`` when it is as the new tree has it already.
    ``note``: why, where it is no ordinary merge.
    """

    path: str
    was: str
    outcome: Outcome
    file: File | None
    note: str = ""


class Attempt(NamedTuple):
    """A patch on the new tree."""

    files: tuple[FileMerge, ...]

    @property
    def conflicts(self) -> tuple[FileMerge, ...]:
        """The files that need a person."""
        return tuple(one for one in self.files if one.outcome == "conflict")

    @property
    def is_absorbed(self) -> bool:
        """Whether nothing is left of the patch."""
        return bool(self.files) and all(one.outcome == "absorbed" for one in self.files)

    @property
    def moved(self) -> dict[str, str]:
        """Each file's path in the new tree by its path in the old one."""
        return {one.was: one.path for one in self.files}

    @property
    def changes(self) -> dict[str, File | None]:
        """The clean files, by path in the new tree."""
        return {one.path: one.file for one in self.files if one.outcome == "clean"}


class Rebase:
    """Merges of one port. ``merge`` is the 3-way merge of two changes of a text."""

    def __init__(self, old: Tree, new: Tree, merge: Merge) -> None:
        self._old = old
        self._new = new
        self._merge = merge
        self._moves: dict[str, str] = {}

    def attempt(self, tried: Tried, base: View, theirs: View) -> Attempt:
        """Carries a patch that applied to ``base`` over to ``theirs``. Neither is changed."""
        return Attempt(
            tuple(
                self._file(path, base.read(path), ours, theirs)
                for path, ours in sorted(tried.outcome.changes.items())
            )
        )

    def _file(self, was: str, base: File | None, ours: File | None, theirs: View) -> FileMerge:
        path = self._place(was, theirs) if base is not None else was
        there = theirs.read(path)
        if base is None:
            assert ours is not None
            return self._created(path, was, ours, there)
        if ours is None:
            return self._deleted(path, was, base, there)
        if there is None:
            note = "the patch changes it, and the new tree has no such file"
            return FileMerge(path, was, "conflict", ours, note)
        return self._edited(path, was, base, ours, there)

    def _place(self, path: str, theirs: View) -> str:
        if theirs.read(path) is not None:
            return path
        if path not in self._moves:
            moved = find_move(self._old, self._new, path)
            self._moves[path] = moved.path if moved is not None else path
        return self._moves[path]

    def _created(self, path: str, was: str, ours: File, there: File | None) -> FileMerge:
        if there is None:
            return FileMerge(path, was, "clean", ours)
        if there.data == ours.data:
            return FileMerge(path, was, "absorbed", there)
        text = self._merge(b"", ours.data, there.data)
        note = "the patch creates it, and the new tree has a file of this name"
        return FileMerge(path, was, "conflict", File(ours.kind, text.data), note)

    def _deleted(self, path: str, was: str, base: File, there: File | None) -> FileMerge:
        if there is None:
            return FileMerge(path, was, "absorbed", None)
        if there.data == base.data:
            return FileMerge(path, was, "clean", None)
        note = "the patch deletes it, and upstream changed it"
        return FileMerge(path, was, "conflict", there, note)

    def _edited(self, path: str, was: str, base: File, ours: File, there: File) -> FileMerge:
        kind = ours.kind if ours.kind != base.kind else there.kind
        if there.data == base.data:
            text = Text(ours.data, 0)
        else:
            text = self._merge(base.data, ours.data, there.data)
        if text.conflicts:
            return FileMerge(path, was, "conflict", File(kind, text.data))
        merged = File(kind, text.data)
        note = f"upstream moved {was} here" if path != was else ""
        return FileMerge(path, was, "absorbed" if merged == there else "clean", merged, note)


def absorbed_hunks(
    tried: Tried, before: View, changes: Mapping[str, File | None], moved: Mapping[str, str]
) -> Iterator[tuple[str, Hunk]]:
    """Hunks of a patch of which a merge left nothing, with their files: the new tree has them.

    ``before``: the new tree below the patch; ``changes``: what the merge makes of it; ``moved``:
    each file's path in the new tree.
    """
    text = split_lines(tried.step.data)
    for report in tried.outcome.files:
        path = moved.get(report.path, report.path)
        file = changes.get(path)
        if path in changes and file is None:
            continue
        old = Counter(split_lines(before.data(path)))
        new = Counter(split_lines(file.data if file is not None else before.data(path)))
        added, removed = new - old, old - new
        for placed in report.hunks:
            if not _leaves_something(text, placed.hunk, added, removed, tried.step.reverse):
                yield path, placed.hunk


def _leaves_something(
    text: Sequence[bytes],
    hunk: Hunk,
    added: Counter[bytes],
    removed: Counter[bytes],
    reverse: bool,
) -> bool:
    counted = {"+": added, "-": removed}
    lines = [
        (sign, text[number - 1][1:])
        for sign, number in body(list(text), hunk, reverse)
        if sign != " "
    ]
    telling = [(sign, line) for sign, line in lines if line.strip()] or lines
    return any(line in counted[sign] for sign, line in telling)
