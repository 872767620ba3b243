"""Laws of the engine, on generated files, edits and damaged patches. No peers here."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hq.patchwork import parse
from hq.patchwork.apply import File, PatchOutcome
from hq.patchwork.explain import failure
from hq.patchwork.place import AlreadyApplied, Exact, Offset
from hq.patchwork.report import patch_report
from patchwork.odd_cases import CASES, STANDARD, F
from patchwork.strategies import edited, files, unified, without_last_newline
from patchwork.support import after, hunks, regular, run

COMMON = settings(max_examples=200)


@st.composite
def changes(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A file, the file edited, and the diff of the two."""
    before = draw(files())
    then = draw(edited(before))
    if draw(st.booleans()):
        before = without_last_newline(before)
    if draw(st.booleans()):
        then = without_last_newline(then)
    assume(before != then)
    patch = unified(before, then, draw(st.integers(1, 4)))
    return b"".join(before), b"".join(then), patch


def is_repeat(outcome: PatchOutcome) -> bool:
    """A change whose result seems to stand there already: refused to be put in twice."""
    return "already-applied" in hunks(outcome)


@given(changes())
@COMMON
def test_a_diff_makes_the_new_file_of_the_old(change: tuple[bytes, bytes, bytes]) -> None:
    before, then, patch = change
    outcome = run(patch, {"f": regular(before)})
    if not is_repeat(outcome):
        assert outcome.outcome == "applied", outcome.reason
        assert after({"f": regular(before)}, outcome) == {"f": regular(then)}
        assert set(hunks(outcome)) <= {"exact"}


@given(changes())
@COMMON
def test_allow_repeat_applies_every_diff(change: tuple[bytes, bytes, bytes]) -> None:
    before, then, patch = change
    outcome = run(b"Allow-Repeat: yes\n\n" + patch, {"f": regular(before)})
    assert outcome.outcome == "applied", outcome.reason
    assert after({"f": regular(before)}, outcome) == {"f": regular(then)}


@given(changes())
@COMMON
def test_undoing_gives_the_old_file_back(change: tuple[bytes, bytes, bytes]) -> None:
    before, then, patch = change
    outcome = run(b"Allow-Repeat: yes\n\n" + patch, {"f": regular(then)}, reverse=True)
    assert outcome.outcome == "applied", outcome.reason
    assert after({"f": regular(then)}, outcome) == {"f": regular(before)}


@given(changes())
@COMMON
def test_a_second_time_is_never_a_second_insertion(change: tuple[bytes, bytes, bytes]) -> None:
    """Where the new file has every hunk's result, applying again changes nothing."""
    _, then, patch = change
    again = run(patch, {"f": regular(then)})
    found = parse.parse_patch(patch).sections[0].hunks
    if all(len(hunk.new) > len(hunk.old) and hunk.leading and hunk.trailing for hunk in found):
        assert again.outcome != "applied", hunks(again)


@given(changes(), st.data())
@COMMON
def test_hunks_keep_their_order_and_do_not_overlap(
    change: tuple[bytes, bytes, bytes], data: st.DataObject
) -> None:
    before, _, patch = change
    other = b"".join(data.draw(edited(before.splitlines(keepends=True))))
    outcome = run(patch, {"f": regular(other)})
    for report in outcome.files:
        end = 0
        for placed in report.hunks:
            if isinstance(placed.placement, (Exact, Offset, AlreadyApplied)):
                hunk = placed.hunk
                assert placed.at + hunk.leading >= end
                side = hunk.new if isinstance(placed.placement, AlreadyApplied) else hunk.old
                end = placed.at + len(side) - hunk.trailing


@given(changes(), st.data())
@COMMON
def test_a_placed_hunk_stands_on_its_whole_context(
    change: tuple[bytes, bytes, bytes], data: st.DataObject
) -> None:
    before, _, patch = change
    other = b"".join(data.draw(edited(before.splitlines(keepends=True))))
    outcome = run(patch, {"f": regular(other)})
    for report in outcome.files:
        for placed in report.hunks:
            if placed.lands:
                old = placed.hunk.old
                assert list(report.lines[placed.at : placed.at + len(old)]) == old


def assert_sane(outcome: PatchOutcome) -> None:
    """What holds of every outcome, whatever the patch."""
    error = failure(outcome)
    assert (error is None) == (outcome.outcome == "applied") == (not outcome.reason)
    assert bool(outcome.changes) == (outcome.outcome == "applied")
    json.dumps(patch_report(outcome))
    if error is not None:
        text = error.render()
        assert text.replace("\n", "").isprintable()
        assert error.exit_code == 1


@given(st.binary(max_size=400))
@settings(max_examples=300)
@example(b"--- a/f\n+++ b/f\n@@ -1 +1 @@")
@example(b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\n+")
@example(b"diff --git ")
@example(b'diff --git "a/f "b/f"\nnew mode 100644\n')
@example(b"@@ -0,0 +0,0 @@\n")
@example(b"--- a/f\n+++ b/f\n@@ -0,0 +0,0 @@\n")
@example(b"--- \n+++ \n@@ -1 +1 @@\n-a\n+b\n")
@example(b'--- "\n+++ "\\\n@@ -1 +1 @@\n-a\n+b\n')
def test_any_bytes_are_read(data: bytes) -> None:
    assert_sane(run(data, F))


_PIECES = [
    b"--- a/f\n", b"+++ b/f\n", b"--- /dev/null\n", b"+++ /dev/null\n", b"diff --git a/f b/f\n",
    b"@@ -1,3 +1,3 @@\n", b"@@ -0,0 +1 @@\n", b"@@ -1 +0,0 @@\n", b"@@ -7 +7 @@ def f():\n",
    b" line 6\n", b"-line 7\n", b"+line 7\n", b" line 8\n", b"\\ No newline at end of file\n",
    b"\n", b"old mode 100644\n", b"new mode 100755\n", b"new file mode 120000\n",
    b"deleted file mode 100644\n", b"rename from f\n", b"rename to g\n", b"copy from f\n",
    b"copy to g\n", b"index 1111111..2222222 100644\n", b"similarity index 90%\n", b"-- \n2.39\n",
    b"GIT binary patch\n", b"Index: f\n", b"--- a/f\t1970-01-01 00:00:00 +0000\n", b"Subject: x\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map(b"".join), st.booleans())
@settings(max_examples=500)
def test_any_order_of_lines_is_read(data: bytes, reverse: bool) -> None:
    assert_sane(run(data, F, reverse=reverse))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good patch after a few cuts, doublings and changed bytes."""
    data = bytearray(draw(st.sampled_from([case.data for case in CASES])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        size = draw(st.integers(0, 12))
        what = draw(st.sampled_from(["cut", "double", "bytes"]))
        if what == "cut":
            del data[at : at + size]
        elif what == "double":
            data[at:at] = data[at : at + 4 * size]
        else:
            data[at : at + size] = draw(st.binary(max_size=4))
    return bytes(data)


@given(damaged(), st.integers(0, 2), st.booleans(), st.sampled_from(CASES))
@settings(max_examples=500)
def test_damaged_patches_are_read(data: bytes, strip: int, reverse: bool, case: object) -> None:
    files = case.tree  # type: ignore[attr-defined]
    assert_sane(run(data, files, strip, reverse))


def _slowly(data: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patched:
        patched.setattr(parse._Reader, "_run", lambda self, hunks: False)
        return parse.parse_patch(data)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_fast_reader_reads_what_the_slow_one_reads(
    case: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = case.data  # type: ignore[attr-defined]
    assert parse.parse_patch(data) == _slowly(data, monkeypatch)


def test_the_fast_reader_on_damaged_patches() -> None:
    with pytest.MonkeyPatch.context() as patched:

        @given(damaged())
        @settings(max_examples=300)
        def same(data: bytes) -> None:
            assert parse.parse_patch(data) == _slowly(data, patched)

        same()


def test_a_tree_is_only_read() -> None:
    files = {"f": regular(F["f"].data)}
    held = dict(files)
    outcome = run(STANDARD.encode(), files)
    assert files == held
    assert outcome.changes == {"f": File("f", F["f"].data.replace(b"line 7", b"line seven"))}
