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
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from hq.app import tomlpos
from hq.model.errors import Location, Problem, problems_error

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 8 << 20
"""A declaration or a lock larger than this is refused unread."""

MAX_DEPTH = 100
"""Parts of a key, counted from the top of the file; nothing that hq reads has ten."""

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
    odd: dict[tomlpos.Path, object] = {}
    text = json.dumps(_without_odd(document.value, (), odd), ensure_ascii=True)
    try:
        value = model.model_validate_json(text, strict=True)
        if not odd:
            return value, document
        problems = []
    except ValidationError as error:
        problems = _problems(document, model, error, odd)
    where = document.locator() if odd else None
    problems += [_odd_problem(where(*path), path, odd[path], model) for path in odd if where]
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
    line = tomlpos.long_key(text, MAX_DEPTH)
    if line:
        # tomllib takes such a key apart in a time that grows with the square of its parts.
        message = f"a key of more than {MAX_DEPTH} parts"
        raise _mistakes(path_text, [Problem(Location(path_text, line), message)])
    try:
        document = Document(path_text, text, tomllib.loads(text))
    except RecursionError:
        nested = Problem(Location(path_text), "not valid TOML: nested too deeply")
        raise _mistakes(path_text, [nested]) from None
    except ValueError as error:
        raise _mistakes(path_text, [_syntax_problem(path_text, text, str(error))]) from None
    deep = _too_deep(document.value)
    if deep:
        message = f"{key_text(deep)[:77]}...: nested too deeply"
        raise _mistakes(path_text, [Problem(document.locator()(*deep), message)])
    return document


def _too_deep(value: dict[str, Any]) -> tomlpos.Path:
    """The first path with more parts than ``MAX_DEPTH``, or the empty one."""
    pending: list[tuple[tomlpos.Path, object]] = [((), value)]
    while pending:
        path, inner = pending.pop()
        if len(path) > MAX_DEPTH:
            return path
        if isinstance(inner, dict):
            pending += [((*path, key), item) for key, item in inner.items()]
        elif isinstance(inner, list):
            pending += [((*path, index), item) for index, item in enumerate(inner)]
    return ()


def _mistakes(path_text: str, problems: list[Problem]) -> Exception:
    count = "one mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
    return problems_error(f"{path_text} has {count}", problems)


def _syntax_problem(path_text: str, text: str, message: str) -> Problem:
    """``tomllib`` puts the place at the end of its message; the interpreter's own has none."""
    limit = sys.get_int_max_str_digits()
    if message.startswith("Exceeds the limit"):
        where = Location(path_text, tomlpos.long_number(text, limit))
        return Problem(where, f"not valid TOML: a number of more than {limit} digits")
    place = _PLACE.search(message)
    line = 0
    if place is not None:
        message = message[: place.start()]
        line = int(place[1]) if place[1] else text.count("\n") + 1
        message += f" (column {place[2]})" if place[2] else " (at the end of the file)"
    return Problem(Location(path_text, line), f"not valid TOML: {message}")


def _without_odd(value: Any, path: tomlpos.Path, odd: dict[tomlpos.Path, object]) -> Any:
    """The value with ``None`` for all that JSON does not have, and that no file of hq's holds.

    That is dates, numbers that are not finite, and integers beyond TOML's own 64 bits; ``odd`` gets
    them by their paths.
    """
    if isinstance(value, dict):
        return {key: _without_odd(item, (*path, key), odd) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_odd(item, (*path, index), odd) for index, item in enumerate(value)]
    if _odd_text(value):
        odd[path] = value
        return None
    return value


def _odd_text(value: object) -> str:
    """What an odd value is called; empty for others."""
    if isinstance(value, dt.datetime):
        return "a date with a time"
    if isinstance(value, dt.date):
        return "a date"
    if isinstance(value, dt.time):
        return "a time"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "an integer of more than 64 bits"
    return ""


def _odd_problem(
    where: Location, path: tomlpos.Path, value: object, model: type[BaseModel]
) -> Problem:
    kinds = list(dict.fromkeys(filter(None, map(_kind_of, _shapes_at(model, path)))))
    found, key = _odd_text(value), key_text(path)
    if not kinds or not isinstance(value, (dt.date, dt.time)):
        return Problem(where, f"{key}: found {found}, which no key is")
    hint = "quote it" if "a text" in kinds else ""
    return Problem(where, f"{key}: expected {' or '.join(kinds)}, found {found}", hint)


def _problems(
    document: Document,
    model: type[BaseModel],
    error: ValidationError,
    odd: dict[tomlpos.Path, object],
) -> list[Problem]:
    """The mistakes that pydantic found, but for those of the values in ``odd``.

    ``odd`` loses what needs no words of its own: values below an unknown key, or in one that is
    wrong as a whole.
    """
    where = document.locator()
    # A value that fits no member of a union is one mistake: its expectations are joined.
    expected: dict[tuple[str, str], list[str]] = {}
    problems: list[Problem] = []
    for detail in _without_echoes(error.errors(include_url=False)):
        path = _path_in(document.value, detail)
        is_all_wrong = detail["type"] in _KINDS and path not in odd
        if is_all_wrong or detail["type"] == "extra_forbidden":
            for inner in [inner for inner in odd if inner[: len(path)] == path]:
                del odd[inner]
        elif _is_echo(detail, path, odd):
            continue
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


def _is_echo(detail: ErrorDetails, path: tomlpos.Path, odd: Mapping[tomlpos.Path, object]) -> bool:
    """Whether the mistake is that ``None`` stands for an odd value, or follows from that."""
    if path in odd:
        return True
    is_rule = detail["type"] in ("value_error", "assertion_error")
    return is_rule and any(inner[: len(path)] == path for inner in odd)


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
        return f"expected {_KINDS[kind]}, found {found_text(value)}", ""
    if kind in ("too_short", "too_long"):
        return f"expected {_LIMITS[kind].format_map(context)}, found {context['actual_length']}", ""
    if kind in _LIMITS:
        hint = did_you_mean(value, re.findall(r"'([^']*)'", str(context.get("expected", ""))))
        return f"expected {_LIMITS[kind].format_map(context)}, found {found_text(value)}", hint
    if kind in ("value_error", "assertion_error"):
        return str(context["error"]), ""
    message = detail["msg"]
    return f"{message[:1].lower()}{message[1:]}, found {found_text(value)}", ""


def found_text(value: object) -> str:
    """A value as a message shows it: a text in quotes, at most 80 characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array"
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
    return {
        field.alias or name
        for shape in _shapes_at(model, path)
        if isinstance(shape, type) and issubclass(shape, BaseModel)
        for name, field in shape.model_fields.items()
    }


def _shapes_at(model: type[BaseModel], path: tomlpos.Path) -> list[Any]:
    """The types that the value at ``path`` may have; none for an unknown key."""
    shapes: list[Any] = [model]
    for part in path:
        shapes = [inner for shape in shapes for inner in _inside(shape, part)]
    return shapes


_SHAPES: dict[Any, str] = {
    str: "a text",
    Literal: "a text",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "an array",
    tuple: "an array",
    dict: "a table",
}


def _kind_of(shape: Any) -> str:
    if isinstance(shape, type) and issubclass(shape, BaseModel):
        return "a table"
    return _SHAPES.get(get_origin(shape) or shape, "")


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
