"""Files as values: what a tree holds, and how one tree differs from another.

A path is relative, ``/``-separated text without ``.``, ``..`` or empty parts. Paths sort by their
UTF-8 bytes, which for Python text is the order of ``sorted``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from hq.model.digest import Digest

Kind = Literal["f", "x", "l"]
FILE: Final = "f"
EXECUTABLE: Final = "x"
SYMLINK: Final = "l"


class Entry(NamedTuple):
    """One file of a tree: regular (``f``), executable by its owner (``x``) or symlink (``l``).

    ``digest`` is the SHA-256 of the content, for a symlink of its target; ``size`` in bytes.
    """

    kind: Kind
    digest: Digest
    size: int


class Change(NamedTuple):
    """What a delta does to one path: ``entry`` stands there now, or nothing (``None``)."""

    path: str
    entry: Entry | None


Delta = tuple[Change, ...]
"""Changes sorted by path, each path once."""


def make_delta(changes: Mapping[str, Entry | None]) -> Delta:
    """The delta of ``changes``, sorted."""
    return tuple(Change(path, changes[path]) for path in sorted(changes))


def merge(deltas: Iterable[Delta]) -> dict[str, Entry | None]:
    """The deltas one after the other, as one mapping; a later change of a path wins."""
    merged: dict[str, Entry | None] = {}
    for delta in deltas:
        merged.update(delta)
    return merged


def tree_digest(entries: Mapping[str, Entry]) -> str:
    """SHA-256 in hex over the sorted lines ``path NUL kind NUL sha256-of-content LF``."""
    whole = hashlib.sha256()
    # By bytes: a name that is no UTF-8 holds surrogates, which sort elsewhere as text.
    for path in sorted(entries, key=_bytes):
        kind, digest, _ = entries[path]
        whole.update(_bytes(path))
        whole.update(f"\0{kind}\0{digest.hex}\n".encode())
    return whole.hexdigest()


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def is_unicode(path: str) -> bool:
    """Whether a path from a disk or a patch was UTF-8 there: no surrogate stands for a byte."""
    return path.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in path)


def path_problem(path: str) -> str | None:
    """Why ``path`` cannot be a path of a tree, or ``None`` when it can (threat: zip slip)."""
    if not path:
        return "an empty path"
    if path.startswith("/"):
        return "an absolute path"
    if "\0" in path:
        return "a NUL byte in the path"
    if "\\" in path:
        return "a backslash in the path"
    for part in path.split("/"):
        if part == "..":
            return "a '..' in the path"
        if part in ("", "."):
            return "an empty or '.' part in the path"
    return None
