"""From a pin's declaration to an image's bill of materials (``hq.provenance.sbom``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hq.app.session import Session
from hq.model.action import Json
from hq.model.digest import Digest
from hq.model.project import ImageSpec, PinSpec, SeriesItem
from hq.provenance.sbom import Contents, Image, Patch, sbom

SUFFIX: Final = ".sbom.json"
"""Stands beside the layout, under its name and this."""

_KIND: Final = re.compile(rb"^Kind:[ \t]*([a-z]+)[ \t]*\r?$", re.MULTILINE | re.IGNORECASE)


def image_sbom(
    session: Session,
    spec: PinSpec,
    image: ImageSpec,
    image_id: Digest,
    manifest: Digest,
    tool_version: str,
) -> dict[str, Json]:
    """The bill of materials of a built image, from the lock, the base and the project's files."""
    items = [*spec.series, *(item for overlay in spec.overlays for item in overlay.patches)]
    contents = Contents(
        patched=spec.wheel,
        dependencies=spec.dependencies if image.dependencies else (),
        base=image.base,
        patches=[_patch(session, item) for item in items],
        added=list(_added(session, spec)),
    )
    described = Image(image.name, spec.pin, image_id, manifest, image.architecture)
    return sbom(described, contents, tool_version)


def _patch(session: Session, item: SeriesItem) -> Patch:
    head = session.sources.read(item.file).partition(b"\n--- ")[0]
    found = _KIND.search(head)
    kind = found[1].decode().lower() if found else ""
    return Patch(item.file, session.sources.ref(item.file).digest, kind)


def _added(session: Session, spec: PinSpec) -> Iterator[tuple[str, Digest]]:
    for overlay in spec.overlays:
        for path, source in sorted(overlay.files.items()):
            yield path, session.sources.ref(source).digest
