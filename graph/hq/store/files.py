"""Temporary files and directories whose owner can be told from outside, and atomic replacement.

A temporary name is created exclusively and locked at once with ``flock``. The lock belongs to the
open file description: it goes away when the file is closed or its process dies, however it dies. A
sweep takes every temporary name whose lock it can get. The gap between creating and locking is
closed on the creator's side: after locking it looks whether the name still has a link, and starts
again with a new name if a sweep was faster. Names are never used twice (process id, counter, random
bits), so a sweep cannot hit a successor of the name it opened.

Modes are set explicitly, so that no umask shows in the store.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from contextlib import suppress
from typing import NamedTuple

TMP = "tmp"  # the name of the folder in the store
_TRIES = 20  # against others that remove what is being made; each has to win a race to count

_counter = itertools.count()


class Temp(NamedTuple):
    """A temporary file or directory: its locked descriptor and its path."""

    fd: int
    path: str


def make_temp_file(folder: str) -> Temp:
    """A new, empty, owned file in ``folder``, open for reading and writing. Raises ``OSError``."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    refused = 0
    while True:
        path = _temp_name(folder)
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            refused += 1
            if refused > _TRIES:
                raise
            make_dir(folder)
            continue
        if _own(fd):
            return Temp(fd, path)
        os.close(fd)


def make_temp_dir(folder: str) -> Temp:
    """A new, empty, owned directory in ``folder``. Raises ``OSError``."""
    while True:
        path = _temp_name(folder)
        make_dir(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # a sweep was faster
            continue
        if _own(fd):
            return Temp(fd, path)
        os.close(fd)


def remove_temp_dir(temp: Temp) -> None:
    """Removes the directory with all it holds and lets it go. Never raises ``OSError``."""
    import shutil

    shutil.rmtree(temp.path, ignore_errors=True)
    os.close(temp.fd)


def sweep(folder: str) -> int:
    """Removes what dead processes left in ``folder``; the number of names removed.

    Another process's live files stay. What cannot be removed stays too: the next sweep tries again.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return 0
    return sum(_sweep_one(f"{folder}/{name}") for name in names)


def _sweep_one(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.isdir(path):
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _temp_name(folder: str) -> str:
    return f"{folder}/{os.getpid():x}-{next(_counter):x}-{os.urandom(4).hex()}"


def _own(fd: int) -> bool:
    """Locks a new name; false when a sweep took it between creation and lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(fd).st_nlink > 0


def make_dir(path: str) -> None:
    """Makes ``path`` and its parents, mode 0755 whatever the umask.

    Raises ``OSError``: ``NotADirectoryError`` where a file stands in the way, ``FileNotFoundError``
    where no folder can be made (below a symlink to nothing, in ``/proc``).
    """
    wanted = [path]
    refused = 0
    while wanted:
        try:
            _make_one(wanted[-1])
            wanted.pop()
        except FileNotFoundError:
            above = os.path.dirname(wanted[-1].rstrip("/"))
            if above and not os.path.lexists(above):
                wanted.append(above)
            else:  # the folder above refuses, or another process has just made it
                refused += 1
                if refused > _TRIES:
                    raise


def _make_one(path: str) -> None:
    try:
        os.mkdir(path, 0o755)
        os.chmod(path, 0o755)  # noqa: S103  (a cache is no secret; its parent decides who enters)
    except FileExistsError:
        if os.path.isdir(path):
            return
        # Also what was there a moment ago and is gone: the caller tries again.
        is_file = os.path.lexists(path) and not os.path.islink(path)
        number = errno.ENOTDIR if is_file else errno.ENOENT
        raise OSError(number, os.strerror(number), path) from None


def read_file(path: str, limit: int = 1 << 30) -> bytes:
    """The first ``limit`` bytes of a file. Raises ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = min(os.fstat(fd).st_size, limit)
        data = os.read(fd, size)
        while len(data) < size and (part := os.read(fd, size - len(data))):
            data += part
        return data
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Writes every byte of ``data``. Raises ``OSError``."""
    written = os.write(fd, data)
    if written < len(data):
        view = memoryview(data)
        while written < len(view):
            written += os.write(fd, view[written:])


def move(source: str, target: str) -> None:
    """Renames, and makes the target's directory if that is missing. Raises ``OSError``."""
    for _ in range(_TRIES):
        try:
            os.rename(source, target)
        except FileNotFoundError:
            if not os.path.lexists(source):
                raise
            make_dir(os.path.dirname(target))
        else:
            return
    os.rename(source, target)


def discard(temp: Temp) -> None:
    """Removes a temporary file, if its name is still there, and closes it."""
    with suppress(OSError):
        os.unlink(temp.path)
    os.close(temp.fd)


def replace_file(
    folder: str, target: str, data: bytes, *, mode: int = 0o644, flush: bool = True
) -> None:
    """Makes ``target`` hold ``data``, whole or not at all; ``folder`` is for the temporary name.

    Without ``flush`` a power cut may leave it empty or cut short: for files whose reader notices,
    and that can be made again. A flush costs as much as the rest of a small rebuild.
    Raises ``OSError``; then the old content is still there.
    """
    for _ in range(_TRIES):
        temp = make_temp_file(folder)
        try:
            _fill(temp, target, data, mode, flush)
        except FileNotFoundError:  # somebody removes the folder meanwhile
            discard(temp)
        except BaseException:
            discard(temp)
            raise
        else:
            os.close(temp.fd)
            return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target)


def _fill(temp: Temp, target: str, data: bytes, mode: int, flush: bool) -> None:
    write_all(temp.fd, data)
    os.fchmod(temp.fd, mode)
    if flush:
        os.fsync(temp.fd)
    move(temp.path, target)
