"""Writes the registry into ``envs.py``, the way vLLM declares its own variables.

For every knob, sorted by name: an annotation at the end of the ``TYPE_CHECKING`` block, an entry
with its meaning as a comment at the end of ``environment_variables``, and, unless it belongs to the
compile key, an entry in ``ignored_factors``. The prefix test of ``validate_environ`` is widened to
every registered prefix, so that a misspelt ``KVARN_`` name is warned about like a ``VLLM_`` one.
Nothing else of the file changes: the text is inserted, never printed from a tree.

vLLM's getters parse with a bare ``int(os.getenv(…))``, and ``enable_envs_cache`` calls every one of
them unguarded when the service starts, where ``invalid literal for int()`` names no variable. The
fork's getters go through one generated helper that names the variable and the value, as
``env_with_choices`` already does for choices. Every value is a bool, int, float, text or ``None``,
the types that ``normalize_value`` takes as they are.

A name that the file knows already is refused: a second key in a dict literal silently wins. So
generating twice is an error, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, NoReturn

from hq.knobs.envsfile import EnvsFile, read_envs, refuse
from hq.knobs.registry import Knob, Registry
from hq.knobs.source import Positioned
from hq.model.errors import BuildError, Location

_WIDTH: Final = 88
_HELPER: Final = "env_parsed"
_HELPER_CODE: Final = '''\
def env_parsed(env_name: str, parse: Callable[[str], Any], default: str | None) -> Any:
    """
    Return the parsed value of an environment variable, None where neither it
    nor a default is set. A value that does not parse is an error that names the
    variable.
    """
    value = os.getenv(env_name, default)
    if value is None:
        return None
    try:
        return bool(int(value)) if parse is bool else parse(value)
    except ValueError:
        expected = {bool: "0 or 1", int: "an integer", float: "a number"}[parse]
        raise ValueError(
            f"Invalid value '{value}' for {env_name}. Expected {expected}."
        ) from None


'''
_PARSE: Final = {"bool": "bool", "int": "int", "float": "float", "path": "os.path.expanduser"}
_TOKEN: Final = re.compile(rb"#[^\r\n]*|\s+|(?P<mark>[^#\s])")

Edit = tuple[int, int, bytes]
"""Bytes ``start`` to ``end`` of the file, and what stands there instead."""


def generate(envs_py: bytes, registry: Registry, file_name: str) -> bytes:
    """``envs_py`` with every knob of ``registry`` declared; unchanged for an empty registry.

    ``file_name`` names the file in messages. Raises ``BuildError`` when the file lacks a structure
    that a knob must stand in, or knows one of the names already.
    """
    return generate_into(read_envs(envs_py, file_name), registry)


def generate_into(envs: EnvsFile, registry: Registry) -> bytes:
    """As ``generate``, for a file that is already taken apart."""
    out = bytearray()
    done = 0
    for start, end, text in edits_of(envs, registry):
        out += envs.source.data[done:start]
        out += text
        done = end
    return bytes(out + envs.source.data[done:])


def edits_of(envs: EnvsFile, registry: Registry) -> list[Edit]:
    """What is put in place of what, in the file's order; ``generate_into`` does nothing else."""
    _refuse_known_names(envs, registry.knobs)
    edits = [*_knob_edits(envs, registry.knobs), *_prefix_edit(envs, registry)]
    newline = b"\r\n" if b"\r\n" in envs.source.data[:4096] else b"\n"
    return [(start, end, text.replace(b"\n", newline)) for start, end, text in sorted(edits)]


def _refuse_known_names(envs: EnvsFile, knobs: Sequence[Knob]) -> None:
    for knob in knobs:
        for place, names in (
            ("environment_variables", envs.variables),
            ("the TYPE_CHECKING block", envs.annotations),
        ):
            if knob.name in names:
                _refuse_known(envs, knob, names[knob.name], place)
        if knob.compile_key and knob.name in envs.ignored:
            raise BuildError(
                f"knob {knob.name} belongs to the compile key and stands in ignored_factors",
                where=Location(envs.file, envs.ignored[knob.name]),
                hint="take it out of ignored_factors, or declare compile_key = false",
            )


def _refuse_known(envs: EnvsFile, knob: Knob, line: int, place: str) -> NoReturn:
    raise BuildError(
        f"knob {knob.name} is already declared in {place}",
        where=Location(envs.file, line),
        details=[f"registered by: {knob.owner}"],
        hint="a knob is declared once: in knobs.toml, or by vLLM itself, and not by a patch",
    )


def _knob_edits(envs: EnvsFile, knobs: Sequence[Knob]) -> Iterator[Edit]:
    if not knobs:
        return
    source = envs.source
    last = envs.type_checking.body[-1]
    indent = " " * last.col_offset
    after = source.line_start((last.end_lineno or last.lineno) + 1)
    yield after, after, "".join(f"{indent}{annotation(knob)}\n" for knob in knobs).encode()

    if any(knob.type == "choice" for knob in knobs) and "env_with_choices" not in envs.attributes:
        refuse(envs.file, "no function env_with_choices", "def env_with_choices(…) at module level")
    if any(_entry_value(knob).startswith(_HELPER) for knob in knobs):
        if _HELPER in envs.attributes:
            refuse(envs.file, f"{_HELPER} is defined already", f"no attribute {_HELPER}")
        before = source.line_start(envs.variables_at.lineno)
        yield before, before, _HELPER_CODE.encode()

    keys = [key for key in envs.getters.keys if key is not None]
    pairs = "".join(entry(knob) for knob in knobs)
    yield from _append(envs, envs.getters, envs.getters.values, keys, pairs)
    ignored = [
        knob.name for knob in knobs if not knob.compile_key and knob.name not in envs.ignored
    ]
    names = "".join(f'"{name}",\n' for name in ignored)
    yield from _append(envs, envs.ignored_at, envs.ignored_at.elts, envs.ignored_at.elts, names)


def _append(
    envs: EnvsFile,
    literal: Positioned,
    values: Sequence[Positioned],
    starts: Sequence[Positioned],
    lines: str,
) -> Iterator[Edit]:
    """Adds ``lines`` to a dict or set literal that closes on a line of its own."""
    if not lines:
        return
    source = envs.source
    close = source.end(literal) - 1
    line = source.line_start(literal.end_lineno or literal.lineno)
    if not starts or source.data[line:close].strip():
        refuse(
            envs.file,
            "a literal does not close on a line of its own",
            "one element a line, then the closing brace",
            literal.end_lineno or 0,
        )
    yield from _missing_comma(source.data, source.end(values[-1]), close)
    indent = " " * starts[-1].col_offset
    text = "".join(f"{indent}{part}\n" for part in lines.splitlines())
    yield line, line, text.encode()


def _missing_comma(data: bytes, start: int, close: int) -> Iterator[Edit]:
    """The last element may lack its comma; comments and parentheses may follow it."""
    end, comma = start, False
    for token in _TOKEN.finditer(data, start, close):
        if token["mark"]:
            end, comma = token.end(), token["mark"] == b","
    if not comma:
        yield end, end, b","


def annotation(knob: Knob) -> str:
    """The line of the ``TYPE_CHECKING`` block that declares the knob."""
    texts = ", ".join(_quoted(choice) for choice in knob.choices)
    of_type = {"choice": f"Literal[{texts}]", "path": "str"}.get(knob.type, knob.type)
    if knob.default is None:
        return f"{knob.name}: {of_type} | None = None"
    if knob.type == "bool":
        default = "True" if knob.default == "1" else "False"
    elif knob.type in ("int", "float"):
        default = knob.default
    elif knob.type == "path":
        default = f"os.path.expanduser({_quoted(knob.default)})"
    else:
        default = _quoted(knob.default)
    return f"{knob.name}: {of_type} = {default}"


def entry(knob: Knob) -> str:
    """The meaning as a comment, then the key and its getter, without indentation."""
    comment = "".join(f"# {line}\n" for line in _wrapped(knob.meaning, _WIDTH - 6))
    value = _entry_value(knob)
    lazy = "" if value.startswith("env_with_choices") else "lambda: "
    one_line = f'"{knob.name}": {lazy}{value},\n'
    if len(one_line) + 3 <= _WIDTH:
        return comment + one_line
    head, _, arguments = value.partition("(")
    return f'{comment}"{knob.name}": {lazy}{head}(\n    {arguments[:-1]}\n),\n'


def _entry_value(knob: Knob) -> str:
    name, default = _quoted(knob.name), "None" if knob.default is None else _quoted(knob.default)
    if knob.type == "choice":
        choices = ", ".join(_quoted(choice) for choice in knob.choices)
        return f"env_with_choices({name}, {default}, [{choices}])"
    if knob.type == "str":
        return f"os.getenv({name})" if knob.default is None else f"os.getenv({name}, {default})"
    return f"{_HELPER}({name}, {_PARSE[knob.type]}, {default})"


def _quoted(text: str) -> str:
    # Without control characters and surrogates a JSON string is a Python string of the same text.
    return json.dumps(text, ensure_ascii=False)


def _wrapped(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _prefix_edit(envs: EnvsFile, registry: Registry) -> Iterator[Edit]:
    prefixes = (*envs.prefixes, *(set(registry.all_prefixes) - set(envs.prefixes)))
    if len(prefixes) == len(envs.prefixes):
        return
    ordered = [*envs.prefixes, *sorted(prefixes[len(envs.prefixes) :])]
    text = ", ".join(_quoted(prefix) for prefix in ordered)
    argument = envs.prefix_argument
    yield envs.source.start(argument), envs.source.end(argument), f"({text})".encode()
