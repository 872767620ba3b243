"""What a user reads: the exact text of every refusal and of every kind of failure."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hq.patchwork.explain import failure
from hq.patchwork.report import patch_report
from patchwork.odd_cases import (
    BODY,
    CASES,
    FUNCTIONS,
    HEAD,
    HUNK,
    MAKES_N,
    N20,
    STANDARD,
    F,
    git,
    twins,
)
from patchwork.support import regular, run, tree

CASE = {case.name: case for case in CASES}

# name -> (line of the patch, message)
REFUSALS = {
    "both-exist": (1, "the header names two files that both exist: 'f' and 'g'"),
    "strip-too-deep": (1, "-p1 leaves nothing of 'f'"),
    "dot-dot": (1, "a '..' in the path: 'a/../f'"),
    "absolute": (1, "an absolute path: '/f'"),
    "dot-git": (1, "a path inside '.git': 'b/.git/hooks/post-checkout'"),
    "line-break-in-name": (1, "a line break in the path: 'a/f\\nx'"),
    "nul-in-name": (1, "a NUL byte in the path: 'a/f\\x00x'"),
    "both-null": (1, "both sides are /dev/null"),
    "git-inconsistent": (1, "the 'diff --git' line names 'g', the lines below it 'f'"),
    "context-diff": (1, "a context diff; only unified diffs are read"),
    "normal-diff": (2, "a 'normal' diff, without context; only unified diffs are read"),
    "ed-script": (1, "an ed script; it is never run"),
    "ed-delete": (1, "an ed script; it is never run"),
    "combined": (1, "a combined diff of a merge; it applies to no single file"),
    "git-binary": (3, "a change of a binary file, which a patch cannot carry"),
    "binary-stub": (12, "a change of a binary file, which a patch cannot carry"),
    "empty-patch": (0, "the patch changes nothing: the patch is empty"),
    "only-text": (0, "the patch changes nothing: no diff in it, only text"),
    "header-only": (1, "a file header without a hunk"),
    "gzip": (0, "the patch is compressed (gzip)"),
    "utf-16": (1, "the patch is UTF-16 text; a patch is bytes"),
    "bare-hunk-above": (3, "a hunk above the first file header"),
    "whole-diff-above": (
        16, "the diff of this file stands in the patch twice, first at line 3"
    ),
    "hunk-after-text": (13, "a hunk that belongs to no file"),
    "git-line-only": (2, "a hunk above the first file header"),
    "counts-too-small": (10, "a hunk line after the hunk's end: its header counts too few"),
    "counts-too-small-blank": (9, "a hunk line after the hunk's end: its header counts too few"),
    "counts-too-large": (
        3, "hunk 1 announces 9 old and 9 new lines, but the patch ends after 7 and 7"
    ),
    "truncated": (
        3,
        "hunk 1 announces 7 old and 7 new lines, but the patch ends in the middle of the line "
        "after 4 and 4",
    ),
    "no-closing": (3, "not a hunk header: '@@ -4,7 +4,7'"),
    "huge-number": (3, "a hunk header with a number of more than 15 digits"),
    "all-context": (3, "hunk 1 changes nothing"),
    "tab-for-blank": (
        3, "hunk 1 announces 3 old and 3 new lines, but line 4 does not fit after 0 and 0"
    ),
    "marker-in-the-middle": (
        6, "a 'no newline at end of file' line where more lines follow"
    ),
    "marker-first": (4, "a 'no newline at end of file' line where no line stands above it"),
    "u0-insert": (3, "hunk 1 inserts into 'f' without any context, which nothing can check"),
    "undone": (0, "the patch changes nothing: its sections undo each other"),
    "create-with-old-lines": (1, "the patch creates 'f', yet expects lines in it"),
    "rename-out": (1, "a '..' in the path: '../../evil'"),
    "rename-after-edit": (14, "renames 'old', which an earlier section changes"),
    "rename-inconsistent": (
        1, "the extended header names 'old', the lines below it 'a/other'"
    ),
    "mode-index-differs": (
        1, "the mode of 'f' differs: expected executable, found not executable"
    ),
    "mode-old-differs": (1, "the mode of 'f' differs: expected not executable, found executable"),
    "mode-unknown": (2, "file mode '160000': neither a regular file nor a symlink"),
    "mode-same": (1, "a section that changes nothing"),
    "link-out": (1, "'l' would be a symlink out of the tree, to '../etc'"),
    "link-absolute": (1, "'l' would be a symlink out of the tree, to '/etc/passwd'"),
    "link-target": (1, "'f' is a symlink, and the patch is for a regular file"),
    "link-parent": (1, "'d/f' goes through the symlink 'd'"),
    "link-expected": (1, "'f' is a regular file, and the patch is for a symlink"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_refusal(name: str) -> None:
    case = CASE[name]
    outcome = run(case.data, case.tree, case.strip, case.reverse)
    assert (outcome.outcome, outcome.line, outcome.reason) == ("refused", *REFUSALS[name])
    line = f":{outcome.line}" if outcome.line else ""
    error = failure(outcome, "patches/fix.patch")
    assert error is not None
    assert error.render().startswith(
        f"error: patches/fix.patch is refused: {outcome.reason}\n  at: patches/fix.patch{line}"
    )


REJECTIONS = {
    "missing": (1, "'f' is not in the tree"),
    "create-exists": (1, "creates 'n', which exists with other content"),
    "delete-differs": (1, "deletes 'n', whose content differs"),
    "rename-onto": (1, "renames 'old' onto 'new', which exists"),
    "copy-onto": (1, "copies 'old' onto 'new', which exists"),
    "rename-missing": (1, "'old' is not in the tree"),
    "parent-is-file": (1, "'f' is a file, not a directory of 'f/n'"),
    "target-is-directory": (1, "'d' is a directory"),
    "twins": (3, "hunk 1 of f fits equally well at lines 2, 8, 14"),
    "fuzz-one": (3, "hunk 1 of f fits only with one context line ignored, at line 4"),
    "fuzz-two": (3, "hunk 1 of f fits only with 2 context lines ignored, at line 4"),
    "fuzz-three": (3, "hunk 1 of f does not match the file anywhere"),
    "already-in-part": (3, "hunk 1 of f is there already, at line 4"),
    "out-of-order": (
        8,
        "hunk 2 of f is stated above the end of the hunk before it: they overlap or are out of "
        "order",
    ),
}


@pytest.mark.parametrize("name", sorted(REJECTIONS))
def test_rejection(name: str) -> None:
    case = CASE[name]
    outcome = run(case.data, case.tree, case.strip, case.reverse)
    assert (outcome.outcome, outcome.line, outcome.reason) == ("rejected", *REJECTIONS[name])


def text(patch: str, files: dict) -> str:
    error = failure(run(patch.encode(), files), "patches/fix.patch")
    assert error is not None
    return error.render()


def test_fuzzy() -> None:
    files = tree(f=N20.replace(b"line 5\n", b"LINE 5\n"))
    assert text(STANDARD, files) == (
        "error: patches/fix.patch does not apply: hunk 1 of f fits only with 2 context lines "
        "ignored, at line 4\n"
        "  at: patches/fix.patch:3\n"
        "  file f, hunk 1, stated at line 4; fits at line 4 only if 2 lines of context are ignored:"
        "\n\n"
        "          expected   found\n"
        "      4   line 4     line 4\n"
        "      5 ! line 5   | LINE 5\n"
        "      6   line 6     line 6\n"
        "      7   line 7     line 7\n"
        "      8   line 8     line 8\n"
        "      9   line 9     line 9\n"
        "     10   line 10    line 10\n\n"
        "  help: its context has changed: read the change around it, then make the patch again "
        "from this tree; hq never drops context"
    )


def test_conflict() -> None:
    files = tree(f=b"new\n" + N20.replace(b"line 7\n", b"line VII\n"))
    patch = HEAD + HUNK.replace("@@\n", "@@ class Seven\n", 1)
    assert text(patch, files) == (
        "error: patches/fix.patch does not apply: hunk 1 of f does not match the file anywhere\n"
        "  at: patches/fix.patch:3\n"
        "  file f, hunk 1 (class Seven), stated at line 4; most alike at line 5:\n\n"
        "          expected   found\n"
        "      5   line 4     line 4\n"
        "      6   line 5     line 5\n"
        "      7   line 6     line 6\n"
        "      8 ! line 7   | line VII\n"
        "      9   line 8     line 8\n"
        "     10   line 9     line 9\n"
        "     11   line 10    line 10\n\n"
        "  help: make the patch again from this tree, or drop it if the tree has its own change"
    )


def test_line_ends_are_named() -> None:
    shown = text(STANDARD, tree(f=N20.replace(b"\n", b"\r\n")))
    assert "line 4 differs in its line end only: CRLF against LF\n" in shown
    assert "nothing in the file is like it. There stands:" in shown


def test_white_space_is_named() -> None:
    files = tree(f=N20.replace(b"line 6\n", b"line\t6\n"))
    assert "line 6 differs in white space only\n" in text(STANDARD, files)


def test_a_missing_newline_is_named() -> None:
    patch = HEAD + "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
    shown = text(patch, tree(f="a\nb\nc"))
    assert "line 3 differs in the newline at the end of the file only\n" in shown


def test_ambiguous() -> None:
    shown = text(twins(5), tree(f=FUNCTIONS))
    assert shown.splitlines()[:3] == [
        "error: patches/fix.patch does not apply: hunk 1 of f fits equally well at lines 2, 8, 14",
        "  at: patches/fix.patch:3",
        "  file f, hunk 1, stated at line 5; 3 equally good places, the nearest at line 8:",
    ]
    assert shown.endswith(
        "  help: give the hunk more lines of context, or its function's name after the second @@"
    )


def test_already_applied() -> None:
    case = CASE["already"]
    assert text(STANDARD, case.tree) == (
        "error: patches/fix.patch is already applied: all that it changes is there already\n"
        "  at: patches/fix.patch\n"
        "  help: drop it from the series, or say 'Allow-Repeat: yes' in its header to put it in "
        "again"
    )


def test_the_other_failures_are_listed() -> None:
    files = tree(f=N20.replace(b"line 7\n", b"line VII\n"))
    second = "--- a/gone\n+++ b/gone\n" + HUNK
    shown = text(STANDARD + second, files)
    assert "  also: hunk 1 of gone has no file to go to\n" in shown
    assert shown.startswith(
        "error: patches/fix.patch does not apply: 'gone' is not in the tree\n"
        "  at: patches/fix.patch:12\n"
    )


def test_control_characters_do_not_reach_the_terminal() -> None:
    name = "a\x1b[2Jb"
    patch = f"--- a/{name}\n+++ b/{name}\n" + HUNK.replace("line 7", "line\x07 7")
    shown = text(patch, {name: regular(N20)})
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "a\\x1b[2Jb" in shown


def test_strict_rejects_a_place_outside_the_named_definition() -> None:
    outcome = run(twins(2, " def f2():").encode(), tree(f=FUNCTIONS), strict=True)
    assert outcome.outcome == "rejected"
    assert outcome.reason == "hunk 1 of f is not in 'def f2():', which the hunk names"


def test_a_long_hunk_is_cut() -> None:
    lines = [f"l{n}\n" for n in range(100)]
    body = (
        "".join(" " + line for line in lines[:50])
        + "-l50\n+L50\n"
        + "".join(" " + line for line in lines[51:])
    )
    files = tree(f="".join(lines).replace("l50\n", "other\n"))
    shown = text(HEAD + "@@ -1,100 +1,100 @@\n" + body, files)
    assert "          … 47 equal lines above\n" in shown
    assert "          … 29 more lines\n" in shown


def test_report_is_plain_json() -> None:
    outcome = run((STANDARD + "--- /dev/null\n+++ b/n\n" + MAKES_N).encode(), F)
    assert patch_report(outcome) == {
        "name": "fix.patch",
        "outcome": "applied",
        "reason": "",
        "files": [
            {
                "path": "f",
                "hunks": [
                    {"n": 1, "outcome": "exact", "line": 4, "offset": 0, "fuzz": 0, "note": ""}
                ],
            },
            {
                "path": "n",
                "hunks": [
                    {"n": 1, "outcome": "exact", "line": 1, "offset": 0, "fuzz": 0, "note": ""}
                ],
            },
        ],
    }


def test_report_of_each_kind_of_hunk() -> None:
    def first(patch: str, files: dict) -> object:
        report = patch_report(run(patch.encode(), files))
        return report["files"][0]["hunks"][0]  # type: ignore[index, call-overload]

    assert first(STANDARD, tree(f=b"x\n" * 3 + N20)) == {
        "n": 1, "outcome": "offset", "line": 7, "offset": 3, "fuzz": 0, "note": "",
    }  # fmt: skip
    assert first(STANDARD, tree(f=N20.replace(b"line 5\n", b"\n"))) == {
        "n": 1, "outcome": "fuzzy", "line": 4, "offset": 0, "fuzz": 2, "note": "",
    }  # fmt: skip
    assert first(STANDARD, tree(f="")) == {
        "n": 1, "outcome": "conflict", "line": None, "offset": 0, "fuzz": 0, "note": "",
    }  # fmt: skip
    assert first(STANDARD, {}) == {
        "n": 1, "outcome": "target-missing", "line": None, "offset": 0, "fuzz": 0,
        "note": "the file is not in the tree",
    }  # fmt: skip
    assert first(twins(5), tree(f=FUNCTIONS)) == {
        "n": 1, "outcome": "ambiguous", "line": 2, "offset": 0, "fuzz": 0,
        "note": "fits equally well at lines 2, 8, 14",
    }  # fmt: skip
    uneven = HEAD + "@@ -4,5 +4,5 @@\n line 4\n line 5\n line 6\n-line 7\n+line seven\n line 8\n"
    assert first(uneven, F) == {
        "n": 1, "outcome": "exact", "line": 4, "offset": 0, "fuzz": 0,
        "note": "fewer lines of context after the change than before it, not at the end of the "
        "file",
    }  # fmt: skip
    assert first(twins(5, " def f3():"), tree(f=FUNCTIONS)) == {
        "n": 1, "outcome": "offset", "line": 14, "offset": 9, "fuzz": 0,
        "note": "one of 3 places; the only one in 'def f3():'",
    }  # fmt: skip


def test_a_refusal_in_the_report_names_its_line() -> None:
    report = patch_report(run((HEAD + "@@ -4,5 +4,5 @@\n" + BODY).encode(), F))
    assert report == {
        "name": "fix.patch",
        "outcome": "refused",
        "reason": "line 10: a hunk line after the hunk's end: its header counts too few",
        "files": [],
    }


def test_git_rename_report_names_the_new_path() -> None:
    patch = git("similarity index 100%", "rename from old", "rename to new", old="old", new="new")
    report = patch_report(run(patch.encode(), tree(old=N20)))
    assert report["files"] == [{"path": "new", "hunks": []}]


@given(
    st.text("ab c", min_size=1, max_size=120),
    st.text("ab c", max_size=120),
    st.text("ab c", max_size=9),
    st.text("ab c", max_size=9),
)
def test_where_two_lines_part_is_seen(head: str, tail: str, one: str, two: str) -> None:
    left, right = f"x{head}{one}{tail}".rstrip(), f"x{head}{two}{tail}".rstrip()
    assume(left.split() != right.split())
    patch = f"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n {left}\n-old\n+new\n last\n"
    shown = text(patch, tree(f=f"{right}\nold\nlast\n".encode()))
    row = next(line for line in shown.splitlines() if " 1 ! " in line)
    expected, found = row.partition(" ! ")[2].split(" | ")
    assert expected.strip() != found.strip()
    assert max(len(expected), len(found)) <= 46
