"""Manifests and indexes that others wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.digest import BlobRef, DiffId, Digest
from hq.model.errors import BuildError
from hq.oci.image import CONFIG_TYPE, INDEX_TYPE, MANIFEST_TYPE, Layer, Platform, config, manifest
from hq.oci.remote import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    Descriptor,
    ImageIndex,
    ImageManifest,
    attachment,
    choose,
    read_diff_ids,
    read_document,
    read_platform,
    referrers_index,
    referrers_tag,
)

DIGEST = "sha256:" + "ab" * 32
ENTRY: dict[str, Any] = {"mediaType": MANIFEST_TYPE, "digest": DIGEST, "size": 7}
LAYER: dict[str, Any] = {"mediaType": "application/x", "digest": DIGEST, "size": 9}
IMAGE: dict[str, Any] = {
    "schemaVersion": 2,
    "mediaType": MANIFEST_TYPE,
    "config": {**ENTRY, "mediaType": CONFIG_TYPE},
    "layers": [LAYER],
}
INDEX: dict[str, Any] = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [ENTRY]}


def read(document: object, media_type: str = "") -> ImageManifest | ImageIndex:
    return read_document(json.dumps(document).encode(), "there", media_type)


def refusal(document: object, media_type: str = "") -> str:
    with pytest.raises(BuildError) as caught:
        read(document, media_type)
    assert str(caught.value.where) == "there"
    return caught.value.message.removeprefix("not a usable image document: ")


def test_our_own_documents_are_read() -> None:
    layer = Layer(DiffId.of(b"tar"), BlobRef.of(b"layer"), "application/x", "made")
    made = config([layer], platform=Platform("arm64", "linux", "v8"))
    found = read_document(manifest(made, [layer]).data, "here")
    assert isinstance(found, ImageManifest)
    assert found.config.ref == made.ref
    assert [item.ref for item in found.layers] == [layer.blob]
    assert read_diff_ids(made.data, "here") == (layer.diff_id,)
    assert read_platform(made.data, "here") == Platform("arm64", "linux", "v8")


@pytest.mark.parametrize("kind", [MANIFEST_TYPE, DOCKER_MANIFEST])
def test_both_kinds_of_manifest(kind: str) -> None:
    found = read({**IMAGE, "mediaType": kind}, kind)
    assert isinstance(found, ImageManifest)
    assert (found.media_type, found.layers[0].ref.size) == (kind, 9)


@pytest.mark.parametrize("kind", [INDEX_TYPE, DOCKER_INDEX])
def test_both_kinds_of_index(kind: str) -> None:
    found = read({**INDEX, "mediaType": kind})
    assert isinstance(found, ImageIndex)
    assert found.manifests[0].ref == BlobRef(Digest(DIGEST), 7)


def test_a_media_type_may_be_missing() -> None:
    assert isinstance(read({k: v for k, v in IMAGE.items() if k != "mediaType"}), ImageManifest)
    assert isinstance(read({k: v for k, v in INDEX.items() if k != "mediaType"}), ImageIndex)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the document: expected an object"),
        ({"schemaVersion": 1}, "expected schemaVersion 2; older manifests are not supported"),
        ({**IMAGE, "manifests": []}, "it is a manifest and an index at the same time"),
        ({**IMAGE, "mediaType": "text/x"}, "unexpected media type 'text/x'"),
        ({**IMAGE, "mediaType": 3}, "mediaType: expected a text"),
        ({**IMAGE, "config": None}, "config: expected an object"),
        ({**IMAGE, "layers": {}}, "expected an array layers of at most 127 entries"),
        ({**IMAGE, "layers": [LAYER] * 128}, "expected an array layers of at most 127 entries"),
        (
            {**IMAGE, "layers": [{**LAYER, "size": -1}]},
            "layers[0].size: expected a number from 0 to 68719476736, found -1",
        ),
        (
            {**IMAGE, "layers": [{**LAYER, "size": True}]},
            "layers[0].size: expected a number from 0 to 68719476736, found True",
        ),
        (
            {**IMAGE, "layers": [{**LAYER, "digest": "sha256:../../x"}]},
            "layers[0]: Digest: expected 64 lowercase hexadecimal digits, found '../../x'",
        ),
        (
            {**INDEX, "manifests": [{**ENTRY, "platform": 1}]},
            "manifests[0].platform: expected an object",
        ),
        ({**INDEX, "annotations": {"a": 1}}, "annotations.a: expected a text"),
    ],
)  # fmt: skip
def test_refusals(document: object, message: str) -> None:
    assert refusal(document) == message


def test_what_carries_it_and_what_it_says_must_agree() -> None:
    assert refusal(IMAGE, INDEX_TYPE) == (
        f"it is said to be {INDEX_TYPE} and says of itself {MANIFEST_TYPE}"
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["schemaVersion", "mediaType", "config", "layers", "manifests", "digest", "size",
                 "platform", "annotations", "subject", "os", "architecture"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(
    st.sampled_from([IMAGE, INDEX, {}]),
    st.dictionaries(st.sampled_from([*IMAGE, *INDEX]), json_values),
)
def test_any_document_is_read_or_refused(base: dict[str, Any], changes: dict[str, Any]) -> None:
    try:
        read({**base, **changes})
    except BuildError as error:
        assert error.message.startswith("not a usable image document: ")


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BuildError):
        read_document(data, "there")


def test_deep_nesting_is_no_crash() -> None:
    with pytest.raises(BuildError):
        read_document(b"[" * 100_000, "there")


def entry(architecture: str, variant: str = "", size: int = 1) -> Descriptor:
    return Descriptor(
        MANIFEST_TYPE, BlobRef(Digest(DIGEST), size), Platform(architecture, "linux", variant)
    )


def test_the_platforms_entry_is_chosen() -> None:
    index = ImageIndex(
        INDEX_TYPE, (entry("arm64", "v9", 1), entry("arm64", "", 2), entry("amd64", "", 3))
    )
    assert choose(index, Platform("amd64"), "x").ref.size == 3
    assert choose(index, Platform("arm64"), "x").ref.size == 2
    assert choose(index, Platform("arm64", "linux", "v9"), "x").ref.size == 1


def test_an_absent_platform_says_what_there_is() -> None:
    index = ImageIndex(INDEX_TYPE, (entry("arm64", "v8"), entry("amd64")))
    with pytest.raises(BuildError) as caught:
        choose(index, Platform("s390x"), "name")
    assert caught.value.render() == (
        "error: the image is not there for linux/s390x\n  at: name\n"
        "  there is: linux/amd64, linux/arm64/v8\n"
        "  help: name another platform, or another image"
    )


def test_an_attachment_names_its_subject() -> None:
    subject = Descriptor(MANIFEST_TYPE, BlobRef.of(b"image"))
    blob = Descriptor("application/vnd.in-toto+json", BlobRef.of(b"{}x"), annotations={"a": "b"})
    made = attachment(subject, "application/vnd.in-toto+json", [blob])
    found = read_document(made.data, "x")
    assert isinstance(found, ImageManifest)
    assert found.subject is not None
    assert found.subject.ref == subject.ref
    assert found.artifact_type == "application/vnd.in-toto+json"
    assert (found.layers[0].ref, found.layers[0].annotations) == (blob.ref, {"a": "b"})
    listed = Descriptor(made.media_type, made.ref, artifact_type=found.artifact_type)
    index = read_document(referrers_index([listed]).data, "x")
    assert isinstance(index, ImageIndex)
    assert index.manifests == (listed,)
    assert referrers_tag(subject.ref.digest) == f"sha256-{subject.ref.digest.hex}"
