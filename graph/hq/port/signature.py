"""What a function takes, read off its ``def``, and whether a call fits it.

A call with ``*args`` or ``**kwargs`` is judged by what it does say: an unknown keyword stays
unknown, what may be missing is not held against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# What a Triton launch takes beside the kernel's own parameters.
LAUNCH_OPTIONS = frozenset(
    {
        "enable_fp_fusion", "enable_warp_specialization", "grid", "kpack", "launch_pdl", "maxnreg",
        "launch_cooperative_grid", "matrix_instr_nonkdim", "num_ctas", "num_stages", "num_warps",
        "warmup", "warp_size", "waves_per_eu",
    }
)  # fmt: skip


class Parameter(NamedTuple):
    """One parameter. ``keyword``: it can be named; ``positional``: it can be given by place."""

    name: str
    positional: bool
    keyword: bool
    has_default: bool


class Signature(NamedTuple):
    """Parameters in order; ``rest`` and ``extra``: it takes ``*args`` and ``**kwargs``."""

    parameters: tuple[Parameter, ...]
    rest: bool = False
    extra: bool = False

    def without_first(self) -> Signature:
        """The signature of a bound method."""
        for number, one in enumerate(self.parameters):
            if one.positional:
                rest = self.parameters[:number] + self.parameters[number + 1 :]
                return self._replace(parameters=rest)
        return self

    def __str__(self) -> str:
        shown = [f"{one.name}=…" if one.has_default else one.name for one in self.parameters]
        shown += ["*args"] if self.rest else []
        shown += ["**kwargs"] if self.extra else []
        return f"({', '.join(shown)})"


def signature_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    """What a function takes."""
    return _signature(node.args)


def _signature(arguments: ast.arguments) -> Signature:
    by_place = [*arguments.posonlyargs, *arguments.args]
    first_default = len(by_place) - len(arguments.defaults)
    found = [
        Parameter(one.arg, True, number >= len(arguments.posonlyargs), number >= first_default)
        for number, one in enumerate(by_place)
    ]
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(Parameter(one.arg, False, True, default is not None))
    return Signature(tuple(found), arguments.vararg is not None, arguments.kwarg is not None)


class Given(NamedTuple):
    """What a call gives: how many by place, which by name, whether stars hide more."""

    places: int
    names: tuple[str, ...]
    star: bool
    stars: bool


def given(call: ast.Call) -> Given:
    """A call's arguments."""
    plain = [one for one in call.args if not isinstance(one, ast.Starred)]
    names = tuple(one.arg for one in call.keywords if one.arg is not None)
    star = len(plain) != len(call.args)
    return Given(len(plain), names, star, len(names) != len(call.keywords))


def misfit(
    signature: Signature, call: Given, free: frozenset[str] = frozenset(), filled: str = ""
) -> str:
    """Why a call does not fit, as the predicate of a sentence; empty when it does.

    ``free``: keywords that go elsewhere. ``filled``: text in which the names of parameters that
    something else fills in stand quoted (a kernel's configurations).
    """
    by_place = [one for one in signature.parameters if one.positional]
    if call.places > len(by_place) and not signature.rest:
        return f"gives {call.places} arguments by place; it takes {len(by_place)}"
    taken = {one.name for one in by_place[: call.places]}
    known = {one.name for one in signature.parameters if one.keyword}
    for name in call.names:
        if name in free and name not in known:
            continue
        if name in taken:
            return f"gives '{name}' by place and by name"
        if name not in known and not signature.extra:
            return f"gives '{name}', which it does not take"
    if call.star or call.stars:
        return ""
    for one in signature.parameters:
        missing = not one.has_default and one.name not in taken and one.name not in call.names
        if missing and not _is_filled(one.name, filled):
            return f"does not give '{one.name}', which it needs"
    return ""


def _is_filled(name: str, filled: str) -> bool:
    return f"'{name}'" in filled


def refuses(ours: Signature, base: Signature) -> str:
    """What ``base`` accepts and an override ``ours`` does not; empty when it accepts all."""
    own = {one.name: one for one in ours.parameters}
    places = sum(one.positional for one in ours.parameters)
    number = 0
    for one in base.parameters:
        if one.positional:
            number += 1
            if number > places and not ours.rest and one.name not in own:
                return f"does not take '{one.name}'"
        if one.keyword and one.name not in own and not ours.extra and not one.positional:
            return f"does not take '{one.name}'"
        if one.keyword and one.positional and one.name not in own and not ours.extra:
            return f"does not take '{one.name}'"
    known = {one.name for one in base.parameters}
    for one in ours.parameters:
        if not one.has_default and one.name not in known and not base.rest and not base.extra:
            return f"needs '{one.name}', which its callers do not give"
    return ""


def fields_signature(bodies: Sequence[tuple[ast.ClassDef, bool]]) -> Signature:
    """What a dataclass takes: its fields through its bases, the outermost base first.

    Each class comes with whether all its fields are by name only.
    """
    found: dict[str, Parameter] = {}
    for node, by_name in bodies:
        for one in _fields(node, by_name):
            found[one.name] = one
    ordered = [one for one in found.values() if one.positional]
    ordered += [one for one in found.values() if not one.positional]
    return Signature(tuple(ordered))


def _fields(node: ast.ClassDef, by_name: bool) -> Iterator[Parameter]:
    for one in node.body:
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
            continue
        kind = ast.unparse(one.annotation)
        if "ClassVar" in kind:
            continue
        if kind.endswith("KW_ONLY"):
            by_name = True
            continue
        value = one.value
        is_field = isinstance(value, ast.Call) and ast.unparse(value.func).endswith("ield")
        options = {}
        if is_field and isinstance(value, ast.Call):
            options = {key.arg: ast.unparse(key.value) for key in value.keywords}
            if options.get("init") == "False":
                continue
        has_default = value is not None and (
            not is_field or bool({"default", "default_factory"} & options.keys() or _args(value))
        )
        place = not by_name and options.get("kw_only") != "True"
        yield Parameter(one.target.id, place, True, has_default)


def _args(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and bool(value.args)
