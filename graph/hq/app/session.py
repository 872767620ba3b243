"""One run of hq on one project: its store, its files, its declaration, its graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

from hq.app.memory import Memory, remembered_spec, scoped, spec_document
from hq.app.sources import ProjectSources
from hq.app.supply import Bases
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, InfrastructureError, Location, UsageError
from hq.model.ports import BlobStore
from hq.model.project import LockedDeb, LockedWheel, PinSpec, SeriesItem
from hq.model.tree import is_unicode
from hq.patchwork.names import show
from hq.patchwork.parse import parse_patch
from hq.patchwork.target import touched_paths
from hq.plan.build import item_key, pin_graph
from hq.plan.node import Graph
from hq.store.disk import DiskStore
from hq.store.stat import StatCache
from hq.wheels.index import WheelIndex

Warn = Callable[[str], None]
Progress = Callable[[int, int], None]
_LAST_SECOND = 8**11 - 1  # since 1970


class Settings(NamedTuple):
    """What the command line and the environment decide. Paths are absolute."""

    root: str
    store: str
    output: str
    epoch: int = 0
    offline: bool = False
    jobs: int = 1
    images: tuple[str, ...] = ()


class Session:
    """Opens the store; use as a context manager."""

    def __init__(self, settings: Settings, warn: Warn) -> None:
        self.settings = settings
        self.warn = warn
        self.disk = DiskStore(settings.store, warn=warn)
        self.stats = StatCache(self.disk, settings.root)
        self.sources = ProjectSources(settings.root, self.stats)
        self.memory = Memory(settings.store, settings.root, self.keep)
        self._forgets = False
        self._own: LockedWheel | None = None
        self._indexes: dict[BlobRef, WheelIndex] = {}
        self._bases = Bases(self.disk, settings.root, offline=settings.offline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._forgets:
            self.stats.save()
        self.disk.close()

    def commit(self) -> str:
        """The git commit that the project's files are at, or empty."""
        from hq.app.commit import head_commit

        return head_commit(self.settings.root)

    def keep(self, name: str, data: bytes) -> None:
        """Writes a file of the store that can be made again; warns, once, where that fails."""
        try:
            self.disk.write_file(name, data)
        except InfrastructureError as error:
            if not self._forgets:
                self.warn(f"nothing is remembered of this run: {error.message}")
            self._forgets = True

    def spec(self, pin: str) -> PinSpec:
        """The declaration of ``pin`` (the default one if empty), remembered or read anew."""
        epoch = self.settings.epoch
        chosen = self.settings.images
        name = scoped("spec", pin, chosen)
        spec = remembered_spec(
            self.memory.load(name), self._digest_or_none, self.sources.names, epoch
        )
        if spec is not None:
            return spec
        from hq.app.config import load

        files = _Recorder(self.sources)
        spec = load(files, pin, epoch, chosen)
        digests = {path: self.sources.ref(path).digest for path in sorted(files.files)}
        self.memory.save(name, spec_document(spec, digests, files.folders, epoch))
        return spec

    def _digest_or_none(self, path: str) -> str:
        try:
            return self.sources.ref(path).digest
        except UsageError:
            return ""

    def graph(self, spec: PinSpec) -> Graph:
        """The graph of a declaration."""
        items = [*spec.series, *(item for overlay in spec.overlays for item in overlay.patches)]
        self._bases.declare(image.base for image in spec.images)
        self._own = spec.wheel
        added = (source for overlay in spec.overlays for source in overlay.files.values())
        executable = {source for source in added if self.sources.is_executable(source)}
        return pin_graph(spec, self._touched(items), executable)

    def _touched(self, items: list[SeriesItem]) -> Mapping[str, tuple[str, ...]]:
        known = self.memory.load("touched")
        known = known if isinstance(known, dict) else {}
        current: dict[str, list[str]] = {}
        touched: dict[str, tuple[str, ...]] = {}
        for item in items:
            key = f"{self.sources.ref(item.file).digest} -p{item.strip} {item.reverse}"
            paths = known.get(key) or self._parse_touched(item)
            current[key] = list(paths)
            touched[item_key(item)] = tuple(paths)
        if any(key not in known for key in current):
            self.memory.save("touched", known | current)
        return touched

    def _parse_touched(self, item: SeriesItem) -> tuple[str, ...]:
        patch = parse_patch(self.sources.read(item.file), item.file)
        paths = touched_paths(patch, item.strip, item.reverse)
        odd = [path for path in paths if not is_unicode(path)]
        if odd:
            raise BuildError(
                f"{item.file} is refused: {show(odd[0])} is no name in UTF-8",
                where=Location(item.file),
                hint="RECORD is UTF-8, so no file of a distribution has such a name",
            )
        return paths

    # hq.execute.context.Machine

    @property
    def store(self) -> BlobStore:
        """The blob store."""
        return self.disk

    def fetch(self, wheel: LockedWheel, progress: Progress) -> BlobRef:
        """A locked wheel, from the store or the network."""
        ref = BlobRef(wheel.sha256, wheel.size)
        if not self.disk.has(ref):
            from hq.transfer.fetch import fetch_wheel

            own = wheel == self._own
            fetch_wheel(self.disk, wheel, progress, offline=self.settings.offline, own=own)
        return ref

    def fetch_deb(self, deb: LockedDeb, progress: Progress) -> BlobRef:
        """A locked Debian package, from the store or by apt."""
        return self._bases.fetch_deb(deb, progress)

    def base_image(
        self, digest: Digest, os_: str, architecture: str, progress: Progress
    ) -> BlobRef:
        """An image that stands below one of the project's."""
        return self._bases.base_image(digest, os_, architecture, progress)

    def supply(self, pin: str, path: str, progress: Progress) -> None:
        """Takes the pin's wheel from a file that the user has.

        Raises ``UsageError`` for a file that is none, ``BuildError`` for another wheel.
        """
        from hq.transfer.fetch import import_file

        import_file(self.disk, path, self.spec(pin).wheel, progress)

    def index(self, ref: BlobRef) -> WheelIndex:
        """A wheel's index, decoded once."""
        index = self._indexes.get(ref)
        if index is None:
            index = self._indexes[ref] = WheelIndex.decode(self.disk.read(ref))
        return index


class _Recorder:
    """Notes what the loading of a declaration reads."""

    def __init__(self, sources: ProjectSources) -> None:
        self._sources = sources
        self.files: set[str] = set()
        self.folders: dict[str, list[str]] = {}

    def read(self, path: str) -> bytes:
        """A file's content."""
        data = self._sources.read(path)
        self.files.add(path)
        return data

    def names(self, folder: str) -> list[str]:
        """The files beneath a folder."""
        found = self._sources.names(folder)
        self.folders[folder] = found
        return found


def settings_from(
    root: str,
    *,
    store: str,
    output: str,
    offline: bool,
    jobs: int,
    environment: Mapping[str, str],
    images: tuple[str, ...] = (),
) -> Settings:
    """Settings with every default filled in. Raises ``UsageError``."""
    return Settings(
        root=root,
        store=store,
        output=output or os.path.join(root, "dist"),
        epoch=_epoch(environment.get("SOURCE_DATE_EPOCH", "")),
        offline=offline,
        jobs=jobs or os.cpu_count() or 1,
        images=images,
    )


def _epoch(text: str) -> int:
    if not text:
        return 0
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0") or "0"
        # Not more than a tar file's eleven octal digits; and int() takes no text of any length.
        if len(digits) <= 10 and int(digits) <= _LAST_SECOND:
            return int(digits)
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise UsageError(
            f"SOURCE_DATE_EPOCH: expected at most {_LAST_SECOND}, found {shown!r}",
            hint="a layer's time stamps end in the year 2242",
        )
    raise UsageError(
        f"SOURCE_DATE_EPOCH: expected seconds since 1970 as decimal digits, found {text!r}",
        hint="unset it for the default, 0",
    )
