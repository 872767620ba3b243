"""The layers and images of a pin.

From the bottom: the base, the dependencies, the wheel, the series, the knobs, the overlays. Images
that lay their layers out alike share the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from hq.model.canonical import Value
from hq.model.errors import UsageError
from hq.model.project import ImageSpec, PinSpec, PythonSpec
from hq.oci.encode import Compression, encoder_id
from hq.oci.layer import LAYER_VERSION
from hq.plan.base import NO_BASE, BaseNodes, base_nodes
from hq.plan.dependencies import grouped, installed_node, wheel_node
from hq.plan.node import BlobOf, DeltaOf, Node, PathsOf, Selector, Source, ValueOf
from hq.plan.writers import Writers

LAYER = 1
LAUNCH = 1
IMAGE = 1


class _Stage(NamedTuple):
    """One layer of files: its name and the nodes whose deltas it holds."""

    name: str
    writers: tuple[str, ...]


def _stages(spec: PinSpec, patches: tuple[str, ...]) -> list[_Stage]:
    stages = [_Stage("series", patches)]
    if spec.knobs is not None:
        stages.append(_Stage("envs", ("envs",)))
    stages += [_Stage(overlay.name, (f"overlay:{overlay.name}",)) for overlay in spec.overlays]
    return [stage for stage in stages if stage.writers]


def image_nodes(spec: PinSpec, writers: Writers, patches: tuple[str, ...]) -> list[Node]:
    """The nodes of every image of the pin, in order. ``patches``: the patch nodes, in order.

    Raises ``UsageError`` when a name would stand for two nodes.
    """
    nodes: dict[str, Node] = {}
    for image in spec.images:
        base = base_nodes(image.base, image.compression, spec.epoch) if image.base else NO_BASE
        below = _dependency_nodes(spec, image) if image.dependencies else []
        layers = _layer_nodes(spec, image, writers, patches)
        if image.launch:
            layers.append(_launch_node(spec, image))
        stacked = [*(node for node in below if node.kind == "installed"), *layers]
        for node in (*base.nodes, *below, *layers, _image_node(spec, image, stacked, base)):
            if nodes.setdefault(node.name, node) != node:
                raise UsageError(
                    f"two nodes that differ would be called {node.name}",
                    details=[f"the second belongs to the image {image.name}"],
                    hint="give an overlay, a base or an image another name",
                )
    return list(nodes.values())


def _common(spec: PinSpec, image: ImageSpec) -> dict[str, Value]:
    """The parameters of every layer of an image."""
    return {
        "compression": image.compression,
        "encoder": encoder_id(cast("Compression", image.compression)),
        "format": LAYER_VERSION,
        "prefix": image.prefix,
        "mtime": spec.epoch,
    }


def _installation(spec: PinSpec, image: ImageSpec, python: PythonSpec) -> dict[str, Value]:
    """The parameters of a layer of installed wheels; their places count from the image's root."""
    site = image.prefix.strip("/")
    schemes: dict[str, Value] = {
        "purelib": site,
        "platlib": site,
        "scripts": python.scripts.strip("/"),
        "data": python.data.strip("/"),
        "headers": python.headers.strip("/"),
    }
    return {
        **_common(spec, image),
        "prefix": "",
        "schemes": schemes,
        "interpreter": python.interpreter,
    }


def _dependency_nodes(spec: PinSpec, image: ImageSpec) -> list[Node]:
    assert image.python is not None
    params = _installation(spec, image, image.python)
    wheels = [wheel_node(wheel) for wheel in spec.dependencies]
    return wheels + [
        installed_node(f"layer:{layer}{image.suffix}", layer, members, params)
        for layer, members in grouped(spec.dependencies).items()
    ]


def _layer_nodes(
    spec: PinSpec, image: ImageSpec, writers: Writers, patches: tuple[str, ...]
) -> list[Node]:
    stages = _stages(spec, patches)
    common = _common(spec, image)
    nodes = [_wheel_layer(spec, image, writers.base)]
    for stage in stages:
        inputs: dict[str, Selector] = {
            f"delta:{position:04d}": DeltaOf(name) for position, name in enumerate(stage.writers)
        }
        params = {**common, "layer": stage.name, "record": stage is stages[-1]}
        params["dist_info"] = f"{_distribution(spec)}-{spec.wheel.version}.dist-info"
        if stage is stages[-1]:
            inputs |= _record_inputs(spec, writers, stages)
            params["stages"] = [earlier.name for earlier in stages]
            if image.python is not None:
                # RECORD of the installed wheel lists scripts and INSTALLER as well.
                inputs |= {
                    "wheel": BlobOf(writers.base, "wheel"),
                    "index": BlobOf(writers.base, "index"),
                }
                installation = _installation(spec, image, image.python)
                params |= {key: installation[key] for key in ("schemes", "interpreter")}
                params["file"] = spec.wheel.file
        nodes.append(_layer(f"layer:{stage.name}{image.suffix}", params, inputs))
    return nodes


def _launch_node(spec: PinSpec, image: ImageSpec) -> Node:
    """The layer of launchers, at the image's root."""
    params: dict[str, Value] = {**_common(spec, image), "layer": "launch", "prefix": ""}
    params["files"] = {place: f"{n:04d}" for n, place in enumerate(image.launch)}
    inputs: dict[str, Selector] = {
        f"file:{number:04d}": Source(path) for number, path in enumerate(image.launch.values())
    }
    return Node(f"layer:launch/{image.name}", "launch", LAUNCH, params, inputs)


def _wheel_layer(spec: PinSpec, image: ImageSpec, wheel: str) -> Node:
    name = f"layer:wheel{image.suffix}"
    if image.python is not None:
        params = _installation(spec, image, image.python)
        return installed_node(name, "wheel", [spec.wheel], params)
    inputs: dict[str, Selector] = {
        "wheel": BlobOf(wheel, "wheel"),
        "index": BlobOf(wheel, "index"),
    }
    params = {**_common(spec, image), "layer": "wheel", "file": spec.wheel.file}
    return _layer(name, params, inputs)


def _layer(name: str, params: Mapping[str, Value], inputs: Mapping[str, Selector]) -> Node:
    return Node(name, "layer", LAYER, params, inputs)


def _distribution(spec: PinSpec) -> str:
    return spec.wheel.file.partition("-")[0]


def _record_inputs(spec: PinSpec, writers: Writers, stages: list[_Stage]) -> dict[str, Selector]:
    record = f"{_distribution(spec)}-{spec.wheel.version}.dist-info/RECORD"
    inputs: dict[str, Selector] = {"record": writers.file_at(record)}
    order = [name for stage in stages for name in stage.writers]
    return inputs | {f"paths:{position:04d}": PathsOf(name) for position, name in enumerate(order)}


def _image_node(spec: PinSpec, image: ImageSpec, layers: list[Node], base: BaseNodes) -> Node:
    inputs: dict[str, Selector] = {
        f"layer:{position:04d}": ValueOf(layer.name, "layer")
        for position, layer in enumerate(layers)
    }
    inputs |= base.inputs
    if spec.knobs is not None:
        inputs["audit"] = ValueOf("audit", "ok")
    params: dict[str, Value] = {
        "name": image.name,
        "pin": spec.pin,
        "project": spec.project,
        "distribution": f"{spec.wheel.name} {spec.wheel.version}",
        "mtime": spec.epoch,
        "os": image.os,
        "architecture": image.architecture,
        "env": dict(image.env),
        "entrypoint": list(image.entrypoint),
        "cmd": list(image.cmd),
        "working_dir": image.working_dir,
        "user": image.user,
        "labels": dict(image.labels),
        "annotations": dict(image.annotations),
        "ports": list(image.ports),
        "volumes": list(image.volumes),
        "layers": [str(layer.params["layer"]) for layer in layers],
    }
    return Node(f"image:{image.name}", "image", IMAGE, params, inputs)
