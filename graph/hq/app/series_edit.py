"""``hq series edit``, ``new`` and ``refresh``: a patch of a series as a git work tree.

The work tree holds the distribution as the patches below leave it, a commit for each of them, and
the patch itself as changes on top, so ``git diff`` shows it. ``refresh`` makes the patch again from
all that differs from where the edit began, committed or not. Files larger than a mebibyte (compiled
objects) are left out.

``refresh`` writes the patch that was edited, whatever that means for those above it: they are
tried, and what no longer applies is told and stays as it is on disk. With ``later`` those that
merge are made again as well.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hq.app.config import read_project
from hq.app.folder import ProjectFolder
from hq.app.port_state import own_folder, read_file, write_file
from hq.app.port_steps import steps_of
from hq.app.port_trees import Trees, WheelTree
from hq.app.session import Session
from hq.app.validate import did_you_mean
from hq.model.digest import Digest
from hq.model.errors import BuildError, InfrastructureError, Location, UsageError
from hq.model.project import PinSpec
from hq.patchwork.apply import File, PatchOutcome, apply_patch
from hq.patchwork.explain import failure
from hq.patchwork.parse import parse_patch
from hq.patchwork.place import Exact
from hq.port.diffs import regenerated, with_header
from hq.port.rebase import Rebase, Text
from hq.port.replay import FileStep, PatchStep, Step, Tried, replay
from hq.port.tree import View
from hq.transfer.git_worktree import (
    Layer,
    apply_what_fits,
    changed_files,
    diff_files,
    make_repository,
    merge_texts,
)

SCHEMA = "hq.edit/1"
LARGEST = 1 << 20
_NOTE = ".git/hq.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\Z")


class Edit(NamedTuple):
    """A work tree: ``fits`` is false when the patch did not apply whole; see the ``.rej`` files."""

    name: str
    folder: str
    commits: int
    left_out: tuple[str, ...]
    fits: bool


class Later(NamedTuple):
    """A patch above the one that was refreshed.

    ``outcome``: ``exact``, ``offset``, ``remade`` (written again) or ``fails``, with a reason.
    """

    name: str
    outcome: str
    reason: str


class Refreshed(NamedTuple):
    """A patch made again: its file, whether it changed, and those above it."""

    file: str
    changed: bool
    added_to: str
    later: tuple[Later, ...]

    @property
    def is_clean(self) -> bool:
        """Whether the series applies."""
        return all(row.outcome != "fails" for row in self.later)


def edit(session: Session, name: str, pin: str = "", into: str = "") -> Edit:
    """A work tree for a patch of a pin's series or overlays. Raises ``HqError``."""
    spec = session.spec(pin)
    steps = steps_of(session, spec)
    number = _find(steps, name)
    step = steps[number]
    assert isinstance(step, PatchStep)
    if step.strip != 1 or step.reverse:
        raise UsageError(
            f"{step.file} is applied with options other than -p1",
            where=Location(spec.series_file),
            hint="hq writes patches for -p1; turn this one into such a patch first",
        )
    folder = _folder(session, into, _stem(step.name))
    note = _note(spec, steps, number, step.name, step.file)
    return _lay_out(session, spec, steps[:number], folder, note, step)


def new(session: Session, name: str, pin: str = "", into: str = "", after: str = "") -> Edit:
    """A work tree for a patch that ``refresh`` will add, at the end of the series or after one."""
    spec = session.spec(pin)
    steps = steps_of(session, spec)
    stem = _stem(name)
    if not _NAME.match(stem):
        raise UsageError(
            f"{name!r} is no name for a patch", hint="use letters, digits, dots and hyphens"
        )
    series = [n for n, s in enumerate(steps) if isinstance(s, PatchStep) and s.group == "series"]
    if stem in [_stem(step.name) for step in steps if isinstance(step, PatchStep)]:
        raise UsageError(f"there is a patch {stem} already", hint=f"hq series edit {stem}")
    number = (_find(steps, after) if after else max(series, default=-1)) + 1
    if number and number - 1 not in series:
        raise UsageError(f"{after} is no patch of {spec.series_file}")
    folder = _folder(session, into, stem)
    place = read_project(ProjectFolder(session.settings.root)).declared.patches.directory
    file = f"{place}/{stem}.patch"
    note = _note(spec, steps, number, f"{stem}.patch", file)
    above = steps[number - 1] if number else None
    note["new"] = True
    note["after"] = above.name if isinstance(above, PatchStep) else ""
    return _lay_out(session, spec, steps[:number], folder, note, None)


def refresh(session: Session, name: str, from_: str = "", *, later: bool = False) -> Refreshed:
    """Makes a patch again from its work tree. Raises ``HqError``; then nothing was written."""
    folder = from_ or os.path.join(session.settings.root, ".hq", "edit", _stem(name))
    note = _read_note(folder, name)
    spec = session.spec(note["pin"])
    steps = steps_of(session, spec)
    number = int(note["number"])
    is_new = bool(note.get("new"))
    if _digest(steps[:number]) != note["below"]:
        raise UsageError(
            f"the patches below {note['name']} changed since the edit began",
            where=Location(folder),
            hint="keep what you need (git diff hq-below), and edit the patch anew: --into DIR",
        )
    with Trees(session) as trees:
        work = _Refresh(session, spec, steps, number, trees.of_pin(spec.pin), folder, note)
        return work.go(later=later, is_new=is_new)


# -- laying out ------------------------------------------------------------------------------------


def _lay_out(
    session: Session,
    spec: PinSpec,
    below: Sequence[Step],
    folder: str,
    note: Mapping[str, Any],
    step: PatchStep | None,
) -> Edit:
    with Trees(session) as trees:
        tree = trees.of_pin(spec.pin)
        left_out = [member for member in tree.paths() if tree.size(member) > LARGEST]
        layers = list(_layers(tree, set(left_out), below))
    own_folder(session.settings.root)
    # Made beside its place and renamed, so that a work tree is there whole or not at all.
    temporary = f"{folder}.{os.getpid()}.new"
    try:
        make_repository(temporary, layers)
        text = json.dumps(note, indent=1, sort_keys=True)
        write_file(os.path.join(temporary, _NOTE), text.encode())
        fits = step is None or apply_what_fits(temporary, step.data)
        os.rename(temporary, folder)
    except OSError as error:
        raise InfrastructureError(
            f"cannot make the work tree: {error.strerror}", where=Location(folder)
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    name = str(note["name"])
    return Edit(name, folder, len(layers), tuple(left_out), fits)


def _layers(tree: WheelTree, left_out: set[str], below: Sequence[Step]) -> Iterator[Layer]:
    files = {path: tree.read(path) for path in tree.paths() if path not in left_out}
    yield Layer(f"The wheel of {tree.version}\n", files)
    view = View(tree)
    copies: dict[str, File | None] = {}
    for number, step in enumerate(below):
        if isinstance(step, FileStep):
            copies[step.path] = File("f", step.data)
            last = number + 1 == len(below) or not isinstance(below[number + 1], FileStep)
            if last:
                view.changes.update(copies)
                yield Layer(f"Files of {step.group}\n", copies)
                copies = {}
            continue
        outcome = _applied(view, step)
        view.changes.update(outcome.changes)
        yield Layer(_message(step), outcome.changes)


def _applied(view: View, step: PatchStep) -> PatchOutcome:
    patch = parse_patch(step.data, step.name)
    outcome = apply_patch(patch, view.read, step.strip, step.reverse)
    error = failure(outcome, step.file)
    if error is not None:
        raise error
    return outcome


def _message(step: PatchStep) -> str:
    patch = parse_patch(step.data, step.name)
    subject = " ".join((patch.field("Subject") or "").split())
    return f"{_stem(step.name)}: {subject}\n" if subject else f"{_stem(step.name)}\n"


def _find(steps: Sequence[Step], name: str) -> int:
    patches = {n: step for n, step in enumerate(steps) if isinstance(step, PatchStep)}
    found = [n for n, step in patches.items() if name in (step.name, step.file, _stem(step.name))]
    if len(found) == 1:
        return found[0]
    names = [_stem(step.name) for step in patches.values()]
    raise UsageError(
        f"{name!r} names {'several patches' if found else 'no patch'} of the pin",
        details=[patches[n].file for n in found],
        hint=did_you_mean(name, names) or "see hq series table",
    )


def _stem(name: str) -> str:
    base = name.rpartition("/")[2]
    return base.removesuffix(".patch").removesuffix(".diff")


def _folder(session: Session, into: str, stem: str) -> str:
    folder = into or os.path.join(session.settings.root, ".hq", "edit", stem)
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise UsageError(
            "there is something at the place of the work tree",
            where=Location(folder),
            hint=f"finish it (hq series refresh {stem}), remove it, or give --into DIR",
        )
    return folder


def _note(
    spec: PinSpec, steps: Sequence[Step], number: int, name: str, file: str
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "pin": spec.pin,
        "name": name,
        "file": file,
        "number": number,
        "below": _digest(steps[:number]),
    }


def _digest(steps: Sequence[Step]) -> str:
    rows = [f"{step.file} {Digest.of(step.data).hex}\n" for step in steps]
    return Digest.of("".join(rows).encode()).hex


def _read_note(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, _NOTE)
    if not os.path.exists(path):
        raise UsageError(
            f"there is no work tree of {name}",
            where=Location(folder),
            hint=f"make one with hq series edit {name}, or say where it is: --from DIR",
        )
    try:
        value = json.loads(read_file(path))
        known = value["schema"] == SCHEMA
        note = {**value, "pin": str(value["pin"]), "number": int(value["number"])}
    except (ValueError, KeyError, TypeError):
        known, note = False, {}
    if not known:
        raise BuildError("the note of a work tree cannot be read", where=Location(path))
    return note


# -- refreshing ------------------------------------------------------------------------------------


class _Refresh:
    def __init__(
        self,
        session: Session,
        spec: PinSpec,
        steps: Sequence[Step],
        number: int,
        tree: WheelTree,
        folder: str,
        note: Mapping[str, Any],
    ) -> None:
        self._root = session.settings.root
        self._spec = spec
        self._steps = steps
        self._number = number
        self._tree = tree
        self._folder = folder
        self._note = note
        self._today = dt.date.today().isoformat()

    def go(self, *, later: bool, is_new: bool) -> Refreshed:
        below = View(self._tree, replay(self._tree, self._steps[: self._number]).view.changes)
        files = changed_files(self._folder)
        wanted = {path: file for path, file in files.items() if file != below.read(path)}
        if not wanted:
            raise UsageError(
                f"nothing differs from the patches below {self._note['name']}",
                where=Location(self._folder),
                hint="change something, or take the patch out of the series",
            )
        diff = diff_files({path: below.read(path) for path in wanted}, wanted)
        data, changed = self._made(diff, is_new=is_new)
        self._verify(data, below, wanted)
        above = self._steps[self._number :] if is_new else self._steps[self._number + 1 :]
        now = View(self._tree, {**below.changes, **wanted})
        before = View(self._tree, dict(below.changes))
        if not is_new:
            step = self._steps[self._number]
            assert isinstance(step, PatchStep)
            patch = parse_patch(step.data, step.name)
            before.changes.update(apply_patch(patch, before.read).changes)
        rows, remade = self._above(above, before, now, remake=later)
        file = str(self._note["file"])
        if changed:
            self._write(file, data)
        for path, content in remade.items():
            self._write(path, content)
        added_to = self._add() if is_new else ""
        return Refreshed(file, changed, added_to, tuple(rows))

    def _made(self, diff: bytes, *, is_new: bool) -> tuple[bytes, bool]:
        """The patch file, and whether it differs from the one that is there."""
        if is_new:
            return with_header(self._header(), diff), True
        step = self._steps[self._number]
        assert isinstance(step, PatchStep)
        patch = parse_patch(step.data, step.name)
        same = regenerated(patch, diff, "", "")
        if same == step.data:
            return same, False
        return regenerated(patch, diff, "", "", self._today), True

    def _header(self) -> bytes:
        words = _stem(str(self._note["name"])).replace("-", " ").replace("_", " ")
        return (
            f"Subject: {words[:1].upper()}{words[1:]}\nOrigin: own\nForwarded: no\nKind: local\n"
            f"Cut-Against: {self._spec.wheel.name} {self._spec.pin}\nRetires-When: never\n"
            f"Last-Update: {self._today}\n\n"
        ).encode()

    def _verify(self, data: bytes, below: View, wanted: Mapping[str, File | None]) -> None:
        name = str(self._note["file"])
        outcome = apply_patch(parse_patch(data, name), below.read)
        error = failure(outcome, name)
        if error is not None:
            raise error
        if outcome.changes != dict(wanted):
            raise BuildError(f"{name}: made again, the patch does not give the work tree")

    def _above(
        self, steps: Sequence[Step], before: View, now: View, *, remake: bool
    ) -> tuple[list[Later], dict[str, bytes]]:
        """Tries the patches above; with ``remake`` those that merge are made again."""
        rows: list[Later] = []
        remade: dict[str, bytes] = {}
        engine = Rebase(self._tree, self._tree, _merge)
        for step in steps:
            if isinstance(step, FileStep):
                for view in (before, now):
                    view.changes[step.path] = File("f", step.data)
                continue
            patch = parse_patch(step.data, step.name)
            old = apply_patch(patch, before.read, step.strip, step.reverse)
            outcome = apply_patch(patch, now.read, step.strip, step.reverse)
            row = _judged(step, outcome)
            if remake and row.outcome != "exact" and old.outcome == "applied":
                tried = Tried(step, patch, old, ())
                data = self._remade(engine, tried, before, now)
                if data is not None:
                    remade[step.file] = data
                    outcome = apply_patch(parse_patch(data, step.name), now.read)
                    row = Later(step.name, "remade", "")
            rows.append(row)
            before.changes.update(old.changes)
            now.changes.update(outcome.changes)
        return rows, remade

    def _remade(self, engine: Rebase, tried: Tried, before: View, now: View) -> bytes | None:
        attempt = engine.attempt(tried, before, now)
        step = tried.step
        if attempt.conflicts or attempt.is_absorbed or step.strip != 1 or step.reverse:
            return None
        wanted = {p: f for p, f in attempt.changes.items() if f != now.read(p)}
        diff = diff_files({path: now.read(path) for path in wanted}, wanted)
        data = regenerated(tried.patch, diff, "", "", self._today)
        outcome = apply_patch(parse_patch(data, step.name), now.read)
        return data if outcome.changes == wanted else None

    def _write(self, path: str, data: bytes) -> None:
        full = os.path.join(self._root, path)
        if os.path.exists(full):
            kept = os.path.join(self._folder, ".git", "hq-before", os.path.basename(path))
            write_file(kept, read_file(full))
        write_file(full, data)

    def _add(self) -> str:
        """Adds a new patch to the series; the work tree is that of a patch from now on."""
        series = self._spec.series_file
        lines = read_file(os.path.join(self._root, series)).decode().split("\n")
        entry = str(self._note["name"])
        after = str(self._note.get("after", ""))
        at = next((n + 1 for n, line in enumerate(lines) if line.split()[:1] == [after]), 0)
        if not after:
            at = next((n for n, line in enumerate(lines) if line and line[0] != "#"), len(lines))
        lines.insert(at, f"{entry} -p1")
        text = "\n".join(lines)
        write_file(os.path.join(self._root, series), (text.rstrip("\n") + "\n").encode())
        note = {key: value for key, value in self._note.items() if key not in ("new", "after")}
        write_file(
            os.path.join(self._folder, _NOTE), json.dumps(note, indent=1, sort_keys=True).encode()
        )
        return series


def _merge(base: bytes, ours: bytes, theirs: bytes) -> Text:
    done = merge_texts(base, ours, theirs, ("the patch", "before the edit", "after the edit"))
    return Text(done.data, done.conflicts)


def _judged(step: PatchStep, outcome: PatchOutcome) -> Later:
    if outcome.outcome != "applied":
        return Later(step.name, "fails", outcome.reason)
    placed = [one for report in outcome.files for one in report.hunks]
    exact = all(isinstance(one.placement, Exact) for one in placed)
    return Later(step.name, "exact" if exact else "offset", "")


def edit_text(done: Edit) -> str:
    """What to do with a work tree, for people."""
    lines = [
        f"{done.folder}: {done.commits} commits below {done.name}; git diff shows the patch",
    ]
    if not done.fits:
        lines.append("the patch does not apply whole; what is left of it is in .rej files")
    if done.left_out:
        lines.append(f"{len(done.left_out)} files above 1 MiB are left out")
    lines.append(f"when it is right: hq series refresh {_stem(done.name)}")
    return "\n".join(lines)


def refresh_text(done: Refreshed) -> str:
    """What a refresh did, for people."""
    lines = [f"{done.file} {'is made again' if done.changed else 'is as it was'}"]
    if done.added_to:
        lines.append(f"added to {done.added_to}")
    words = {
        "offset": "applies at an offset", "remade": "is made again", "fails": "does not apply",
    }  # fmt: skip
    for row in done.later:
        if row.outcome != "exact":
            reason = f": {row.reason}" if row.reason else ""
            lines.append(f"  {row.name} {words[row.outcome]}{reason}")
    if any(row.outcome in ("fails", "offset") for row in done.later):
        lines.append("with --later those that merge are made again; edit the others")
    return "\n".join(lines)
