"""The image's provenance: an in-toto Statement v1 with a SLSA Provenance v1 predicate.

Sources: in-toto attestation framework, ``spec/v1/statement.md``; SLSA ``spec/v1.0/provenance``.
The subject is the image manifest, which names everything in the image. The statement stands outside
the image (in a referrer or beside the layout), so it may name a commit; it carries no time, since
the build does not depend on one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hq.model.action import Json
from hq.model.digest import Digest

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:hq:build:1"
BUILDER_ID = "urn:hq:builder:local"
BASE_IMAGE = "base image"
"""What an image below is called among the materials."""


class Material(NamedTuple):
    """Something the image was made from: a wheel or a file of the project."""

    name: str
    digest: Digest


class Byproduct(NamedTuple):
    """A node of the graph: its name, its key, its blobs by name."""

    name: str
    key: str
    blobs: Mapping[str, Digest]


class Subject(NamedTuple):
    """The image: its name with the pin, and its manifest's digest."""

    name: str
    manifest: Digest


def statement(
    subject: Subject,
    *,
    parameters: Mapping[str, Json],
    materials: Sequence[Material],
    byproducts: Sequence[Byproduct],
    commit: str,
    tool_version: str,
) -> dict[str, Json]:
    """The statement as JSON values. ``commit``: the project's git commit in hex, or empty."""
    resolved: list[Json] = [
        {"name": material.name, "digest": {"sha256": material.digest.hex}}
        for material in sorted(materials)
    ]
    if commit:
        algorithm = "gitCommit"
        note: Json = {"note": "HEAD at the time; each file is listed by what it held"}
        head: Json = {"name": "project", "digest": {algorithm: commit}, "annotations": note}
        resolved.insert(0, head)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": subject.name, "digest": {"sha256": subject.manifest.hex}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "internalParameters": {},
                "resolvedDependencies": resolved,
            },
            "runDetails": {
                "builder": {"id": BUILDER_ID, "version": {"hq": tool_version}},
                "metadata": {},
                "byproducts": [_byproduct(byproduct) for byproduct in byproducts],
            },
        },
    }


def _byproduct(byproduct: Byproduct) -> Json:
    annotations: dict[str, Json] = {"key": byproduct.key}
    annotations |= dict(sorted(byproduct.blobs.items()))
    return {"name": byproduct.name, "annotations": annotations}
