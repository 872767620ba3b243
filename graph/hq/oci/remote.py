"""Reads manifests and indexes that others wrote, and writes those that refer to an image.

What comes from a registry or a stranger's layout is hostile: sizes, digests and shapes are checked
here, once, and what passes is a value. A document that is both a manifest and an index is refused,
since its readers would not agree on what it is (OCI image-spec 1.0.1, manifest.md, "mediaType").

Docker's own media types (schema 2) name the same things and are read as well. What is pushed again
keeps the bytes it had.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from hq.model.digest import BlobRef, DiffId, Digest, DigestError
from hq.model.errors import BuildError, Location
from hq.oci.image import INDEX_TYPE, MANIFEST_TYPE, Document, Json, Platform, descriptor

DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST_TYPES: Final = (MANIFEST_TYPE, DOCKER_MANIFEST)
INDEX_TYPES: Final = (INDEX_TYPE, DOCKER_INDEX)

MAX_DOCUMENT: Final = 4 << 20
"""Bytes of a manifest or an index: what registries take at least (distribution-spec 1.1)."""
MAX_CONFIG: Final = 8 << 20
MAX_BLOB: Final = 64 << 30
MAX_LAYERS: Final = 127  # what overlay file systems stack
MAX_ENTRIES: Final = 10_000

EMPTY_TYPE: Final = "application/vnd.oci.empty.v1+json"
EMPTY: Final = b"{}"
"""The configuration of an artifact that has none (manifest.md, "Empty Descriptor")."""


class Descriptor(NamedTuple):
    """A descriptor (descriptor.md). ``urls``: whether the content is to come from elsewhere."""

    media_type: str
    ref: BlobRef
    platform: Platform | None = None
    artifact_type: str = ""
    annotations: Mapping[str, str] = {}
    urls: bool = False


class ImageManifest(NamedTuple):
    """A manifest: one image for one platform, or an artifact."""

    media_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    artifact_type: str = ""
    subject: Descriptor | None = None
    annotations: Mapping[str, str] = {}


class ImageIndex(NamedTuple):
    """An index: images for several platforms, or a list of referrers."""

    media_type: str
    manifests: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = {}


def read_document(data: bytes, where: str, media_type: str = "") -> ImageManifest | ImageIndex:
    """Reads a manifest or an index. ``media_type``: what its carrier says it is, if it says so.

    Raises ``BuildError`` at ``where``.
    """
    reader = _Reader(where)
    document = reader.object(_json(data, reader), "the document")
    if document.get("schemaVersion") != 2:
        reader.fail("expected schemaVersion 2; older manifests are not supported")
    stated = reader.text(document.get("mediaType", media_type), "mediaType") or _guess(document)
    if media_type in MANIFEST_TYPES + INDEX_TYPES and stated != media_type:
        reader.fail(f"it is said to be {media_type} and says of itself {stated}")
    if "manifests" in document and ("layers" in document or "config" in document):
        reader.fail("it is a manifest and an index at the same time")
    if stated in INDEX_TYPES:
        return reader.index(document, stated)
    if stated in MANIFEST_TYPES:
        return reader.manifest(document, stated)
    return reader.fail(f"unexpected media type {stated!r}")


def _guess(document: Mapping[str, Any]) -> str:
    # mediaType was optional in image-spec 1.0.
    return INDEX_TYPE if "manifests" in document else MANIFEST_TYPE


def read_diff_ids(data: bytes, where: str) -> tuple[DiffId, ...]:
    """The DiffIDs of an image configuration. Raises ``BuildError``."""
    reader = _Reader(where)
    rootfs = reader.object(_json(data, reader), "the configuration").get("rootfs")
    found = reader.object(rootfs, "rootfs").get("diff_ids")
    if not isinstance(found, list) or len(found) > MAX_LAYERS:
        reader.fail(f"expected an array rootfs.diff_ids of at most {MAX_LAYERS} entries")
    try:
        return tuple(DiffId.parse(str(entry)) for entry in found)
    except DigestError as error:
        return reader.fail(str(error))


def read_platform(data: bytes, where: str) -> Platform:
    """The platform that an image configuration names. Raises ``BuildError``."""
    reader = _Reader(where)
    return reader.platform(reader.object(_json(data, reader), "the configuration"))


def _json(data: bytes, reader: _Reader) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return reader.fail("expected JSON")


class _Reader:
    """Checked access to the parts of one document."""

    def __init__(self, where: str) -> None:
        self._where = where

    def fail(self, message: str) -> NoReturn:
        raise BuildError(
            f"not a usable image document: {message}",
            where=Location(self._where),
            hint="look at what the name stands for: it may be no image, or damaged",
        )

    def object(self, value: Any, what: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self.fail(f"{what}: expected an object")
        return value

    def text(self, value: Any, what: str) -> str:
        if not isinstance(value, str):
            self.fail(f"{what}: expected a text")
        return value

    def texts(self, value: Any, what: str) -> Mapping[str, str]:
        found = {} if value is None else self.object(value, what)
        return {name: self.text(text, f"{what}.{name}") for name, text in found.items()}

    def entries(self, value: Any, what: str, most: int) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            self.fail(f"expected an array {what} of at most {most} entries")
        return value

    def descriptor(self, value: Any, what: str) -> Descriptor:
        found = self.object(value, what)
        try:
            digest = Digest.parse(self.text(found.get("digest"), f"{what}.digest"))
        except DigestError as error:
            self.fail(f"{what}: {error}")
        size = found.get("size")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_BLOB:
            self.fail(f"{what}.size: expected a number from 0 to {MAX_BLOB}, found {size!r}")
        platform = found.get("platform")
        return Descriptor(
            media_type=self.text(found.get("mediaType"), f"{what}.mediaType"),
            ref=BlobRef(digest, size),
            platform=None
            if platform is None
            else self.platform(self.object(platform, f"{what}.platform")),
            artifact_type=self.text(found.get("artifactType", ""), f"{what}.artifactType"),
            annotations=self.texts(found.get("annotations"), f"{what}.annotations"),
            urls=bool(found.get("urls")),
        )

    def platform(self, found: Mapping[str, Any]) -> Platform:
        return Platform(
            architecture=self.text(found.get("architecture"), "platform.architecture"),
            os=self.text(found.get("os"), "platform.os"),
            variant=self.text(found.get("variant", ""), "platform.variant"),
        )

    def index(self, document: Mapping[str, Any], media_type: str) -> ImageIndex:
        entries = self.entries(document.get("manifests"), "manifests", MAX_ENTRIES)
        return ImageIndex(
            media_type=media_type,
            manifests=tuple(
                self.descriptor(entry, f"manifests[{number}]")
                for number, entry in enumerate(entries)
            ),
            annotations=self.texts(document.get("annotations"), "annotations"),
        )

    def manifest(self, document: Mapping[str, Any], media_type: str) -> ImageManifest:
        entries = self.entries(document.get("layers"), "layers", MAX_LAYERS)
        subject = document.get("subject")
        return ImageManifest(
            media_type=media_type,
            config=self.descriptor(document.get("config"), "config"),
            layers=tuple(
                self.descriptor(entry, f"layers[{number}]") for number, entry in enumerate(entries)
            ),
            artifact_type=self.text(document.get("artifactType", ""), "artifactType"),
            subject=None if subject is None else self.descriptor(subject, "subject"),
            annotations=self.texts(document.get("annotations"), "annotations"),
        )


def choose(index: ImageIndex, platform: Platform, where: str) -> Descriptor:
    """The entry of an index for a platform. Raises ``BuildError`` that lists what there is.

    Without a wanted variant, an entry without one is preferred, then the first.
    """
    fitting = [
        entry
        for entry in index.manifests
        if entry.platform is not None
        and (entry.platform.os, entry.platform.architecture) == (platform.os, platform.architecture)
        and platform.variant in ("", entry.platform.variant)
    ]
    if fitting:
        return next((entry for entry in fitting if not _variant(entry)), fitting[0])
    there = sorted({platform_name(e.platform) for e in index.manifests if e.platform is not None})
    raise BuildError(
        f"the image is not there for {platform_name(platform)}",
        where=Location(where),
        details=[f"there is: {', '.join(there) or 'no platform at all'}"],
        hint="name another platform, or another image",
    )


def _variant(entry: Descriptor) -> str:
    return entry.platform.variant if entry.platform else ""


def platform_name(platform: Platform) -> str:
    """``os/architecture``, and ``/variant`` if there is one."""
    return "/".join(part for part in (platform.os, platform.architecture, platform.variant) if part)


def attachment(
    subject: Descriptor,
    artifact_type: str,
    blobs: Iterable[Descriptor],
    annotations: Mapping[str, str] | None = None,
) -> Document:
    """The manifest that attaches ``blobs`` to ``subject`` (manifest.md, "artifact usage")."""
    value: dict[str, Json] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": artifact_type,
        "config": descriptor(EMPTY_TYPE, BlobRef.of(EMPTY)),
        "layers": [descriptor(blob.media_type, blob.ref, blob.annotations) for blob in blobs],
        "subject": descriptor(subject.media_type, subject.ref),
    }
    if annotations:
        value["annotations"] = dict(annotations)
    return Document.of(MANIFEST_TYPE, value)


def referrers_tag(subject: Digest) -> str:
    """The tag that lists referrers where a registry has no list (distribution-spec 1.1)."""
    return f"sha256-{subject.hex}"


def referrers_index(entries: Sequence[Descriptor]) -> Document:
    """The index under a referrers tag."""
    manifests: list[Json] = []
    for entry in entries:
        value = descriptor(entry.media_type, entry.ref, entry.annotations)
        if entry.artifact_type:
            value["artifactType"] = entry.artifact_type
        manifests.append(value)
    return Document.of(
        INDEX_TYPE, {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}
    )
