"""OCI configurations, manifests and indexes as bytes.

The documents are JSON with sorted keys, no blanks and only ASCII, so equal images are equal bytes.
The image ID is the SHA-256 of the configuration (image-spec 1.1, config.md, "ImageID"): it covers
the DiffIDs and not how the layers are compressed.

Nothing here depends on who builds or when: ``created`` is what the caller passes as
SOURCE_DATE_EPOCH, and there is no author, host or build number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hq.model.digest import BlobRef, DiffId, Digest

CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
REF_NAME: Final = "org.opencontainers.image.ref.name"
LAYOUT: Final = b'{"imageLayoutVersion":"1.0.0"}'
"""The content of a layout's ``oci-layout`` file (image-layout.md)."""

Json = None | bool | int | str | Sequence["Json"] | Mapping[str, "Json"]


class Platform(NamedTuple):
    """Where an image runs, in Go's names, as the specification wants them."""

    architecture: str = "amd64"
    os: str = "linux"
    variant: str = ""


class RunConfig(NamedTuple):
    """How a container of the image starts (config.md, "config"). Empty fields are left out.

    ``env``: ``NAME`` to value. ``ports``: ``8000/tcp``. ``volumes``: absolute paths.
    """

    env: Mapping[str, str] = {}
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str = ""
    user: str = ""
    labels: Mapping[str, str] = {}
    ports: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    stop_signal: str = ""


class Layer(NamedTuple):
    """A layer in an image, from the bottom. ``created_by`` is its line in the history."""

    diff_id: DiffId
    blob: BlobRef
    media_type: str
    created_by: str
    annotations: Mapping[str, str] = {}


class Document(NamedTuple):
    """A JSON document and the name of its bytes."""

    media_type: str
    data: bytes
    ref: BlobRef

    @classmethod
    def of(cls, media_type: str, value: Json) -> Document:
        """The document of ``value``."""
        data = canonical(value)
        return cls(media_type, data, BlobRef.of(data))


def canonical(value: Json) -> bytes:
    """JSON with sorted keys, no blanks, only ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def timestamp(seconds: int) -> str:
    """RFC 3339 in UTC of seconds since 1970, without a clock or a time zone.

    Raises ``ValueError`` beyond the year 9999 or before 1970.
    """
    days, rest = divmod(seconds, 86400)
    if not 0 <= days < 2932897:
        raise ValueError(f"no RFC 3339 time for {seconds} seconds since 1970")
    year, month, day = _civil(days)
    hour, minute, second = rest // 3600, rest // 60 % 60, rest % 60
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day since 1970, in the Gregorian calendar.

    Counted from 1 March of year 0, a leap day ends its year, and a month's first day is a
    linear function of the month.
    """
    days += 719468
    era, day_of_era = divmod(days, 146097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return (
        era * 400 + year_of_era + (month <= 2),
        month,
        day_of_year - (153 * shifted + 2) // 5 + 1,
    )


def config(
    layers: Iterable[Layer],
    run: RunConfig = RunConfig(),  # noqa: B008 - immutable
    *,
    platform: Platform = Platform(),  # noqa: B008 - immutable
    created: int = 0,
    base_history: Sequence[Mapping[str, Json]] = (),
    base_diff_ids: Sequence[DiffId] = (),
) -> Document:
    """The image configuration; the digest of its bytes is the image ID.

    ``layers`` come after those of a base image, whose history is kept as it is. ``created`` in
    seconds since 1970.
    """
    stacked = list(layers)
    time = timestamp(created)
    history: list[Json] = list(base_history)
    history += [{"created": time, "created_by": layer.created_by} for layer in stacked]
    value: dict[str, Json] = {
        "architecture": platform.architecture,
        "created": time,
        "os": platform.os,
        "rootfs": {
            "type": "layers",
            "diff_ids": [*base_diff_ids, *(layer.diff_id for layer in stacked)],
        },
        "history": history,
        "config": _run(run),
    }
    if platform.variant:
        value["variant"] = platform.variant
    return Document.of(CONFIG_TYPE, value)


def _run(run: RunConfig) -> dict[str, Json]:
    empty: dict[str, Json] = {}
    fields: dict[str, Json] = {
        "Env": [f"{name}={run.env[name]}" for name in sorted(run.env)],
        "Entrypoint": run.entrypoint,
        "Cmd": run.cmd,
        "WorkingDir": run.working_dir,
        "User": run.user,
        "Labels": dict(run.labels),
        "ExposedPorts": dict.fromkeys(run.ports, empty),
        "Volumes": dict.fromkeys(run.volumes, empty),
        "StopSignal": run.stop_signal,
    }
    return {name: value for name, value in fields.items() if value}


def descriptor(
    media_type: str, ref: BlobRef, annotations: Mapping[str, str] | None = None
) -> dict[str, Json]:
    """An OCI descriptor (descriptor.md)."""
    value: dict[str, Json] = {"mediaType": media_type, "digest": ref.digest, "size": ref.size}
    if annotations:
        value["annotations"] = dict(annotations)
    return value


def manifest(
    image_config: Document,
    layers: Iterable[Layer],
    *,
    annotations: Mapping[str, str] | None = None,
    base_layers: Sequence[Mapping[str, Json]] = (),
) -> Document:
    """The image manifest. ``base_layers``: descriptors of a base image, kept as they are."""
    stacked: list[Json] = list(base_layers)
    stacked += [descriptor(item.media_type, item.blob, item.annotations) for item in layers]
    value: dict[str, Json] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(image_config.media_type, image_config.ref),
        "layers": stacked,
    }
    if annotations:
        value["annotations"] = dict(annotations)
    return Document.of(MANIFEST_TYPE, value)


def image_annotations(
    *,
    title: str = "",
    version: str = "",
    description: str = "",
    licenses: str = "",
    source: str = "",
    base_name: str = "",
    base_digest: Digest | None = None,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Annotations under their predefined keys (annotations.md); empty ones are left out."""
    known = {
        "title": title,
        "version": version,
        "description": description,
        "licenses": licenses,
        "source": source,
        "base.name": base_name,
        "base.digest": base_digest or "",
    }
    found = {f"org.opencontainers.image.{key}": value for key, value in known.items() if value}
    return {**found, **(extra or {})}


def index(
    images: Iterable[tuple[Document, str, Platform]],
    *,
    annotations: Mapping[str, str] | None = None,
) -> Document:
    """A layout's ``index.json``: manifests with their reference names (``""``: none), in order."""
    entries: list[Json] = []
    for image_manifest, name, platform in images:
        entry = descriptor(
            image_manifest.media_type, image_manifest.ref, {REF_NAME: name} if name else None
        )
        where = {"architecture": platform.architecture, "os": platform.os}
        if platform.variant:
            where["variant"] = platform.variant
        entry["platform"] = where
        entries.append(entry)
    value: dict[str, Json] = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": entries,
    }
    if annotations:
        value["annotations"] = dict(annotations)
    return Document.of(INDEX_TYPE, value)


def blob_path(digest: Digest) -> str:
    """A blob's place in a layout."""
    return f"blobs/sha256/{digest.hex}"
