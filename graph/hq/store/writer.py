"""A blob in the making: bytes are gathered into large chunks, hashed and written on the way.

A layer is put together from thousands of small parts, so parts are copied into a 1 MiB buffer and
only whole buffers are handed on. After the first few, one thread hashes them and another writes
them (both give up the interpreter lock) while the caller makes the next; a small pool of buffers is
used again and again, which bounds the memory and spares the page faults of fresh ones. A fault in a
thread is raised by the caller's next call.

The threads write past the page cache (``O_DIRECT``, open(2)) where the file system can: a finished
blob has to reach the disk anyway before it gets its name, and filling the cache with it first costs
more than all the hashing. Chunks are whole pages at page boundaries; the last, odd one goes through
the cache. A file system that refuses gets ordinary writes.

Parts of another blob are read straight into the buffer. Copying inside the kernel would not help:
the bytes have to pass through the hash anyway.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from typing import TYPE_CHECKING, Protocol, Self

from hq.model.digest import BlobRef, Digest
from hq.store.files import Temp, discard

if TYPE_CHECKING:
    from queue import SimpleQueue
    from threading import Thread

    from hq.model.ports import RandomAccess

CHUNK = 1 << 20
_INLINE_CHUNKS = 3  # for less, a thread costs more than it saves
_POOL = 6
_DIRECT: int = getattr(os, "O_DIRECT", 0)


class Publisher(Protocol):
    """What the writer needs from its store."""

    def publish(self, temp: Temp, ref: BlobRef) -> None:
        """Names a finished temporary file and closes it. Raises ``InfrastructureError``."""
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
        "_output",
        "_publisher",
        "_queue",
        "_sealed",
        "_temp",
        "_threads",
    )

    def __init__(self, publisher: Publisher, temp: Temp) -> None:
        self._publisher = publisher
        self._temp: Temp | None = temp
        self._output = _Output(temp.fd)
        self._buffer = memoryview(bytearray(CHUNK))
        self._fill = 0
        self._chunks = 0
        self._threads: list[Thread] = []
        self._queue: SimpleQueue[memoryview | None]
        self._free: SimpleQueue[memoryview]
        self._error: OSError | None = None
        self._sealed: BlobRef | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_threads()
        if self._temp is not None:
            discard(self._temp)
            self._temp = None

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._sealed.size if self._sealed else self._chunks * CHUNK + self._fill

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends. Raises ``InfrastructureError``."""
        end = self._fill + len(data)
        if end <= CHUNK:
            self._buffer[self._fill : end] = data
            self._fill = end
        else:
            self._write_long(memoryview(data))

    def _write_long(self, view: memoryview) -> None:
        start = 0
        while start < len(view):
            if self._fill == CHUNK:
                self._next_buffer()
            part = view[start : start + CHUNK - self._fill]
            self._buffer[self._fill : self._fill + len(part)] = part
            self._fill += len(part)
            start += len(part)

    def write_range(self, source: RandomAccess, offset: int, length: int) -> None:
        """Appends ``length`` bytes of ``source`` from ``offset``.

        Raises ``InfrastructureError``; ``ValueError`` when the source is shorter than that.
        """
        while length:
            if self._fill == CHUNK:
                self._next_buffer()
            got = self._read_part(source, offset, min(length, CHUNK - self._fill))
            if not got:
                raise ValueError(f"expected {length} more bytes at {offset}; the source ends there")
            self._fill += got
            offset += got
            length -= got

    def _read_part(self, source: RandomAccess, offset: int, wanted: int) -> int:
        into = getattr(source, "pread_into", None)
        if into is not None:
            return int(into(offset, self._buffer[self._fill : self._fill + wanted]))
        part = source.pread(offset, wanted)
        self._buffer[self._fill : self._fill + len(part)] = part
        return len(part)

    def seal(self) -> BlobRef:
        """Ends the writing and tells the name that ``commit`` will give. Raises as it does."""
        if self._temp is None:
            raise ValueError("the writer is closed")
        if self._sealed is None:
            size = self.size
            self._stop_threads()
            self._consume(self._buffer, self._fill)
            self._raise_fault()
            self._sealed = BlobRef(Digest.from_hex(self._output.hexdigest()), size)
            self._fill = CHUNK  # the next write asks for a buffer, and is told
        return self._sealed

    def commit(self) -> BlobRef:
        """Makes the blob appear. Raises ``InfrastructureError``; then nothing is left behind."""
        ref = self.seal()
        temp, self._temp = self._temp, None
        assert temp is not None
        self._publisher.publish(temp, ref)
        return ref

    def _next_buffer(self) -> None:
        """Hands the full buffer on and takes an empty one."""
        if self._temp is None or self._sealed is not None:
            raise ValueError("the writer is closed")
        self._raise_fault()
        if self._threads:
            self._queue.put(self._buffer)
            self._buffer = self._free.get()
        else:
            self._consume(self._buffer, CHUNK)
            self._raise_fault()
            if self._chunks == _INLINE_CHUNKS:
                self._start_threads()
        self._chunks += 1
        self._fill = 0

    def _consume(self, buffer: memoryview, length: int) -> None:
        self._output.hash(buffer[:length])
        self._write_out(buffer[:length])

    def _write_out(self, view: memoryview) -> None:
        """Writes; keeps the first fault for the caller."""
        if self._error is None:
            try:
                self._output.append(view)
            except OSError as error:
                self._error = error

    def _start_threads(self) -> None:
        from mmap import mmap
        from queue import SimpleQueue
        from threading import Thread

        self._queue = SimpleQueue()
        self._free = SimpleQueue()
        for _ in range(_POOL):  # anonymous maps begin at page boundaries, as O_DIRECT wants
            self._free.put(memoryview(mmap(-1, CHUNK)))
        self._buffer = self._free.get()
        self._output.go_direct()
        hashed: SimpleQueue[memoryview | None] = SimpleQueue()
        for name, work in (("hash", self._run_hash), ("write", self._run_write)):
            thread = Thread(target=work, args=(hashed,), name=f"hq-blob-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run_hash(self, hashed: SimpleQueue[memoryview | None]) -> None:
        while (buffer := self._queue.get()) is not None:
            self._output.hash(buffer)
            hashed.put(buffer)
        hashed.put(None)

    def _run_write(self, hashed: SimpleQueue[memoryview | None]) -> None:
        while (buffer := hashed.get()) is not None:
            self._write_out(buffer)
            self._free.put(buffer)

    def _stop_threads(self) -> None:
        if self._threads:
            self._queue.put(None)
            for thread in self._threads:
                thread.join()
            self._threads.clear()

    def _raise_fault(self) -> None:
        if self._error is not None:
            raise self._publisher.fault(self._error, self.size) from self._error


class _Output:
    """The file and its hash; appends without a file position, so that a chunk can be retried."""

    __slots__ = ("_direct", "_fd", "_hash", "_offset")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._hash = hashlib.sha256()
        self._offset = 0
        self._direct = False

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def hash(self, view: memoryview) -> None:
        """Adds to the digest, not to the file: the two may run beside each other."""
        self._hash.update(view)

    def append(self, view: memoryview) -> None:
        """Adds to the file. Raises ``OSError``; then no more may be appended."""
        if self._direct and len(view) % CHUNK:
            self._set_direct(on=False)
        try:
            self._write(view)
        except OSError as error:
            if not self._direct or error.errno != errno.EINVAL:
                raise
            self._set_direct(on=False)
            self._write(view)
        self._offset += len(view)

    def _write(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], self._offset + done)

    def go_direct(self) -> None:
        """Writes past the page cache from here on, where that can be done."""
        if _DIRECT and self._offset % CHUNK == 0:
            self._set_direct(on=True)

    def _set_direct(self, *, on: bool) -> None:
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        wanted = flags | _DIRECT if on else flags & ~_DIRECT
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, wanted)
        except OSError:
            on = False
        self._direct = on
