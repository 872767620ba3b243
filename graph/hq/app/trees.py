"""A directory as a tree of files, and a tree written as a new directory.

Reading never follows a symlink: a symlink is a leaf with its target as content, and nothing beneath
one is seen. Names are bytes on disk and text with ``surrogateescape`` here, so every name survives,
and the locale has no say. Devices, pipes and sockets are refused; empty directories do not exist.

A tree is written beside its place under a temporary name and then renamed, so that the directory is
there whole or not at all. Modes are 0755 and 0644 whatever the umask.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import BinaryIO

from hq.model.errors import BuildError, InfrastructureError, Location, UsageError
from hq.patchwork.apply import File
from hq.store.faults import disk_fault, reason

_CHUNK = 256 << 10
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
MAX_FILE = 1 << 30
_ELSEWHERE = "choose another folder with --into DIR"


class DirectoryTree:
    """The files below ``root``, read when asked for."""

    def __init__(self, root: str) -> None:
        """Raises ``UsageError`` when ``root`` is no directory."""
        self.root = os.fsencode(root)
        self._real: dict[str, bool] = {"": True}
        if not os.path.isdir(self.root):
            what = "is not a directory" if os.path.lexists(self.root) else "does not exist"
            raise UsageError(f"the tree {what}", where=Location(root), hint="give --tree DIR")

    def read(self, path: str) -> File | None:
        """The file at ``path``, kind ``d`` for a directory, ``None`` for nothing.

        Raises ``BuildError`` for a special file and ``InfrastructureError`` when it cannot be read.
        """
        if not self._inside(path.rpartition("/")[0]):
            return None
        place = self._place(path)
        try:
            found = os.lstat(place)
            if stat.S_ISDIR(found.st_mode):
                return File("d", b"")
            kind = _kind(found, path)
            if kind == "l":
                return File("l", os.readlink(place))
            if found.st_size > MAX_FILE:
                raise BuildError(
                    f"a file of {found.st_size} bytes is too large to patch", where=Location(path)
                )
            with open(place, "rb") as file:
                return File(kind, file.read())
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise _unreadable(path, error) from None

    def entries(self) -> dict[str, str]:
        """Every file's kind by path, sorted by the paths' bytes."""
        found = self._scan()
        return {path.decode("utf-8", "surrogateescape"): found[path] for path in sorted(found)}

    def digest(self, path: str, kind: str, copy: BinaryIO | None = None) -> bytes:
        """SHA-256 in hex of a file's content (a symlink's target), copied on the way."""
        if kind == "l":
            return _hex(self.target(path))
        whole = hashlib.sha256()
        for chunk in self._chunks(path):
            whole.update(chunk)
            if copy is not None:
                _write_all(copy, chunk)
        return whole.hexdigest().encode()

    def target(self, path: str) -> bytes:
        """Where a symlink points."""
        try:
            return os.readlink(self._place(path))
        except OSError as error:
            raise _unreadable(path, error) from None

    def _chunks(self, path: str) -> Iterator[bytes]:
        """A file's content; only what goes wrong in reading is told of the tree."""
        try:
            with open(self._place(path), "rb", buffering=0) as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise _unreadable(path, error) from None

    def _place(self, path: str) -> bytes:
        return os.path.join(self.root, path.encode("utf-8", "surrogateescape"))

    def _inside(self, directory: str) -> bool:
        """Whether ``directory`` is a real directory of the tree, not one behind a symlink."""
        asked = []
        while directory not in self._real:
            asked.append(directory)
            directory = directory.rpartition("/")[0]
        real = self._real[directory]
        for below in reversed(asked):
            real = real and self._is_directory(below)
            self._real[below] = real
        return real

    def _is_directory(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(self._place(path)).st_mode)
        except (OSError, ValueError):
            return False

    def _scan(self) -> dict[bytes, str]:
        found: dict[bytes, str] = {}
        folders = [b""]
        while folders:
            below = folders.pop()
            try:
                with os.scandir(os.path.join(self.root, below)) as entries:
                    for entry in entries:
                        path = below + b"/" + entry.name if below else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(path)
                        else:
                            text = path.decode("utf-8", "surrogateescape")
                            found[path] = _kind(entry.stat(follow_symlinks=False), text)
            except OSError as error:
                raise _unreadable(below.decode("utf-8", "surrogateescape") or ".", error) from None
        return found


def _kind(found: os.stat_result, path: str) -> str:
    mode = found.st_mode
    if stat.S_ISLNK(mode):
        return "l"
    if not stat.S_ISREG(mode):
        raise BuildError(
            "a special file in the tree: neither a regular file, a directory nor a symlink",
            where=Location(path), hint="remove it from the tree",
        )  # fmt: skip
    return "x" if mode & stat.S_IXUSR else "f"


def _unreadable(path: str, error: OSError) -> InfrastructureError:
    return InfrastructureError(
        f"cannot read a file of the tree: {reason(error)}", where=Location(path)
    )


def _hex(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _after(tree: DirectoryTree, changes: Mapping[str, File | None]) -> list[tuple[bytes, str]]:
    """The paths and kinds of the tree with ``changes``, sorted by bytes."""
    entries = tree.entries()
    for path, file in changes.items():
        if file is None:
            entries.pop(path, None)
        else:
            entries[path] = file.kind
    return sorted((path.encode("utf-8", "surrogateescape"), path) for path in entries)


def tree_digest(tree: DirectoryTree, changes: Mapping[str, File | None]) -> str:
    """SHA-256 in hex over the sorted lines ``path NUL kind NUL sha256-of-content LF``."""
    whole = hashlib.sha256()
    entries = tree.entries()
    for raw, path in _after(tree, changes):
        file = changes.get(path)
        if file is None:
            kind = entries[path]
            content = tree.digest(path, kind)
        else:
            kind, content = file.kind, _hex(file.data)
        whole.update(raw + b"\0" + kind.encode() + b"\0" + content + b"\n")
    return whole.hexdigest()


def check_destination(into: str, root: str) -> None:
    """Raises ``UsageError`` unless ``into`` can become a new directory apart from the tree."""
    place = os.path.abspath(into)
    here = os.path.realpath(place)
    source = os.path.realpath(root)
    if here == source or here.startswith(source + os.sep):
        raise UsageError(
            "the result cannot be written into the tree that it is made from",
            where=Location(into), hint="give --into a directory elsewhere",
        )  # fmt: skip
    if os.path.lexists(place) and (
        os.path.islink(place) or not os.path.isdir(place) or os.listdir(place)
    ):
        raise UsageError(
            "the result goes into a new or an empty directory; this one is taken",
            where=Location(into), hint="give --into another name, or remove what is there",
        )  # fmt: skip
    if not os.path.isdir(os.path.dirname(place)):
        raise UsageError(
            "the directory that is to hold the result does not exist",
            where=Location(os.path.dirname(place)), hint="make it first",
        )  # fmt: skip


def write_tree(tree: DirectoryTree, changes: Mapping[str, File | None], into: str) -> str:
    """Writes the tree with ``changes`` as directory ``into``; returns its digest.

    Raises ``UsageError`` when the place is taken and ``InfrastructureError`` when the disk fails;
    then nothing of it is left.
    """
    check_destination(into, os.fsdecode(tree.root))
    place = os.path.abspath(into)
    temporary = os.fsencode(
        os.path.join(os.path.dirname(place), f".{os.path.basename(place)}.hq-{os.getpid()}")
    )
    try:
        digest = _write(tree, changes, temporary)
        os.rename(temporary, place)
    except OSError as error:
        _remove(temporary)
        raise disk_fault(error, "write the result", into, elsewhere=_ELSEWHERE) from None
    except BaseException:
        _remove(temporary)
        raise
    return digest


def _remove(temporary: bytes) -> None:
    """Removes a folder that this process made, however deep it is. Never raises ``OSError``."""
    pending = [temporary]
    folders = []
    while pending:
        folder = pending.pop()
        folders.append(folder)
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    os.unlink(entry.path)
    for folder in reversed(folders):
        with suppress(OSError):
            os.rmdir(folder)


def _write(tree: DirectoryTree, changes: Mapping[str, File | None], place: bytes) -> str:
    _make_folder(place)
    made = {b""}
    whole = hashlib.sha256()
    entries = tree.entries()
    for raw, path in _after(tree, changes):
        _make_folders(place, raw.rpartition(b"/")[0], made)
        file = changes.get(path)
        kind = entries[path] if file is None else file.kind
        content = _write_file(tree, path, kind, file, os.path.join(place, raw))
        whole.update(raw + b"\0" + kind.encode() + b"\0" + content + b"\n")
    return whole.hexdigest()


def _write_file(
    tree: DirectoryTree, path: str, kind: str, file: File | None, place: bytes
) -> bytes:
    if kind == "l":
        target = tree.target(path) if file is None else file.data
        os.symlink(target, place)
        return _hex(target)
    with open(place, "xb", buffering=0) as out:
        os.fchmod(out.fileno(), 0o755 if kind == "x" else 0o644)
        if file is None:
            return tree.digest(path, kind, out)
        _write_all(out, file.data)
    return _hex(file.data)


def _write_all(out: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]


def _make_folders(place: bytes, folder: bytes, made: set[bytes]) -> None:
    wanted = []
    while folder not in made:
        wanted.append(folder)
        folder = folder.rpartition(b"/")[0]
    for one in reversed(wanted):
        _make_folder(os.path.join(place, one))
        made.add(one)


def _make_folder(place: bytes) -> None:
    os.mkdir(place)
    os.chmod(place, 0o755)  # noqa: S103 - an ordinary directory, whatever the umask
