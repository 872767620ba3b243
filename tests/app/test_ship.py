"""Names, tags and platforms of what leaves and arrives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hq.app.ship import (
    Shipment,
    Target,
    engine_tags,
    find_image,
    parse_platform,
    push_target,
)
from hq.model.digest import BlobRef
from hq.model.errors import BuildError, HqError, UsageError
from hq.oci.image import Platform
from hq.oci.reference import Reference

SHIPMENT = Shipment("Demo", "1.0", "/there", BlobRef.of(b"manifest"))


def refusal(error: pytest.ExceptionInfo[HqError]) -> str:
    return error.value.render().removeprefix("error: ")


def target(text: str, *tags: str, commit: str = "", pin: str = "1.0") -> Target:
    return push_target(SHIPMENT._replace(pin=pin), text, tags, lambda: commit)


def test_the_tags_of_a_push() -> None:
    assert target("localhost:1/r", commit="ab12").tags == ("1.0", "sha-ab12")
    assert target("localhost:1/r").tags == ("1.0",)
    assert target("localhost:1/r:x", commit="ab12").tags == ("x",)
    assert target("localhost:1/r", "x", "y", "x", commit="ab12").tags == ("x", "y")
    assert target("localhost:1/r:x", "y").repository == Reference("localhost:1", "r")


def test_nobody_is_asked_for_a_commit_that_is_not_needed() -> None:
    def never() -> str:
        raise AssertionError

    assert push_target(SHIPMENT, "localhost:1/r:x", [], never).tags == ("x",)


def test_wrong_targets() -> None:
    digest = "sha256:" + "ab" * 32
    with pytest.raises(UsageError) as caught:
        target(f"r@{digest}")
    assert refusal(caught) == (
        f"a push goes to a repository or a tag; 'r@{digest}' has a digest\n"
        "  help: the digest comes from the image itself"
    )
    with pytest.raises(UsageError) as caught:
        target("r", "-x")
    assert refusal(caught).startswith("'-x' is no tag\n")
    with pytest.raises(UsageError) as caught:
        target("r", pin="")
    assert refusal(caught) == "the image has no pin to be tagged with\n  help: give --tag TAG"


def test_the_tags_in_an_engine() -> None:
    assert engine_tags(SHIPMENT, []) == ["demo:1.0"]
    assert engine_tags(SHIPMENT._replace(pin=""), []) == ["demo:latest"]
    assert engine_tags(SHIPMENT, ["a", "localhost:5000/b:c", "localhost:5000/d"]) == [
        "a:latest",
        "localhost:5000/b:c",
        "localhost:5000/d:latest",
    ]
    with pytest.raises(UsageError) as caught:
        engine_tags(SHIPMENT, ["r@sha256:" + "ab" * 32])
    assert refusal(caught).endswith("has a digest\n  help: give NAME:TAG")


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        ("linux/amd64", Platform("amd64", "linux")),
        ("linux/arm64/v8", Platform("arm64", "linux", "v8")),
    ],
)
def test_platforms(text: str, platform: Platform) -> None:
    assert parse_platform(text) == platform


@pytest.mark.parametrize("text", ["", "amd64", "linux/", "/amd64", "a/b/c/d"])
def test_no_platforms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_platform(text)
    assert refusal(caught) == (
        f"{text!r} is no platform\n  help: give OS/ARCHITECTURE[/VARIANT], such as linux/amd64"
    )


def test_no_project_and_no_layout(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_image("demo", "", None)
    assert refusal(caught) == (
        "there is no project here to have an image 'demo'\n"
        "  help: run hq inside a project, or name the folder of an image layout"
    )


@pytest.mark.parametrize(
    "index", ["", "[]", '{"manifests": 3}', '{"manifests": []}', '{"manifests": [{"digest": 1}]}']
)
def test_a_layout_that_is_none(tmp_path: Path, index: str) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(BuildError) as caught:
        find_image(str(tmp_path), "", None)
    assert refusal(caught) == (
        f"expected a layout with one image, found 0\n  at: {tmp_path}/index.json"
    )


def test_a_layout_without_a_name(tmp_path: Path) -> None:
    ref = BlobRef.of(b"x")
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": ref.digest,
        "size": ref.size,
    }
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [entry]}))
    found = find_image(str(tmp_path), "", None)
    assert found == Shipment(tmp_path.name, "", str(tmp_path), ref)
