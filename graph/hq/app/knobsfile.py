"""``patches/knobs.toml``: the registry of environment knobs as people write it.

A default is written in the knob's own type, except that a float is a text (``"0.5"``): floats have
no text that is the same everywhere, and the default must be taken over one for one. A knob whose
unset variable means ``None`` says ``absent = "none"`` and has no default.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from hq.app.declaration import Table
from hq.app.validate import found_text, load_document
from hq.knobs.registry import Absent, Knob, KnobType, Mistake, Registry, Retired, problems
from hq.model.errors import Location, Problem, problems_error


class KnobTable(Table):
    """``[[knob]]``."""

    name: str
    type: KnobType
    default: bool | int | float | str | None = None
    absent: Absent = "default"
    choices: tuple[str, ...] = ()
    meaning: str
    owner: str
    compile_key: bool
    exported_by: tuple[str, ...] = ()


class UnreadTable(Table):
    """``[[retired]]`` or ``[[planned]]``: a name that nothing reads any more, or yet."""

    name: str
    reason: str


class KnobsFile(Table):
    """The whole file."""

    schema_: Literal["hq.knobs/1"] = Field(alias="schema")
    prefixes: tuple[str, ...] = ()
    knob: tuple[KnobTable, ...] = ()
    retired: tuple[UnreadTable, ...] = ()
    planned: tuple[UnreadTable, ...] = ()


class LoadedRegistry(NamedTuple):
    """The registry, and where each name is declared."""

    registry: Registry
    declared_at: dict[str, Location]


def load_registry(path_text: str, data: bytes) -> Registry:
    """The registry of ``data``. Raises ``UsageError`` that lists every mistake."""
    return load_registry_with_places(path_text, data).registry


def load_registry_with_places(path_text: str, data: bytes) -> LoadedRegistry:
    """As ``load_registry``, with the place of each knob for the audit's messages."""
    file, document = load_document(path_text, data, KnobsFile)
    where = document.locator()
    mistakes: list[Mistake] = []
    knobs = [_knob(table, index, mistakes) for index, table in enumerate(file.knob)]
    unread = [
        Retired(table.name, f"{state}: {table.reason}")
        for state, tables in (("retired", file.retired), ("planned", file.planned))
        for table in tables
    ]
    # A default that is no text already has its mistake; the other rules hold for it as they are.
    faulty = {mistake.path for mistake in mistakes}
    mistakes += [
        mistake for mistake in problems(knobs, file.prefixes, unread) if mistake.path not in faulty
    ]
    if mistakes:
        placed = [_of_planned(mistake, len(file.retired)) for mistake in mistakes]
        found = [_problem(where(*mistake.path), mistake) for mistake in placed]
        count = "one mistake" if len(found) == 1 else f"{len(found)} mistakes"
        raise problems_error(f"{path_text} has {count}", found)
    places = {knob.name: where("knob", index) for index, knob in enumerate(knobs)}
    return LoadedRegistry(Registry.of(knobs, file.prefixes, unread), places)


def _of_planned(mistake: Mistake, retired: int) -> Mistake:
    """The two tables of names that nothing reads are one list to the rules."""
    table, index, *key = mistake.path
    if table != "retired" or int(index) < retired:
        return mistake
    return Mistake(("planned", int(index) - retired, *key), mistake.message)


def _problem(where: Location, mistake: Mistake) -> Problem:
    table, index, *key = mistake.path
    path = f"{table}[{index}]" + "".join(f".{part}" for part in key)
    return Problem(where, f"{path}: {mistake.message}")


def _knob(table: KnobTable, index: int, mistakes: list[Mistake]) -> Knob:
    default, message = _default_text(table)
    if message:
        mistakes.append(Mistake(("knob", index, "default"), message))
    return Knob(
        name=table.name,
        type=table.type,
        default=default,
        meaning=table.meaning,
        owner=table.owner,
        compile_key=table.compile_key,
        exported_by=tuple(sorted(table.exported_by)),
        choices=table.choices,
    )


def _default_text(table: KnobTable) -> tuple[str | None, str]:
    """The default as it would be exported, or what is wrong with it."""
    value = table.default
    if table.absent == "none":
        wrong = 'an unset variable is None here (absent = "none"), so there is no default'
        return None, "" if value is None else wrong
    if value is None:
        return None, 'missing; say absent = "none" if an unset variable means None'
    found = found_text(value)
    if table.type == "bool":
        is_right = isinstance(value, bool)
        return ("1" if value is True else "0"), (
            "" if is_right else f"expected true or false, found {found}"
        )
    if table.type == "int":
        is_right = isinstance(value, int) and not isinstance(value, bool)
        return (str(value) if is_right else None), (
            "" if is_right else f"expected an integer, found {found}"
        )
    if isinstance(value, str):
        return value, ""
    if table.type == "float":
        wrong = f'expected a text, such as "{value}": a float is written as it is exported'
        return None, wrong
    return None, f"expected a text, found {found}"
