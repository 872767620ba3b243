"""Which commit a project stands at, read from git's own files.

Starting git would cost more than a small rebuild. The formats are those of gitrepository-layout(5):
``.git`` is a folder, or in a linked worktree and in a submodule a file that says where the folder
is; a worktree's folder names in ``commondir`` the one that holds the branches. What is kept in
another way (reftables) gives no commit: a build does not need one.
"""

from __future__ import annotations

import os

_MOST_LINKS = 5


def head_commit(root: str) -> str:
    """The commit that git's HEAD names for the project, or empty when there is none to be found."""
    folder = git_folder(root)
    if not folder:
        return ""
    common = _common(folder)
    found = _line(os.path.join(folder, "HEAD"))
    for _ in range(_MOST_LINKS):
        if not found.startswith("ref: "):
            return found if _is_commit(found) else ""
        name = found.removeprefix("ref: ")
        parts = name.split("/")
        # A worktree has branches of its own only while it bisects or rebases.
        found = (
            _line(os.path.join(folder, *parts))
            or _line(os.path.join(common, *parts))
            or _packed(common, name)
        )
    return ""


def git_folder(root: str) -> str:
    """The git folder of the repository or worktree around ``root``, or empty without one."""
    folder = os.path.abspath(root)
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return git
        pointer = _line(git)
        if pointer.startswith("gitdir: "):
            return os.path.normpath(os.path.join(folder, pointer.removeprefix("gitdir: ")))
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def _common(folder: str) -> str:
    named = _line(os.path.join(folder, "commondir"))
    return os.path.normpath(os.path.join(folder, named)) if named else folder


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and not text.strip("0123456789abcdef")


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline(4096).strip()
    except (OSError, ValueError):
        return ""


def _packed(common: str, name: str) -> str:
    try:
        with open(os.path.join(common, "packed-refs"), encoding="utf-8", errors="replace") as file:
            for line in file:
                commit, _, ref = line.strip().partition(" ")
                if ref == name:
                    return commit
    except OSError:
        pass
    return ""
