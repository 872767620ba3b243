"""The image's bill of materials: a CycloneDX 1.6 document in JSON.

Sources: CycloneDX 1.6 (``bom-1.6.schema.json``); package URLs: purl-spec, types ``pypi``, ``deb``
and ``oci``.

A component is one thing that was locked: a wheel, a Debian package, a base image. The patched
distribution keeps its name and version, so that a scanner finds what is known about it, and says in
its pedigree what it is made from: the published wheel as its ancestor, whose hash it has, and the
patches that were applied. Like the provenance the document stands beside the image, and it
holds no time: its serial number is made from the image's ID, so equal images have equal documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hq.model.action import Json
from hq.model.digest import Digest
from hq.model.project import BaseSpec, LockedDeb, LockedWheel
from hq.wheels.filename import normalize_project

SPEC_VERSION: Final = "1.6"

# CycloneDX knows four kinds of patches; a DEP-3 header says more (docs/reference/patches.md).
_PATCH_KINDS: Final = {"backport": "backport"}
_PLAIN: Final = re.compile(rb"[A-Za-z0-9._~:-]")


class Image(NamedTuple):
    """The image that is described. ``name`` without, ``version`` with the pin."""

    name: str
    version: str
    image_id: Digest
    manifest: Digest
    architecture: str


class Patch(NamedTuple):
    """A patch file of the project. ``kind``: its header's ``Kind``, or empty."""

    path: str
    digest: Digest
    kind: str = ""


class Contents(NamedTuple):
    """What an image was made from. ``patches`` belong to ``patched``, in their order.

    ``added``: the files that overlays copied over the tree, with their digests.
    """

    patched: LockedWheel
    dependencies: Sequence[LockedWheel] = ()
    base: BaseSpec | None = None
    patches: Sequence[Patch] = ()
    added: Sequence[tuple[str, Digest]] = ()


def sbom(image: Image, contents: Contents, tool_version: str) -> dict[str, Json]:
    """The document as JSON values."""
    components = [
        _patched(contents),
        *(_wheel(w) for w in sorted(contents.dependencies, key=lambda w: w.name)),
        *_base(contents.base),
    ]
    whole = _container(image)
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{_uuid(image.image_id)}",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [{"type": "application", "name": "hq", "version": tool_version}]
            },
            "component": whole,
        },
        "components": list[Json](components),
        "dependencies": [
            {
                "ref": whole["bom-ref"],
                "dependsOn": list[Json](sorted(str(part["bom-ref"]) for part in components)),
            }
        ],
    }


def _uuid(image_id: Digest) -> str:
    """A UUID of version 8 (RFC 9562, 5.8): 122 bits of the digest."""
    bits = int(image_id.hex[:32], 16)
    bits = bits & ~(0xF << 76) | 8 << 76
    bits = bits & ~(0x3 << 62) | 2 << 62
    text = f"{bits:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _quote(text: str) -> str:
    """Percent-encoding as purl-spec has it: everything but unreserved characters and colons."""
    return "".join(
        chr(byte) if _PLAIN.match(bytes((byte,))) else f"%{byte:02X}" for byte in text.encode()
    )


def _purl(kind: str, name: str, version: str, qualifiers: Iterable[tuple[str, str]] = ()) -> str:
    text = f"pkg:{kind}/{_quote(name)}@{_quote(version)}"
    pairs = [f"{key}={_quote(value)}" for key, value in sorted(qualifiers) if value]
    return text + (f"?{'&'.join(pairs)}" if pairs else "")


def _hashes(digest: Digest) -> list[Json]:
    return [{"alg": "SHA-256", "content": digest.hex}]


def _container(image: Image) -> dict[str, Json]:
    arch = [("arch", image.architecture)]
    return {
        "type": "container",
        "bom-ref": "image",
        "name": image.name,
        "version": image.version,
        "purl": _purl("oci", image.name.lower(), image.manifest, arch),
        "properties": [{"name": "hq:image-id", "value": image.image_id}],
    }


def _wheel(wheel: LockedWheel) -> dict[str, Json]:
    purl = _purl("pypi", normalize_project(wheel.name), wheel.version)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": wheel.name,
        "version": wheel.version,
        "purl": purl,
        "hashes": _hashes(wheel.sha256),
        "properties": [{"name": "hq:file", "value": wheel.file}],
    }


def _patched(contents: Contents) -> dict[str, Json]:
    """The distribution that the patches are for; the wheel itself when nothing changes it."""
    published = _wheel(contents.patched)
    if not contents.patches and not contents.added:
        return published
    # Its bytes are not those of the wheel: the hash and the file are the ancestor's.
    own = {key: value for key, value in published.items() if key not in ("hashes", "properties")}
    marks: list[Json] = [
        {"name": f"hq:patch:{patch.path}", "value": patch.digest} for patch in contents.patches
    ]
    marks += [{"name": f"hq:added:{path}", "value": digest} for path, digest in contents.added]
    return {
        **own,
        "pedigree": {
            "ancestors": [{**published, "bom-ref": f"{published['bom-ref']}#published"}],
            "patches": [_patch(patch) for patch in contents.patches],
        },
        "properties": marks,
    }


def _patch(patch: Patch) -> dict[str, Json]:
    # A patch of CycloneDX has no name and no hash: a relative reference names it here, and a
    # property of the component gives the digest of that path.
    kind = _PATCH_KINDS.get(patch.kind, "unofficial")
    # A colon in its first part would make a scheme of it (RFC 3986, 4.2).
    parts = [_quote(part).replace(":", "%3A") for part in patch.path.split("/")]
    return {"type": kind, "diff": {"url": "/".join(parts)}}


def _base(base: BaseSpec | None) -> list[dict[str, Json]]:
    if base is None:
        return []
    if base.kind == "debian":
        return [_deb(deb, base.suite) for deb in sorted(base.debs, key=lambda deb: deb.name)]
    digest = Digest.parse(base.digest)
    purl = _purl("oci", base.name.lower(), digest, [("arch", base.architecture)])
    return [
        {
            "type": "container",
            "bom-ref": purl,
            "name": base.name,
            "version": digest,
            "purl": purl,
            "hashes": _hashes(digest),
        }
    ]


def _deb(deb: LockedDeb, suite: str) -> dict[str, Json]:
    purl = _purl(
        "deb/debian", deb.name, deb.version, [("arch", deb.architecture), ("distro", suite)]
    )
    return {
        "type": "library",
        "bom-ref": purl,
        "name": deb.name,
        "version": deb.version,
        "purl": purl,
        "hashes": _hashes(deb.sha256),
        "properties": [{"name": "hq:file", "value": deb.file}],
    }
