"""An OCI image layout on disk as a source of blobs: hq's own output, or a stranger's.

Reads what ``layout`` writes, and any layout of the specification (image-layout.md). Nothing of it
is believed: a blob read whole is verified, one opened for reading in parts has its length checked,
and its reader checks the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from hq.model.digest import BlobRef, Digest, DigestError
from hq.model.errors import BuildError, Location
from hq.model.ports import BlobMissing
from hq.store.faults import OUTPUT, disk_fault
from hq.store.reader import FileReader

_MAX_INDEX = 4 << 20
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class LayoutSource:
    """The blobs of the layout in ``directory``."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, ref: BlobRef) -> FileReader:
        """A blob for reading in parts, not verified. Raises ``BlobMissing``."""
        path = f"{self.directory}/blobs/sha256/{ref.digest.hex}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise BlobMissing(ref) from None
        except OSError as error:
            raise disk_fault(
                error, "read the image layout", self.directory, elsewhere=OUTPUT
            ) from error
        if os.fstat(fd).st_size != ref.size:
            os.close(fd)
            raise BlobMissing(ref)
        return FileReader(fd, ref.size, self.directory)

    def read(self, ref: BlobRef) -> bytes:
        """A blob, verified. Raises ``BlobMissing`` also for one that is damaged."""
        with self.open(ref) as blob:
            data = blob.pread(0, ref.size)
        if BlobRef.of(data) != ref:
            raise BlobMissing(ref)
        return data

    def manifest(self) -> BlobRef:
        """The one image manifest that ``index.json`` names. Raises ``BuildError``."""
        path = os.path.join(self.directory, "index.json")
        try:
            with open(path, "rb") as file:
                document = json.loads(file.read(_MAX_INDEX))
            entries = [e for e in document["manifests"] if e.get("mediaType") == _MANIFEST]
            if len(entries) == 1:
                return _ref(entries[0])
        except OSError as error:
            raise disk_fault(
                error, "read the image layout", self.directory, elsewhere=OUTPUT
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, DigestError):
            entries = []
        raise BuildError(
            f"expected a layout with one image, found {len(entries)}", where=Location(path)
        )


def _ref(entry: Mapping[str, Any]) -> BlobRef:
    return BlobRef(Digest.parse(entry["digest"]), int(entry["size"]))
