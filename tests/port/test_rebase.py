"""Laws of carrying a patch over, on random texts; and every kind of change that is no edit."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hq.patchwork.apply import File, apply_patch
from hq.patchwork.parse import parse_patch
from hq.port.rebase import Attempt, Rebase, Text, absorbed_hunks
from hq.port.replay import PatchStep, Tried
from hq.port.resolutions import conflict_id, markers, plain, resolved
from hq.port.tree import View
from hq.transfer.git_worktree import merge_texts
from port.trees import HEAD, DictTree, diff

pytestmark = [
    pytest.mark.system, pytest.mark.skipif(not shutil.which("git"), reason="no git"),
]  # fmt: skip


def merge(base: bytes, ours: bytes, theirs: bytes) -> Text:
    done = merge_texts(base, ours, theirs, ("ours", "base", "theirs"))
    return Text(done.data, done.conflicts)


def carried(old: DictTree, new: DictTree, text: str) -> tuple[Tried, Attempt]:
    step = PatchStep("p.patch", "p.patch", (HEAD + text).encode())
    patch = parse_patch(step.data)
    outcome = apply_patch(patch, View(old).read)
    assert outcome.outcome == "applied", outcome.reason
    tried = Tried(step, patch, outcome, ())
    return tried, Rebase(old, new, merge).attempt(tried, View(old), View(new))


LINES = [f"line {number}\n" for number in range(40)]
CHANGE = st.lists(st.sampled_from(["x\n", "y\n", "line 3\n"]), max_size=4)


@settings(deadline=None, max_examples=20)
@given(CHANGE, CHANGE, st.integers(0, 8), st.integers(0, 8))
def test_changes_far_apart_commute(
    ours: list[str], theirs: list[str], here: int, there: int
) -> None:
    first, second = LINES[:20], LINES[20:]
    changed = [*first[:here], *ours, *first[here + 1 :]]
    assume(changed != first)
    upstream = [*second[: there + 6], *theirs, *second[there + 7 :]]
    old = DictTree("1", {"f": "".join(LINES)})
    new = DictTree("2", {"f": "".join(first + upstream)})
    _, attempt = carried(old, new, diff("f", "".join(LINES), "".join(changed + second)))
    both = "".join(changed + upstream).encode()
    assert attempt.conflicts == ()
    assert View(new, attempt.changes).data("f") == both


def kinds(old: DictTree, new: DictTree, text: str) -> list[tuple[str, str]]:
    return [(one.outcome, one.note) for one in carried(old, new, text)[1].files]


OLD = DictTree("1", {"f": "".join(LINES), "g": "g\n"})
CREATE = diff("new", "", "n\n")
DELETE = diff("g", "g\n", "")


def test_creating_and_deleting() -> None:
    assert kinds(OLD, OLD, CREATE) == [("clean", "")]
    assert kinds(OLD, DictTree("2", {**OLD.files, "new": "n\n"}), CREATE) == [("absorbed", "")]
    assert kinds(OLD, DictTree("2", {**OLD.files, "new": "other\n"}), CREATE) == [
        ("conflict", "the patch creates it, and the new tree has a file of this name")
    ]
    assert kinds(OLD, OLD, DELETE) == [("clean", "")]
    assert kinds(OLD, DictTree("2", {"f": OLD.files["f"]}), DELETE) == [("absorbed", "")]
    assert kinds(OLD, DictTree("2", {**OLD.files, "g": "G\n"}), DELETE) == [
        ("conflict", "the patch deletes it, and upstream changed it")
    ]


def test_a_file_that_is_gone_and_was_not_moved_is_a_conflict() -> None:
    text = diff("f", "".join(LINES), "".join(["first\n", *LINES[1:]]))
    assert kinds(OLD, DictTree("2", {"g": "g\n"}), text) == [
        ("conflict", "the patch changes it, and the new tree has no such file")
    ]


def test_a_half_carried_patch_tells_which_hunk_is_there() -> None:
    after = ["first\n", *LINES[1:30], "thirty\n", *LINES[31:]]
    new = OLD.edited("2", ("f", "line 30\n", "thirty\n"), ("f", "line 20\n", "twenty\n"))
    tried, attempt = carried(OLD, new, diff("f", "".join(LINES), "".join(after)))
    found = absorbed_hunks(tried, View(new), attempt.changes, attempt.moved)
    assert [(path, hunk.n) for path, hunk in found] == [("f", 2)]
    assert attempt.changes["f"] == File("f", new.files["f"].replace(b"line 0\n", b"first\n"))


def test_a_resolution_fits_the_same_conflict_in_another_file_only() -> None:
    first = merge(b"a\nb\nc\n", b"a\nX\nc\n", b"a\nY\nc\n")
    after = b"a\nXY\nc\n"
    longer = b"1\n2\n3\n4\na\n"
    again = merge(longer + b"b\nc\n", longer + b"X\nc\n", longer + b"Y\nc\n")
    assert conflict_id(first.data) == conflict_id(again.data) != ""
    assert resolved(again.data, plain(first.data), after, merge) == longer + b"XY\nc\n"
    other = merge(b"a\nb\nc\n", b"a\nX\nc\n", b"a\nZ\nc\n")
    assert conflict_id(other.data) != conflict_id(first.data)
    assert markers(first.data) == [2, 4, 8]
    assert conflict_id(b"no conflict\n=======\n") == ""
