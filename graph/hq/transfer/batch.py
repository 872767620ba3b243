"""Fetching many locked wheels at once: a few pips beside each other, each with a share of the list.

One pip for each wheel would spend more time starting than fetching; one for all would use one
connection. What a pip did not bring is fetched again by itself, which also gives the error that
says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from threading import Thread
from time import monotonic

from hq.model.digest import BlobRef
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
    ``meanwhile`` raise; the latter's errors end the fetch.
    """
    missing = [wheel for wheel in wheels if not store.has(BlobRef(wheel.sha256, wheel.size))]
    if offline and missing:
        raise _offline(missing)
    total = sum(wheel.size for wheel in missing)
    lanes: list[_Lane] = []

    def tell() -> None:
        progress(min(total, sum(lane.done for lane in lanes)), total)

    lanes += [_Lane(store, wheels, tell) for wheels in share(missing, LANES)]
    for lane in lanes:
        lane.start()
    try:
        meanwhile()
        for lane in lanes:
            lane.join()
    finally:
        for lane in lanes:
            lane.stop = True
        for lane in lanes:
            lane.join()
    for wheel in missing:
        # In the lock's order, and in this thread: the first that really fails is the error.
        fetch_wheel(store, wheel)


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


class _Lane(Thread):
    def __init__(
        self, store: DiskStore, wheels: list[LockedWheel], tell: Callable[[], None]
    ) -> None:
        super().__init__(name=f"fetch {len(wheels)} wheels")
        self.done = 0
        self.stop = False
        self._store = store
        self._wheels = wheels
        self._tell = tell
        self._looked = 0.0

    def run(self) -> None:
        try:
            with self._store.staging() as folder:
                self._fetch(folder)
        except (_Stop, HqError, OSError):
            # What did not come is asked for once more, by itself, and that error is raised.
            return

    def _fetch(self, folder: str) -> None:
        requirements = f"{folder}/requirements.txt"
        with open(requirements, "w", encoding="utf-8") as file:
            file.writelines(
                f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256.hex}\n"
                for wheel in self._wheels
            )
        arguments = ["--require-hashes", "--requirement", requirements, *_tags(self._wheels)]
        found = download_all(find_pip(), folder, arguments, self._look)
        for wheel in self._wheels:
            path = f"{found}/{wheel.file}"
            # What is not there is fetched by itself later, which tells the reason.
            if os.path.exists(path):
                adopt(self._store, path, wheel)

    def _look(self, size: int) -> None:
        if self.stop:
            raise _Stop
        if monotonic() - self._looked > _PAUSE:
            self._looked = monotonic()
            self.done = size
            self._tell()


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
    return BuildError(
        f"{len(missing)} wheels ({size}) are not in the store, and --offline forbids to fetch them",
        details=[f"{wheel.file} sha256:{wheel.sha256.hex} {wheel.size} bytes" for wheel in missing],
        hint="run once without --offline",
    )
