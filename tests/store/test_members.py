"""Content inside a stored wheel, read by its name."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.memory import MemoryBlobs
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError
from hq.model.ports import BlobMissing, BlobStore
from hq.store.disk import DiskStore
from hq.store.members import WheelMembers
from hq.wheels.content import Member
from hq.wheels.index import Meta, WheelIndex


def stored_wheel(store: BlobStore, files: dict[str, bytes]) -> tuple[BlobRef, WheelIndex]:
    """A zip file in the store, and its index, made from what ``zipfile`` says."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, (path, data) in enumerate(files.items()):
            method = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(path), data, method)
    members = [
        Member(
            info.filename,
            "f",
            info.header_offset + 30 + len(info.filename.encode()),
            info.compress_size,
            info.file_size,
            info.CRC,
            info.compress_type,
            Digest.of(files[info.filename]),
        )
        for info in archive.infolist()
    ]
    ref = store.put(out.getvalue())
    meta = Meta("demo", "1", "demo-1.dist-info", "demo-1.data", False, ref.size)
    return ref, WheelIndex.build(meta, members)


@settings(deadline=None, max_examples=40)
@given(
    contents=st.lists(st.binary(max_size=400), max_size=6),
    other=st.binary(min_size=401, max_size=402),
)
def test_members_read_like_blobs(contents: list[bytes], other: bytes) -> None:
    inner = MemoryBlobs()
    store = WheelMembers(inner)
    wheel, index = stored_wheel(inner, {f"{n}.py": data for n, data in enumerate(contents)})
    store.add(wheel, index)
    for data in contents:
        ref = BlobRef.of(data)
        assert store.has(ref)
        assert store.read(ref) == data
        with store.open(ref) as reader:
            assert reader.size == len(data)
            assert reader.pread(1, 50) == data[1:51]
    assert not store.has(BlobRef.of(other))
    assert store.read(store.put(other)) == other
    with store.create() as writer:
        writer.write(b"made")
        made = writer.commit()
    assert inner.has(made)


def test_the_size_is_part_of_the_name() -> None:
    inner = MemoryBlobs()
    store = WheelMembers(inner)
    store.add(*stored_wheel(inner, {"a.py": b"content"}))
    assert not store.has(BlobRef(Digest.of(b"content"), 8))


def test_without_its_wheel_a_member_is_missing() -> None:
    inner = MemoryBlobs()
    store = WheelMembers(inner)
    wheel, index = stored_wheel(inner, {"a.py": b"content"})
    store.add(wheel, index)
    del inner.data[wheel.digest]
    assert not store.has(BlobRef.of(b"content"))
    with pytest.raises(BlobMissing) as caught:
        store.read(BlobRef.of(b"content"))
    assert caught.value.ref == wheel


def test_a_wheel_that_lies_is_refused() -> None:
    inner = MemoryBlobs()
    wheel, index = stored_wheel(inner, {"a.py": b"content"})
    member = index.get("a.py")
    assert member is not None
    lie = member._replace(digest=Digest.of(b"CONTENT"))
    store = WheelMembers(inner)
    store.add(wheel, WheelIndex.build(index.meta, [lie]), name="demo.whl")
    with pytest.raises(BuildError) as caught:
        store.read(BlobRef.of(b"CONTENT"))
    assert str(caught.value).startswith(
        "error: member 'a.py' is not what RECORD says\n  at: demo.whl\n"
    )


def test_the_caller_may_know_the_member(tmp_path: Path) -> None:
    with DiskStore(str(tmp_path)) as inner:
        wheel, index = stored_wheel(inner, {"a.py": b"a", "b.py": zlib.compress(b"b" * 5000)})
        member = index.get("b.py")
        assert member is not None
        assert WheelMembers(inner).read_member(wheel, member) == zlib.compress(b"b" * 5000)
