"""Packages put together by dpkg's rules, in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debian.packages import Made, make, rooted
from helpers.debmaker import Member, folder, hard_link, symlink
from hq.debian.package import Item
from hq.debian.root import with_items
from hq.model.errors import BuildError


def refused(*made: Made) -> list[str]:
    with pytest.raises(BuildError) as caught:
        rooted(*made)
    error = caught.value
    assert error.message == "the packages of the base do not fit together"
    assert error.hint == "lock the base again, from one suite"
    return list(error.details)


def test_usr_is_merged_whichever_package_ships_the_links() -> None:
    base = make("base-files", [symlink("./bin", "usr/bin"), folder("./usr/bin/")])
    old = make("bash", [folder("./bin/"), Member("./bin/bash", b"#!", mode=0o755)])
    new = make("dash", [folder("./usr/bin/"), Member("./usr/bin/dash", b"#!", mode=0o755)])
    root = rooted(old, base, new)
    assert sorted(root) == [
        "bin", "lib", "sbin", "usr", "usr/bin", "usr/bin/bash", "usr/bin/dash",
    ]  # fmt: skip
    assert root["bin"].item.link == "usr/bin"
    assert root["usr/bin/bash"].package == "bash"


def test_lib64_is_a_link_when_something_is_there() -> None:
    root = rooted(make("libc6", [folder("./lib64/"), symlink("./lib64/ld.so", "../lib/ld.so")]))
    assert root["lib64"].item.link == "usr/lib64"
    assert "lib32" not in root


def test_a_link_of_the_merged_usr_that_leads_elsewhere_is_refused() -> None:
    assert refused(make("evil", [symlink("./bin", "/tmp")])) == [
        "/bin of evil 1.0 is not the symlink to usr/bin"
    ]


def test_two_packages_with_one_file_conflict_and_all_are_named() -> None:
    one = make("one", [Member("./a", b"1"), Member("./b", b"1")])
    two = make("two", [Member("./a", b"2"), folder("./b")])
    assert refused(one, two) == [
        "/a is in one 1.0 and in two 1.0",
        "/b is in one 1.0 and in two 1.0",
    ]


def test_a_file_under_two_names_of_one_directory_is_one_file() -> None:
    one = make("one", [Member("./bin/a", b"1")])
    two = make("two", [Member("./usr/bin/a", b"2")])
    assert refused(one, two) == ["/usr/bin/a is in one 1.0 and in two 1.0"]


@pytest.mark.parametrize(
    ("replaces", "winner"),
    [("one", "two"), ("one (<< 1.1)", "two"), ("x, one | y", "two"), ("one (<< 1.0)", "")],
)
def test_replaces(replaces: str, winner: str) -> None:
    one = make("one", [Member("./a", b"1")])
    two = make("two", [Member("./a", b"2")], Replaces=replaces)
    for order in ((one, two), (two, one)):
        if winner:
            assert rooted(*order)["a"].package == winner
        else:
            assert refused(*order) == ["/a is in one 1.0 and in two 1.0"]


def test_two_that_replace_each_other_conflict() -> None:
    one = make("one", [Member("./a", b"1")], Replaces="two")
    two = make("two", [Member("./a", b"2")], Replaces="one")
    assert refused(one, two) == ["/a is in one 1.0 and in two 1.0"]


def test_directories_are_shared_and_base_files_says_how_they_are() -> None:
    other = make("aa", [folder("./tmp", mode=0o755), Member("./tmp/x")])
    base = make("base-files", [folder("./tmp", mode=0o1777)])
    assert rooted(other, base)["tmp"].item.mode == 0o1777


def test_a_directory_where_another_has_a_link_is_the_link() -> None:
    one = make("one", [symlink("./usr/share/doc/one", "two")])
    two = make("two", [folder("./usr/share/doc/one")])
    for order in ((one, two), (two, one)):
        assert rooted(*order)["usr/share/doc/one"].item.type == "l"


def test_a_file_through_another_package_s_link_is_refused() -> None:
    evil = make("evil", [symlink("./etc", "/proc")])
    other = make("other", [folder("./etc"), Member("./etc/passwd", b"x")])
    assert refused(evil, other) == [
        "/etc/passwd of other would be written through the symlink /etc of evil"
    ]


def test_missing_parents_are_made() -> None:
    root = rooted(make("one", [Member("./usr/share/x/y", b"1")]))
    assert root["usr/share/x"].item[:5] == ("usr/share/x", "d", 0o755, 0, 0)


def test_hard_links_follow_the_merged_usr() -> None:
    root = rooted(
        make("perl", [Member("./bin/perl", b"1"), hard_link("./bin/perl5", "./bin/perl")])
    )
    assert root["usr/bin/perl5"].item.link == "usr/bin/perl"


def test_a_hard_link_whose_file_is_replaced_is_refused() -> None:
    one = make("one", [Member("./a", b"1"), hard_link("./b", "./a")])
    two = make("two", [Member("./a", b"2")], Replaces="one")
    assert refused(one, two) == ["/b of one is a hard link to /a, which is replaced"]


def test_one_package_twice_is_refused() -> None:
    with pytest.raises(BuildError) as caught:
        rooted(make("libc6"), make("libc6", arch="i386", version="1.1"))
    assert caught.value.render() == (
        "error: a base cannot hold libc6 1.0 and libc6 1.1\n"
        "  help: lock one version and one architecture of each package"
    )


def test_added_entries_make_parents_and_respect_links() -> None:
    root = rooted(make("one", [symlink("./etc", "/tmp")]))
    added = with_items(root, [Item("var/x/y", "f", 0o644, 0, 0)])
    assert {"var", "var/x", "var/x/y"} <= added.keys()
    with pytest.raises(BuildError) as caught:
        with_items(root, [Item("etc/passwd", "f", 0o644, 0, 0)])
    assert caught.value.render() == (
        "error: /etc/passwd cannot be made: /etc is no directory\n  it is from: one"
    )


@settings(max_examples=40)
@given(st.lists(st.sets(st.sampled_from("abcdefgh")), min_size=1, max_size=5), st.randoms())
def test_the_order_of_packages_does_not_matter(held: list[set[str]], chance: random.Random) -> None:
    names = [f"p{number}" for number in range(len(held))]
    made = [
        # Each replaces those before it, so that there is always a winner.
        make(name, [Member(f"./d/{file}", name.encode()) for file in sorted(files)],
             Replaces=", ".join(names[:number]) or "none")
        for number, (name, files) in enumerate(zip(names, held, strict=True))
    ]  # fmt: skip
    expected = rooted(*made)
    shuffled = list(made)
    chance.shuffle(shuffled)
    assert rooted(*shuffled) == expected
    assert list(rooted(*shuffled)) == sorted(expected)
    for path, placed in expected.items():
        holders = [name for name, files in zip(names, held, strict=True) if path[2:] in files]
        if placed.item.type == "f":
            assert placed.package == holders[-1]
