"""Brings in what images stand on: packages by apt, images from a layout or a registry.

A node names bytes, not a place: the key of a base is the same wherever it comes from. The place is
found here, in the declaration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError
from hq.model.project import BaseSpec, LockedDeb
from hq.oci.image import Platform
from hq.store.disk import DiskStore

Progress = Callable[[int, int], None]


class Bases:
    """The bases of the declarations that a session has seen."""

    def __init__(self, disk: DiskStore, root: str, *, offline: bool) -> None:
        self._disk = disk
        self._root = root
        self._offline = offline
        self._bases: list[BaseSpec] = []

    def declare(self, bases: Iterable[BaseSpec | None]) -> None:
        """Takes note of the bases of a declaration."""
        self._bases += [base for base in bases if base and base not in self._bases]

    def fetch_deb(self, deb: LockedDeb, progress: Progress) -> BlobRef:
        """The package in the store, with all others of its base that were missing."""
        ref = BlobRef(deb.sha256, deb.size)
        if not self._disk.has(ref):
            from hq.transfer.debs import fetch_debs

            base = next(base for base in self._bases if deb in base.debs)
            fetch_debs(self._disk, base, progress, offline=self._offline)
        return ref

    def base_image(
        self, digest: Digest, os_: str, architecture: str, progress: Progress
    ) -> BlobRef:
        """The manifest of a base image, which is in the store with all its blobs."""
        base = next(base for base in self._bases if base.digest == digest)
        platform = Platform(os=os_, architecture=architecture)
        if base.kind == "layout":
            from hq.transfer.layout import import_layout

            folder = os.path.join(self._root, base.place)
            return import_layout(self._disk, folder, digest, platform, progress)
        return self._pull(base, digest, platform, progress)

    def _pull(
        self, base: BaseSpec, digest: Digest, platform: Platform, progress: Progress
    ) -> BlobRef:
        if self._offline:
            raise BuildError(
                f"the base {base.place} is not in the store, and --offline forbids to fetch it",
                details=[f"digest: {digest}"],
                hint="run once without --offline",
            )
        from hq.app.ship import connect
        from hq.oci.reference import parse_reference
        from hq.transfer.pull import pull_image

        reference = parse_reference(base.place).at(digest)
        registry = connect(reference, os.environ, plain_http=False, threads=4)
        pulled = pull_image(
            registry,
            reference,
            self._disk,
            platform,
            progress=lambda _, done, total: progress(done, total),
        )
        return pulled.manifest
