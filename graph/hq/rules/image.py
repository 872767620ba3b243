"""``image``: the OCI configuration and manifest over finished layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from hq.model.action import Json
from hq.model.digest import BlobRef, DiffId, Digest
from hq.oci.image import Layer, Platform, RunConfig, config, manifest
from hq.rules.context import Context, Made


def run(context: Context) -> Made:
    """Blobs ``config`` and ``manifest``; values ``image_id``, ``layers``."""
    params = context.params
    rows = [
        cast("dict[str, Json]", context.value(f"layer:{name}")) for name in context.names("layer:")
    ]
    layers = [_layer(row) for row in rows]
    run_config = RunConfig(
        env=_texts(params["env"]),
        entrypoint=_list(params["entrypoint"]),
        cmd=_list(params["cmd"]),
        working_dir=str(params["working_dir"]),
        user=str(params["user"]),
        labels=_texts(params["labels"]),
        ports=_list(params["ports"]),
        volumes=_list(params["volumes"]),
    )
    created = params["mtime"]
    assert isinstance(created, int)
    platform = Platform(os=str(params["os"]), architecture=str(params["architecture"]))
    image_config = config(layers, run_config, platform=platform, created=created)
    image_manifest = manifest(image_config, layers, annotations=_annotations(context))
    config_ref = context.store.put(image_config.data)
    manifest_ref = context.store.put(image_manifest.data)
    return Made(
        blobs={"config": config_ref, "manifest": manifest_ref},
        values={"image_id": config_ref.digest, "layers": list[Json](rows)},
    )


def _layer(row: Mapping[str, Json]) -> Layer:
    size = row["size"]
    assert isinstance(size, int)
    return Layer(
        diff_id=DiffId.parse(str(row["diff_id"])),
        blob=BlobRef(Digest.parse(str(row["digest"])), size),
        media_type=str(row["media_type"]),
        created_by=f"hq layer {row['name']}",
    )


def _annotations(context: Context) -> dict[str, str]:
    params = context.params
    defaults = {
        "org.opencontainers.image.title": str(params["name"]),
        "org.opencontainers.image.version": str(params["pin"]),
        "org.opencontainers.image.description": str(params["distribution"]) + ", patched",
    }
    return defaults | _texts(params["annotations"])


def _texts(value: object) -> dict[str, str]:
    assert isinstance(value, Mapping)
    return {str(name): str(text) for name, text in value.items()}


def _list(value: object) -> tuple[str, ...]:
    assert isinstance(value, (list, tuple))
    return tuple(str(item) for item in value)
