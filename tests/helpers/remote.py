"""Small images of any bytes, and clients, for tests about registries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.memory import MemoryBlobs
from hq.model.digest import BlobRef, DiffId
from hq.oci.image import Layer, Platform, config, manifest
from hq.oci.reference import Reference
from hq.transfer.auth import Authenticator
from hq.transfer.credentials import Credentials
from hq.transfer.http import Http
from hq.transfer.registry import Registry

LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"


def client(
    host: str,
    *,
    sleeps: list[float] | None = None,
    credentials: Credentials | None = None,
    environment: Mapping[str, str] | None = None,
    plain_http: Sequence[str] = (),
) -> Registry:
    """A client that does not sleep but notes for how long it would."""
    pauses: list[float] = [] if sleeps is None else sleeps
    http = Http(environment or {}, sleep=pauses.append, plain_http=plain_http)
    return Registry(http, Reference(host, "r"), Authenticator(http, host, credentials))


def make_image(store: MemoryBlobs, layers: Sequence[bytes], architecture: str = "amd64") -> BlobRef:
    """An image whose layers have these bytes, in the store; its manifest."""
    stacked = [
        Layer(DiffId.of(data), store.put(data), LAYER_TYPE, f"layer {number}")
        for number, data in enumerate(layers)
    ]
    made = config(stacked, platform=Platform(architecture))
    store.put(made.data)
    return store.put(manifest(made, stacked).data)
