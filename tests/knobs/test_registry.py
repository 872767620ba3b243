"""The rules of a declaration, and the registry as values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.knobs.registry import (
    Knob,
    Mistake,
    Registry,
    Retired,
    from_values,
    problems,
    to_values,
)
from hq.model.canonical import encode

from .strategies import KNOBS

GOOD = Knob("VLLM_SOME_KNOB", "int", "8", "how many", "patch:some-patch", compile_key=False)


def mistakes(**changes: Any) -> list[Mistake]:
    return list(problems([GOOD._replace(**changes)], ["KVARN_"]))


def test_a_good_knob_has_no_mistake() -> None:
    assert mistakes() == []
    assert mistakes(default=None) == []
    assert mistakes(name="KVARN_X1") == []
    assert mistakes(type="choice", default="", choices=("", "int8")) == []
    assert mistakes(type="float", default="1e-6") == []


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"name": "vllm_x"}, "name", "expected a name such as 'VLLM_SOME_KNOB', found 'vllm_x'"),
        (
            {"name": "VLLM_X\n"},
            "name",
            "expected a name such as 'VLLM_SOME_KNOB', found 'VLLM_X\\n'",
        ),
        ({"name": "VLLM__X"}, "name", "expected a name such as 'VLLM_SOME_KNOB', found 'VLLM__X'"),
        ({"name": "CUDA_X"}, "name", "CUDA_X begins with none of the prefixes VLLM_, KVARN_"),
        ({"owner": "me"}, "owner", "expected 'patch:NAME' or 'overlay:NAME', found 'me'"),
        ({"meaning": " "}, "meaning", "expected one line of text that says what the knob does"),
        ({"meaning": "a\nb"}, "meaning", "expected one line of text that says what the knob does"),
        (
            {"choices": ("a",)},
            "choices",
            "only a knob of type 'choice' has choices; VLLM_SOME_KNOB is a int",
        ),
        (
            {"type": "choice", "default": None},
            "choices",
            "VLLM_SOME_KNOB is a choice and needs at least one",
        ),
        (
            {"type": "choice", "default": "a", "choices": ("a", "a")},
            "choices",
            "a choice stands twice",
        ),
        (
            {"type": "choice", "default": "a", "choices": ("a", "\x07")},
            "choices",
            "a control character in a choice",
        ),
        (
            {"type": "choice", "default": "b", "choices": ("a",)},
            "default",
            "'b' is none of the choices",
        ),
        (
            {"default": "08"},
            "default",
            "expected an integer of at most 19 digits for the int VLLM_SOME_KNOB, found '08'",
        ),
        (
            {"type": "bool", "default": "yes"},
            "default",
            "expected '0' or '1' for the bool VLLM_SOME_KNOB, found 'yes'",
        ),
        (
            {"type": "float", "default": "nan"},
            "default",
            (
                "expected a decimal number such as '0.5' or '1e-6' for the float VLLM_SOME_KNOB, "
                "found 'nan'"
            ),
        ),
        ({"type": "str", "default": "\x00"}, "default", "a control character in the default"),
    ],
)
def test_each_rule(changes: dict[str, Any], key: str, message: str) -> None:
    assert mistakes(**changes) == [Mistake(("knob", 0, key), message)]


def test_names_stand_once() -> None:
    found = list(
        problems([GOOD, GOOD], ["kvarn"], [Retired(GOOD.name, "gone"), Retired("x", "a\nb")])
    )
    assert [(mistake.path, mistake.message) for mistake in found] == [
        (("prefixes", 0), "expected a prefix such as 'KVARN_', found 'kvarn'"),
        (("knob", 1, "name"), "VLLM_SOME_KNOB is already declared as knob[0]"),
        (("retired", 0, "name"), "VLLM_SOME_KNOB is already declared as knob[0]"),
        (("retired", 1, "name"), "expected a name such as 'VLLM_SOME_KNOB', found 'x'"),
        (("retired", 1, "reason"), "expected one line of text"),
    ]


@settings(deadline=None)
@given(KNOBS, st.randoms(use_true_random=False))
def test_the_order_of_declaration_means_nothing(knobs: list[Knob], random: Any) -> None:
    registry = Registry.of(knobs, ["KVARN_", "VLLM_"])
    shuffled = list(knobs)
    random.shuffle(shuffled)
    assert Registry.of(shuffled, ["KVARN_"]) == registry
    assert registry.all_prefixes == ("VLLM_", "KVARN_")


@settings(deadline=None)
@given(KNOBS)
def test_values_survive_a_key_and_json(knobs: list[Knob]) -> None:
    registry = Registry.of(knobs, ["KVARN_"], [Retired("VLLM_OLD_ONE", "gone")])
    values = to_values(registry)
    encode(values)
    assert from_values(json.loads(json.dumps(values))) == registry


def test_knobs_of_absent_owners_do_not_exist() -> None:
    other = GOOD._replace(name="KVARN_X", owner="overlay:kvarn")
    registry = Registry.of([GOOD, other], ["KVARN_"])
    assert registry.owned_by(["overlay:kvarn"]) == Registry.of([other], ["KVARN_"])
    assert other.absent == "default"
    assert other._replace(default=None).absent == "none"
