"""One package: what it holds, and its content compressed once for every layer it will be in.

``read_package`` goes over the package once. For each file it takes SHA-256 and MD5, holds the MD5
against the package's own ``md5sums``, and writes the content to a *pack*: raw deflate streams of at
most ``PIECE`` bytes of content each. A layer splices those streams (``hq.oci.encode``) and nothing
is compressed again, however many images hold the package.

Setuid and setgid bits are kept: the package is named by its hash, and ``su`` or ``unix_chkpwd``
do nothing without them. Owners are kept as numbers.

The index is what ``root`` and the layers work from; the package itself is not read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from hq.debian.ar import read_parts
from hq.debian.control import check_fields, parse_stanza
from hq.debian.decompress import decompress
from hq.debian.refuse import refuse
from hq.debian.tar import EntryType, Header, TarReader
from hq.model.ports import BlobWriter, RandomAccess

FORMAT: Final = "hq.deb-index/1"
PIECE: Final = 1 << 20
LEVEL: Final = 6
MAX_CONTROL: Final = 64 << 20
MAX_DATA: Final = 16 << 30


class Stream(NamedTuple):
    """One raw deflate stream of the pack: its place, what it inflates to, that one's CRC-32."""

    offset: int
    csize: int
    size: int
    crc: int


class Item(NamedTuple):
    """One entry of a package.

    ``path``: as the package names it, without ``./``; never empty. ``type``: file ``f``, directory
    ``d``, symlink ``l``, hard link ``h`` (``link`` is a path then). ``offset``: of the content in
    the uncompressed data tar. ``streams``: of the content in the pack, in order.
    """

    path: str
    type: EntryType
    mode: int
    uid: int
    gid: int
    link: str = ""
    size: int = 0
    sha256: str = ""
    md5: str = ""
    offset: int = 0
    streams: tuple[Stream, ...] = ()


class Package(NamedTuple):
    """The index of a package. ``files`` are its control files, ``control`` among them."""

    fields: Mapping[str, str]
    files: Mapping[str, str]
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        """The package's name."""
        return self.fields["Package"]

    @property
    def version(self) -> str:
        """The package's version."""
        return self.fields["Version"]

    @property
    def architecture(self) -> str:
        """``amd64``, or ``all``."""
        return self.fields["Architecture"]

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.name} {self.version}"

    def conffiles(self) -> list[str]:
        """The paths of its configuration files, without the leading ``/``, in its order."""
        found = []
        for line in self.files.get("conffiles", "").split("\n"):
            # deb-conffiles(5): a flag may stand before the path, which is absolute.
            flag, space, path = line.strip().rpartition(" ")
            if path.startswith("/") and not (space and "remove-on-upgrade" in flag):
                found.append(path[1:])
        return found

    def encode(self) -> bytes:
        """The index as bytes; ``decode`` reads it back."""
        rows = [[*item[:10], [list(stream) for stream in item.streams]] for item in self.items]
        document = {
            "format": FORMAT,
            "fields": dict(self.fields),
            "files": dict(self.files),
            "items": rows,
        }
        return json.dumps(document, separators=(",", ":"), sort_keys=True).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> Package:
        """Reads ``encode``'s bytes. Raises ``ValueError``, ``KeyError`` or ``TypeError``."""
        document: Any = json.loads(data)
        if document["format"] != FORMAT:
            raise ValueError(f"expected format {FORMAT!r}, found {document['format']!r}")
        items = tuple(
            Item(*row)._replace(streams=tuple(Stream(*stream) for stream in row[10]))
            for row in document["items"]
        )
        return cls(document["fields"], document["files"], items)


def read_package(reader: RandomAccess, pack: BlobWriter, package: str) -> Package:
    """Reads a package and writes its content to ``pack``, which the caller commits.

    ``package``: the file's name, for messages. Raises ``BuildError``.
    """
    control, data = read_parts(reader, package)
    pieces = decompress(reader, control, package, MAX_CONTROL)
    files = _control_files(TarReader(pieces, package, "control.tar"), package)
    fields = _fields(files, package)
    sums = _md5sums(files.get("md5sums", ""), package)
    pieces = decompress(reader, data, package, MAX_DATA)
    unpacker = _Unpacker(TarReader(pieces, package, "data.tar"), pack, package, sums)
    items = unpacker.run()
    found = Package(fields, files, items)
    _check_conffiles(found, package)
    return found


def pack_encoder_id() -> str:
    """What made the streams: equal ids give equal packs of equal packages."""
    import deflate

    return f"deflate/{deflate.__version__} level={LEVEL} piece={PIECE}"


def _control_files(tar: TarReader, package: str) -> dict[str, str]:
    files: dict[str, str] = {}
    for header in tar:
        if header.type == "d" and not header.path:
            continue
        if header.type != "f" or "/" in header.path:
            refuse(package, f"control.tar: {header.path!r} is no plain file at the top")
        if header.path in files:
            refuse(package, f"control.tar has {header.path!r} twice")
        # Undecodable bytes stay: the database gets the file back as it was.
        content = b"".join(tar.content())
        files[header.path] = content.decode("utf-8", "surrogateescape")
    return files


def _fields(files: Mapping[str, str], package: str) -> dict[str, str]:
    text = files.get("control")
    if text is None:
        refuse(package, "control.tar has no file 'control'")
    try:
        fields = parse_stanza(text)
    except ValueError as error:
        refuse(package, f"the control file cannot be read: {error}")
    check_fields(fields, package)
    return fields


def _md5sums(text: str, package: str) -> dict[str, str]:
    sums: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        digest, _, path = line.partition("  ")
        if len(digest) != 32 or not path:
            refuse(package, f"the file md5sums cannot be read: line {number}")
        sums[path.removeprefix("./").removeprefix("/")] = digest
    return sums


class _Unpacker:
    """Goes over the data tar."""

    def __init__(
        self, tar: TarReader, pack: BlobWriter, package: str, sums: Mapping[str, str]
    ) -> None:
        self._tar = tar
        self._pack = pack
        self._package = package
        self._sums = sums
        self._offset = 0
        self._items: dict[str, Item] = {}

    def run(self) -> tuple[Item, ...]:
        """The items, in the package's order."""
        for header in self._tar:
            if not header.path:
                continue
            self._check(header)
            item = Item(*header[:5], header.link)
            self._items[header.path] = self._file(header, item) if header.type == "f" else item
        for path in self._sums:
            item_at = self._items.get(path)
            if item_at is None or item_at.type not in ("f", "h"):
                self._refuse(f"md5sums names {path!r}, which is not in the package")
        return tuple(self._items.values())

    def _refuse(self, message: str) -> NoReturn:
        refuse(self._package, message)

    def _check(self, header: Header) -> None:
        path = header.path
        if path in self._items:
            self._refuse(f"data.tar has {path!r} twice")
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            parent = self._items.get(above)
            if parent is not None and parent.type != "d":
                self._refuse(
                    f"data.tar: {path!r} would be written through {above!r}, {_is(parent)}"
                )
        if header.type == "h":
            target = self._items.get(header.link)
            if target is None or target.type != "f":
                what = "which is not before it" if target is None else _is(target)
                self._refuse(f"data.tar: {path!r} is a hard link to {header.link!r}, {what}")

    def _file(self, header: Header, item: Item) -> Item:
        content = self._tar.content()
        full, self._offset = _compressed(item, content, self._pack, self._offset)
        stated = self._sums.get(header.path)
        if stated is not None and stated != full.md5:
            self._refuse(f"data.tar: {header.path!r} is not what md5sums says")
        return full._replace(offset=header.offset)


def compress(item: Item, data: bytes, pack: BlobWriter, offset: int) -> tuple[Item, int]:
    """Appends ``data`` to a pack of ``offset`` bytes: the item of that content, the new length."""
    return _compressed(item, iter([data]), pack, offset)


def _compressed(
    item: Item, content: Iterator[bytes], pack: BlobWriter, offset: int
) -> tuple[Item, int]:
    import deflate

    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    streams = []
    size = 0
    for piece in _regular(content):
        sha256.update(piece)
        md5.update(piece)
        compressed = deflate.deflate_compress(piece, LEVEL)
        pack.write(compressed)
        streams.append(Stream(offset, len(compressed), len(piece), deflate.crc32(piece)))
        offset += len(compressed)
        size += len(piece)
    full = item._replace(
        size=size, sha256=sha256.hexdigest(), md5=md5.hexdigest(), streams=tuple(streams)
    )
    return full, offset


def _is(item: Item) -> str:
    kinds = {"f": "a file", "h": "a hard link", "d": "a directory", "l": "a symlink"}
    return f"which is {kinds[item.type]}"


def _regular(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of exactly ``PIECE`` bytes, but for the last."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        rest = piece
        while size + len(rest) >= PIECE:
            cut = PIECE - size
            yield b"".join([*waiting, rest[:cut]])
            rest = rest[cut:]
            waiting.clear()
            size = 0
        if rest:
            waiting.append(rest)
            size += len(rest)
    if waiting:
        yield b"".join(waiting)


def _check_conffiles(package: Package, name: str) -> None:
    held = {item.path for item in package.items}
    for path in package.conffiles():
        if path not in held:
            refuse(name, f"the configuration file /{path} is declared and not in the package")
