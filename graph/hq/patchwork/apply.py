"""Applies a patch to a tree: whole or not at all. The tree is only read.

Sections are taken in order on top of an overlay, so the second section about a file sees what the
first made of it. Renames and copies read the file as the patch found it, which is how git's patches
are meant: two files may swap names, and a file may be changed and copied from.

Two kinds of failure are told apart. A patch is *refused* for what it says or where it points: it
must not be tried on any tree, or this tree must not be written through (a symlink, a mode that
differs). It is *rejected* when it is well formed and the tree is simply not the one it was made
for.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from hq.patchwork.names import show
from hq.patchwork.patch import Hunk, Patch, Refusal
from hq.patchwork.place import (
    AlreadyApplied,
    Ambiguous,
    Conflict,
    Exact,
    Fuzzy,
    Image,
    Offset,
    Options,
    Placed,
    TargetMissing,
    place,
)
from hq.patchwork.target import Target, resolve

_LANDS = attrgetter("lands")

Outcome = Literal["applied", "already-applied", "rejected", "refused"]


class File(NamedTuple):
    """A file of the tree: ``kind`` is ``f``, ``x`` (executable) or ``l`` (symlink, target in data).

    A tree may also answer with kind ``d`` for a directory; ``None`` does as well, save that
    creating a file where a directory stands is then not noticed.
    """

    kind: str
    data: bytes


Read = Callable[[str], File | None]


class Trouble(NamedTuple):
    """Why a section failed as a whole. ``line`` is a line of the patch."""

    refused: bool
    line: int
    message: str
    hint: str = ""


class FileReport(NamedTuple):
    """What became of one section.

    ``lines`` are those of the file the hunks were placed in, for showing; ``already``: there was
    nothing to do (for sections without hunks, too).
    """

    path: str
    line: int
    hunks: tuple[Placed, ...] = ()
    trouble: Trouble | None = None
    already: bool = False
    lines: tuple[bytes, ...] | list[bytes] = ()


class PatchOutcome(NamedTuple):
    """The outcome of a patch.

    ``changes``: path to new file, or ``None`` where it is removed; empty unless ``applied``.
    ``reason``: one line, empty when applied. ``line``: the line of the patch at fault, or 0.
    """

    name: str
    outcome: Outcome
    reason: str
    line: int
    hint: str
    files: tuple[FileReport, ...]
    changes: dict[str, File | None]


class Lines:
    """The lines of files met before, so that a series splits a file once, not once a patch."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, list[bytes]]] = {}

    def of(self, path: str, data: bytes) -> list[bytes]:
        """The lines of ``data``; not to be changed."""
        known = self._known.get(path)
        if known is None or known[0] is not data:
            known = self._known[path] = (data, split_lines(data))
        return known[1]

    def learn(self, path: str, lines: list[bytes]) -> bytes:
        """The content that ``lines`` make, remembered."""
        data = b"".join(lines)
        self._known[path] = (data, lines)
        return data


def apply_patch(
    patch: Patch,
    read: Read,
    strip: int = 1,
    reverse: bool = False,
    strict: bool = False,
    lines: Lines | None = None,
) -> PatchOutcome:
    """Applies ``patch`` to the tree that ``read`` answers for.

    ``read(path)`` gives the file or ``None``; it must not follow symlinks. It is asked for the
    paths of ``touched_paths`` and for their parents. ``strict`` rejects a hunk that lies outside
    the definition which its heading names. ``lines`` may be given to one patch after the other of
    a series. Nothing is raised for what a patch or tree holds.
    """
    if patch.refusals:
        return _refused(patch, patch.refusals[0], ())
    targets: list[Target] = []
    for section in patch.sections:
        target = resolve(section, strip, reverse)
        if isinstance(target, Refusal):
            return _refused(patch, target, ())
        targets.append(target)
    state = _State(read, patch.allows_repeat, targets, lines or Lines())
    files = tuple(state.section(target) for target in targets)
    return _judge(patch, files, state, strict)


def _refused(patch: Patch, refusal: Refusal, files: tuple[FileReport, ...]) -> PatchOutcome:
    return PatchOutcome(
        patch.name, "refused", refusal.message, refusal.line, refusal.hint, files, {}
    )


def _judge(
    patch: Patch, files: tuple[FileReport, ...], state: _State, strict: bool
) -> PatchOutcome:
    def end(outcome: Outcome, reason: str, line: int, hint: str) -> PatchOutcome:
        return PatchOutcome(patch.name, outcome, reason, line, hint, files, {})

    troubles = [report.trouble for report in files if report.trouble is not None]
    refused = next((trouble for trouble in troubles if trouble.refused), None)
    if refused is not None:
        return end("refused", refused.message, refused.line, refused.hint)
    if all(report.already for report in files):
        return end(
            "already-applied", "all that it changes is there already", 0,
            "drop it from the series, or say 'Allow-Repeat: yes' in its header to put it in again",
        )  # fmt: skip
    if troubles:
        first = troubles[0]
        return end("rejected", first.message, first.line, first.hint)
    for report in files:
        for placed in report.hunks:
            if placed.lands and not placed.outside:
                continue
            reason = _reject_reason(report, placed, state.allow_repeat, strict)
            if reason:
                return end("rejected", reason, placed.hunk.line, "")
    changes = state.changes()
    if not changes:
        return end(
            "refused", "the patch changes nothing: its sections undo each other", 0,
            "drop it from the series",
        )  # fmt: skip
    return PatchOutcome(patch.name, "applied", "", 0, "", files, changes)


def _reject_reason(report: FileReport, placed: Placed, repeat: bool, strict: bool) -> str:
    where = f"hunk {placed.hunk.n} of {show(report.path)}"
    if placed.lands:
        return f"{where} is {placed.note}" if strict and placed.outside else ""
    if isinstance(placed.placement, AlreadyApplied):
        return "" if repeat else f"{where} is there already, at line {placed.placement.line}"
    return f"{where} {verdict(placed)}"


def verdict(placed: Placed) -> str:
    """A hunk's outcome as the predicate of a sentence."""
    match placed.placement:
        case Exact(line):
            return f"applies at line {line}"
        case Offset(line, by):
            return f"applies at line {line}, {by:+d} from where it should be"
        case AlreadyApplied(line):
            return f"is there already, at line {line}"
        case Fuzzy(line, fuzz):
            lines = "one context line" if fuzz == 1 else f"{fuzz} context lines"
            return f"fits only with {lines} ignored, at line {line}"
        case Ambiguous(candidates):
            return f"fits equally well at lines {listed(candidates, 5)}"
        case Conflict():
            return placed.note or "does not match the file anywhere"
        case TargetMissing():
            return "has no file to go to"


def listed(numbers: Sequence[int], most: int) -> str:
    """``1, 2, 3 and 4 more``."""
    shown = ", ".join(str(number) for number in numbers[:most])
    return f"{shown} and {len(numbers) - most} more" if len(numbers) > most else shown


class _State:
    """The tree as the sections so far have left it."""

    __slots__ = ("_seen", "_vacated", "allow_repeat", "arrived", "folders", "lines", "now", "read")

    def __init__(self, read: Read, allow_repeat: bool, targets: list[Target], lines: Lines) -> None:
        self.lines = lines
        self.read = read
        self.allow_repeat = allow_repeat
        self.now: dict[str, File | None] = {}
        self.arrived: set[str] = set()  # where a rename or copy of this patch has put a file
        self.folders: set[str] = set()  # of the files that this patch makes
        self._seen: dict[str, File | None] = {}
        self._vacated = {
            target.paths[0] for target in targets if target.dest and target.operation == "rename"
        }

    def base(self, path: str) -> File | None:
        """The file as the patch found it."""
        if path not in self._seen:
            self._seen[path] = self.read(path)
        return self._seen[path]

    def get(self, path: str) -> File | None:
        """The file as the sections so far left it."""
        return self.now[path] if path in self.now else self.base(path)

    def changes(self) -> dict[str, File | None]:
        """What differs from the tree as it was found."""
        return {
            path: self.now[path]
            for path in sorted(self.now)
            if self.now[path] != self._seen.get(path)
        }

    # -- one section ----------------------------------------------------------------------------

    def section(self, target: Target) -> FileReport:
        path = self._choose(target)
        if isinstance(path, Trouble):
            return FileReport(target.paths[0], target.line, trouble=path)
        for name in (path, target.dest):
            trouble = self._blocked(name, target) if name else None
            if trouble is not None:
                return FileReport(path, target.line, trouble=trouble)
        action = {
            "edit": self._edit,
            "create": self._create,
            "delete": self._delete,
            "rename": self._move,
            "copy": self._move,
            "uncopy": self._uncopy,
        }[target.operation]
        return action(target, path)

    def _choose(self, target: Target) -> str | Trouble:
        """The candidate that is in the tree; where two are, both tools' rules must agree."""
        paths = target.paths
        if len(paths) == 1 or target.operation == "create":
            return paths[0]
        there = [path for path in paths if self._regular(path)]
        if not there:
            return paths[0]
        shortest = min(there, key=lambda p: (p.count("/"), len(p.rpartition("/")[2]), len(p)))
        if shortest != there[0] or (len(there) > 1 and _rank(there[0]) == _rank(there[1])):
            named = " and ".join(f"'{show(path)}'" for path in there[:2])
            return Trouble(
                True, target.line, f"the header names two files that both exist: {named}",
                "make both header lines name the file that is meant",
            )  # fmt: skip
        return there[0]

    def _regular(self, path: str) -> bool:
        file = self.get(path)
        return file is not None and file.kind != "d"

    def _blocked(self, path: str, target: Target) -> Trouble | None:
        """A parent directory that is none (threat: writing through a symlink)."""
        for parent in parents(path):
            file = self.get(parent)
            if file is None or file.kind == "d":
                continue
            if file.kind == "l":
                return Trouble(
                    True, target.line,
                    f"'{show(path)}' goes through the symlink '{show(parent)}'",
                    "name the real directory",
                )  # fmt: skip
            return Trouble(
                False, target.line, f"'{show(parent)}' is a file, not a directory of '{show(path)}'"
            )
        return None

    # -- operations -----------------------------------------------------------------------------

    def _edit(self, target: Target, path: str) -> FileReport:
        file = self.get(path)
        if file is None:
            only = target.hunks[0] if len(target.hunks) == 1 else None
            if only is not None and not only.old and not target.old_kind:
                return self._create(target, path)
            return self._missing(target, path)
        trouble = _wrong_kind(target, path, file)
        if trouble is not None:
            return FileReport(path, target.line, trouble=trouble)
        report, data = self._place(target, path, file)
        mode_there = target.changes_mode and file.kind == target.new_kind
        mode_here = target.changes_mode and not mode_there
        if not target.hunks:
            report = report._replace(already=mode_there)
        elif report.already and mode_here:
            report = report._replace(already=False)
        elif not report.already and _mode_differs(target, file):
            return report._replace(trouble=_mode_trouble(target, path, file))
        if data is not None:
            self.now[path] = File(target.new_kind if mode_here else file.kind, data)
        return report

    def _create(self, target: Target, path: str) -> FileReport:
        lines = target.hunks[0].new if target.hunks else []
        made = File(target.new_kind or "f", b"".join(lines))
        file = self.get(path)
        if file is not None:
            return self._exists(target, path, file, made)
        if path in self.folders:
            return _rejected(target, path, f"'{show(path)}' is a directory")
        if made.kind == "l":
            trouble = _link_trouble(target, path, made.data)
            if trouble is not None:
                return FileReport(path, target.line, trouble=trouble)
        self.now[path] = made
        self.folders.update(parents(path))
        return FileReport(
            path, target.line, tuple(Placed(h, Exact(1), 0, lands=True) for h in target.hunks)
        )

    def _exists(self, target: Target, path: str, file: File, made: File) -> FileReport:
        hunks = target.hunks
        if file.kind == "d":
            return _rejected(target, path, f"'{show(path)}' is a directory")
        same_kind = file.kind == made.kind or (not target.new_kind and file.kind == "x")
        if file.data == made.data and same_kind:
            done = tuple(Placed(hunk, AlreadyApplied(1), 0) for hunk in hunks)
            return FileReport(path, target.line, done, already=True)
        if file.data == made.data:
            return FileReport(path, target.line, trouble=_mode_trouble(target, path, file))
        note = "the patch creates the file, which exists with other content"
        failed = tuple(Placed(hunk, Conflict(1), 0, note) for hunk in hunks)
        return FileReport(
            path, target.line, failed,
            Trouble(
                False, target.line, f"creates '{show(path)}', which exists with other content",
                "drop the patch if the tree has its own version of the file, or make it again",
            ),
            lines=split_lines(file.data),
        )  # fmt: skip

    def _delete(self, target: Target, path: str) -> FileReport:
        file = self.get(path)
        if file is None:
            note = "the patch deletes the file, which is not in the tree"
            done = tuple(Placed(hunk, AlreadyApplied(1), 0, note) for hunk in target.hunks)
            return FileReport(path, target.line, done, already=True)
        trouble = _wrong_kind(target, path, file)
        if trouble is not None:
            return FileReport(path, target.line, trouble=trouble)
        lines = split_lines(file.data)
        expected = target.hunks[0].old if target.hunks else []
        if lines != expected:
            note = "the patch deletes the file, whose content differs"
            failed = tuple(Placed(hunk, Conflict(1), 0, note) for hunk in target.hunks)
            return FileReport(
                path, target.line, failed,
                Trouble(
                    False, target.line, f"deletes '{show(path)}', whose content differs",
                    "make the patch again from the file as it is now",
                ),
                lines=lines,
            )  # fmt: skip
        if target.old_kind and target.old_kind != file.kind:
            return FileReport(path, target.line, trouble=_mode_trouble(target, path, file))
        self.now[path] = None
        return FileReport(
            path, target.line, tuple(Placed(h, Exact(1), 0, lands=True) for h in target.hunks)
        )

    def _move(self, target: Target, path: str) -> FileReport:
        """A rename or a copy, with or without an edit."""
        dest = target.dest
        source = self._source(path)
        there = self.get(dest)
        if there is not None and dest in self._vacated and dest not in self.now:
            there = None
        if source is None:
            return self._missing(target, path) if there is None else self._moved(target, there)
        trouble = _wrong_kind(target, path, source) or self._changed_before(target, path)
        if trouble is not None:
            return FileReport(path, target.line, trouble=trouble)
        report, data = self._place(target, path, source)
        if data is None or report.already:
            return report._replace(already=False)
        kind = target.new_kind if target.changes_mode else source.kind
        if _mode_differs(target, source):
            return report._replace(trouble=_mode_trouble(target, path, source))
        made = File(kind, data)
        if there is not None:
            return self._onto(target, report, there, made)
        if made.kind == "l":
            trouble = _link_trouble(target, dest, made.data)
            if trouble is not None:
                return report._replace(trouble=trouble)
        self.base(dest)
        self.now[dest] = made
        self.arrived.add(dest)
        self.folders.update(parents(dest))
        if target.operation == "rename" and path not in self.arrived:
            self.now[path] = None
        return report._replace(path=dest)

    def _source(self, path: str) -> File | None:
        """What git's patches mean: the file as the patch found it, whatever came of it since."""
        found = self.base(path)
        return self.get(path) if found is None else found

    def _changed_before(self, target: Target, path: str) -> Trouble | None:
        if target.operation == "copy" or path not in self.now or path in self.arrived:
            return None
        if self.base(path) is None:
            return None
        return Trouble(
            True, target.line, f"renames '{show(path)}', which an earlier section changes",
            "make one section of the two",
        )  # fmt: skip

    def _moved(self, target: Target, there: File) -> FileReport:
        """The source is gone and the destination is there: done already, if the hunks say so."""
        report, _ = self._place(target, target.dest, there)
        rename = target.operation == "rename"
        if rename and there.kind != "d" and (report.already or not target.hunks):
            return report._replace(already=True)
        return self._missing(target, target.paths[0])

    def _onto(self, target: Target, report: FileReport, there: File, made: File) -> FileReport:
        dest = show(target.dest)
        if target.operation == "copy" and there == made:
            done = tuple(p._replace(placement=AlreadyApplied(1)) for p in report.hunks)
            return report._replace(path=target.dest, hunks=done, already=True)
        word = "renames" if target.operation == "rename" else "copies"
        return report._replace(
            trouble=Trouble(
                False, target.line,
                f"{word} '{show(target.paths[0])}' onto '{dest}', which exists",
                "delete or rename the file that is in the way with an earlier patch",
            )
        )  # fmt: skip

    def _uncopy(self, target: Target, path: str) -> FileReport:
        """The reverse of a copy: the copy must be the source with the edit, and goes."""
        source, copied = self.get(path), self.get(target.dest)
        if copied is None:
            done = tuple(Placed(hunk, AlreadyApplied(1), 0) for hunk in target.hunks)
            return FileReport(target.dest, target.line, done, already=True)
        report, data = self._place(target, target.dest, copied)
        if data is None:
            return report
        if source is None or data != source.data:
            return report._replace(
                trouble=Trouble(
                    False, target.line,
                    f"'{show(target.dest)}' is no copy of '{show(path)}' as the patch left it",
                )
            )  # fmt: skip
        self.now[target.dest] = None
        return report

    # -- shared ---------------------------------------------------------------------------------

    def _missing(self, target: Target, path: str) -> FileReport:
        hunks = tuple(Placed(hunk, TargetMissing()) for hunk in target.hunks)
        return FileReport(
            path, target.line, hunks,
            Trouble(
                False, target.line, f"'{show(path)}' is not in the tree",
                "check the strip level and the base; leave out the part about files that the tree "
                "does not ship",
            ),
        )  # fmt: skip

    def _place(self, target: Target, path: str, file: File) -> tuple[FileReport, bytes | None]:
        """The hunks in the file; its new content when every one of them has its place."""
        if not target.hunks:
            return FileReport(path, target.line), file.data
        image = Image(self.lines.of(path, file.data))
        options = Options(lambda: is_blob(file.data, target.old_blob), self.allow_repeat)
        placed = tuple(place(image, target.hunks, options))
        if all(map(_LANDS, placed)):
            report = FileReport(path, target.line, placed, lines=image.lines)
            return report, self.lines.learn(path, rebuild(image.lines, placed))
        already = [isinstance(p.placement, AlreadyApplied) for p in placed]
        report = FileReport(path, target.line, placed, already=all(already), lines=image.lines)
        unchecked = next((p for p in placed if p.unchecked), None)
        if unchecked is not None:
            report = report._replace(
                trouble=Trouble(
                    True, unchecked.hunk.line,
                    f"hunk {unchecked.hunk.n} inserts into '{show(path)}' without any context, "
                    "which nothing can check",
                    "make the patch again with context ('diff -U3')",
                )
            )  # fmt: skip
            return report, None
        if all(
            p.lands or (there and self.allow_repeat)
            for p, there in zip(placed, already, strict=True)
        ):
            return report, self.lines.learn(path, rebuild(image.lines, placed))
        return report, None


def parents(path: str) -> Iterator[str]:
    """The directories of ``path``, outermost first."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def split_lines(data: bytes) -> list[bytes]:
    """The lines with their line feeds; no other byte ends a line."""
    return io.BytesIO(data).readlines()


def rebuild(lines: list[bytes], placed: tuple[Placed, ...]) -> list[bytes]:
    """The file with every placed hunk's change in it; context is kept from the file."""
    out: list[bytes] = []
    done = 0
    for item in placed:
        if not item.lands:
            continue
        hunk: Hunk = item.hunk
        out += lines[done : item.at + hunk.leading]
        out += hunk.new[hunk.leading : len(hunk.new) - hunk.trailing]
        done = item.at + len(hunk.old) - hunk.trailing
    out += lines[done:]
    return out


def is_blob(data: bytes, blob: str) -> bool:
    """Whether git's object id of ``data`` begins with ``blob`` (SHA-1 by git's definition)."""
    if len(blob) < 7 or not blob.strip("0"):
        return False
    import hashlib

    algorithm = hashlib.sha256 if len(blob) > 40 else hashlib.sha1
    return algorithm(b"blob %d\0" % len(data) + data).hexdigest().startswith(blob)


def link_escapes(path: str, destination: str) -> bool:
    """Whether a symlink at ``path`` points out of its tree, by its text alone."""
    if destination.startswith("/"):
        return True
    depth = path.count("/")
    for part in destination.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False


def _link_trouble(target: Target, path: str, data: bytes) -> Trouble | None:
    destination = data.decode("utf-8", "surrogateescape")
    if not destination or "\0" in destination or "\n" in destination:
        return Trouble(True, target.line, f"'{show(path)}' would be a symlink to no file name")
    if link_escapes(path, destination):
        return Trouble(
            True, target.line,
            f"'{show(path)}' would be a symlink out of the tree, to '{show(destination)}'",
            "a patch may only link inside its tree",
        )  # fmt: skip
    return None


def _wrong_kind(target: Target, path: str, file: File) -> Trouble | None:
    """Regular file, symlink and directory must not stand in for one another."""
    if file.kind == "d":
        return Trouble(False, target.line, f"'{show(path)}' is a directory")
    if file.kind == "l" and target.old_kind != "l":
        return Trouble(
            True, target.line, f"'{show(path)}' is a symlink, and the patch is for a regular file",
            "patch the file that the link points to",
        )  # fmt: skip
    if file.kind != "l" and target.old_kind == "l":
        return Trouble(
            True, target.line, f"'{show(path)}' is a regular file, and the patch is for a symlink"
        )
    return None


def _mode_differs(target: Target, file: File) -> bool:
    return bool(target.old_kind) and target.old_kind != file.kind


def _mode_trouble(target: Target, path: str, file: File) -> Trouble:
    words = {"f": "not executable", "x": "executable", "l": "a symlink"}
    expected = target.old_kind or target.new_kind
    return Trouble(
        True, target.line,
        f"the mode of '{show(path)}' differs: expected {words[expected]}, "
        f"found {words[file.kind]}",
        "mend the mode in the patch, or in the tree",
    )  # fmt: skip


def _rejected(target: Target, path: str, message: str) -> FileReport:
    return FileReport(path, target.line, trouble=Trouble(False, target.line, message))


def _rank(path: str) -> tuple[int, int, int]:
    return (path.count("/"), len(path.rpartition("/")[2]), len(path))
