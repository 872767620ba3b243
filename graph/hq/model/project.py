"""What a project declares, after its files were read and checked: plain values for the planner.

``hq.app.config`` makes them from ``build.toml`` and the files it names; nothing here knows TOML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hq.model.digest import Digest


class LockedWheel(NamedTuple):
    """One wheel of a lock file: the bytes are named by ``sha256``, ``size`` is in bytes.

    ``record``: ``check``, or ``ignore`` for a published wheel whose RECORD is wrong.
    """

    name: str
    version: str
    file: str
    sha256: Digest
    size: int
    record: str = "check"


class LockedDeb(NamedTuple):
    """One Debian package of a base lock; ``file``: its base name, ``size`` in bytes."""

    name: str
    version: str
    architecture: str
    file: str
    sha256: Digest
    size: int


class BaseSpec(NamedTuple):
    """What an image stands on.

    ``kind``: ``debian``, a root file system of ``debs`` (``suite``, ``architecture``); ``layout``
    or ``registry``, the image of digest ``digest`` in the folder or repository ``place``.
    ``name``: how nodes are called after it.
    """

    kind: str
    name: str
    architecture: str
    suite: str = ""
    debs: tuple[LockedDeb, ...] = ()
    place: str = ""
    digest: str = ""


class SeriesItem(NamedTuple):
    """One patch of a series as quilt reads it: the file, ``-pN`` and ``-R``."""

    name: str
    file: str
    strip: int
    reverse: bool

    @property
    def stem(self) -> str:
        """The readable name: the file's last part without ``.patch`` or ``.diff``."""
        base = self.file.rpartition("/")[2]
        for suffix in (".patch", ".diff"):
            if base.endswith(suffix):
                return base[: -len(suffix)]
        return base


class Fact(NamedTuple):
    """One declared fact of an overlay, checked in the built tree (``hq.rules.facts``).

    ``name``: the entry of ``[facts]`` that it belongs to. ``what``: the sentence an error shows.
    ``params``: what the kind of check takes.
    """

    name: str
    what: str
    path: str
    kind: str
    params: Mapping[str, str | int | tuple[str, ...]]


class OverlaySpec(NamedTuple):
    """An overlay: new files (target path → source path), patches after them, declared facts."""

    name: str
    files: Mapping[str, str]
    replaces: tuple[str, ...]
    patches: tuple[SeriesItem, ...]
    facts: tuple[Fact, ...]


class PythonSpec(NamedTuple):
    """The Python that an image's packages are installed for; absolute paths in the image."""

    interpreter: str
    scripts: str
    data: str
    headers: str


class ImageSpec(NamedTuple):
    """An image: which layers, where the package stands in it, and its runtime configuration.

    ``launch``: files of the project by their places in the image. ``suffix``: of the names of its
    layers' nodes; the same whichever images are built.
    """

    name: str
    role: str
    prefix: str
    compression: str
    os: str
    architecture: str
    env: Mapping[str, str]
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    working_dir: str
    user: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    ports: tuple[str, ...]
    volumes: tuple[str, ...]
    base: BaseSpec | None = None
    python: PythonSpec | None = None
    dependencies: bool = False
    launch: Mapping[str, str] = {}
    suffix: str = ""


class Exported(NamedTuple):
    """``name`` is set by ``exporter``, a launcher or a profile, at a line of a project file."""

    name: str
    exporter: str
    file: str
    line: int


class KnobsSpec(NamedTuple):
    """The knob registry as canonical values, and the module that it is written into."""

    target: str
    registry: Mapping[str, object]


class PinSpec(NamedTuple):
    """Everything one pin's graph is made of.

    ``control``: how the build's control is chosen (``default``, ``base-branch``); no part of it.
    ``exports``: what the launchers and profiles of all the project's images set, ``exporters``
    those that were looked at; whichever images are built.
    """

    project: str
    pin: str
    wheel: LockedWheel
    series_file: str
    series: tuple[SeriesItem, ...]
    knobs: KnobsSpec | None
    overlays: tuple[OverlaySpec, ...]
    images: tuple[ImageSpec, ...]
    epoch: int
    dependencies: tuple[LockedWheel, ...] = ()
    control: Mapping[str, str] | None = None
    exports: tuple[Exported, ...] = ()
    exporters: tuple[str, ...] = ()
