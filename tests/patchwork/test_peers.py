"""Generated edits on drifted files: hq against GNU patch 2.7.6 without fuzz, and git apply.

What must hold:

* Where hq applies, its tree is the tree of a peer that applies too. hq may apply alone only where
  both peers tie the hunk to an end of the file for which its context gives no reason.
* Where both peers apply and agree, hq applies as well, or says that the place is one of several or
  that the change is there already: where it is stricter, by design.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from patchwork.strategies import edited, files, without_last_newline
from patchwork.support import (
    Tree,
    after,
    git_apply,
    gnu_patch,
    hunks,
    need,
    regular,
    run,
    write_tree,
)

pytestmark = pytest.mark.system

STRICTER = {"ambiguous", "already-applied"}


def diff(before: bytes, then: bytes, work: Path, how: str) -> bytes:
    write_tree({"f": regular(before)}, work / "a")
    write_tree({"f": regular(then)}, work / "b")
    command = {
        "gnu": ["diff", "-u", "a/f", "b/f"],
        "gnu-p": ["diff", "-up", "a/f", "b/f"],
        "gnu-1": ["diff", "-U1", "a/f", "b/f"],
        "git": ["git", "diff", "--no-index", "--no-prefix", "a/f", "b/f"],
    }[how]
    return subprocess.run(command, cwd=work, capture_output=True, check=False).stdout


@st.composite
def drifts(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A file, the file edited, and the file drifted apart from both."""
    before = draw(files())
    then = draw(edited(before))
    other = draw(edited(before, 3))
    if draw(st.integers(0, 5)) == 0:
        before, then = without_last_newline(before), without_last_newline(then)
    if draw(st.integers(0, 5)) == 0:
        other = without_last_newline(other)
    assume(before != then)
    return b"".join(before), b"".join(then), b"".join(other)


def compare(patch: bytes, tree: Tree, work: Path, reverse: bool = False) -> None:
    outcome = run(patch, tree, reverse=reverse)
    mine = after(tree, outcome)
    gnu = gnu_patch(patch, tree, work, reverse=reverse)
    git = git_apply(patch, tree, work, reverse=reverse)
    theirs = [made for made in (gnu, git) if made is not None]
    if outcome.outcome == "applied":
        tied = any(
            hunk.old_start <= 1 or 0 < hunk.trailing < hunk.leading or not hunk.leading
            for report in outcome.files
            for hunk in (placed.hunk for placed in report.hunks)
        )
        assert mine in theirs or (not theirs and tied), (outcome.files, gnu, git)
    elif len(theirs) == 2 and gnu == git:
        why = set(hunks(outcome))
        unchecked = any(placed.unchecked for report in outcome.files for placed in report.hunks)
        assert why & STRICTER or unchecked, outcome.reason


@given(drifts(), st.sampled_from(["gnu", "gnu-p", "gnu-1", "git"]), st.booleans())
@settings(max_examples=120, suppress_health_check=list(HealthCheck))
def test_drifted_files(drift: tuple[bytes, bytes, bytes], how: str, reverse: bool) -> None:
    need("patch")
    need("git")
    need("diff")
    before, then, other = drift
    if reverse:
        before, then = then, before
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        patch = diff(before, then, work, how)
        assume(patch)
        compare(patch, {"f": regular(other)}, work, reverse)


@given(drifts(), st.sampled_from(["gnu", "git"]))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_undrifted_files(drift: tuple[bytes, bytes, bytes], how: str) -> None:
    """The patch on the very file that it was made from, forth and back."""
    need("patch")
    need("git")
    need("diff")
    before, then, _ = drift
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        patch = b"Allow-Repeat: yes\n\n" + diff(before, then, work, how)
        forth = run(patch, {"f": regular(before)})
        assert forth.outcome == "applied", forth.reason
        assert after({"f": regular(before)}, forth) == {"f": regular(then)}
        back = run(patch, {"f": regular(then)}, reverse=True)
        assert back.outcome == "applied", back.reason
        assert after({"f": regular(then)}, back) == {"f": regular(before)}
