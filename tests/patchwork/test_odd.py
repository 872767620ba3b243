"""Odd patches: the outcome of each, and what GNU patch and git apply make of the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchwork.odd_cases import CASES, Case
from patchwork.support import after, git_apply, gnu_patch, hunks, need, run

_IDS = [case.name for case in CASES]


def test_names_are_unique() -> None:
    assert len(set(_IDS)) == len(_IDS)


@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_outcome(case: Case) -> None:
    outcome = run(case.data, case.tree, case.strip, case.reverse)
    assert outcome.outcome == case.want, outcome.reason
    if case.hunks is not None:
        assert hunks(outcome) == case.hunks
    assert after(case.tree, outcome) == (case.tree if case.after is None else case.after)
    assert bool(outcome.reason) == (outcome.outcome != "applied")


@pytest.mark.system
@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_against_peers(case: Case, tmp_path: Path) -> None:
    """Where a peer applies and hq does not, or only hq applies, the case says why."""
    need("patch")
    need("git")
    outcome = run(case.data, case.tree, case.strip, case.reverse)
    mine = after(case.tree, outcome)
    peers = [
        gnu_patch(case.data, case.tree, tmp_path, case.strip, case.reverse),
        git_apply(case.data, case.tree, tmp_path, case.strip, case.reverse),
    ]
    theirs = [made for made in peers if made is not None]
    if outcome.outcome != "applied":
        assert not theirs or case.stricter, f"a peer applies it: {outcome.reason}"
    elif not theirs:
        assert case.looser, "only hq applies it"
    elif not case.differs:
        assert mine in theirs
