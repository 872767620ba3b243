"""Faults are one small thing, put where it is meant, or refused."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.evidence.faults import FaultError, drop_knob, drop_patch, edit, shift_hunk
from hq.patchwork.apply import File, apply_patch
from hq.patchwork.parse import parse_patch

BEFORE = "".join(f"line {number}\n" for number in range(1, 41))
PATCH = b"""\
Subject: x

--- a/f
+++ b/f
@@ -3,7 +3,7 @@ def f():
 line 3
 line 4
 line 5
-line 6
+line six
 line 7
 line 8
 line 9
@@ -20,4 +20,5 @@
 line 20
 line 21
+more
 line 22
 line 23
"""


@given(st.text("abc\n", max_size=40), st.text("abc\n", min_size=1, max_size=3))
def test_an_edit_changes_the_one_place(text: str, find: str) -> None:
    if text.count(find) == 1:
        assert edit(text.encode(), find, "X").decode() == text.replace(find, "X")
    else:
        with pytest.raises(FaultError):
            edit(text.encode(), find, "X")


@given(st.integers(1, 2), st.integers(-2, 30), st.none() | st.integers(0, 3), st.booleans())
def test_a_shifted_hunk_is_still_a_hunk(
    number: int, by: int, context: int | None, heading: bool
) -> None:
    made = shift_hunk(PATCH, number, by, context, heading=heading)
    patch = parse_patch(made, "p")
    assert not [one for one in patch.refusals if one.code != "unchecked-insertion"]
    old, new = parse_patch(PATCH, "p").sections[0].hunks, patch.sections[0].hunks
    assert len(new) == 2
    other = 2 - number
    assert new[other]._replace(line=0) == old[other]._replace(line=0)
    shifted, was = new[number - 1], old[number - 1]
    assert shifted.leading == min(was.leading, 3 if context is None else context)
    assert shifted.old_start == was.old_start + by + was.leading - shifted.leading
    assert bool(shifted.heading.strip()) == (heading and bool(was.heading.strip()))
    if by == 0 and context is None and heading:
        assert made == PATCH


def test_where_it_lands_is_the_engine_s_to_judge() -> None:
    made = shift_hunk(PATCH, 1, 10)
    outcome = apply_patch(parse_patch(made, "p"), lambda _: File("f", BEFORE.encode()), 1, False)
    assert outcome.outcome == "applied"


def test_what_cannot_be_shifted() -> None:
    with pytest.raises(FaultError, match="the patch has 2 hunks, there is no hunk 3"):
        shift_hunk(PATCH, 3, 1)
    with pytest.raises(FaultError, match="hunk 1 would begin before line 1"):
        shift_hunk(PATCH, 1, -9)


def test_a_patch_leaves_a_series() -> None:
    series = b"# all\na.patch -p1\nb.patch # why\n"
    assert drop_patch(series, "b.patch") == b"# all\na.patch -p1\n"
    with pytest.raises(FaultError, match=r"the series names c\.patch 0 times, expected once"):
        drop_patch(series, "c.patch")


REGISTRY = b"""\
schema = "hq.knobs/1"
# The knobs.

[[knob]]
name = "A"
type = "int"

# About B.
[[knob]]
name = "B"
choices = [
  "x",
]

[[retired]]
name = "A"
"""


@pytest.mark.parametrize("name", ["A", "B"])
def test_a_knob_leaves_a_registry(name: str) -> None:
    before, after = (tomllib.loads(text.decode()) for text in (REGISTRY, drop_knob(REGISTRY, name)))
    assert after["knob"] == [knob for knob in before["knob"] if knob["name"] != name]
    assert after["retired"] == before["retired"]


def test_a_knob_that_is_not_there() -> None:
    with pytest.raises(FaultError, match="the registry has 0 knobs C, expected one"):
        drop_knob(REGISTRY, "C")
