"""A layer blob as a tar, to look into. Building never does this; comparing and blaming do."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import BinaryIO, cast

from hq.model.ports import RandomAccess


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """The bytes of a regular member; members are read in their order."""
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def open_tar(blob: RandomAccess) -> tarfile.TarFile:
    """The layer's tar, for one pass; gzip, zstd or plain by its first bytes."""
    stream = cast("BinaryIO", _Stream(blob))
    head = blob.pread(0, 4)
    if head == b"\x28\xb5\x2f\xfd":
        from zstandard import ZstdDecompressor

        stream = cast("BinaryIO", ZstdDecompressor().stream_reader(stream, read_across_frames=True))
    elif head[:2] == b"\x1f\x8b":
        # Not tarfile's own: that reads the first of a file's gzip members.
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    return tarfile.open(fileobj=stream, mode="r|")


class _Stream(io.RawIOBase):
    """A blob as a file that is read from start to end."""

    def __init__(self, blob: RandomAccess) -> None:
        super().__init__()
        self._blob = blob
        self._at = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = self._blob.size - self._at if size < 0 else size
        data = self._blob.pread(self._at, wanted)
        self._at += len(data)
        return data
