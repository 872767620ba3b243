"""What a layer is made of, and in which order it stands in the tar.

Items come in any order; entries go out sorted by path, every parent directory once before what
lies in it, and a removed file as a whiteout (OCI image specification, layer.md, "Whiteouts")
before its siblings. A path that would act as a whiteout, escape the root, or be a file and a
directory at once is refused: a file named ``.wh.x`` in a hostile wheel would delete a file of the
layers below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from hq.model.errors import BuildError
from hq.model.ports import RandomAccess
from hq.model.tree import FILE, Kind, path_problem
from hq.oci.tar import DIRECTORY, EntryKind
from hq.wheels.content import Member

WHITEOUT = ".wh."


class File(NamedTuple):
    """A file whose bytes ``read`` gives when the layer gets there; a symlink's target likewise."""

    path: str
    kind: Kind
    read: Callable[[], bytes]


class Packed(NamedTuple):
    """A file inside a stored wheel. ``wheel`` is the wheel's name in errors."""

    path: str
    member: Member
    reader: RandomAccess
    wheel: str


class Removed(NamedTuple):
    """A file of a layer below that is gone."""

    path: str


Item = File | Packed | Removed


class Slot(NamedTuple):
    """One entry of the tar: its path there, what it is, and the item that fills it, if any."""

    path: str
    kind: EntryKind
    item: File | Packed | None


def arrange(items: Iterable[Item], prefix: str = "") -> list[Slot]:
    """The entries of a layer in order, each path below the directory ``prefix``.

    Raises ``BuildError`` for a path that cannot stand in a layer, or that comes twice.
    """
    if prefix:
        _check(prefix)
    slots: dict[str, Slot] = {}
    parents: set[str] = set()
    for item in items:
        _check(item.path)
        path = f"{prefix}/{item.path}" if prefix else item.path
        key, slot = _slot(path, item)
        if key in slots:
            raise BuildError(f"a layer cannot hold {path!r} twice")
        slots[key] = slot
        _add_parents(path, parents)
    for parent in sorted(parents):
        if parent in slots:
            raise BuildError(f"a layer cannot hold {parent!r} as a file and as a directory")
        slots[parent] = Slot(parent, DIRECTORY, None)
    return [slots[key] for key in sorted(slots)]


def _slot(path: str, item: Item) -> tuple[str, Slot]:
    """An item's entry and its sort key."""
    if isinstance(item, Removed):
        directory, _, name = path.rpartition("/")
        parent = directory + "/" if directory else ""
        # NUL sorts before any other character: whiteouts come first in their directory.
        return f"{parent}\0{name}", Slot(f"{parent}{WHITEOUT}{name}", FILE, None)
    kind = item.member.kind if isinstance(item, Packed) else item.kind
    return path, Slot(path, kind, item)


def _check(path: str) -> None:
    problem = path_problem(path)
    if problem is None and any(part.startswith(WHITEOUT) for part in path.split("/")):
        problem = f"a name that begins with '{WHITEOUT}' would remove files of the layers below"
    if problem:
        raise BuildError(f"a layer cannot hold {path!r}: {problem}")


def _add_parents(path: str, parents: set[str]) -> None:
    parent = path.rpartition("/")[0]
    while parent and parent not in parents:
        parents.add(parent)
        parent = parent.rpartition("/")[0]
