"""``image``: the OCI configuration and manifest over finished layers.

A base's layers come first, with their DiffIDs, descriptors and history as they are. Of its
configuration the image takes over each field that it does not set: environment, labels, ports and
volumes name by name; a command only when the image has no entrypoint of its own, as in Docker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from hq.model.action import Json
from hq.model.digest import BlobRef, DiffId, Digest
from hq.oci.image import Layer, Platform, RunConfig, config, manifest
from hq.rules.context import Context, Made

_NO_BASE: Final[Mapping[str, Any]] = {"layers": (), "history": (), "config": {}}


def run(context: Context) -> Made:
    """Blobs ``config`` and ``manifest``; values ``image_id``, ``layers``."""
    params = context.params
    rows = [
        cast("dict[str, Json]", context.value(f"layer:{name}")) for name in context.names("layer:")
    ]
    above = [
        cast("dict[str, Json]", context.value(f"base-layer:{name}"))
        for name in context.names("base-layer:")
    ]
    base = _base(context)
    rows = [*base["layers"], *above, *rows]
    layers = [_layer(row) for row in rows]
    own = layers[len(base["layers"]) :]
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
    image_config = config(
        own,
        _inherited(run_config, base["config"]),
        platform=platform,
        created=created,
        base_history=base["history"],
        base_diff_ids=[layer.diff_id for layer in layers[: len(base["layers"])]],
    )
    image_manifest = manifest(image_config, layers, annotations=_annotations(context, base))
    config_ref = context.store.put(image_config.data)
    manifest_ref = context.store.put(image_manifest.data)
    return Made(
        blobs={"config": config_ref, "manifest": manifest_ref},
        values={"image_id": config_ref.digest, "layers": list[Json](rows)},
    )


def _base(context: Context) -> Mapping[str, Any]:
    if "" not in context.names("base"):
        return _NO_BASE
    return cast("Mapping[str, Any]", context.value("base"))


def _layer(row: Mapping[str, Json]) -> Layer:
    size = row["size"]
    assert isinstance(size, int)
    return Layer(
        diff_id=DiffId.parse(str(row["diff_id"])),
        blob=BlobRef(Digest.parse(str(row["digest"])), size),
        media_type=str(row["media_type"]),
        created_by=f"hq layer {row['name']}",
        annotations=_texts(row.get("annotations", {})),
    )


def _inherited(run: RunConfig, base: Mapping[str, Any]) -> RunConfig:
    """``run`` with what only the base sets (config.md, "config")."""
    env = dict(entry.partition("=")[::2] for entry in base.get("Env", ()))
    cmd = run.cmd if run.cmd or run.entrypoint else tuple(base.get("Cmd", ()))
    return RunConfig(
        env={**env, **run.env},
        entrypoint=run.entrypoint or tuple(base.get("Entrypoint", ())),
        cmd=cmd,
        working_dir=run.working_dir or base.get("WorkingDir", ""),
        user=run.user or base.get("User", ""),
        labels={**base.get("Labels", {}), **run.labels},
        ports=tuple(sorted({*base.get("ExposedPorts", ()), *run.ports})),
        volumes=tuple(sorted({*base.get("Volumes", ()), *run.volumes})),
        stop_signal=run.stop_signal or base.get("StopSignal", ""),
    )


def _annotations(context: Context, base: Mapping[str, Any]) -> dict[str, str]:
    params = context.params
    defaults = {
        "org.opencontainers.image.title": str(params["name"]),
        "org.opencontainers.image.version": str(params["pin"]),
        "org.opencontainers.image.description": str(params["distribution"]) + ", patched",
    }
    if "digest" in base:
        defaults["org.opencontainers.image.base.digest"] = base["digest"]
    return defaults | _texts(params["annotations"])


def _texts(value: object) -> dict[str, str]:
    assert isinstance(value, Mapping)
    return {str(name): str(text) for name, text in value.items()}


def _list(value: object) -> tuple[str, ...]:
    assert isinstance(value, (list, tuple))
    return tuple(str(item) for item in value)
