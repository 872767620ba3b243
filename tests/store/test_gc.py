"""Collection keeps what is needed, verification tells what is damaged."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef, Digest
from hq.model.tree import Change, Entry
from hq.store.disk import BLOB_TIME, DiskStore
from hq.store.gc import Collected, Stats, Verified, collect, stats, verify


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, warnings: list[str]) -> Iterator[DiskStore]:
    with DiskStore(str(tmp_path / "store"), warn=warnings.append) as made:
        yield made


def key_of(n: int) -> ActionKey:
    return ActionKey.parse(hashlib.sha256(b"%d" % n).hexdigest())


def add(store: DiskStore, n: int, blobs: list[int], used: int = 0) -> ActionKey:
    """A result that names some blobs, one of them in its delta, last used at ``used``."""
    refs = [store.put(b"%d" % blob * (blob + 1)) for blob in blobs]
    delta = [Change("x", Entry("f", refs[0].digest, refs[0].size))] if refs else []
    named = {str(place): ref for place, ref in enumerate(refs[1:])}
    store.actions.put(ActionResult(key_of(n), named, tuple(delta)))
    os.utime(store.actions.path(key_of(n)), (used, used))
    return key_of(n)


RESULTS = st.lists(
    st.tuples(st.lists(st.integers(0, 15), max_size=4), st.integers(0, 5), st.booleans()),
    max_size=8,
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    results=RESULTS,
    loose=st.lists(st.integers(0, 15), max_size=3),
    max_size=st.one_of(st.just(0), st.integers(1, 200)),
)
def test_what_a_collection_leaves(
    tmp_path_factory: pytest.TempPathFactory,
    results: list[tuple[list[int], int, bool]],
    loose: list[int],
    max_size: int,
) -> None:
    store = DiskStore(str(tmp_path_factory.mktemp("gc")))
    roots = set()
    for n, (blobs, used, is_root) in enumerate(results):
        key = add(store, n, blobs, used)
        if is_root:
            roots.add(key)
    for blob in loose:
        store.put(b"%d" % blob * (blob + 1))
    done = collect(store, roots, max_size=max_size)

    left = [r for n in range(len(results)) if (r := store.actions.get(key_of(n))) is not None]
    named = {ref for result in left for ref in result.references()}
    assert roots <= {result.key for result in left}
    assert all(store.has(ref) for ref in named), "every result that is left is complete"
    counted = stats(store)
    assert (counted.blobs, counted.blob_size) == (len(named), sum(ref.size for ref in named))
    assert done.size == counted.blob_size
    assert done.results == len(results) - len(left)
    needed = {ref for result in left if result.key in roots for ref in result.references()}
    assert done.size <= max(max_size, sum(ref.size for ref in needed))
    assert collect(store, roots, max_size=max_size) == Collected(0, 0, 0, done.size)
    store.close()


def test_the_latest_used_stay(store: DiskStore) -> None:
    for n in range(5):
        add(store, n, [n], used=n)  # 1, 2, 3, 4 and 5 bytes
    collect(store, [], max_size=9)
    left = [n for n in range(5) if store.actions.get(key_of(n))]
    assert left == [3, 4]


def test_use_is_noted_once_a_day(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key = add(store, 1, [], used=1000)
    for now, noted in [(1000 + 3600, 1000), (1000 + 90_000, 91_000), (91_001, 91_000)]:
        monkeypatch.setattr(time, "time", lambda now=now: float(now))
        assert store.actions.get(key) is not None
        assert os.stat(store.actions.path(key)).st_mtime == noted


def test_named_blobs_stay(store: DiskStore) -> None:
    ref = store.put(b"a wheel that no result names yet")
    store.put(b"other")
    assert collect(store, [], keep=[ref]) == Collected(0, 1, 5, ref.size)
    assert store.has(ref)


def test_damaged_results_and_litter_go(store: DiskStore) -> None:
    key = add(store, 1, [1])
    Path(store.actions.path(key)).write_text("{")
    Path(store.root, "tmp", "litter").write_text("x")
    assert collect(store, [key]).results == 1
    assert os.listdir(f"{store.root}/tmp") == []


HOLD = """
import sys
from hq.model.digest import BlobRef
from hq.store.disk import DiskStore
store = DiskStore(sys.argv[1])
ref = store.put(b"in use")
print("open", flush=True)
sys.stdin.readline()
print(store.has(ref), flush=True)
store.close()
sys.stdin.readline()
"""


def test_a_collection_waits_for_running_builds(store: DiskStore, warnings: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, store.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    said = threading.Event()

    def warn(text: str) -> None:
        warnings.append(text)
        said.set()

    store.warn = warn
    done: list[Collected] = []
    thread = threading.Thread(target=lambda: done.append(collect(store, [])))
    thread.start()
    assert said.wait(60)
    assert done == []
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "True\n", "nothing vanished under the build"
    thread.join()
    assert done == [Collected(0, 1, 6, 0)]
    assert warnings == ["waiting for running builds to end"]
    process.communicate("\n")


def test_a_build_waits_for_a_collection(store: DiskStore) -> None:
    warnings: list[str] = []
    said = threading.Event()

    def warn(text: str) -> None:
        warnings.append(text)
        said.set()

    def build() -> None:
        with DiskStore(store.root, warn=warn) as other:
            other.put(b"x")

    with store.alone():
        thread = threading.Thread(target=build)
        thread.start()
        assert said.wait(60)
        assert stats(store).blobs == 0
    thread.join()
    assert stats(store).blobs == 1
    assert warnings == ["waiting for a collection of the store (hq store gc) to end"]


def test_a_good_store_verifies(store: DiskStore) -> None:
    add(store, 1, [1, 2])
    seen: list[int] = []
    assert verify(store, progress=seen.append) == Verified(2, 5, 1, ())
    assert seen[-1] == 5
    assert stats(store) == Stats(
        2, 5, 1, os.path.getsize(store.actions.path(key_of(1))), 0, 0, 0, 0
    )


def test_every_kind_of_damage_is_told_and_mended(store: DiskStore) -> None:
    key = add(store, 1, [1, 2])
    damaged = add(store, 2, [3])
    Path(store.actions.path(damaged)).write_text("{}")
    bad = BlobRef.of(b"11")
    os.chmod(store.path(bad), 0o644)
    Path(store.path(bad)).write_bytes(b"12")
    os.utime(store.path(bad), (BLOB_TIME, BLOB_TIME))
    Path(store.root, "cas", "sha256", "zz").mkdir()
    Path(store.root, "cas", "sha256", "zz", "notes").write_text("")
    report = verify(store)
    assert list(report.problems) == sorted(
        [
            f"cached result, dropped: {key}: its blob {bad.digest} is missing",
            f"cached result, dropped: {damaged}: it is damaged",
            f"damaged blob, dropped: {bad.digest}",
            "not a file of the store: cas/sha256/zz/notes",
        ]
    )
    assert verify(store).problems == ("not a file of the store: cas/sha256/zz/notes",)


def test_content_that_lies_elsewhere_is_asked_for(store: DiskStore) -> None:
    inside = BlobRef(Digest.of(b"in a wheel"), 10)
    store.actions.put(ActionResult(key_of(1), {"file": inside}))
    assert verify(store, has=lambda ref: ref == inside).problems == ()
    assert len(verify(store).problems) == 1


def test_an_empty_store(store: DiskStore) -> None:
    assert verify(store) == Verified(0, 0, 0, ())
    assert collect(store, []) == Collected(0, 0, 0, 0)
    assert stats(store) == Stats(0, 0, 0, 0, 0, 0, 0, 0)


class Busy(DiskStore):
    """A store in which other processes do something whenever a blob's name is formed."""

    def path(self, ref: BlobRef) -> str:
        disturb()
        return super().path(ref)


def disturb() -> None:
    """Replaced by each test."""


@settings(deadline=None, max_examples=40)
@given(
    actions=st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(["add", "remove", "again"])), max_size=12
    )
)
def test_builds_beside_a_verification_are_no_problem(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[int, str]]
) -> None:
    """Blobs come, go and are made again at every step; none of it is damage."""
    root = str(tmp_path_factory.mktemp("busy"))
    calls = 0

    def act() -> None:
        nonlocal calls
        calls += 1
        for step, action in actions:
            if step != calls:
                continue
            ref = BlobRef.of(b"%d" % (step % 7))
            if action != "add":
                Path(other.path(ref)).unlink(missing_ok=True)
            if action != "remove":
                other.put(b"%d" % (step % 7))

    with DiskStore(root) as other, Busy(root) as store, pytest.MonkeyPatch.context() as patch:
        for n in range(7):
            other.put(b"%d" % n)
        patch.setitem(globals(), "disturb", act)
        assert verify(store).problems == ()
        stats(store)


def test_a_good_blob_in_the_place_of_a_bad_one_stays(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = store.put(b"content")
    os.chmod(store.path(ref), 0o644)
    Path(store.path(ref)).write_bytes(b"CONTENT")

    def slow(fd: int) -> str:
        """Another process drops the blob and makes it again while this one reads."""
        found = hashlib.sha256(os.pread(fd, 100, 0)).hexdigest()
        os.unlink(store.path(ref))
        store.put(b"content")
        return found

    monkeypatch.setattr("hq.store.gc.hash_file", slow)
    assert verify(store).problems == (f"damaged blob, dropped: {ref.digest}",)
    assert store.read(ref) == b"content"


UNREADABLE = """
import os, sys
from hq.model.digest import BlobRef
from hq.model.errors import HqError
from hq.store import disk, gc
os.setgroups([]); os.setgid(1); os.setuid(1)  # after the imports: this Python may be closed
store = disk.DiskStore(sys.argv[1])
for look in (
    lambda: store.has(BlobRef.of(b"content")),
    lambda: store.size_of(BlobRef.of(b"content").digest),
    lambda: store.read(BlobRef.of(b"content")),
    lambda: gc.stats(store),
    lambda: gc.verify(store),
):
    try:
        print("counts as", look())
    except HqError as error:
        print(error.message)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not read")
@pytest.mark.parametrize("part", ["cas", "cas/sha256", "cas/sha256/ed"])
@pytest.mark.parametrize("mode", [0o000, 0o644])
def test_a_folder_that_cannot_be_read_is_not_empty(part: str, mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o755)
        with DiskStore(f"{folder}/store") as store:
            assert store.put(b"content").digest.hex.startswith("ed")
        os.chmod(f"{folder}/store/{part}", mode)
        done = subprocess.run(
            [sys.executable, "-c", UNREADABLE, f"{folder}/store"],
            check=False,
            capture_output=True,
            text=True,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        )
    assert done.stderr == ""
    look = "cannot look for a blob: permission denied"
    listed = mode != 0 and part.endswith("ed")  # the names can be read and the blobs cannot
    assert done.stdout.splitlines() == [
        look,
        look,
        "cannot open a blob: permission denied",
        look if listed else "cannot read the store: permission denied",
        look if listed else "cannot verify the store: permission denied",
    ]
