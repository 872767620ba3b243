"""The project's own files: read, hashed, and remembered by their status.

A file is hashed once per content: its status (device, inode, mode, size, times) is kept with its
digest, and while the status is the same the digest is taken from there (``hq.store.stat``). What a
build looked at is kept too, for the fast path (``hq.app.noop``).
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from hq.app.folder import files_beneath
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, Location, UsageError
from hq.store.stat import StatCache

MAX_SOURCE_BYTES = 256 << 20


class Seen(NamedTuple):
    """One file that was looked at: its status before it was read, and its content's name."""

    status: os.stat_result
    ref: BlobRef


class ProjectSources:
    """Implements ``hq.execute.context.Sources`` and ``hq.app.config.Files``."""

    def __init__(self, root: str, cache: StatCache) -> None:
        self.root = root
        self.seen: dict[str, Seen] = {}
        self.folders: dict[str, str] = {}
        self._cache = cache

    def absolute(self, path: str) -> str:
        """The path on this machine."""
        return os.path.join(self.root, path)

    def ref(self, path: str) -> BlobRef:
        """The digest and size of a file. Raises ``UsageError`` when it cannot be read."""
        seen = self.seen.get(path)
        if seen is None:
            seen = self.seen[path] = self._look(path)
        return seen.ref

    def is_executable(self, path: str) -> bool:
        """Whether a file's owner may execute it. Raises as ``ref``."""
        self.ref(path)
        return bool(self.seen[path].status.st_mode & stat.S_IXUSR)

    def _look(self, path: str) -> Seen:
        self._check_link(path)
        try:
            state = self._cache.digest_file(path)
            return Seen(state.status, state.ref)
        except OSError as error:
            raise _unreadable(path, error) from None
        except BuildError as error:
            raise UsageError(f"{path} is {error.message}", where=Location(path)) from None

    def _check_link(self, path: str) -> None:
        """A link out of the project is an input that nobody sees (threat: a secret in an image)."""
        full = self.absolute(path)
        if not os.path.islink(full):
            return
        target, root = os.path.realpath(full), os.path.realpath(self.root)
        if os.path.commonpath([target, root]) != root:
            raise UsageError(
                f"{path} is a link to a place outside of the project",
                where=Location(path),
                details=[f"it leads to: {os.readlink(full)}"],
                hint="put the file itself there",
            )

    def read(self, path: str) -> bytes:
        """The content. Raises ``FileNotFoundError``, and ``BuildError`` if it changed meanwhile."""
        data = self._content(path)
        if len(data) > MAX_SOURCE_BYTES:
            raise UsageError(
                f"{path} is larger than {MAX_SOURCE_BYTES} bytes", where=Location(path)
            )
        if self.ref(path).digest != Digest.of(data):
            raise BuildError(
                f"{path} changed while the build was reading it",
                where=Location(path),
                hint="run the build again",
            )
        return data

    def _content(self, path: str) -> bytes:
        full = self.absolute(path)
        try:
            # A pipe would keep the build waiting for somebody to write into it.
            if not stat.S_ISREG(os.stat(full).st_mode):
                raise UsageError(f"{path} is not a regular file", where=Location(path))
            with open(full, "rb") as file:
                return file.read(MAX_SOURCE_BYTES + 1)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unreadable(path, error) from None

    def names(self, folder: str) -> list[str]:
        """Every file beneath ``folder``, by path from it, sorted; hidden ones are left out."""
        return files_beneath(self.absolute(folder), self.folders.setdefault)


def _unreadable(path: str, error: OSError) -> UsageError:
    if isinstance(error, FileNotFoundError):
        return UsageError(f"there is no file {path}", where=Location(path))
    return UsageError(f"{path} cannot be read: {error.strerror}", where=Location(path))
