"""TOML files that people write, read into pydantic models, every mistake reported at once.

The text is parsed by ``tomllib`` and handed to the model as JSON in pydantic's strict mode: a
number is never taken for a text or the other way round, an array still fits a tuple. Models forbid
unknown keys (derive them from ``Declared``). What pydantic reports is said again in hq's words with
the file, the line (``hq.app.tomlpos``) and the key.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from hq.app import tomlpos
from hq.model.errors import Location, Problem, problems_error

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 8 << 20
"""A declaration or a lock larger than this is refused unread."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)\Z")


class Declared(BaseModel):
    """The base of every model for a file that people write: frozen, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Document(NamedTuple):
    """A parsed TOML file. ``file`` is the path to show; ``value`` what ``tomllib`` read."""

    file: str
    text: str
    value: dict[str, Any]

    def locator(self) -> Callable[..., Location]:
        """A function from the parts of a key path to its place; scans the text once."""
        line_of = tomlpos.locate(self.text)
        return lambda *path: Location(self.file, line_of(path))


def load_toml(path_text: str, data: bytes, model: type[M]) -> M:
    """The file's content as ``model``. Raises ``UsageError`` that lists every mistake.

    ``path_text`` names the file in messages.
    """
    return load_document(path_text, data, model)[0]


def load_document(path_text: str, data: bytes, model: type[M]) -> tuple[M, Document]:
    """As ``load_toml``, and the document, for checks across keys that want a line."""
    document = parse_toml(path_text, data)
    problems = list(_values_no_model_takes(document))
    if not problems:
        try:
            text = json.dumps(document.value, ensure_ascii=True)
            return model.model_validate_json(text, strict=True), document
        except ValidationError as error:
            problems = _problems(document, model, error)
    raise _mistakes(path_text, problems)


def parse_toml(path_text: str, data: bytes) -> Document:
    """Parses ``data``. Raises ``UsageError`` with the place of the first error."""
    if len(data) > MAX_BYTES:
        limit = f"the file has {len(data)} bytes; at most {MAX_BYTES} are read"
        raise _mistakes(path_text, [Problem(Location(path_text), limit)])
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8: byte 0x{data[error.start]:02x}"
        raise _mistakes(path_text, [Problem(Location(path_text, line), message)]) from None
    try:
        return Document(path_text, text, tomllib.loads(text))
    except RecursionError:
        nested = Problem(Location(path_text), "not valid TOML: nested too deeply")
        raise _mistakes(path_text, [nested]) from None
    except ValueError as error:
        raise _mistakes(path_text, [_syntax_problem(path_text, text, str(error))]) from None


def _mistakes(path_text: str, problems: list[Problem]) -> Exception:
    count = "one mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
    return problems_error(f"{path_text} has {count}", problems)


def _syntax_problem(path_text: str, text: str, message: str) -> Problem:
    """``tomllib`` puts the place at the end of its message."""
    place = _PLACE.search(message)
    line = 0
    if place is not None:
        message = message[: place.start()]
        line = int(place[1]) if place[1] else text.count("\n") + 1
        message += f" (column {place[2]})" if place[2] else " (at the end of the file)"
    return Problem(Location(path_text, line), f"not valid TOML: {message}")


def _values_no_model_takes(document: Document) -> Iterator[Problem]:
    """Dates and non-finite numbers: JSON has neither, and no file of hq's holds one."""
    where: Callable[..., Location] | None = None
    pending: list[tuple[tomlpos.Path, object]] = [((), document.value)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict):
            pending += [((*path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            pending += [((*path, index), item) for index, item in enumerate(value)]
        elif isinstance(value, (dt.date, dt.time)) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            where = where or document.locator()
            yield Problem(where(*path), f"{key_text(path)}: found {_found(value)}, which no key is")


def _problems(document: Document, model: type[BaseModel], error: ValidationError) -> list[Problem]:
    where = document.locator()
    # A value that fits no member of a union is one mistake: its expectations are joined.
    expected: dict[tuple[str, str], list[str]] = {}
    problems: list[Problem] = []
    for detail in _without_echoes(error.errors(include_url=False)):
        path = _path_in(document.value, detail)
        message, hint = _explain(detail, path, model)
        key = key_text(path)
        text = f"{key}: {message}" if key else message
        if detail["type"] in _KINDS:
            alternatives = expected.setdefault((str(where(*path)), key), [])
            alternatives.append(_KINDS[detail["type"]])
            if len(alternatives) > 1:
                continue
        problems.append(Problem(where(*path), text, hint))
    return [_joined(problem, expected) for problem in problems]


def _without_echoes(details: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Leaves out that an array is too short where pydantic does not count its wrong elements."""
    inner = {detail["loc"][:-depth] for detail in details for depth in range(1, len(detail["loc"]))}
    for detail in details:
        if detail["type"] != "too_short" or detail["loc"] not in inner:
            yield detail


def _joined(problem: Problem, expected: Mapping[tuple[str, str], list[str]]) -> Problem:
    key, _, message = problem.message.partition(": expected ")
    kinds = expected.get((str(problem.where), key), [])
    if len(set(kinds)) < 2 or not message.startswith(kinds[0]):
        return problem
    choices = " or ".join(dict.fromkeys(kinds))
    return problem._replace(message=f"{key}: expected {choices}{message[len(kinds[0]) :]}")


def _path_in(value: object, detail: ErrorDetails) -> tomlpos.Path:
    """The location without the parts that name a union's member instead of a key."""
    path: tomlpos.Path = ()
    parts = detail["loc"]
    for place, part in enumerate(parts):
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]  # type: ignore[index]
        elif not (detail["type"] == "missing" and place == len(parts) - 1):
            continue
        path = (*path, part)
    return path


def key_text(path: tomlpos.Path) -> str:
    """The path as TOML would write it: ``pins."0.29.0".wheel``, elements counted from 0."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if _BARE_KEY.match(part) else json.dumps(part, ensure_ascii=False)
        text += f".{shown}" if text else shown
    return text


_KINDS = {
    "string_type": "a text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "bool_type": "true or false",
    "float_type": "a number",
    "list_type": "an array",
    "tuple_type": "an array",
    "set_type": "an array",
    "frozen_set_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "dataclass_type": "a table",
}
_LIMITS = {
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "too_short": "at least {min_length} elements",
    "too_long": "at most {max_length} elements",
    "literal_error": "{expected}",
    "enum": "{expected}",
}


def _explain(detail: ErrorDetails, path: tomlpos.Path, model: type[BaseModel]) -> tuple[str, str]:
    """The message and the hint for one of pydantic's errors."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "missing":
        return "missing", ""
    if kind == "extra_forbidden":
        return "unknown key", did_you_mean(str(path[-1]), sorted(_keys_at(model, path[:-1])))
    if kind in _KINDS:
        return f"expected {_KINDS[kind]}, found {_found(value)}", ""
    if kind in ("too_short", "too_long"):
        return f"expected {_LIMITS[kind].format_map(context)}, found {context['actual_length']}", ""
    if kind in _LIMITS:
        hint = did_you_mean(value, re.findall(r"'([^']*)'", str(context.get("expected", ""))))
        return f"expected {_LIMITS[kind].format_map(context)}, found {_found(value)}", hint
    if kind in ("value_error", "assertion_error"):
        return str(context["error"]), ""
    message = detail["msg"]
    return f"{message[:1].lower()}{message[1:]}, found {_found(value)}", ""


def _found(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, (dt.date, dt.time)):
        return f"the date or time {value.isoformat()}"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def did_you_mean(word: object, known: list[str]) -> str:
    """A hint that names the nearest of ``known``, or all of them when they are few."""
    from difflib import get_close_matches

    near = get_close_matches(str(word), known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known here: {', '.join(known)}" if 0 < len(known) <= 12 else ""


def _keys_at(model: type[BaseModel], path: tomlpos.Path) -> set[str]:
    """The keys that the table at ``path`` may have; those of every member of a union."""
    shapes: list[Any] = [model]
    for part in path:
        shapes = [inner for shape in shapes for inner in _inside(shape, part)]
    return {
        field.alias or name
        for shape in shapes
        if isinstance(shape, type) and issubclass(shape, BaseModel)
        for name, field in shape.model_fields.items()
    }


def _inside(shape: Any, part: str | int) -> Iterator[Any]:
    """The types that ``part`` of a value of type ``shape`` may have, unions taken apart."""
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        for name, field in shape.model_fields.items():
            if part in (field.alias, name):
                yield from _members(field.annotation)
        return
    arguments = [argument for argument in get_args(shape) if argument is not Ellipsis]
    if arguments:
        # The value type: the last argument of list[X], tuple[X, ...] and dict[str, X] alike.
        is_mapping = get_origin(shape) in (dict, Mapping)
        yield from _members(arguments[1] if is_mapping and len(arguments) > 1 else arguments[0])


def _members(shape: Any) -> Iterator[Any]:
    origin = get_origin(shape)
    if origin in (Union, UnionType):
        for argument in get_args(shape):
            yield from _members(argument)
    elif hasattr(shape, "__metadata__"):
        yield from _members(shape.__origin__)
    else:
        yield shape
