"""The nodes of what an image stands on.

::

    deb₁ … debₙ ─► base ─► base-layer₁ … base-layerₘ ─► image      packages of a base lock
                        base-image ─────────────────► image      an image of a layout or registry

A large package has a layer of its own; the others are put together by a hash of their name, so that
a security update rewrites the layer of its group and the small one on top with what is generated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from hq.model.canonical import Value
from hq.model.project import BaseSpec, LockedDeb
from hq.oci.encode import Compression, encoder_id
from hq.plan.node import BlobOf, Node, Selector, ValueOf

LARGE: Final = 8 << 20
"""Packages of this size in bytes and more have a layer of their own."""

GROUPS: Final = 4
STATE: Final = "base-state"
"""The layer of generated files, the last."""

VERSIONS: Final = {"deb": 1, "base": 1, "base-layer": 1, "base-image": 1}


class BaseNodes(NamedTuple):
    """The nodes, in order; and what the image takes from them, as inputs of its node."""

    nodes: tuple[Node, ...]
    inputs: dict[str, Selector]


NO_BASE: Final = BaseNodes((), {})


def base_nodes(base: BaseSpec, compression: str, epoch: int) -> BaseNodes:
    """The nodes of ``base``. Two images that stand on the same get equal nodes."""
    if base.kind == "debian":
        return _debian(base, compression, epoch)
    params: dict[str, Value] = {
        "digest": base.digest,
        "os": "linux",
        "architecture": base.architecture,
    }
    node = Node(f"base:{base.name}", "base-image", VERSIONS["base-image"], params, {})
    return BaseNodes((node,), {"base": ValueOf(node.name, "base")})


def layers_of(debs: Sequence[LockedDeb]) -> dict[str, list[str]]:
    """Package names by layer, layers in their order, names sorted."""
    groups: dict[str, list[str]] = {}
    for deb in sorted(debs, key=lambda deb: deb.name):
        groups.setdefault(_layer_of(deb), []).append(deb.name)
    return dict(sorted(groups.items())) | {STATE: [""]}


def _layer_of(deb: LockedDeb) -> str:
    if deb.size >= LARGE:
        return f"base-{deb.name}"
    return f"base-{hashlib.sha256(deb.name.encode()).digest()[0] % GROUPS:02d}"


def _debian(base: BaseSpec, compression: str, epoch: int) -> BaseNodes:
    from hq.debian.package import pack_encoder_id

    encoder = pack_encoder_id()
    debs = [_deb_node(base, deb, encoder) for deb in sorted(base.debs, key=lambda deb: deb.name)]
    names = [str(node.params["name"]) for node in debs]
    layers = layers_of(base.debs)
    inputs: dict[str, Selector] = {}
    for name, node in zip(names, debs, strict=True):
        inputs[f"index:{name}"] = BlobOf(node.name, "index")
        inputs[f"pack:{name}"] = BlobOf(node.name, "pack")
    params: dict[str, Value] = {"layers": cast("Value", layers), "encoder": encoder}
    root = Node(f"base:{base.name}", "base", VERSIONS["base"], params, inputs)
    tops = [
        _layer_node(base, layer, members, compression, epoch) for layer, members in layers.items()
    ]
    taken: dict[str, Selector] = {"base": ValueOf(root.name, "base")}
    taken |= {
        f"base-layer:{number:04d}": ValueOf(node.name, "layer") for number, node in enumerate(tops)
    }
    return BaseNodes((*debs, root, *tops), taken)


def _deb_node(base: BaseSpec, deb: LockedDeb, encoder: str) -> Node:
    params: dict[str, Value] = {**deb._asdict(), "encoder": encoder}
    return Node(f"deb:{base.name}/{deb.name}", "deb", VERSIONS["deb"], params, {})


def _layer_node(
    base: BaseSpec, layer: str, members: Sequence[str], compression: str, epoch: int
) -> Node:
    from hq.oci.rootfs import ROOTFS_VERSION

    inputs: dict[str, Selector] = {"tree": BlobOf(f"base:{base.name}", f"tree:{layer}")}
    for name in members:
        inputs[f"pack:{name or 'state'}"] = (
            BlobOf(f"deb:{base.name}/{name}", "pack")
            if name
            else BlobOf(f"base:{base.name}", "state")
        )
    params: dict[str, Value] = {
        "layer": layer,
        "compression": compression,
        "encoder": encoder_id(cast("Compression", compression)),
        "format": ROOTFS_VERSION,
        "mtime": epoch,
    }
    name = f"layer:{base.name}/{layer}" + ("" if compression == "gzip" else f"@{compression}")
    return Node(name, "base-layer", VERSIONS["base-layer"], params, inputs)
