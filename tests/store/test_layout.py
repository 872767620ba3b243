"""OCI layouts: always the old one or the new one, whole, and no way to damage the store."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hq.model.digest import BlobRef, Digest
from hq.model.errors import InfrastructureError
from hq.model.ports import BlobMissing
from hq.store.disk import DiskStore
from hq.store.layout import missing, write_layout


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    with DiskStore(str(tmp_path / "store")) as made:
        yield made


def index_of(*refs: BlobRef) -> bytes:
    """Stands for ``index.json``: these tests need only the blobs that it reaches."""
    return json.dumps([[ref.digest, ref.size] for ref in refs]).encode()


def assert_whole(directory: Path) -> list[list[object]]:
    """What a reader does who begins at the index."""
    assert (directory / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}'
    listed: list[list[object]] = json.loads((directory / "index.json").read_bytes())
    for digest, size in listed:
        data = (directory / "blobs" / "sha256" / str(digest)[7:]).read_bytes()
        assert len(data) == size
        assert hashlib.sha256(data).hexdigest() == str(digest)[7:]
    return listed


def blob_names(directory: Path) -> set[str]:
    return set(os.listdir(directory / "blobs" / "sha256"))


def test_a_layout_is_links_to_the_store(store: DiskStore, tmp_path: Path) -> None:
    refs = [store.put(b"config"), store.put(b"layer")]
    dist = tmp_path / "dist" / "image"
    assert missing(store, str(dist), refs) == refs
    write_layout(store, str(dist), refs, index_of(*refs))
    assert_whole(dist)
    assert missing(store, str(dist), refs) == []
    for ref in refs:
        assert (
            os.stat(dist / "blobs" / "sha256" / ref.digest.hex).st_ino
            == os.stat(store.path(ref)).st_ino
        )
    assert sorted(os.listdir(dist)) == ["blobs", "index.json", "oci-layout"]


def test_a_second_layout_replaces_the_first(store: DiskStore, tmp_path: Path) -> None:
    old, new, both = store.put(b"old"), store.put(b"new"), store.put(b"both")
    dist = tmp_path / "dist"
    write_layout(store, str(dist), [old, both], index_of(old, both))
    inode = os.stat(dist / "oci-layout").st_ino
    write_layout(store, str(dist), [new, both], index_of(new, both))
    assert_whole(dist)
    assert blob_names(dist) == {new.digest.hex, both.digest.hex}
    assert os.stat(dist / "oci-layout").st_ino == inode, "what is the same is not written again"


def test_files_of_the_user_beside_it_stay(store: DiskStore, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "notes.txt").write_text("mine")
    write_layout(store, str(tmp_path / "dist"), [], b"[]")
    assert (tmp_path / "dist" / "notes.txt").read_text() == "mine"


def test_a_missing_blob_is_told_before_anything_changes(store: DiskStore, tmp_path: Path) -> None:
    with pytest.raises(BlobMissing):
        write_layout(store, str(tmp_path / "dist"), [BlobRef.of(b"gone")], b"[]")
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_are_refused_it_is_a_copy(
    store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(refusal, "no")

    monkeypatch.setattr(os, "link", refuse)
    refs = [store.put(os.urandom(3_000_000)), store.put(b"")]
    write_layout(store, str(tmp_path / "dist"), refs, index_of(*refs))
    assert_whole(tmp_path / "dist")
    assert missing(store, str(tmp_path / "dist"), refs) == []
    for name in blob_names(tmp_path / "dist"):
        found = os.stat(tmp_path / "dist" / "blobs" / "sha256" / name)
        assert oct(found.st_mode) == "0o100444"
        assert found.st_nlink == 1


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_a_layout_on_another_file_system(store: DiskStore) -> None:
    import tempfile

    refs = [store.put(os.urandom(1_000_000))]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        write_layout(store, f"{folder}/dist", refs, index_of(*refs))
        assert_whole(Path(folder, "dist"))


def test_writing_into_a_layout_does_not_damage_the_store(store: DiskStore, tmp_path: Path) -> None:
    refs = [store.put(b"content of a layer")]
    dist = tmp_path / "dist"
    write_layout(store, str(dist), refs, index_of(*refs))
    blob = dist / "blobs" / "sha256" / refs[0].digest.hex
    os.chmod(blob, 0o644)
    blob.write_bytes(b"CONTENT of a layer")
    with pytest.raises(BlobMissing):
        write_layout(store, str(dist), refs, index_of(*refs))
    assert missing(store, str(dist), refs) == refs
    store.put(b"content of a layer")
    write_layout(store, str(dist), refs, index_of(*refs))
    assert_whole(dist)


def test_a_place_that_cannot_be_written(store: DiskStore, tmp_path: Path) -> None:
    (tmp_path / "dist").write_text("a file")
    with pytest.raises(InfrastructureError) as caught:
        write_layout(store, str(tmp_path / "dist"), [], b"[]")
    assert str(caught.value) == (
        f"error: cannot write the image layout: not a directory\n  at: {tmp_path}/dist\n"
        f"  {tmp_path}/dist is not a folder\n"
        "  help: choose another folder with --output DIR"
    )


@pytest.mark.parametrize(
    ("number", "words", "hint"),
    [
        (errno.EROFS, "the file system is read-only", "mount it writable, or"),
        (errno.EACCES, "permission denied", "make it writable for you, or"),
    ],
)
def test_a_refused_layout_can_go_elsewhere(
    store: DiskStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    words: str,
    hint: str,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(InfrastructureError) as caught:
        write_layout(store, str(tmp_path / "dist"), [], b"[]")
    assert str(caught.value) == (
        f"error: cannot write the image layout: {words}\n  at: {tmp_path}/dist\n"
        f"  help: {hint} choose another folder with --output DIR"
    )


@pytest.mark.parametrize("links", [True, False])
def test_a_layout_removed_again_and_again_is_written_whole(
    store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    dist = tmp_path / "dist"
    refs = [store.put(b"%d" % n) for n in range(20)]
    done = threading.Event()
    failures: list[BaseException] = []

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "")

    if not links:
        monkeypatch.setattr(os, "link", refuse)

    def write() -> None:
        try:
            for n in range(30):
                write_layout(store, str(dist), refs[n % 3 :], index_of(*refs[n % 3 :]))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    def remove() -> None:
        for _ in range(15):  # fewer than would be taken for an endless loop
            shutil.rmtree(dist, ignore_errors=True)
            done.wait(0.01)

    threads = [threading.Thread(target=write) for _ in range(2)]
    remover = threading.Thread(target=remove)
    for thread in (*threads, remover):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    remover.join()
    assert failures == []
    write_layout(store, str(dist), refs, index_of(*refs))
    assert_whole(dist)


def test_the_umask_does_not_show(store: DiskStore, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_layout(store, str(tmp_path / "dist"), [store.put(b"x")], b"[]")
    finally:
        os.umask(before)
    modes = {
        path.relative_to(tmp_path).as_posix(): oct(path.stat().st_mode & 0o777)
        for path in (tmp_path / "dist").rglob("*")
    }
    assert modes == {
        "dist/blobs": "0o755",
        "dist/blobs/sha256": "0o755",
        f"dist/blobs/sha256/{hashlib.sha256(b'x').hexdigest()}": "0o444",
        "dist/index.json": "0o644",
        "dist/oci-layout": "0o644",
    }


def test_writers_of_one_layout_wait_for_each_other(store: DiskStore, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for round_ in range(15):
                refs = [store.put(b"%d %d" % (n, round_)), store.put(b"shared %d" % (round_ % 3))]
                write_layout(store, str(dist), refs, index_of(*refs))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    listed = assert_whole(dist)
    assert {Digest.parse(str(digest)).hex for digest, _ in listed} == blob_names(dist)


LOOP = """
import json, sys
from hq.store.disk import DiskStore
from hq.store.layout import write_layout
store = DiskStore(sys.argv[1])
print("ready", flush=True)
n = int(sys.argv[3])
while True:
    n += 1
    refs = [store.put(b"%d" % (n + k)) for k in range(0, 40, 2)]
    index = json.dumps([[ref.digest, ref.size] for ref in refs]).encode()
    write_layout(store, sys.argv[2], refs, index)
"""


def test_killed_at_any_moment_it_is_the_old_or_the_new(store: DiskStore, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    first = [store.put(b"first")]
    write_layout(store, str(dist), first, index_of(*first))
    moments = random.Random(7)
    for round_ in range(30):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, store.root, str(dist), str(round_ * 1000)],
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moments.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert_whole(dist)
    write_layout(store, str(dist), first, index_of(*first))
    assert blob_names(dist) == {first[0].digest.hex}
    assert sorted(os.listdir(dist)) == ["blobs", "index.json", "oci-layout"]
