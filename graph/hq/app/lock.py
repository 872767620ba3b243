"""``hq lock``: the whole dependency set of a pin, resolved, written into its lock in place.

The lock names wheels by file name, hash and size and says no word of where they come from. Comments
and the order of keys in the file stay; rows are sorted by name, the patched distribution first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hq.app.config import Files, Project
from hq.app.declaration import LockFile, LockWheel
from hq.app.validate import load_document
from hq.model.errors import BuildError, Location, UsageError
from hq.transfer.uv import Package, Target, resolve
from hq.wheels.filename import normalize_project
from hq.wheels.tags import best, ranks


class Difference(NamedTuple):
    """How a fresh resolution differs from the lock in one package; empty for none on that side."""

    name: str
    locked: str
    fresh: str

    def __str__(self) -> str:
        if not self.locked:
            return f"{self.name} {self.fresh} is not in the lock"
        if not self.fresh:
            return f"{self.name} {self.locked} is not needed"
        return f"{self.name} is locked at {self.locked}; a fresh resolution takes {self.fresh}"


def fresh_lock(project: Project, pin: str, python: str = "") -> list[LockWheel]:
    """A resolution of ``pin`` now; rows in the lock's order. Raises ``HqError``."""
    table = project.declared.pins[pin]
    if project.declared.target is None:
        raise UsageError(
            "build.toml says nothing of the target",
            where=Location("build.toml"),
            hint='add [target] with python = "3.13" and platform = "x86_64-manylinux_2_39"',
        )
    declared = project.declared.target
    target = Target(python or declared.python, declared.platform)
    first = project.declared.project.distribution or project.declared.project.name
    packages = resolve([f"{first}=={pin}", *table.requires], target)
    order = ranks(target.python, target.platform)
    rows = [_row(package, order, target) for package in packages]
    return sorted(rows, key=lambda row: (row.name != normalize_project(first), row.name))


def _row(package: Package, order: dict[str, int], target: Target) -> LockWheel:
    by_file = {wheel.file: wheel for wheel in package.wheels}
    file = best(by_file, order)
    if file is None:
        raise BuildError(
            f"{package.name} {package.version} has no wheel for Python {target.python} on "
            f"{target.platform}",
            details=[f"it has: {name}" for name in sorted(by_file)],
            hint="choose another platform or version",
        )
    wheel = by_file[file].completed()
    if not wheel.sha256 or not wheel.size:
        raise BuildError(f"the index gives no SHA-256 and size for {file}")
    return LockWheel(
        name=normalize_project(package.name),
        version=package.version,
        file=file,
        sha256=wheel.sha256,
        size=wheel.size,
        marker=package.marker,
    )


def differences(locked: Sequence[LockWheel], fresh: Sequence[LockWheel]) -> Iterator[Difference]:
    """What differs, sorted by name. A row differs in version or in file and hash."""
    old = {normalize_project(row.name): row for row in locked}
    new = {normalize_project(row.name): row for row in fresh}
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before is None or after is None or (before.version != after.version):
            yield Difference(name, before.version if before else "", after.version if after else "")
        elif (before.file, before.sha256) != (after.file, after.sha256):
            yield Difference(name, before.file, after.file)


def read_lock(files: Files, path: str) -> LockFile:
    """The lock as it is. Raises ``UsageError``."""
    return load_document(path, files.read(path), LockFile)[0]


def edited(text: str, rows: Sequence[LockWheel]) -> str:
    """The lock's text with ``rows`` for its wheels; comments and other keys stay."""
    import tomlkit
    from tomlkit.items import AoT, Table

    document = tomlkit.parse(text)
    found = document.get("wheel")
    old: dict[str, Table] = {}
    if isinstance(found, AoT):
        old = {normalize_project(str(table["name"])): table for table in found.body}
    wheels = tomlkit.aot()
    for row in rows:
        table = old.get(normalize_project(row.name)) or tomlkit.table()
        _fill(table, row)
        wheels.append(table)
    if found is not None:
        document.remove("wheel")
    document.add("wheel", wheels)
    return _spaced(tomlkit.dumps(document))


def _spaced(text: str) -> str:
    """One blank line above each wheel and the comment on it, so that a second edit changes none."""
    out: list[str] = []
    for line in text.rstrip("\n").split("\n"):
        if line == "[[wheel]]":
            comment: list[str] = []
            while out and out[-1].startswith("#"):
                comment.insert(0, out.pop())
            while out and not out[-1].strip():
                out.pop()
            out += ["", *comment]
        out.append(line)
    return "\n".join(out) + "\n"


def _fill(table: Any, row: LockWheel) -> None:
    values = {
        "name": row.name,
        "version": row.version,
        "file": row.file,
        "sha256": row.sha256,
        "size": row.size,
        "marker": row.marker,
    }
    if table.get("sha256") != row.sha256:
        # What was said of another file's RECORD does not hold for this one.
        table.pop("record", None)
    for key, value in values.items():
        if key == "marker" and not value:
            table.pop(key, None)
        elif table.get(key) != value:
            table[key] = value


def requirements_text(lock: LockFile) -> str:
    """The lock as a requirements file for pip's hash-checking mode."""
    lines = [
        f"{row.name}=={row.version}{f' ; {row.marker}' if row.marker else ''} \\\n"
        f"    --hash=sha256:{row.sha256}\n"
        for row in sorted(lock.wheel, key=lambda row: row.name)
    ]
    return "".join(lines)


def pylock_text(lock: LockFile, python: str) -> str:
    """The lock as a PEP 751 ``pylock.toml``; files are named by path, since no index is known."""
    import tomlkit

    document: Mapping[str, Any] = {
        "lock-version": "1.0",
        "created-by": "hq",
        "requires-python": f">={python}",
        "packages": [
            {
                "name": row.name,
                "version": row.version,
                **({"marker": row.marker} if row.marker else {}),
                "wheels": [
                    {
                        "name": row.file,
                        "path": row.file,
                        "size": row.size,
                        "hashes": {"sha256": row.sha256},
                    }
                ],
            }
            for row in sorted(lock.wheel, key=lambda row: row.name)
        ],
    }
    return tomlkit.dumps(document)
