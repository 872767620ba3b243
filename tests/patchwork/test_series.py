"""Quilt's series file, and series applied patch by patch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.errors import UsageError
from hq.patchwork.apply import File
from hq.patchwork.series import Entry, apply_series, orphan_problems, parse_series
from patchwork.odd_cases import DONE, HEAD, STANDARD, F
from patchwork.support import hunks, reader, regular, tree

SECOND = HEAD + "@@ -14,3 +14,3 @@\n line 14\n-line 15\n+line XV\n line 16\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n# only\n  \n\t# comments\n", []),
        (b"a.patch\n", [("a.patch", 1, False)]),
        (b"a.patch", [("a.patch", 1, False)]),
        (b"a.patch\r\nb.patch\r\n", [("a.patch", 1, False), ("b.patch", 1, False)]),
        (b"\xef\xbb\xbfa.patch\n", [("a.patch", 1, False)]),
        (b"  a.patch  # why\n", [("a.patch", 1, False)]),
        (b"a#b.patch\n", [("a#b.patch", 1, False)]),
        (b"sub/dir/a.patch -p0\n", [("sub/dir/a.patch", 0, False)]),
        (b"a.patch -p2 -R # undo\n", [("a.patch", 2, True)]),
        (b"a.patch\t-R\t-p 3\n", [("a.patch", 3, True)]),
        (b"a.patch -pab\n", [("a.patch", 1, False)]),
        (b"a.patch --strip=0 --reverse\n", [("a.patch", 0, True)]),
        (b"caf\xe9.patch\n", [("caf\udce9.patch", 1, False)]),
    ],
)
def test_lines(text: bytes, expected: list[tuple[str, int, bool]]) -> None:
    assert [entry[:3] for entry in parse_series(text)] == expected


def test_line_numbers() -> None:
    assert parse_series(b"# one\n\na.patch\n")[0] == Entry("a.patch", 1, False, 3)


def test_every_mistake_is_told_at_once() -> None:
    text = b"""a.patch --fuzz=3
/etc/b.patch
../c.patch
-p0
a.patch
d.patch e.patch
f//g.patch
"""
    with pytest.raises(UsageError) as caught:
        parse_series(text, "patches/series")
    assert caught.value.render() == (
        "error: patches/series has 7 mistakes\n"
        "  patches/series:1: unknown option '--fuzz=3' (the options are -pN (default -p1) and -R)\n"
        "  patches/series:2: an absolute path: '/etc/b.patch' (name patches by their path below "
        "the folder)\n"
        "  patches/series:3: an empty, '.' or '..' part in '../c.patch'\n"
        "  patches/series:4: an option without a patch: '-p0'\n"
        "  patches/series:5: 'a.patch' stands twice, first at line 1\n"
        "  patches/series:6: 'e.patch' after the name of a patch (one patch a line)\n"
        "  patches/series:7: an empty, '.' or '..' part in 'f//g.patch'"
    )


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        entries = parse_series(data)
    except UsageError as error:
        assert error.render().replace("\n", "").isprintable()
    else:
        assert len({entry.name for entry in entries}) == len(entries)


def test_mistakes_in_a_line_and_missing_files_are_told_together() -> None:
    text = b"a.patch\ngone.patch --fuzz=3\n/gone\na.patch\nalso.patch\n"
    asked: list[str] = []

    def is_there(name: str) -> bool:
        asked.append(name)
        return name == "a.patch"

    with pytest.raises(UsageError) as caught:
        parse_series(text, "patches/series", is_there)
    assert caught.value.render() == (
        "error: patches/series has 5 mistakes\n"
        "  patches/series:2: there is no patch file 'gone.patch'\n"
        "  patches/series:2: unknown option '--fuzz=3' (the options are -pN (default -p1) and -R)\n"
        "  patches/series:3: an absolute path: '/gone' (name patches by their path below the "
        "folder)\n"
        "  patches/series:4: 'a.patch' stands twice, first at line 1\n"
        "  patches/series:5: there is no patch file 'also.patch'"
    )
    assert asked == ["a.patch", "gone.patch", "also.patch"]  # nothing that is no name of a patch


def test_patches_that_no_series_names() -> None:
    present = ["a.patch", "old.patch", "sub/x.diff", "series", "README"]
    assert [str(problem) for problem in orphan_problems(["a.patch"], present, "patches")] == [
        "patches/old.patch: this patch is in no series (name it in one, or remove it)",
        "patches/sub/x.diff: this patch is in no series (name it in one, or remove it)",
    ]


def series(patches: dict[str, str], files: dict[str, File], options: str = "", **how: bool):
    text = "".join(f"{name}{options}\n" for name in patches).encode()
    data = {name: patch.encode() for name, patch in patches.items()}
    return apply_series(parse_series(text), data.__getitem__, reader(files), **how)


def test_the_second_patch_sees_what_the_first_made() -> None:
    third = HEAD + "@@ -6,3 +6,3 @@\n line 6\n-line seven\n+line VII\n line 8\n"
    result = series({"1": STANDARD, "2": SECOND, "3": third}, F)
    assert result.applied
    made = F["f"].data.replace(b"line 7", b"line VII").replace(b"line 15", b"line XV")
    assert result.changes == {"f": regular(made)}


def test_the_first_failure_ends_the_series() -> None:
    result = series({"1": STANDARD, "2": STANDARD, "3": SECOND}, F)
    assert [outcome.outcome for outcome in result.outcomes] == ["applied", "already-applied"]
    assert not result.applied
    assert result.changes == DONE


def test_keep_going_leaves_a_failing_patch_out_whole() -> None:
    half = STANDARD + HEAD.replace("f", "gone") + "@@ -1 +1 @@\n-x\n+y\n"
    result = series({"1": half, "2": SECOND}, F, keep_going=True)
    assert [outcome.outcome for outcome in result.outcomes] == ["rejected", "applied"]
    assert hunks(result.outcomes[0]) == ["exact", "target-missing"]
    assert result.changes == {"f": regular(F["f"].data.replace(b"line 15", b"line XV"))}


def test_options_count() -> None:
    flat = STANDARD.replace("a/f", "f").replace("b/f", "f")
    assert series({"1": flat}, F, " -p0").changes == DONE
    assert series({"1": STANDARD}, DONE, " -R").changes == F
    assert series({"1": STANDARD}, F, " -p2").outcomes[0].outcome == "refused"


def test_a_change_taken_back_is_no_change() -> None:
    back = HEAD + "@@ -6,3 +6,3 @@\n line 6\n-line seven\n+line 7\n line 8\n"
    result = series({"1": STANDARD, "2": back}, F)
    assert result.applied
    assert result.changes == {}


def test_deleted_and_made_again_across_patches() -> None:
    drop = "--- a/n\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
    make = "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+two\n"
    result = series({"1": drop, "2": make}, tree(n="one\n"))
    assert result.changes == tree(n="two\n")


def test_an_empty_series_applies() -> None:
    assert series({}, F).applied
