"""Root file systems unpacked in the store, one folder for each image ID.

An image is unpacked into a temporary folder that appears under the image's ID when it is whole, so
a killed run leaves nothing that counts. Owners are not kept, set-user-ID bits are dropped and every
folder can be entered and removed by the one who unpacked it: the tree is for looking into and for
running checks in a sandbox, not for serving. Collection removes all of them: each can be made again
from its layers.

The paths that ``Unpacker`` is given lead through real directories only (``hq.oci.stack``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from hq.model.digest import Digest
from hq.store.disk import DiskStore
from hq.store.faults import disk_fault
from hq.store.files import TMP, make_dir, make_temp_dir, move, remove_temp_dir

FOLDER = "rootfs"


def rootfs_path(store: DiskStore, image_id: Digest) -> str:
    """Where the image's root file system stands or would stand."""
    return f"{store.root}/{FOLDER}/{image_id.hex}"


class Unpacker:
    """Writes entries below ``root``. Raises ``InfrastructureError`` when the disk does not take it.

    Modes are permission bits; others are dropped.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.keep = True

    def _path(self, path: str) -> str:
        return f"{self.root}/{path}"

    def remove(self, paths: Iterable[str]) -> None:
        """Removes files, symlinks and whole folders."""
        import shutil

        for path in paths:
            full = self._path(path)
            if os.path.isdir(full) and not os.path.islink(full):
                shutil.rmtree(full)
            else:
                os.unlink(full)

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Makes a folder, or sets the mode of one that is there."""
        full = self._path(path)
        with suppress(FileExistsError):
            os.mkdir(full)
        os.chmod(full, mode & 0o777 | 0o700)

    def file(self, path: str, mode: int, pieces: Iterable[bytes]) -> None:
        """Writes a new file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path(path), flags, 0o600)
        with open(fd, "wb") as file:
            file.writelines(pieces)
            os.fchmod(fd, mode & 0o777 | 0o400)

    def symlink(self, path: str, target: str) -> None:
        """Makes a symlink; its target is text."""
        os.symlink(target, self._path(path))

    def link(self, path: str, target: str) -> None:
        """Makes a hard link to a file that is there."""
        os.link(self._path(target), self._path(path), follow_symlinks=False)


@contextmanager
def unpacking(store: DiskStore, image_id: Digest) -> Iterator[Unpacker]:
    """A new root file system; kept when the block ends without an error and ``keep`` is set."""
    try:
        temp = make_temp_dir(f"{store.root}/{TMP}")
    except OSError as error:
        raise disk_fault(error, "unpack the image", store.root) from error
    try:
        root = f"{temp.path}/root"
        make_dir(root)
        unpacker = Unpacker(root)
        yield unpacker
        place = rootfs_path(store, image_id)
        if unpacker.keep and not os.path.isdir(place):  # another run may have been quicker
            move(root, place)
    except OSError as error:
        raise disk_fault(error, "unpack the image", store.root) from error
    finally:
        remove_temp_dir(temp)


def drop_rootfs(root: str) -> int:
    """Removes every unpacked root file system of the store at ``root``; the bytes freed."""
    import shutil

    top = f"{root}/{FOLDER}"
    freed = 0
    for folder, _, names in os.walk(top):
        for name in names:
            with suppress(OSError):
                state = os.lstat(f"{folder}/{name}")
                freed += state.st_size if state.st_nlink == 1 else 0
    shutil.rmtree(top, ignore_errors=True)
    return freed
