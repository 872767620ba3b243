"""A project's files without a store: for commands that only read its declaration."""

from __future__ import annotations

import os
from collections.abc import Callable

from hq.app import noop
from hq.model.errors import Location, UsageError


class ProjectFolder:
    """Implements ``hq.app.config.Files`` over a folder."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, path: str) -> bytes:
        """A file's content. Raises ``OSError``."""
        with open(os.path.join(self._root, path), "rb") as file:
            return file.read()

    def names(self, folder: str) -> list[str]:
        """Every file beneath ``folder``, by path from it, sorted; hidden ones are left out."""
        return files_beneath(os.path.join(self._root, folder))


def is_private(name: str) -> bool:
    """Whether an editor, quilt or Python keeps the file for itself beside the sources."""
    return name.startswith(".") or name == "__pycache__" or name.endswith("~")


Note = Callable[[str, str], object]
"""Is told of every folder that was looked into, and what was in it (``noop.folder_field``)."""


def files_beneath(base: str, note: Note | None = None) -> list[str]:
    """Every file beneath ``base`` by its path from there, sorted, without private ones.

    A link to a folder counts as a file: it is not entered, and whoever reads it is told so. No such
    folder is one without files. Raises ``UsageError`` for a folder that cannot be read.
    """
    found: list[str] = []
    pending = [""]
    while pending:
        inside = pending.pop()
        place = os.path.join(base, inside) if inside else base
        names = _look(place, inside)
        if note is not None:
            note(place, noop.folder_field(names))
        for name in names or ():
            plain = name.rstrip("/")
            if is_private(plain):
                continue
            path = f"{inside}/{plain}" if inside else plain
            if name.endswith("/") and not name.endswith("//"):
                pending.append(path)
            else:
                found.append(path)
    return sorted(found)


def _look(place: str, inside: str) -> list[str] | None:
    try:
        return noop.marked_names(place)
    except (FileNotFoundError, NotADirectoryError):
        if not inside:
            return None
        raise UsageError(f"{place} went away while it was read", hint="run hq again") from None
    except OSError as error:
        raise UsageError(
            f"{place} cannot be read: {error.strerror}",
            where=Location(place),
            hint="make the folder readable: what is in it is an input",
        ) from None
