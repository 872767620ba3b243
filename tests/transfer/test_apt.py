"""The user's apt sources, read and said for another suite."""

from __future__ import annotations

from hq.transfer.apt import AptSource, for_suite, parse_deb822, parse_one_line, render

DEB822 = """\
# the archive
Types: deb deb-src
URIs: https://mirror.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /keys/archive.gpg
Architectures: amd64 i386

Types: deb
URIs: https://mirror.example/security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Types: deb
Enabled: no
URIs: https://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: https://src.example/debian
Suites: bookworm
Components: main
"""

ONE_LINE = """\
# a comment
deb [signed-by=/keys/a.gpg arch=amd64,arm64 trusted=yes] https://one.example/d trixie main contrib
deb-src https://one.example/debian trixie main
deb https://other.example/tools stable-tools main
deb https://flat.example/ ./
"""


def test_deb822() -> None:
    first, second = parse_deb822(DEB822)
    assert first == AptSource(
        ("https://mirror.example/debian",),
        ("bookworm", "bookworm-updates", "bookworm-backports"),
        ("main", "contrib"),
        {"Signed-By": "/keys/archive.gpg", "Architectures": "amd64 i386"},
    )
    assert second.suites == ("bookworm-security",)
    assert second.options["Signed-By"].endswith("\n .\n abc")


def test_one_line() -> None:
    first, second, third = parse_one_line(ONE_LINE)
    assert first == AptSource(
        ("https://one.example/d",),
        ("trixie",),
        ("main", "contrib"),
        {"Signed-By": "/keys/a.gpg", "Architectures": "amd64 arm64", "Trusted": "yes"},
    )
    assert second.suites == ("stable-tools",)
    assert third.components == ()


def test_lines_for_another_release_are_said_for_the_suite() -> None:
    found = for_suite(parse_deb822(DEB822), "trixie")
    assert [source.suites for source in found] == [
        ("trixie", "trixie-updates"),
        ("trixie-security",),
    ]
    assert found[0].options == {"Signed-By": "/keys/archive.gpg"}


def test_lines_for_the_suite_are_used_alone() -> None:
    sources = [*parse_deb822(DEB822), *parse_one_line(ONE_LINE)]
    found = for_suite(sources, "trixie")
    assert [source.uris for source in found] == [("https://one.example/d",)]


def test_what_is_no_debian_archive_is_left_out() -> None:
    assert for_suite(parse_one_line("deb https://x.example/ jammy main\n"), "trixie") == []


def test_rendered_sources_are_read_back() -> None:
    sources = for_suite([*parse_deb822(DEB822)], "trixie")
    assert parse_deb822(render(sources)) == sources
