"""``hq pair``: two builds, and whether they differ by the pin alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hq.app.causes import stored
from hq.app.config import Files
from hq.app.operands import Side
from hq.app.session import Session
from hq.app.validate import Document, parse_toml
from hq.evidence.pair import Locate, Pair
from hq.evidence.pair import pair as judge
from hq.evidence.records import NodeRecord
from hq.model.errors import HqError, Location

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "env": ("config", "env"),
    "entrypoint": ("config", "entrypoint"),
    "cmd": ("config", "cmd"),
    "working_dir": ("config", "working-dir"),
    "user": ("config", "user"),
    "labels": ("config", "labels"),
    "ports": ("config", "ports"),
    "volumes": ("config", "volumes"),
    "annotations": ("annotations",),
    "os": ("platform", "os"),
    "architecture": ("platform", "architecture"),
    "prefix": ("prefix",),
    "compression": ("compression",),
    "encoder": ("compression",),
}
"""Where an image's file says what is a parameter of a node."""


def pair(session: Session, a: Side, b: Side) -> Pair:
    """Judges two sides; places are looked up in this project's files and contents in the store."""
    images = list(_images(session.sources))
    return judge((a.label, b.label), a.records, b.records, stored(session.disk), _locator(images))


def _images(files: Files) -> Iterator[Document]:
    """The image files of the project, as far as they can be read: a place is a help, no result."""
    try:
        listed = parse_toml("build.toml", files.read("build.toml")).value.get("images", [])
        for path in listed:
            yield parse_toml(path, files.read(path))
    except (HqError, OSError, TypeError, AttributeError):
        return


def _locator(images: list[Document]) -> Locate:
    def locate(node: NodeRecord, path: tuple[str, ...], value: object) -> Location | None:
        keys = _KEYS.get(path[0])
        if keys is None:
            return None
        keys = (*keys, *path[1:])
        for image in images:
            is_meant = node.kind != "image" or image.value.get("name") == node.params.get("name")
            if is_meant and (path[0] == "encoder" or _says(image.value, keys, value)):
                return image.locator()(*keys)
        return None

    return locate


def _says(document: Mapping[str, Any], keys: tuple[str, ...], value: object) -> bool:
    found: Any = document
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return bool(found == value)
