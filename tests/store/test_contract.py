"""One suite for every blob store and action cache: what callers may rely on."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.memory import MemoryActions, MemoryBlobs, MemoryBytes
from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef, Digest
from hq.model.ports import ActionCache, BlobMissing, BlobStore
from hq.model.tree import Change, Entry
from hq.store.disk import DiskStore
from hq.store.writer import CHUNK

SHARED = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=["memory", "disk"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "memory":
        return MemoryBlobs()
    return DiskStore(str(tmp_path / "store"))


@pytest.fixture(params=["memory", "disk"])
def actions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ActionCache]:
    if request.param == "memory":
        yield MemoryActions()
        return
    with DiskStore(str(tmp_path / "store")) as store:
        yield store.actions


def key_of(text: str) -> ActionKey:
    return ActionKey.parse(hashlib.sha256(text.encode()).hexdigest())


@SHARED
@given(data=st.binary(max_size=3000))
def test_what_is_put_is_there_and_reads_back(blobs: BlobStore, data: bytes) -> None:
    ref = blobs.put(data)
    assert ref == BlobRef.of(data)
    assert blobs.has(ref)
    assert blobs.read(ref) == data
    assert blobs.put(data) == ref


def test_a_blob_that_was_never_put_is_missing(blobs: BlobStore) -> None:
    ref = BlobRef.of(b"never")
    assert not blobs.has(ref)
    with pytest.raises(BlobMissing):
        blobs.read(ref)
    with pytest.raises(BlobMissing), blobs.open(ref):
        pass


def test_the_size_is_part_of_the_name(blobs: BlobStore) -> None:
    ref = blobs.put(b"content")
    assert not blobs.has(BlobRef(ref.digest, ref.size + 1))


@SHARED
@given(
    parts=st.lists(
        st.one_of(
            st.binary(max_size=200),
            st.tuples(st.integers(0, 900), st.integers(0, 100)),
        ),
        max_size=30,
    )
)
def test_a_blob_written_in_parts_is_their_concatenation(
    blobs: BlobStore, parts: list[bytes | tuple[int, int]]
) -> None:
    source = os.urandom(1000)
    ranges = MemoryBytes(source)
    expected = b""
    with blobs.create() as writer:
        for part in parts:
            if isinstance(part, bytes):
                writer.write(part)
                expected += part
            else:
                offset, length = part
                writer.write_range(ranges, offset, length)
                expected += source[offset : offset + length]
        ref = writer.commit()
    assert ref == BlobRef.of(expected)
    assert blobs.read(ref) == expected


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        3 * CHUNK,
        4 * CHUNK,
        5 * CHUNK,
        12 * CHUNK + 4096,
        9_999_999,
    ],
)
def test_sizes_around_the_chunks_of_a_writer(blobs: BlobStore, size: int) -> None:
    data = os.urandom(min(size, CHUNK)) * (size // CHUNK + 1)
    data = data[:size]
    with blobs.create() as writer:
        writer.write(data[:100])
        writer.write(memoryview(data)[100:])
        ref = writer.commit()
    assert ref == BlobRef.of(data)
    assert blobs.read(ref) == data


def test_ranges_come_from_another_blob_of_the_store(blobs: BlobStore) -> None:
    data = os.urandom(3 * CHUNK + 17)
    source = blobs.put(data)
    with blobs.open(source) as reader, blobs.create() as writer:
        for start in range(0, len(data), 70_001):
            writer.write(b"head")
            writer.write_range(reader, start, min(70_001, len(data) - start))
        ref = writer.commit()
    expected = b"".join(b"head" + data[i : i + 70_001] for i in range(0, len(data), 70_001))
    assert ref == BlobRef.of(expected)


def test_a_range_beyond_the_end_of_its_source_is_refused(blobs: BlobStore) -> None:
    with blobs.create() as writer, pytest.raises(ValueError, match="ends"):
        writer.write_range(MemoryBytes(b"short"), 2, 10)


def test_a_writer_that_is_not_committed_leaves_nothing(blobs: BlobStore) -> None:
    data = b"x" * (6 * CHUNK)
    with blobs.create() as writer:
        writer.write(data)
    assert not blobs.has(BlobRef.of(data))


def test_a_writer_commits_once(blobs: BlobStore) -> None:
    with blobs.create() as writer:
        writer.write(b"once")
        writer.commit()
        with pytest.raises(ValueError, match="closed"):
            writer.commit()
        with pytest.raises(ValueError, match="closed"):
            writer.write(b"more")
        with pytest.raises(ValueError, match="closed"):
            writer.write_range(MemoryBytes(b"more"), 0, 4)


def test_parts_are_read_at_any_offset(blobs: BlobStore) -> None:
    ref = blobs.put(b"0123456789")
    with blobs.open(ref) as reader:
        assert reader.size == 10
        assert reader.pread(3, 4) == b"3456"
        assert reader.pread(8, 4) == b"89"
        assert reader.pread(10, 4) == b""


def test_many_threads_read_one_reader(blobs: BlobStore) -> None:
    data = os.urandom(200_000)
    ref = blobs.put(data)
    wrong: list[int] = []

    def read(start: int) -> None:
        for offset in range(start, len(data), 4001):
            if reader.pread(offset, 500) != data[offset : offset + 500]:
                wrong.append(offset)

    with blobs.open(ref) as reader:
        threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


RESULT = ActionResult(
    key_of("k"),
    blobs={"tar": BlobRef.of(b"tar")},
    delta=(
        Change("a/b.py", Entry("f", Digest.of(b"a"), 1)),
        Change("gone", None),
        Change("ä\udcff", Entry("l", Digest.of(b"t"), 1)),
    ),
    values={"diff_id": "sha256:" + "0" * 64, "n": 3, "deep": {"list": [None, True, "ü"]}},
)


def test_a_result_is_kept_by_its_key(actions: ActionCache) -> None:
    assert actions.get(RESULT.key) is None
    actions.put(RESULT)
    assert actions.get(RESULT.key) == RESULT
    assert actions.get(key_of("other")) is None


def test_the_last_result_of_a_key_wins(actions: ActionCache) -> None:
    actions.put(RESULT)
    later = RESULT._replace(values={"n": 4})
    actions.put(later)
    assert actions.get(RESULT.key) == later


def test_a_key_has_one_holder_among_threads(actions: ActionCache) -> None:
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with actions.lock(key_of("k")):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_two_keys_do_not_wait_for_each_other(actions: ActionCache) -> None:
    with actions.lock(key_of("one")), actions.lock(key_of("two")):
        pass


def test_an_error_inside_lets_the_key_go(actions: ActionCache) -> None:
    with pytest.raises(RuntimeError), actions.lock(key_of("k")):
        raise RuntimeError
    with actions.lock(key_of("k")):
        pass
