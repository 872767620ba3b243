"""A blob in the making: bytes are gathered into large chunks, hashed and written on the way.

A layer is put together from thousands of small parts, so parts are copied into a 1 MiB buffer and
only whole buffers are handed on. From the fourth buffer on a second thread hashes and writes them
(both give up the interpreter lock) while the caller makes the next; a small pool of buffers is used
again and again, which bounds the memory and spares the page faults of fresh ones. A fault in the
thread is raised by the caller's next call.

Parts of another blob are read straight into the buffer. Copying inside the kernel would not help:
the bytes have to pass through the hash anyway.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol, Self

from hq.model.digest import BlobRef, Digest
from hq.store.files import Temp, discard, write_all

if TYPE_CHECKING:
    from queue import SimpleQueue
    from threading import Thread

    from hq.model.ports import RandomAccess

CHUNK = 1 << 20
_INLINE_CHUNKS = 3  # a thread costs more than it saves for less
_POOL = 6

_Chunk = tuple[bytearray, int]


class Publisher(Protocol):
    """What the writer needs from its store."""

    def publish(self, temp: Temp, ref: BlobRef) -> None:
        """Gives the finished file its final name and closes it. Raises ``InfrastructureError``."""
        ...

    def fault(self, error: OSError, size: int) -> Exception:
        """The error to raise for a write that the disk refused."""
        ...


class DiskWriter:
    """``hq.model.ports.BlobWriter`` over a temporary file. For one thread at a time."""

    __slots__ = (
        "_buffer",
        "_chunks",
        "_error",
        "_fill",
        "_free",
        "_hash",
        "_publisher",
        "_queue",
        "_size",
        "_temp",
        "_thread",
    )

    def __init__(self, publisher: Publisher, temp: Temp) -> None:
        self._publisher = publisher
        self._temp: Temp | None = temp
        self._hash = hashlib.sha256()
        self._buffer = bytearray(CHUNK)
        self._fill = 0
        self._size = 0
        self._chunks = 0
        self._thread: Thread | None = None
        self._queue: SimpleQueue[_Chunk | None]
        self._free: SimpleQueue[bytearray]
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_thread()
        if self._temp is not None:
            discard(self._temp)
            self._temp = None

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size + self._fill

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends. Raises ``InfrastructureError``."""
        length = len(data)
        end = self._fill + length
        if end <= CHUNK:
            self._buffer[self._fill : end] = data
            self._fill = end
        else:
            self._write_long(memoryview(data))

    def _write_long(self, view: memoryview) -> None:
        start = 0
        while start < len(view):
            if self._fill == CHUNK:
                self._flush()
            part = view[start : start + CHUNK - self._fill]
            self._buffer[self._fill : self._fill + len(part)] = part
            self._fill += len(part)
            start += len(part)

    def write_range(self, source: RandomAccess, offset: int, length: int) -> None:
        """Appends ``length`` bytes of ``source`` from ``offset``.

        Raises ``InfrastructureError``; ``EOFError`` when the source is shorter than that.
        """
        while length:
            if self._fill == CHUNK:
                self._flush()
            wanted = min(length, CHUNK - self._fill)
            got = self._read_part(source, offset, wanted)
            if not got:
                raise EOFError(f"expected {length} more bytes at {offset}; the source ends there")
            self._fill += got
            offset += got
            length -= got

    def _read_part(self, source: RandomAccess, offset: int, wanted: int) -> int:
        into = getattr(source, "pread_into", None)
        end = self._fill + wanted
        if into is not None:
            with memoryview(self._buffer)[self._fill : end] as view:
                return int(into(offset, view))
        part = source.pread(offset, wanted)
        self._buffer[self._fill : self._fill + len(part)] = part
        return len(part)

    def commit(self) -> BlobRef:
        """Makes the blob appear. Raises ``InfrastructureError``; then nothing is left behind."""
        if self._fill:
            self._flush(last=True)
        self._stop_thread()
        self._raise_fault()
        temp, self._temp = self._temp, None
        if temp is None:
            raise ValueError("the blob is committed already")
        ref = BlobRef(Digest.from_hex(self._hash.hexdigest()), self._size)
        self._publisher.publish(temp, ref)
        return ref

    def _flush(self, *, last: bool = False) -> None:
        """Hands the buffer on and takes another."""
        self._raise_fault()
        self._chunks += 1
        self._size += self._fill
        if self._thread is None and self._chunks > _INLINE_CHUNKS and not last:
            self._start_thread()
        if self._thread is None:
            self._consume(self._buffer, self._fill)
            self._raise_fault()
        else:
            self._queue.put((self._buffer, self._fill))
            if not last:
                self._buffer = self._free.get()
        self._fill = 0

    def _consume(self, buffer: bytearray, fill: int) -> None:
        """Hashes and writes one buffer; keeps the first fault for the caller."""
        if self._error is not None or self._temp is None:
            return
        with memoryview(buffer)[:fill] as view:
            self._hash.update(view)
            try:
                write_all(self._temp.fd, view)
            except OSError as error:
                self._error = error

    def _start_thread(self) -> None:
        from queue import SimpleQueue
        from threading import Thread

        self._queue = SimpleQueue()
        self._free = SimpleQueue()
        for _ in range(_POOL - 1):
            self._free.put(bytearray(CHUNK))
        self._thread = Thread(target=self._run, name="hq-blob-writer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (chunk := self._queue.get()) is not None:
            self._consume(*chunk)
            self._free.put(chunk[0])

    def _stop_thread(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _raise_fault(self) -> None:
        if self._error is not None:
            raise self._publisher.fault(self._error, self.size) from self._error
