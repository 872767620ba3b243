"""What a rebase that waits for a person keeps, in ``.hq/port/`` below the project.

::

    state.json          what it is about, and what became of each patch so far
    patches/N.patch     the patch of step N, made again
    work/...            the files of the patch that stopped it, with conflict markers
    ../resolutions/ID   what was made of conflicts (kept when the rebase is over)

A file is written aside and renamed, ``state.json`` last, so a killed rebase can be continued.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from hq.model.errors import BuildError, InfrastructureError, Location, UsageError
from hq.port.resolutions import conflict_id, plain

SCHEMA = "hq.port/1"
FOLDER = ".hq/port"
_RESOLUTIONS = ".hq/resolutions"


class Stopped(NamedTuple):
    """Where a rebase waits: step ``step``; ``files`` as work file to what is the matter."""

    step: int
    reason: str
    files: Mapping[str, str]


class State:
    """A rebase on disk. ``rows``: step number to ``same``, ``ported`` or ``skipped``."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.folder = os.path.join(root, FOLDER)
        self.pin = ""
        self.goal: dict[str, str] = {}
        self.options: dict[str, str] = {}
        self.digest = ""
        self.rows: dict[int, str] = {}
        self.notes: dict[int, list[str]] = {}
        self.stopped: Stopped | None = None

    @property
    def exists(self) -> bool:
        """Whether a rebase is under way."""
        return os.path.exists(os.path.join(self.folder, "state.json"))

    def load(self) -> None:
        """Reads the state. Raises ``UsageError`` without one, ``BuildError`` for a bad one."""
        path = os.path.join(self.folder, "state.json")
        try:
            with open(path, "rb") as file:
                value: Any = json.loads(file.read())
            self._take(value)
        except FileNotFoundError:
            raise UsageError(
                "no rebase is under way", hint="begin one with hq port rebase --to VERSION"
            ) from None
        except OSError as error:
            raise InfrastructureError(
                f"cannot read the state: {error.strerror}", where=Location(path)
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BuildError(
                "the state of the rebase cannot be read",
                where=Location(path), hint="give it up with hq port rebase --abort",
            ) from None  # fmt: skip

    def _take(self, value: Any) -> None:
        if value["schema"] != SCHEMA:
            raise ValueError(value["schema"])
        self.pin, self.goal, self.digest = value["pin"], dict(value["goal"]), value["digest"]
        self.options = dict(value["options"])
        self.rows = {int(number): row for number, row in value["rows"].items()}
        self.notes = {int(number): list(rows) for number, rows in value["notes"].items()}
        stopped = value["stopped"]
        self.stopped = None
        if stopped is not None:
            self.stopped = Stopped(stopped["step"], stopped["reason"], dict(stopped["files"]))

    def save(self) -> None:
        """Writes the state."""
        value = {
            "schema": SCHEMA,
            "pin": self.pin,
            "goal": self.goal,
            "options": self.options,
            "digest": self.digest,
            "rows": {str(number): row for number, row in sorted(self.rows.items())},
            "notes": {str(number): rows for number, rows in sorted(self.notes.items())},
            "stopped": self.stopped._asdict() if self.stopped is not None else None,
        }
        own_folder(self.root)
        write_file(os.path.join(self.folder, "state.json"), json.dumps(value, indent=1).encode())

    def clear(self) -> None:
        """Removes the state; resolutions stay."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- patches --------------------------------------------------------------------------------

    def keep_patch(self, step: int, data: bytes) -> None:
        """Keeps a patch that was made again."""
        write_file(os.path.join(self.folder, "patches", f"{step}.patch"), data)

    def patch(self, step: int) -> bytes:
        """A kept patch."""
        return read_file(os.path.join(self.folder, "patches", f"{step}.patch"))

    # -- work files -----------------------------------------------------------------------------

    def lay_out(self, files: Mapping[str, bytes]) -> None:
        """Writes the files to be resolved, and beside each what it was when it was laid out."""
        shutil.rmtree(os.path.join(self.folder, "work"), ignore_errors=True)
        shutil.rmtree(os.path.join(self.folder, "was"), ignore_errors=True)
        for path, data in files.items():
            write_file(os.path.join(self.folder, "work", path), data)
            write_file(os.path.join(self.folder, "was", path), data)

    def work(self, path: str) -> bytes | None:
        """A file as it was resolved; ``None`` when it was removed."""
        target = os.path.join(self.folder, "work", path)
        return read_file(target) if os.path.exists(target) else None

    def was(self, path: str) -> bytes:
        """The file as it was laid out, with its conflicts."""
        return read_file(os.path.join(self.folder, "was", path))

    # -- resolutions ----------------------------------------------------------------------------

    def remember(self, conflicted: bytes, resolved: bytes) -> None:
        """Keeps what was made of a file's conflicts."""
        name = conflict_id(conflicted)
        if name:
            folder = os.path.join(self.root, _RESOLUTIONS, name)
            write_file(os.path.join(folder, "before"), plain(conflicted))
            write_file(os.path.join(folder, "after"), resolved)

    def resolution(self, conflicted: bytes) -> tuple[bytes, bytes] | None:
        """What was made of the same conflicts before: the file then, and the file after."""
        folder = os.path.join(self.root, _RESOLUTIONS, conflict_id(conflicted))
        if not os.path.exists(os.path.join(folder, "after")):
            return None
        return read_file(os.path.join(folder, "before")), read_file(os.path.join(folder, "after"))


def own_folder(root: str) -> str:
    """``.hq`` below the project, which keeps itself out of git. Raises ``InfrastructureError``."""
    folder = os.path.join(root, ".hq")
    ignore = os.path.join(folder, ".gitignore")
    if not os.path.exists(ignore):
        write_file(ignore, b"*\n")
    return folder


def write_file(path: str, data: bytes) -> None:
    """Writes a file whole, its folders made. Raises ``InfrastructureError``."""
    temporary = f"{path}.{os.getpid()}.new"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write a file: {error.strerror}", where=Location(path)
        ) from None


def read_file(path: str) -> bytes:
    """A file's content. Raises ``InfrastructureError``."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InfrastructureError(
            f"cannot read a file: {error.strerror}", where=Location(path)
        ) from None
