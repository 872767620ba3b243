"""``hq series``: any quilt series on any directory tree, without a project around it.

``check`` changes nothing; ``apply`` writes the resulting tree into a new directory. Without
``keep_going`` the first patch that does not apply ends the series: it is the last one reported, the
ones after it are not tried, and ``apply`` writes nothing. With it such a patch is left out whole.

Exit codes: 0 every patch applied; 1 one did not (a patch whose changes are all there already
counts as not applied); 2 the tree, the series or a patch file is not there, or the series cannot
be read.

A patch file that the series does not name is a warning here, for published series leave retired
patches lying about; ``lint`` and a build make it an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from hq.app.trees import DirectoryTree, check_destination, tree_digest, write_tree
from hq.model.action import Json
from hq.model.errors import InfrastructureError, Location, Problem, UsageError
from hq.patchwork.apply import File, PatchOutcome, verdict
from hq.patchwork.explain import failure
from hq.patchwork.names import show
from hq.patchwork.parse import MAX_BYTES, parse_patch
from hq.patchwork.place import Offset
from hq.patchwork.report import series_report
from hq.patchwork.series import (
    Entry,
    apply_series,
    orphan_problems,
    parse_series,
)


class SeriesReport(NamedTuple):
    """What a series did to a tree.

    ``tree``: the digest of the tree with the patches that applied, empty when it was not asked for.
    ``total``: how many patches the series has; those after a failure may not have been tried.
    ``written``: the directory that holds the result, or empty.
    """

    outcomes: tuple[PatchOutcome, ...]
    changes: dict[str, File | None]
    tree: str
    total: int
    folder: str
    warnings: tuple[str, ...] = ()
    written: str = ""

    @property
    def applied(self) -> bool:
        """Whether every patch of the series applied."""
        return len(self.outcomes) == self.total and all(
            outcome.outcome == "applied" for outcome in self.outcomes
        )

    def document(self) -> dict[str, Json]:
        """The ``hq.series/1`` document."""
        return series_report(self.tree, self.outcomes)


class Result(NamedTuple):
    """What a command gives: its exit code, its document for ``--json``, its text for people."""

    exit_code: int
    document: dict[str, Json]
    text: str


class PatchFolder:
    """A series file and the folder of its patches."""

    def __init__(self, series: str, patches: str | None) -> None:
        """Reads the series. Raises ``UsageError`` with every mistake in it."""
        self.series = series
        self.folder = patches if patches is not None else os.path.dirname(series) or "."
        text = _read_series(series)
        if not os.path.isdir(self.folder):
            raise UsageError(
                "the folder of the patches is not there",
                where=Location(self.folder), hint="give --patches DIR",
            )  # fmt: skip
        self.entries = parse_series(text, series, self._is_file)

    def load(self, name: str) -> bytes:
        """A patch's bytes; more than the limit is cut there, for the reader to refuse."""
        place = self._place(name)
        try:
            with open(place, "rb") as file:
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise InfrastructureError(
                f"cannot read a patch: {error.strerror}", where=Location(os.fsdecode(place))
            ) from None

    def orphans(self) -> list[Problem]:
        """Patch files that no series in the folder names."""
        present = []
        for folder, _, files in os.walk(self.folder):
            below = os.path.relpath(folder, self.folder)
            present += [file if below == "." else f"{below}/{file}" for file in files]
        return orphan_problems(self._named(present), present, self.folder)

    def _named(self, present: list[str]) -> set[str]:
        """What this series and its siblings (``series-0.28.0``) name."""
        named = {entry.name for entry in self.entries}
        for name in present:
            if name.startswith("series"):
                try:
                    named.update(entry.name for entry in parse_series(self.load(name), name))
                except (UsageError, InfrastructureError):
                    continue  # it only looks like a series
        return named

    def path(self, name: str) -> str:
        """A patch's path for people."""
        return os.path.join(self.folder, name)

    def _place(self, name: str) -> bytes:
        return os.path.join(os.fsencode(self.folder), name.encode("utf-8", "surrogateescape"))

    def _is_file(self, name: str) -> bool:
        try:
            return stat.S_ISREG(os.stat(self._place(name)).st_mode)
        except (OSError, ValueError):
            return False


def _read_series(series: str) -> bytes:
    try:
        with open(series, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(
            f"cannot read the series: {error.strerror}",
            where=Location(series), hint="give --series FILE",
        ) from None  # fmt: skip


def check(
    tree: str,
    series: str,
    patches: str | None = None,
    *,
    keep_going: bool = False,
    strict: bool = False,
    digest: bool = True,
) -> SeriesReport:
    """What the series would do to the tree; changes nothing.

    ``digest=False`` leaves the tree's digest out and so reads only the files that are patched.
    Raises ``UsageError`` (a missing or unreadable input), ``BuildError`` (a special file in the
    tree), ``InfrastructureError`` (the disk).
    """
    source = DirectoryTree(tree)
    folder = PatchFolder(series, patches)
    report = _try(source, folder, keep_going, strict)
    return report._replace(tree=tree_digest(source, report.changes)) if digest else report


def apply(
    tree: str,
    series: str,
    into: str,
    patches: str | None = None,
    *,
    keep_going: bool = False,
    strict: bool = False,
) -> SeriesReport:
    """Writes the tree with the series applied to it as the new directory ``into``.

    When a patch does not apply, nothing is written unless ``keep_going``. Raises as ``check``.
    """
    source = DirectoryTree(tree)
    folder = PatchFolder(series, patches)
    check_destination(into, tree)
    report = _try(source, folder, keep_going, strict)
    if not report.applied and not keep_going:
        return report._replace(tree=tree_digest(source, report.changes))
    digest = write_tree(source, report.changes, into)
    return report._replace(tree=digest, written=into)


def _try(
    source: DirectoryTree, folder: PatchFolder, keep_going: bool, strict: bool
) -> SeriesReport:
    seen: dict[str, File | None] = {}

    def read(path: str) -> File | None:
        if path not in seen:
            seen[path] = source.read(path)
        return seen[path]

    outcome = apply_series(folder.entries, folder.load, read, keep_going=keep_going, strict=strict)
    warnings = tuple(str(problem) for problem in folder.orphans())
    return SeriesReport(
        outcome.outcomes, outcome.changes, "", len(folder.entries), folder.folder, warnings
    )


# -- text ---------------------------------------------------------------------------------------

_WORDS = {
    "applied": "ok",
    "already-applied": "already",
    "rejected": "REJECTED",
    "refused": "REFUSED",
}


def render_text(report: SeriesReport) -> str:
    """The report for people: a line a patch, what is worth knowing, each failure explained."""
    lines: list[str] = []
    for outcome in report.outcomes:
        lines.append(f"{_WORDS[outcome.outcome]:<9}{show(outcome.name)}{_counts(outcome)}")
        lines += _remarks(outcome)
    left = report.total - len(report.outcomes)
    for outcome in report.outcomes:
        error = failure(outcome, os.path.join(report.folder, outcome.name))
        if error is not None:
            lines += ["", error.render()]
    lines += ["", _summary(report.outcomes, left)]
    if report.tree:
        lines.append(f"tree sha256:{report.tree}")
    if report.written:
        lines.append(f"written to {report.written}")
    return "\n".join(lines).lstrip("\n")


def _counts(outcome: PatchOutcome) -> str:
    if outcome.outcome != "applied":
        return ""
    hunks = [placed for report in outcome.files for placed in report.hunks]
    offset = sum(isinstance(placed.placement, Offset) for placed in hunks)
    text = f"  {_many(len(outcome.files), 'file')}, {_many(len(hunks), 'hunk')}"
    return f"{text}, {offset} at an offset" if offset else text


def _remarks(outcome: PatchOutcome) -> list[str]:
    """Offsets and notes of hunks that landed: nothing to stop for, and not to be hidden."""
    if outcome.outcome != "applied":
        return []
    return [
        f"{'':9}{show(report.path)} hunk {placed.hunk.n} {verdict(placed)}"
        + (f"; {placed.note}" if placed.note else "")
        for report in outcome.files
        for placed in report.hunks
        if placed.note or not placed.lands or isinstance(placed.placement, Offset)
    ]


def _summary(outcomes: Sequence[PatchOutcome], left: int) -> str:
    counts = [
        (sum(outcome.outcome == kind for outcome in outcomes), word)
        for kind, word in (
            ("applied", "applied"),
            ("already-applied", "applied already"),
            ("rejected", "rejected"),
            ("refused", "refused"),
        )
    ]
    counts.append((left, "not tried"))
    said = ", ".join(f"{count} {word}" for count, word in counts if count)
    return f"{_many(len(outcomes) + left, 'patch')}: {said or 'nothing to do'}"


def _many(count: int, word: str) -> str:
    plural = "es" if word.endswith("ch") else "s"
    return f"{count} {word}" if count == 1 else f"{count} {word}{plural}"


# -- lint and table -----------------------------------------------------------------------------


def lint(series: str, patches: str | None = None) -> list[Problem]:
    """Every mistake in the headers of a series' patches, and patch files that it does not name."""
    from hq.patchwork.lint import lint as lint_patch

    folder = PatchFolder(series, patches)
    problems = folder.orphans()
    for entry in folder.entries:
        patch = parse_patch(folder.load(entry.name), entry.name)
        problems += lint_patch(patch, folder.path(entry.name), entry.strip)
    return problems


def run_check(
    tree: str,
    series: str,
    patches: str | None = None,
    *,
    keep_going: bool = False,
    strict: bool = False,
    json: bool = False,
) -> Result:
    """``hq series check``."""
    report = check(tree, series, patches, keep_going=keep_going, strict=strict, digest=json)
    return _result(report)


def run_apply(
    tree: str,
    series: str,
    into: str,
    patches: str | None = None,
    *,
    keep_going: bool = False,
    strict: bool = False,
) -> Result:
    """``hq series apply``."""
    return _result(apply(tree, series, into, patches, keep_going=keep_going, strict=strict))


def _result(report: SeriesReport) -> Result:
    text = render_text(report)
    if report.warnings:
        text = "\n".join([*(f"warning: {line}" for line in report.warnings), text])
    return Result(0 if report.applied else 1, report.document(), text)


def run_lint(series: str, patches: str | None = None) -> Result:
    """``hq series lint``: exit code 1 when anything is wrong."""
    problems = lint(series, patches)
    document: dict[str, Json] = {
        "schema": "hq.series-lint/1",
        "problems": [
            {
                "file": problem.where.file,
                "line": problem.where.line,
                "message": problem.message,
                "hint": problem.hint,
            }
            for problem in problems
        ],
    }
    text = "\n".join(str(problem) for problem in problems) or "every header is complete"
    return Result(1 if problems else 0, document, text)


def run_table(series: str, patches: str | None = None) -> Result:
    """``hq series table``: the ledger."""
    from hq.patchwork.lint import row

    folder = PatchFolder(series, patches)
    rows = [
        row(parse_patch(folder.load(entry.name), entry.name), entry.strip)
        for entry in folder.entries
    ]
    document: dict[str, Json] = {
        "schema": "hq.series-table/1",
        "patches": [dict(found._asdict()) for found in rows],
    }
    head = ("patch", "kind", "subject", "cut against", "retires when", "files", "+", "-")
    cells = [
        (
            found.name, found.kind, found.subject, found.cut_against, found.retires_when,
            str(found.files), str(found.added), str(found.removed),
        )
        for found in rows
    ]  # fmt: skip
    return Result(0, document, _table([head, *cells]))


def _table(rows: list[tuple[str, ...]]) -> str:
    cut = [[cell if len(cell) <= 48 else cell[:47] + "…" for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cut) for column in range(len(cut[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cut
    )


__all__ = [
    "Entry",
    "PatchFolder",
    "Result",
    "SeriesReport",
    "apply",
    "check",
    "lint",
    "render_text",
]
