"""Names and dates on header lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.patchwork.names import (
    decode,
    is_epoch,
    read_git_names,
    read_side,
    show,
    strip_name,
    unquote,
)
from hq.patchwork.parse import parse_patch
from hq.patchwork.target import touched_paths
from patchwork.odd_cases import HUNK, MAKES_N, git


@pytest.mark.parametrize(
    "stamp",
    [
        "1970-01-01 00:00:00.000000000 +0000",
        "1970-01-01 00:00:00 +0000",
        "1970-01-01T00:00:00Z",
        "1969-12-31 16:00:00.000000000 -0800",
        "1970-01-01 01:00:00.000000000 +0100",
        "1970-01-01 05:30:00 +0530",
        "1970-01-01 05:45:00 +05:45",
        "Thu Jan  1 00:00:00 1970",
        "Thu Jan 01 00:00:00 1970 +0000",
        "Wed Dec 31 19:00:00 1969",
        "Wed Dec 31 19:00:00 EST 1969",
        "1 Jan 1970 00:00:00 -0000",
        "Thu, 1 Jan 1970 00:00:00 GMT",
        "1970-01-01 00:00:00",
        "1970-01-01 01:00:00",
    ],
)
def test_the_epoch_in_any_zone_and_form(stamp: str) -> None:
    assert is_epoch(stamp.encode())


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "1970-01-01 00:00:01.000000000 +0000",
        "1970-01-01 00:00:00.000000001 +0000",
        "1970-01-01 00:00:00 +0100",
        "1969-12-31 16:00:00 +0800",
        "1970-01-02 00:00:00 +0000",
        "2020-01-01 00:00:00 +0000",
        "1970-01-01 00:07:00",
        "Thu Jan  1 00:00:01 1970 +0000",
        "(revision 1970)",
        "1970-01-01 99:99:99 +0000",
    ],
)
def test_other_dates(stamp: str) -> None:
    assert not is_epoch(stamp.encode())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a/f", ("a/f",)),
        ("a/f\t2020-01-01 00:00:00 +0000", ("a/f",)),
        ("a/f\t", ("a/f",)),
        ("a/f 2020-01-01 00:00:00.000000000 +0000", ("a/f",)),
        ("a/f Thu Jan  1 00:00:00 1970", ("a/f",)),
        ("f (revision 12)", ("f",)),
        ("f (working copy)", ("f",)),
        ("a/my file", ("a/my file", "a/my")),
        ("a/my file\t", ("a/my file",)),
        ('"a/tab\\there"\t2020', ("a/tab\there",)),
        ('"a/unterminated', ('"a/unterminated',)),
        ("/dev/null", ()),
        ("/dev/null\t1970-01-01", ()),
        ("/dev/null 1970-01-01", ()),
    ],
)
def test_sides(text: str, names: tuple[str, ...]) -> None:
    assert read_side(text.encode()).names == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a/f b/f", ("a/f", "b/f")),
        ("f f", ("f", "f")),
        ("a/my file b/my file", ("a/my file", "b/my file")),
        ("a/x b/y b/x b/y", ("a/x b/y", "b/x b/y")),
        ('"a/\\303\\274" "b/\\303\\274"', ("a/\u00fc", "b/\u00fc")),
        ('a/f "b/\\t"', ("a/f", "b/\t")),
        ('"a/\\t" b/f', ("a/\t", "b/f")),
        ("a/old b/new", ("", "")),
        ("", ("", "")),
    ],
)
def test_git_lines(text: str, names: tuple[str, str]) -> None:
    assert read_git_names(text.encode()) == names


@pytest.mark.parametrize(
    ("name", "strip", "left"),
    [
        ("a/f", 1, "f"),
        ("a/f", 0, "a/f"),
        ("a//d//f", 1, "d/f"),
        ("./f", 0, "f"),
        ("a/./d/f", 1, "d/f"),
        ("f", 1, None),
        ("a/", 1, None),
        (".", 0, None),
    ],
)
def test_strip(name: str, strip: int, left: str | None) -> None:
    assert strip_name(name, strip) == left


def quote(raw: bytes) -> bytes:
    return b'"' + b"".join(b"\\%03o" % byte for byte in raw) + b'"'


@given(st.binary(max_size=20), st.binary(max_size=5))
def test_quoting_survives(raw: bytes, rest: bytes) -> None:
    assert unquote(quote(raw) + rest) == (raw, rest)


@given(st.binary(max_size=20))
def test_any_bytes_can_be_shown(raw: bytes) -> None:
    assert show(decode(raw)).isprintable()


def test_touched_paths() -> None:
    patch = parse_patch(
        (
            "--- a/f.orig\n+++ b/f\n" + HUNK
            + "--- /dev/null\n+++ b/n\n" + MAKES_N
            + git("rename from old", "rename to d/new", old="old", new="d/new")
        ).encode()
    )  # fmt: skip
    assert touched_paths(patch) == ("d/new", "f", "f.orig", "n", "old")
    assert touched_paths(patch, reverse=True) == ("d/new", "f", "f.orig", "n", "old")
    assert touched_paths(patch, strip=0) == (
        "a/f.orig", "b/f", "b/n", "d/new", "old",
    )  # fmt: skip
