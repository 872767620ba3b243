"""The declaration of every environment knob that the fork owns.

A knob is one ``Knob`` value: plain texts and flags, so that it can stand in an action key as it is.
The registry says which prefixes the fork answers for: every name under one of them is either a
knob, a variable of the stock ``envs.py``, or a mistake.

``default`` is the text that an unset variable stands for, exactly as it would be exported (``"0"``
for a bool, ``"0.5"`` for a float), or ``None`` where an unset variable means ``None`` to its
reader: the code then branches on presence, and no text may stand in for that.

``problems`` states the rules; ``hq.app.knobsfile`` reports them with file and line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from hq.knobs.prefix import STOCK_PREFIX

KnobType = Literal["bool", "int", "float", "str", "choice", "path"]
Absent = Literal["default", "none"]

_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+\Z")
_PREFIX = re.compile(r"([A-Z][A-Z0-9]*_)+\Z")
_OWNER = re.compile(r"(patch|overlay):[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
_TEXT_OF: Final = {
    "bool": (re.compile(r"[01]\Z"), "'0' or '1'"),
    "int": (re.compile(r"(0|-?[1-9][0-9]{0,18})\Z"), "an integer of at most 19 digits"),
    "float": (
        re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z"),
        "a decimal number such as '0.5' or '1e-6'",
    ),
}
# C0 and C1 controls and line separators: they would break a generated line or hide in it.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Knob(NamedTuple):
    """One environment variable.

    ``compile_key``: whether its value can change what torch.compile makes, so that it belongs to
    the hash that names a compiled graph.
    ``owner``: the ``patch:NAME`` or ``overlay:NAME`` that reads it.
    ``exported_by``: the launchers that set it, as their names in ``images/``.
    ``choices``: the texts that a ``choice`` allows.
    """

    name: str
    type: KnobType
    default: str | None
    meaning: str
    owner: str
    compile_key: bool
    exported_by: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def absent(self) -> Absent:
        """What reading the unset variable gives: the default, or ``None``."""
        return "none" if self.default is None else "default"


class Retired(NamedTuple):
    """A name that nothing reads, any more or yet; ``reason`` says which and why."""

    name: str
    reason: str


class Registry(NamedTuple):
    """All knobs, sorted by name; the prefixes besides ``VLLM_``; names kept for their story."""

    knobs: tuple[Knob, ...]
    prefixes: tuple[str, ...] = ()
    retired: tuple[Retired, ...] = ()

    @classmethod
    def of(
        cls,
        knobs: Sequence[Knob],
        prefixes: Sequence[str] = (),
        retired: Sequence[Retired] = (),
    ) -> Registry:
        """The registry in its one order, so that moving a declaration changes nothing."""
        return cls(
            tuple(sorted(knobs, key=lambda knob: knob.name)),
            tuple(sorted(set(prefixes) - {STOCK_PREFIX})),
            tuple(sorted(retired)),
        )

    @property
    def all_prefixes(self) -> tuple[str, ...]:
        """``VLLM_`` first, then the fork's own."""
        return (STOCK_PREFIX, *self.prefixes)

    def names(self) -> frozenset[str]:
        """The names of the knobs."""
        return frozenset(knob.name for knob in self.knobs)

    def owned_by(self, owners: Collection[str]) -> Registry:
        """The registry of a build that holds only ``owners``.

        A knob whose patch is not in a pin's series does not exist for that pin. The prefixes stay:
        a name under them is a mistake there, too.
        """
        return self._replace(knobs=tuple(knob for knob in self.knobs if knob.owner in owners))


def to_values(registry: Registry) -> dict[str, Any]:
    """The registry as plain values, for a key or a file; ``from_values`` reads it back."""
    return {
        "knobs": [
            {
                "name": knob.name,
                "type": knob.type,
                "default": knob.default,
                "meaning": knob.meaning,
                "owner": knob.owner,
                "compile_key": knob.compile_key,
                "exported_by": list(knob.exported_by),
                "choices": list(knob.choices),
            }
            for knob in registry.knobs
        ],
        "prefixes": list(registry.prefixes),
        "retired": [{"name": old.name, "reason": old.reason} for old in registry.retired],
    }


def from_values(values: Mapping[str, Any]) -> Registry:
    """Reads ``to_values``'s value."""
    return Registry.of(
        [
            Knob(
                **{
                    **knob,
                    "exported_by": tuple(knob["exported_by"]),
                    "choices": tuple(knob["choices"]),
                }
            )
            for knob in values["knobs"]
        ],
        values["prefixes"],
        [Retired(**old) for old in values["retired"]],
    )


class Mistake(NamedTuple):
    """What is wrong with the declaration at ``path``, a key path in ``knobs.toml``'s shape."""

    path: tuple[str | int, ...]
    message: str


def problems(
    knobs: Sequence[Knob], prefixes: Sequence[str], retired: Sequence[Retired] = ()
) -> Iterator[Mistake]:
    """Every rule that a declaration breaks, in the order of the declaration."""
    for index, prefix in enumerate(prefixes):
        if not _PREFIX.match(prefix):
            yield Mistake(
                ("prefixes", index), f"expected a prefix such as 'KVARN_', found {prefix!r}"
            )
    first: dict[str, str] = {}
    for index, knob in enumerate(knobs):
        for key, message in _knob_problems(knob, (STOCK_PREFIX, *prefixes)):
            yield Mistake(("knob", index, key), message)
        yield from _twice(first, "knob", index, knob.name)
    for index, old in enumerate(retired):
        if not _NAME.match(old.name):
            yield Mistake(("retired", index, "name"), _bad_name(old.name))
        if not old.reason.strip() or _CONTROL.search(old.reason):
            yield Mistake(("retired", index, "reason"), "expected one line of text")
        yield from _twice(first, "retired", index, old.name)


def _twice(first: dict[str, str], table: str, index: int, name: str) -> Iterator[Mistake]:
    if name in first:
        yield Mistake((table, index, "name"), f"{name} is already declared as {first[name]}")
    first.setdefault(name, f"{table}[{index}]")


def _bad_name(name: str) -> str:
    return f"expected a name such as 'VLLM_SOME_KNOB', found {name!r}"


def _knob_problems(knob: Knob, prefixes: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not _NAME.match(knob.name) or len(knob.name) > 128:
        yield "name", _bad_name(knob.name)
    elif not knob.name.startswith(tuple(prefixes)):
        yield "name", f"{knob.name} begins with none of the prefixes {', '.join(prefixes)}"
    if not _OWNER.match(knob.owner):
        yield "owner", f"expected 'patch:NAME' or 'overlay:NAME', found {knob.owner!r}"
    if not knob.meaning.strip() or _CONTROL.search(knob.meaning):
        yield "meaning", "expected one line of text that says what the knob does"
    yield from _choice_problems(knob)
    if knob.default is not None:
        yield from _default_problems(knob, knob.default)


def _choice_problems(knob: Knob) -> Iterator[tuple[str, str]]:
    if knob.type != "choice":
        if knob.choices:
            yield (
                "choices",
                f"only a knob of type 'choice' has choices; {knob.name} is a {knob.type}",
            )
        return
    if not knob.choices:
        yield "choices", f"{knob.name} is a choice and needs at least one"
    if len(set(knob.choices)) != len(knob.choices):
        yield "choices", "a choice stands twice"
    if any(_CONTROL.search(choice) for choice in knob.choices):
        yield "choices", "a control character in a choice"


def _default_problems(knob: Knob, default: str) -> Iterator[tuple[str, str]]:
    if knob.type in _TEXT_OF:
        pattern, expected = _TEXT_OF[knob.type]
        if not pattern.match(default):
            yield (
                "default",
                f"expected {expected} for the {knob.type} {knob.name}, found {default!r}",
            )
    elif _CONTROL.search(default):
        yield "default", "a control character in the default"
    elif knob.type == "choice" and default not in knob.choices:
        yield "default", f"{default!r} is none of the choices"
