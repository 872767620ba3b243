"""Upstream's commits behind a triage: which touched a hunk's lines, and which would be lost.

History is asked by a function that is handed in; here is only what to ask for and what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from hq.patchwork.patch import Hunk
from hq.patchwork.place import Image
from hq.port.replay import Replay
from hq.port.retire import NamedCommit, names
from hq.port.tree import Tree, same_file


class Commit(Protocol):
    """A commit: its full id and its first line."""

    @property
    def id(self) -> str:
        """Forty digits."""
        ...

    @property
    def subject(self) -> str:
        """The first line of its message."""
        ...


class History(Protocol):
    """Upstream's history between the two releases."""

    def touching(self, path: str, first: int, last: int) -> Sequence[Commit]:
        """Commits of the new release that touched these lines (of the new file), newest first."""
        ...

    def lost(self, path: str) -> Sequence[Commit]:
        """Commits of the old release to a file that the new one has not, newest first."""
        ...

    def between(self) -> Sequence[Commit]:
        """Every commit that the new release has and the old one has not."""
        ...


class Touched(NamedTuple):
    """A file of a patch: ``commits`` with the hunks they touch, ``lost`` ones."""

    patch: str
    path: str
    commits: tuple[tuple[Commit, tuple[int, ...]], ...]
    lost: tuple[Commit, ...]


def touched(old: Tree, new: Tree, after: Replay, history: History) -> Iterator[Touched]:
    """The commits behind every file that a patch changes and that upstream changed."""
    for tried in after.tried:
        for report in tried.outcome.files:
            path = report.path
            if same_file(old, new, path) or not old.digest(path):
                continue
            lost = tuple(history.lost(path))
            found: dict[Commit, list[int]] = {}
            file = new.read(path)
            lines = file.data.splitlines(keepends=True) if file is not None else []
            for placed in report.hunks:
                first, last = stands_at(Image(lines), placed.hunk)
                if first:
                    for commit in history.touching(path, first, last):
                        found.setdefault(commit, []).append(placed.hunk.n)
            rows = tuple((commit, tuple(hunks)) for commit, hunks in found.items())
            if rows or lost:
                yield Touched(tried.step.name, path, rows, lost)


def stands_at(image: Image, hunk: Hunk) -> tuple[int, int]:
    """The lines, from 1, of a file that are most like what a hunk expects; zeros without any."""
    votes = image.votes(hunk.old)
    if not votes:
        return 0, 0
    most = max(votes.values())
    spots = [spot for spot, count in votes.items() if count == most]
    spot = min(spots, key=lambda one: abs(one + 1 - hunk.old_start))
    first = max(spot + 1, 1)
    return first, min(max(spot + len(hunk.old), first), len(image.lines))


def named(after: Replay, commits: Sequence[Commit]) -> Mapping[str, NamedCommit]:
    """The commits that headers of patches name, by the name they use."""
    wanted = {name for tried in after.tried for name in names(tried.patch)}
    found: dict[str, NamedCommit] = {}
    for commit in commits:
        for name in wanted:
            number = name.startswith("#") and f"({name})" in commit.subject
            if number or (not name.startswith("#") and commit.id.startswith(name)):
                found.setdefault(name, NamedCommit(commit.id, commit.subject, name))
    return found
