"""Configurations, manifests and indexes: exact bytes, and what they depend on."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.model.digest import BlobRef, DiffId, Digest
from hq.oci.image import (
    Document,
    Json,
    Layer,
    Platform,
    RunConfig,
    blob_path,
    canonical,
    config,
    image_annotations,
    index,
    manifest,
    timestamp,
)

LAYER = Layer(
    DiffId.of(b"tar"),
    BlobRef.of(b"blob"),
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "hq: wheel vllm 0.29.0",
)
RUN = RunConfig(
    env={"B": "2", "A": "1=x"},
    entrypoint=("vllm", "serve"),
    cmd=("--help",),
    working_dir="/srv",
    user="1000:1000",
    labels={"b": "2", "a": "1"},
    ports=("8000/tcp",),
    volumes=("/data",),
    stop_signal="SIGINT",
)


def test_a_configuration_is_these_bytes() -> None:
    made = config([LAYER], RUN, platform=Platform("arm64", "linux", "v8"), created=86400 * 365)
    assert made.media_type == "application/vnd.oci.image.config.v1+json"
    assert made.ref == BlobRef.of(made.data)
    assert made.data.decode() == (
        '{"architecture":"arm64","config":{"Cmd":["--help"],"Entrypoint":["vllm","serve"],'
        '"Env":["A=1=x","B=2"],"ExposedPorts":{"8000/tcp":{}},"Labels":{"a":"1","b":"2"},'
        '"StopSignal":"SIGINT","User":"1000:1000","Volumes":{"/data":{}},"WorkingDir":"/srv"},'
        '"created":"1971-01-01T00:00:00Z","history":[{"created":"1971-01-01T00:00:00Z",'
        '"created_by":"hq: wheel vllm 0.29.0"}],"os":"linux","rootfs":{"diff_ids":["'
        f'{LAYER.diff_id}"],"type":"layers"}},"variant":"v8"}}'
    )


def test_what_is_not_set_is_left_out() -> None:
    found = json.loads(config([]).data)
    assert found["config"] == {}
    assert "variant" not in found
    assert found["created"] == "1970-01-01T00:00:00Z"


def test_a_base_comes_first_and_stays_as_it_is() -> None:
    base: dict[str, Json] = {
        "created": "2024-05-05T05:05:05Z",
        "created_by": "base",
        "empty_layer": False,
    }
    lower = DiffId.of(b"base")
    found = json.loads(config([LAYER], base_history=[base], base_diff_ids=[lower]).data)
    assert found["history"][0] == base
    assert found["rootfs"]["diff_ids"] == [lower, LAYER.diff_id]
    made = config([LAYER])
    descriptor: dict[str, Json] = {"mediaType": "x", "digest": str(Digest.of(b"b")), "size": 1}
    layers = json.loads(manifest(made, [LAYER], base_layers=[descriptor]).data)["layers"]
    assert layers[0] == descriptor
    assert len(layers) == 2


def test_the_image_id_does_not_depend_on_the_compression() -> None:
    other = LAYER._replace(blob=BlobRef.of(b"zstd"), media_type="other")
    assert config([LAYER], RUN).ref == config([other], RUN).ref
    one, two = (manifest(config([x], RUN), [x]).ref for x in (LAYER, other))
    assert one != two


def test_a_manifest_is_these_bytes() -> None:
    made = config([LAYER])
    layer = LAYER._replace(annotations={"k": "ü"})
    found = manifest(made, [layer], annotations=image_annotations(title="t", version="1"))
    assert found.data.decode() == (
        '{"annotations":{"org.opencontainers.image.title":"t",'
        '"org.opencontainers.image.version":"1"},'
        f'"config":{{"digest":"{made.ref.digest}",'
        f'"mediaType":"application/vnd.oci.image.config.v1+json","size":{made.ref.size}}},'
        f'"layers":[{{"annotations":{{"k":"\\u00fc"}},"digest":"{LAYER.blob.digest}",'
        '"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","size":4}],'
        '"mediaType":"application/vnd.oci.image.manifest.v1+json","schemaVersion":2}'
    )


def test_an_index_names_its_images() -> None:
    image = manifest(config([LAYER]), [LAYER])
    found = index(
        [(image, "vllm:0.29.0", Platform()), (image, "", Platform("arm64", "linux", "v8"))]
    )
    assert json.loads(found.data) == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                "mediaType": image.media_type,
                "digest": image.ref.digest,
                "size": image.ref.size,
                "annotations": {"org.opencontainers.image.ref.name": "vllm:0.29.0"},
                "platform": {"architecture": "amd64", "os": "linux"},
            },
            {
                "mediaType": image.media_type,
                "digest": image.ref.digest,
                "size": image.ref.size,
                "platform": {"architecture": "arm64", "os": "linux", "variant": "v8"},
            },
        ],
    }
    annotated = index([], annotations={"a": "b"})
    assert json.loads(annotated.data)["annotations"] == {"a": "b"}


def test_annotations_have_their_predefined_keys() -> None:
    digest = Digest.of(b"base")
    found = image_annotations(base_name="debian:13", base_digest=digest, extra={"x": "y"})
    assert found == {
        "org.opencontainers.image.base.name": "debian:13",
        "org.opencontainers.image.base.digest": digest,
        "x": "y",
    }


@given(st.integers(0, 253402300799))
def test_timestamps_are_those_of_datetime(seconds: int) -> None:
    expected = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
    assert timestamp(seconds) == expected.isoformat() + "Z"


@pytest.mark.parametrize("seconds", [-1, 253402300800])
def test_times_that_cannot_be_written(seconds: int) -> None:
    with pytest.raises(ValueError, match=f"no RFC 3339 time for {seconds} seconds since 1970"):
        timestamp(seconds)


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none()))
def test_canonical_json_does_not_depend_on_order(value: dict[str, str | int | bool | None]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical(value) == canonical(turned)
    assert json.loads(canonical(value)) == value
    assert b" " not in canonical({"a": [1, {"b": None}]})


def test_a_blob_s_place() -> None:
    assert blob_path(Digest.of(b"")) == f"blobs/sha256/{Digest.of(b'').hex}"
    assert Document.of("t", {}).data == b"{}"
