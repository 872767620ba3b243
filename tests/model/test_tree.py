"""Deltas, digests of trees, and paths that are none."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.digest import Digest
from hq.model.tree import Entry, make_delta, merge, path_problem, tree_digest

entries = st.builds(
    lambda kind, data: Entry(kind, Digest.of(data), len(data)),
    st.sampled_from(["f", "x", "l"]),
    st.binary(max_size=4),
)
changes = st.dictionaries(st.text(max_size=4), st.none() | entries, max_size=5)


@given(changes)
def test_a_delta_is_sorted_and_loses_nothing(one: dict[str, Entry | None]) -> None:
    delta = make_delta(one)
    assert [path for path, _ in delta] == sorted(one)
    assert merge([delta]) == one


@given(changes, changes, changes)
def test_merging_is_associative_and_later_wins(
    one: dict[str, Entry | None], two: dict[str, Entry | None], three: dict[str, Entry | None]
) -> None:
    a, b, c = make_delta(one), make_delta(two), make_delta(three)
    assert merge([a, b, c]) == merge([make_delta(merge([a, b])), c]) == one | two | three
    assert merge([a, ()]) == merge([(), a]) == one


@given(st.dictionaries(st.text(alphabet="abé/\udcff", min_size=1, max_size=4), entries, max_size=4))
def test_a_tree_s_digest_is_as_described(tree: dict[str, Entry]) -> None:
    lines = sorted(
        (path.encode("utf-8", "surrogateescape"), entry.kind, entry.digest.hex)
        for path, entry in tree.items()
    )
    text = b"".join(b"%s\0%s\0%s\n" % (p, k.encode(), d.encode()) for p, k, d in lines)
    assert tree_digest(tree) == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "an empty path"),
        ("/etc", "an absolute path"),
        ("a\0b", "a NUL byte in the path"),
        ("a\\b", "a backslash in the path"),
        ("a/../b", "a '..' in the path"),
        ("..", "a '..' in the path"),
        ("a//b", "an empty or '.' part in the path"),
        ("./a", "an empty or '.' part in the path"),
        ("a/", "an empty or '.' part in the path"),
        ("a/b.py", None),
        (".hidden/..x", None),
    ],
)
def test_paths(path: str, problem: str | None) -> None:
    assert path_problem(path) == problem
