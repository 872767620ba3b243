"""Layers: contents against ``tarfile`` and other decoders, golden bytes, and every failure."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.memory import MemoryBlobs, MemoryBytes, MemoryWriter
from helpers.wheelmaker import build_zip, make_wheel, record_hash, wheel_items
from hq.model.digest import BlobRef, DiffId
from hq.model.errors import BuildError, InfrastructureError
from hq.oci.arrange import File, Item, Packed, Removed
from hq.oci.encode import COMPRESSIONS, MEDIA_TYPES, PIECE, Compression, encoder_id
from hq.oci.layer import LayerResult, write_layer
from hq.wheels.content import Contents
from hq.wheels.reading import read_index

THREADS = [pytest.param(False, id="direct"), pytest.param(True, id="threads")]


def packed(data: bytes) -> list[Item]:
    reader = MemoryBytes(data)
    index = read_index(reader, project="demo", version="1.0")
    return [Packed(member.path, member, reader, "demo-1.0.whl") for member in index]


def loose(path: str, data: bytes, kind: str = "f") -> File:
    return File(path, kind, lambda: data)  # type: ignore[arg-type]


def write(
    items: Iterable[Item],
    compression: Compression = "gzip",
    *,
    threads: bool | None = None,
    known: DiffId | None = None,
    mtime: int = 0,
    prefix: str = "",
) -> tuple[LayerResult, bytes]:
    store = MemoryBlobs()
    with store.create() as writer:
        result = write_layer(
            items,
            writer,
            compression=compression,
            threads=threads,
            known=known,
            mtime=mtime,
            prefix=prefix,
        )
    return result, store.read(result.blob)


def decode(compression: Compression, blob: bytes) -> bytes:
    if compression == "gzip":
        return gzip.decompress(blob)
    if compression == "zstd":
        zstandard = pytest.importorskip("zstandard")
        plain: bytes = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(blob)).read()
        return plain
    return blob


def tree_of(tar: bytes) -> dict[str, tuple[str, bytes]]:
    """Path to kind and content, of everything but directories."""
    found: dict[str, tuple[str, bytes]] = {}
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
        for info in archive:
            assert info.name not in found
            if info.isdir():
                continue
            if info.issym():
                found[info.name] = "l", info.linkname.encode()
            else:
                content = archive.extractfile(info)
                assert content is not None
                found[info.name] = "x" if info.mode & 0o100 else "f", content.read()
    return found


# What comes out

names = st.from_regex(r"\A[a-cé]{1,2}(/[d-f]{1,2}){0,2}\Z")
contents = st.one_of(
    st.binary(max_size=600),
    st.integers(1, 3000).map(lambda n: b"line of text\n" * n),
)
trees = st.dictionaries(names, contents, max_size=8).map(
    lambda tree: {
        path: data
        for path, data in tree.items()
        if not any(other.startswith(path + "/") for other in tree)
    }
)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@given(wheel=trees, extra=trees, data=st.data())
def test_the_layer_is_the_tree(
    compression: Compression, wheel: dict[str, bytes], extra: dict[str, bytes], data: st.DataObject
) -> None:
    stored = [path for path in wheel if data.draw(st.booleans())]
    executables = [path for path in wheel if data.draw(st.booleans())]
    items = packed(make_wheel(wheel, stored=stored, executables=executables))
    items += [loose(f"zz/{path}", content, "x") for path, content in extra.items()]
    items += [loose("link", b"zz"), Removed("gone")]
    items[-2] = loose("link", b"../zz", "l")
    mtime = data.draw(st.integers(0, 2**33 - 1))
    result, blob = write(items, compression, mtime=mtime, prefix="opt/x")
    tar = decode(compression, blob)
    assert result.tar_size == len(tar)
    assert result.diff_id == f"sha256:{hashlib.sha256(tar).hexdigest()}"
    assert result.blob == BlobRef.of(blob)
    assert result.media_type == MEDIA_TYPES[compression]
    found = tree_of(tar)
    for path, content in wheel.items():
        assert found.pop(f"opt/x/{path}") == ("x" if path in executables else "f", content)
    for path, content in extra.items():
        assert found.pop(f"opt/x/zz/{path}") == ("x", content)
    assert found.pop("opt/x/link") == ("l", b"../zz")
    assert found.pop("opt/x/.wh.gone") == ("f", b"")
    assert sorted(found) == [
        f"opt/x/demo-1.0.dist-info/{n}" for n in ("METADATA", "RECORD", "WHEEL")
    ]
    shuffled = data.draw(st.permutations(items))
    again, same = write(shuffled, compression, mtime=mtime, prefix="opt/x", threads=True)
    assert (again, same) == (result, blob)
    known, fast = write(items, compression, mtime=mtime, prefix="opt/x", known=result.diff_id)
    assert (known, fast) == (result, blob)


BIG = b"".join(b"%d\n" % (n * n) for n in range(200_000))


@cache
def big_wheel() -> bytes:
    files = {"demo/big.bin": BIG, "demo/stored.bin": BIG[:700_000], "demo/small": b"s"}
    return make_wheel(files, stored=["demo/stored.bin"])


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("threads", THREADS)
def test_large_members_come_out_whole(compression: Compression, threads: bool) -> None:
    result, blob = write(packed(big_wheel()), compression, threads=threads)
    tar = decode(compression, blob)
    assert result.diff_id == DiffId(f"sha256:{hashlib.sha256(tar).hexdigest()}")
    found = tree_of(tar)
    assert found["demo/big.bin"] == ("f", BIG)
    assert found["demo/stored.bin"] == ("f", BIG[:700_000])
    assert found["demo/small"] == ("f", b"s")


def test_a_wheel_s_stream_is_in_the_blob_as_it_is() -> None:
    data = big_wheel()
    member = read_index(MemoryBytes(data), project="demo", version="1.0").get("demo/big.bin")
    assert member is not None
    _, blob = write(packed(data))
    assert data[member.offset : member.offset + member.csize] in blob


def test_loose_files_larger_than_a_piece_are_cut_where_the_content_says() -> None:
    content = BIG[: PIECE + 12345]
    whole, blob = write([loose("a", content)])
    assert tree_of(gzip.decompress(blob)) == {"a": ("f", content)}
    assert whole.tar_size == 512 + PIECE + 12345 + -(PIECE + 12345) % 512 + 1024


def test_an_empty_layer_is_the_end_of_a_tar() -> None:
    for compression in COMPRESSIONS:
        result, blob = write([], compression)
        assert decode(compression, blob) == bytes(1024)
        # The DiffID that every builder gives to an empty layer.
        assert result.diff_id == (
            "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
        )


@pytest.mark.system
@pytest.mark.parametrize("command", ["gzip -dc", "pigz -dc", "igzip -dc", "zcat"])
def test_other_programs_decode_the_spliced_file(command: str) -> None:
    program, *arguments = command.split()
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    _, blob = write(packed(big_wheel()))
    found = subprocess.run([program, *arguments], input=blob, capture_output=True, check=True)
    assert found.stdout == gzip.decompress(blob)


# The bytes are fixed

# What each encoder makes of ``golden_items``. An entry never changes: other bytes, another id.
GOLDEN = {
    "none": ("3b3039812db7ae5209c6aa2457922186b496163637b7a0492279dcb248c1f5e6", 31232),
    "splice/1 deflate/0.9.0 level=8 piece=524288": (
        "81e2a70cb5378270c49679e8fc46efc6d8111acab21d928ba6a5aad549007d31",
        15105,
    ),
    "zstd/1.5.7 level=3 checksum": (
        "465ae397122c54003ceaff0b7df1e146821ad7516a4efc0397ed18ed8e1f353a",
        3203,
    ),
}


def golden_items() -> list[Item]:
    files = {
        "demo/__init__.py": b"",
        "demo/run.sh": b"#!/bin/sh\nexec true\n",
        "demo/text.txt": b"".join(b"%d bottles\n" % n for n in range(999)),
        "demo/\u00e9.txt": b"accent",
        "demo/raw.bin": bytes(range(256)) * 4,
    }
    # Level 0: stored blocks, so that the wheel depends on nobody's zlib.
    wheel = make_wheel(files, executables=["demo/run.sh"], stored=["demo/raw.bin"], level=0)
    changed = loose("demo/changed.py", b"".join(b"x_%d = %d\n" % (n, n % 7) for n in range(500)))
    return [*packed(wheel), changed, Removed("demo/old.py"), loose("demo/link", b"run.sh", "l")]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("threads", THREADS)
def test_a_small_layer_has_these_bytes(compression: Compression, threads: bool) -> None:
    golden = GOLDEN.get(encoder_id(compression))
    if golden is None:
        pytest.skip(f"no golden bytes for {encoder_id(compression)}")
    result, blob = write(golden_items(), compression, prefix="opt/demo", threads=threads)
    assert (result.blob.digest.hex, len(blob)) == golden
    assert result.diff_id.hex == GOLDEN["none"][0]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 300_000), min_size=1, max_size=8))
def test_zstd_does_not_depend_on_how_its_input_is_cut(cuts: list[int]) -> None:
    from hq.oci.encode import ZstdEncoder

    def encoded(sizes: list[int]) -> bytes:
        store = MemoryBlobs()
        with store.create() as writer:
            encoder = ZstdEncoder(writer)
            at = 0
            for size in sizes:
                encoder.plain(BIG[at : at + size])
                at += size
            encoder.plain(BIG[at:])
            encoder.finish()
            return store.read(writer.commit())

    assert encoded(cuts) == encoded([])


# What is refused


def lying(change: Callable[[list[str]], None]) -> bytes:
    files = {"demo/a.bin": BIG[:400_000], "demo/b.bin": BIG[:500_000], "demo/small": b"s"}
    lines = wheel_items(files)[-1].data.decode().splitlines()
    change(lines)
    return build_zip(wheel_items(files, record="".join(f"{x}\n" for x in lines).encode()))


def refusal(items: Iterable[Item], compression: Compression, threads: bool) -> str:
    store = MemoryBlobs()
    before = threading.active_count()
    with pytest.raises(BuildError) as caught, store.create() as writer:
        write_layer(items, writer, compression=compression, threads=threads)
    assert store.data == {}
    assert threading.active_count() == before
    return caught.value.render()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("path", ["demo/a.bin", "demo/b.bin", "demo/small"])
def test_a_record_that_lies(compression: Compression, threads: bool, path: str) -> None:
    def change(lines: list[str]) -> None:
        for number, line in enumerate(lines):
            if line.startswith(path):
                size = line.rpartition(",")[2]
                lines[number] = f"{path},{record_hash(b'other')},{size}"

    message = refusal(packed(lying(change)), compression, threads)
    assert message.startswith(
        f"error: member {path!r} is not what RECORD says\n  at: demo-1.0.whl\n  expected sha256 "
    )


@pytest.mark.parametrize("threads", THREADS)
def test_the_earliest_error_in_the_layer_is_reported(threads: bool) -> None:
    def change(lines: list[str]) -> None:
        lines[0] = f"demo/a.bin,{record_hash(b'other')},400000"

    items = packed(lying(change))
    # b.bin has a wrong CRC besides, which is noticed in another thread.
    items = [
        item._replace(member=item.member._replace(crc=1))
        if isinstance(item, Packed) and item.path == "demo/b.bin"
        else item
        for item in items
    ]
    for _ in range(5):
        assert refusal(items, "gzip", threads).startswith("error: member 'demo/a.bin' is not")
        assert refusal(items[4:], "gzip", threads).startswith("error: member 'demo/b.bin' has CRC")


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"crc": 7}, "has CRC-32 {crc:08x}; expected 00000007"),
        ({"size": 399_999}, "inflates to more than its stated 399999 bytes"),
        ({"size": 400_001}, "has 400000 bytes; expected 400001"),
        ({"csize": -5}, "ends in the middle of its deflate stream"),
        ({"csize": 5}, "has 5 bytes after the end of its deflate stream"),
    ],
)
def test_a_member_that_is_not_what_the_index_says(
    threads: bool, change: Mapping[str, int], text: str
) -> None:
    items = packed(lying(lambda _: None))
    target = next(item for item in items if item.path == "demo/a.bin")
    assert isinstance(target, Packed)
    crc = target.member.crc
    fields = dict(change)
    if "csize" in fields:
        fields["csize"] += target.member.csize
    bad = target._replace(member=target.member._replace(**fields))  # type: ignore[arg-type]
    items = [bad if item is target else item for item in items]
    assert refusal(items, "gzip", threads) == (
        f"error: member 'demo/a.bin' {text.format(crc=crc)}\n"
        "  at: demo-1.0.whl\n"
        "  help: the wheel is damaged or its metadata lies; do not use this file"
    )


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("threads", THREADS)
def test_errors_of_the_writer_and_of_files_come_through(
    compression: Compression, threads: bool
) -> None:
    class Full(MemoryWriter):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise InfrastructureError("the disk is full")

        def write_range(self, source: object, offset: int, length: int) -> None:
            raise InfrastructureError("the disk is full")

    def missing() -> bytes:
        raise KeyError("gone")

    before = threading.active_count()
    with pytest.raises(InfrastructureError, match="the disk is full"):
        write_layer(
            packed(big_wheel()), Full(MemoryBlobs()), compression=compression, threads=threads
        )
    with pytest.raises(KeyError, match="gone"):
        write([*packed(big_wheel()), File("demo/gone", "f", missing)], compression, threads=threads)
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", THREADS)
def test_an_interrupt_ends_it(threads: bool) -> None:
    class Interrupted(MemoryWriter):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        write_layer(packed(big_wheel()), Interrupted(MemoryBlobs()), threads=threads)
    assert threading.active_count() == before


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_recorded_diff_id_is_checked_where_the_content_is_read(compression: Compression) -> None:
    wrong = DiffId.of(b"")
    store = MemoryBlobs()
    with pytest.raises(BuildError) as caught, store.create() as writer:
        write_layer([loose("a", b"x")], writer, compression=compression, known=wrong)
    true, _ = write([loose("a", b"x")])
    assert caught.value.render() == (
        "error: the layer is not the one that was recorded\n"
        f"  expected DiffID {wrong}\n"
        f"  found    DiffID {true.diff_id}"
    )
    assert store.data == {}


def test_with_a_known_diff_id_nothing_is_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [item for item in packed(big_wheel()) if item.path != "demo/stored.bin"]
    result, blob = write(items)

    def never(*_: object) -> None:
        raise AssertionError("content was read")

    monkeypatch.setattr(Contents, "read", never)
    monkeypatch.setattr(Contents, "chunks", never)
    assert write(items, known=result.diff_id) == (result, blob)


def test_a_stored_wheel_that_shrank_is_noticed_even_so() -> None:
    items = packed(make_wheel({"demo/a": b"aaaa"}))
    target = items[-1]
    assert isinstance(target, Packed)
    end = target.member.offset + target.member.csize
    cut = [
        item._replace(reader=MemoryBytes(item.reader.pread(0, end - 1)))
        for item in items
        if isinstance(item, Packed)
    ]
    with pytest.raises(BuildError) as caught:
        write(cut[-1:], known=DiffId.of(b""))
    assert caught.value.render() == (
        "error: member 'demo/a' is cut off\n"
        "  at: demo-1.0.whl\n"
        "  help: the stored wheel changed under the build; run 'hq store verify'"
    )


def test_large_members_are_copied_by_the_writer() -> None:
    import random

    noise = random.Random(1).randbytes(300_000)
    store = MemoryBlobs()
    with store.create() as writer:
        write_layer(packed(make_wheel({"demo/noise": noise})), writer)
        assert writer.ranges == 1


def test_a_member_of_four_gibibytes_has_its_size_modulo() -> None:
    from hq.oci.encode import GzipEncoder

    items = packed(make_wheel({"demo/a": b"aaaa"}))
    item = next(i for i in items if i.path == "demo/a")
    assert isinstance(item, Packed)
    store = MemoryBlobs()
    with store.create() as writer:
        encoder = GzipEncoder(writer)
        encoder.packed(replace_size(item, (5 << 32) + 4))
        encoder.finish()
        blob = store.read(writer.commit())
    assert gzip.decompress(blob) == b"aaaa"


def replace_size(item: Packed, size: int) -> Packed:
    return item._replace(member=item.member._replace(size=size))
