"""The ledger of patches: what is carried, what was retired and why, what is absent and why.

``hq series table`` prints it beside what the headers of the patches say; ``hq port retire`` writes
it.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from hq.app.config import Files, Project
from hq.app.declaration import Table, Text
from hq.app.validate import load_document
from hq.model.action import Json


class LedgerEntry(Table):
    """``[[patch]]``."""

    name: Text
    status: Literal["carried", "retired", "absent"]
    kind: Text
    pins: tuple[Text, ...] = ()
    part: str = ""
    upstream: str = ""
    formerly: str = ""
    ported_as: str = ""
    reason: Text
    retires_when: str = ""


class LedgerFile(Table):
    """``patches/ledger.toml``."""

    schema_: Literal["hq.ledger/1"] = Field(alias="schema")
    patch: Annotated[tuple[LedgerEntry, ...], Field(min_length=1)]


class LedgerRow(NamedTuple):
    """A line of the table."""

    name: str
    status: str
    kind: str
    pins: str
    reason: str
    ends: str


def read_ledger(files: Files, project: Project) -> tuple[LedgerEntry, ...]:
    """The project's ledger; empty when it declares none. Raises ``UsageError``."""
    path = project.declared.patches.ledger
    if path is None:
        return ()
    return load_document(path, files.read(path), LedgerFile)[0].patch


def rows(entries: tuple[LedgerEntry, ...]) -> list[LedgerRow]:
    """The table's lines, in the ledger's order."""
    return [
        LedgerRow(
            f"{entry.name} ({entry.part})" if entry.part else entry.name,
            entry.status,
            entry.kind,
            ", ".join(entry.pins),
            entry.reason,
            entry.retires_when or entry.upstream,
        )
        for entry in entries
    ]


def document(entries: tuple[LedgerEntry, ...]) -> list[Json]:
    """The ledger as JSON values."""
    return [dict(entry.model_dump(by_alias=True, mode="json")) for entry in entries]


def text(found: list[LedgerRow], width: int = 60) -> str:
    """The table in aligned columns."""
    head = LedgerRow("patch", "status", "kind", "pins", "reason", "retires when, or upstream")
    cut = [[_cut(cell, width) for cell in row] for row in (head, *found)]
    widths = [max(len(row[column]) for row in cut) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in cut
    )


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 1] + "…"
