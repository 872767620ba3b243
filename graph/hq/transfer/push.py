"""Pushes an image and what is attached to it.

The order is what makes a killed push harmless: blobs, then the manifest by its digest, then the
attachments, the tags last. Until a tag is set nobody finds the image, and whoever finds it finds
all of it. Where nothing is attached, the manifest goes under the first tag at once. A second push
sends what the first had not brought.

A registry that holds the manifest by its digest holds its blobs, by the specification; then no blob
is asked for. In any other case every one is: registries have lost blobs of images that they list,
and some take a manifest without a look at its blobs. Blobs that an earlier push or pull left in
another repository of the registry are mounted from there.

Attachments (provenance, SBOM) are manifests of their own with the image as ``subject``. Where a
registry keeps no list of such referrers, the list is an index under a tag (distribution-spec 1.1,
"Referrers Tag Schema"), which is read back, because two pushes may write it at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, InfrastructureError
from hq.model.ports import BlobMissing, RandomAccess
from hq.oci.image import INDEX_TYPE, Document
from hq.oci.remote import (
    EMPTY,
    Descriptor,
    ImageManifest,
    attachment,
    read_document,
    referrers_index,
    referrers_tag,
)
from hq.transfer.auth import push_scope
from hq.transfer.registry import Registry, Scopes
from hq.transfer.team import Team
from hq.transfer.upload import bring_blob

_INDEX_ROUNDS: Final = 3
Progress = Callable[[str, int, int], None]
"""Gets what is sent or fetched, how many bytes of it, and its size."""

Mounts = Callable[[Digest], Sequence[str]]


class BlobSource(Protocol):
    """Where the image's bytes are: a store or a layout."""

    def open(self, ref: BlobRef) -> AbstractContextManager[RandomAccess]:
        """A blob for reading. Raises ``BlobMissing``."""
        ...

    def read(self, ref: BlobRef) -> bytes:
        """A blob, verified. Raises ``BlobMissing``."""
        ...


class Attachment(NamedTuple):
    """A file to attach. ``annotations``: of the file's descriptor."""

    artifact_type: str
    media_type: str
    data: bytes
    annotations: Mapping[str, str] = {}


class Attached(NamedTuple):
    """A file that is attached: its kind, its manifest, and whether that was new."""

    artifact_type: str
    manifest: Digest
    new: bool


class Pushed(NamedTuple):
    """What a push did. ``blobs``: how each got there (``there``, ``mounted``, ``sent``), by digest.

    ``bytes_sent``: contents of requests, with what had to be repeated. ``native``: whether the
    registry keeps the list of attachments itself.
    """

    manifest: Digest
    tags: tuple[str, ...]
    blobs: Mapping[Digest, str]
    bytes_sent: int
    attached: tuple[Attached, ...]
    native: bool


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Takes the progress of a push and does nothing with it."""


def push_image(
    registry: Registry,
    repository: str,
    source: BlobSource,
    manifest: BlobRef,
    tags: Sequence[str],
    *,
    attachments: Sequence[Attachment] = (),
    mounts: Mounts = lambda _: (),
    progress: Progress = no_progress,
    threads: int = 4,
) -> Pushed:
    """Pushes ``manifest`` and everything that it names to a repository, and tags it.

    ``mounts``: for a blob, repositories of the registry that may have it, the likeliest first.
    Raises ``HqError``; ``BuildError`` when a blob is damaged or missing in ``source``.
    """
    scopes = (push_scope(repository),)
    registry.ping(scopes)
    push = _Push(registry, repository, source, scopes, mounts, progress)
    image = push.read(manifest)
    if registry.manifest_digest(repository, manifest.digest, scopes) != manifest.digest:
        name = tags[0] if tags and not attachments else manifest.digest
        refs = [image.config.ref, *(layer.ref for layer in image.layers)]
        push.blobs(list(dict.fromkeys(refs)), threads)
        data = source.read(manifest)
        registry.put_manifest(repository, name, image.media_type, data, scopes)
    subject = Descriptor(image.media_type, manifest)
    attached, native = push.attach(subject, attachments) if attachments else ((), True)
    for tag in dict.fromkeys(tags):
        push.tag(tag, image.media_type, manifest)
    return Pushed(
        manifest=manifest.digest,
        tags=tuple(dict.fromkeys(tags)),
        blobs=push.brought,
        bytes_sent=registry.http.sent,
        attached=attached,
        native=native,
    )


class _Push:
    """One push to one repository."""

    def __init__(
        self,
        registry: Registry,
        repository: str,
        source: BlobSource,
        scopes: Scopes,
        mounts: Mounts,
        progress: Progress,
    ) -> None:
        self._registry = registry
        self._repository = repository
        self._source = source
        self._scopes = scopes
        self._mounts = mounts
        self._progress = progress
        self._team = Team("hq-push")
        self.brought: dict[Digest, str] = {}

    def read(self, manifest: BlobRef) -> ImageManifest:
        """The manifest as a value. Raises ``BuildError``."""
        try:
            data = self._source.read(manifest)
        except BlobMissing as error:
            raise _incomplete(error.ref) from None
        image = read_document(data, f"manifest {manifest.digest}")
        if not isinstance(image, ImageManifest):
            raise BuildError(f"not an image manifest: {manifest.digest}")
        return image

    def blobs(self, refs: Sequence[BlobRef], threads: int) -> None:
        """Brings blobs, several at a time."""
        # Large ones first: the last to end decides when all is done.
        self._team.run(sorted(refs, key=lambda ref: -ref.size), self._blob, threads)

    def _blob(self, ref: BlobRef) -> None:
        def report(done: int) -> None:
            self._team.check()
            self._progress(ref.digest, done, ref.size)

        try:
            with self._source.open(ref) as content:
                self.brought[ref.digest] = bring_blob(
                    self._registry,
                    self._repository,
                    ref,
                    content,
                    self._scopes,
                    mounts=self._mounts(ref.digest),
                    progress=report,
                )
        except BlobMissing as error:
            raise _incomplete(error.ref) from None

    def tag(self, tag: str, media_type: str, manifest: BlobRef) -> None:
        """Sets a tag, unless it stands already."""
        there = self._registry.manifest_digest(self._repository, tag, self._scopes)
        if there != manifest.digest:
            data = self._source.read(manifest)
            self._registry.put_manifest(self._repository, tag, media_type, data, self._scopes)

    # Attachments.

    def attach(
        self, subject: Descriptor, attachments: Sequence[Attachment]
    ) -> tuple[tuple[Attached, ...], bool]:
        """Attaches files to the image and reads the list of referrers back."""
        registry, repository = self._registry, self._repository
        listed, native = registry.referrers(repository, subject.ref.digest, self._scopes)
        known = {entry.ref.digest for entry in listed}
        attached: list[Attached] = []
        missing: list[Descriptor] = []
        for item in attachments:
            blob = Descriptor(item.media_type, BlobRef.of(item.data), annotations=item.annotations)
            document = attachment(subject, item.artifact_type, [blob])
            new = document.ref.digest not in known
            attached.append(Attached(item.artifact_type, document.ref.digest, new))
            if new:
                native = self._attachment(item, document) or native
                missing.append(
                    Descriptor(document.media_type, document.ref, artifact_type=item.artifact_type)
                )
        if missing and not native:
            self._list(subject.ref.digest, missing)
        if missing:
            self._check(subject.ref.digest, missing)
        return tuple(attached), native

    def _attachment(self, item: Attachment, document: Document) -> bool:
        for data in (EMPTY, item.data):
            ref = BlobRef.of(data)
            bring_blob(
                self._registry,
                self._repository,
                ref,
                _Bytes(data),
                self._scopes,
                # The default binds this round's value; mypy cannot type a lambda with one.
                progress=lambda done, ref=ref: self._progress(ref.digest, done, ref.size),  # type: ignore[misc]
            )
        return self._registry.put_manifest(
            self._repository,
            document.ref.digest,
            document.media_type,
            document.data,
            self._scopes,
        )

    def _list(self, subject: Digest, missing: Sequence[Descriptor]) -> None:
        """Adds to the index under the referrers tag, until it stands there."""
        tag = referrers_tag(subject)
        for round_ in range(1, _INDEX_ROUNDS + 1):
            there, _ = self._registry.referrers(self._repository, subject, self._scopes)
            known = {entry.ref.digest for entry in there}
            entries = [*there, *(entry for entry in missing if entry.ref.digest not in known)]
            if len(entries) == len(there):
                return
            listing = referrers_index(entries)
            try:
                self._registry.put_manifest(
                    self._repository, tag, INDEX_TYPE, listing.data, self._scopes
                )
            except InfrastructureError:
                if round_ == _INDEX_ROUNDS:
                    raise

    def _check(self, subject: Digest, missing: Sequence[Descriptor]) -> None:
        there, _ = self._registry.referrers(self._repository, subject, self._scopes)
        known = {entry.ref.digest for entry in there}
        lost = [entry for entry in missing if entry.ref.digest not in known]
        if lost:
            raise InfrastructureError(
                f"{self._registry.name} does not list what was attached to {subject}",
                details=[f"missing: {entry.artifact_type} {entry.ref.digest}" for entry in lost],
                hint="another push may have written the list meanwhile; push again",
            )


class _Bytes:
    """``RandomAccess`` over bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def pread(self, offset: int, length: int) -> bytes:
        """A part."""
        return self._data[offset : offset + length]


def _incomplete(ref: BlobRef) -> BuildError:
    return BuildError(
        f"the image is not whole: it lacks {ref.digest}",
        details=[f"size: {ref.size} bytes"],
        hint="build the image again",
    )
