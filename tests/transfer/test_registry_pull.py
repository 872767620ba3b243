"""Pulling from a registry that misbehaves on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from helpers.fakeregistry import FakeRegistry, Fault, cut, endless, fake_registry, reset, status
from helpers.memory import MemoryBlobs
from helpers.remote import client, make_image
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, HqError, InfrastructureError, UsageError
from hq.oci.image import INDEX_TYPE, MANIFEST_TYPE, Platform
from hq.oci.reference import Reference
from hq.transfer.pull import Pulled, pull_image

SMALL = b"small layer" * 9
LARGE = bytes(range(256)) * 4 * (2 << 10)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as made:
        yield made


@pytest.fixture
def store() -> MemoryBlobs:
    return MemoryBlobs()


def publish(registry: FakeRegistry, *layers: bytes, architecture: str = "amd64") -> BlobRef:
    """Puts an image into the registry under the tag ``t``."""
    source = MemoryBlobs()
    manifest = make_image(source, layers, architecture)
    data = source.read(manifest)
    document = json.loads(data)
    for entry in [document["config"], *document["layers"]]:
        ref = BlobRef(Digest.parse(entry["digest"]), entry["size"])
        registry.put("r", source.read(ref))
    registry.put_manifest("r", "t", MANIFEST_TYPE, data)
    return manifest


def pull(
    registry: FakeRegistry,
    store: MemoryBlobs,
    tag: str = "t",
    digest: Digest | None = None,
    platform: Platform = Platform(),  # noqa: B008
) -> Pulled:
    found = client(registry.host)
    try:
        reference = Reference(registry.host, "r", "" if digest else tag, digest)
        return pull_image(found, reference, store, platform, threads=2)
    finally:
        found.close()


def test_by_tag_and_by_digest(registry: FakeRegistry, store: MemoryBlobs) -> None:
    manifest = publish(registry, SMALL, LARGE)
    pulled = pull(registry, store)
    assert pulled.manifest == manifest
    assert pulled.named == manifest.digest
    assert [store.read(layer.ref) for layer in pulled.layers] == [SMALL, LARGE]
    assert pulled.diff_ids == tuple(Digest.of(data) for data in (SMALL, LARGE))
    assert store.has(pulled.config)
    again = pull(registry, store, digest=manifest.digest)
    assert again.layers == pulled.layers
    assert sum("/blobs/" in r.path for r in registry.requests) == 3


def test_from_an_index(registry: FakeRegistry, store: MemoryBlobs) -> None:
    entries = []
    for architecture in ("arm64", "amd64"):
        ref = publish(registry, architecture.encode(), architecture=architecture)
        entries.append(
            {
                "mediaType": MANIFEST_TYPE,
                "digest": ref.digest,
                "size": ref.size,
                "platform": {"os": "linux", "architecture": architecture},
            }
        )
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries})
    named = registry.put_manifest("r", "t", INDEX_TYPE, index.encode())
    pulled = pull(registry, store, platform=Platform("arm64"))
    assert (pulled.named, pulled.manifest.digest) == (named, entries[0]["digest"])
    assert [store.read(layer.ref) for layer in pulled.layers] == [b"arm64"]
    with pytest.raises(BuildError) as caught:
        pull(registry, store, platform=Platform("s390x"))
    assert caught.value.details == ("there is: linux/amd64, linux/arm64",)


def test_an_image_for_another_platform(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, SMALL, architecture="arm64")
    with pytest.raises(BuildError) as caught:
        pull(registry, store)
    assert caught.value.render() == (
        f"error: {registry.host}/r:t: the image is for linux/arm64\n"
        "  expected: linux/amd64\n  help: name another platform, or another image"
    )


# Broken downloads.


@pytest.mark.parametrize("announced", [len(LARGE), None])
def test_a_download_goes_on_where_it_ended(
    registry: FakeRegistry, store: MemoryBlobs, announced: int | None
) -> None:
    publish(registry, LARGE)
    place = f"GET /v2/r/blobs/{Digest.of(LARGE)}"
    registry.faults = [Fault(place, cut(LARGE[:1000], announced))]
    pulled = pull(registry, store)
    assert store.read(pulled.layers[0].ref) == LARGE
    ranges = [r.headers.get("Range") for r in registry.requests if str(Digest.of(LARGE)) in r.path]
    assert ranges == [None, "bytes=1000-"]


def test_from_the_start_where_it_cannot_go_on(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, LARGE)
    place = f"GET /v2/r/blobs/{Digest.of(LARGE)}"
    registry.faults = [
        Fault(place, cut(LARGE[:300_000], len(LARGE))),
        Fault(place, status(200, LARGE)),
    ]
    assert store.read(pull(registry, store).layers[0].ref) == LARGE


@pytest.mark.parametrize("act", [reset, status(503)])
def test_passing_failures(registry: FakeRegistry, store: MemoryBlobs, act: object) -> None:
    publish(registry, SMALL, LARGE)
    registry.faults = [Fault("GET", act, 4)]  # type: ignore[arg-type]
    assert len(pull(registry, store).layers) == 2


def failure(kind: type[HqError], registry: FakeRegistry, store: MemoryBlobs) -> HqError:
    with pytest.raises(kind) as caught:
        pull(registry, store)
    for data in (b"#" * len(SMALL), SMALL):
        assert not store.has(BlobRef.of(data))
    return caught.value


def test_a_download_that_never_gets_through(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, SMALL)
    place = f"GET /v2/r/blobs/{Digest.of(SMALL)}"
    registry.faults = [
        Fault(place, cut(SMALL[:5], len(SMALL))),
        *(
            Fault(place, cut(b"", len(SMALL) - 5, 206, Content_Range=f"bytes 5-98/{len(SMALL)}"))
            for _ in range(4)
        ),
    ]
    digest = Digest.of(SMALL)
    assert failure(InfrastructureError, registry, store).render() == (
        f"error: the download of {digest} ended early, 5 times\n"
        f"  got: 5 of {len(SMALL)} bytes\n  last: the answer ended early\n"
        "  help: run hq again; if it stays, look at the network and at proxies in between"
    )


# Lies.


def test_another_blob_of_the_same_length(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, SMALL)
    other = b"#" * len(SMALL)
    registry.blobs["r", Digest.of(SMALL)] = other
    assert failure(BuildError, registry, store).render() == (
        f"error: {registry.host} gives another blob than was asked for\n"
        f"  expected: {Digest.of(SMALL)}\n  found:    {Digest.of(other)}\n"
        "  help: do not use it; ask who runs the registry, and look at proxies in between"
    )


def test_a_blob_of_another_length(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, SMALL)
    registry.blobs["r", Digest.of(SMALL)] = SMALL + b"#"
    assert failure(InfrastructureError, registry, store).details == (
        f"{Digest.of(SMALL)}: expected {len(SMALL)} bytes, announced {len(SMALL) + 1}",
    )


def test_a_blob_without_an_end(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, SMALL)
    registry.faults = [Fault(f"GET /v2/r/blobs/{Digest.of(SMALL)}", endless)]
    assert failure(InfrastructureError, registry, store).details == (
        f"{Digest.of(SMALL)}: more than the expected {len(SMALL)} bytes",
    )


def test_a_part_that_was_not_asked_for(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, SMALL)
    place = f"GET /v2/r/blobs/{Digest.of(SMALL)}"
    registry.faults = [
        Fault(place, cut(SMALL[:5], len(SMALL))),
        Fault(place, status(206, SMALL[9:], Content_Range=f"bytes 9-98/{len(SMALL)}")),
    ]
    assert failure(InfrastructureError, registry, store).details == (
        f"asked for bytes from 5, got bytes 9-98/{len(SMALL)}",
    )


def test_no_such_image(registry: FakeRegistry, store: MemoryBlobs) -> None:
    error = failure(UsageError, registry, store)
    assert error.render() == (
        f"error: there is no image {registry.host}/r:t\n  help: check the name; a private one "
        f"may need 'docker login {registry.host}' first"
    )


def test_an_image_that_is_not_whole(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, SMALL)
    del registry.blobs["r", Digest.of(SMALL)]
    assert failure(UsageError, registry, store).render() == (
        f"error: {registry.host} has no blob {Digest.of(SMALL)} in r\n"
        "  help: the image is not whole there; push it again, or take another"
    )


def test_the_registry_says_what_room_is_needed(registry: FakeRegistry, store: MemoryBlobs) -> None:
    publish(registry, SMALL, LARGE, SMALL)
    store.put(LARGE)
    rooms: list[int] = []
    found = client(registry.host)
    reference = Reference(registry.host, "r", "t")
    pull_image(found, reference, store, Platform(), room=rooms.append)
    found.close()
    assert rooms == [len(SMALL)]


@pytest.mark.parametrize("kind", ["nondistributable", "foreign"])
def test_layers_that_are_elsewhere(registry: FakeRegistry, store: MemoryBlobs, kind: str) -> None:
    manifest = publish(registry, SMALL)
    document = json.loads(registry.manifests["r", "t"][1])
    document["layers"][0]["mediaType"] = f"application/vnd.{kind}.layer"
    registry.put_manifest("r", "t", MANIFEST_TYPE, json.dumps(document).encode())
    error = failure(BuildError, registry, store)
    assert error.message == f"{registry.host}/r:t: a layer is not to be had from the registry"
    assert manifest
