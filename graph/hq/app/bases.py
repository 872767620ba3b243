"""What an image stands on: from its ``base`` and the lock it names to a ``BaseSpec``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hq.app.declaration import BaseLockFile, BaseTable, ImageFile
from hq.app.validate import Document, load_document
from hq.model.digest import Digest
from hq.model.errors import Location, Problem, UsageError, problems_error
from hq.model.project import BaseSpec, LockedDeb

Read = Callable[[str, Location, str], bytes]
"""A project file, where it is named, and under which key; raises ``UsageError``."""


def base_spec(image: ImageFile, document: Document, read: Read) -> BaseSpec | None:
    """The base of an image, or ``None`` for scratch. Raises ``UsageError``."""
    base = image.base
    if isinstance(base, str):
        return None
    architecture = image.platform.architecture
    if base.debian is not None:
        where = document.locator()("base", "debian")
        spec = read_base_lock(base.debian, read(base.debian, where, "base.debian"))
        if not spec.debs:
            raise UsageError(
                f"{base.debian} holds no package yet",
                where=where,
                hint=f"run 'hq lock --base {spec.name}'",
            )
        if spec.architecture != architecture:
            message = f"base.debian: the lock is for {spec.architecture}, the image {architecture}"
            raise problems_error(f"{document.file} has one mistake", [Problem(where, message)])
        return spec
    return _foreign(base, architecture)


def _foreign(base: BaseTable, architecture: str) -> BaseSpec:
    digest = base.manifest or base.digest or ""
    place = base.layout or base.registry or ""
    name = place.rstrip("/").rpartition("/")[2].partition(":")[0]
    kind = "layout" if base.layout is not None else "registry"
    # An index of images for several platforms gives each a base of its own.
    title = f"{name or kind}@{digest[7:19]}-{architecture}"
    return BaseSpec(kind, title, architecture, place=place, digest=digest)


def read_base_lock(path: str, data: bytes) -> BaseSpec:
    """The base of a lock file; its name is the file's. Raises ``UsageError``."""
    lock, document = load_document(path, data, BaseLockFile)
    _check(lock, document)
    name = path.rpartition("/")[2].removesuffix(".toml").removeprefix("base-")
    debs = tuple(
        LockedDeb(
            deb.name,
            deb.version,
            deb.architecture,
            deb.file,
            Digest.from_hex(deb.sha256),
            deb.size,
        )
        for deb in lock.package
    )
    return BaseSpec("debian", name, lock.architecture, lock.suite, debs)


def _check(lock: BaseLockFile, document: Document) -> None:
    at = document.locator()
    problems: list[Problem] = []
    names: set[str] = set()
    for number, deb in enumerate(lock.package):
        if deb.name in names:
            where = at("package", number, "name")
            problems.append(Problem(where, f"package[{number}].name: {deb.name} is there twice"))
        names.add(deb.name)
        if deb.architecture not in ("all", lock.architecture):
            where = at("package", number, "architecture")
            message = f"package[{number}].architecture: {deb.architecture}, in a base for "
            problems.append(Problem(where, message + lock.architecture))
    _raise(document.file, problems)


def _raise(file: str, problems: Sequence[Problem]) -> None:
    if problems:
        count = "one mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        raise problems_error(f"{file} has {count}", problems)
