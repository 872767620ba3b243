"""The checker of layouts: nothing to say about a right one, and the fault in a wrong one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hq.model.digest import Digest
from hq.oci.encode import COMPRESSIONS, Compression
from hq.oci.layout import check_layout
from oci.layouts import make_layout


def problems(files: dict[str, bytes], *, deep: bool = True) -> list[str]:
    return [str(problem) for problem in check_layout(files.get, deep=deep)]


class Layout:
    """A layout with one image whose documents can be changed, with the names put right above."""

    def __init__(self, compression: Compression = "gzip") -> None:
        self.files = make_layout([compression])
        self.index: Any = json.loads(self.files["index.json"])
        self.manifest: Any = self._take(self.index["manifests"][0])
        self.config: Any = self._take(self.manifest["config"])

    def _take(self, descriptor: dict[str, str]) -> Any:
        return json.loads(self.files.pop(f"blobs/sha256/{descriptor['digest'][7:]}"))

    def _put(self, value: object, descriptor: dict[str, object]) -> None:
        data = json.dumps(value).encode()
        digest = Digest.of(data)
        descriptor.update(digest=digest, size=len(data))
        self.files[f"blobs/sha256/{digest.hex}"] = data

    def layer(self, number: int) -> str:
        return f"blobs/sha256/{self.manifest['layers'][number]['digest'][7:]}"

    def close(self) -> dict[str, bytes]:
        self._put(self.config, self.manifest["config"])
        self._put(self.manifest, self.index["manifests"][0])
        self.files["index.json"] = json.dumps(self.index).encode()
        return self.files

    @property
    def manifest_path(self) -> str:
        return f"blobs/sha256/{self.index['manifests'][0]['digest'][7:]}"

    @property
    def config_path(self) -> str:
        return f"blobs/sha256/{self.manifest['config']['digest'][7:]}"


def test_what_is_written_is_right() -> None:
    assert problems(make_layout()) == []
    assert problems(Layout().close()) == []


def test_images_of_all_compressions_have_one_id() -> None:
    files = make_layout()
    manifests = [
        json.loads(files[f"blobs/sha256/{entry['digest'][7:]}"])
        for entry in json.loads(files["index.json"])["manifests"]
    ]
    assert len(manifests) == 3
    assert len({m["config"]["digest"] for m in manifests}) == 1


def test_nothing_at_all() -> None:
    assert problems({}) == ["oci-layout: the file is missing", "index.json: the file is missing"]


def test_malformed_documents() -> None:
    files = {"oci-layout": b"{}", "index.json": b"[" * 100_000}
    assert problems(files) == [
        "oci-layout: expected imageLayoutVersion '1.0.0'",
        "index.json: expected a JSON object with schemaVersion 2",
        "index.json: expected an array 'manifests'",
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_damaged_or_missing_layer(compression: Compression) -> None:
    layout = Layout(compression)
    lower, upper = layout.layer(0), layout.layer(1)
    files = layout.close()
    files[lower] = files[lower][:-1] + bytes([files[lower][-1] ^ 1])
    size = len(files.pop(upper))
    assert size
    assert problems(files) == [
        f"{lower}: the content has another digest: {Digest.of(files[lower])}",
        f"{layout.manifest_path}: layers[1]: {upper} is missing",
    ]


def test_descriptors_that_are_wrong() -> None:
    layout = Layout()
    layout.manifest["layers"][0]["size"] += 1
    layout.manifest["layers"][1]["digest"] = "md5:x"
    size = layout.manifest["layers"][0]["size"]
    files = layout.close()
    assert problems(files) == [
        f"{layout.manifest_path}: layers[0]: expected {size} bytes, {layout.layer(0)} has "
        f"{size - 1}",
        f"{layout.manifest_path}: layers[1]: Digest: expected 'sha256:<64 hex digits>', "
        "found 'md5:x'",
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_diff_ids_are_those_of_the_tars(compression: Compression) -> None:
    layout = Layout(compression)
    ids = layout.config["rootfs"]["diff_ids"]
    layout.config["rootfs"]["diff_ids"] = [ids[1], ids[0]]
    files = layout.close()
    assert problems(files) == [
        f"{layout.manifest_path}: layers[0]: expected DiffID {ids[1]}, found {ids[0]}",
        f"{layout.manifest_path}: layers[1]: expected DiffID {ids[0]}, found {ids[1]}",
    ]
    assert problems(files, deep=False) == []


def test_counts_that_differ() -> None:
    layout = Layout()
    del layout.config["rootfs"]["diff_ids"][0]
    files = layout.close()
    assert problems(files) == [
        f"{layout.config_path}: the history has 2 layers, there are 1",
        f"{layout.manifest_path}: 2 layers, but 1 DiffIDs",
    ]


def test_a_configuration_that_says_nothing() -> None:
    layout = Layout()
    layout.config = {}
    files = layout.close()
    path = layout.config_path
    assert problems(files) == [
        f"{path}: expected a text 'architecture'",
        f"{path}: expected a text 'os'",
        f"{path}: expected a rootfs of type 'layers'",
        f"{path}: expected an array rootfs.diff_ids",
    ]


def test_layers_that_are_not_what_their_type_says() -> None:
    layout = Layout("gzip")
    layout.manifest["layers"][0]["mediaType"] = "application/vnd.oci.image.layer.v1.tar+zstd"
    layout.manifest["layers"][1]["mediaType"] = "application/x-tar"
    found = problems(layout.close())
    assert found[0].startswith(f"{layout.manifest_path}: layers[0]: cannot be decompressed: ")
    assert found[1:] == [
        f"{layout.manifest_path}: layers[1]: cannot be decompressed: "
        "unknown media type 'application/x-tar'"
    ]


def test_a_gzip_layer_that_is_cut_off() -> None:
    layout = Layout("gzip")
    old = layout.layer(0)
    data = layout.files.pop(old)[:-4]
    layout.manifest["layers"][0].update(digest=Digest.of(data), size=len(data))
    layout.files[layout.layer(0)] = data
    assert problems(layout.close()) == [
        f"{layout.manifest_path}: layers[0]: cannot be decompressed: the gzip file is cut off"
    ]


def test_indexes_in_indexes() -> None:
    files = make_layout(["none"])
    inner = files["index.json"]
    digest = Digest.of(inner)
    files[f"blobs/sha256/{digest.hex}"] = inner
    entry = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest}
    outer = {"schemaVersion": 2, "manifests": [{**entry, "size": len(inner)}, {**entry}, 5]}
    files["index.json"] = json.dumps(outer).encode()
    assert problems(files) == [
        f"index.json: manifests[1]: expected None bytes, blobs/sha256/{digest.hex} has "
        f"{len(inner)}",
        "index.json: manifests[2]: expected a descriptor",
    ]


def test_media_types_that_no_index_should_hold() -> None:
    layout = Layout()
    layout.index["manifests"][0]["mediaType"] = "text/plain"
    layout.manifest["mediaType"] = "x"
    assert problems(layout.close()) == [
        "index.json: manifests[0]: unexpected media type 'text/plain'"
    ]
    layout = Layout()
    layout.manifest["mediaType"] = "x"
    assert problems(layout.close()) == [f"{layout.manifest_path}: unexpected media type 'x'"]
