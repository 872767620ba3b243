"""Single flight: at most one holder of a key, over all threads and processes.

All keys share one empty file. A key locks one byte of it, at an offset taken from 60 bits of the
key: the kernel keeps byte-range locks beyond the end of a file, so nothing grows, nothing is left
to remove, and two keys do not meet by chance.

The locks are those of the *open file description* (``F_OFD_SETLKW``, fcntl(2)), not those of the
process. With the older kind two threads of a process would never exclude each other, and closing
any descriptor of the file would drop every lock. Each holder opens the file anew. The kernel lets
go when the description is closed, also by ``kill -9``.

Where the system has no such locks (some are not Linux), one of 256 files is locked with ``flock``.
Two keys may then share a lock, so a holder must not take a second key.

The main thread waits in the kernel, where Ctrl-C wakes it. Ctrl-C wakes no other thread, so those
ask again from time to time, and give up when the main thread has ended: an interrupted build must
not hang until some other build is done.
"""

from __future__ import annotations

import fcntl
import os
import struct

from hq.store.faults import disk_fault
from hq.store.files import make_dir

_SET: int | None = getattr(fcntl, "F_OFD_SETLK", None)
_SET_AND_WAIT: int | None = getattr(fcntl, "F_OFD_SETLKW", None)
_POLL = 0.02  # seconds


class KeyLock:
    """Holds one key while inside the ``with`` block. Raises ``InfrastructureError`` on entering."""

    __slots__ = ("_fd", "_folder", "_key")

    def __init__(self, folder: str, key: str) -> None:
        self._folder = folder
        self._key = key
        self._fd = -1

    def __enter__(self) -> None:
        try:
            self._fd = self._open()
            self._wait()
        except OSError as error:
            self._release()
            raise disk_fault(error, "lock a node", os.path.dirname(self._folder)) from error
        except BaseException:  # Ctrl-C while waiting
            self._release()
            raise

    def __exit__(self, *_: object) -> None:
        self._release()

    def _open(self) -> int:
        name = "keys" if _SET is not None else f"keys-{self._key[:2]}"
        path = f"{self._folder}/{name}"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o644)
        except FileNotFoundError:
            make_dir(self._folder)
            return os.open(path, flags, 0o644)

    def _wait(self) -> None:
        if self._try(wait=False):
            return
        import threading
        import time

        main = threading.main_thread()
        if threading.current_thread() is main:
            self._try(wait=True)
            return
        while not self._try(wait=False):
            if not main.is_alive():
                raise KeyboardInterrupt
            time.sleep(_POLL)

    def _try(self, *, wait: bool) -> bool:
        """Takes the lock; false when another has it and ``wait`` is false."""
        try:
            if _SET is None or _SET_AND_WAIT is None:
                fcntl.flock(self._fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                # struct flock: type, whence, start, length, pid (must be 0 for this kind of lock).
                offset = int(self._key[:15], 16)
                request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
                fcntl.fcntl(self._fd, _SET_AND_WAIT if wait else _SET, request)
        except (BlockingIOError, PermissionError):  # fcntl(2) allows either
            return False
        return True

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
