"""Reading members: with both decompressors, in every chunk size, and every way to be wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.memory import MemoryBytes
from helpers.wheelmaker import STORED, ZipItem, build_zip, deflate, item
from hq.model.digest import Digest
from hq.model.errors import BuildError
from hq.wheels.archive import read_archive
from hq.wheels.content import Codec, Contents, Member, extract, isal_codec, zlib_codec

HINT = "  help: the wheel is damaged or its metadata lies; do not use this file"

CODECS = [pytest.param(zlib_codec, id="zlib"), pytest.param(isal_codec, id="isal")]


def open_member(member: ZipItem, codec: Codec | None = None) -> tuple[Contents, Member]:
    data = build_zip([member])
    raw = read_archive(MemoryBytes(data), "w.whl")[0]
    found = Member(
        raw.path, "f", raw.offset, raw.csize, raw.size, raw.crc, raw.method,
        Digest.of(member.data),
    )  # fmt: skip
    return Contents(MemoryBytes(data), "w.whl", codec), found


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that compress about as well as a binary does."""
    source = random.Random(seed)
    words = [source.randbytes(source.randint(3, 9)) for _ in range(500)]
    return b"".join(source.choices(words, k=size // 5))[:size]


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=2000), level=st.integers(0, 9), stored=st.booleans())
def test_content_comes_out_whole(
    codec: Callable[[], Codec], data: bytes, level: int, stored: bool
) -> None:
    made = codec()
    packed = replace(item("a", data, level=level), method=STORED if stored else 8)
    contents, member = open_member(packed, made)
    assert contents.read(member) == data
    assert b"".join(contents.chunks(member)) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("chunk", [1, 100, 4096, 32768, 65536, 262144, 1 << 22])
def test_every_chunk_size_gives_the_same(codec: Callable[[], Codec], chunk: int) -> None:
    data = noise(40_000 if chunk < 4096 else 900_000) + bytes(100_000)
    contents, member = open_member(item("a", data), codec())
    pieces = list(contents.chunks(member, chunk))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= chunk


@pytest.mark.parametrize("codec", CODECS)
@given(size=st.integers(1, 4000), chunk=st.integers(1, 70))
def test_chunks_that_end_at_any_byte(codec: Callable[[], Codec], size: int, chunk: int) -> None:
    data = bytes(size)
    contents, member = open_member(item("a", data), codec())
    assert b"".join(contents.chunks(member, chunk)) == data


def refusals(member: ZipItem, codec: Codec, **change: int) -> set[str]:
    """The messages of both ways to read it, which should be one."""
    contents, found = open_member(member, codec)
    found = found._replace(**change)  # type: ignore[arg-type]
    messages = set()
    for read in (contents.read, lambda m: list(contents.chunks(m))):
        with pytest.raises(BuildError) as caught:
            read(found)
        messages.add(caught.value.render())
    return messages


def refused(text: str) -> set[str]:
    return {f"error: member 'a' {text}\n  at: w.whl\n{HINT}"}


DATA = noise(5000)
PACKED = deflate(DATA)


@pytest.mark.parametrize("codec", CODECS)
def test_a_member_is_exactly_what_is_stated(codec: Callable[[], Codec]) -> None:
    made: Codec = codec()
    whole = item("a", DATA)
    assert refusals(replace(whole, raw=PACKED + b"tail"), made) == refused(
        "has 4 bytes after the end of its deflate stream"
    )
    assert refusals(replace(whole, raw=PACKED[:-1]), made) == refused(
        "ends in the middle of its deflate stream"
    )
    assert refusals(replace(whole, raw=b""), made) == refused(
        "ends in the middle of its deflate stream"
    )
    assert refusals(replace(whole, size=4999), made) == refused(
        "inflates to more than its stated 4999 bytes"
    )
    assert refusals(replace(whole, size=5001), made) == refused("has 5000 bytes; expected 5001")
    assert refusals(whole, made, crc=0xABC) == refused(
        f"has CRC-32 {whole.true_crc:08x}; expected 00000abc"
    )
    stored = replace(whole, method=STORED)
    assert refusals(stored, made, crc=0xABC) == refused(
        f"has CRC-32 {whole.true_crc:08x}; expected 00000abc"
    )
    assert refusals(stored, made, offset=10_000) == refused("is cut off")
    assert refusals(stored, made, csize=10) == refused("has 10 bytes; expected 5000")


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_stream(codec: Callable[[], Codec]) -> None:
    made: Codec = codec()
    # The first block has the reserved type 3 (RFC 1951, 3.2.3).
    for message in refusals(replace(item("a", DATA), raw=b"\x07" + PACKED[1:]), made):
        assert message.startswith("error: member 'a' cannot be inflated: ")
        assert message.endswith(f"\n  at: w.whl\n{HINT}")


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_member_that_is_longer_than_stated_is_not_read_to_its_end(
    codec: Callable[[], Codec],
) -> None:
    made: Codec = codec()
    data = bytes(20 << 20)
    contents, member = open_member(replace(item("a", data, level=1), size=600_000), made)
    got = 0
    with pytest.raises(BuildError, match="inflates to more than its stated 600000 bytes"):
        for piece in contents.chunks(member):
            got += len(piece)
    assert got <= 600_000


def test_extract_names_the_wheel() -> None:
    data = build_zip([item("a", b"hello")])
    raw = read_archive(MemoryBytes(data), "w")[0]
    member = Member("a", "f", raw.offset, raw.csize, 5, raw.crc, 8, Digest.of(b"other"))
    with pytest.raises(BuildError) as caught:
        extract(MemoryBytes(data), member, wheel="demo-1.whl")
    assert caught.value.where is not None
    assert str(caught.value.where) == "demo-1.whl"
    good = member._replace(digest=Digest.of(b"hello"))
    assert extract(MemoryBytes(data), good) == b"hello"


def test_large_members_are_extracted_whole() -> None:
    data = noise(700_000) + bytes(700_000)
    contents, member = open_member(item("a", data))
    assert contents.read(member) == data
