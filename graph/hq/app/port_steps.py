"""The steps of a port: a pin's series, and its overlays' files and patches, in order."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from hq.app.config import Project
from hq.app.port_trees import Trees, WheelTree
from hq.app.session import Session
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, Location, UsageError
from hq.model.project import LockedWheel, PinSpec, SeriesItem
from hq.port.replay import FileStep, PatchStep, Step
from hq.port.review import Knobs
from hq.port.tree import Tree
from hq.store.disk import hash_file


class Goal(NamedTuple):
    """The release to move to: by version, as a wheel file, or as a directory."""

    version: str = ""
    wheel: str = ""
    tree: str = ""


class Opened(NamedTuple):
    """The new release, and how to lock it; ``locked`` is ``None`` for a directory."""

    tree: Tree
    locked: LockedWheel | None


def steps_of(session: Session, spec: PinSpec) -> list[Step]:
    """Everything of ``spec`` that is put on the wheel, in order."""
    return steps_from(session.sources.read, spec)


def steps_from(read: Callable[[str], bytes], spec: PinSpec) -> list[Step]:
    """The same, with the files that ``read`` gives."""

    def patch(item: SeriesItem, group: str) -> PatchStep:
        return PatchStep(item.name, item.file, read(item.file), item.strip, item.reverse, group)

    steps: list[Step] = [patch(item, "series") for item in spec.series]
    for overlay in spec.overlays:
        group = f"overlay:{overlay.name}"
        for path, source in sorted(overlay.files.items()):
            steps.append(FileStep(path, source, read(source), group))
        steps += [patch(item, group) for item in overlay.patches]
    return steps


def knobs_of(spec: PinSpec) -> Knobs | None:
    """The knobs that the project registers."""
    if spec.knobs is None:
        return None
    rows = spec.knobs.registry.get("knobs")
    names = [row["name"] for row in rows] if isinstance(rows, (list, tuple)) else []
    return Knobs(spec.knobs.target, frozenset(names))


def open_goal(
    session: Session, trees: Trees, project: Project, spec: PinSpec, goal: Goal
) -> Opened:
    """The release of ``goal``. Raises ``HqError``."""
    if goal.tree:
        return Opened(trees.of_folder(goal.tree, goal.version), None)
    if goal.wheel:
        tree = trees.of_file(goal.wheel)
        return Opened(tree, _supplied(goal.wheel, spec, tree))
    if not goal.version:
        raise UsageError(
            "no release is named to move to", hint="give --to VERSION, --wheel FILE or --tree DIR"
        )
    if goal.version in project.declared.pins:
        return Opened(trees.of_pin(goal.version), session.spec(goal.version).wheel)
    locked = _asked(session, project, spec, goal.version)
    ref = BlobRef(locked.sha256, locked.size)
    return Opened(trees.of_blob(ref, locked.name, locked.version, locked.file), locked)


def _supplied(path: str, spec: PinSpec, tree: WheelTree) -> LockedWheel:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        digest = Digest.from_hex(hash_file(fd))
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    return LockedWheel(spec.wheel.name, tree.version, os.path.basename(path), digest, size)


def _asked(session: Session, project: Project, spec: PinSpec, version: str) -> LockedWheel:
    """The wheel of a version that no lock names: what pip finds, remembered."""
    memory = f"port@{version}"
    known = session.memory.load(memory)
    if isinstance(known, dict) and known.get("name") == spec.wheel.name:
        locked = LockedWheel(
            known["name"], known["version"], known["file"],
            Digest.from_hex(known["sha256"]), known["size"],
        )  # fmt: skip
        session.fetch(locked, lambda _done, _total: None)
        return locked
    if session.settings.offline:
        raise BuildError(
            f"{spec.wheel.name} {version} is in no lock, and --offline forbids to ask for it",
            hint="run without --offline, or give the file with --wheel FILE",
        )
    from hq.transfer.fetch import lock_wheel, target_arguments

    python, machine, glibc = _target(project, spec)
    locked = lock_wheel(
        session.disk, spec.wheel.name, version, target_arguments(python, machine, glibc)
    )
    session.memory.save(
        memory,
        {
            "name": locked.name,
            "version": locked.version,
            "file": locked.file,
            "sha256": locked.sha256.hex,
            "size": locked.size,
        },
    )
    return locked


def _target(project: Project, spec: PinSpec) -> tuple[str, str, int]:
    """Python, machine and glibc that the new wheel is chosen for."""
    target = project.declared.target
    if target is not None:
        found = re.fullmatch(r"([a-z0-9_]+?)-manylinux_2_(\d+)", target.platform)
        if found:
            return target.python, found[1], int(found[2])
        raise UsageError(
            f"target.platform: {target.platform!r} names no glibc",
            where=Location("build.toml"),
            hint='write it as "x86_64-manylinux_2_39"',
        )
    machine = "aarch64" if "aarch64" in spec.wheel.file else "x86_64"
    return "3.12", machine, 36
