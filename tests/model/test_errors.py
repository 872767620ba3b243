"""How an error reads."""

from __future__ import annotations

import pytest

from hq.model.errors import (
    BuildError,
    HqError,
    InfrastructureError,
    Location,
    Problem,
    UsageError,
    problems_error,
)


def test_every_part_in_its_place() -> None:
    error = BuildError(
        "it does not fit",
        where=Location("a.patch", 7),
        details=["expected: x", "", "found:    y  "],
        hint="make it fit",
    )
    assert str(error.in_node("patch:a")) == (
        "error: it does not fit\n"
        "  at: a.patch:7\n"
        "  node: patch:a\n"
        "  expected: x\n"
        "\n"
        "  found:    y\n"
        "  help: make it fit"
    )


def test_only_what_is_known_is_said() -> None:
    assert UsageError("no").render() == "error: no"
    assert UsageError("no", where=Location("f")).render() == "error: no\n  at: f"


def test_the_innermost_node_stays() -> None:
    error = BuildError("x").in_node("inner")
    assert error.in_node("outer") is error
    assert error.node == "inner"


@pytest.mark.parametrize(
    ("kind", "code"), [(HqError, 70), (BuildError, 1), (UsageError, 2), (InfrastructureError, 3)]
)
def test_exit_codes(kind: type[HqError], code: int) -> None:
    assert kind("x").exit_code == code


def test_problems_stand_in_the_order_of_their_places() -> None:
    error = problems_error(
        "f has 3 mistakes",
        [
            Problem(Location("f", 10), "c"),
            Problem(Location("f", 9), "b", "do this"),
            Problem(Location("e"), "a"),
        ],
        hint="mend them",
    )
    assert isinstance(error, UsageError)
    assert error.render() == (
        "error: f has 3 mistakes\n  e: a\n  f:9: b (do this)\n  f:10: c\n  help: mend them"
    )
