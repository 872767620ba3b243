"""An image layout read layer by layer, once: what stands in the image, and a copy on disk of it.

Each layer is inflated in a stream. The same bytes give its DiffID, the entries of its tar, the
digest of every file, and, where an unpacker is given, the file on disk. Devices and pipes are left
out: nothing that is checked needs them, and making one needs privileges.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final, NamedTuple, cast

from hq.model.digest import BlobRef
from hq.model.errors import BuildError, Location, Problem
from hq.model.ports import BlobMissing, RandomAccess
from hq.oci.stack import Place, Stack
from hq.store.rootfs import Unpacker
from hq.store.source import LayoutSource

_PIECE: Final = 1 << 20
_MAX_TEXT: Final = 64 << 20

Progress = Callable[[int, int], None]


class Scanned(NamedTuple):
    """``texts``: what the wanted files hold, by their digest in hex. ``problems``: bad layers."""

    stack: Stack
    texts: dict[str, bytes]
    problems: tuple[Problem, ...]

    def text(self, path: str) -> bytes | None:
        """The content of a wanted file that is in the image."""
        leaf = self.stack.get(path)
        return self.texts.get(leaf.digest) if leaf is not None else None


class LayerRef(NamedTuple):
    """A layer as the manifest and the configuration name it."""

    blob: BlobRef
    media_type: str
    diff_id: str


def scan(
    source: LayoutSource,
    layers: Sequence[LayerRef],
    wanted: Callable[[str], bool],
    unpacker: Unpacker | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Scanned:
    """Reads every layer. ``progress``: bytes of blobs done and in all.

    Raises ``BuildError`` for an entry that no image may have.
    """
    run = _Scan(wanted, unpacker)
    total = sum(layer.blob.size for layer in layers)
    done = 0
    for layer in layers:
        # The default binds this round's value; mypy cannot type a lambda with one.
        run.layer(source, layer, lambda at, start=done: progress(start + at, total))  # type: ignore[misc]
        done += layer.blob.size
        progress(done, total)
    return Scanned(run.stack, run.texts, tuple(run.problems))


class _Scan:
    def __init__(self, wanted: Callable[[str], bool], unpacker: Unpacker | None) -> None:
        self.stack = Stack()
        self.texts: dict[str, bytes] = {}
        self.problems: list[Problem] = []
        self._wanted = wanted
        self._unpacker = unpacker

    def layer(self, source: LayoutSource, layer: LayerRef, progress: Callable[[int], None]) -> None:
        file = f"blobs/sha256/{layer.blob.digest.hex}"
        self.stack.next_layer(file)
        try:
            with source.open(layer.blob) as blob:
                stream = _Hashed(_inflated(blob, layer.media_type, progress))
                with tarfile.open(
                    fileobj=cast("BinaryIO", stream), mode="r|", bufsize=_PIECE
                ) as tar:
                    for member in tar:
                        self._member(tar, member)
                        # tarfile keeps every member it has seen; its stubs do not know the list.
                        tar.members = []  # type: ignore[attr-defined]
                stream.drain()
        except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, BlobMissing) as error:
            self.problems.append(Problem(Location(file), f"cannot be read: {error}"))
            return
        found = f"sha256:{stream.hash.hexdigest()}"
        if found != layer.diff_id:
            message = f"expected DiffID {layer.diff_id}, found {found}"
            self.problems.append(Problem(Location(file), message))

    def _member(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        hidden = self.stack.whiteout(member.name)
        if hidden is not None:
            if self._unpacker is not None:
                self._unpacker.remove(hidden)
        elif member.isdir():
            place = self.stack.directory(member.name)
            self._prepare(place)
            if self._unpacker is not None and place.path:
                self._unpacker.directory(place.path, member.mode)
        elif member.isreg() and not member.issparse():
            self._file(tar, member)
        elif member.issym():
            place = self.stack.leaf(member.name, "l", target=member.linkname)
            self._prepare(place)
            if self._unpacker is not None:
                self._unpacker.symlink(place.path, member.linkname)
        elif member.islnk():
            place, target = self.stack.link(member.name, member.linkname)
            self._prepare(place)
            if self._unpacker is not None and place.path:
                self._unpacker.link(place.path, target)
        elif not (member.ischr() or member.isblk() or member.isfifo()):
            raise BuildError(f"the entry {member.name!r} is of an unknown type")

    def _prepare(self, place: Place) -> None:
        if self._unpacker is not None:
            self._unpacker.remove(place.removed)
            for folder in place.made:
                self._unpacker.directory(folder)

    def _file(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        place = self.stack.leaf(member.name, "x" if member.mode & 0o111 else "f")
        self._prepare(place)
        content = tar.extractfile(member)
        assert content is not None
        kept: list[bytes] | None = None
        if member.size <= _MAX_TEXT and self._wanted(place.path):
            kept = []
        whole = hashlib.sha256()
        pieces = _pieces(content.read, whole.update, kept)
        if self._unpacker is not None:
            self._unpacker.file(place.path, member.mode, pieces)
        else:
            for _ in pieces:
                pass
        self.stack.describe(place.path, whole.hexdigest(), member.size)
        if kept is not None:
            self.texts[whole.hexdigest()] = b"".join(kept)


def _pieces(
    read: Callable[[int], bytes], update: Callable[[bytes], None], kept: list[bytes] | None
) -> Iterator[bytes]:
    while piece := read(_PIECE):
        update(piece)
        if kept is not None:
            kept.append(piece)
        yield piece


def _inflated(blob: RandomAccess, media_type: str, progress: Callable[[int], None]) -> BinaryIO:
    stream = cast("BinaryIO", io.BufferedReader(_Blob(blob, progress), _PIECE))
    if media_type.endswith("+zstd"):
        from zstandard import ZstdDecompressor

        return cast("BinaryIO", ZstdDecompressor().stream_reader(stream, read_across_frames=True))
    if media_type.endswith(("gzip", ".gz")):
        from isal.igzip import IGzipFile

        # isal has no types.
        return cast("BinaryIO", IGzipFile(fileobj=stream, mode="rb"))  # type: ignore[no-untyped-call]
    return stream


class _Blob(io.RawIOBase):
    """A blob as a file that is read from start to end."""

    def __init__(self, blob: RandomAccess, progress: Callable[[int], None]) -> None:
        super().__init__()
        self._blob = blob
        self._progress = progress
        self._at = 0

    def readable(self) -> bool:
        return True

    # The stubs want any buffer; BufferedReader, the one caller, gives a memoryview.
    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._blob.pread(self._at, min(len(buffer), _PIECE))
        buffer[: len(data)] = data
        self._at += len(data)
        self._progress(self._at)
        return len(data)


class _Hashed:
    """A stream that hashes what is read of it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.hash.update(data)
        return data

    def drain(self) -> None:
        """Reads what is left, so that the hash is of everything."""
        while self.read(_PIECE):
            pass
