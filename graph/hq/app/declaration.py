"""The shapes of the TOML files that a project declares itself with (docs/reference/files.md).

Only shapes and rules within one file are here; what must agree between files is checked in
``hq.app.config``.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from hq.app.validate import Declared
from hq.model.tree import path_problem

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:[._-][a-z0-9]+)*$", max_length=100)]
Hex256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
DebName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+$", max_length=200)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]

MAX_NAME = 255
"""Bytes of a name, on every file system that counts."""

MAX_PATH = 4000
"""Bytes of a path of an image. Linux takes 4095; the rest is for a root folder before it."""


def _project_path(text: str) -> str:
    problem = path_problem(text)
    if problem is not None:
        raise ValueError(f"{problem}; a path is relative to the project's root")
    return text


def _mount_path(text: str) -> str:
    if not text.startswith("/") or path_problem(text[1:]) is not None:
        raise ValueError("expected an absolute path in the image without '..' or a final '/'")
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in text):
        raise ValueError("a control character in the path")
    longest = max(len(part.encode()) for part in text.split("/"))
    if longest > MAX_NAME:
        raise ValueError(f"a part of the path has {longest} bytes; at most {MAX_NAME} are possible")
    size = len(text.encode())
    if size > MAX_PATH:
        raise ValueError(f"the path has {size} bytes; at most {MAX_PATH} are taken")
    return text


def _image_path(text: str) -> str:
    first = _mount_path(text).split("/")[1]
    if first in ("dev", "proc", "sys"):
        raise ValueError(
            f"nothing can be kept in /{first}: a container has a file system of the kernel there"
        )
    return text


_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _env_names(env: dict[str, str]) -> dict[str, str]:
    for name in env:
        if not _ENV_NAME.match(name):
            raise ValueError(f"{name!r} is no name of an environment variable")
    return env


ProjectPath = Annotated[str, AfterValidator(_project_path)]
MountPath = Annotated[str, AfterValidator(_mount_path)]
ImagePath = Annotated[str, AfterValidator(_image_path)]
Env = Annotated[dict[str, str], AfterValidator(_env_names)]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Table(Declared):
    """A table whose keys are written with hyphens."""

    model_config = ConfigDict(
        alias_generator=_kebab, validate_by_name=False, validate_by_alias=True
    )


class ProjectTable(Table):
    """``[project]``."""

    name: Name
    default_pin: Text
    distribution: Name | None = None


class PatchesTable(Table):
    """``[patches]``: the folder that holds every patch file."""

    directory: ProjectPath = "patches"
    ledger: ProjectPath | None = None


class KnobsTable(Table):
    """``[knobs]``: the registry, and the module of the wheel that it is written into."""

    registry: ProjectPath
    target: ProjectPath


class PinTable(Table):
    """``[pins."V"]``: the lock and the series of one pin.

    ``requires``: requirements beside the distribution itself, for ``hq lock``.
    """

    lock: ProjectPath
    series: ProjectPath
    requires: tuple[Text, ...] = ()


class TargetTable(Table):
    """``[target]``: the Python and the platform that dependencies are locked for."""

    python: Annotated[str, StringConstraints(pattern=r"^3\.\d{1,2}$")]
    platform: Text


class PortTable(Table):
    """``[port]``: files that mention the pin, for ``hq port rebase`` to bring up to date."""

    mentions: tuple[ProjectPath, ...] = ()


class ControlTable(Table):
    """``[control]``: what a build is compared with, unless the command line says otherwise.

    ``default``: ``merge-base``, ``none``, a pin or a git revision. ``base-branch``: what port
    branches start from.
    """

    base_branch: Text | None = None
    default: Text = "merge-base"


class ProjectFile(Table):
    """``build.toml``."""

    schema_: Literal["hq.project/1"] = Field(alias="schema")
    project: ProjectTable
    patches: PatchesTable = PatchesTable()
    target: TargetTable | None = None
    knobs: KnobsTable | None = None
    overlays: tuple[ProjectPath, ...] = ()
    images: Annotated[tuple[ProjectPath, ...], Field(min_length=1)]
    profiles: ProjectPath | None = None
    control: ControlTable | None = None
    pins: Annotated[dict[str, PinTable], Field(min_length=1)]
    port: PortTable = PortTable()


class LockWheel(Table):
    """``[[wheel]]`` of a lock: one wheel, named by its bytes."""

    name: Text
    version: Text
    file: Annotated[str, StringConstraints(pattern=r"^[^/\\]+\.whl$")]
    sha256: Hex256
    size: Annotated[int, Field(gt=0, lt=1 << 40)]
    marker: str = ""
    record: Literal["check", "ignore"] = "check"


class LockFile(Table):
    """``lockfiles/<pin>.toml``."""

    schema_: Literal["hq.lock/1"] = Field(alias="schema")
    pin: Text
    distribution: Name
    wheel: Annotated[tuple[LockWheel, ...], Field(min_length=1)]


class PlatformTable(Table):
    """``[platform]`` of an image, in Go's terms as OCI wants them."""

    os: Literal["linux"] = "linux"
    architecture: Literal["amd64", "arm64"] = "amd64"


class ConfigTable(Table):
    """``[config]`` of an image: what the OCI configuration carries."""

    env: Env = {}
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_dir: str = ""
    user: str = ""
    labels: dict[str, str] = {}
    ports: tuple[Annotated[str, StringConstraints(pattern=r"^\d{1,5}(/(tcp|udp))?$")], ...] = ()
    volumes: tuple[MountPath, ...] = ()


class BaseTable(Table):
    """``base`` of an image, unless it is ``"scratch"``: one of three things.

    ``debian``: a base lock. ``layout``: the folder of an OCI layout, with ``manifest``, the digest
    of an image in it. ``registry``: a repository, with ``digest``.
    """

    debian: ProjectPath | None = None
    layout: Text | None = None
    manifest: Sha256 | None = None
    registry: Text | None = None
    digest: Sha256 | None = None

    @model_validator(mode="after")
    def _one_of_three(self) -> BaseTable:
        given = tuple(name for name in type(self).model_fields if getattr(self, name) is not None)
        if given not in (("debian",), ("layout", "manifest"), ("registry", "digest")):
            raise ValueError(
                "expected one of { debian = LOCK }, { layout = FOLDER, manifest = DIGEST } and "
                "{ registry = NAME, digest = DIGEST }"
            )
        return self


def _base_tag(value: object) -> str:
    return "scratch" if isinstance(value, str) else "table"


# Chosen by what is written, so that a mistake is told once and not for each of the two.
Base = Annotated[
    Annotated[Literal["scratch"], Tag("scratch")] | Annotated[BaseTable, Tag("table")],
    Discriminator(_base_tag),
]


class LockDeb(Table):
    """``[[package]]`` of a base lock: one package, named by its bytes."""

    name: DebName
    version: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z.+~:-]+$", max_length=200)]
    architecture: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$", max_length=50)]
    file: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.+~:%_-]+\.deb$", max_length=300)]
    sha256: Hex256
    size: Annotated[int, Field(gt=0, lt=1 << 40)]


class BaseLockFile(Table):
    """``lockfiles/base-<name>.toml``. ``packages``: what is asked for, besides the essential.

    ``package`` is empty until ``hq lock --base`` fills it.
    """

    schema_: Literal["hq.base-lock/1"] = Field(alias="schema")
    suite: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$", max_length=50)]
    architecture: Literal["amd64", "arm64"]
    packages: tuple[DebName, ...] = ()
    package: tuple[LockDeb, ...] = ()


class PythonTable(Table):
    """``[python]`` of an image: where installed scripts and data go, and what runs them."""

    interpreter: ImagePath
    scripts: ImagePath
    data: ImagePath = "/usr/local"
    headers: ImagePath = "/usr/local/include/python"


class LaunchTable(Table):
    """``[launch]`` of an image: files of the project, by their places in the image."""

    files: Annotated[dict[ImagePath, ProjectPath], Field(min_length=1)]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return text


class CheckTable(Table):
    """``[[check]]`` of an image: a command that ``hq verify`` runs in it.

    ``output``: what its output must match somewhere; ``{pin}`` stands for the pin. ``timeout``: in
    seconds.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=80)]
    command: Annotated[tuple[str, ...], Field(min_length=1)]
    env: Env = {}
    expect: Literal["pass", "fail"] = "pass"
    output: Annotated[str, AfterValidator(_pattern)] | None = None
    timeout: Annotated[int, Field(ge=1, le=3600)] = 600


class ImageFile(Table):
    """``images/<name>.toml``."""

    schema_: Literal["hq.image/1"] = Field(alias="schema")
    name: Name
    role: Name = "image"
    default: bool = True
    base: Base = "scratch"
    prefix: ImagePath
    compression: Literal["gzip", "zstd", "none"] = "gzip"
    dependencies: bool = False
    python: PythonTable | None = None
    platform: PlatformTable = PlatformTable()
    config: ConfigTable = ConfigTable()
    annotations: dict[str, str] = {}
    check: tuple[CheckTable, ...] = ()
    launch: LaunchTable | None = None

    @model_validator(mode="after")
    def _dependencies_need_python(self) -> ImageFile:
        if self.dependencies and self.python is None:
            raise ValueError("dependencies = true needs a [python] table to install them for")
        return self


class OverlayFilesTable(Table):
    """``[files]`` of an overlay: the folder of new files, and those it may overwrite."""

    root: ProjectPath = "files"
    replaces: tuple[ProjectPath, ...] = ()


class OverlayPinTable(Table):
    """``[pins."V"]`` of an overlay.

    ``extra``: one more folder of files; ``series``: a quilt series in the folder ``patches``.
    """

    series: Text | None = None
    extra: ProjectPath | None = None


FactKind = Literal[
    "literal-member",
    "dict-entry",
    "enum-member",
    "assign",
    "function-returns",
    "name-in-function",
    "call-in-function",
    "name-absent",
]


class FactCheck(Table):
    """``[[facts.check]]``: one thing that must be so in one file of the built tree."""

    fact: Text
    what: Text
    path: ProjectPath
    kind: FactKind
    pins: tuple[str, ...] = ()
    target: str | None = None
    value: str | None = None
    key: str | None = None
    equals: str | None = None
    function: str | None = None
    call: str | None = None
    at_least: Annotated[int, Field(ge=1)] | None = None
    forbid: tuple[str, ...] | None = None


class FactsTable(Table):
    """``[facts]``: names with values, and the checks that hold the tree to them."""

    model_config = ConfigDict(extra="allow")
    check: tuple[FactCheck, ...] = ()


class OverlayFile(Table):
    """``overlay.toml``."""

    schema_: Literal["hq.overlay/1"] = Field(alias="schema")
    name: Name
    files: OverlayFilesTable = OverlayFilesTable()
    patches: ProjectPath = "patches"
    pins: dict[str, OverlayPinTable] = {}
    facts: FactsTable = FactsTable()
