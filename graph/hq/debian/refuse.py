"""The one way in which a package is refused, and what a name inside one may be."""

from __future__ import annotations

from typing import NoReturn

from hq.model.errors import BuildError, Location

HINT = "the package is damaged or hostile; do not use this file"
MAX_NAME = 4096


def refuse(package: str, message: str, *, hint: str = HINT) -> NoReturn:
    """Raises the error that names the package's file."""
    raise BuildError(message, where=Location(package), hint=hint)


def name_problem(path: str) -> str | None:
    """Why ``path``, without its leading ``./``, may not be a member's name; ``None`` if it may.

    Backslashes are allowed, unlike in wheels: systemd escapes unit names with them.
    """
    if path.startswith("/"):
        return "an absolute path"
    if len(path.encode("utf-8", "surrogateescape")) > MAX_NAME:
        return f"a name of more than {MAX_NAME} bytes"
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        # dpkg keeps its lists one name a line.
        return "a control character in the name"
    for part in path.split("/"):
        if part == "..":
            return "a '..' in the path"
        if part in ("", "."):
            return "an empty or '.' part in the path"
        if part.startswith(".wh."):
            return "a name that begins with '.wh.' would remove files of the layers below"
    return None


def link_problem(path: str, target: str) -> str | None:
    """Why a symlink at ``path`` may not point to ``target``; ``None`` if it may.

    An absolute target is meant inside the image. A relative one must not climb above the root:
    a container's kernel would stop it there, a scanner or an unpacking tool might not.
    """
    if not target:
        return "a symlink without a target"
    if len(target.encode("utf-8", "surrogateescape")) > MAX_NAME:
        return f"a symlink target of more than {MAX_NAME} bytes"
    if any(ord(char) < 32 or ord(char) == 127 for char in target):
        return "a control character in the symlink's target"
    depth = 0 if target.startswith("/") else path.count("/")
    for part in target.split("/"):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):
            depth += 1
        if depth < 0:
            return f"a symlink out of the tree, to {target!r}"
    return None
