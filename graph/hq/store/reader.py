"""A stored blob open for reading in parts, from any number of threads."""

from __future__ import annotations

import os
from typing import Self

from hq.store.faults import disk_fault


class FileReader:
    """``hq.model.ports.RandomAccess`` over an open file; the ``with`` block closes it.

    ``pread`` moves no file position, so threads do not disturb each other. Raises
    ``InfrastructureError`` when the disk fails.
    """

    __slots__ = ("_path", "fd", "size")

    def __init__(self, fd: int, size: int, path: str) -> None:
        self.fd = fd
        self.size = size
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        self.fd = -1

    def pread(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``; fewer only at the end."""
        try:
            data = os.pread(self.fd, length, offset)
            if len(data) == length or offset + len(data) >= self.size:
                return data
            return data + self._rest(offset + len(data), length - len(data))
        except OSError as error:
            raise disk_fault(error, "read a blob", self._path) from error

    def _rest(self, offset: int, length: int) -> bytes:
        """What a short read (a signal, more than 2 GiB) left over."""
        parts: list[bytes] = []
        while length and (part := os.pread(self.fd, length, offset)):
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def pread_into(self, offset: int, view: memoryview) -> int:
        """Fills ``view`` from ``offset`` with no copy in between; the number of bytes read."""
        try:
            return os.preadv(self.fd, [view], offset)
        except OSError as error:
            raise disk_fault(error, "read a blob", self._path) from error
