"""Fetching many locked wheels at once: a few pips beside each other, each with a share of the list.

One pip for each wheel would spend more time starting than fetching; one for all would use one
connection. pip hands its files over when all have come; when it ends before, those that are whole
are taken from where it works. What did not come is fetched again by itself, which also gives the
error that says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Event, Thread
from time import monotonic

from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, HqError
from hq.model.project import LockedWheel
from hq.store.disk import DiskStore
from hq.store.faults import human_size
from hq.transfer.fetch import adopt, fetch_wheel
from hq.transfer.pip import download_all, find_pip
from hq.wheels.filename import parse_filename

Progress = Callable[[int, int], None]

LANES = 4
_PAUSE = 0.2  # seconds between two looks at the progress
_TURN = Digest.of(b"wheels").hex


def nothing() -> None:
    """Does nothing."""


def fetch_many(
    store: DiskStore,
    wheels: Iterable[LockedWheel],
    progress: Progress,
    *,
    offline: bool = False,
    meanwhile: Callable[[], object] = nothing,
) -> None:
    """Brings every wheel that the store lacks, and calls ``meanwhile`` while they come.

    ``progress`` gets (bytes so far, bytes in all) of those, from the threads that fetch. Raises
    ``BuildError`` that names all of them when they may not be fetched, and what ``fetch_wheel`` and
    ``meanwhile`` raise; the latter's errors end the fetch. Wheels that have come are kept.
    """
    missing = _missing(store, wheels)
    if offline and missing:
        raise _offline(missing)
    fetch = _Fetch(store, missing, progress)
    fetch.start()
    try:
        meanwhile()
        fetch.ended.wait()
    finally:
        fetch.end()
    for wheel in missing:
        # In the lock's order, and in this thread: the first that really fails is the error.
        fetch_wheel(store, wheel, own=False)


def _missing(store: DiskStore, wheels: Iterable[LockedWheel]) -> list[LockedWheel]:
    return [wheel for wheel in wheels if not store.has(BlobRef(wheel.sha256, wheel.size))]


def share(wheels: Sequence[LockedWheel], lanes: int) -> list[list[LockedWheel]]:
    """The wheels dealt out so that every lane has about as many bytes; empty lanes are left out."""
    shares: list[list[LockedWheel]] = [[] for _ in range(lanes)]
    sizes = [0] * lanes
    for wheel in sorted(wheels, key=lambda wheel: (-wheel.size, wheel.name)):
        lane = sizes.index(min(sizes))
        shares[lane].append(wheel)
        sizes[lane] += wheel.size
    return [share for share in shares if share]


class _Stop(Exception):
    """Ends a pip whose build has ended."""


class _Fetch(Thread):
    """The fetch, beside the build: one at a time on a store, so that nothing comes twice.

    ``ended`` is set when nothing is left to wait for. The thread is a daemon and is not joined: a
    second Ctrl-C must end the process, and an interrupted ``join`` takes a thread for ended that is
    not (CPython 3.11).
    """

    def __init__(self, store: DiskStore, wheels: Sequence[LockedWheel], progress: Progress) -> None:
        super().__init__(name="fetch", daemon=True)
        self.ended = Event()
        self._begun = Event()
        self._stop_now = False
        self._store = store
        self._wheels = wheels
        self._progress = progress
        self._lanes: list[_Lane] = []
        self._before = 0

    def end(self) -> None:
        """Ends the fetch, and waits until its files are put away."""
        self._stop_now = True
        # While another build fetches, this one only waits for its turn: no reason to wait for that.
        if self._begun.is_set():
            self.ended.wait()

    def run(self) -> None:
        """Fetches what is still missing when it is this build's turn."""
        try:
            if self._wheels:
                with self._store.actions.lock(_TURN):
                    self._begun.set()
                    self._fetch()
        except (HqError, OSError, KeyboardInterrupt):
            # What did not come is asked for once more, by itself, and that error is raised.
            return
        finally:
            self.ended.set()

    def _fetch(self) -> None:
        missing = _missing(self._store, self._wheels)
        self._before = sum(w.size for w in self._wheels) - sum(w.size for w in missing)
        if self._stop_now:
            return
        self._lanes = [_Lane(self, self._store, share) for share in share(missing, LANES)]
        for lane in self._lanes:
            lane.start()
        for lane in self._lanes:
            lane.ended.wait()

    def look(self) -> None:
        """Tells how far all is. Raises ``_Stop`` when the fetch has to end."""
        if self._stop_now:
            raise _Stop
        total = sum(wheel.size for wheel in self._wheels)
        done = self._before + sum(lane.done for lane in self._lanes)
        self._progress(min(total, done), total)


class _Lane(Thread):
    """One pip and its share."""

    def __init__(self, fetch: _Fetch, store: DiskStore, wheels: Sequence[LockedWheel]) -> None:
        super().__init__(name=f"fetch {len(wheels)} wheels", daemon=True)
        self.done = 0
        self.ended = Event()
        self._fetch = fetch
        self._store = store
        self._wheels = wheels
        self._looked = 0.0

    def run(self) -> None:
        """Fetches and keeps what came, also when pip failed or was ended on the way."""
        try:
            with self._store.staging() as folder:
                try:
                    self._download(folder)
                finally:
                    self._adopt(folder)
        except (_Stop, HqError, OSError, KeyboardInterrupt):
            return
        finally:
            self.ended.set()

    def _download(self, folder: str) -> None:
        requirements = f"{folder}/requirements.txt"
        with open(requirements, "w", encoding="utf-8") as file:
            file.writelines(
                f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256.hex}\n"
                for wheel in self._wheels
            )
        arguments = ["--require-hashes", "--requirement", requirements, *_tags(self._wheels)]
        download_all(find_pip(), folder, arguments, self._look)

    def _adopt(self, folder: str) -> None:
        by_name = {wheel.file: wheel for wheel in self._wheels}
        for place, _, names in os.walk(folder):
            for name in sorted(names):
                wheel = by_name.get(name)
                path = f"{place}/{name}"
                # A file that has its size is whole, as a rule; ``adopt`` looks at all of it.
                if wheel is not None and os.path.getsize(path) == wheel.size:
                    with suppress(BuildError):
                        adopt(self._store, path, wheel)

    def _look(self, size: int) -> None:
        if monotonic() - self._looked > _PAUSE:
            self._looked = monotonic()
            self.done = size
            self._fetch.look()


def _tags(wheels: Sequence[LockedWheel]) -> list[str]:
    """Options by which pip takes all of these files; the hashes choose among candidates."""
    names = [parse_filename(wheel.file) for wheel in wheels]
    pythons = {python for name in names for python in name.pythons}
    newest = max(
        (int(p[3:]) for p in pythons if p.startswith("cp3") and p[3:].isdigit()), default=0
    )
    arguments = ["--implementation", "cp", "--python-version", f"3.{newest}" if newest else "3"]
    for abi in sorted({abi for name in names for abi in name.abis}):
        arguments += ["--abi", abi]
    for platform in sorted({platform for name in names for platform in name.platforms}):
        arguments += ["--platform", platform]
    return arguments


def _offline(missing: Sequence[LockedWheel]) -> BuildError:
    size = human_size(sum(wheel.size for wheel in missing))
    one = len(missing) == 1
    count, them = ("one wheel", "it") if one else (f"{len(missing)} wheels", "them")
    verb = "is" if one else "are"
    return BuildError(
        f"{count} ({size}) {verb} not in the store, and --offline forbids to fetch {them}",
        details=[f"{wheel.file} sha256:{wheel.sha256.hex} {wheel.size} bytes" for wheel in missing],
        hint="run once without --offline",
    )
