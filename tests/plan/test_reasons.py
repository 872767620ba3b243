"""Why a node runs: every difference, in words that say which."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from hq.model.digest import ActionKey
from hq.plan.node import BlobOf, DeltaOf, FileAt, Node, PathsOf, Source, ValueOf
from hq.plan.reasons import Before, Reason, describe_input, reasons_to_run

NODE = Node(
    "patch:x",
    "patch",
    2,
    {"strip": 1, "reverse": False},
    {
        "patch": Source("patches/x.patch"),
        "file:a.py": FileAt("a.py", ("patch:w", "wheel:demo")),
        "delta": DeltaOf("envs"),
        "paths": PathsOf("envs"),
        "blob": BlobOf("wheel:demo", "index"),
        "value": ValueOf("envs", "names"),
    },
)
INPUTS = {name: f"digest of {name}" for name in NODE.inputs}
NEW, OLD = ActionKey("1" * 64), ActionKey("0" * 64)


def reasons(before: Before | None, node: Node = NODE) -> tuple[Reason, ...]:
    return reasons_to_run(node, NEW, INPUTS, before)


def before(**changes: object) -> Before:
    return Before(OLD, 2, dict(NODE.params), dict(INPUTS))._replace(**changes)  # type: ignore[arg-type]


def test_inputs_in_words() -> None:
    assert [describe_input(NODE, name) for name in NODE.inputs] == [
        "patches/x.patch",
        "a.py as patch:w left it",
        "the files of envs",
        "the set of paths of envs",
        "index of wheel:demo",
        "names of envs",
    ]


def test_never_built() -> None:
    assert reasons(None) == (Reason("first"),)


def test_the_same_key_whose_result_is_gone() -> None:
    assert reasons(before(key=NEW)) == (Reason("result-lost"),)


def test_another_version_of_the_kind() -> None:
    assert reasons(before(version=1)) == (Reason("kind-version", "", "1", "2"),)


def test_a_parameter() -> None:
    assert reasons(before(params={"strip": 0, "reverse": False})) == (
        Reason("parameter", "strip", "0", "1"),
    )


def test_inputs_changed_added_and_gone() -> None:
    old = {**INPUTS, "patch": "other", "gone": "x"}
    del old["value"]
    assert reasons(before(inputs=old)) == (
        Reason("input-removed", "gone", "x", ""),
        Reason("input", "patches/x.patch", "other", "digest of patch"),
        Reason("input-added", "names of envs", "", "digest of value"),
    )


def test_lists_of_named_things_are_compared_by_name() -> None:
    def node(*knobs: Mapping[str, object]) -> Node:
        return NODE._replace(params={"knobs": list(knobs)})  # type: ignore[arg-type]

    old = [{"name": "A", "default": "1"}, {"name": "C", "default": "3"}]
    now = node(
        {"name": "A", "default": "1"},
        {"name": "B", "default": "2"},
        {"name": "C", "default": "4"},
    )
    found = reasons(before(params={"knobs": old}), now)
    assert [(reason.subject, reason.old, reason.new) for reason in found] == [
        ("knobs.B", "nothing", "{'name': 'B', 'default': '2'}"),
        ("knobs.C.default", "'3'", "'4'"),
    ]


def test_a_difference_that_nothing_explains() -> None:
    assert reasons(before()) == (Reason("built-elsewhere"),)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), values), st.dictionaries(st.text(max_size=3), values))
def test_there_is_always_a_reason_and_equal_parameters_are_none(
    old: dict[str, object], new: dict[str, object]
) -> None:
    node = NODE._replace(params=new)  # type: ignore[arg-type]
    found = reasons(before(params=old), node)
    assert found
    # A parameter that is new and None, or True after 1, differs for a key only.
    assert old != new or not [reason for reason in found if reason.cause == "parameter"]
