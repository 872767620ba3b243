"""Turns what the operating system refused into an ``InfrastructureError`` that says what to do.

Only the errors that a user can mend get words of their own; any other ``OSError`` keeps the text of
the operating system. What can be done depends on what is written: a store can be elsewhere by
``--store``, the images by ``--output``.
"""

from __future__ import annotations

import errno
import os

from hq.model.errors import InfrastructureError, Location

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EIO: "the disk reported an input/output error",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EMFILE: "too many open files",
}

STORE = "choose another store with --store DIR or HQ_STORE"
OUTPUT = "choose another folder with --output DIR"

_COLLECT = ", run 'hq store gc'"
_FULL = f"free some space there{_COLLECT}, or {{}}; then run hq again"
_HINTS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EIO: "look at the kernel's log for a failing disk; then run 'hq store verify'",
    errno.EROFS: "mount it writable, or {}",
    errno.EACCES: "make it writable for you, or {}",
    errno.EPERM: "make it writable for you, or {}",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
}

_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_WAY = (errno.ENOENT, errno.ENOTDIR)


def disk_fault(
    error: OSError, doing: str, path: str, *, size: int = 0, elsewhere: str = STORE
) -> InfrastructureError:
    """The error for a failed operation.

    ``doing``: what was tried, after "cannot", for example ``"write a blob"``.
    ``path``: the directory that matters to the user, as a rule the store's root.
    ``size``: bytes that the operation is known to need; shown when the disk is full.
    ``elsewhere``: how the user chooses another place.
    """
    number = error.errno or 0
    details = _details(number, path, size)
    hint = _HINTS.get(number, "").format(elsewhere)
    if number in _OUT_OF_SPACE and elsewhere != STORE:
        hint = hint.replace(_COLLECT, "")
    if number in _NO_WAY:
        hint = elsewhere if details else ""
    return InfrastructureError(
        f"cannot {doing}: {reason(error)}", where=Location(path), details=details, hint=hint
    )


def reason(error: OSError) -> str:
    """Why the operating system refused, in words."""
    return _REASONS.get(error.errno or 0) or (error.strerror or str(error)).lower()


def _details(number: int, path: str, size: int) -> list[str]:
    if number in _OUT_OF_SPACE:
        return _space(path, size)
    return _obstacle(path) if number in _NO_WAY else []


def _obstacle(path: str) -> list[str]:
    """What stands where a folder should be, on the way to ``path``."""
    place = os.path.abspath(path)
    missing = ""
    while not os.path.lexists(place):
        place, missing = os.path.dirname(place), place
    if os.path.isdir(place):
        return [f"missing: {missing}"] if missing else []
    if os.path.islink(place):
        return [f"{place} is a symlink to {os.readlink(place)}, which is not there"]
    return [f"{place} is not a folder"]


def _space(path: str, size: int) -> list[str]:
    lines = [f"needed: at least {human_size(size)}"] if size else []
    try:
        found = os.statvfs(path)
    except OSError:
        return lines
    return [*lines, f"free: {human_size(found.f_bavail * found.f_frsize)}"]


def human_size(size: int) -> str:
    """A size in bytes as people read it, in powers of 1000: ``316.0 MB``."""
    if size < 1000:
        return f"{size} B"
    value = float(size)
    units = ["TB", "GB", "MB", "kB"]
    while True:
        value /= 1000
        unit = units.pop()
        if value < 999.95 or not units:
            return f"{value:.1f} {unit}"
