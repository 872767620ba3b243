"""The store's root directory: what makes a directory a store, and who is using it.

``format`` is written last when a store is made, and every other part is made when it is first
needed. Eight processes may make the same store at once: each step may find the work done already.

Whoever uses the store holds a share of ``locks/use``; collection holds it whole (``gc``).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

from hq.model.errors import Location, UsageError
from hq.store.faults import disk_fault
from hq.store.files import TMP, make_dir, read_file, replace_file

FORMAT = 1
_MAGIC = "hq store "
_PARTS = frozenset(("cas", "ac", "tmp", "locks", "stat", "projects"))

Warn = Callable[[str], None]


def silent(_: str) -> None:
    """Takes a warning and does nothing with it."""


def is_store(root: str) -> bool:
    """Whether ``root`` is a store of this version; false when it is not there or empty.

    Raises ``UsageError`` when it is something else, ``InfrastructureError`` when it is unreadable.
    """
    try:
        text = read_file(f"{root}/format", 64).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise disk_fault(error, "open the store", root) from error
    version = text.removeprefix(_MAGIC)
    if version == str(FORMAT):
        return True
    if text.startswith(_MAGIC) and version.isdecimal():
        raise _other_version(root, version)
    raise _not_a_store(root, f"found: a file 'format' that begins {text[:20]!r}")


def make_store(root: str) -> None:
    """Makes ``root`` a store. Raises as ``is_store`` does."""
    try:
        make_dir(root)
        _refuse_others(root)
        replace_file(f"{root}/{TMP}", f"{root}/format", f"{_MAGIC}{FORMAT}\n".encode())
    except NotADirectoryError as error:
        raise _not_a_store(root, "found: a file") from error
    except OSError as error:
        raise disk_fault(error, "make a store", root) from error


def require_store(root: str) -> None:
    """For commands that look after a store and make none. Raises ``UsageError`` if it is none."""
    if is_store(root):
        return
    try:
        _refuse_others(root)
    except FileNotFoundError:
        pass
    except NotADirectoryError as error:
        raise _not_a_store(root, "found: a file") from error
    except OSError as error:
        raise disk_fault(error, "open the store", root) from error
    raise UsageError(
        "there is no store",
        where=Location(root),
        hint="the first hq build makes it; name another one with --store DIR or HQ_STORE",
    )


def _refuse_others(root: str) -> None:
    with os.scandir(root) as entries:
        others = sorted({entry.name for entry in entries} - _PARTS - {"format", "lost+found"})
    if others:
        raise _not_a_store(root, f"found: {', '.join(others[:3])}{' …' * (len(others) > 3)}")


def _other_version(root: str, version: str) -> UsageError:
    return UsageError(
        "the store was made by another version of hq",
        where=Location(f"{root}/format"),
        details=[f"expected: format {FORMAT}", f"found:    format {version}"],
        hint="use that version of hq, or choose another store with --store DIR or HQ_STORE",
    )


def _not_a_store(root: str, found: str) -> UsageError:
    return UsageError(
        "this is not a store of hq",
        where=Location(root),
        details=["expected: a store, an empty directory, or nothing", found],
        hint="choose another directory with --store DIR or HQ_STORE",
    )


def share(root: str, warn: Warn) -> int:
    """Takes a share of the lock that collection takes whole; -1 where there is no such lock.

    Closing the returned descriptor gives it back.
    """
    try:
        fd = open_use_lock(root)
    except OSError:  # a read-only store: nobody collects it either
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        warn("waiting for a collection of the store (hq store gc) to end")
        fcntl.flock(fd, fcntl.LOCK_SH)
    except OSError:  # a file system without locks
        os.close(fd)
        return -1
    return fd


def open_use_lock(root: str) -> int:
    """``locks/use``, made if need be, open for ``flock``. Raises ``OSError``."""
    path = f"{root}/locks/use"
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        make_dir(os.path.dirname(path))
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
