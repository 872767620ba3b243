"""From a pin's declaration to its graph.

::

    wheel ─► patch₁ … patchₙ ─► envs ─► overlay ─► layers ─► image
                                   └──► audit ──────────────┘

A patch node takes the files it touches, each from the last node before it that may have written the
path, and so on down to the wheel. ``series`` is no node: it is a group name for the patches,
and the layer that holds them merges their deltas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hq.model.canonical import Value
from hq.model.errors import UsageError
from hq.model.project import KnobsSpec, OverlaySpec, PinSpec, SeriesItem
from hq.plan.dependencies import wheel_node
from hq.plan.graph import ordered
from hq.plan.images import image_nodes
from hq.plan.node import Graph, Node, Selector, Source, ValueOf
from hq.plan.writers import Writers, file_inputs

# A kind's version is bumped when the same inputs would give another result.
VERSIONS: Mapping[str, int] = {
    "patch": 1,
    "envs": 1,
    "audit": 1,
    "overlay": 1,
}


def pin_graph(
    spec: PinSpec,
    touched: Mapping[str, tuple[str, ...]],
    executable: Collection[str] = frozenset(),
) -> Graph:
    """The graph of one pin.

    ``touched`` gives for every patch (``item_key``) the paths it touches; ``executable``: the
    source files of overlays that their owner may execute. Raises ``UsageError`` for two patches of
    one name.
    """
    wheel = wheel_node(spec.wheel)
    nodes = [wheel]
    writers = Writers(wheel.name)
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
        node = _overlay_node(overlay, touched, writers, executable)
        nodes.append(node)
        writers.add(node.name, _overlay_paths(overlay, touched))
    if spec.knobs is not None:
        nodes.append(_audit_node(spec, spec.knobs, writers))
    nodes += image_nodes(spec, writers, patches)
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


def _patch_node(item: SeriesItem, touched: tuple[str, ...], writers: Writers) -> Node:
    inputs: dict[str, Selector] = {"patch": Source(item.file)}
    inputs |= file_inputs(touched, writers)
    params: dict[str, Value] = {"strip": item.strip, "reverse": item.reverse}
    return Node(f"patch:{item.stem}", "patch", VERSIONS["patch"], params, inputs)


def _envs_node(target: str, registry: Mapping[str, object], writers: Writers) -> Node:
    params: dict[str, Value] = {"target": target, "registry": registry}  # type: ignore[dict-item]
    return Node("envs", "envs", VERSIONS["envs"], params, file_inputs([target], writers))


def _audit_node(spec: PinSpec, declared: KnobsSpec, writers: Writers) -> Node:
    # The default or the meaning of a knob is no business of the audit: only names, owners and
    # exports are parameters, so that changing a default does not rerun it.
    target, registry = declared.target, declared.registry
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
    if spec.exporters:
        params["exports"] = [list[Value](row) for row in spec.exports]
        params["exporters"] = list(spec.exporters)
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
    overlay: OverlaySpec,
    touched: Mapping[str, tuple[str, ...]],
    writers: Writers,
    executable: Collection[str],
) -> Node:
    inputs: dict[str, Selector] = {
        f"new:{path}": Source(source) for path, source in sorted(overlay.files.items())
    }
    inputs |= {f"patch:{item.stem}": Source(item.file) for item in overlay.patches}
    seen = {*_overlay_paths(overlay, touched), *(fact.path for fact in overlay.facts)}
    inputs |= file_inputs(sorted(seen), writers)
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
    programs = sorted(path for path, source in overlay.files.items() if source in executable)
    if programs:
        params["executable"] = programs
    name = f"overlay:{overlay.name}"
    return Node(name, "overlay", VERSIONS["overlay"], params, inputs)
