"""Patches made again: their header, their style, and that they give what they were made from."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hq.patchwork.apply import File, apply_patch
from hq.patchwork.parse import parse_patch
from hq.patchwork.place import Exact
from hq.port.diffs import regenerated, renewed_header
from hq.transfer.git_worktree import diff_files, merge_texts

needs_git = pytest.mark.skipif(not shutil.which("git"), reason="no git")

HEAD = b"Subject: Change\nCut-Against: vllm 1.0\nLast-Update: 2026-01-01\n\nIt says 1.0.\n\n"


def test_only_two_fields_of_the_header_change() -> None:
    assert renewed_header(HEAD, "1.0", "2.0", "2027-02-03") == HEAD.replace(
        b"vllm 1.0", b"vllm 2.0"
    ).replace(b"2026-01-01", b"2027-02-03")
    assert renewed_header(b"Cut-Against: 1.0.1\n", "1.0", "2.0") == b"Cut-Against: 2.0\n"
    assert renewed_header(b"Cut-Against: vllm 2.0\n", "1.0", "2.0") == b"Cut-Against: vllm 2.0\n"
    assert renewed_header(b"no field 1.0\n", "1.0", "2.0") == b"no field 1.0\n"


LINE = st.sampled_from(
    [b"a\n", b"b\n", b"def f():\n", b"    x = 1\n", b"\n", b"caf\xe9\n", b"c\r\n"]
)
TEXT = st.tuples(st.lists(LINE, max_size=25), st.sampled_from([b"", b"end"])).map(
    lambda one: b"".join(one[0]) + one[1]
)
FILE = st.one_of(st.none(), st.builds(File, st.sampled_from(["f", "x"]), TEXT))


@needs_git
@pytest.mark.system
@settings(deadline=None, max_examples=25)
@given(st.dictionaries(st.sampled_from(["a/b.py", "c.py", "d e.txt"]), st.tuples(FILE, FILE)))
def test_a_patch_made_again_gives_exactly_what_it_was_made_from(
    files: dict[str, tuple[File | None, File | None]],
) -> None:
    before = {path: one for path, (one, _) in files.items()}
    after = {path: two for path, (_, two) in files.items()}
    changed = {path: file for path, file in after.items() if file != before[path]}
    assume(changed)
    patch = parse_patch(HEAD + b"--- a/c.py\n+++ b/c.py\n@@ -1 +1 @@\n-a\n+b\n")
    data = regenerated(patch, diff_files(before, after), "1.0", "2.0")
    again = parse_patch(data)
    assert again.refusals == ()
    assert again.preamble == renewed_header(HEAD, "1.0", "2.0")
    outcome = apply_patch(again, before.get)
    assert (outcome.outcome, outcome.changes) == ("applied", changed), data
    placed = [one for report in outcome.files for one in report.hunks]
    assert all(isinstance(one.placement, Exact) for one in placed)


@needs_git
@pytest.mark.system
@settings(deadline=None, max_examples=25)
@given(TEXT, TEXT)
def test_a_merge_of_one_sided_changes_is_that_side(base: bytes, ours: bytes) -> None:
    labels = ("ours", "base", "theirs")
    assert merge_texts(base, ours, base, labels) == (ours, 0)
    assert merge_texts(base, base, ours, labels) == (ours, 0)
    assert merge_texts(base, ours, ours, labels) == (ours, 0)
