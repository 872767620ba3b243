"""File names, project names and versions, against ``packaging`` where it is installed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.model.errors import BuildError
from hq.wheels.filename import (
    WheelName,
    normalize_project,
    normalize_version,
    parse_filename,
    same_version,
)


def test_a_real_name_is_parsed() -> None:
    assert parse_filename("vllm-0.29.0-cp38-abi3-manylinux_2_28_x86_64.whl") == WheelName(
        "vllm", "0.29.0", "", ("cp38",), ("abi3",), ("manylinux_2_28_x86_64",)
    )


def test_a_build_number_and_tag_sets() -> None:
    assert parse_filename("Foo.Bar-1.0+cu129-1abc-py3.py2-none-a.b.whl") == WheelName(
        "foo-bar", "1.0+cu129", "1abc", ("py2", "py3"), ("none",), ("a", "b")
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vllm-0.29.0.tar.gz", ""),
        ("a/vllm-1-py3-none-any.whl", ""),
        ("vllm-1-none-any.whl", ": expected 5 or 6 parts, found 4"),
        ("vllm-1-2-3-py3-none-any.whl", ": expected 5 or 6 parts, found 7"),
        ("vllm--py3-none-any.whl", ": bad part ''"),
        ("vl lm-1-py3-none-any.whl", ": bad part 'vl lm'"),
        ("_vllm-1-py3-none-any.whl", ": bad name '_vllm'"),
        ("vllm-1-x1-py3-none-any.whl", ": build 'x1' begins with no digit"),
    ],
)
def test_what_is_no_wheel_name_is_refused(name: str, reason: str) -> None:
    with pytest.raises(BuildError) as caught:
        parse_filename(name)
    assert caught.value.render() == (
        f"error: {name!r} is not the file name of a wheel{reason}\n"
        "  help: a wheel is named NAME-VERSION(-BUILD)-PYTHON-ABI-PLATFORM.whl"
    )


def test_project_names_normalise() -> None:
    assert normalize_project("Foo._-Bar__baz.q") == "foo-bar-baz-q"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("1.0.0", "1"),
        ("v1.0", "1"),
        ("1.0RC-1", "1rc1"),
        ("1.0.preview2", "1rc2"),
        ("1-3", "1.post3"),
        ("1.0.post", "1.post0"),
        ("1.0.r4.dev", "1.post4.dev0"),
        ("2024.01.05", "2024.1.5"),
        ("0!1.2a", "1.2a0"),
        ("2!1.0", "2!1"),
        ("1.0+CU-129_01.x", "1+cu.129.1.x"),
        (" 1.0\n", "1"),
        ("1.0-", None),
        ("", None),
        ("french toast", None),
        ("1.0\u0661", None),
    ],
)
def test_versions_normalise(text: str, normal: str | None) -> None:
    assert normalize_version(text) == normal


def test_texts_that_are_no_versions_compare_as_they_are() -> None:
    assert same_version("weird", "weird")
    assert not same_version("weird", "Weird")
    assert not same_version("1.0", "weird")


version_texts = st.from_regex(
    r"\Av?([01]!)?[0-9]{1,2}(\.[0-9]){0,3}([-_.]?(alpha|a|beta|b|c|rc|pre|preview)[-_.]?[0-9]?)?"
    r"(-[0-9]|[-_.]?(post|rev|r)[-_.]?[0-9]?)?([-_.]?dev[-_.]?[0-9]?)?"
    r"(\+[a-z0-9]{1,2}([-_.][a-z0-9]){0,2})?\Z"
)


@settings(deadline=None)
@given(version_texts, version_texts)
def test_versions_are_the_same_when_packaging_says_so(one: str, other: str) -> None:
    version = pytest.importorskip("packaging.version")
    assert same_version(one, other) == (version.Version(one) == version.Version(other))
    assert same_version(one, str(version.Version(one)))
