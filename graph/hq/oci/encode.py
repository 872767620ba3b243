"""Encoders: how a layer's tar becomes the layer's blob.

``gzip`` splices. A gzip file is a sequence of members (RFC 1952, 2.2), each a small header, a
deflate stream, and the CRC-32 and size of what it inflates to. A wheel's member is a deflate
stream, and the wheel states its CRC-32 and size. So the blob is: one gzip member for the tar
headers and padding between two files, one around the wheel's own stream, and so on. Nothing is
compressed again, and the bytes are the wheel's. What has no stream (headers, changed files) is
compressed by libdeflate at a fixed level, in pieces cut at fixed sizes; its output does not depend
on the processor.

``none`` is the tar itself. ``zstd`` compresses all of it in one frame, at a fixed level, in one
thread.

``encoder_id`` names encoder, version and level. It belongs into the key of whatever holds a blob's
digest, and not into that of a DiffID.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from threading import Thread
from typing import Final, Literal, Protocol, cast

from hq.model.errors import BuildError, Location
from hq.model.ports import BlobWriter
from hq.oci.arrange import Packed

Compression = Literal["gzip", "none", "zstd"]
COMPRESSIONS: Final[tuple[Compression, ...]] = ("gzip", "none", "zstd")

MEDIA_TYPES: Final[dict[Compression, str]] = {
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "none": "application/vnd.oci.image.layer.v1.tar",
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
}

DEFLATE_LEVEL: Final = 8
ZSTD_LEVEL: Final = 3
PIECE: Final = 1 << 19
_AHEAD: Final = 4
"""Pieces that are compressed beside each other."""

"""Plain bytes in one gzip member at most."""

_SMALL = 64 * 1024
_OUT = 256 * 1024
# RFC 1952, 2.3: deflate, no flags, no time, no extra flags, unknown system.
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_CUT = "the stored wheel changed under the build; run 'hq store verify'"
_GZIP_TAIL = struct.Struct("<LL")


class Encoder(Protocol):
    """Takes the tar piece by piece and writes the blob."""

    @property
    def splices(self) -> bool:
        """Whether ``packed`` may be called."""
        ...

    def plain(self, data: bytes) -> None:
        """The next bytes of the tar."""
        ...

    def packed(self, item: Packed) -> None:
        """The content of a deflated wheel member comes next, by its stream."""
        ...

    def finish(self) -> None:
        """The tar has ended."""
        ...


class GzipEncoder:
    """Splices; see the module's description."""

    splices = True

    __slots__ = ("_compress", "_crc32", "_out", "_plain", "_writer")

    def __init__(self, writer: BlobWriter) -> None:
        import deflate

        self._compress: Callable[[bytes, int], bytes | bytearray] = deflate.deflate_compress
        self._crc32: Callable[[bytes], int] = deflate.crc32
        self._writer = writer
        self._plain = bytearray()
        self._out = bytearray()

    def plain(self, data: bytes) -> None:
        """Takes tar bytes; compresses them in pieces of ``PIECE`` bytes."""
        self._plain += data
        while len(self._plain) >= _AHEAD * PIECE:
            self._members(bytes(self._plain[: _AHEAD * PIECE]))
            del self._plain[: _AHEAD * PIECE]

    def packed(self, item: Packed) -> None:
        """Puts the member's own stream into a gzip member."""
        self._end_plain()
        member = item.member
        self._out += _GZIP_HEAD
        if member.csize <= _SMALL:
            # Copying it here is cheaper than asking the writer for a copy inside the kernel.
            stream = item.reader.pread(member.offset, member.csize)
            if len(stream) != member.csize:
                raise BuildError(
                    f"member {member.path!r} is cut off", where=Location(item.wheel), hint=_CUT
                )
            self._out += stream
        else:
            self._flush()
            self._writer.write_range(item.reader, member.offset, member.csize)
        self._out += _GZIP_TAIL.pack(member.crc, member.size & 0xFFFFFFFF)
        if len(self._out) >= _OUT:
            self._flush()

    def finish(self) -> None:
        """Ends the last gzip member and writes what is held back."""
        self._end_plain()
        self._flush()

    def _end_plain(self) -> None:
        if self._plain:
            self._members(bytes(self._plain))
            self._plain.clear()

    def _members(self, data: bytes) -> None:
        """A gzip member for each piece, compressed beside each other, in order."""
        pieces = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
        for piece, stream in zip(pieces, self._streams(pieces), strict=True):
            self._member(piece, stream)

    def _streams(self, pieces: list[bytes]) -> list[bytes | bytearray]:
        streams: list[bytes | bytearray] = [b""] * len(pieces)

        def compress(number: int) -> None:
            streams[number] = self._compress(pieces[number], DEFLATE_LEVEL)

        # libdeflate works outside the interpreter lock.
        threads = [Thread(target=compress, args=(number,)) for number in range(1, len(pieces))]
        for thread in threads:
            thread.start()
        compress(0)
        for thread in threads:
            thread.join()
        return streams

    def _member(self, data: bytes, stream: bytes | bytearray) -> None:
        self._out += _GZIP_HEAD
        self._out += stream
        self._out += _GZIP_TAIL.pack(self._crc32(data), len(data))
        if len(self._out) >= _OUT:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            # The writer may keep what it is given, so it gets a copy.
            self._writer.write(bytes(self._out))
            self._out.clear()


class PlainEncoder:
    """The tar as it is."""

    splices = False

    __slots__ = ("_writer",)

    def __init__(self, writer: BlobWriter) -> None:
        self._writer = writer

    def plain(self, data: bytes) -> None:
        """Writes ``data``."""
        self._writer.write(data)

    def packed(self, item: Packed) -> None:
        """Is never called, since ``splices`` is false."""
        raise NotImplementedError(item.path)

    def finish(self) -> None:
        """Nothing is held back."""


class _ZstdStream(Protocol):
    def compress(self, data: bytes) -> bytes: ...

    def flush(self) -> bytes: ...


class ZstdEncoder:
    """One frame (RFC 8878) with a checksum."""

    splices = False

    __slots__ = ("_stream", "_writer")

    def __init__(self, writer: BlobWriter) -> None:
        import zstandard

        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True, threads=0)
        self._stream = cast("_ZstdStream", compressor.compressobj())
        self._writer = writer

    def plain(self, data: bytes) -> None:
        """Compresses ``data``."""
        out = self._stream.compress(data)
        if out:
            self._writer.write(out)

    def packed(self, item: Packed) -> None:
        """Is never called, since ``splices`` is false."""
        raise NotImplementedError(item.path)

    def finish(self) -> None:
        """Ends the frame."""
        self._writer.write(self._stream.flush())


def encoder(compression: Compression, writer: BlobWriter) -> Encoder:
    """The encoder of that name, on ``writer``."""
    if compression == "gzip":
        return GzipEncoder(writer)
    if compression == "zstd":
        return ZstdEncoder(writer)
    return PlainEncoder(writer)


def encoder_id(compression: Compression) -> str:
    """Encoder, version and settings: equal ids give equal blobs for equal items."""
    if compression == "gzip":
        import deflate

        return f"splice/1 deflate/{deflate.__version__} level={DEFLATE_LEVEL} piece={PIECE}"
    if compression == "zstd":
        import zstandard

        version = ".".join(map(str, zstandard.ZSTD_VERSION))
        return f"zstd/{version} level={ZSTD_LEVEL} checksum"
    return "none"
