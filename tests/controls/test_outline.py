"""The outline of parameters tells equal from different, and stays short."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hq.evidence.outline import digest, outline

NAMES = st.text("abcdef.-", min_size=1, max_size=6).filter(lambda name: "." not in name)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=120)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
PARAMS = st.dictionaries(NAMES, VALUES, max_size=4)


def plain(value: Any) -> str:
    """JSON tells true from 1, which Python does not."""
    return json.dumps(value, sort_keys=True)


@given(PARAMS)
def test_each_entry_is_short_and_one_line(params: dict[str, Any]) -> None:
    for leaf in outline(params).values():
        if isinstance(leaf, str):
            assert len(leaf) <= 90
    assert outline(json.loads(json.dumps(params))) == outline(params)


@given(PARAMS, PARAMS)
def test_different_parameters_have_different_outlines(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = plain(outline(one)) == plain(outline(other))
    assert same == (plain(one) == plain(other))


def test_a_registry_is_told_knob_by_knob() -> None:
    knob = {"name": "VLLM_A", "default": "1", "meaning": "m" * 80}
    found = outline({"registry": {"knobs": [knob], "prefixes": ["A_", "B_"]}, "target": "envs.py"})
    assert found == {
        "registry.knobs.VLLM_A": digest({"place": 0, **knob}),
        "registry.prefixes": 'json:["A_", "B_"]',
        "target": "envs.py",
    }


def test_the_order_of_named_things_counts() -> None:
    long = "x" * 90
    one = [{"name": "a", "is": long}, {"name": "b", "is": long}]
    assert outline({"of": one}) != outline({"of": one[::-1]})


def test_text_that_looks_like_a_digest_is_told_apart() -> None:
    assert outline({"a": "json:1"}) == {"a": 'json:"json:1"'}
    assert outline({"a": 1, "b": True, "c": "1", "d": None}) == {
        "a": 1,
        "b": True,
        "c": "1",
        "d": "json:null",
    }
