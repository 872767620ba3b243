"""The control of a build: another pin of this project, or the project as a commit has it.

On a port branch the control is the merge base with the base branch, built with the pin that its
own ``build.toml`` declares. Its files are read out of git's objects, so the working tree is neither
touched nor looked at, and what is built equals a build of a clean checkout. A control's images go
to ``control/`` in the output folder.

A question that git cannot answer in one way (no merge base, several, no base branch, a clone that
is cut short) is an error that says what to name instead: a control that silently is another one
proves the wrong thing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from hq.app.build import BuildReport, build
from hq.app.config import read_project
from hq.app.derived import DerivedSession
from hq.app.folder import is_private
from hq.app.memory import Memory
from hq.app.session import Session
from hq.app.sources import MAX_SOURCE_BYTES, ProjectSources
from hq.app.validate import parse_toml
from hq.execute.walk import Observer
from hq.model.digest import BlobRef
from hq.model.errors import HqError, Location, UsageError
from hq.model.project import PinSpec
from hq.transfer.git import CommitTree, Git

SCHEMA: Final = "hq.project/1"
MERGE_BASE: Final = "merge-base"
NONE: Final = "none"
ROLE: Final = "control"
_SHORT: Final = 12


class Choice(NamedTuple):
    """What the control is. ``commit`` is empty for a pin of this tree, ``pin`` for a commit.

    ``label``: in words. ``base_branch``: the branch that it was found with. ``notes``: what a
    person should know of the choice.
    """

    kind: str
    label: str
    commit: str = ""
    pin: str = ""
    base_branch: str = ""
    notes: tuple[str, ...] = ()


class Skipped(NamedTuple):
    """Why there is no control."""

    reason: str


def choose(session: Session, spec: PinSpec, wanted: str = "") -> Choice | Skipped:
    """Finds the control of ``spec``. ``wanted``: as ``--control``, or empty for what is declared.

    Raises ``UsageError``, ``InfrastructureError``.
    """
    declared = spec.control or {}
    named = wanted or declared.get("default", MERGE_BASE)
    if named == NONE:
        return Skipped("none is wanted")
    if named in read_project(session.sources).declared.pins:
        return _pin(spec, named, is_asked=bool(wanted))
    git = Git(session.settings.root)
    if named == MERGE_BASE:
        return _merge_base(git, declared.get("base-branch", ""), is_asked=bool(wanted))
    return revision(git, named)


def _pin(spec: PinSpec, pin: str, *, is_asked: bool) -> Choice | Skipped:
    if pin != spec.pin:
        return Choice("pin", f"pin {pin}", pin=pin)
    if is_asked:
        raise UsageError(
            f"the control would be the build itself: pin {pin}",
            hint="name another pin, merge-base, or a git revision",
        )
    return Skipped(f"{pin} is the pin that the others are compared with")


def revision(git: Git, name: str) -> Choice:
    """A commit that is named. Raises ``UsageError``."""
    commit = git.commit(name)
    if commit is None:
        raise UsageError(
            f"{name} is no pin of this project and no commit of its repository",
            hint="name a pin, merge-base, none, or a branch, tag or commit",
        )
    return Choice("rev", f"{name} ({commit[:_SHORT]})", commit, notes=_notes(git))


def merge_base(session: Session, spec: PinSpec) -> Choice:
    """The merge base, for who asks for it by name. Raises ``UsageError``."""
    git = Git(session.settings.root)
    found = _merge_base(git, (spec.control or {}).get("base-branch", ""), is_asked=True)
    assert isinstance(found, Choice)
    return found


def _merge_base(git: Git, named: str, *, is_asked: bool) -> Choice | Skipped:
    head = git.commit("HEAD")
    if head is None:
        raise UsageError("the repository has no commit yet", hint="commit, or use --control PIN")
    branch, tip = _base_branch(git, named)
    bases = git.merge_bases(head, tip)
    if not bases:
        raise _no_base(git, branch)
    if len(bases) > 1:
        raise UsageError(
            f"HEAD and {branch} have {len(bases)} merge bases",
            details=[f"{commit[:_SHORT]} {git.subject(commit)}" for commit in bases],
            hint="name one of them: --control COMMIT; or merge the base branch once more",
        )
    (base,) = bases
    is_dirty = bool(git.changes())
    if base == head and not (is_asked and is_dirty):
        reason = f"HEAD is on {branch}, so the merge base is HEAD itself"
        if is_asked:
            raise UsageError(reason, hint="name a pin or a commit: --control PIN, --control COMMIT")
        return Skipped(reason)
    label = f"merge base {base[:_SHORT]} of {branch}"
    return Choice(MERGE_BASE, label, base, base_branch=branch, notes=_notes(git))


def _base_branch(git: Git, named: str) -> tuple[str, str]:
    """The base branch and the commit at its tip; a local branch before the remote's."""
    if named:
        found = _tip(git, named)
        if found is None:
            raise UsageError(
                f"there is no branch {named} here",
                where=Location("build.toml"),
                hint=f"git fetch origin {named}, or mend control.base-branch",
            )
        return found
    default = git.origin_head().removeprefix("origin/")
    names = [default] if default else ["main", "master"]
    tips = [tip for tip in (_tip(git, name) for name in names) if tip is not None]
    if len(tips) == 1:
        return tips[0]
    looked = "both main and master" if tips else "no branch main or master, and origin names none"
    raise UsageError(
        f"which branch is the base branch? there is {looked}",
        hint='name it in build.toml: [control] base-branch = "…"',
    )


def _tip(git: Git, name: str) -> tuple[str, str] | None:
    for shown, ref in (
        (name, f"refs/heads/{name}"),
        (f"origin/{name}", f"refs/remotes/origin/{name}"),
    ):
        commit = git.commit(ref)
        if commit is not None:
            return shown, commit
    commit = git.commit(f"refs/remotes/{name}")
    return None if commit is None else (name, commit)


def _no_base(git: Git, branch: str) -> UsageError:
    if git.is_shallow():
        return UsageError(
            f"this clone is cut short: the merge base of HEAD and {branch} is not in it",
            hint="git fetch --unshallow; in GitHub Actions, checkout with fetch-depth: 0",
        )
    return UsageError(
        f"HEAD and {branch} have no merge base: they share no commit",
        hint="name the control: --control PIN or --control COMMIT",
    )


def _notes(git: Git) -> tuple[str, ...]:
    notes: list[str] = []
    changes = git.changes()
    if changes:
        count = "one file differs" if len(changes) == 1 else f"{len(changes)} files differ"
        shown = ", ".join(changes[:3]) + (", …" if len(changes) > 3 else "")
        notes.append(
            f"{count} from HEAD ({shown}): "
            "the image is of the working tree, the control of a commit"
        )
    if git.is_shallow():
        notes.append("this clone is cut short; a merge base nearer to HEAD may be missing from it")
    return tuple(notes)


class GitSources(ProjectSources):
    """The project's files as a commit has them: ``Sources`` of a walk, ``Files`` of a loader."""

    def __init__(self, tree: CommitTree, root: str) -> None:
        self.root = root
        self.seen = {}
        self.folders = {}
        self._tree = tree
        self._known: dict[str, bytes] = {}

    def ref(self, path: str) -> BlobRef:
        """The digest and size of a file. Raises ``UsageError`` when the commit has no such file."""
        try:
            return BlobRef.of(self.read(path))
        except FileNotFoundError:
            raise UsageError(f"there is no file {path}", where=Location(path)) from None

    def is_executable(self, path: str) -> bool:
        """Whether git has the file as executable."""
        return self._tree.is_executable(path)

    def read(self, path: str) -> bytes:
        """The content. Raises ``FileNotFoundError``."""
        data = self._known.get(path)
        if data is None:
            data = self._known[path] = self._tree.read(path)
            if len(data) > MAX_SOURCE_BYTES:
                raise UsageError(
                    f"{path} is larger than {MAX_SOURCE_BYTES} bytes", where=Location(path)
                )
        return data

    def names(self, folder: str) -> list[str]:
        """Every file beneath ``folder``, by path from it, sorted; hidden ones are left out."""
        return [
            name for name in self._tree.names(folder) if not any(map(is_private, name.split("/")))
        ]


class ControlSession(DerivedSession):
    """The project at a commit, or at another pin, in the store of the session around it."""

    def __init__(self, base: Session, choice: Choice, sources: ProjectSources | None) -> None:
        output = os.path.join(base.settings.output, ROLE)
        super().__init__(base, sources=sources, settings=base.settings._replace(output=output))
        self._commit = choice.commit
        if choice.commit:
            # What is remembered of the working tree stays its own.
            root = f"{base.settings.root}#{ROLE}"
            self.memory = Memory(base.settings.store, root, base.keep)

    def commit(self) -> str:
        """The control's commit."""
        return self._commit or super().commit()


@contextmanager
def opened(session: Session, choice: Choice) -> Iterator[ControlSession]:
    """A session for the control. Errors inside the block say that they are about the control."""
    with _about(choice):
        if not choice.commit:
            yield ControlSession(session, choice, None)
            return
        git = Git(session.settings.root)
        with CommitTree(git, choice.commit, git.prefix) as tree:
            sources = GitSources(tree, session.settings.root)
            _check_schema(sources)
            yield ControlSession(session, choice, sources)


def _check_schema(sources: GitSources) -> None:
    try:
        data = sources.read("build.toml")
    except FileNotFoundError:
        raise UsageError(
            "it has no build.toml", hint="name another control: --control PIN, COMMIT or none"
        ) from None
    found = parse_toml("build.toml", data).value.get("schema")
    if found != SCHEMA:
        raise UsageError(
            f"its build.toml has the schema {found!r}, this hq reads {SCHEMA!r}",
            where=Location("build.toml"),
            hint="build it with the hq of that time, or name another: --control PIN or COMMIT",
        )


@contextmanager
def _about(choice: Choice) -> Iterator[None]:
    try:
        yield
    except HqError as error:
        if error.message.startswith("the control, "):
            raise
        where = error.where
        if where is not None and choice.commit and not os.path.isabs(where.file):
            # As git itself names a file of a commit.
            where = Location(f"{choice.commit[:_SHORT]}:{where.file}", where.line)
        raise type(error)(
            f"the control, {choice.label}: {error.message}",
            where=where,
            node=error.node,
            details=error.details,
            hint=error.hint,
        ) from error


class ControlReport(NamedTuple):
    """A control that was built."""

    choice: Choice
    report: BuildReport


def build_control(session: Session, choice: Choice, observer: Observer) -> ControlReport:
    """Builds the control's images into ``control/`` of the output folder. Raises ``HqError``."""
    with opened(session, choice) as control:
        report = build(control, choice.pin, observer)
    images = tuple(image._replace(role=ROLE) for image in report.images)
    return ControlReport(choice, report._replace(images=images))


def to_json(found: ControlReport | Skipped, images: list[Any]) -> dict[str, Any]:
    """What ``hq build --json`` says of the control; ``images`` are those of its report."""
    if isinstance(found, Skipped):
        return {"kind": NONE, "reason": found.reason}
    choice, report = found
    return {
        "kind": choice.kind,
        "commit": choice.commit,
        "base_branch": choice.base_branch,
        "pin": report.pin,
        "images": [image["name"] for image in images],
        "nodes": {
            "total": len(report.outcomes),
            "reused": len(report.names("reused")),
            "built": len(report.names("built")),
        },
        "built": report.names("built"),
        "notes": list(choice.notes),
    }
