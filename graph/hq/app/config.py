"""From the files of a project to the values that the planner takes.

``load`` reads ``build.toml`` and every file it names, checks each by itself and against the others,
and reports all mistakes together. It is slow (pydantic), pure in what it reads, and therefore
remembered: ``hq.app.project`` keeps its result with the digests of the files it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from hq.app.bases import base_spec
from hq.app.declaration import (
    ImageFile,
    LockFile,
    LockWheel,
    OverlayFile,
    ProjectFile,
)
from hq.app.facts import fact_problems, facts_of
from hq.app.knobsfile import LoadedRegistry, load_registry_with_places
from hq.app.launchers import Launchers, launchers_of
from hq.app.validate import Document, did_you_mean, load_document
from hq.knobs.registry import to_values
from hq.model.digest import Digest
from hq.model.errors import HqError, Location, Problem, UsageError, problems_error
from hq.model.project import (
    BaseSpec,
    Exported,
    ImageSpec,
    KnobsSpec,
    LockedWheel,
    OverlaySpec,
    PinSpec,
    PythonSpec,
    SeriesItem,
)
from hq.model.tree import is_unicode
from hq.patchwork.series import Entry, orphan_problems, parse_series
from hq.wheels.filename import normalize_project, parse_filename, same_version

T = TypeVar("T")


class Files(Protocol):
    """The project's files, by path from its root."""

    def read(self, path: str) -> bytes:
        """The content. Raises ``FileNotFoundError`` or another ``OSError``."""
        ...

    def names(self, folder: str) -> list[str]:
        """Every file beneath ``folder``, by path from it, sorted; none without such a folder."""
        ...


class Problems:
    """Collects errors, so that independent mistakes are told at once."""

    def __init__(self) -> None:
        self._errors: list[UsageError] = []

    def attempt(self, step: Callable[[], T]) -> T | None:
        """The step's result, or ``None`` when it raised ``UsageError``, which is kept."""
        try:
            return step()
        except UsageError as error:
            self._errors.append(error)
            return None

    def add(self, file: str, problems: Sequence[Problem]) -> None:
        """Notes the mistakes found in ``file``."""
        if problems:
            count = "one mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
            error = problems_error(f"{file} has {count}", problems)
            assert isinstance(error, UsageError)
            self._errors.append(error)

    def raise_any(self) -> None:
        """Raises what was kept, as one error."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            details: list[str] = []
            for error in self._errors:
                details += _indented(error)
            raise UsageError(f"{len(self._errors)} files have mistakes", details=details)


def _indented(error: HqError) -> list[str]:
    first, *rest = error.render().split("\n")
    return [first.removeprefix("error: "), *rest]


class Project(NamedTuple):
    """``build.toml``, read and checked."""

    declared: ProjectFile
    document: Document

    @property
    def default_pin(self) -> str:
        """The pin that is built when none is named."""
        return self.declared.project.default_pin


def read_project(files: Files) -> Project:
    """Reads ``build.toml``. Raises ``UsageError``."""
    declared, document = load_document("build.toml", files.read("build.toml"), ProjectFile)
    at = document.locator()
    if declared.project.default_pin not in declared.pins:
        pins = sorted(declared.pins)
        message = f"project.default-pin: there is no pin {declared.project.default_pin!r}"
        hint = did_you_mean(declared.project.default_pin, pins)
        raise problems_error(
            "build.toml has one mistake",
            [Problem(at("project", "default-pin"), message, hint)],
        )
    return Project(declared, document)


def series_of(project: Project, pin: str) -> tuple[str, str]:
    """The series file and the folder of patches of ``pin``. Raises ``UsageError``."""
    pin = pin or project.default_pin
    check_pin(project, pin)
    return project.declared.pins[pin].series, project.declared.patches.directory


def check_pin(project: Project, pin: str) -> None:
    """Raises ``UsageError`` unless the project declares ``pin``."""
    if pin not in project.declared.pins:
        raise UsageError(
            f"there is no pin {pin!r} in build.toml",
            where=project.document.locator()("pins"),
            details=[f"declared: {', '.join(sorted(project.declared.pins))}"],
            hint="name one of these, or add a [pins] table and a lock for it",
        )


def load(files: Files, pin: str, epoch: int, images: Sequence[str] = ()) -> PinSpec:
    """Everything that ``pin`` (the default one if empty) is made of.

    ``epoch``: seconds, the time stamp of every file of a layer. ``images``: the names of those that
    are wanted, those that are built by default if empty. Raises ``UsageError``.
    """
    project = read_project(files)
    pin = pin or project.default_pin
    check_pin(project, pin)
    return _Loader(files, project, pin, epoch, images).load()


_LAYERS: Final = frozenset({"wheel", "series", "envs", "launch"})
_LAYER_KINDS: Final = ("dep-", "deps-", "base-")


class _Loader:
    """Reads the files that ``build.toml`` names."""

    def __init__(
        self, files: Files, project: Project, pin: str, epoch: int, images: Sequence[str]
    ) -> None:
        self._files = files
        self._project = project
        self._declared = project.declared
        self._pin = pin
        self._epoch = epoch
        self._wanted = images
        self._problems = Problems()
        self._known_owners: set[str] = set()
        self._overlay_names: dict[str, int] = {}
        self._launchers: dict[str, Launchers] = {}

    def load(self) -> PinSpec:
        attempt = self._problems.attempt
        pin = self._declared.pins[self._pin]
        wheels = attempt(lambda: self._wheels(pin.lock))
        series = attempt(self._series)
        overlays = [
            attempt(partial(self._overlay, number, path))
            for number, path in enumerate(self._declared.overlays)
        ]
        images = attempt(self._images)
        registry = attempt(self._registry)
        exports = None if images is None else attempt(partial(self._exports, registry))
        if series is None or None in overlays:
            # Who owns a knob cannot be judged, and would only repeat what is wrong already.
            self._problems.raise_any()
        present = {f"overlay:{overlay.name}" for overlay in overlays if overlay is not None}
        present.update(f"patch:{item.stem}" for item in series or ())
        knobs = None if registry is None else attempt(partial(self._knobs, registry, present))
        self._problems.raise_any()
        assert wheels is not None and series is not None and images is not None
        wanted = any(image.dependencies for image in images)
        return PinSpec(
            project=self._declared.project.name,
            pin=self._pin,
            wheel=wheels[0],
            series_file=pin.series,
            series=series,
            knobs=knobs,
            overlays=tuple(overlay for overlay in overlays if overlay is not None),
            images=images,
            epoch=self._epoch,
            dependencies=wheels[1:] if wanted else (),
            control=self._control(),
            exports=exports[0] if exports is not None else (),
            exporters=exports[1] if exports is not None else (),
        )

    def _control(self) -> dict[str, str] | None:
        table = self._declared.control
        if table is None:
            return None
        return {"default": table.default, "base-branch": table.base_branch or ""}

    def _read(self, path: str, named_by: Location, what: str) -> bytes:
        try:
            return self._files.read(path)
        except FileNotFoundError:
            problem = Problem(named_by, f"{what}: there is no file {path}")
            raise problems_error(f"{named_by.file} has one mistake", [problem]) from None

    def _at(self, *path: str | int) -> Location:
        return self._project.document.locator()(*path)

    def _wheels(self, path: str) -> tuple[LockedWheel, ...]:
        """The wheels of the lock, the patched distribution first."""
        named_by = self._at("pins", self._pin, "lock")
        data = self._read(path, named_by, "lock")
        lock, document = load_document(path, data, LockFile)
        at = document.locator()
        problems: list[Problem] = []
        if lock.pin != self._pin:
            message = (
                f"pin: expected {self._pin!r}, found {lock.pin!r}: the lock is for another pin"
            )
            problems.append(Problem(at("pin"), message, "make the lock of this pin"))
        rows = [
            (number, row)
            for number, row in enumerate(lock.wheel)
            if normalize_project(row.name) == normalize_project(lock.distribution)
        ]
        names: set[str] = set()
        for number, row in enumerate(lock.wheel):
            problems += _file_name_problems(row, at("wheel", number, "file"))
            if normalize_project(row.name) in names:
                message = f"wheel[{number}].name: {row.name} is locked twice"
                problems.append(Problem(at("wheel", number, "name"), message))
            names.add(normalize_project(row.name))
        if len(rows) != 1:
            message = f"distribution: expected one wheel of {lock.distribution}, found {len(rows)}"
            problems.append(Problem(at("distribution"), message))
        elif rows[0][1].version != lock.pin:
            number, row = rows[0]
            message = (
                f"wheel[{number}].version: expected the pin {lock.pin!r}, found {row.version!r}"
            )
            problems.append(Problem(at("wheel", number, "version"), message))
        self._raise(path, problems)
        first = rows[0][1]
        others = sorted((row for row in lock.wheel if row is not first), key=lambda row: row.name)
        return tuple(
            LockedWheel(
                row.name, row.version, row.file, Digest.from_hex(row.sha256), row.size, row.record
            )
            for row in (first, *others)
        )

    def _raise(self, file: str, problems: Sequence[Problem]) -> None:
        if problems:
            count = "one mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
            raise problems_error(f"{file} has {count}", problems)

    def _series(self) -> tuple[SeriesItem, ...]:
        """The pin's series. Every patch file must be in the series of some pin."""
        folder = self._declared.patches.directory
        present = self._names(folder)
        named: set[str] = set()
        found: tuple[SeriesItem, ...] = ()
        problems = Problems()
        for pin, table in sorted(self._declared.pins.items()):
            named_by = self._at("pins", pin, "series")
            entries = problems.attempt(partial(self._entries, table.series, present, named_by))
            items = _items(entries or (), folder)
            named.update(item.name for item in items)
            self._known_owners.update(f"patch:{item.stem}" for item in items)
            if pin == self._pin and entries is not None:
                found = items
        problems.raise_any()
        orphans = orphan_problems(named, present, folder)
        if orphans:
            many = f"{len(orphans)} patch files are" if len(orphans) > 1 else "one patch file is"
            raise problems_error(f"{many} in no series", orphans)
        return found

    def _entries(self, path: str, present: Sequence[str], named_by: Location) -> Sequence[Entry]:
        data = self._read(path, named_by, "series")
        return parse_series(data, path, set(present).__contains__)

    def _registry(self) -> LoadedRegistry | None:
        table = self._declared.knobs
        if table is None:
            return None
        data = self._read(table.registry, self._at("knobs", "registry"), "knobs.registry")
        return load_registry_with_places(table.registry, data)

    def _knobs(self, loaded: LoadedRegistry, present: set[str]) -> KnobsSpec:
        """The knobs whose owners are ``present`` in this pin's build."""
        table = self._declared.knobs
        assert table is not None
        known = present | self._known_owners
        self._raise(
            table.registry,
            [
                Problem(
                    loaded.declared_at[knob.name],
                    f"{knob.name} is owned by {knob.owner}, which no pin has",
                    did_you_mean(knob.owner, sorted(known)),
                )
                for knob in loaded.registry.knobs
                if knob.owner not in known
            ],
        )
        return KnobsSpec(table.target, to_values(loaded.registry.owned_by(present)))

    def _overlay(self, number: int, path: str) -> OverlaySpec:
        data = self._read(path, self._at("overlays", number), "overlays")
        overlay, document = load_document(path, data, OverlayFile)
        at = document.locator()
        if overlay.name in _LAYERS or overlay.name.startswith(_LAYER_KINDS):
            message = f"name: hq calls a layer of its own {overlay.name!r}"
            raise problems_error(
                f"{path} has one mistake", [Problem(document.locator()("name"), message)]
            )
        other = self._overlay_names.setdefault(overlay.name, number)
        if other != number:
            first = self._declared.overlays[other]
            message = f"name: {first} is also called {overlay.name!r}"
            raise problems_error(f"{path} has one mistake", [Problem(at("name"), message)])
        base = path.rpartition("/")[0]
        prefix = f"{base}/" if base else ""
        pin = overlay.pins.get(self._pin)
        if overlay.pins and pin is None:
            message = f"pins: nothing is said for the pin {self._pin}"
            raise problems_error(f"{path} has one mistake", [Problem(at("pins"), message)])
        self._raise(path, list(fact_problems(overlay, document)))
        new = self._new_files(prefix + overlay.files.root)
        if pin is not None and pin.extra is not None:
            new |= self._new_files(prefix + pin.extra)
        patches: tuple[SeriesItem, ...] = ()
        if pin is not None and pin.series is not None:
            folder = prefix + overlay.patches
            present = self._names(folder)
            series = f"{folder}/{pin.series}"
            named_by = at("pins", self._pin, "series")
            patches = _items(self._entries(series, present, named_by), folder)
        return OverlaySpec(
            name=overlay.name,
            files=new,
            replaces=overlay.files.replaces,
            patches=patches,
            facts=facts_of(overlay, self._pin),
        )

    def _new_files(self, root: str) -> dict[str, str]:
        return {name: f"{root}/{name}" for name in self._names(root)}

    def _names(self, folder: str) -> list[str]:
        """The files beneath a folder; their names stand in keys and records, which are UTF-8."""
        names = self._files.names(folder)
        odd = [name for name in names if not is_unicode(name)]
        message = "the name of the file is not UTF-8"
        self._raise(
            folder, [Problem(Location(f"{folder}/{name}"), message, "rename it") for name in odd]
        )
        return names

    def _exports(
        self, loaded: LoadedRegistry | None
    ) -> tuple[tuple[Exported, ...], tuple[str, ...]]:
        """What launchers and profiles set, of every image; and their names."""
        folder = self._declared.profiles
        paths = [f"{folder}/{name}" for name in (self._names(folder) if folder else ())]
        profiles = [path for path in paths if path.endswith(".toml")]
        if not profiles and not any(each.scripts for each in self._launchers.values()):
            return (), ()
        from hq.app.profiles import launcher_exports, profile_exports, read_profiles

        prefixes = loaded.registry.all_prefixes if loaded is not None else ()
        found = launcher_exports(self._launchers.values())
        read = read_profiles(profiles, self._files.read)
        found += profile_exports(read, self._launchers, tuple(prefixes))
        scripts = {path for each in self._launchers.values() for path in each.scripts}
        return tuple(found), tuple(sorted(scripts | set(profiles)))

    def _launch(self, image: ImageFile, document: Document) -> Launchers:
        def read(place: str, path: str) -> bytes:
            return self._read(path, document.locator()("launch", "files", place), "launch.files")

        return launchers_of(image, read)

    def _images(self) -> tuple[ImageSpec, ...]:
        images: list[ImageSpec] = []
        names: dict[str, str] = {}
        bases: dict[str, str] = {}
        # Images that lay their layers out alike share the nodes, under the name of the first.
        suffixes: dict[tuple[object, ...], str] = {}
        for number, path in enumerate(self._declared.images):
            data = self._read(path, self._at("images", number), "images")
            image, document = load_document(path, data, ImageFile)
            if image.name in names:
                message = f"name: {names[image.name]} is also called {image.name!r}"
                problem = Problem(document.locator()("name"), message)
                raise problems_error(f"{path} has one mistake", [problem])
            names[image.name] = path
            self._launchers[image.name] = self._launch(image, document)
            spec = _image_spec(image)
            style = (spec.prefix, spec.compression, spec.python)
            suffix = suffixes.setdefault(style, f"@{image.name}" if suffixes else "")
            if image.name in self._wanted or (image.default and not self._wanted):
                base = base_spec(image, document, self._read)
                self._check_base(image, document, base, bases)
                images.append(spec._replace(base=base, suffix=suffix))
        for name in self._wanted:
            if name not in names:
                raise UsageError(
                    f"there is no image {name!r} in build.toml",
                    where=self._at("images"),
                    details=[f"declared: {', '.join(sorted(names))}"],
                )
        return tuple(images)

    def _check_base(
        self, image: ImageFile, document: Document, base: BaseSpec | None, known: dict[str, str]
    ) -> None:
        """A lock's file gives the base its name, which nodes and errors show."""
        if base is None or isinstance(image.base, str) or image.base.debian is None:
            return
        path = image.base.debian
        other = known.setdefault(base.name, path)
        if other != path:
            message = f"base.debian: the bases of {other} and {path} would both be {base.name!r}"
            problem = Problem(document.locator()("base", "debian"), message, "rename one file")
            raise problems_error(f"{document.file} has one mistake", [problem])


def _items(entries: Sequence[Entry], folder: str) -> tuple[SeriesItem, ...]:
    return tuple(
        SeriesItem(entry.name, f"{folder}/{entry.name}", entry.strip, entry.reverse)
        for entry in entries
    )


def _image_spec(image: ImageFile) -> ImageSpec:
    config = image.config
    return ImageSpec(
        name=image.name,
        role=image.role,
        prefix=image.prefix,
        compression=image.compression,
        os=image.platform.os,
        architecture=image.platform.architecture,
        env=config.env,
        entrypoint=config.entrypoint,
        cmd=config.cmd,
        working_dir=config.working_dir,
        user=config.user,
        labels=config.labels,
        annotations=image.annotations,
        ports=config.ports,
        volumes=config.volumes,
        python=None if image.python is None else PythonSpec(**image.python.model_dump()),
        dependencies=image.dependencies,
        launch={} if image.launch is None else dict(sorted(image.launch.files.items())),
    )


def _file_name_problems(row: LockWheel, where: Location) -> Iterator[Problem]:
    try:
        name = parse_filename(row.file)
    except HqError as error:
        yield Problem(where, error.message, error.hint)
        return
    if name.project != normalize_project(row.name) or not same_version(name.version, row.version):
        yield Problem(where, f"{row.file} is no wheel of {row.name} {row.version}")
