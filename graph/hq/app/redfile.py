"""``images/red-*.toml``: a build with one deliberate fault, the check that must fail, and why.

The files stand beside the images that they are derived from; nothing needs to list them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, model_validator

from hq.app.config import Files, read_project
from hq.app.declaration import Name, ProjectPath, Table, Text
from hq.app.validate import load_document
from hq.model.errors import Location, Problem, UsageError, problems_error

SCHEMA = "hq.red/1"
DECLARATION = "declaration"
"""The name of the check that comes before every node: reading the project's files."""

_NEEDS = {
    "edit": ("path", "find", "replace"),
    "drop-patch": ("patch",),
    "drop-knob": ("knob",),
    "shift-hunk": ("path", "hunk", "by"),
    "corrupt-member": ("member",),
}
_MAY = {"shift-hunk": ("context", "heading"), "drop-patch": ("keep",)}


class FaultTable(Table):
    """``[fault]``: what is wrong, on purpose."""

    kind: Literal["edit", "drop-patch", "drop-knob", "shift-hunk", "corrupt-member"]
    path: ProjectPath | None = None
    find: Annotated[str, StringConstraints(min_length=1, max_length=10_000)] | None = None
    replace: Annotated[str, StringConstraints(max_length=10_000)] | None = None
    patch: Text | None = None
    keep: bool | None = None
    knob: Text | None = None
    hunk: Annotated[int, Field(ge=1)] | None = None
    by: int | None = None
    context: Annotated[int, Field(ge=0)] | None = None
    heading: bool | None = None
    member: ProjectPath | None = None

    @model_validator(mode="after")
    def _keys_of_the_kind(self) -> FaultTable:
        needs, may = _NEEDS[self.kind], _MAY.get(self.kind, ())
        given = {name for name in self.model_fields_set if name != "kind"}
        missing = [name for name in needs if name not in given]
        other = sorted(given - {*needs, *may})
        if missing:
            raise ValueError(f"a fault of kind {self.kind!r} needs {', '.join(map(repr, missing))}")
        if other:
            raise ValueError(
                f"a fault of kind {self.kind!r} takes no {', '.join(map(repr, other))}"
            )
        return self


class ExpectTable(Table):
    """``[expect]``: the check (a node, or ``declaration``) and a text or pattern of its message."""

    check: Text
    reason: Text | None = None
    pattern: Text | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> ExpectTable:
        if (self.reason is None) == (self.pattern is None):
            raise ValueError(
                "expected one of 'reason', a text, and 'pattern', a regular expression"
            )
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern: not a regular expression: {error}") from None
        return self

    def matches(self, text: str) -> bool:
        """Whether a message gives the reason; a line end counts as a blank."""
        flat = " ".join(text.split())
        if self.reason is not None:
            return " ".join(self.reason.split()) in flat
        assert self.pattern is not None
        return re.search(self.pattern, flat) is not None

    @property
    def shown(self) -> str:
        """The reason as it is written."""
        return self.reason if self.reason is not None else f"/{self.pattern}/"


class RedFile(Table):
    """One red control."""

    schema_: Literal["hq.red/1"] = Field(alias="schema")
    name: Name
    what: Text
    pins: tuple[str, ...] = ()
    fault: FaultTable
    expect: ExpectTable


class Red(NamedTuple):
    """A red control, read: the file's path, what it says, where its tables stand."""

    file: str
    declared: RedFile
    fault_at: Location
    expect_at: Location


def read_reds(files: Files) -> list[Red]:
    """Every red control of a project, by file name. Raises ``UsageError``."""
    project = read_project(files)
    reds = [_read(files, path) for path in _paths(files, project.declared.images)]
    names: dict[str, str] = {}
    for red in reds:
        other = names.setdefault(red.declared.name, red.file)
        if other != red.file:
            problem = Problem(Location(red.file), f"name: {other} is also called that")
            raise problems_error(f"{red.file} has one mistake", [problem])
        for pin in red.declared.pins:
            if pin not in project.declared.pins:
                problem = Problem(Location(red.file), f"pins: there is no pin {pin!r}")
                raise problems_error(f"{red.file} has one mistake", [problem])
    return reds


def _paths(files: Files, images: tuple[str, ...]) -> Iterator[str]:
    for folder in sorted({path.rpartition("/")[0] for path in images}):
        for name in files.names(folder or "."):
            if "/" not in name and name.startswith("red-") and name.endswith(".toml"):
                yield f"{folder}/{name}" if folder else name


def _read(files: Files, path: str) -> Red:
    try:
        declared, document = load_document(path, files.read(path), RedFile)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}", where=Location(path)) from None
    at = document.locator()
    return Red(path, declared, at("fault"), at("expect"))
