"""The layers of a pin's dependencies: which wheel goes into which.

A large wheel has a layer of its own, so that two pins that share it share the layer. Small ones are
put together by a hash of their name, not by order or size: a package that comes, goes or
changes rewrites the layer of its own group and no other. The number of groups is fixed, so an image
stays well under the limit of 127 layers that common storage drivers have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from hq.model.canonical import Value
from hq.model.project import LockedWheel
from hq.plan.node import BlobOf, Node, Selector
from hq.wheels.filename import normalize_project

LARGE = 24 << 20
"""Wheels of this size in bytes and more have a layer of their own."""

GROUPS = 12

INSTALLED_VERSION = 1
WHEEL_VERSION = 1


def wheel_node(wheel: LockedWheel) -> Node:
    """The node that fetches and indexes a wheel."""
    params: dict[str, Value] = {
        "name": wheel.name,
        "version": wheel.version,
        "file": wheel.file,
        "sha256": wheel.sha256,
        "size": wheel.size,
    }
    if wheel.record != "check":
        params["record"] = wheel.record
    return Node(f"wheel:{normalize_project(wheel.name)}", "wheel", WHEEL_VERSION, params, {})


def grouped(wheels: Sequence[LockedWheel]) -> dict[str, list[LockedWheel]]:
    """The wheels by the name of their layer (``dep-torch``, ``deps-07``), both sorted."""
    groups: dict[str, list[LockedWheel]] = {}
    for wheel in sorted(wheels, key=lambda wheel: normalize_project(wheel.name)):
        groups.setdefault(_layer_of(wheel), []).append(wheel)
    return dict(sorted(groups.items()))


def _layer_of(wheel: LockedWheel) -> str:
    name = normalize_project(wheel.name)
    if wheel.size >= LARGE:
        return f"dep-{name}"
    return f"deps-{hashlib.sha256(name.encode()).digest()[0] % GROUPS:02d}"


def installed_node(
    name: str,
    layer: str,
    wheels: Sequence[LockedWheel],
    params: Mapping[str, Value],
) -> Node:
    """The layer of ``wheels`` as they stand when installed. ``params``: those of every layer."""
    inputs: dict[str, Selector] = {}
    for wheel in wheels:
        project = normalize_project(wheel.name)
        inputs[f"wheel:{project}"] = BlobOf(f"wheel:{project}", "wheel")
        inputs[f"index:{project}"] = BlobOf(f"wheel:{project}", "index")
    files: dict[str, Value] = {normalize_project(wheel.name): wheel.file for wheel in wheels}
    return Node(
        name, "installed", INSTALLED_VERSION, {**params, "layer": layer, "wheels": files}, inputs
    )
