"""A patch's outcome as plain JSON: one entry of the ``hq.series/1`` document."""

from __future__ import annotations

from hq.model.action import Json
from hq.patchwork.apply import FileReport, PatchOutcome, listed
from hq.patchwork.place import (
    AlreadyApplied,
    Ambiguous,
    Conflict,
    Exact,
    Fuzzy,
    Offset,
    Placed,
    Placement,
)

SCHEMA = "hq.series/1"


def series_report(
    tree: str, outcomes: list[PatchOutcome] | tuple[PatchOutcome, ...]
) -> dict[str, Json]:
    """The whole document; ``tree`` is the digest of the tree with what applied."""
    return {"schema": SCHEMA, "tree": tree, "patches": [patch_report(o) for o in outcomes]}


def patch_report(outcome: PatchOutcome) -> dict[str, Json]:
    """``{"name", "outcome", "reason", "files"}``."""
    reason = outcome.reason
    if outcome.line and outcome.outcome == "refused":
        reason = f"line {outcome.line}: {reason}"
    return {
        "name": outcome.name,
        "outcome": outcome.outcome,
        "reason": reason,
        "files": [file_report(report) for report in outcome.files],
    }


def file_report(report: FileReport) -> dict[str, Json]:
    """``{"path", "hunks"}``."""
    return {"path": report.path, "hunks": [hunk_report(placed) for placed in report.hunks]}


def hunk_report(placed: Placed) -> dict[str, Json]:
    """``{"n", "outcome", "line", "offset", "fuzz", "note"}``.

    ``line``: in the file as the hunks above left it, from 1; null where there is none.
    ``offset``: against the stated line, lines added above not counted.
    """
    outcome = placed.placement
    line, offset, fuzz, note = _numbers(outcome, placed)
    return {
        "n": placed.hunk.n,
        "outcome": outcome_name(outcome),
        "line": line,
        "offset": offset,
        "fuzz": fuzz,
        "note": note,
    }


def outcome_name(outcome: Placement) -> str:
    """The outcome's name in reports."""
    names = {
        Exact: "exact",
        Offset: "offset",
        Ambiguous: "ambiguous",
        AlreadyApplied: "already-applied",
        Fuzzy: "fuzzy",
        Conflict: "conflict",
    }
    return names.get(type(outcome), "target-missing")


def _numbers(outcome: Placement, placed: Placed) -> tuple[int | None, int, int, str]:
    note = placed.note
    match outcome:
        case Exact(line) | AlreadyApplied(line):
            return line, 0, 0, note
        case Offset(line, by):
            return line, by, 0, note
        case Fuzzy(line, fuzz):
            return line, 0, fuzz, note
        case Ambiguous(candidates):
            return candidates[0], 0, 0, f"fits equally well at lines {listed(candidates, 20)}"
        case Conflict(nearest):
            return nearest or None, 0, 0, note
        case _:
            return None, 0, 0, note or "the file is not in the tree"
