"""From a pin's declaration to its graph.

::

    wheel ─► patch₁ … patchₙ ─► envs ─► overlay ─► layers ─► image
                                   └──► audit ──────────────┘

A patch node takes the files it touches, each from the last node before it that may have written the
path, and so on down to the wheel. ``series`` is no node: it is a group name for the patches,
and the layer that holds them merges their deltas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from hq.model.canonical import Value
from hq.model.errors import UsageError
from hq.model.project import ImageSpec, OverlaySpec, PinSpec, SeriesItem
from hq.oci.encode import Compression, encoder_id
from hq.oci.layer import LAYER_VERSION
from hq.plan.base import NO_BASE, BaseNodes, base_nodes
from hq.plan.graph import ordered
from hq.plan.node import BlobOf, DeltaOf, FileAt, Graph, Node, PathsOf, Selector, Source, ValueOf

# A kind's version is bumped when the same inputs would give another result.
VERSIONS: Mapping[str, int] = {
    "wheel": 1,
    "patch": 1,
    "envs": 1,
    "audit": 1,
    "overlay": 1,
    "layer": 1,
    "image": 1,
}


class _Writers:
    """Which nodes may have written a path, something above it or something beneath it."""

    __slots__ = ("_at", "_beneath", "_rank", "base")

    def __init__(self, base: str) -> None:
        self.base = base
        self._at: dict[str, list[str]] = {}
        self._beneath: dict[str, list[str]] = {}
        self._rank: dict[str, int] = {}

    def add(self, node: str, paths: Iterable[str]) -> None:
        """Notes that ``node``, later than all before it, may write ``paths``."""
        self._rank[node] = len(self._rank)
        for path in paths:
            self._at.setdefault(path, []).append(node)
            for above in _above(path):
                self._beneath.setdefault(above, []).append(node)

    def providers(self, path: str) -> tuple[str, ...]:
        """The nodes whose results say what stands at ``path``, the latest first."""
        found = set(self._at.get(path, ()))
        found.update(self._beneath.get(path, ()))
        for above in _above(path):
            found.update(self._at.get(above, ()))
        return (*sorted(found, key=self._rank.__getitem__, reverse=True), self.base)

    def nodes(self) -> tuple[str, ...]:
        """Every writer, in order."""
        return tuple(self._rank)


def _above(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def pin_graph(spec: PinSpec, touched: Mapping[str, tuple[str, ...]]) -> Graph:
    """The graph of one pin.

    ``touched`` gives for every patch (``item_key``) the paths it touches. Raises ``UsageError``
    for two patches of one name.
    """
    wheel = _wheel_node(spec)
    nodes = [wheel]
    writers = _Writers(wheel.name)
    for item in spec.series:
        node = _patch_node(item, touched[item_key(item)], writers)
        nodes.append(node)
        writers.add(node.name, touched[item_key(item)])
    patches = tuple(node.name for node in nodes[1:])
    _check_names(spec, patches)
    if spec.knobs is not None:
        nodes.append(_envs_node(spec.knobs.target, spec.knobs.registry, writers))
        writers.add("envs", [spec.knobs.target])
    for overlay in spec.overlays:
        node = _overlay_node(overlay, touched, writers)
        nodes.append(node)
        writers.add(node.name, _overlay_paths(overlay, touched))
    if spec.knobs is not None:
        nodes.append(_audit_node(spec.knobs.target, spec.knobs.registry, writers))
    nodes += _image_nodes(spec, writers, patches)
    by_name = ordered(nodes)
    sources = {
        selector.path
        for node in by_name.values()
        for selector in node.inputs.values()
        if isinstance(selector, Source)
    }
    return Graph(nodes=by_name, sources=tuple(sorted(sources)), groups={"series": patches})


def item_key(item: SeriesItem) -> str:
    """Names a patch file under its series options."""
    return f"{item.file} -p{item.strip}{' -R' if item.reverse else ''}"


def _check_names(spec: PinSpec, patches: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in patches:
        if name in seen:
            raise UsageError(
                f"{spec.series_file} names two patches {name.removeprefix('patch:')}",
                hint="give one of the files another name",
            )
        seen.add(name)


def _wheel_node(spec: PinSpec) -> Node:
    wheel = spec.wheel
    params: dict[str, Value] = {
        "name": wheel.name,
        "version": wheel.version,
        "file": wheel.file,
        "sha256": wheel.sha256,
        "size": wheel.size,
    }
    return Node(f"wheel:{wheel.name}", "wheel", VERSIONS["wheel"], params, {})


def _patch_node(item: SeriesItem, touched: tuple[str, ...], writers: _Writers) -> Node:
    inputs: dict[str, Selector] = {"patch": Source(item.file)}
    inputs |= _files(touched, writers)
    params: dict[str, Value] = {"strip": item.strip, "reverse": item.reverse}
    return Node(f"patch:{item.stem}", "patch", VERSIONS["patch"], params, inputs)


def _files(paths: Iterable[str], writers: _Writers) -> dict[str, Selector]:
    return {f"file:{path}": FileAt(path, writers.providers(path)) for path in paths}


def _envs_node(target: str, registry: Mapping[str, object], writers: _Writers) -> Node:
    params: dict[str, Value] = {"target": target, "registry": registry}  # type: ignore[dict-item]
    return Node("envs", "envs", VERSIONS["envs"], params, _files([target], writers))


def _audit_node(target: str, registry: Mapping[str, object], writers: _Writers) -> Node:
    # The default or the meaning of a knob is no business of the audit: only names, owners and
    # exports are parameters, so that changing a default does not rerun it.
    knobs, retired = registry["knobs"], registry["retired"]
    assert isinstance(knobs, (list, tuple))
    assert isinstance(retired, (list, tuple))
    audited: list[Value] = [
        {field: knob[field] for field in ("name", "owner", "exported_by")} for knob in knobs
    ]
    readers = [name for name in writers.nodes() if name != "envs"]
    params: dict[str, Value] = {
        "target": target,
        "prefixes": registry["prefixes"],  # type: ignore[dict-item]
        "knobs": audited,
        "retired": {old["name"]: old["reason"] for old in retired},
        "order": readers,
    }
    inputs: dict[str, Selector] = {
        "variables": ValueOf("envs", "variables"),
        "attributes": ValueOf("envs", "attributes"),
    }
    inputs |= {f"reads:{name}": ValueOf(name, "reads") for name in readers}
    return Node("audit", "audit", VERSIONS["audit"], params, inputs)


def _overlay_paths(overlay: OverlaySpec, touched: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    paths = set(overlay.files)
    for item in overlay.patches:
        paths.update(touched[item_key(item)])
    return tuple(sorted(paths))


def _overlay_node(
    overlay: OverlaySpec, touched: Mapping[str, tuple[str, ...]], writers: _Writers
) -> Node:
    inputs: dict[str, Selector] = {
        f"new:{path}": Source(source) for path, source in sorted(overlay.files.items())
    }
    inputs |= {f"patch:{item.stem}": Source(item.file) for item in overlay.patches}
    seen = {*_overlay_paths(overlay, touched), *(fact.path for fact in overlay.facts)}
    inputs |= _files(sorted(seen), writers)
    params: dict[str, Value] = {
        "name": overlay.name,
        "files": sorted(overlay.files),
        "replaces": sorted(overlay.replaces),
        "patches": [
            {"name": item.stem, "strip": item.strip, "reverse": item.reverse}
            for item in overlay.patches
        ],
        "facts": [
            {
                "fact": fact.name,
                "what": fact.what,
                "path": fact.path,
                "kind": fact.kind,
                "params": dict(fact.params),
            }
            for fact in overlay.facts
        ],
    }
    name = f"overlay:{overlay.name}"
    return Node(name, "overlay", VERSIONS["overlay"], params, inputs)


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


def _image_nodes(spec: PinSpec, writers: _Writers, patches: tuple[str, ...]) -> list[Node]:
    nodes: dict[str, Node] = {}
    # Images that lay their layers out alike share them.
    styles: dict[tuple[str, str], str] = {}
    for image in spec.images:
        style = (image.prefix, image.compression)
        suffix = styles.setdefault(style, f"@{image.name}" if styles else "")
        base = base_nodes(image.base, image.compression, spec.epoch) if image.base else NO_BASE
        nodes |= {node.name: node for node in base.nodes}
        layers = _layer_nodes(spec, image, writers, patches, suffix)
        nodes |= {layer.name: layer for layer in layers}
        node = _image_node(spec, image, layers, base)
        nodes[node.name] = node
    return list(nodes.values())


def _layer_nodes(
    spec: PinSpec, image: ImageSpec, writers: _Writers, patches: tuple[str, ...], suffix: str
) -> list[Node]:
    stages = _stages(spec, patches)
    wheel = writers.base
    common: dict[str, Value] = {
        "compression": image.compression,
        "encoder": encoder_id(cast("Compression", image.compression)),
        "prefix": image.prefix,
        "mtime": spec.epoch,
    }
    wheel_inputs: dict[str, Selector] = {
        "wheel": BlobOf(wheel, "wheel"),
        "index": BlobOf(wheel, "index"),
    }
    common["format"] = LAYER_VERSION
    wheel_params = {**common, "layer": "wheel", "file": spec.wheel.file}
    nodes = [_layer(f"layer:wheel{suffix}", wheel_params, wheel_inputs)]
    for stage in stages:
        inputs: dict[str, Selector] = {
            f"delta:{position:04d}": DeltaOf(name) for position, name in enumerate(stage.writers)
        }
        params = {**common, "layer": stage.name, "record": stage is stages[-1]}
        params["dist_info"] = f"{_distribution(spec)}-{spec.wheel.version}.dist-info"
        if stage is stages[-1]:
            inputs |= _record_inputs(spec, writers, stages)
            params["stages"] = [earlier.name for earlier in stages]
        nodes.append(_layer(f"layer:{stage.name}{suffix}", params, inputs))
    return nodes


def _layer(name: str, params: Mapping[str, Value], inputs: Mapping[str, Selector]) -> Node:
    return Node(name, "layer", VERSIONS["layer"], params, inputs)


def _distribution(spec: PinSpec) -> str:
    return spec.wheel.file.partition("-")[0]


def _record_inputs(spec: PinSpec, writers: _Writers, stages: list[_Stage]) -> dict[str, Selector]:
    record = f"{_distribution(spec)}-{spec.wheel.version}.dist-info/RECORD"
    inputs: dict[str, Selector] = {"record": FileAt(record, writers.providers(record))}
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
    return Node(f"image:{image.name}", "image", VERSIONS["image"], params, inputs)
