"""What a rebase did or waits for, as text and as the ``hq.rebase/1`` document."""

from __future__ import annotations

from collections.abc import Iterator

from hq.app.port_rebase import Done, Result, Row
from hq.model.action import Json
from hq.port.report import finding_document, finding_lines

SCHEMA = "hq.rebase/1"
_WORDS = {"same": "as it is", "ported": "made again", "skipped": "left out"}


def as_json(result: Result) -> dict[str, Json]:
    """The ``hq.rebase/1`` document."""
    rows: list[Json] = [
        {"name": row.name, "status": row.status, "notes": list(row.notes)} for row in result.rows
    ]
    base: dict[str, Json] = {"schema": SCHEMA, "pin": result.pin, "patches": rows}
    if isinstance(result, Done):
        return {
            **base,
            "status": "done",
            "branch": result.branch,
            "commit": result.commit,
            "files": list(result.files),
            "leftovers": [
                {"file": one.path, "line": one.line, "text": one.text} for one in result.leftovers
            ],
            "findings": [finding_document(one) for one in result.findings],
        }
    return {
        **base,
        "status": "waiting",
        "patch": result.patch,
        "reason": result.reason,
        "folder": result.folder,
        "files": dict(result.files),
    }


def as_text(result: Result) -> str:
    """For people: a line for each patch, then what to do next."""
    lines = [line for row in result.rows for line in _row(row)]
    lines += _done(result) if isinstance(result, Done) else [""]
    if not isinstance(result, Done):
        lines.append(f"{result.patch}: {result.reason}")
        lines += [f"  {result.folder}/work/{path}: {what}" for path, what in result.files.items()]
        resolve = "resolve the files above and go on with hq port rebase --continue, or "
        lines.append(
            f"{resolve if result.files else ''}leave it out with --skip, give up with --abort"
        )
    return "\n".join(lines)


def _row(row: Row) -> Iterator[str]:
    yield f"{_WORDS[row.status]:<10}  {row.name}"
    for note in row.notes:
        yield f"{'':<12}{note}"


def _done(result: Done) -> list[str]:
    count = {word: sum(row.status == word for row in result.rows) for word in _WORDS}
    lines = [
        "",
        f"{len(result.rows)} patches: {count['same']} as they are, {count['ported']} made again, "
        f"{count['skipped']} left out; the series applies exactly to {result.pin}",
    ]
    if result.branch:
        lines.append(f"branch {result.branch}, {result.commit[:12]}: git switch {result.branch}")
    else:
        lines.append(f"{len(result.files)} files written; the project is in no repository")
    lines.append(f"next: hq lock --pin {result.pin}, then hq build --pin {result.pin}")
    for finding in result.findings:
        lines += finding_lines(finding)
    return lines + [f"left: {one.path}:{one.line}: {one.text}" for one in result.leftovers]
