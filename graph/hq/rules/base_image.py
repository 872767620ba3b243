"""``base-image``: an image that others made, as it is; from a layout or a registry makes no odds.

Its layers go into images untouched, blob and DiffID; its history stays; of its configuration the
image takes over what it does not set itself (``hq.rules.image``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from hq.model.action import Json
from hq.model.digest import Digest
from hq.model.errors import BuildError, Location
from hq.oci.encode import MEDIA_TYPES
from hq.oci.remote import Descriptor, ImageManifest, read_diff_ids, read_document, read_platform
from hq.rules.context import Context, Made

_DOCKER: Final = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": MEDIA_TYPES["gzip"],
    "application/vnd.docker.image.rootfs.diff.tar": MEDIA_TYPES["none"],
}


def run(context: Context) -> Made:
    """Blobs ``manifest``, ``config`` and the layers; value ``base``."""
    wanted = str(context.params["os"]), str(context.params["architecture"])
    where = str(context.params["digest"])
    ref = context.base_image(Digest.parse(where), *wanted)
    image = read_document(context.store.read(ref), where)
    if not isinstance(image, ImageManifest):
        raise BuildError("the base is an index, not an image", where=Location(where))
    data = context.store.read(image.config.ref)
    diff_ids = read_diff_ids(data, where)
    _check(image, len(diff_ids), read_platform(data, where)[:2], wanted, where)
    config: Mapping[str, Any] = json.loads(data)
    layers: list[Json] = [
        _row(number, layer, diff_id)
        for number, (layer, diff_id) in enumerate(zip(image.layers, diff_ids, strict=True))
    ]
    base: dict[str, Json] = {
        "digest": where,
        "config": _run_config(config.get("config"), where),
        "history": _history(config.get("history"), len(layers)),
        "layers": layers,
    }
    blobs = {"manifest": ref, "config": image.config.ref}
    blobs |= {f"layer:{number:03d}": layer.ref for number, layer in enumerate(image.layers)}
    return Made(blobs=blobs, values={"base": base})


def _check(
    image: ImageManifest,
    diff_ids: int,
    platform: tuple[str, str],
    wanted: tuple[str, str],
    where: str,
) -> None:
    if len(image.layers) != diff_ids:
        raise BuildError(
            f"the base has {len(image.layers)} layers and {diff_ids} DiffIDs", where=Location(where)
        )
    os, architecture = wanted
    if platform != (architecture, os):
        raise BuildError(
            "the base is for another platform than the image",
            where=Location(where),
            details=[f"expected: {os}/{architecture}", f"found:    {platform[1]}/{platform[0]}"],
            hint="name the digest of the base for the image's platform, or change [platform]",
        )
    for layer in image.layers:
        if layer.urls or _media_type(layer) not in MEDIA_TYPES.values():
            raise BuildError(
                f"a layer of the base is of a kind that hq cannot hand on: {layer.media_type}",
                where=Location(where),
            )


def _run_config(config: Any, where: str) -> dict[str, Json]:
    """What an image may take over, and nothing else; each of the type the specification gives."""
    found: dict[str, Json] = {}
    for name, value in (config if isinstance(config, dict) else {}).items():
        if name in _TYPES and value:
            if not _TYPES[name](value):
                raise BuildError(
                    f"the configuration of the base has a field {name} of a wrong type",
                    where=Location(where),
                )
            found[name] = sorted(value) if name in _SETS else value
    return found


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _are_labels(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_SETS: Final = ("ExposedPorts", "Volumes")
_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("Env", "Entrypoint", "Cmd"), _are_texts),
    **dict.fromkeys(("WorkingDir", "User", "StopSignal"), _is_text),
    **dict.fromkeys(_SETS, _is_mapping),
    "Labels": _are_labels,
}


def _media_type(layer: Descriptor) -> str:
    """Docker's names for the same bytes may not stand in an OCI manifest."""
    return _DOCKER.get(layer.media_type, layer.media_type)


def _row(number: int, layer: Descriptor, diff_id: str) -> Json:
    return {
        "name": f"base-{number:02d}",
        "diff_id": diff_id,
        "digest": layer.ref.digest,
        "size": layer.ref.size,
        "media_type": _media_type(layer),
        "annotations": dict(layer.annotations),
    }


def _history(history: Any, layers: int) -> list[Json]:
    """The base's history; one line for each layer when it does not agree with them."""
    if isinstance(history, list) and all(isinstance(entry, dict) for entry in history):
        filled = [entry for entry in history if entry.get("empty_layer") is not True]
        if len(filled) == layers:
            return history
    return [{"created_by": f"base layer {number}"} for number in range(layers)]
