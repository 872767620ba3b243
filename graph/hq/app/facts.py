"""The facts of an overlay's file as values, with the rules that pydantic's shapes do not state."""

from __future__ import annotations

from collections.abc import Iterator

from hq.app.declaration import FactCheck, OverlayFile
from hq.app.validate import Document
from hq.model.errors import Problem
from hq.model.project import Fact
from hq.rules.facts import NEEDS

_OPTIONAL = {
    "enum-member": ("equals",),
    "name-in-function": ("at_least",),
    "call-in-function": ("at_least", "forbid"),
}
_KEYS = ("target", "value", "key", "equals", "function", "call", "at_least", "forbid")


def fact_problems(overlay: OverlayFile, document: Document) -> Iterator[Problem]:
    """Checks without a fact, keys that a kind does not take, keys that it needs."""
    at = document.locator()
    declared = overlay.facts.model_extra or {}
    for number, check in enumerate(overlay.facts.check):
        place = f"facts.check[{number}]"
        where = at("facts", "check", number)
        if check.fact not in declared:
            yield Problem(where, f"{place}.fact: {check.fact!r} is no entry of [facts]")
        needed = NEEDS[check.kind]
        for key in _KEYS:
            given = getattr(check, key) is not None
            shown = key.replace("_", "-")
            if key in needed and not given:
                yield Problem(where, f"{place}: a check of kind {check.kind!r} needs {shown!r}")
            elif given and key not in needed and key not in _OPTIONAL.get(check.kind, ()):
                yield Problem(where, f"{place}: a check of kind {check.kind!r} takes no {shown!r}")
        for pin in check.pins:
            if pin not in overlay.pins:
                yield Problem(where, f"{place}.pins: nothing is declared for the pin {pin!r}")


def facts_of(overlay: OverlayFile, pin: str) -> tuple[Fact, ...]:
    """The facts that hold for ``pin``."""
    return tuple(
        Fact(check.fact, check.what, check.path, check.kind, _params(check))
        for check in overlay.facts.check
        if not check.pins or pin in check.pins
    )


def _params(check: FactCheck) -> dict[str, str | int | tuple[str, ...]]:
    values = {key: getattr(check, key) for key in _KEYS}
    return {key: value for key, value in values.items() if value is not None}
