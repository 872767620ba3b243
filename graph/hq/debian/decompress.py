"""A member of a package as a stream of bytes, whatever compressed it.

Pieces are bounded, so a bomb costs time up to the limit and no memory. Several streams one after
the other are one member (xz, gzip and zstd files may be concatenated); anything else after the end
is refused, as is an end in the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Final, Protocol, cast

from hq.debian.ar import Part
from hq.debian.refuse import refuse
from hq.model.ports import RandomAccess

PIECE: Final = 256 << 10
_READ: Final = 64 << 10
_XZ_MEMORY: Final = 256 << 20  # what xz -9 needs is 65 MiB


class _Stream(Protocol):
    """What the standard library's decompressors have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """zlib's object with the interface of the other two."""

    def __init__(self) -> None:
        import zlib

        self._inner = zlib.decompressobj(31)
        self._rest = b""

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._rest

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        piece = self._inner.decompress(self._rest + data, max_length)
        self._rest = self._inner.unconsumed_tail
        return piece


def _lzma_stream() -> _Stream:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _bz2_stream() -> _Stream:
    import bz2

    return bz2.BZ2Decompressor()


_STREAMS: Final[dict[str, Callable[[], _Stream]]] = {
    "gz": _Gzip,
    "xz": _lzma_stream,
    "bz2": _bz2_stream,
}


def decompress(reader: RandomAccess, part: Part, package: str, limit: int) -> Iterator[bytes]:
    """The part's bytes in pieces. Raises ``BuildError`` beyond ``limit`` bytes."""
    total = 0
    for piece in _pieces(reader, part, package):
        total += len(piece)
        if total > limit:
            refuse(package, f"{part.name} unpacks to more than {limit} bytes")
        yield piece


def _pieces(reader: RandomAccess, part: Part, package: str) -> Iterator[bytes]:
    raw = _raw(reader, part)
    if not part.compressor:
        yield from raw
    elif part.compressor == "zst":
        yield from _zstd(raw, part, package)
    else:
        yield from _streams(raw, part, package)


def _raw(reader: RandomAccess, part: Part) -> Iterator[bytes]:
    for at in range(0, part.size, _READ):
        yield reader.pread(part.offset + at, min(_READ, part.size - at))


def _streams(raw: Iterator[bytes], part: Part, package: str) -> Iterator[bytes]:
    import lzma
    import zlib

    new = _STREAMS[part.compressor]
    stream = new()
    try:
        for data in raw:
            rest = data
            while rest or not (stream.needs_input or stream.eof):
                if stream.eof:
                    stream = new()
                piece = stream.decompress(rest, PIECE)
                rest = b""
                if piece:
                    yield piece
                if stream.eof:
                    rest = stream.unused_data
    except (lzma.LZMAError, zlib.error, OSError, EOFError) as error:
        refuse(package, f"{part.name} cannot be decompressed: {error}")
    if not stream.eof:
        refuse(package, f"{part.name} ends in the middle of its compressed stream")


def _zstd(raw: Iterator[bytes], part: Part, package: str) -> Iterator[bytes]:
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=128 << 20).stream_reader(
        cast("IO[bytes]", _File(raw)), read_across_frames=True, read_size=_READ
    )
    try:
        while piece := reader.read(PIECE):
            yield piece
    except zstandard.ZstdError as error:
        refuse(package, f"{part.name} cannot be decompressed: {error}")


class _File:
    """The ``read`` of a file over pieces, each asked for once."""

    def __init__(self, raw: Iterator[bytes]) -> None:
        self._raw = raw

    def read(self, _: int = -1) -> bytes:
        """The next piece, which is no longer than what zstandard asks for."""
        return next(self._raw, b"")
