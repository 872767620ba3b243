"""``hq port rebase``: the series made again for another release, on a branch of its own.

Every run goes through the series from its first patch, on both releases at once; what was done in
an earlier run is taken from the state (``hq.app.port_state``). A patch that merges cleanly is made
again with exact context, and is put on the new tree by the patch engine, not by the merge: so what
is written is what was checked. The first that does not merge, or of which nothing is left, stops
the run; the files with markers lie in ``.hq/port/work``. When all are through, the new pin is
declared, read back and replayed in memory, and only then the branch appears.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hq.app.config import Project, load, read_project
from hq.app.folder import ProjectFolder
from hq.app.port_files import Mention, NewPin, Ported
from hq.app.port_state import State, Stopped, write_file
from hq.app.port_steps import Goal, Opened, knobs_of, open_goal, steps_from, steps_of
from hq.app.port_trees import Trees, WheelTree
from hq.app.session import Session
from hq.model.digest import Digest
from hq.model.errors import BuildError, Location, UsageError
from hq.model.project import PinSpec, SeriesItem
from hq.patchwork.apply import File, PatchOutcome, apply_patch
from hq.patchwork.explain import failure
from hq.patchwork.parse import parse_patch
from hq.patchwork.place import Exact
from hq.port.diffs import regenerated
from hq.port.program import Parsed
from hq.port.rebase import Attempt, FileMerge, Outcome, Rebase, Text, absorbed_hunks
from hq.port.replay import FileStep, PatchStep, Replay, Step, Tried, replay
from hq.port.resolutions import markers, resolved
from hq.port.review import Finding, review, side
from hq.port.tree import View
from hq.transfer.git_worktree import Commit, Git, diff_files, merge_texts

NOWHERE = Goal()
SAME, PORTED, SKIPPED = "same", "ported", "skipped"


class Row(NamedTuple):
    """What became of a patch: ``same`` file, ``ported`` (made again) or ``skipped``."""

    name: str
    status: str
    notes: tuple[str, ...]


class Done(NamedTuple):
    """A rebase that is through. ``branch`` is empty when the project is in no repository."""

    pin: str
    branch: str
    commit: str
    rows: tuple[Row, ...]
    files: tuple[str, ...]
    leftovers: tuple[Mention, ...]
    findings: tuple[Finding, ...] = ()


class Waiting(NamedTuple):
    """A rebase that waits: for which patch, why, and which files of the work folder."""

    pin: str
    patch: str
    reason: str
    folder: str
    files: Mapping[str, str]
    rows: tuple[Row, ...]


Result = Done | Waiting
Command = str
"""``start``, ``continue``, ``skip``."""


def rebase(
    session: Session,
    command: Command,
    pin: str = "",
    goal: Goal = NOWHERE,
    branch: str = "",
    commit: str = "",
) -> Result:
    """Starts a rebase, or goes on with one.

    ``commit`` goes into the header of the patch that is resolved. Raises ``HqError``; the state
    stays as it was then.
    """
    state = State(session.settings.root)
    if command == "start":
        _refuse_second(state)
        state.clear()
    else:
        state.load()
        pin, goal = state.pin, Goal(**state.goal)
    spec = session.spec(pin)
    project = read_project(ProjectFolder(session.settings.root))
    steps = steps_of(session, spec)
    with Trees(session) as trees:
        opened = open_goal(session, trees, project, spec, goal)
        if command == "start":
            _check_goal(project, opened)
            state.pin, state.goal = spec.pin, goal._asdict()
            state.options = {"branch": branch or f"port/{opened.tree.version}"}
            state.digest = _digest(steps)
            _check_repository(session.settings.root, spec, state.options["branch"])
        elif state.digest != _digest(steps):
            raise UsageError(
                "the series changed since the rebase began",
                hint="undo the changes, or begin anew after hq port rebase --abort",
            )
        run = _Run(session, project, spec, steps, trees.of_pin(spec.pin), opened, state)
        return run.go(command, commit)


def abort(root: str) -> None:
    """Gives a rebase up. Raises ``UsageError`` when none is under way."""
    state = State(root)
    if not state.exists:
        state.load()
    state.clear()


def _refuse_second(state: State) -> None:
    if state.exists:
        raise UsageError(
            "a rebase is under way",
            where=Location(state.folder),
            hint="go on with hq port rebase --continue, or give it up with --abort",
        )


def _check_goal(project: Project, opened: Opened) -> None:
    version = opened.tree.version
    if opened.locked is None:
        raise UsageError(
            "a directory cannot be locked", hint="give --to VERSION or --wheel FILE to rebase"
        )
    if version in project.declared.pins:
        raise UsageError(
            f"build.toml declares the pin {version} already",
            where=project.document.locator()("pins", version),
            hint=f"see what it makes of the patches with hq port triage --to {version}",
        )


def _check_repository(root: str, spec: PinSpec, branch: str) -> None:
    """What the branch is made from must be committed, or it would not build there."""
    git = Git(root)
    if git.prefix() is None:
        return
    named = [item.file for item in spec.series]
    named += [item.file for overlay in spec.overlays for item in overlay.patches]
    named += [path for overlay in spec.overlays for path in overlay.files.values()]
    changed = git.changed(["build.toml", spec.series_file, *named])
    if changed:
        raise UsageError(
            "files that the new pin is made from are not committed",
            details=changed[:20],
            hint="commit them first: the branch begins at HEAD",
        )
    if git.has_branch(branch):
        raise UsageError(
            f"there is a branch {branch} already",
            hint=f"give --branch another name, or delete it (git branch -D {branch})",
        )


def _digest(steps: Sequence[Step]) -> str:
    rows = [f"{step.file} {Digest.of(step.data).hex}\n" for step in steps]
    return Digest.of("".join(rows).encode()).hex


class _Run:
    """One pass over the series."""

    def __init__(
        self,
        session: Session,
        project: Project,
        spec: PinSpec,
        steps: Sequence[Step],
        old_tree: WheelTree,
        opened: Opened,
        state: State,
    ) -> None:
        self._project = project
        self._root = session.settings.root
        self._spec = spec
        self._steps = steps
        self._opened = opened
        self._state = state
        self._old = View(old_tree)
        self._new = View(opened.tree)
        self._today = dt.date.today().isoformat()
        self._commit = ""
        self._made_from: dict[str, str] = {}
        self._rebase = Rebase(old_tree, opened.tree, self._merge)

    def go(self, command: Command, commit: str = "") -> Result:
        stopped = self._state.stopped
        self._state.stopped = None
        for number, step in enumerate(self._steps):
            if isinstance(step, FileStep):
                self._copy(step)
                continue
            if stopped is not None and number == stopped.step and number not in self._state.rows:
                self._commit = commit
                self._answer(number, step, stopped, command)
                self._commit = ""
            waiting = self._patch(number, step)
            if waiting is not None:
                return waiting
        return self._finish()

    def _merge(self, base: bytes, ours: bytes, theirs: bytes) -> Text:
        labels = (f"the patch on {self._spec.pin}", self._spec.pin, self._opened.tree.version)
        merged = merge_texts(base, ours, theirs, labels)
        return Text(merged.data, merged.conflicts)

    def _copy(self, step: FileStep) -> None:
        for view in (self._old, self._new):
            view.changes[step.path] = File("f", step.data)

    # -- one patch ------------------------------------------------------------------------------

    def _patch(self, number: int, step: PatchStep) -> Waiting | None:
        tried = self._try(step)
        waiting = None
        if number in self._state.rows:
            self._again(number, step)
        else:
            waiting = self._carry(number, tried)
        self._old.changes.update(tried.outcome.changes)
        return waiting

    def _try(self, step: PatchStep) -> Tried:
        patch = parse_patch(step.data, step.name)
        outcome = apply_patch(patch, self._old.read, step.strip, step.reverse)
        error = failure(outcome, step.file)
        if error is not None:
            raise error
        return Tried(step, patch, outcome, ())

    def _again(self, number: int, step: PatchStep) -> None:
        """Puts on the new tree what an earlier run made of the patch."""
        status = self._state.rows[number]
        if status == SKIPPED:
            return
        data = step.data if status == SAME else self._state.patch(number)
        strip, reverse = (step.strip, step.reverse) if status == SAME else (1, False)
        outcome = self._apply(data, step, strip, reverse)
        error = failure(outcome, step.file)
        if error is not None:
            raise error
        self._new.changes.update(outcome.changes)

    def _apply(self, data: bytes, step: PatchStep, strip: int, reverse: bool) -> PatchOutcome:
        patch = parse_patch(data, step.name)
        return apply_patch(patch, self._new.read, strip, reverse)

    def _carry(self, number: int, tried: Tried) -> Waiting | None:
        attempt = self._with_memory(self._rebase.attempt(tried, self._old, self._new))
        if attempt.conflicts:
            return self._wait(number, tried, attempt)
        if attempt.is_absorbed:
            reason = "nothing is left of it: the new tree has all that it changes"
            self._state.stopped = Stopped(number, reason, {})
            return self._waiting(tried.step)
        notes = [one.note for one in attempt.files if one.note]
        self._settle(number, tried, attempt.changes, notes, attempt.moved)
        return None

    def _with_memory(self, attempt: Attempt) -> Attempt:
        """Conflicts that were resolved before are resolved again the same way."""
        return Attempt(tuple(self._recalled(one) for one in attempt.files))

    def _recalled(self, one: FileMerge) -> FileMerge:
        if one.outcome != "conflict" or one.file is None or not markers(one.file.data):
            return one
        known = self._state.resolution(one.file.data)
        data = resolved(one.file.data, *known, self._merge) if known is not None else None
        if data is None:
            return one
        note = f"{one.path}: resolved as before"
        same = self._new.read(one.path) == File(one.file.kind, data)
        outcome: Outcome = "absorbed" if same else "clean"
        return one._replace(outcome=outcome, file=File(one.file.kind, data), note=note)

    def _settle(
        self,
        number: int,
        tried: Tried,
        changes: Mapping[str, File | None],
        notes: Sequence[str],
        moved: Mapping[str, str],
    ) -> None:
        """Makes the patch again, unless its file serves as it is, and puts it on the new tree."""
        step = tried.step
        state = self._state
        state.notes.setdefault(number, []).extend(notes)
        wanted = {p: f for p, f in changes.items() if f != self._new.read(p)}
        by_hand = {
            path for path in changes if any(n.startswith(f"{path}: resolved") for n in notes)
        }
        for path, hunk in absorbed_hunks(tried, self._new, changes, moved):
            if path in by_hand:
                continue  # what a person made of it need not have the patch's own lines
            note = f"hunk {hunk.n} at line {hunk.line}: the new tree has it; it is not carried on"
            state.notes[number].append(note)
        as_it_is = self._apply(step.data, step, step.strip, step.reverse)
        if _is_exact(as_it_is) and as_it_is.changes == wanted:
            state.rows[number] = SAME
        else:
            state.keep_patch(number, self._remade(tried, wanted))
            state.rows[number] = PORTED
        self._new.changes.update(wanted)
        state.save()

    def _remade(self, tried: Tried, wanted: Mapping[str, File | None]) -> bytes:
        before = {path: self._new.read(path) for path in wanted}
        diff = diff_files(before, wanted)
        old, new = self._spec.pin, self._opened.tree.version
        data = regenerated(tried.patch, diff, old, new, self._today, self._commit)
        again = self._apply(data, tried.step, 1, False)
        error = failure(again, tried.step.file)
        if error is not None:
            raise error
        if again.changes != dict(wanted) or not _is_exact(again):
            raise BuildError(
                f"{tried.step.file}: made again, the patch does not give what it was made from",
                hint="port this patch by hand, and report it",
            )
        return data

    # -- waiting --------------------------------------------------------------------------------

    def _wait(self, number: int, tried: Tried, attempt: Attempt) -> Waiting:
        files: dict[str, bytes] = {}
        notes: dict[str, str] = {}
        for one in attempt.files:
            if one.file is not None:
                files[one.path] = one.file.data
            if one.outcome == "conflict":
                lines = markers(one.file.data) if one.file is not None else []
                count = sum(1 for _ in lines) // 3
                what = f"{count} conflicts, the first at line {lines[0]}" if lines else ""
                notes[one.path] = one.note or what.replace("1 conflicts", "1 conflict")
        self._state.lay_out(files)
        self._state.stopped = Stopped(number, "it does not merge", notes)
        return self._waiting(tried.step)

    def _waiting(self, step: PatchStep) -> Waiting:
        self._state.save()
        stopped = self._state.stopped
        assert stopped is not None
        return Waiting(
            self._opened.tree.version, step.file, stopped.reason, self._state.folder,
            stopped.files, self._rows(),
        )  # fmt: skip

    def _answer(self, number: int, step: PatchStep, stopped: Stopped, command: Command) -> None:
        """Takes what the person decided about the patch that stopped the last run."""
        if command == "skip":
            self._state.rows[number] = SKIPPED
            return
        if not stopped.files:
            raise UsageError(
                f"{step.file}: {stopped.reason}",
                hint="leave it out with --skip; hq port retire then moves it to the ledger",
            )
        tried = self._try(step)
        attempt = self._rebase.attempt(tried, self._old, self._new)
        changes: dict[str, File | None] = {}
        unresolved: list[str] = []
        for one in attempt.files:
            data = self._state.work(one.path)
            unresolved += [f"{one.path}:{line}" for line in markers(data or b"")[:1]]
            kind = one.file.kind if one.file is not None else "f"
            changes[one.path] = None if data is None else File(kind, data)
        if unresolved:
            raise UsageError(
                f"{step.file}: conflict markers are left",
                details=[f"{self._state.folder}/work/{place}" for place in unresolved],
                hint="resolve them, then go on with hq port rebase --continue",
            )
        for one in attempt.conflicts:
            after = self._state.work(one.path)
            if after is not None:
                self._state.remember(self._state.was(one.path), after)
        if all(file == self._new.read(path) for path, file in changes.items()):
            self._state.rows[number] = SKIPPED
            self._state.notes.setdefault(number, []).append("nothing was left of it")
            return
        # The new tree below the patch is as it was, so the resolved files are the patch's result.
        pending = dict(self._new.changes)
        notes = [f"{path}: resolved by hand" for path in stopped.files]
        self._settle(number, tried, changes, notes, attempt.moved)
        self._new.changes = pending

    def _rows(self) -> tuple[Row, ...]:
        rows = []
        for number, step in enumerate(self._steps):
            if isinstance(step, PatchStep) and number in self._state.rows:
                notes = tuple(self._state.notes.get(number, ()))
                rows.append(Row(step.name, self._state.rows[number], notes))
        return tuple(rows)

    # -- the end --------------------------------------------------------------------------------

    def _finish(self) -> Done:
        assert self._opened.locked is not None
        source = ProjectFolder(self._root)
        version = self._opened.tree.version
        pin = NewPin(self._project, source, self._spec, version)
        commits, leftovers = self._commits(pin)
        files: dict[str, bytes] = {}
        for commit in commits:
            files.update({p: d for p, d in commit.files.items() if d is not None})
        findings = self._check(files, source)
        git = Git(self._root)
        branch, tip = "", ""
        if git.prefix() is not None:
            branch = self._state.options["branch"]
            tip = git.commit_branch(branch, commits)
        else:
            for path, data in sorted(files.items(), key=lambda one: one[0] == "build.toml"):
                write_file(f"{self._root}/{path}", data)
        rows = self._rows()
        self._state.clear()
        return Done(version, branch, tip, rows, tuple(sorted(files)), tuple(leftovers), findings)

    def _commits(self, pin: NewPin) -> tuple[list[Commit], list[Mention]]:
        """One commit for each topic, in an order in which the pin is declared last."""
        version, name = self._opened.tree.version, self._spec.wheel.name
        assert self._opened.locked is not None
        pin.lock(self._opened.locked)
        locked = pin.taken()
        commits = [Commit(f"Lock {name} {version}\n", locked)] if locked else []
        carried: list[str] = []
        series_of = {
            f"overlay:{one.name}": pin.overlay_series(one.name) for one in self._spec.overlays
        }
        series_of["series"] = pin.series
        for path in filter(None, series_of.values()):
            pin.begin(path)
        pending: dict[str, bytes] = pin.taken()
        for number, step in enumerate(self._steps):
            if isinstance(step, FileStep) or self._state.rows[number] == SKIPPED:
                continue
            ported = self._ported(number, step)
            series = series_of[step.group]
            if step.group == "series":
                carried.append(ported.item.stem)
            name = pin.patch(ported)
            pin.append(series, ported, name)
            folder = step.file.removesuffix(step.name)
            self._made_from[folder + name] = step.file
            if ported.data is None:
                pending.update(pin.taken())
                continue
            files = {**pending, **pin.taken()}
            pending = {}
            commits.append(Commit(self._message(ported, number), files))
        for overlay in self._spec.overlays:
            pin.overlay(overlay.name)
        pin.declare()
        pin.ledger(carried)
        commits.append(Commit(f"Declare the pin {version}\n", {**pending, **pin.taken()}))
        leftovers = pin.mentions()
        mentions = {path: data for path, data in pin.taken().items() if self._differs(path, data)}
        if mentions:
            commits.append(Commit(f"Name {version} where {self._spec.pin} was named\n", mentions))
        return commits, leftovers

    def _differs(self, path: str, data: bytes) -> bool:
        return ProjectFolder(self._root).read(path) != data

    def _ported(self, number: int, step: PatchStep) -> Ported:
        item = SeriesItem(step.name, step.file, step.strip, step.reverse)
        data = None if self._state.rows[number] == SAME else self._state.patch(number)
        return Ported(item, step.group, data)

    def _message(self, ported: Ported, number: int) -> str:
        title = f"Port {ported.item.stem} to {self._opened.tree.version}"
        notes = self._state.notes.get(number, [])
        return title + "\n" + ("\n" + "\n".join(notes) + "\n" if notes else "")

    def _check(self, files: Mapping[str, bytes], source: ProjectFolder) -> tuple[Finding, ...]:
        """Reads the new pin back as a build would, replays and reviews it. Raises ``HqError``."""
        version = self._opened.tree.version
        over = _Over(source, files)
        spec = load(over, version, 0)
        done = replay(self._opened.tree, steps_from(over.read, spec))
        for tried in done.tried:
            error = failure(tried.outcome, tried.step.file)
            if error is not None:
                raise error
        _check_same(done, self._new)
        _check_knobs(spec, done)
        parsed: Parsed = {}
        before = side(replay(self._old.tree, self._steps), parsed)
        return review(before, side(done, parsed), knobs_of(self._spec), self._made_from)


def _check_same(done: Replay, wanted: View) -> None:
    paths = {*done.view.changes, *wanted.changes}
    different = [path for path in sorted(paths) if done.view.read(path) != wanted.read(path)]
    if different:
        raise BuildError(
            "the new series does not give the tree that was merged", details=different[:20]
        )


def _check_knobs(spec: PinSpec, done: Replay) -> None:
    """The knobs must find their places in the new tree. Raises ``BuildError``."""
    if spec.knobs is None:
        return
    from hq.knobs.generate import generate
    from hq.knobs.registry import from_values

    generate(done.view.data(spec.knobs.target), from_values(spec.knobs.registry), spec.knobs.target)


def _is_exact(outcome: PatchOutcome) -> bool:
    if outcome.outcome != "applied":
        return False
    placed = [one for report in outcome.files for one in report.hunks]
    return all(isinstance(one.placement, Exact) and not one.outside for one in placed)


class _Over:
    """The project's files with the new ones over them."""

    def __init__(self, source: ProjectFolder, files: Mapping[str, bytes]) -> None:
        self._source = source
        self._files = files

    def read(self, path: str) -> bytes:
        """A file's content."""
        return self._files[path] if path in self._files else self._source.read(path)

    def names(self, folder: str) -> list[str]:
        """Every file beneath a folder."""
        prefix = f"{folder}/"
        own = [path.removeprefix(prefix) for path in self._files if path.startswith(prefix)]
        return sorted({*self._source.names(folder), *own})
