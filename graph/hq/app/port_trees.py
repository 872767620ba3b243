"""Releases as trees: a locked or a given wheel, or a directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from hq.app.session import Session
from hq.app.trees import DirectoryTree
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, Location, UsageError
from hq.model.ports import RandomAccess
from hq.patchwork.apply import File
from hq.store.reader import FileReader
from hq.wheels.content import Contents
from hq.wheels.filename import parse_filename
from hq.wheels.index import WheelIndex
from hq.wheels.reading import read_index


class WheelTree:
    """``hq.port.tree.Tree`` over a wheel; every byte that is read is verified."""

    def __init__(self, index: WheelIndex, reader: RandomAccess, version: str, wheel: str) -> None:
        self._members = {member.path: member for member in index}
        self._contents = Contents(reader, wheel)
        self._version = version

    @property
    def version(self) -> str:
        """The wheel's."""
        return self._version

    def paths(self) -> Sequence[str]:
        """Every member."""
        return list(self._members)

    def digest(self, path: str) -> str:
        """RECORD's."""
        member = self._members.get(path)
        return member.digest.hex if member is not None else ""

    def size(self, path: str) -> int:
        """A member's size in bytes."""
        return self._members[path].size

    def read(self, path: str) -> File | None:
        """A member, inflated and verified."""
        member = self._members.get(path)
        if member is None:
            return None
        return File("x" if member.kind == "x" else "f", self._contents.read(member))


class FolderTree:
    """``hq.port.tree.Tree`` over a directory such as ``site-packages``."""

    def __init__(self, root: str, version: str) -> None:
        self._tree = DirectoryTree(root)
        self._version = version
        self._kinds: dict[str, str] = {}
        self._digests: dict[str, str] = {}

    @property
    def version(self) -> str:
        """As it was named."""
        return self._version

    def paths(self) -> Sequence[str]:
        """Every file."""
        if not self._kinds:
            self._kinds = self._tree.entries()
        return list(self._kinds)

    def digest(self, path: str) -> str:
        """SHA-256, computed when asked for."""
        if path not in self._digests:
            file = self._tree.read(path)
            found = file is not None and file.kind != "d"
            self._digests[path] = Digest.of(file.data).hex if file is not None and found else ""
        return self._digests[path]

    def read(self, path: str) -> File | None:
        """A file of the directory."""
        file = self._tree.read(path)
        return None if file is None or file.kind == "d" else file


class Trees:
    """Opens releases; closes what it opened at the end of the ``with`` block."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def of_pin(self, pin: str) -> WheelTree:
        """The locked wheel of a declared pin. Raises ``HqError``."""
        from hq.transfer.fetch import no_progress

        wheel = self._session.spec(pin).wheel
        ref = self._session.fetch(wheel, no_progress)
        return self._stored(ref, wheel.name, wheel.version, wheel.file)

    def of_blob(self, ref: BlobRef, name: str, version: str, file: str) -> WheelTree:
        """A wheel that is in the store."""
        return self._stored(ref, name, version, file)

    def of_file(self, path: str) -> WheelTree:
        """A wheel file. Raises ``UsageError``, ``BuildError``."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(
                f"cannot read the wheel: {(error.strerror or '').lower()}", where=Location(path)
            ) from None
        reader = self._open.enter_context(FileReader(fd, os.fstat(fd).st_size, path))
        try:
            name = parse_filename(os.path.basename(path))
        except BuildError as error:
            raise UsageError(error.message, where=Location(path), hint=error.hint) from None
        index = read_index(reader, project=name.project, version=name.version, wheel=path)
        return WheelTree(index, reader, name.version, path)

    def of_folder(self, path: str, version: str) -> FolderTree:
        """A directory that holds the unpacked wheel. Raises ``UsageError``."""
        return FolderTree(path, version or os.path.basename(os.path.abspath(path)))

    def _stored(self, ref: BlobRef, name: str, version: str, file: str) -> WheelTree:
        reader = self._open.enter_context(self._session.disk.open(ref))
        index = read_index(reader, project=name, version=version, wheel=file)
        return WheelTree(index, reader, version, file)
