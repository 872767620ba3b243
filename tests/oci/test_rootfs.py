"""Layers of a root file system, against ``tarfile``."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.memory import MemoryBlobs, MemoryBytes
from hq.model.digest import Digest
from hq.model.errors import BuildError, UsageError
from hq.oci.arrange import Packed
from hq.oci.encode import COMPRESSIONS, Compression
from hq.oci.layer import LayerResult
from hq.oci.rootfs import RootEntry, write_root
from hq.oci.tar import attributes
from hq.wheels.content import DEFLATED, Member
from oci.test_layer import decode


def file(path: str, *pieces: bytes, mode: int = 0o644, uid: int = 0, gid: int = 0) -> RootEntry:
    """A file whose content is one stream for each piece."""
    pack = b""
    content = []
    digest = Digest.of(b"".join(pieces))
    for piece in pieces:
        deflater = zlib.compressobj(wbits=-15)
        stream = deflater.compress(piece) + deflater.flush()
        member = Member(
            path, "f", len(pack), len(stream), len(piece), zlib.crc32(piece), DEFLATED, digest
        )
        content.append(member)
        pack += stream
    reader = MemoryBytes(pack)
    packed = tuple(Packed(path, member, reader, "demo.deb") for member in content)
    size = sum(map(len, pieces))
    return RootEntry(path, "f", mode, uid, gid, "", size, digest.hex, packed)


def write(
    entries: list[RootEntry], compression: Compression = "gzip", mtime: int = 0
) -> tuple[LayerResult, bytes]:
    store = MemoryBlobs()
    with store.create() as writer:
        result = write_root(entries, writer, compression=compression, mtime=mtime)
    return result, store.read(result.blob)


ENTRIES = [
    RootEntry("tmp", "d", 0o1777, 0, 0),
    RootEntry("usr", "d", 0o755, 0, 0),
    file("usr/a", b"hello", mode=0o2755, gid=42),
    file("usr/big", bytes(1 << 20), b"x" * 70000, uid=7),
    file("usr/empty"),
    RootEntry("usr/link", "l", 0o777, 0, 0, "../tmp"),
    RootEntry("usr/hard", "h", 0o2755, 0, 42, "usr/a"),
]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_tarfile_reads_it(compression: Compression) -> None:
    result, blob = write(ENTRIES, compression, mtime=5)
    tar = decode(compression, blob)
    assert result.diff_id == "sha256:" + hashlib.sha256(tar).hexdigest()
    assert result.tar_size == len(tar)
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        found = {member.name: member for member in opened}
        content = {
            name: opened.extractfile(member) for name, member in found.items() if member.isreg()
        }
        assert content["usr/big"].read() == bytes(1 << 20) + b"x" * 70000  # type: ignore[union-attr]
    assert list(found) == [entry.path for entry in ENTRIES]
    for entry in ENTRIES:
        member = found[entry.path]
        assert (member.mode, member.uid, member.gid, member.mtime) == (*entry[2:5], 5)
        assert member.linkname == entry.target
    assert found["usr/hard"].islnk()


def test_gzip_is_spliced() -> None:
    _, blob = write(ENTRIES)
    for entry in ENTRIES:
        for piece in entry.content:
            stream = piece.reader.pread(piece.member.offset, piece.member.csize)
            assert stream in blob
    assert gzip.decompress(blob)


@settings(max_examples=50)
@given(st.integers(0, 0o7777), st.integers(0, 8**7 - 1), st.integers(0, 8**7 - 1))
def test_attributes(mode: int, uid: int, gid: int) -> None:
    _, blob = write([RootEntry("a", "d", mode, uid, gid)], "none")
    with tarfile.open(fileobj=io.BytesIO(blob)) as opened:
        member = opened.next()
    assert member is not None
    assert (member.mode, member.uid, member.gid) == (mode, uid, gid)
    assert len(attributes(mode, uid, gid)) == 24


def refused(entry: RootEntry) -> str:
    store = MemoryBlobs()
    with pytest.raises(BuildError) as caught, store.create() as writer:
        write_root([entry], writer, compression="gzip", mtime=0)
    assert store.data == {}
    return caught.value.render()


def test_content_that_is_not_what_the_index_says() -> None:
    good = file("etc/x", b"one", b"two")
    assert refused(good._replace(sha256="0" * 64)) == (
        "error: the content of /etc/x is not what the package's index says\n  at: demo.deb\n"
        "  help: run 'hq store verify'"
    )
    assert "the content of /etc/x is not" in refused(good._replace(size=5))
    first, second = good.content
    bad = second._replace(member=second.member._replace(crc=0))
    assert refused(good._replace(content=(first, bad))).startswith(
        "error: member 'etc/x' has CRC-32"
    )


def test_a_time_that_no_header_holds() -> None:
    with pytest.raises(UsageError):
        write([], mtime=-1)
