"""Digests of source files and wheels without reading them again: the stat cache.

An entry says: a file at this path, with this device, inode, size, mode, modification and change
time, had this SHA-256. It holds while all of that is the same.

That alone is not safe. File systems keep times in ticks, some of 4 ms, some of 2 s: a file changed
twice within one tick, with the same size, has the same times for two contents (what git calls
"racily clean"). So an entry is made only when the file's times lay more than a tick in the past
*before* it was opened: any later write then gets another time. A file too young is read again each
time, until it has aged. The change time counts because programs can set the modification time back,
but not that one.

The cache is one file per project, written whole. Damage or another format empties it, which costs
time and nothing else. Entries are in order of use, so the oldest fall off at the limit.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple

from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, InfrastructureError, Location
from hq.store.disk import DiskStore, hash_file
from hq.store.faults import disk_fault
from hq.store.files import read_file

FORMAT = "hq stat 1"
LIMIT = 20_000  # entries
_FINE_TICK_NS = 20_000_000  # kernels tick at 100 Hz or faster
_COARSE_TICK_NS = 2_000_000_000  # FAT; assumed wherever times are whole seconds
_SECOND_NS = 10**9
_TRIES = 5


class FileState(NamedTuple):
    """A file's content by name, and its status as it was before it was read."""

    ref: BlobRef
    status: os.stat_result


class StatCache:
    """The stat cache of the project at ``base`` in ``store``; relative paths count from ``base``.

    Not for several threads at once.
    """

    def __init__(
        self,
        store: DiskStore,
        base: str,
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._file = stat_file(base)
        self._base = base
        self._clock = clock
        self._entries = _load(f"{store.root}/{self._file}")
        self._used: dict[str, tuple[str, str]] = {}
        self._changed = False

    def digest_file(self, path: str) -> FileState:
        """The name of the content of the file at ``path``, and its status; symlinks are followed.

        Raises ``FileNotFoundError`` and other ``OSError`` of opening it, ``BuildError`` for what
        is no regular file, ``InfrastructureError`` for a file that changes all the time.
        """
        full = os.path.join(self._base, path)
        found = os.stat(full)
        known = self._used.get(full) or self._entries.get(full)
        if known is not None and known[0] == _signature(found):
            self._used[full] = known
            return _state(found, known[1])
        for _ in range(_TRIES):
            state = self._hash(full)
            if state is not None:
                return state
        raise InfrastructureError(
            "a file changes while it is read",
            where=Location(path),
            hint="wait until the program that writes it is done, then run hq again",
        )

    def _hash(self, full: str) -> FileState | None:
        """Reads the file; ``None`` when it changed meanwhile."""
        now = self._clock()
        fd = os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise BuildError("not a regular file", where=Location(full))
            sha256 = hash_file(fd)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        signature = _signature(before)
        if signature != _signature(after):
            return None
        if not is_racy(before, now):
            self._used[full] = (signature, sha256)
            self._changed = True
        return _state(before, sha256)

    def save(self) -> None:
        """Writes the cache if it learnt something. A store that cannot be written is no error."""
        if not self._changed:
            return
        # What this run did not ask for comes last: another pin of the project may need it.
        merged = self._used | {k: v for k, v in self._entries.items() if k not in self._used}
        try:
            self._store.write_file(self._file, _render(merged))
        except InfrastructureError as error:
            self._store.warn(f"the stat cache was not saved: {error.message}")
        self._changed = False


def stat_file(base: str) -> str:
    """Where the stat cache of the project at ``base`` is, below the store's root."""
    return "stat/" + hashlib.sha256(os.fsencode(base)).hexdigest()[:32]


def is_racy(found: os.stat_result, now: int) -> bool:
    """Whether a write at ``now`` (ns since the epoch) or later might leave the same times."""
    latest = max(found.st_mtime_ns, found.st_ctime_ns)
    coarse = found.st_mtime_ns % _SECOND_NS == 0 and found.st_ctime_ns % _SECOND_NS == 0
    return latest >= now - (_COARSE_TICK_NS if coarse else _FINE_TICK_NS)


def _state(found: os.stat_result, sha256: str) -> FileState:
    return FileState(BlobRef(Digest.from_hex(sha256), found.st_size), found)


def _signature(found: os.stat_result) -> str:
    return (
        f"{found.st_dev:x}.{found.st_ino:x}.{found.st_mode:o}.{found.st_size}"
        f".{found.st_mtime_ns}.{found.st_ctime_ns}"
    )


def _render(entries: dict[str, tuple[str, str]]) -> bytes:
    lines = [
        f"{sha256} {signature} {path}"
        for path, (signature, sha256) in list(entries.items())[:LIMIT]
        if "\n" not in path
    ]
    body = os.fsencode("\n".join(lines))
    return f"{FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def _load(path: str) -> dict[str, tuple[str, str]]:
    try:
        head, _, body = read_file(path).partition(b"\n")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise disk_fault(error, "read the stat cache", path) from error
    if head != f"{FORMAT} {hashlib.sha256(body).hexdigest()}".encode():
        return {}
    entries: dict[str, tuple[str, str]] = {}
    for line in os.fsdecode(body).split("\n"):
        sha256, _, rest = line.partition(" ")
        signature, _, name = rest.partition(" ")
        if name:
            entries[name] = (signature, sha256)
    return entries
