"""What ``vllm/envs.py`` holds, and where: the five places that a knob touches.

======================  ======================================================================
annotation              ``if TYPE_CHECKING:`` … ``NAME: type = default``
getter                  ``environment_variables: dict[…] = {"NAME": lambda: …}``
compile key             ``ignored_factors: set[str] = {"NAME", …}`` in ``compile_factors``
unknown-name warning    ``env.startswith("VLLM_")`` in ``validate_environ``
module attributes       everything else that ``envs.NAME`` can mean
======================  ======================================================================

The places are found by structure in the syntax tree, never by line number, so releases that move
them are read alike; a release that shapes them otherwise is refused with what was expected.
"""

from __future__ import annotations

from _ast import (
    AST,
    AnnAssign,
    Assign,
    Attribute,
    Call,
    ClassDef,
    Constant,
    Dict,
    FunctionDef,
    If,
    Import,
    ImportFrom,
    Name,
    Set,
    Tuple,
    expr,
)
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

from hq.knobs.source import NotPython, Source, children
from hq.model.errors import BuildError, Location

VARIABLES = "environment_variables"
IGNORED = "ignored_factors"


class EnvsFile(NamedTuple):
    """``envs.py`` taken apart. The mappings go from a name to its line."""

    file: str
    source: Source
    type_checking: If
    annotations: dict[str, int]
    variables_at: AnnAssign
    variables: dict[str, int]
    getters: Dict
    ignored: dict[str, int]
    ignored_at: Set
    prefix_argument: expr
    prefixes: tuple[str, ...]
    attributes: frozenset[str]


def read_envs(data: bytes, file: str) -> EnvsFile:
    """Takes ``envs.py`` apart. Raises ``BuildError`` that says which structure is missing."""
    try:
        source = Source(data)
    except NotPython as error:
        message = f"{file} is not Python: {error.reason}"
        raise BuildError(message, where=Location(file, error.line)) from None
    variables_at, getters = _variables(source, file)
    ignored_at = _ignored(source, file)
    type_checking = _type_checking(source, file)
    argument = _prefix_argument(source, file)
    return EnvsFile(
        file=file,
        source=source,
        type_checking=type_checking,
        annotations=_annotations(type_checking),
        variables_at=variables_at,
        variables=_texts(key for key in getters.keys if key is not None),
        getters=getters,
        ignored=_texts(ignored_at.elts),
        ignored_at=ignored_at,
        prefix_argument=argument,
        prefixes=tuple(_texts(argument.elts if isinstance(argument, Tuple) else [argument])),
        attributes=frozenset(_attributes(source.tree.body)),
    )


def refuse(file: str, what: str, expected: str, line: int = 0) -> NoReturn:
    """The refusal of a file that is shaped otherwise."""
    raise BuildError(
        f"cannot register knobs: {what}",
        where=Location(file, line),
        details=[f"expected: {expected}"],
        hint="this release lays envs.py out in another way; teach hq.knobs.envsfile its shape",
    )


def _variables(source: Source, file: str) -> tuple[AnnAssign, Dict]:
    for node in source.tree.body:
        if isinstance(node, AnnAssign) and _is_name(node.target, VARIABLES):
            if isinstance(node.value, Dict):
                return node, node.value
            refuse(
                file, f"{VARIABLES} is not a dict literal", f"{VARIABLES}: … = {{…}}", node.lineno
            )
    refuse(
        file,
        f"no {VARIABLES} at module level",
        f"{VARIABLES}: dict[str, Callable[[], Any]] = {{…}}",
    )


def _ignored(source: Source, file: str) -> Set:
    function = _function(source, "compile_factors", file)
    for node in function.body:
        if isinstance(node, AnnAssign) and _is_name(node.target, IGNORED):
            if isinstance(node.value, Set):
                return node.value
            refuse(
                file, f"{IGNORED} is not a set literal", f"{IGNORED}: set[str] = {{…}}", node.lineno
            )
    refuse(
        file, f"no {IGNORED} in compile_factors", f"{IGNORED}: set[str] = {{…}}", function.lineno
    )


def _type_checking(source: Source, file: str) -> If:
    for node in source.tree.body:
        if isinstance(node, If) and _is_name(node.test, "TYPE_CHECKING") and _annotations(node):
            return node
    refuse(
        file, "no annotations under TYPE_CHECKING", "if TYPE_CHECKING: with NAME: type = default"
    )


def _prefix_argument(source: Source, file: str) -> expr:
    """The argument of the one ``startswith`` call that decides what ``validate_environ`` checks."""
    function = _function(source, "validate_environ", file)
    found: list[expr] = []
    pending: list[AST] = [function]
    while pending:
        node = pending.pop()
        pending += children(node)
        if (
            isinstance(node, Call)
            and isinstance(node.func, Attribute)
            and node.func.attr == "startswith"
            and len(node.args) == 1
            and _is_texts(node.args[0])
        ):
            found.append(node.args[0])
    if len(found) != 1:
        refuse(
            file,
            f"{len(found)} tests of a prefix in validate_environ",
            'one env.startswith("VLLM_") or env.startswith(("VLLM_", …))',
            function.lineno,
        )
    return found[0]


def _is_texts(node: expr) -> bool:
    elements = node.elts if isinstance(node, Tuple) else [node]
    return all(isinstance(item, Constant) and isinstance(item.value, str) for item in elements)


def _function(source: Source, name: str, file: str) -> FunctionDef:
    for node in source.tree.body:
        if isinstance(node, FunctionDef) and node.name == name:
            return node
    refuse(file, f"no function {name}", f"def {name}(…) at module level")


def _annotations(block: If) -> dict[str, int]:
    return {
        node.target.id: node.lineno
        for node in block.body
        if isinstance(node, AnnAssign) and isinstance(node.target, Name)
    }


def _texts(nodes: Iterable[expr]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, Constant) and isinstance(node.value, str):
            found.setdefault(node.value, node.lineno)
    return found


def _is_name(node: AST, name: str) -> bool:
    return isinstance(node, Name) and node.id == name


def _attributes(body: Iterable[AST]) -> Iterator[str]:
    """Names that the module binds at its top level when it runs."""
    for node in body:
        if isinstance(node, (FunctionDef, ClassDef)):
            yield node.name
        elif isinstance(node, (Import, ImportFrom)):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, AnnAssign) and isinstance(node.target, Name):
            yield node.target.id
        elif isinstance(node, Assign):
            yield from (target.id for target in node.targets if isinstance(target, Name))
