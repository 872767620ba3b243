"""Brings an image from a registry into the store, as it is: its layers are never rewritten.

By digest the name fixes the content, and anything else is refused. By tag the registry says what
the tag stands for now; the digest is in the result, for a lock. An index leads to the manifest for
one platform, whose digest the index states.

Each blob is hashed while it is written and appears whole or not at all; a broken download goes on
where it ended. Blobs that are there already are not fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from hq.model.digest import BlobRef, DiffId, Digest
from hq.model.errors import BuildError, InfrastructureError, UsageError
from hq.model.ports import BlobStore, BlobWriter
from hq.oci.image import Platform
from hq.oci.reference import Reference
from hq.oci.remote import (
    MAX_CONFIG,
    Descriptor,
    ImageManifest,
    choose,
    platform_name,
    read_diff_ids,
    read_document,
    read_platform,
)
from hq.transfer.auth import pull_scope
from hq.transfer.http import ATTEMPTS, Broken
from hq.transfer.push import Progress, no_progress
from hq.transfer.registry import Manifest, Registry
from hq.transfer.team import Team

_DEPTH: Final = 3


class Writer(BlobWriter, Protocol):
    """A writer that tells the name before the blob appears."""

    def seal(self) -> BlobRef:
        """Ends the writing; the name that ``commit`` will give."""
        ...


class Store(BlobStore, Protocol):
    """A store with such writers."""

    def create(self) -> AbstractContextManager[Writer]:
        """A new blob to be written in parts."""
        ...


class Pulled(NamedTuple):
    """An image in the store.

    ``named``: the digest of what the reference stands for, an index or ``manifest`` itself.
    ``layers`` from the bottom, with the DiffIDs that the configuration states for them.
    """

    reference: Reference
    named: Digest
    media_type: str
    manifest: BlobRef
    config: BlobRef
    layers: tuple[Descriptor, ...]
    diff_ids: tuple[DiffId, ...]
    platform: Platform


def resolve(registry: Registry, reference: Reference) -> Manifest:
    """What a reference stands for. Raises ``UsageError`` when there is no such thing."""
    found = registry.manifest(reference.repository, reference.target)
    if found is None:
        raise UsageError(
            f"there is no image {reference.name}"
            f"{'@' if reference.digest else ':'}{reference.target}",
            hint="check the name; a private one may need 'docker login "
            f"{reference.registry}' first",
        )
    return found


def pull_image(
    registry: Registry,
    reference: Reference,
    store: Store,
    platform: Platform,
    *,
    progress: Progress = no_progress,
    room: Callable[[int], None] = lambda _: None,
    threads: int = 4,
) -> Pulled:
    """The image in the store, with every blob verified.

    ``room`` is told how many bytes of layers will be fetched, before they are.

    Raises ``UsageError`` when it is not there, ``BuildError`` when it is not what its name says or
    no image for ``platform``, ``InfrastructureError``.
    """
    registry.ping((pull_scope(reference.repository),))
    found = resolve(registry, reference)
    named = found.ref.digest
    manifest, image = _descend(registry, reference, found, platform)
    where = str(reference)
    _check_descriptors(image, where)
    job = _Pull(registry, reference.repository, store, progress)
    job.blob(image.config.ref)
    config = store.read(image.config.ref)
    diff_ids = read_diff_ids(config, where)
    _check_config(image, diff_ids, read_platform(config, where), platform, where)
    refs = list(dict.fromkeys(layer.ref for layer in image.layers))
    room(sum(ref.size for ref in refs if not store.has(ref)))
    job.blobs(refs, threads)
    store.put(found.data)
    store.put(manifest.data)
    return Pulled(
        reference=reference,
        named=named,
        media_type=image.media_type,
        manifest=manifest.ref,
        config=image.config.ref,
        layers=image.layers,
        diff_ids=diff_ids,
        platform=platform,
    )


def _descend(
    registry: Registry, reference: Reference, found: Manifest, platform: Platform
) -> tuple[Manifest, ImageManifest]:
    """From an index to the manifest for a platform."""
    where = str(reference)
    for _ in range(_DEPTH):
        document = read_document(found.data, where, found.media_type)
        if isinstance(document, ImageManifest):
            return found, document
        entry = choose(document, platform, where)
        inner = registry.manifest(reference.repository, entry.ref.digest)
        if inner is None:
            raise UsageError(
                f"{registry.name} has the index {reference} and not the image it names for "
                f"{platform_name(platform)}",
                details=[f"image: {entry.ref.digest}"],
                hint="push the image there again, or take another",
            )
        found = inner
    raise BuildError(f"{where}: indexes within indexes, more than {_DEPTH} deep")


def _check_descriptors(image: ImageManifest, where: str) -> None:
    if image.config.ref.size > MAX_CONFIG:
        raise BuildError(f"{where}: the configuration has {image.config.ref.size} bytes")
    for layer in image.layers:
        if layer.urls or "nondistributable" in layer.media_type or "foreign" in layer.media_type:
            raise BuildError(
                f"{where}: a layer is not to be had from the registry",
                details=[f"media type: {layer.media_type}"],
                hint="take another base image",
            )


def _check_config(
    image: ImageManifest,
    diff_ids: Sequence[DiffId],
    found: Platform,
    wanted: Platform,
    where: str,
) -> None:
    if len(diff_ids) != len(image.layers):
        raise BuildError(
            f"{where}: {len(image.layers)} layers, and {len(diff_ids)} DiffIDs",
            hint="the image is damaged; take another",
        )
    if (found.os, found.architecture) != (wanted.os, wanted.architecture):
        raise BuildError(
            f"{where}: the image is for {platform_name(found)}",
            details=[f"expected: {platform_name(wanted)}"],
            hint="name another platform, or another image",
        )


class _Sink:
    """A blob in the making, and how much of it there is."""

    def __init__(
        self, writer: Writer, ref: BlobRef, report: Callable[[BlobRef, int], None]
    ) -> None:
        self._writer = writer
        self._report = report
        self.ref = ref
        self.done = 0

    def append(self, piece: bytes) -> None:
        self._writer.write(piece)
        self.done += len(piece)
        self._report(self.ref, self.done)


class _Pull:
    """The fetching of one image's blobs."""

    def __init__(
        self, registry: Registry, repository: str, store: Store, progress: Progress
    ) -> None:
        self._registry = registry
        self._repository = repository
        self._store = store
        self._progress = progress
        self._team = Team("hq-pull")

    def blobs(self, refs: Sequence[BlobRef], threads: int) -> None:
        """Fetches blobs, several at a time; the first failure ends them all."""
        self._team.run(sorted(refs, key=lambda ref: -ref.size), self.blob, threads)

    def blob(self, ref: BlobRef) -> None:
        """Fetches one blob, unless it is there. Raises ``HqError``."""
        if self._store.has(ref):
            return
        with self._store.create() as writer:
            self._fill(_Sink(writer, ref, self._report))
            found = writer.seal()
            if found != ref:
                raise self._other(ref, found)
            writer.commit()

    def _fill(self, sink: _Sink) -> None:
        for failures in range(1, ATTEMPTS + 1):
            why = self._more(sink)
            if not why:
                return
            if failures < ATTEMPTS:
                self._registry.http.pause(failures)
        raise self._broken(sink.ref, sink.done, why)

    def _more(self, sink: _Sink) -> str:
        """Appends what the registry gives from where it ended; why it ended early, if it did."""
        try:
            for piece in self._pieces(sink.ref, sink.done):
                if sink.done + len(piece) > sink.ref.size:
                    raise self._registry.garbled(
                        f"read a blob of {self._repository}",
                        f"{sink.ref.digest}: more than the expected {sink.ref.size} bytes",
                    )
                sink.append(piece)
        except Broken as error:
            return str(error)
        return "" if sink.done == sink.ref.size else "the answer ended early"

    def _pieces(self, ref: BlobRef, offset: int) -> Iterator[bytes]:
        answer, begins = self._registry.open_blob(self._repository, ref, offset)
        with answer:
            skip = offset - begins
            for piece in answer.pieces():
                yield piece[skip:]
                skip = max(0, skip - len(piece))

    def _report(self, ref: BlobRef, done: int) -> None:
        self._team.check()
        self._progress(ref.digest, done, ref.size)

    def _other(self, ref: BlobRef, found: BlobRef) -> BuildError:
        return BuildError(
            f"{self._registry.name} gives another blob than was asked for",
            details=[f"expected: {ref.digest}", f"found:    {found.digest}"],
            hint="do not use it; ask who runs the registry, and look at proxies in between",
        )

    def _broken(self, ref: BlobRef, done: int, why: str) -> InfrastructureError:
        return InfrastructureError(
            f"the download of {ref.digest} ended early, {ATTEMPTS} times",
            details=[f"got: {done} of {ref.size} bytes", f"last: {why}"],
            hint="run hq again; if it stays, look at the network and at proxies in between",
        )
