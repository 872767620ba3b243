"""Versions: an order, and dpkg's."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.debian.version import compare, satisfies

PARTS = st.text("019aZ.+~", max_size=5).map(lambda text: f"1{text}")
VERSIONS = st.builds(
    lambda epoch, upstream, revision: epoch + upstream + revision,
    st.sampled_from(["", "0:", "1:"]),
    PARTS,
    st.one_of(st.just(""), st.text("019a.+~", min_size=1, max_size=4).map(lambda text: f"-{text}")),
)


def test_the_order_of_the_manual_page() -> None:
    ordered = ["1.0~~", "1.0~~a", "1.0~", "1.0~rc1", "1.0", "1.0-1", "1.0-1+b1", "1.0a", "1.0+x"]
    for left, right in pairwise([*ordered, "1.0.1", "1.9", "1.10", "1:0.1"]):
        assert (compare(left, right), compare(right, left), compare(left, left)) == (-1, 1, 0)


@given(VERSIONS, VERSIONS, VERSIONS)
def test_it_is_an_order(a: str, b: str, c: str) -> None:
    assert compare(a, b) == -compare(b, a)
    if compare(a, b) <= 0 and compare(b, c) <= 0:
        assert compare(a, c) <= 0


def test_leading_zeros_and_a_missing_revision_are_nothing() -> None:
    assert compare("1.02", "1.2") == 0
    assert compare("1.2", "1.2-0") == 0
    assert compare("0:1", "1") == 0


def test_conditions() -> None:
    found = {op: satisfies("1.5", op, "1.5") for op in ("", "<<", "<=", "=", ">=", ">>")}
    assert found == {"": True, "<<": False, "<=": True, "=": True, ">=": True, ">>": False}


@pytest.mark.system
@settings(max_examples=60)
@given(VERSIONS, VERSIONS)
def test_dpkg_agrees(left: str, right: str) -> None:
    if shutil.which("dpkg") is None:
        pytest.skip("dpkg is not installed")
    command = ["dpkg", "--compare-versions", left, "lt", right]
    assert (subprocess.run(command, check=False).returncode == 0) == (compare(left, right) < 0)
