"""What can be said of an image by looking: its layout, its files, its lists of files, its versions.

Every function gives the problems it finds, one line each. What is expected comes from the records
of the build and from the lock; what is found comes from the layers (``hq.app.imagescan``).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from hq.app.imagescan import Scanned
from hq.evidence.records import Records
from hq.knobs.envsfile import read_envs
from hq.model.action import from_json
from hq.model.digest import BlobRef, Digest
from hq.model.errors import HqError
from hq.model.project import LockedWheel, PinSpec
from hq.model.tree import Entry, merge
from hq.oci.layout import Read
from hq.oci.stack import Leaf
from hq.wheels.filename import normalize_project, same_version
from hq.wheels.record import Row, parse, sha256_of

_WRITERS = frozenset({"patch", "envs", "overlay"})
_BIG = 1 << 20


def layout_reader(folder: str) -> Read:
    """Files of a layout; large ones are mapped and not copied into memory."""

    def read(path: str) -> bytes | None:
        try:
            with open(os.path.join(folder, path), "rb") as file:
                if os.fstat(file.fileno()).st_size < _BIG:
                    return file.read()
                # Hashed and measured like bytes; never kept.
                return cast("bytes", mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (FileNotFoundError, IsADirectoryError):
            return None

    return read


class Subject(NamedTuple):
    """One image. ``site``: the folder of its packages in the tree, without symlinks.

    ``lock``: the wheels that must be installed, the patched one first.
    """

    scanned: Scanned
    site: str
    spec: PinSpec
    lock: tuple[LockedWheel, ...]
    changed: Mapping[str, Entry | None]

    def at(self, path: str) -> Leaf | None:
        """What stands at a path of the package tree."""
        return self.scanned.stack.get(f"{self.site}/{path}" if self.site else path)

    def text(self, path: str) -> bytes | None:
        """The content of a file of the package tree that was kept."""
        return self.scanned.text(f"{self.site}/{path}" if self.site else path)

    def info_files(self, name: str) -> Iterator[tuple[str, str]]:
        """Each ``dist-info`` folder that has the file ``name``, with the file's path."""
        for path, _ in self.scanned.stack.files(self.site):
            inner = path[len(self.site) + 1 :] if self.site else path
            folder, _, last = inner.rpartition("/")
            if last == name and folder.endswith(".dist-info") and "/" not in folder:
                yield folder, inner


def is_wanted(site: str, envs: str, path: str) -> bool:
    """Whether the content of a file of the image is needed: small files only."""
    if site and not path.startswith(f"{site}/"):
        return False
    inner = path[len(site) + 1 :] if site else path
    folder, _, last = inner.rpartition("/")
    if folder.endswith(".dist-info"):
        return last in ("RECORD", "METADATA")
    return inner == envs or (folder.endswith(".dist-info/hq") and last.endswith(".csv"))


def changed_files(records: Records) -> dict[str, Entry | None]:
    """What the patches, the knobs and the overlays made, by path; ``None`` where a file went."""
    deltas = [from_json(r.result).delta for r in records.values() if r.kind in _WRITERS]
    return merge(deltas)


def record_problems(records: Records, image: str, manifest: BlobRef, image_id: str) -> list[str]:
    """Whether the records are those of this image."""
    record = records.get(f"image:{image}")
    if record is None:
        return [f"the records have no node image:{image}"]
    result = from_json(record.result)
    problems = []
    for what, expected, found in (
        ("manifest", result.blobs["manifest"].digest, manifest.digest),
        ("image ID", Digest.parse(str(result.values["image_id"])), image_id),
    ):
        if expected != found:
            problems.append(f"{what}: the records say {expected}, the layout has {found}")
    return problems


def file_problems(subject: Subject) -> list[str]:
    """Whether every file that a node changed is in the image as the node left it."""
    problems = []
    for path, entry in sorted(subject.changed.items()):
        leaf = subject.at(path)
        if entry is None:
            if leaf is not None:
                problems.append(f"{path}: a patch removes it, and it is there")
        elif leaf is None:
            problems.append(f"{path}: missing")
        else:
            problems += _compare(path, leaf, entry.kind, entry.digest.hex)
    return problems


def _compare(path: str, leaf: Leaf, kind: str, digest: str) -> list[str]:
    if leaf.kind != kind:
        return [f"{path}: expected {_KINDS[kind]}, found {_KINDS[leaf.kind]}"]
    if leaf.kind == "l":
        found = Digest.of(leaf.target.encode("utf-8", "surrogateescape")).hex
        return [] if found == digest else [f"{path}: the symlink leads to {leaf.target!r}"]
    if leaf.digest != digest:
        return [f"{path}: expected sha256:{digest}, found sha256:{leaf.digest}"]
    return []


_KINDS = {"f": "a file", "x": "an executable", "l": "a symlink"}


def knob_problems(subject: Subject) -> list[str]:
    """Whether the module of the image defines every knob of the pin."""
    knobs = subject.spec.knobs
    if knobs is None:
        return []
    data = subject.text(knobs.target)
    if data is None:
        return [f"{knobs.target}: missing"]
    try:
        known = read_envs(data, knobs.target).variables
    except HqError as error:
        return [error.message]
    names = [str(knob["name"]) for knob in cast("list[dict[str, object]]", knobs.registry["knobs"])]
    return [f"{knobs.target} does not define {name}" for name in names if name not in known]


def record_file_problems(subject: Subject) -> tuple[list[str], list[str]]:
    """Whether RECORD of each distribution agrees with the files, and the files with some RECORD.

    Two lists: the problems; and paths of two distributions, where the last one laid down is there,
    as after an installation by any installer.
    """
    problems: list[str] = []
    wrong: list[tuple[str, str]] = []
    agreed: set[str] = set()
    listed: set[str] = set()
    lenient = {normalize_project(wheel.name) for wheel in subject.lock if wheel.record == "ignore"}
    for folder, path in subject.info_files("RECORD"):
        strict = normalize_project(folder.partition("-")[0]) not in lenient
        for row in _rows(subject, path, problems):
            place = _resolved(subject.site, row.path)
            listed.add(place)
            found = _row(subject.scanned.stack.get(place), row, path, strict=strict)
            wrong += [(place, text) for text in found]
            if not found and row.hash:
                agreed.add(place)
    problems += [text for place, text in wrong if place not in agreed]
    notes = [text for place, text in wrong if place in agreed]
    for place, _ in subject.scanned.stack.files(subject.site):
        if place not in listed:
            problems.append(f"/{place}: no RECORD lists it")
    return problems, [f"{text}, which another RECORD lists" for text in notes]


def _rows(subject: Subject, path: str, problems: list[str]) -> list[Row]:
    try:
        return parse(subject.text(path) or b"", file=path)
    except HqError as error:
        problems.append(f"{path}: {error.message}")
        return []


def _resolved(site: str, path: str) -> str:
    parts = site.split("/") if site else []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _row(leaf: Leaf | None, row: Row, record: str, *, strict: bool) -> list[str]:
    if leaf is None:
        return [f"{record}:{row.line}: {row.path} is missing"] if strict else []
    if not row.hash or not strict:
        return []
    try:
        digest = sha256_of(row, file=record).hex
    except HqError as error:
        return [f"{record}:{row.line}: {error.message}"]
    if leaf.kind != "l" and leaf.digest != digest:
        return [
            f"{record}:{row.line}: {row.path}: expected sha256:{digest}, found sha256:{leaf.digest}"
        ]
    return []


def list_problems(subject: Subject) -> list[str]:
    """Whether each of hq's layers holds just what its own list of files says."""
    problems: list[str] = []
    for place, leaf in subject.scanned.stack.files(subject.site):
        inner = place[len(subject.site) + 1 :] if subject.site else place
        folder = inner.rpartition("/")[0]
        if not (folder.endswith(".dist-info/hq") and inner.endswith(".csv")):
            continue
        own = {inner, f"{folder.removesuffix('/hq')}/RECORD"}
        for row in _rows(subject, inner, problems):
            own.add(row.path)
            there = subject.at(row.path)
            if there is None and subject.changed.get(row.path, True) is not None:
                problems.append(f"{inner}:{row.line}: {row.path} is missing")
            # A layer above may have changed the file once more.
            elif there is not None and there.layer == leaf.layer:
                problems += _row(there, row, inner, strict=True)
        problems += [
            f"{path}: the layer has it, and {inner} does not list it"
            for path in _of_layer(subject, leaf.layer)
            if path not in own
        ]
    return problems


def _of_layer(subject: Subject, layer: int) -> Iterator[str]:
    for place, leaf in subject.scanned.stack.files(subject.site):
        if leaf.layer == layer:
            yield place[len(subject.site) + 1 :] if subject.site else place


def installed_versions(subject: Subject) -> dict[str, str]:
    """The version of each distribution, by its normalized name, as METADATA says."""
    found: dict[str, str] = {}
    for _, path in subject.info_files("METADATA"):
        fields = _fields(subject.text(path) or b"")
        found[normalize_project(fields.get("name", path))] = fields.get("version", "")
    return found


def _fields(metadata: bytes) -> dict[str, str]:
    head = metadata.replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    rows = (line.partition(":") for line in head.decode("utf-8", "replace").split("\n"))
    fields: dict[str, str] = {}
    for name, colon, value in rows:
        if colon:
            fields.setdefault(name.lower(), value.strip())
    return fields


def version_problems(lock: tuple[LockedWheel, ...], found: Mapping[str, str]) -> list[str]:
    """Whether just the locked distributions are there, in the locked versions."""
    wanted = {normalize_project(wheel.name): wheel.version for wheel in lock}
    problems = []
    for name, version in sorted(wanted.items()):
        if name not in found:
            problems.append(f"{name} {version}: not installed")
        elif not _same(found[name], version):
            problems.append(f"{name}: expected {version}, found {found[name] or 'no version'}")
    problems += [
        f"{name} {version}: installed, and not in the lock"
        for name, version in sorted(found.items())
        if name not in wanted
    ]
    return problems


def _same(one: str, other: str) -> bool:
    return one == other or (bool(one) and same_version(one, other))
