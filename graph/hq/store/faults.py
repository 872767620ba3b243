"""Turns what the operating system refused into an ``InfrastructureError`` that says what to do.

Only the errors that a user can mend get words of their own; any other ``OSError`` keeps the text of
the operating system.
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

_ELSEWHERE = "choose another store with --store DIR or HQ_STORE"

_HINTS = {
    errno.ENOSPC: f"free some space there, run 'hq store gc', or {_ELSEWHERE}; then run hq again",
    errno.EDQUOT: f"free some space there, run 'hq store gc', or {_ELSEWHERE}; then run hq again",
    errno.EIO: "look at the kernel's log for a failing disk; then run 'hq store verify'",
    errno.EROFS: f"mount it writable, or {_ELSEWHERE}",
    errno.EACCES: f"make it writable for you, or {_ELSEWHERE}",
    errno.EPERM: f"make it writable for you, or {_ELSEWHERE}",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
}

_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)


def disk_fault(error: OSError, doing: str, path: str, *, size: int = 0) -> InfrastructureError:
    """The error for a failed operation.

    ``doing``: what was tried, after "cannot", for example ``"write a blob"``.
    ``path``: the directory that matters to the user, as a rule the store's root.
    ``size``: bytes that the operation is known to need; shown when the disk is full.
    """
    number = error.errno or 0
    reason = _REASONS.get(number) or (error.strerror or str(error)).lower()
    details = _space(path, size) if number in _OUT_OF_SPACE else []
    return InfrastructureError(
        f"cannot {doing}: {reason}",
        where=Location(path),
        details=details,
        hint=_HINTS.get(number, ""),
    )


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
