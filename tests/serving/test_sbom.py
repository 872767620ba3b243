"""The bill of materials: what is in it, that it is CycloneDX, and that it depends on no clock."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.project import SampleProject
from hq.model.digest import Digest
from hq.model.project import BaseSpec, LockedDeb, LockedWheel
from hq.provenance.sbom import Contents, Image, Patch, sbom

ONE = Digest.of(b"one")
TWO = Digest.of(b"two")
IMAGE = Image("Demo", "1.0", ONE, TWO, "amd64")
WHEEL = LockedWheel("vllm", "1.0+cu128", "vllm-1.0-py3-none-any.whl", ONE, 7)
DEPENDENCY = LockedWheel("Typing_Extensions", "4.1", "typing_extensions-4.1.whl", TWO, 9)
DEB = LockedDeb("libstdc++6", "1:14.2.0-19+x~y", "amd64", "libstdc++6_14.2_amd64.deb", TWO, 5)
DEBIAN = BaseSpec("debian", "trixie", "amd64", "trixie", (DEB,))
FULL = Contents(
    WHEEL,
    [DEPENDENCY],
    DEBIAN,
    [Patch("patches/a b.patch", ONE, "backport"), Patch("patches/c.patch", TWO, "feature")],
    [("vllm/new.py", TWO)],
)


def document(contents: Contents = FULL, image: Image = IMAGE) -> dict[str, Any]:
    return json.loads(json.dumps(sbom(image, contents, "1.2")))  # type: ignore[no-any-return]


def named(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [part for part in found["components"] if part["name"] == name]
    return one  # type: ignore[no-any-return]


def test_a_wheel_is_named_by_its_url_and_its_hash() -> None:
    part = named(document(), "Typing_Extensions")
    assert part["purl"] == "pkg:pypi/typing-extensions@4.1"
    assert part["hashes"] == [{"alg": "SHA-256", "content": TWO.hex}]


def test_a_package_of_the_base_says_its_architecture_and_distribution() -> None:
    part = named(document(), "libstdc++6")
    assert part["purl"] == (
        "pkg:deb/debian/libstdc%2B%2B6@1:14.2.0-19%2Bx~y?arch=amd64&distro=trixie"
    )


def test_the_patched_distribution_has_its_pedigree_and_not_the_hash_of_the_wheel() -> None:
    part = named(document(), "vllm")
    assert part["purl"] == "pkg:pypi/vllm@1.0%2Bcu128"
    assert "hashes" not in part
    (ancestor,) = part["pedigree"]["ancestors"]
    assert ancestor["hashes"] == [{"alg": "SHA-256", "content": ONE.hex}]
    assert part["pedigree"]["patches"] == [
        {"type": "backport", "diff": {"url": "patches/a%20b.patch"}},
        {"type": "unofficial", "diff": {"url": "patches/c.patch"}},
    ]
    assert {mark["name"]: mark["value"] for mark in part["properties"]} == {
        "hq:patch:patches/a b.patch": ONE,
        "hq:patch:patches/c.patch": TWO,
        "hq:added:vllm/new.py": TWO,
    }


def test_an_unpatched_wheel_is_the_wheel() -> None:
    part = named(document(Contents(WHEEL)), "vllm")
    assert part["hashes"] == [{"alg": "SHA-256", "content": ONE.hex}]
    assert "pedigree" not in part


def test_a_base_image_is_a_component() -> None:
    base = BaseSpec("registry", "debian", "arm64", place="host/debian", digest=TWO)
    part = named(document(Contents(WHEEL, base=base)), "debian")
    assert part["type"] == "container"
    assert part["purl"] == f"pkg:oci/debian@{TWO}?arch=arm64"


@given(st.binary(max_size=20))
def test_the_serial_number_is_a_uuid_of_the_image(data: bytes) -> None:
    image = IMAGE._replace(image_id=Digest.of(data))
    serial = document(image=image)["serialNumber"]
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", serial
    )
    assert serial[9:17] == Digest.of(data).hex[:8]


def test_the_order_of_the_lock_does_not_matter() -> None:
    other = DEPENDENCY._replace(name="a")
    one = document(FULL._replace(dependencies=[DEPENDENCY, other]))
    assert one == document(FULL._replace(dependencies=[other, DEPENDENCY]))


def test_the_image_depends_on_every_component() -> None:
    found = document()
    assert found["dependencies"] == [
        {"ref": "image", "dependsOn": sorted(part["bom-ref"] for part in found["components"])}
    ]


_TEXT = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(_TEXT, _TEXT)
def test_it_is_valid_cyclonedx_with_any_names(name: str, path: str) -> None:
    schema = pytest.importorskip("cyclonedx.schema", reason="cyclonedx-python-lib is not here")
    from cyclonedx.validation.json import JsonStrictValidator  # type: ignore[import-not-found]

    contents = FULL._replace(
        dependencies=[DEPENDENCY._replace(name=name)], patches=[Patch(path, ONE)]
    )
    text = json.dumps(document(contents))
    assert JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None


def test_a_build_writes_it_and_provenance_prints_it(built: SampleProject) -> None:
    path = Path(f"{built.layout()}.sbom.json")
    found = json.loads(path.read_bytes())
    assert found["metadata"]["component"]["name"] == "demo"
    part = named(found, "demo")
    assert [patch["diff"]["url"] for patch in part["pedigree"]["patches"]] == [
        *(f"patches/{name}.patch" for name in ("first", "second", "third", "fourth")),
        "over/patches/register.patch",
    ]
    marks = {mark["name"]: mark["value"] for mark in part["properties"]}
    first = built.read("patches/first.patch").encode()
    assert marks["hq:patch:patches/first.patch"] == Digest.of(first)
    assert marks["hq:added:vllm/extra/__init__.py"] == Digest.of(b"EXTRA = 1\n")
    printed = built.run("provenance", "demo", "--sbom")
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == path.read_text()


def test_a_changed_preamble_changes_the_bill_and_not_the_image(built: SampleProject) -> None:
    path = Path(f"{built.layout()}.sbom.json")
    before = json.loads(path.read_bytes())
    built.replace("patches/first.patch", "Words about it.", "Other words.")
    built.build()
    after = json.loads(path.read_bytes())
    assert after["serialNumber"] == before["serialNumber"]
    assert after != before


def test_a_missing_bill_is_written_again(built: SampleProject) -> None:
    path = Path(f"{built.layout()}.sbom.json")
    before = path.read_bytes()
    path.unlink()
    built.build()
    assert path.read_bytes() == before
