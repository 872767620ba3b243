"""Reading a wheel's members: every byte is verified before it is believed.

A member is right when its deflate stream ends exactly at its compressed size, and size, CRC-32 and
SHA-256 (RECORD's) of what comes out are as stated. The first matters as much as the others: the
stream is copied into layers as it is, and trailing bytes would break the gzip file around it.

Inflating uses ISA-L where it is installed, more than twice as fast as zlib, and zlib elsewhere.
What comes out is the same by definition, so the choice enters no key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn, Protocol, cast

from hq.model.digest import Digest
from hq.model.errors import BuildError, Location
from hq.model.ports import RandomAccess
from hq.model.tree import Kind

STORED: Final = 0
DEFLATED: Final = 8
"""Compression methods of zip (APPNOTE 4.4.5), the two that wheels use."""

CHUNK: Final = 256 * 1024
"""Bytes in one piece of content; larger buffers are slower, they fall out of the caches."""

READ: Final = 64 * 1024
"""Bytes read from the wheel at a time."""

_LIE = "the wheel is damaged or its metadata lies; do not use this file"


class Member(NamedTuple):
    """One file of a wheel, and where its bytes are.

    ``offset`` and ``csize``: its data in the wheel, by ``method`` 0 stored or 8 deflated.
    ``size``, ``crc`` (CRC-32) and ``digest`` (SHA-256): of the content.
    """

    path: str
    kind: Kind
    offset: int
    csize: int
    size: int
    crc: int
    method: int
    digest: Digest


class Inflater(Protocol):
    """The part of ``IgzipDecompressor`` that is used here."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out without more data."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What was given beyond the end of the stream."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Takes ``data``, gives at most ``max_length`` bytes and keeps what it did not get to."""
        ...


class _ZlibInflater:
    """The same on top of the standard library."""

    __slots__ = ("_inner", "_rest")

    def __init__(self) -> None:
        import zlib

        self._inner = zlib.decompressobj(-15)
        self._rest = b""

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._rest and not self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._inner.decompress(self._rest + data, max_length)
        self._rest = self._inner.unconsumed_tail
        return out


class Codec(NamedTuple):
    """How to inflate raw deflate data, which error that raises, and how to compute CRC-32."""

    inflater: Callable[[], Inflater]
    error: type[Exception]
    crc32: Callable[[bytes, int], int]


def zlib_codec() -> Codec:
    """The standard library's."""
    import zlib

    return Codec(_ZlibInflater, zlib.error, zlib.crc32)


def isal_codec() -> Codec:
    """ISA-L's. Raises ``ImportError`` where it is not installed."""
    from isal import igzip_lib, isal_zlib

    def inflater() -> Inflater:
        found: Inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)
        return found

    # The stubs call the error an instance.
    error = cast("type[Exception]", igzip_lib.IsalError)
    return Codec(inflater, error, isal_zlib.crc32)


def best_codec() -> Codec:
    """The fastest that is installed."""
    try:
        return isal_codec()
    except ImportError:
        return zlib_codec()


class Contents:
    """Reads the members of one wheel. Safe to use from several threads.

    ``wheel`` is the wheel's name in errors.
    """

    __slots__ = ("_codec", "_reader", "_wheel")

    def __init__(self, reader: RandomAccess, wheel: str, codec: Codec | None = None) -> None:
        self._reader = reader
        self._wheel = wheel
        self._codec = codec or best_codec()

    def refuse(self, member: Member, message: str) -> NoReturn:
        """Raises the error that names the wheel and the member."""
        raise BuildError(
            f"member {member.path!r} {message}", where=Location(self._wheel), hint=_LIE
        )

    def read(self, member: Member) -> bytes:
        """The whole content, verified, its SHA-256 too. Raises ``BuildError``."""
        if member.size <= CHUNK and member.csize <= CHUNK:
            data = self.small(member)
        else:
            data = b"".join(self.chunks(member))
        self.check_digest(member, hashlib.sha256(data).hexdigest())
        return data

    def check_digest(self, member: Member, found: str) -> None:
        """Refuses the member when ``found`` (hex) is not the SHA-256 that RECORD gives."""
        if found != member.digest.hex:
            raise BuildError(
                f"member {member.path!r} is not what RECORD says",
                where=Location(self._wheel),
                details=[f"expected sha256 {member.digest.hex}", f"found    sha256 {found}"],
                hint=_LIE,
            )

    def small(self, member: Member) -> bytes:
        """The content in one piece, verified but for its SHA-256. Raises ``BuildError``."""
        raw = self._reader.pread(member.offset, member.csize)
        if len(raw) != member.csize:
            self.refuse(member, "is cut off")
        data = raw
        if member.method != STORED:
            inflater = self._codec.inflater()
            try:
                # One byte more than stated, so that the end of the stream is seen, or its excess.
                data = inflater.decompress(raw, member.size + 1)
            except self._codec.error as error:
                self.refuse(member, f"cannot be inflated: {error}")
            self._check_end(member, inflater, len(data))
        self._check_sums(member, len(data), self._codec.crc32(data, 0))
        return data

    def chunks(self, member: Member, size: int = CHUNK) -> Iterator[bytes]:
        """The content in pieces of about ``size`` bytes, verified but for its SHA-256.

        What is wrong with the whole is known, and raised as ``BuildError``, only at the end.
        """
        crc32 = self._codec.crc32
        crc = total = 0
        pieces = (
            self._stored(member, size) if member.method == STORED else self._inflate(member, size)
        )
        for piece in pieces:
            crc = crc32(piece, crc)
            total += len(piece)
            yield piece
        self._check_sums(member, total, crc)

    def _stored(self, member: Member, size: int) -> Iterator[bytes]:
        at, end = member.offset, member.offset + member.csize
        while at < end:
            piece = self._reader.pread(at, min(size, end - at))
            if not piece:
                self.refuse(member, "is cut off")
            at += len(piece)
            yield piece

    def _inflate(self, member: Member, size: int) -> Iterator[bytes]:
        inflater = self._codec.inflater()
        at, end = member.offset, member.offset + member.csize
        total = 0
        while not inflater.eof:
            raw = b""
            hungry = inflater.needs_input
            if hungry:
                raw = self._reader.pread(at, min(READ, end - at))
                at += len(raw)
            try:
                piece = inflater.decompress(raw, size)
            except self._codec.error as error:
                self.refuse(member, f"cannot be inflated: {error}")
            total += len(piece)
            # A call may give nothing when the one before it ended just at its limit; nothing is
            # left only when it was asked for input, had none, and gave nothing.
            if total > member.size or (hungry and not raw and not piece):
                break
            if piece:
                yield piece
        self._check_end(member, inflater, total, end - at)

    def _check_end(self, member: Member, inflater: Inflater, total: int, rest: int = 0) -> None:
        if total > member.size:
            self.refuse(member, f"inflates to more than its stated {member.size} bytes")
        if not inflater.eof:
            self.refuse(member, "ends in the middle of its deflate stream")
        rest += len(inflater.unused_data)
        if rest:
            self.refuse(member, f"has {rest} bytes after the end of its deflate stream")

    def _check_sums(self, member: Member, total: int, crc: int) -> None:
        if total != member.size:
            self.refuse(member, f"has {total} bytes; expected {member.size}")
        if crc != member.crc:
            self.refuse(member, f"has CRC-32 {crc:08x}; expected {member.crc:08x}")


def extract(reader: RandomAccess, member: Member, *, wheel: str = "wheel") -> bytes:
    """The content of one member, verified against size, CRC-32 and SHA-256.

    Raises ``BuildError``, which names the wheel and the member.
    """
    # One small member: loading ISA-L costs more than it saves.
    codec = zlib_codec() if member.csize < CHUNK else None
    return Contents(reader, wheel, codec).read(member)
