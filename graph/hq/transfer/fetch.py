"""Brings a locked wheel into the store: from an index by pip, or from a file the user has.

A wheel is fetched once however many builds ask for it at the same time: the others wait for the
wheel's lock and then find it. pip works in a directory in the store's ``tmp/``, so the finished
file is renamed into place and never copied, and an interrupted fetch leaves what the next start
sweeps.

A download that ended early is tried again here; connections are tried again by pip itself
(``--retries``, the user's setting). A wrong SHA-256 is believed when it comes twice: older versions
of pip report a download that was cut short in the same words.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Sequence

from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, HqError, InfrastructureError, Location, UsageError
from hq.model.project import LockedWheel
from hq.store.disk import DiskStore, hash_file
from hq.store.faults import disk_fault, human_size
from hq.store.reader import FileReader
from hq.transfer.pip import PipFailure, download, find_pip
from hq.wheels.filename import parse_filename

Progress = Callable[[int, int], None]

ATTEMPTS = 3
_PAUSE = 1.0  # seconds before another attempt
_PIP_HINT = "look at the indexes that pip uses ('pip config list' and the PIP_ variables)"


def no_progress(_done: int, _total: int) -> None:
    """Takes the progress of a fetch and does nothing with it."""


def fetch_wheel(
    store: DiskStore,
    wheel: LockedWheel,
    progress: Progress = no_progress,
    *,
    offline: bool = False,
    own: bool = True,
    pause: Callable[[float], None] = time.sleep,
) -> BlobRef:
    """The locked wheel, in the store, its SHA-256 checked here. ``own``: it is the pin's own.

    ``progress`` gets (bytes so far, total); an exception that it raises ends the fetch cleanly.
    Raises ``BuildError`` when it may not be fetched, is in no index, or is another file;
    ``InfrastructureError`` when network, index or disk fail.
    """
    ref = BlobRef(wheel.sha256, wheel.size)
    if store.has(ref):
        return ref
    if offline:
        raise _offline_error(wheel, own=own)
    try:
        _check_space(store, wheel)
        with store.actions.lock(ref.digest.hex):
            if not store.has(ref):
                _fetch(store, wheel, progress, pause, own=own)
    except OSError as error:
        raise disk_fault(error, f"fetch {_title(wheel)}", store.root, size=wheel.size) from error
    progress(wheel.size, wheel.size)
    return ref


def _fetch(
    store: DiskStore,
    wheel: LockedWheel,
    progress: Progress,
    pause: Callable[[float], None],
    *,
    own: bool,
) -> None:
    python = find_pip()
    extra: list[str] = []
    wrong = ""
    for attempt in range(1, ATTEMPTS + 1):
        with store.staging() as folder:
            found = download(
                python,
                folder,
                [*_arguments(wheel, folder), *extra],
                lambda done: progress(min(done, wheel.size), wheel.size),
            )
            if isinstance(found, str):
                adopt(store, found, wheel)
                return
        again = found.trouble == "cut" or (found.trouble == "hash" and found.found != wrong)
        if not again or attempt == ATTEMPTS:
            raise _failure(store, wheel, found, own=own)
        wrong = found.found
        extra = ["--no-cache-dir"]  # what pip kept may be the cut one
        pause(_PAUSE * attempt)


def _arguments(wheel: LockedWheel, folder: str) -> list[str]:
    """The arguments for exactly this file, whatever machine this is."""
    requirements = f"{folder}/requirements.txt"
    with open(requirements, "w", encoding="utf-8") as file:
        file.write(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256.hex}\n")
    return ["--require-hashes", "--requirement", requirements, *tag_arguments(wheel.file)]


def tag_arguments(file: str) -> list[str]:
    """The options by which ``pip download`` takes the file of this name on any machine.

    Raises ``BuildError`` for a name that is no wheel's.
    """
    name = parse_filename(file)
    python = name.pythons[-1]  # py2.py3: the newer
    arguments = ["--implementation", python[:2], "--python-version", python[2:]]
    for abi in name.abis:
        arguments += ["--abi", abi]
    for platform in name.platforms:
        arguments += ["--platform", platform]
    return arguments


def adopt(store: DiskStore, path: str, wheel: LockedWheel) -> None:
    """Checks a downloaded file and moves it into the store."""
    found = _name_of(path)
    _check_same(found, wheel, Location(wheel.file))
    store.adopt(path, found)


def _name_of(path: str) -> BlobRef:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return BlobRef(Digest.from_hex(hash_file(fd)), os.fstat(fd).st_size)
    finally:
        os.close(fd)


def import_file(
    store: DiskStore, path: str, wheel: LockedWheel, progress: Progress = no_progress
) -> BlobRef:
    """Copies the locked wheel from a file that the user has.

    A file that is named is looked at even when the store has the wheel: a build must not pass that
    was told to take another. Raises ``UsageError`` when there is no such file, ``BuildError`` when
    it is not that wheel, with nothing stored; ``InfrastructureError``.
    """
    with _open_named(path, wheel) as source:
        if source.size != wheel.size:
            raise _other_file(wheel, Location(path), *_sizes(wheel.size, source.size))
        ref = BlobRef(wheel.sha256, wheel.size)
        if store.has(ref):
            found = BlobRef(Digest.from_hex(hash_file(source.fd)), source.size)
            _check_same(found, wheel, Location(path))
            return ref
        _check_space(store, wheel)
        with store.create() as writer:
            _copy(source, writer.write_range, progress)
            _check_same(writer.seal(), wheel, Location(path))
            return writer.commit()


def _open_named(path: str, wheel: LockedWheel) -> FileReader:
    hint = f"name the wheel that is locked, {wheel.file}"
    try:
        # Without waiting for the other end of a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"there is no file {path!r}", hint=hint) from None
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise UsageError(f"cannot read the wheel {path!r}: {reason}", hint=hint) from error
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode):
        return FileReader(fd, found.st_size, path)
    os.close(fd)
    kind = "a folder, not a wheel" if stat.S_ISDIR(found.st_mode) else "no regular file"
    raise UsageError(f"{path!r} is {kind}", hint=hint)


def _copy(
    source: FileReader, append: Callable[[FileReader, int, int], None], progress: Progress
) -> None:
    step = 16 << 20
    for start in range(0, source.size, step):
        progress(start, source.size)
        append(source, start, min(step, source.size - start))
    progress(source.size, source.size)


def lock_wheel(
    store: DiskStore,
    name: str,
    version: str,
    tags: Sequence[str],
    progress: Callable[[int], None] = lambda _: None,
) -> LockedWheel:
    """Asks the index for a wheel and tells what to lock; the file is in the store afterwards.

    ``tags``: further options of ``pip download`` that choose among the files, as a rule from
    ``target_arguments``. Raises ``BuildError``, ``InfrastructureError``.
    """
    with store.staging() as folder:
        found = download(find_pip(), folder, [*tags, f"{name}=={version}"], progress)
        if isinstance(found, PipFailure):
            raise _failure(store, LockedWheel(name, version, "", Digest.of(b""), 0), found)
        file = os.path.basename(found)
        parse_filename(file)
        ref = _name_of(found)
        store.adopt(found, ref)
    return LockedWheel(name, version, file, ref.digest, ref.size)


def target_arguments(python: str, machine: str, glibc: int = 36) -> list[str]:
    """Options of ``pip download`` for CPython ``python`` ("3.12") on Linux with glibc 2.``glibc``.

    ``machine`` as in platform tags: ``x86_64``, ``aarch64``.
    """
    arguments = ["--implementation", "cp", "--python-version", python]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        arguments += ["--abi", abi]
    older = [f"manylinux_2_{minor}_{machine}" for minor in range(glibc, 4, -1)]
    legacy = [f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")]
    for platform in [*older, *legacy, f"linux_{machine}"]:
        arguments += ["--platform", platform]
    return arguments


def _check_space(store: DiskStore, wheel: LockedWheel) -> None:
    """Says at once what would otherwise come out after minutes of download."""
    found = os.statvfs(store.root)
    if found.f_bavail * found.f_frsize < wheel.size:
        raise _no_space(store, wheel)


def _no_space(store: DiskStore, wheel: LockedWheel) -> InfrastructureError:
    return disk_fault(
        OSError(errno.ENOSPC, ""), f"store {_title(wheel)}", store.root, size=wheel.size
    )


def _check_same(found: BlobRef, wheel: LockedWheel, where: Location) -> None:
    if found.digest != wheel.sha256:
        raise _other_file(wheel, where, f"sha256 {wheel.sha256.hex}", f"sha256 {found.digest.hex}")
    if found.size != wheel.size:  # the same bytes, so it is the lock that is wrong
        raise _other_file(wheel, where, *_sizes(wheel.size, found.size))


def _sizes(expected: int, found: int) -> tuple[str, str]:
    return f"{expected} bytes", f"{found} bytes"


def _other_file(wheel: LockedWheel, where: Location, expected: str, found: str) -> BuildError:
    return BuildError(
        f"this is not the locked wheel of {_title(wheel)}",
        where=where,
        details=[f"expected: {expected}", f"found:    {found}"],
        hint="do not use this file unless you know why it differs; then lock the pin again",
    )


def _supply(*, own: bool) -> str:
    """A further way that there is for the pin's own wheel."""
    return ", or give the file with --wheel FILE" if own else ""


def _offline_error(wheel: LockedWheel, *, own: bool) -> BuildError:
    # Exit 1, not 3: nothing failed and a retry would not help; the input is not there.
    return BuildError(
        f"{_title(wheel)} is not in the store, and --offline forbids to fetch it",
        details=_described(wheel),
        hint=f"run once without --offline{_supply(own=own)}",
    )


def _described(wheel: LockedWheel) -> list[str]:
    return [
        f"file:   {wheel.file}",
        f"sha256: {wheel.sha256.hex}",
        f"size:   {wheel.size} bytes"
        + (f" ({human_size(wheel.size)})" if wheel.size > 999 else ""),
    ]


def _title(wheel: LockedWheel) -> str:
    return f"{wheel.name} {wheel.version}"


def _failure(
    store: DiskStore, wheel: LockedWheel, failure: PipFailure, *, own: bool = False
) -> HqError:
    """The error for what pip said."""
    said = [f"pip: {line}" for line in failure.lines]
    file = [f"file: {wheel.file}"] if wheel.file else []
    title = _title(wheel)
    supply = _supply(own=own)
    match failure.trouble:
        case "hash":
            return _other_file(
                wheel,
                Location(wheel.file),
                f"sha256 {wheel.sha256.hex}",
                f"sha256 {failure.found or 'unknown'}",
            )
        case "absent":
            return BuildError(
                f"no index has {title} in this form",
                details=[*file, *said],
                hint=f"{_PIP_HINT}, check name, version and file in the lock{supply}",
            )
        case "denied":
            return InfrastructureError(
                f"the index refused to give {title}",
                details=[*file, *said],
                hint=f"give pip the credentials{supply}",
            )
        case "space":
            return _no_space(store, wheel._replace(size=2 * wheel.size))  # pip copies it once
        case "cut":
            return InfrastructureError(
                f"the download of {title} ended early, {ATTEMPTS} times",
                details=[*file, *said],
                hint=f"run hq again{supply}",
            )
        case _:
            return InfrastructureError(
                f"cannot fetch {title}",
                details=[*file, *said],
                hint=f"{_PIP_HINT}, the network and the proxy; then run hq again{supply}",
            )
