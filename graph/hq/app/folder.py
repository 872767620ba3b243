"""A project's files without a store: for commands that only read its declaration."""

from __future__ import annotations

import os


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


def files_beneath(base: str) -> list[str]:
    """Every file beneath ``base`` by its path from there, sorted, without private ones.

    A link to a folder counts as a file: it is not entered, and whoever reads it is told so.
    """
    found: list[str] = []
    for place, folders, names in os.walk(base):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        folders[:] = sorted(n for n in folders if not is_private(n) and n not in links)
        inside = os.path.relpath(place, base)
        start = "" if inside == "." else inside.replace(os.sep, "/") + "/"
        found += [start + name for name in [*names, *links] if not is_private(name)]
    return sorted(found)
