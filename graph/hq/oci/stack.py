"""What stands in an image: its layers applied one after the other, in memory.

Source: image-spec ``layer.md``. A layer's entries are added over those below; ``.wh.NAME`` takes
away NAME of the layers below, ``.wh..wh..opq`` all that a directory has from them, wherever in the
layer the marker stands. A name may lead through a symlink: it is followed inside the image, as a
container engine does, so the path that comes out has real directories only and can be written to
disk without asking the disk. Names come from strangers: what would leave the tree is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hq.model.errors import BuildError, Location

MAX_ENTRIES: Final = 4_000_000
MAX_NAME: Final = 4096  # PATH_MAX
_MAX_HOPS: Final = 40  # as Linux has it
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"


class Leaf(NamedTuple):
    """A file (``f``, ``x``) or a symlink (``l``). ``digest`` in hex; ``layer`` counts from 0."""

    kind: str
    layer: int
    digest: str = ""
    size: int = 0
    target: str = ""


class _Dir:
    __slots__ = ("entries", "layer")

    def __init__(self, layer: int) -> None:
        self.entries: dict[str, Leaf | _Dir] = {}
        self.layer = layer


class Place(NamedTuple):
    """Where an entry goes. ``path``: from the root, through real directories only, or empty.

    ``made``: directories that no entry has named, from the top. ``removed``: what must go first.
    """

    path: str
    made: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Stack:
    """The tree after the layers so far. ``layer``: what messages call the layer that is applied."""

    def __init__(self) -> None:
        self._root = _Dir(0)
        self._number = -1
        self._count = 0
        self._layer = ""
        self._path = ""  # of the entry at hand

    def next_layer(self, name: str) -> None:
        """What follows is of the next layer."""
        self._number += 1
        self._layer = name

    def get(self, path: str) -> Leaf | None:
        """The file or symlink at a path from the root that leads through no symlink."""
        parent = self._at(path.split("/")[:-1])
        found = parent.entries.get(path.rpartition("/")[2]) if parent else None
        return found if isinstance(found, Leaf) else None

    def files(self, folder: str = "") -> Iterator[tuple[str, Leaf]]:
        """Every file and symlink beneath ``folder``, by path from the root, sorted."""
        top = self._at(folder.split("/")) if folder else self._root
        if top is not None:
            yield from _leaves(f"{folder}/" if folder else "", top)

    def follow(self, path: str) -> str:
        """``path`` with every symlink in it followed inside the image; may name nothing."""
        parts = self._walk(_parts(path), last=True)
        return "/".join(parts)

    # Applying

    def whiteout(self, name: str) -> tuple[str, ...] | None:
        """What a whiteout takes away; ``None`` when ``name`` is none."""
        parts = self._checked(name)
        if not parts or not parts[-1].startswith(_WHITEOUT):
            return None
        folder = self._walk(parts[:-1], last=True)
        parent = self._at(folder)
        if parent is None:
            return ()
        prefix = "".join(f"{part}/" for part in folder)
        if parts[-1] == _OPAQUE:
            return tuple(self._clear(prefix, parent))
        hidden = parts[-1].removeprefix(_WHITEOUT)
        if hidden in ("", ".", ".."):
            raise self._refused(name, "it is no name of a whiteout")
        return tuple(self._hide(prefix, parent, hidden))

    def directory(self, name: str) -> Place:
        """A directory; one that is there stays."""
        parts = self._checked(name)
        if not parts:
            return Place("")
        folder, made = self._parent(name, parts)
        there = folder.entries.get(parts[-1])
        path = self._path
        removed: tuple[str, ...] = ()
        if isinstance(there, _Dir):
            there.layer = self._number
            return Place(path, made, removed)
        if there is not None:
            removed = (path,)
        folder.entries[parts[-1]] = _Dir(self._number)
        self._counted()
        return Place(path, made, removed)

    def leaf(self, name: str, kind: str, *, target: str = "") -> Place:
        """A file or a symlink; what is there goes. ``describe`` says later what a file holds."""
        parts = self._checked(name)
        if not parts:
            raise self._refused(name, "it is the root directory")
        folder, made = self._parent(name, parts)
        path = self._path
        removed = (path,) if parts[-1] in folder.entries else ()
        folder.entries[parts[-1]] = Leaf(kind, self._number, target=target)
        self._counted()
        return Place(path, made, removed)

    def describe(self, path: str, digest: str, size: int) -> None:
        """The content of the file that ``leaf`` put at ``path``."""
        *folder, last = path.split("/")
        parent = self._at(folder)
        assert parent is not None
        there = parent.entries[last]
        assert isinstance(there, Leaf)
        parent.entries[last] = there._replace(digest=digest, size=size)

    def link(self, name: str, target: str) -> tuple[Place, str]:
        """A hard link, and the path of its file."""
        parts = self._checked(target)
        where = "/".join(self._walk(parts, last=False))
        there = self.get(where) if parts else None
        if there is None or there.kind == "l":
            raise self._refused(name, f"it is a hard link to {target!r}, which is no file")
        if self._checked(name) == parts:
            return Place(""), where
        place = self.leaf(name, there.kind)
        if self.get(where) is None:
            raise self._refused(name, f"it is a hard link that replaces {target!r}")
        self.describe(place.path, there.digest, there.size)
        return place, where

    # Names

    def _checked(self, name: str) -> list[str]:
        if name.startswith("/"):
            raise self._refused(name, "it is absolute")
        if len(name) > MAX_NAME:
            raise self._refused(name[:80] + "…", f"it is longer than {MAX_NAME} characters")
        if "\0" in name:
            raise self._refused(name, "it has a NUL character")
        parts = _parts(name)
        if ".." in parts:
            raise self._refused(name, "it has '..'")
        return parts

    def _parent(self, name: str, parts: list[str]) -> tuple[_Dir, tuple[str, ...]]:
        """The directory that an entry goes into, and the paths of those made for it."""
        folder = self._walk(parts[:-1], last=True)
        self._path = "/".join([*folder, parts[-1]])
        made: list[str] = []
        at = self._root
        for depth, part in enumerate(folder):
            below = at.entries.get(part)
            if isinstance(below, Leaf):
                raise self._refused(name, f"/{'/'.join(folder[: depth + 1])} is no directory")
            if below is None:
                below = at.entries[part] = _Dir(self._number)
                made.append("/".join(folder[: depth + 1]))
                self._counted()
            below.layer = self._number
            at = below
        return at, tuple(made)

    def _walk(self, parts: list[str], *, last: bool) -> list[str]:
        """``parts`` with symlinks followed, the last of them if ``last``; ``..`` ends at the root.

        What is not there is taken as it is written.
        """
        done: list[str] = []
        pending = parts[::-1]
        hops = 0
        while pending:
            part = pending.pop()
            if part == "..":
                done = done[:-1]
                continue
            folder = self._at(done)
            there = folder.entries.get(part) if folder else None
            if isinstance(there, Leaf) and there.kind == "l" and (last or pending):
                hops += 1
                if hops > _MAX_HOPS:
                    raise self._refused("/".join(parts), "it leads through a loop of symlinks")
                if there.target.startswith("/"):
                    done = []
                pending += _parts(there.target)[::-1]
            else:
                done.append(part)
        return done

    def _at(self, parts: list[str]) -> _Dir | None:
        at = self._root
        for part in parts:
            below = at.entries.get(part)
            if not isinstance(below, _Dir):
                return None
            at = below
        return at

    # Taking away

    def _hide(self, prefix: str, parent: _Dir, name: str) -> Iterator[str]:
        """Takes away what layers below have at ``name``."""
        there = parent.entries.get(name)
        if there is None:
            return
        if isinstance(there, _Dir) and there.layer == self._number:
            yield from self._clear(f"{prefix}{name}/", there)
        elif there.layer < self._number:
            del parent.entries[name]
            yield f"{prefix}{name}"

    def _clear(self, prefix: str, folder: _Dir) -> Iterator[str]:
        for name in sorted(folder.entries):
            yield from self._hide(prefix, folder, name)

    def _counted(self) -> None:
        self._count += 1
        if self._count > MAX_ENTRIES:
            raise BuildError(f"more than {MAX_ENTRIES} entries", where=Location(self._layer))

    def _refused(self, name: str, why: str) -> BuildError:
        return BuildError(f"the entry {name!r} is refused: {why}", where=Location(self._layer))


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _leaves(prefix: str, folder: _Dir) -> Iterator[tuple[str, Leaf]]:
    for name, below in sorted(folder.entries.items()):
        if isinstance(below, Leaf):
            yield prefix + name, below
        else:
            yield from _leaves(f"{prefix}{name}/", below)
