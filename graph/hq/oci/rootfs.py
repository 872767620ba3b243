"""Writing a layer of a root file system: real modes and owners, directories, hard links.

A layer of wheels (``hq.oci.layer``) is files with two modes, owned by root. Here each entry says
how it is, and a file's content is any number of deflate streams, spliced one after the other. What
is the same for both is shared: headers, encoders, the checks of each stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from hq.model.digest import DiffId
from hq.model.errors import BuildError, Location
from hq.model.ports import BlobWriter, RandomAccess
from hq.oci.arrange import Packed
from hq.oci.encode import MEDIA_TYPES, Compression, Encoder, encoder
from hq.oci.layer import LayerResult
from hq.oci.tar import END, EntryKind, attributes, check_mtime, entry, padding
from hq.wheels.content import Contents

ROOTFS_VERSION: Final = 1
"""Goes up when the bytes of a layer change for equal entries; part of the layer node's key."""


class RootEntry(NamedTuple):
    """One entry. ``content``: a file's streams; ``sha256`` in hex: of all they inflate to."""

    path: str
    kind: EntryKind
    mode: int
    uid: int
    gid: int
    target: str = ""
    size: int = 0
    sha256: str = ""
    content: tuple[Packed, ...] = ()


def write_root(
    entries: Iterable[RootEntry], writer: BlobWriter, *, compression: Compression, mtime: int
) -> LayerResult:
    """Writes the layer and commits ``writer``. ``entries`` are sorted by path, and checked before.

    A hard link stands after its file. ``mtime``: of every entry, in seconds. Raises ``BuildError``
    when content is not what its entry says; nothing is committed then.
    """
    check_mtime(mtime)
    output = _Output(encoder(compression, writer))
    for each in entries:
        owned = attributes(each.mode, each.uid, each.gid)
        output.plain(entry(each.path, each.kind, each.size, mtime, each.target, owned))
        if each.kind == "f":
            output.content(each)
            output.plain(padding(each.size))
    output.plain(END)
    output.target.finish()
    blob = writer.commit()
    diff_id = DiffId.from_hex(output.hash.hexdigest())
    return LayerResult(diff_id, blob, MEDIA_TYPES[compression], output.size)


class _Output:
    def __init__(self, target: Encoder) -> None:
        self.target = target
        self.hash = hashlib.sha256()
        self.size = 0
        self._contents: dict[int, tuple[RandomAccess, Contents]] = {}

    def plain(self, data: bytes) -> None:
        """The next bytes of the tar, to be encoded here."""
        self._count(data)
        self.target.plain(data)

    def _count(self, data: bytes) -> None:
        self.hash.update(data)
        self.size += len(data)

    def content(self, each: RootEntry) -> None:
        """A file's content, every stream checked before it is spliced, the whole after that."""
        whole = hashlib.sha256()
        total = 0
        for piece in each.content:
            data = self._reader(piece).small(piece.member)
            whole.update(data)
            total += len(data)
            if self.target.splices:
                self._count(data)
                self.target.packed(piece)
            else:
                self.plain(data)
        if total != each.size or whole.hexdigest() != each.sha256:
            raise BuildError(
                f"the content of /{each.path} is not what the package's index says",
                where=Location(each.content[0].wheel if each.content else each.path),
                hint="run 'hq store verify'",
            )

    def _reader(self, piece: Packed) -> Contents:
        # The reader is kept beside, so that its id is not given to another one.
        found = self._contents.get(id(piece.reader))
        if found is None:
            found = piece.reader, Contents(piece.reader, piece.wheel)
            self._contents[id(piece.reader)] = found
        return found[1]
