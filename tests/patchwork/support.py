"""Trees as dictionaries, patches as text, and the two peers: GNU patch and git apply."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from hq.patchwork.apply import File, PatchOutcome, apply_patch
from hq.patchwork.parse import parse_patch
from hq.patchwork.report import outcome_name

Tree = dict[str, File]


def numbered(first: int, last: int) -> bytes:
    """``line 1`` … as in most examples."""
    return b"".join(b"line %d\n" % n for n in range(first, last + 1))


def regular(data: bytes | str, kind: str = "f") -> File:
    return File(kind, data if isinstance(data, bytes) else data.encode())


def tree(**files: bytes | str | File) -> Tree:
    return {
        name.replace("__", "/"): item if isinstance(item, File) else regular(item)
        for name, item in files.items()
    }


def reader(files: Mapping[str, File]):
    """A tree that answers as a directory does: parents of files are directories."""
    folders = {path[:at] for path in files for at, char in enumerate(path) if char == "/"}

    def read(path: str) -> File | None:
        return File("d", b"") if path in folders else files.get(path)

    return read


def run(
    patch: bytes,
    files: Mapping[str, File],
    strip: int = 1,
    reverse: bool = False,
    strict: bool = False,
) -> PatchOutcome:
    return apply_patch(parse_patch(patch, "fix.patch"), reader(files), strip, reverse, strict)


def after(files: Mapping[str, File], outcome: PatchOutcome) -> Tree:
    made = dict(files)
    for path, file in outcome.changes.items():
        if file is None:
            del made[path]
        else:
            made[path] = file
    return made


def hunks(outcome: PatchOutcome) -> list[str]:
    return [outcome_name(placed.placement) for file in outcome.files for placed in file.hunks]


def write_tree(files: Mapping[str, File], root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for path, file in files.items():
        place = os.path.join(os.fsencode(root), path.encode("utf-8", "surrogateescape"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if file.kind == "l":
            os.symlink(file.data, place)
            continue
        with open(place, "wb") as out:
            out.write(file.data)
        os.chmod(place, 0o755 if file.kind == "x" else 0o644)


def read_tree(root: Path) -> Tree:
    found: Tree = {}
    base = os.fsencode(root)
    for folder, folders, names in os.walk(base):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in [*names, *links]:
            place = os.path.join(folder, name)
            path = os.path.relpath(place, base).decode("utf-8", "surrogateescape")
            if os.path.islink(place):
                found[path] = File("l", os.readlink(place))
                continue
            with open(place, "rb") as file:
                data = file.read()
            found[path] = File("x" if os.stat(place).st_mode & 0o100 else "f", data)
    return found


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")


_QUIET = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC", "HOME": "/nonexistent"}


def gnu_patch(
    patch: bytes, files: Mapping[str, File], work: Path, strip: int = 1, reverse: bool = False
) -> Tree | None:
    """The tree that GNU patch makes without fuzz, ``None`` where it fails."""
    root = work / "gnu"
    write_tree(files, root)
    (work / "p").write_bytes(patch)
    command = ["patch", f"-p{strip}", "-F0", "-f", "-s", "--no-backup-if-mismatch", "-i"]
    command += [str(work / "p"), *(["-R"] if reverse else [])]
    done = subprocess.run(command, cwd=root, capture_output=True, env=_QUIET, check=False)
    return read_tree(root) if done.returncode == 0 else None


def git_apply(
    patch: bytes, files: Mapping[str, File], work: Path, strip: int = 1, reverse: bool = False
) -> Tree | None:
    """The tree that git apply makes, ``None`` where it fails."""
    root = work / "git"
    write_tree(files, root)
    (work / "p").write_bytes(patch)
    command = ["git", "apply", f"-p{strip}", "--whitespace=nowarn"]
    command += [*(["-R"] if reverse else []), str(work / "p")]
    env = _QUIET | {"GIT_CEILING_DIRECTORIES": str(work), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, cwd=root, capture_output=True, env=env, check=False)
    return read_tree(root) if done.returncode == 0 else None
