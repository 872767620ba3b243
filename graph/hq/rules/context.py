"""What a rule is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from hq.model.action import Json
from hq.model.canonical import Value
from hq.model.digest import BlobRef, Digest
from hq.model.ports import BlobStore
from hq.model.project import LockedDeb, LockedWheel
from hq.model.tree import Delta, Entry, Kind
from hq.wheels.content import Member


class SourceState(NamedTuple):
    """A project file: its path from the root, its content."""

    path: str
    content: BlobRef


class FileState(NamedTuple):
    """What stands at a path of the tree.

    ``entry``: the file, or ``None``. ``member``: set when the content is inside ``wheel``.
    ``directory``: a directory stands there. ``above``: a file or symlink that stands where a parent
    directory of the path would have to be, with its kind.
    """

    path: str
    entry: Entry | None
    member: Member | None = None
    wheel: BlobRef | None = None
    directory: bool = False
    above: tuple[str, Kind] | None = None


class Made(NamedTuple):
    """A node's result before it has a key."""

    blobs: Mapping[str, BlobRef] = {}
    delta: Delta = ()
    values: Mapping[str, Json] = {}


class Context(Protocol):
    """One run of one node."""

    @property
    def node(self) -> str:
        """The node's name, for messages."""
        ...

    @property
    def params(self) -> Mapping[str, Value]:
        """The node's parameters."""
        ...

    @property
    def store(self) -> BlobStore:
        """Where blobs are read and written."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The inputs whose names begin with ``prefix``, without it, sorted."""
        ...

    def source(self, name: str) -> SourceState:
        """A project file."""
        ...

    def source_bytes(self, name: str) -> bytes:
        """A project file's content."""
        ...

    def file(self, name: str) -> FileState:
        """What stands at a path of the tree."""
        ...

    def file_bytes(self, name: str) -> bytes:
        """The content of a file of the tree, verified."""
        ...

    def delta(self, name: str) -> Delta:
        """A node's changes."""
        ...

    def paths(self, name: str) -> tuple[tuple[str, bool], ...]:
        """A node's changed paths; ``False`` for a removed one."""
        ...

    def value(self, name: str) -> Json:
        """A node's value."""
        ...

    def blob(self, name: str) -> BlobRef:
        """A node's blob."""
        ...

    def content_of(self, node: str, path: str) -> bytes | None:
        """A file as ``node`` left it, for messages only: what it holds must not enter a result."""
        ...

    def fetch(self, wheel: LockedWheel) -> BlobRef:
        """The wheel, from the store or the network, hash-checked."""
        ...

    def fetch_deb(self, deb: LockedDeb) -> BlobRef:
        """The package, from the store or the network, hash-checked."""
        ...

    def base_image(self, digest: Digest, os: str, architecture: str) -> BlobRef:
        """Brings an image with all its blobs into the store; its manifest for the platform."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Tells how many bytes are done."""
        ...

    def warn(self, text: str) -> None:
        """Tells the user something that does not stop the build; kept in the record."""
        ...


Rule = Callable[[Context], Made]
