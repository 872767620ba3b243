"""``hq port retire``: takes a patch out of a pin's series and writes down why.

The patch's file goes when no other pin has it; so do the knobs that only it owned, whose names stay
in the registry as retired. What became of it is said in the ledger. Nothing is written unless all
of it can be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from hq.app.config import Project, check_pin, read_project
from hq.app.folder import ProjectFolder
from hq.app.port_state import write_file
from hq.app.validate import did_you_mean
from hq.model.errors import Location, UsageError
from hq.model.project import SeriesItem
from hq.patchwork.series import Entry, parse_series


class Retired(NamedTuple):
    """What was done: files that changed, files that were removed, knobs that were retired."""

    name: str
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    knobs: tuple[str, ...]


def retire(root: str, name: str, because: str, pin: str = "", part: str = "") -> Retired:
    """Retires ``name`` (with or without ``.patch``) from a pin; the default one if empty.

    ``part``: only a part of the patch is meant: the ledger notes it, the series keeps the patch.
    Raises ``UsageError``.
    """
    if not because.strip():
        raise UsageError("no reason is given", hint='say why: --because "upstream carries it: …"')
    project = read_project(ProjectFolder(root))
    pin = pin or project.default_pin
    check_pin(project, pin)
    work = _Retirement(root, project, pin, because.strip())
    item = work.find(name)
    if part:
        work.note_part(item, part)
    else:
        work.take_out(item)
    return work.write(item)


class _Retirement:
    def __init__(self, root: str, project: Project, pin: str, because: str) -> None:
        self._root = root
        self._files = ProjectFolder(root)
        self._declared = project.declared
        self._pin = pin
        self._because = because
        self._changed: dict[str, str] = {}
        self._removed: list[str] = []
        self._knobs: list[str] = []

    def _text(self, path: str) -> str:
        return self._changed.get(path) or self._files.read(path).decode("utf-8", "surrogateescape")

    def _entries(self, pin: str) -> tuple[Entry, ...]:
        path = self._declared.pins[pin].series
        return parse_series(self._files.read(path), path)

    def find(self, name: str) -> SeriesItem:
        """The patch of this name. Raises ``UsageError``."""
        folder = self._declared.patches.directory
        items = [
            SeriesItem(entry.name, f"{folder}/{entry.name}", entry.strip, entry.reverse)
            for entry in self._entries(self._pin)
        ]
        wanted = [item for item in items if name in (item.name, item.stem, item.file)]
        if len(wanted) == 1:
            return wanted[0]
        series = self._declared.pins[self._pin].series
        if wanted:
            raise UsageError(
                f"{name!r} names several patches of the series",
                where=Location(series), details=[item.name for item in wanted],
                hint="give the whole name",
            )  # fmt: skip
        raise UsageError(
            f"there is no patch {name!r} in the series of {self._pin}",
            where=Location(series),
            hint=did_you_mean(name, [item.stem for item in items]) or "see hq series table",
        )

    def take_out(self, item: SeriesItem) -> None:
        """Takes the patch out of the series, and away where no pin has it."""
        series = self._declared.pins[self._pin].series
        lines = self._text(series).split("\n")
        number = next(e.line for e in self._entries(self._pin) if e.name == item.name)
        del lines[number - 1]
        self._changed[series] = "\n".join(lines)
        others = [pin for pin in self._declared.pins if pin != self._pin and self._has(pin, item)]
        files = {entry.name for pin in others for entry in self._entries(pin)}
        if item.name not in files:
            self._removed.append(item.file)
        if not others:
            self._retire_knobs(f"patch:{item.stem}")
        self._note(item, others)

    def _has(self, pin: str, item: SeriesItem) -> bool:
        """Whether a pin has this patch, in this file or in one of its own."""
        names = [SeriesItem(entry.name, entry.name, 1, False).stem for entry in self._entries(pin)]
        return item.stem in names

    def _retire_knobs(self, owner: str) -> None:
        import tomlkit

        table = self._declared.knobs
        if table is None:
            return
        document = tomlkit.parse(self._text(table.registry))
        knobs: Any = document.get("knob", [])
        gone = [knob for knob in knobs if knob.get("owner") == owner]
        if not gone:
            return
        for knob in gone:
            self._knobs.append(str(knob["name"]))
            knobs.remove(knob)
        if not knobs:
            document.remove("knob")
        rows = [_row(tomlkit, name=knob["name"], reason=self._because) for knob in gone]
        _append(tomlkit, document, "retired", rows)
        self._changed[table.registry] = _spaced(tomlkit.dumps(document))

    # -- the ledger -----------------------------------------------------------------------------

    def _note(self, item: SeriesItem, others: list[str]) -> None:
        entry, document = self._ledger_entry(item)
        if document is None:
            return
        if entry is None:
            self._add_entry(document, item, pins=others, status="carried" if others else "retired")
            return
        pins = entry["pins"]
        for number in range(len(pins) - 1, -1, -1):
            if pins[number] == self._pin:
                del pins[number]
        entry["upstream"] = f"{self._pin}: {self._because}"
        if not others:
            entry["status"] = "retired"
            entry["retires-when"] = "retired"
        self._put_ledger(document)

    def note_part(self, item: SeriesItem, part: str) -> None:
        """Notes in the ledger that a part of the patch is retired. Raises ``UsageError``."""
        _, document = self._ledger_entry(item)
        if document is None:
            raise UsageError(
                "the project keeps no ledger",
                where=Location("build.toml"),
                hint='name one: [patches] ledger = "patches/ledger.toml"',
            )
        self._add_entry(document, item, pins=[], status="retired", part=part)

    def _ledger_entry(self, item: SeriesItem) -> tuple[Any, Any]:
        import tomlkit

        path = self._declared.patches.ledger
        if path is None:
            return None, None
        document = tomlkit.parse(self._text(path))
        for entry in document.get("patch", ()):
            if entry.get("name") == item.stem and "part" not in entry:
                return entry, document
        return None, document

    def _add_entry(
        self, document: Any, item: SeriesItem, *, pins: list[str], status: str, part: str = ""
    ) -> None:
        import tomlkit

        from hq.patchwork.parse import parse_patch

        patch = parse_patch(self._files.read(item.file), item.name)
        row = {
            "name": item.stem,
            **({"part": part} if part else {}),
            "status": status,
            "kind": (patch.field("Kind") or "local").strip(),
            "pins": pins,
            "ported-as": "retired",
            "upstream": f"{self._pin}: {self._because}",
            "reason": " ".join((patch.field("Subject") or item.stem).split()),
            "retires-when": "retired" if not pins else (patch.field("Retires-When") or "never"),
        }
        _append(tomlkit, document, "patch", [_row(tomlkit, **row)])
        self._put_ledger(document)

    def _put_ledger(self, document: Any) -> None:
        import tomlkit

        assert self._declared.patches.ledger is not None
        self._changed[self._declared.patches.ledger] = _spaced(tomlkit.dumps(document))

    # -- writing --------------------------------------------------------------------------------

    def write(self, item: SeriesItem) -> Retired:
        """Writes what changed, then removes what went."""
        for path, text in sorted(self._changed.items()):
            data = text.encode("utf-8", "surrogateescape")
            write_file(os.path.join(self._root, path), data)
        for path in self._removed:
            os.unlink(os.path.join(self._root, path))
        changed = tuple(sorted(self._changed))
        return Retired(item.stem, changed, tuple(self._removed), tuple(self._knobs))


def _row(tomlkit: Any, **values: Any) -> Any:
    table = tomlkit.table()
    for key, value in values.items():
        table.add(key, value)
    return table


def _append(tomlkit: Any, document: Any, name: str, rows: list[Any]) -> None:
    """Adds tables to an array of tables, an empty line before each."""
    if name not in document:
        document.add(name, tomlkit.aot())
    for row in rows:
        document[name].append(row)


def _spaced(text: str) -> str:
    """An empty line above each table, which ``tomlkit`` does not put before one that is new."""
    return re.sub(r"(?<=[^\n])\n(\[\[)", r"\n\n\1", text).rstrip("\n") + "\n"


def lines_of(done: Retired) -> Iterator[str]:
    """What was done, for people."""
    yield f"{done.name} is retired"
    for path in done.changed:
        yield f"  changed  {path}"
    for path in done.removed:
        yield f"  removed  {path}"
    for name in done.knobs:
        yield f"  knob     {name} is kept as retired"
