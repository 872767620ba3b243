"""Brings locked Debian packages into the store, by the user's apt or from a folder of files.

All packages of a base that are missing come in one go: apt updates its lists once and fetches
from several archives at the same time. What it fetched is named by its SHA-256, checked here
against the lock, and renamed into place.

An archive keeps the newest version of a package, so a lock grows old: then the message says to lock
again, or to add a source that keeps old versions. That apt finds such an archive's lists too old is
no fault here (the lock says what is right), so their date is not checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final

from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, HqError, InfrastructureError, Location
from hq.model.project import BaseSpec, LockedDeb
from hq.store.disk import DiskStore, hash_file
from hq.store.faults import disk_fault, human_size
from hq.transfer.apt import Apt, AptError

Progress = Callable[[int, int], None]

_SHOWN: Final = 5
_GONE: Final = re.compile(r"Version '([^']*)' for '([^']*)' was not found|Unable to locate package")
_SPACE: Final = re.compile(
    r"No space left on device|Disk quota exceeded|not enough free space", re.IGNORECASE
)


def no_progress(_done: int, _total: int) -> None:
    """Takes the progress of a fetch and does nothing with it."""


def fetch_debs(
    store: DiskStore,
    base: BaseSpec,
    progress: Progress = no_progress,
    *,
    offline: bool = False,
) -> None:
    """Fetches those of the base's packages that are not in the store.

    ``progress`` gets (bytes so far, total); an exception that it raises ends the fetch cleanly.
    Raises ``BuildError`` when a package may not be fetched, is in no archive, or is another file;
    ``InfrastructureError`` when network, archive or disk fail. What has come is kept.
    """
    if not missing(store, base.debs):
        return
    try:
        with store.actions.lock(_lock_name(base)):
            wanted = missing(store, base.debs)
            if wanted and offline:
                raise _offline(base, wanted)
            if wanted:
                _fetch(store, base, wanted, progress)
    except OSError as error:
        total = sum(deb.size for deb in base.debs)
        raise disk_fault(error, f"fetch the base {base.name}", store.root, size=total) from error


def missing(store: DiskStore, debs: Sequence[LockedDeb]) -> list[LockedDeb]:
    """The packages that the store lacks."""
    return [deb for deb in debs if not store.has(BlobRef(deb.sha256, deb.size))]


def _lock_name(base: BaseSpec) -> str:
    return Digest.of(f"debs {base.suite} {base.architecture}".encode()).hex


def _fetch(
    store: DiskStore, base: BaseSpec, wanted: Sequence[LockedDeb], progress: Progress
) -> None:
    total = sum(deb.size for deb in wanted)
    with store.staging() as folder:
        apt = Apt(folder, base.suite, base.architecture)
        files = f"{folder}/files"
        try:
            progress(0, total)
            apt.update("-o", "Acquire::Check-Valid-Until=false")
            apt.run(
                "apt-get",
                "download",
                "-o",
                "Acquire::Retries=3",
                *(specifier(deb) for deb in wanted),
                look=lambda: progress(min(_size(files), total), total),
            )
        except AptError as error:
            _adopt(store, files, wanted)
            raise _failure(store, base, missing(store, wanted), error) from None
        _adopt(store, files, wanted)
    still = missing(store, wanted)
    if still:
        raise BuildError(
            f"apt fetched other files than the base {base.name} has locked",
            details=_listed(still),
            hint="the archive has other bytes under the same version; make the base lock again",
        )
    progress(total, total)


def specifier(deb: LockedDeb) -> str:
    """How apt is asked for exactly this package."""
    architecture = "" if deb.architecture == "all" else f":{deb.architecture}"
    return f"{deb.name}{architecture}={deb.version}"


def _size(folder: str) -> int:
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_size
        except OSError:
            continue
    return total


def _adopt(store: DiskStore, folder: str, wanted: Sequence[LockedDeb]) -> None:
    """Moves every file that is one of ``wanted`` into the store."""
    by_digest = {deb.sha256: deb for deb in wanted}
    for name in sorted(os.listdir(folder)):
        ref = _name_of(f"{folder}/{name}")
        deb = by_digest.get(ref.digest)
        if deb is not None and deb.size == ref.size:
            store.adopt(f"{folder}/{name}", ref)


def _name_of(path: str) -> BlobRef:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return BlobRef(Digest.from_hex(hash_file(fd)), os.fstat(fd).st_size)
    finally:
        os.close(fd)


def import_debs(store: DiskStore, folder: str, debs: Sequence[LockedDeb]) -> list[LockedDeb]:
    """Takes packages from files in ``folder``, whatever they are called; those still missing.

    Raises ``BuildError`` when the folder cannot be read.
    """
    wanted = {BlobRef(deb.sha256, deb.size): deb for deb in missing(store, debs)}
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".deb"))
        for name in names:
            ref = _name_of(f"{folder}/{name}")
            if ref in wanted:
                with open(f"{folder}/{name}", "rb") as file, store.create() as writer:
                    while data := file.read(1 << 20):
                        writer.write(data)
                    writer.commit()
    except OSError as error:
        raise BuildError(
            f"cannot read the packages: {(error.strerror or '').lower()}", where=Location(folder)
        ) from error
    return missing(store, debs)


def _listed(debs: Sequence[LockedDeb]) -> list[str]:
    lines = [f"{deb.file} ({human_size(deb.size)})" for deb in debs[:_SHOWN]]
    more = len(debs) - _SHOWN
    return [*lines, f"and {more} more"] if more > 0 else lines


def _offline(base: BaseSpec, wanted: Sequence[LockedDeb]) -> BuildError:
    count = "a package" if len(wanted) == 1 else f"{len(wanted)} packages"
    return BuildError(
        f"{count} of the base {base.name} {'is' if len(wanted) == 1 else 'are'} not in the store, "
        "and --offline forbids to fetch",
        details=_listed(wanted),
        hint="run once without --offline",
    )


def _failure(
    store: DiskStore, base: BaseSpec, still: Sequence[LockedDeb], error: AptError
) -> HqError:
    said = [f"apt: {line}" for line in error.lines]
    text = "\n".join(error.lines)
    if _SPACE.search(text):
        import errno

        size = sum(deb.size for deb in still)
        return disk_fault(
            OSError(errno.ENOSPC, ""), f"fetch the base {base.name}", store.root, size=2 * size
        )
    if _GONE.search(text):
        return BuildError(
            f"the archive has no longer what the base {base.name} has locked",
            details=said,
            hint="make the base lock again, or add a source that keeps old versions to apt's "
            "configuration (sources.list(5))",
        )
    return InfrastructureError(
        f"apt cannot fetch the packages of the base {base.name}",
        details=said,
        hint="look at apt's configuration, the network and the proxy; then run hq again",
    )
