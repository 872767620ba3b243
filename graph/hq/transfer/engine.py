"""Loads an image into a Docker engine, sending only the layers that the engine lacks.

The engine's ``POST /images/load`` takes a tar with a ``manifest.json``, the configuration and the
layers. The tar is made while it is sent; it never lies on a disk here.

**Layers the engine has.** The interface cannot be asked for a layer. But an engine with its own
image store looks for each layer of the image by chain ID before it opens the layer's file, so a
file that it does not need may be missing from the tar. What it has is known from the image that
bears the tag now (a build before this one, as a rule); without one, everything is left out at
first. If that was too much, the engine names the first file that it misses, and the layers from
there on are sent. A wrong guess costs one small request and is never an image that is not whole:
the engine checks DiffIDs and image ID itself, and they are read back here.

An engine on containerd's image store needs every layer in the tar, so there all are sent.

Tags stand in ``manifest.json``: the engine sets them last. A load that is killed leaves nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from hq.model.digest import BlobRef, DiffId, Digest
from hq.model.errors import BuildError, HqError, InfrastructureError, Location, UsageError
from hq.model.ports import BlobMissing, RandomAccess
from hq.model.ran import Ran
from hq.oci.remote import ImageManifest, read_diff_ids, read_document
from hq.oci.tar import END, entry, padding
from hq.transfer.push import BlobSource

DEFAULT_ENGINE: Final = "unix:///var/run/docker.sock"
_LOCAL: Final = "unix://"
_PATIENCE: Final = 1800  # seconds that the engine may need to unpack a large layer
_PIECE: Final = 256 << 10
_CONTAINERD: Final = "io.containerd.snapshotter.v1"
_ZSTD: Final = "+zstd"
_ZSTD_SINCE: Final = (1, 42)  # Docker 23

_ADDRESS: Final = re.compile(r"unix:///.|(tcp|ssh|https?|npipe)://[^/]|npipe:////.")

Progress = Callable[[int, int], None]


class Loaded(NamedTuple):
    """What a load did.

    ``sent`` and ``kept``: layers that were sent, and that the engine had. ``bytes_sent``: of all
    requests. ``already``: the engine had the image itself.
    """

    image_id: str
    tags: tuple[str, ...]
    engine: str
    sent: int
    kept: int
    bytes_sent: int
    already: bool


class _Image(NamedTuple):
    """What is to be loaded."""

    manifest: ImageManifest
    diff_ids: tuple[DiffId, ...]
    config: bytes
    tags: tuple[str, ...]

    @property
    def image_id(self) -> str:
        return str(self.manifest.config.ref.digest)


def load_image(
    source: BlobSource,
    manifest: BlobRef,
    tags: Sequence[str],
    *,
    engine: str,
    environment: Mapping[str, str],
    progress: Progress = lambda _done, _total: None,
) -> Loaded:
    """Loads the image of ``manifest`` and tags it (``name:tag``, fully written).

    ``engine``: the engine's address; empty for ``DOCKER_HOST``, Docker's current context or the
    default socket. Raises ``HqError``; ``BuildError`` when the image is damaged.
    """
    try:
        image = _read(source, manifest, tuple(dict.fromkeys(tags)))
        there = _glance(engine, environment, image)
        if there is not None:
            return there
        with _Engine(engine, environment) as client:
            return client.load(source, image, progress)
    except BlobMissing as error:
        raise BuildError(
            f"the image is not whole: it lacks {error.ref.digest}", hint="build the image again"
        ) from None


def _glance(engine: str, environment: Mapping[str, str], image: _Image) -> Loaded | None:
    """What a load did that had nothing to do; ``None`` when that is not certain."""
    from hq.transfer.glance import version_if_there

    address = engine or environment.get("DOCKER_HOST") or _context_host(environment)
    address = address or DEFAULT_ENGINE
    if not address.startswith(_LOCAL):
        return None
    version = version_if_there(
        address.removeprefix(_LOCAL), image.tags, image.image_id, image.diff_ids
    )
    if not version:
        return None
    count = len(image.diff_ids)
    return Loaded(image.image_id, image.tags, _called(version, address), 0, count, 0, already=True)


def _called(version: str, address: str) -> str:
    return f"Docker {version} at {address}"


def _read(source: BlobSource, manifest: BlobRef, tags: tuple[str, ...]) -> _Image:
    document = read_document(source.read(manifest), f"manifest {manifest.digest}")
    if not isinstance(document, ImageManifest):
        raise BuildError(f"not an image manifest: {manifest.digest}")
    config = source.read(document.config.ref)
    diff_ids = read_diff_ids(config, f"configuration {document.config.ref.digest}")
    if len(diff_ids) != len(document.layers):
        raise BuildError(f"{len(document.layers)} layers, and {len(diff_ids)} DiffIDs")
    return _Image(document, diff_ids, config, tags)


class Containers:
    """Runs commands in new containers of one image that the engine has."""

    def __init__(self, engine: str, environment: Mapping[str, str], image_id: Digest) -> None:
        self._engine = engine
        self._environment = environment
        self._image_id = image_id

    def why_not(self) -> str:
        """Why there can be none, or empty."""
        try:
            with _Engine(self._engine, self._environment) as client:
                return client.lacks(self._image_id)
        except HqError as error:
            return error.message

    def run(self, command: Sequence[str], env: Mapping[str, str], timeout: float) -> Ran:
        """Runs ``command`` without network, on a read-only tree. Raises ``HqError``."""
        with _Engine(self._engine, self._environment) as client:
            return client.run(self._image_id, command, env, timeout)


class _Missing(Exception):
    """The engine misses the layer of this number."""

    def __init__(self, layer: int) -> None:
        super().__init__(layer)
        self.layer = layer


class _Engine:
    """A connection to one engine."""

    def __init__(self, address: str, environment: Mapping[str, str]) -> None:
        self._address, self._options = _address(address, environment)
        if not _ADDRESS.match(self._address):
            raise UsageError(
                f"{self._address!r} is no address of a Docker engine",
                hint="give unix:///PATH, tcp://HOST:PORT or ssh://HOST",
            )
        self._bytes = 0

    def __enter__(self) -> Self:
        import docker  # type: ignore[import-untyped]

        try:
            self._knock()
            self._api: Any = docker.APIClient(
                base_url=self._address, timeout=_PATIENCE, **self._options
            )
            self._info: dict[str, Any] = self._api.info()
        except (docker.errors.DockerException, OSError, ValueError) as error:
            raise self._unreachable(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._api.close()

    def _knock(self) -> None:
        """Tries a socket first: the SDK leaks one that it cannot connect. Raises ``OSError``."""
        import socket

        if self._address.startswith(_LOCAL):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(self._address.removeprefix(_LOCAL))

    @property
    def name(self) -> str:
        return _called(str(self._info.get("ServerVersion", "?")), self._address)

    def load(self, source: BlobSource, image: _Image, progress: Progress) -> Loaded:
        """Loads the image. Raises ``HqError``."""
        count = len(image.diff_ids)
        there = self._inspect(image.image_id)
        already = there is not None and _diff_ids(there) == list(image.diff_ids)
        if already:
            self._tag(image)
            first = count
        else:
            first = self._send_what_is_missing(source, image, progress)
        self._verify(image)
        return Loaded(
            image_id=image.image_id,
            tags=image.tags,
            engine=self.name,
            sent=count - first,
            kept=first,
            bytes_sent=self._bytes,
            already=already,
        )

    def _send_what_is_missing(self, source: BlobSource, image: _Image, progress: Progress) -> int:
        """Sends layers from a number on, which it returns."""
        first = self._guess(image)
        while True:
            try:
                self._send(source, image, first, progress)
                return first
            except _Missing as missing:
                # Each round begins lower, so this ends.
                first = min(missing.layer, first - 1)

    def _guess(self, image: _Image) -> int:
        """How many layers, from the bottom, the engine may have."""
        if self._is_containerd():
            return 0
        for tag in image.tags:
            there = self._inspect(tag)
            if there is not None:
                return _common(_diff_ids(there), image.diff_ids)
        return len(image.diff_ids)

    def _is_containerd(self) -> bool:
        rows = self._info.get("DriverStatus") or []
        return ["driver-type", _CONTAINERD] in [list(row) for row in rows]

    def _inspect(self, name: str) -> dict[str, Any] | None:
        import docker

        try:
            found: dict[str, Any] = self._api.inspect_image(name)
        except docker.errors.NotFound:
            return None
        except (docker.errors.DockerException, OSError) as error:
            raise self._failed(error) from error
        return found

    def lacks(self, image_id: str) -> str:
        """Why no container of the image can be made, or empty. Raises ``HqError``."""
        if self._inspect(image_id) is None:
            return f"{self.name} does not have the image; run hq load first"
        return ""

    def run(
        self, image_id: str, command: Sequence[str], env: Mapping[str, str], timeout: float
    ) -> Ran:
        """Runs a command in a new container that has no network. Raises ``HqError``."""
        import docker
        import requests

        host = self._api.create_host_config(
            network_mode="none",
            read_only=True,
            tmpfs={"/tmp": ""},  # noqa: S108 - in the container
            cap_drop=["ALL"],
        )
        container: Any = None
        try:
            container = self._api.create_container(
                image_id,
                command=list(command[1:]),
                entrypoint=[command[0]],
                environment=dict(env),
                host_config=host,
            )
            self._api.start(container)
            code = int(self._api.wait(container, timeout=timeout)["StatusCode"])
            output = self._api.logs(container, tail=10_000).decode("utf-8", "replace")
        except requests.exceptions.ConnectionError:  # how the SDK says that the time is up
            return Ran(-1, "")
        except (docker.errors.DockerException, OSError) as error:
            raise self._failed(error) from error
        finally:
            if container is not None:
                self._api.remove_container(container, force=True)
        return Ran(code, output)

    def _tag(self, image: _Image) -> None:
        import docker

        for tag in image.tags:
            repository, _, version = tag.rpartition(":")
            try:
                self._api.tag(image.image_id, repository, version)
            except (docker.errors.DockerException, OSError) as error:
                raise self._failed(error) from error

    def _send(self, source: BlobSource, image: _Image, first: int, progress: Progress) -> None:
        import docker

        archive = _Archive(source, image, first, zstd=self._takes_zstd())
        try:
            for line in self._api.load_image(self._counted(archive, progress), quiet=True):
                if "error" in line:
                    raise self._refused(str(line["error"]), image, first)
        except (docker.errors.DockerException, OSError) as error:
            raise self._failed(error) from error

    def _counted(self, archive: _Archive, progress: Progress) -> Iterator[bytes]:
        done = 0
        for piece in archive.pieces():
            yield piece
            done += len(piece)
            self._bytes += len(piece)
            progress(done, max(done, archive.size))

    def _takes_zstd(self) -> bool:
        try:
            major, minor = (int(part) for part in str(self._api.api_version).split("."))
        except ValueError:
            return False
        return (major, minor) >= _ZSTD_SINCE

    def _refused(self, message: str, image: _Image, first: int) -> Exception:
        if "no such file or directory" in message:
            for number, layer in enumerate(image.manifest.layers[:first]):
                if layer.ref.digest.hex in message:
                    return _Missing(number)
            if first:
                return _Missing(0)
        full = "no space left" in message
        return InfrastructureError(
            f"the engine cannot load the image: {message}",
            details=[f"engine: {self.name}"],
            hint="free space where the engine keeps its images, then load again"
            if full
            else "look at the engine's log, then load again",
        )

    def _verify(self, image: _Image) -> None:
        """Reads back what the engine has under the image's ID and tags. Raises ``BuildError``."""
        names = image.tags if self._is_containerd() else (image.image_id, *image.tags)
        for name in names:
            there = self._inspect(name)
            found = _diff_ids(there) if there else []
            same_id = self._is_containerd() or (there or {}).get("Id") == image.image_id
            if there is None or found != list(image.diff_ids) or not same_id:
                raise InfrastructureError(
                    f"the engine has another image under {name} than was loaded",
                    details=[
                        f"expected: {image.image_id}",
                        f"found:    {(there or {}).get('Id', 'nothing')}",
                        f"engine:   {self.name}",
                    ],
                    hint="another load may have moved the tag meanwhile; load again",
                )

    def _unreachable(self, error: Exception) -> HqError:
        text = str(error)
        hint = "start the engine, or name another with --engine URL or DOCKER_HOST"
        why = "it does not answer"
        if "Permission denied" in text or "PermissionError" in text:
            why, hint = "permission denied", "join the group that owns the socket, or use sudo"
        elif "No such file" in text or "FileNotFoundError" in text:
            why = "there is no such socket"
        elif "refused" in text:
            why = "connection refused"
        return InfrastructureError(
            f"cannot reach a Docker engine at {self._address}: {why}", hint=hint
        )

    def _failed(self, error: Exception) -> InfrastructureError:
        explanation = getattr(error, "explanation", None) or type(error).__name__
        return InfrastructureError(
            f"the Docker engine failed: {explanation}",
            details=[f"engine: {self.name}"],
            hint="look at the engine's log, then run hq again",
        )


def _diff_ids(inspected: Mapping[str, Any]) -> list[str]:
    return list((inspected.get("RootFS") or {}).get("Layers") or [])


def _common(one: Sequence[str], two: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        count += 1
    return count


def _address(address: str, environment: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The engine's address and further options for the SDK.

    The order is docker's: what is said, ``DOCKER_HOST``, the current context, the default.
    """
    if address:
        return address, {}
    host = environment.get("DOCKER_HOST", "")
    if host:
        import docker

        options: dict[str, Any] = docker.utils.kwargs_from_env(environment=dict(environment))
        try:
            return str(options.pop("base_url", host)), options
        except docker.errors.TLSParameterError as error:
            raise UsageError(
                "DOCKER_TLS_VERIFY and DOCKER_CERT_PATH name certificates that cannot be used",
                where=Location(environment.get("DOCKER_CERT_PATH", "")),
            ) from error
    return _context_host(environment) or DEFAULT_ENGINE, {}


def _context_host(environment: Mapping[str, str]) -> str:
    """The endpoint of Docker's current context, if there is another than the default."""
    import hashlib
    import os

    from hq.transfer.credentials import config_path

    path = config_path(environment)
    name = environment.get("DOCKER_CONTEXT", "")
    try:
        if not name:
            with open(path, "rb") as file:
                name = json.loads(file.read()).get("currentContext", "")
        if not name or name == "default":
            return ""
        folder = hashlib.sha256(name.encode()).hexdigest()
        meta = os.path.join(os.path.dirname(path), "contexts", "meta", folder, "meta.json")
        with open(meta, "rb") as file:
            return str(json.loads(file.read())["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


class _Archive:
    """The tar of an image with the layers from ``first`` on."""

    def __init__(self, source: BlobSource, image: _Image, first: int, *, zstd: bool) -> None:
        self._source = source
        self._image = image
        self._first = first
        self._zstd = zstd
        layers = image.manifest.layers[first:]
        self.size = sum(layer.ref.size for layer in layers) + len(image.config)

    def pieces(self) -> Iterator[bytes]:
        """The tar. Raises ``BuildError`` for a damaged layer."""
        image = self._image
        layers = image.manifest.layers
        listing = {
            "Config": _place(image.manifest.config.ref),
            "RepoTags": list(image.tags),
            "Layers": [_place(layer.ref) for layer in layers],
        }
        yield from _file("manifest.json", json.dumps([listing]).encode())
        yield from _file(_place(image.manifest.config.ref), image.config)
        written: set[BlobRef] = set()
        for layer in layers[self._first :]:
            if layer.ref in written:
                continue
            written.add(layer.ref)
            with self._source.open(layer.ref) as content:
                if layer.media_type.endswith(_ZSTD) and not self._zstd:
                    yield from self._inflated(layer.ref, content)
                else:
                    yield entry(_place(layer.ref), "f", layer.ref.size, 0)
                    yield from _checked(content, layer.ref)
                    yield padding(layer.ref.size)
        yield END

    def _inflated(self, ref: BlobRef, content: RandomAccess) -> Iterator[bytes]:
        """The layer without zstd, for older engines. Read twice: a tar wants sizes."""
        size = sum(len(piece) for piece in _unzstd(_checked(content, ref)))
        yield entry(_place(ref), "f", size, 0)
        yield from _unzstd(_checked(content, ref))
        yield padding(size)


def _place(ref: BlobRef) -> str:
    return f"blobs/sha256/{ref.digest.hex}"


def _file(name: str, data: bytes) -> Iterator[bytes]:
    yield entry(name, "f", len(data), 0) + data + padding(len(data))


def _checked(content: RandomAccess, ref: BlobRef) -> Iterator[bytes]:
    """The blob; its last piece only if all of it is what its name says."""
    import hashlib

    whole = hashlib.sha256()
    at = 0
    while at < ref.size:
        piece = content.pread(at, min(_PIECE, ref.size - at))
        whole.update(piece)
        at += len(piece)
        if not piece or (at == ref.size and whole.hexdigest() != ref.digest.hex):
            raise BuildError(
                f"a blob of the image is damaged: {ref.digest}",
                details=[f"size: {ref.size} bytes"],
                hint="build the image again; 'hq store verify' finds damage in the store",
            )
        yield piece


def _unzstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    for piece in pieces:
        out = frame.decompress(piece)
        if out:
            yield out
