"""Facts declared by an overlay, checked in the built tree as syntax trees; nothing is imported.

A check names a kind, a file and what must be so there. ``NEEDS`` says which keys each kind takes.
``function`` and ``target`` are names at module level, or ``Class.name``. An expression is compared
as ``ast.unparse`` prints it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from hq.model.canonical import Value

Params = Mapping[str, Value]

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "literal-member": ("target", "value"),
    "dict-entry": ("target", "key", "value"),
    "enum-member": ("target", "value"),
    "assign": ("target", "value"),
    "function-returns": ("function", "value"),
    "name-in-function": ("function", "value"),
    "call-in-function": ("function", "call"),
    "name-absent": ("value",),
}
"""The keys that each kind of check needs; ``equals``, ``at_least`` and ``forbid`` are optional."""


def check(kind: str, params: Params, module: ast.Module) -> str | None:
    """``None`` when the fact holds, else what was found instead."""
    return _CHECKS[kind](params, module)


def parse(data: bytes) -> ast.Module | str:
    """The module, or why it is none."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return f"line {line}: {getattr(error, 'msg', error)}" if line else str(error)


def _text(params: Params, name: str) -> str:
    return str(params[name])


def _assigned(body: list[ast.stmt], target: str) -> Iterator[ast.expr]:
    """The values that are assigned to ``target`` or ``Class.target`` in ``body``, in order."""
    outer, dot, inner = target.partition(".")
    for statement in body:
        if dot and isinstance(statement, ast.ClassDef) and statement.name == outer:
            yield from _assigned(statement.body, inner)
        if dot:
            continue
        if isinstance(statement, ast.Assign):
            names = [name.id for name in statement.targets if isinstance(name, ast.Name)]
            if target in names:
                yield statement.value
        elif (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == target
            and statement.value is not None
        ):
            yield statement.value


def _one(module: ast.Module, target: str) -> ast.expr | str:
    values = list(_assigned(module.body, target))
    if len(values) == 1:
        return values[0]
    return f"{target} is assigned {len(values)} times, expected once"


def _literal_member(params: Params, module: ast.Module) -> str | None:
    value = _one(module, _text(params, "target"))
    if isinstance(value, str):
        return value
    members = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant)]
    wanted = _text(params, "value")
    if (
        not isinstance(value, ast.Subscript)
        or ast.unparse(value.value).rpartition(".")[2] != "Literal"
    ):
        return f"{_text(params, 'target')} is no Literal[...]"
    count = members.count(wanted)
    target = _text(params, "target")
    return None if count == 1 else f"{wanted!r} is {count} times among the members of {target}"


def _dict_entry(params: Params, module: ast.Module) -> str | None:
    value = _one(module, _text(params, "target"))
    if isinstance(value, str):
        return value
    if not isinstance(value, ast.Dict):
        return f"{_text(params, 'target')} is no dict display"
    key = _text(params, "key")
    entries = [
        ast.unparse(item)
        for name, item in zip(value.keys, value.values, strict=True)
        if isinstance(name, ast.Constant) and name.value == key
    ]
    if entries == [_text(params, "value")]:
        return None
    return f"{_text(params, 'target')}[{key!r}] is {entries or 'not there'}"


def _enum_member(params: Params, module: ast.Module) -> str | None:
    member = f"{_text(params, 'target')}.{_text(params, 'value')}"
    value = _one(module, member)
    if isinstance(value, str):
        return value
    wanted = params.get("equals")
    if wanted is None or (isinstance(value, ast.Constant) and value.value == wanted):
        return None
    return f"{member} is {ast.unparse(value)}"


def _assign(params: Params, module: ast.Module) -> str | None:
    value = _one(module, _text(params, "target"))
    if isinstance(value, str):
        return value
    if isinstance(value, ast.Constant) and value.value == params["value"]:
        return None
    return f"{_text(params, 'target')} is {ast.unparse(value)}"


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _function(module: ast.Module, name: str) -> _Function | str:
    body: list[ast.stmt] = module.body
    *classes, last = name.split(".")
    for outer in classes:
        inner = [
            node.body for node in body if isinstance(node, ast.ClassDef) and node.name == outer
        ]
        if len(inner) != 1:
            return f"there are {len(inner)} classes {outer}, expected one"
        body = inner[0]
    found = [
        node
        for node in body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == last
    ]
    return found[0] if len(found) == 1 else f"there are {len(found)} functions {name}, expected one"


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions defined inside it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)


def _function_returns(params: Params, module: ast.Module) -> str | None:
    function = _function(module, _text(params, "function"))
    if isinstance(function, str):
        return function
    returned = [
        ast.unparse(node.value) if node.value is not None else "None"
        for node in _own_nodes(function)
        if isinstance(node, ast.Return)
    ]
    if returned and set(returned) == {_text(params, "value")}:
        return None
    return f"{_text(params, 'function')} returns {' or '.join(sorted(set(returned))) or 'nothing'}"


def _at_least(params: Params) -> int:
    count = params.get("at_least", 1)
    assert isinstance(count, int)
    return count


def _name_in_function(params: Params, module: ast.Module) -> str | None:
    function = _function(module, _text(params, "function"))
    if isinstance(function, str):
        return function
    wanted = _text(params, "value")
    count = sum(
        ast.unparse(node) == wanted
        for node in ast.walk(function)
        if isinstance(node, (ast.Name, ast.Attribute))
    )
    if count >= _at_least(params):
        return None
    return f"{wanted} occurs {count} times in {_text(params, 'function')}"


def _name_absent(params: Params, module: ast.Module) -> str | None:
    """No name, attribute, argument or string is ``value``: it is not read with a default either."""
    wanted = _text(params, "value")
    lines = [
        getattr(node, "lineno", 0)
        for node in ast.walk(module)
        if wanted in (getattr(node, field, None) for field in ("id", "attr", "arg", "value"))
    ]
    return f"{wanted} occurs in line {min(lines)}" if lines else None


def _matches(call: ast.Call, pattern: str) -> bool:
    if pattern.startswith("."):
        return isinstance(call.func, ast.Attribute) and call.func.attr == pattern[1:]
    return pattern in (ast.unparse(call.func), ast.unparse(call))


def _call_in_function(params: Params, module: ast.Module) -> str | None:
    function = _function(module, _text(params, "function"))
    if isinstance(function, str):
        return function
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    wanted = _text(params, "call")
    count = sum(_matches(call, wanted) for call in calls)
    if count < _at_least(params):
        return f"{_text(params, 'function')} calls {wanted} {count} times"
    forbidden = params.get("forbid", ())
    assert isinstance(forbidden, (list, tuple))
    for pattern in forbidden:
        for call in calls:
            if _matches(call, str(pattern)):
                return f"line {call.lineno}: {_text(params, 'function')} calls {pattern}"
    return None


_CHECKS: Final[Mapping[str, Callable[[Params, ast.Module], str | None]]] = {
    "literal-member": _literal_member,
    "dict-entry": _dict_entry,
    "enum-member": _enum_member,
    "assign": _assign,
    "function-returns": _function_returns,
    "name-in-function": _name_in_function,
    "call-in-function": _call_in_function,
    "name-absent": _name_absent,
}
