"""A series as a branch of a fork of upstream, and a branch as a series.

``export`` writes one patch for each commit of a range, ``import_`` makes a commit for each patch,
and ``check`` proves that the tree which a build patches and the branch's are the same, byte for
byte, or names the first difference. Only files below the wheel's packages count: a fork's tests and
build files are no part of a wheel. The working tree of the clone is never touched.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from hq.app.port_state import write_file
from hq.app.port_steps import steps_of
from hq.app.port_trees import Trees
from hq.app.session import Session
from hq.model.errors import BuildError, Location, UsageError
from hq.patchwork.apply import File, apply_patch, split_lines
from hq.patchwork.explain import failure
from hq.patchwork.names import show
from hq.patchwork.parse import parse_patch
from hq.port.diffs import with_header
from hq.port.replay import PatchStep, replay
from hq.port.topics import Topic, message, topic
from hq.transfer.git_worktree import Commit, Git, diff_files


class Exported(NamedTuple):
    """A series that was written: patch names in order, and paths that are no part of a wheel."""

    folder: str
    patches: tuple[str, ...]
    left_out: tuple[str, ...]


class Difference(NamedTuple):
    """The first place at which the built tree and the branch differ. ``line`` is 0 for a file."""

    path: str
    line: int
    built: str
    branch: str


class Checked(NamedTuple):
    """How many files were compared, and the first difference, if there is one."""

    files: int
    first: Difference | None
    different: tuple[str, ...]


def export(
    session: Session, fork: str, first: str, last: str, into: str, pin: str = ""
) -> Exported:
    """Writes the commits after ``first`` up to ``last`` as a series. Raises ``HqError``."""
    if os.path.lexists(into) and (not os.path.isdir(into) or os.listdir(into)):
        raise UsageError(
            "the series goes into a new or an empty folder; this one is taken",
            where=Location(into), hint="give --into another name",
        )  # fmt: skip
    git = _clone(fork)
    tops = _tops(session, pin)
    files: dict[str, bytes] = {}
    names: list[str] = []
    left_out: set[str] = set()
    for number, commit in enumerate(git.commits(first, last), 1):
        paths = git.changed_between(f"{commit}^", commit)
        own = [path for path in paths if path.partition("/")[0] in tops]
        left_out.update(set(paths) - set(own))
        if not own:
            continue
        made = topic(git.message(commit), number)
        if made.name in files:
            raise BuildError(
                f"two commits are called {made.name}",
                where=Location(fork), hint="give each its own 'Patch:' line",
            )  # fmt: skip
        before = {path: git.file(f"{commit}^", path) for path in own}
        after = {path: git.file(commit, path) for path in own}
        files[made.name] = with_header(made.preamble, diff_files(before, after))
        names.append(made.name)
    series = "".join(f"{name} -p1\n" for name in names)
    for name, data in files.items():
        write_file(os.path.join(into, name), data)
    write_file(os.path.join(into, "series"), series.encode())
    return Exported(into, tuple(names), tuple(sorted(left_out)))


def import_(session: Session, fork: str, onto: str, branch: str, pin: str = "") -> str:
    """Makes ``branch`` from ``onto`` with a commit for each patch; returns its tip.

    Raises ``HqError``, among it what a build says where a patch does not apply to the fork's files.
    """
    git = _clone(fork)
    base = git.commit_id(onto)
    spec = session.spec(pin)
    changes: dict[str, File | None] = {}

    def read(path: str) -> File | None:
        if path not in changes:
            return git.file(base, path)
        return changes[path]

    commits: list[Commit] = []
    for step in steps_of(session, spec):
        if not isinstance(step, PatchStep) or step.group != "series":
            continue
        patch = parse_patch(step.data, step.name)
        outcome = apply_patch(patch, read, step.strip, step.reverse)
        error = failure(outcome, step.file)
        if error is not None:
            raise error
        changes.update(outcome.changes)
        data = {path: None if file is None else file.data for path, file in outcome.changes.items()}
        kinds = {path: file.kind for path, file in outcome.changes.items() if file is not None}
        commits.append(Commit(message(Topic(step.name, patch.preamble)), data, kinds))
    return git.commit_branch(branch, commits, base)


def check(session: Session, fork: str, branch: str, base: str = "", pin: str = "") -> Checked:
    """Holds the patched tree of a pin against a branch; ``base``: where it began (its tag)."""
    git = _clone(fork)
    tip = git.commit_id(branch)
    spec = session.spec(pin)
    begin = git.commit_id(base or f"v{spec.pin}")
    tops = _tops(session, pin)
    steps = [
        step
        for step in steps_of(session, spec)
        if isinstance(step, PatchStep) and step.group == "series"
    ]
    with Trees(session) as trees:
        done = replay(trees.of_pin(spec.pin), steps)
        for tried in done.tried:
            error = failure(tried.outcome, tried.step.file)
            if error is not None:
                raise error
        theirs = {p for p in git.changed_between(begin, tip) if p.partition("/")[0] in tops}
        paths = sorted(theirs | set(done.view.changes))
        found = [(path, done.view.read(path), git.file(tip, path)) for path in paths]
    different = [_difference(*row) for row in found if row[1] != row[2]]
    names = tuple(one.path for one in different)
    return Checked(len(paths), different[0] if different else None, names)


def _difference(path: str, built: File | None, branch: File | None) -> Difference:
    if built is None or branch is None or built.kind != branch.kind:
        return Difference(path, 0, _what(built), _what(branch))
    left, right = split_lines(built.data), split_lines(branch.data)
    number = next(
        (n for n, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
        min(len(left), len(right)),
    )
    return Difference(path, number + 1, _line(left, number), _line(right, number))


def _what(file: File | None) -> str:
    if file is None:
        return "no such file"
    return {"f": "a file", "x": "an executable file", "l": "a symlink"}.get(file.kind, file.kind)


def _line(lines: list[bytes], number: int) -> str:
    if number >= len(lines):
        return "(the file ends)"
    return show(lines[number].decode("utf-8", "surrogateescape").rstrip("\n"))


def _clone(fork: str) -> Git:
    git = Git(fork)
    if git.prefix() is None:
        raise UsageError(
            "there is no git repository", where=Location(fork), hint="give --fork CLONE"
        )
    return git


def _tops(session: Session, pin: str) -> frozenset[str]:
    """The wheel's top-level folders, its metadata left out."""
    with Trees(session) as trees:
        tree = trees.of_pin(session.spec(pin).pin)
        found = {path.partition("/")[0] for path in tree.paths() if "/" in path}
    return frozenset(name for name in found if not name.endswith((".dist-info", ".data")))


def export_text(done: Exported) -> str:
    """What an export wrote, for people."""
    lines = [f"{done.folder}: {len(done.patches)} patches"]
    if done.left_out:
        lines.append(f"{len(done.left_out)} files are no part of the wheel: {done.left_out[0]} …")
    return "\n".join(lines)


def check_text(done: Checked) -> str:
    """What a check found, for people."""
    first = done.first
    if first is None:
        return f"the built tree and the branch are the same: {done.files} changed files"
    place = f"{first.path}:{first.line}" if first.line else first.path
    return (
        f"{len(done.different)} of {done.files} changed files differ, the first at {place}\n"
        f"  built   {first.built}\n  branch  {first.branch}"
    )
