"""The order of a layer's entries, and what cannot stand in a layer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.errors import BuildError
from hq.oci.arrange import File, Item, Removed, arrange


def file(path: str) -> File:
    return File(path, "f", bytes)


def listed(items: list[Item], prefix: str = "") -> list[str]:
    return [slot.path + "/" * (slot.kind == "d") for slot in arrange(items, prefix)]


def test_parents_come_once_and_first() -> None:
    assert listed([file("b/c/d"), file("b-x"), file("b/a")], "p/q") == [
        "p/", "p/q/", "p/q/b/", "p/q/b-x", "p/q/b/a", "p/q/b/c/", "p/q/b/c/d",
    ]  # fmt: skip


def test_whiteouts_come_before_their_siblings() -> None:
    assert listed([file("d/!first"), Removed("d/z"), Removed("top"), file("d/a/b")]) == [
        ".wh.top", "d/", "d/.wh.z", "d/!first", "d/a/", "d/a/b",
    ]  # fmt: skip


def test_a_removed_file_may_become_a_directory() -> None:
    assert listed([Removed("a"), file("a/b")]) == [".wh.a", "a/", "a/b"]


def test_nothing_gives_nothing() -> None:
    assert listed([], "p") == []


segments = st.lists(st.sampled_from(["a", "b", "a-", "a.b", "B"]), min_size=1, max_size=4)


@given(st.sets(segments.map("/".join), max_size=12), st.randoms(use_true_random=False))
def test_order_does_not_depend_on_the_order_given(paths: set[str], rng: object) -> None:
    kept = sorted(p for p in paths if not any(o.startswith(p + "/") for o in paths))
    shuffled = kept.copy()
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    found = listed([file(p) for p in shuffled])
    assert found == listed([file(p) for p in kept])
    assert [p for p in found if not p.endswith("/")] == kept
    for number, path in enumerate(found):
        parent = path.rstrip("/").rpartition("/")[0]
        assert not parent or parent + "/" in found[:number]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../x", "a '..' in the path"),
        ("/x", "an absolute path"),
        ("a//b", "an empty or '.' part in the path"),
        ("a/.wh.b", "a name that begins with '.wh.' would remove files of the layers below"),
        (".wh..wh..opq", "a name that begins with '.wh.' would remove files of the layers below"),
        (".wh.d/x", "a name that begins with '.wh.' would remove files of the layers below"),
    ],
)
def test_paths_that_would_act_outside(path: str, reason: str) -> None:
    for item in (file(path), Removed(path)):
        with pytest.raises(BuildError) as caught:
            arrange([item])
        assert caught.value.render() == f"error: a layer cannot hold {path!r}: {reason}"
    with pytest.raises(BuildError):
        arrange([file("a")], path)


def test_a_path_is_one_thing() -> None:
    with pytest.raises(BuildError) as caught:
        arrange([file("a"), file("a")], "p")
    assert caught.value.render() == "error: a layer cannot hold 'p/a' twice"
    with pytest.raises(BuildError) as caught:
        arrange([file("a"), file("a/b")])
    assert caught.value.render() == ("error: a layer cannot hold 'a' as a file and as a directory")
    with pytest.raises(BuildError):
        arrange([Removed("a"), Removed("a")])
