"""A triage for people and programs: text, Markdown, and the ``hq.triage/1`` document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hq.model.action import Json
from hq.port.commits import Touched
from hq.port.corpus import Place
from hq.port.declared import Broken
from hq.port.retire import Proposal
from hq.port.review import Finding
from hq.port.triage import Change, Ground, HunkRow, PatchRow, Triage

SCHEMA = "hq.triage/1"
_TITLES = {
    "fails": "Fails",
    "doubtful": "Doubtful: fuzz, twins, far away, there already",
    "broken": "Declared, and not so in the new tree",
    "moved": "Clean, and the ground moved",
    "findings": "Clean, and no longer means what it did",
    "commits": "Upstream's commits",
    "carried": "Upstream may carry it (hq port retire NAME --because …)",
}


def counts(found: Triage, findings: Sequence[Finding] = ()) -> dict[str, Json]:
    """How long each list is."""
    applied = sum(row.outcome == "applied" for row in found.patches)
    return {
        "patches": len(found.patches),
        "applied": applied,
        "hunks": sum(row.n > 0 for row in found.hunks),
        "fails": len(found.of("fails")),
        "doubtful": len(found.of("doubtful")),
        "clean": len(found.of("clean")),
        "exact": sum(row.outcome == "exact" for row in found.hunks),
        "offset": sum(row.outcome == "offset" for row in found.hunks),
        "fuzzy": sum(row.outcome == "fuzzy" for row in found.hunks),
        "moved": len(found.moved),
        "findings": len(findings),
    }


def document(
    found: Triage,
    findings: Sequence[Finding] = (),
    carried: Sequence[Proposal] = (),
    commits: Sequence[Touched] = (),
    broken: Sequence[Broken] = (),
) -> dict[str, Json]:
    """The ``hq.triage/1`` document."""
    return {
        "schema": SCHEMA,
        "from": found.old,
        "to": found.new,
        "counts": counts(found, findings),
        "patches": [_patch(row) for row in found.patches],
        "fails": [_hunk(row) for row in found.of("fails")],
        "doubtful": [_hunk(row) for row in found.of("doubtful")],
        "moved": [_ground(row) for row in found.moved],
        "missing": [
            {"patch": row.patch, "path": row.path, "moved": row.moved} for row in found.missing
        ],
        "taken": list(found.taken),
        "findings": [finding_document(finding) for finding in findings],
        "carried": [_proposal(one) for one in carried],
        "commits": [_touched(one) for one in commits],
        "broken": [{"what": one.what, "path": one.path, "found": one.found} for one in broken],
    }


def _patch(row: PatchRow) -> dict[str, Json]:
    return {
        "name": row.name,
        "file": row.file,
        "group": row.group,
        "outcome": row.outcome,
        "reason": row.reason,
        "hunks": row.hunks,
        "behind": list(row.behind),
    }


def _hunk(row: HunkRow) -> dict[str, Json]:
    return {
        "patch": row.patch,
        "where": {"file": row.where.file, "line": row.where.line},
        "path": row.path,
        "n": row.n,
        "outcome": row.outcome,
        "line": row.line,
        "offset": row.offset,
        "fuzz": row.fuzz,
        "text": row.text,
    }


def _ground(row: Ground) -> dict[str, Json]:
    return {
        "patch": row.patch,
        "path": row.path,
        "hunks": list(row.hunks),
        "added": row.added,
        "removed": row.removed,
        "definitions": [
            {
                "name": change.name,
                "added": change.added,
                "removed": change.removed,
                "old": change.old,
                "new": change.new,
                "callers": change.callers,
                "called": [{"path": place.path, "line": place.line} for place in change.called],
            }
            for change in row.definitions
        ],
    }


def finding_document(finding: Finding) -> dict[str, Json]:
    """A finding of the review as JSON."""
    return {
        "kind": finding.kind,
        "where": {"file": finding.where.file, "line": finding.where.line},
        "path": finding.path,
        "line": finding.line,
        "message": finding.message,
        "upstream": [
            {"version": one.version, "path": one.path, "line": one.line, "text": one.text}
            for one in finding.upstream
        ],
    }


def _proposal(one: Proposal) -> dict[str, Json]:
    return {
        "patch": one.patch,
        "file": one.file,
        "whole": one.is_whole,
        "hunks": [
            {
                "n": hunk.n,
                "where": {"file": hunk.where.file, "line": hunk.where.line},
                "path": hunk.path,
                "line": hunk.line,
                "definition": hunk.definition,
            }
            for hunk in one.hunks
        ],
        "commits": [
            {"commit": commit.commit, "subject": commit.subject, "named": commit.named}
            for commit in one.commits
        ],
    }


def _touched(one: Touched) -> dict[str, Json]:
    return {
        "patch": one.patch,
        "path": one.path,
        "commits": [
            {"commit": commit.id, "subject": commit.subject, "hunks": list(hunks)}
            for commit, hunks in one.commits
        ],
        "lost": [{"commit": commit.id, "subject": commit.subject} for commit in one.lost],
    }


# -- text ------------------------------------------------------------------------------------------


def text(
    found: Triage,
    findings: Sequence[Finding] = (),
    carried: Sequence[Proposal] = (),
    commits: Sequence[Touched] = (),
    broken: Sequence[Broken] = (),
    *,
    markdown: bool = False,
) -> str:
    """The lists for people, on a terminal or as Markdown."""
    lines = [_summary(found, findings, markdown=markdown)]
    sections: list[tuple[str, list[str]]] = [
        ("fails", [_hunk_line(row) for row in found.of("fails")] + list(_whole(found))),
        ("doubtful", [_hunk_line(row) for row in found.of("doubtful")]),
        ("broken", [f"{one.path}: {one.what}: {one.found}" for one in broken]),
        ("moved", [line for row in found.moved for line in _ground_lines(row)]),
        ("findings", [line for one in findings for line in finding_lines(one)]),
        ("carried", [line for one in carried for line in _proposal_lines(one)]),
        ("commits", [line for one in commits for line in _touched_lines(one)]),
    ]
    for name, body in sections:
        if not body:
            continue
        if markdown:
            lines += ["", f"### {_TITLES[name]}", ""]
            lines += [line if line.startswith(" ") else f"- {line}" for line in _escaped(body)]
        else:
            lines += ["", f"{_TITLES[name]}:", *(f"  {line}" for line in body)]
    return "\n".join(lines)


def _escaped(body: Sequence[str]) -> Iterator[str]:
    for line in body:
        indent = len(line) - len(line.lstrip(" "))
        mark = "- " if indent else ""
        yield " " * indent + mark + line.strip().replace("*", r"\*").replace("_", r"\_")


def _summary(found: Triage, findings: Sequence[Finding], *, markdown: bool) -> str:
    number = counts(found, findings)
    head = f"{found.old} to {found.new}"
    said = (
        f"{number['applied']} of {number['patches']} patches apply, {number['hunks']} hunks: "
        f"{number['exact']} exact, {number['offset']} at an offset, {number['fuzzy']} by fuzz "
        f"only; {number['fails']} fail, {number['doubtful']} doubtful, "
        f"{number['moved']} files of patches moved, {number['findings']} findings"
    )
    return f"## {head}\n\n{said}" if markdown else f"{head}: {said}"


def _hunk_line(row: HunkRow) -> str:
    what = f"hunk {row.n} of {row.path}" if row.n else row.path or row.patch
    separator = " " if row.n else ": "
    return f"{row.where}: {what}{separator}{row.text}"


def _whole(found: Triage) -> Iterator[str]:
    for row in found.patches:
        if row.behind:
            yield f"{row.file}: stands on {', '.join(row.behind)}, which did not apply"
    for missing in found.missing:
        if missing.moved:
            yield f"{missing.patch}: {missing.path} seems to be {missing.moved} now"
    for path in found.taken:
        yield f"{path}: the new tree has a file of this name of its own"


def _ground_lines(row: Ground) -> Iterator[str]:
    hunks = ", ".join(str(n) for n in row.hunks)
    word = "hunk" if len(row.hunks) == 1 else "hunks"
    yield f"{row.patch}: {row.path} +{row.added} -{row.removed} ({word} {hunks})"
    for change in row.definitions:
        if change.added or change.removed:
            yield f"  {_change(change)}"


def _change(change: Change) -> str:
    if not change.new:
        return f"{change.name} is gone ({change.removed} lines){_callers(change)}"
    if not change.old:
        return f"{change.name} is new ({change.added} lines){_callers(change)}"
    return f"{change.name} +{change.added} -{change.removed}, line {change.new}{_callers(change)}"


def _callers(change: Change) -> str:
    if not change.callers:
        return ""
    shown = ", ".join(_place(place) for place in change.called)
    more = change.callers - len(change.called)
    return f"; called at {shown}{f' and {more} more' if more else ''}"


def _place(place: Place) -> str:
    return f"{place.path}:{place.line}"


def finding_lines(finding: Finding) -> Iterator[str]:
    """A finding as lines: what, and what upstream had and has."""
    yield f"{finding.where}: {finding.message} [{finding.kind}]"
    for one in finding.upstream:
        yield f"  {one.version} {one.path}:{one.line}: {one.text}"


def _proposal_lines(one: Proposal) -> Iterator[str]:
    said = "all of it" if one.is_whole else f"{len(one.hunks)} of {one.total} hunks"
    yield f"{one.patch}: {said if one.hunks else 'by a commit that its header names'}"
    for hunk in one.hunks:
        within = f" in {hunk.definition}" if hunk.definition else ""
        yield f"  hunk {hunk.n}: its result stands at {hunk.path}:{hunk.line}{within}"
    for commit in one.commits:
        yield f"  {commit.named} is {commit.commit[:12]}: {commit.subject}"


def _touched_lines(one: Touched) -> Iterator[str]:
    yield f"{one.patch}: {one.path}"
    for commit, hunks in one.commits:
        word = "hunk" if len(hunks) == 1 else "hunks"
        yield f"  {commit.id[:12]} {commit.subject} ({word} {', '.join(map(str, hunks))})"
    for commit in one.lost:
        yield f"  {commit.id[:12]} {commit.subject} (only on the old release)"
