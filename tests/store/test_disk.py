"""What is special about the directory: damage, permissions, modes, messages."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef
from hq.model.errors import BuildError, InfrastructureError, UsageError
from hq.model.ports import BlobMissing
from hq.store.actions import parse_result, render_result
from hq.store.disk import BLOB_TIME, DiskStore
from hq.store.faults import disk_fault, human_size


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, warnings: list[str]) -> DiskStore:
    return DiskStore(str(tmp_path / "store"), warn=warnings.append)


def overwrite(path: str, data: bytes | bytearray) -> None:
    """What a user's program does to a blob through a hard link."""
    os.chmod(path, 0o644)
    with Path(path).open("r+b") as file:
        file.write(data)


def leftovers(store: DiskStore) -> list[str]:
    return os.listdir(f"{store.root}/tmp")


# Opening.


def test_a_store_is_made_where_nothing_is(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    DiskStore(str(root)).close()
    assert (root / "format").read_bytes() == b"hq store 1\n"
    DiskStore(str(root)).close()


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("hq store 2\n")
    with pytest.raises(UsageError) as caught:
        DiskStore(str(tmp_path))
    assert str(caught.value) == (
        "error: the store was made by another version of hq\n"
        f"  at: {tmp_path}/format\n"
        "  expected: format 1\n"
        "  found:    format 2\n"
        "  help: use that version of hq, or choose another store with --store DIR or HQ_STORE"
    )


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError) as caught:
        DiskStore(str(tmp_path))
    assert str(caught.value) == (
        "error: this is not a store of hq\n"
        f"  at: {tmp_path}\n"
        "  expected: a store, an empty directory, or nothing\n"
        "  found: thesis.tex\n"
        "  help: choose another directory with --store DIR or HQ_STORE"
    )
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(UsageError, match="found: a file"):
        DiskStore(str(tmp_path / "f"))


def test_a_strange_format_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("jpeg")
    with pytest.raises(UsageError, match="found: a file 'format' that begins 'jpeg'"):
        DiskStore(str(tmp_path))


def test_a_store_half_made_by_a_killed_process_is_finished(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "1-0-dead").write_text("hq st")
    with DiskStore(str(tmp_path)) as store:
        assert store.read(store.put(b"x")) == b"x"
        assert leftovers(store) == []


def test_folders_that_a_user_removed_come_back(store: DiskStore) -> None:
    for folder in ("tmp", "locks"):
        subprocess.run(["rm", "-r", f"{store.root}/{folder}"], check=True)
    assert store.read(store.put(b"x")) == b"x"
    with store.actions.lock("0" * 64):
        pass


# Damage.


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.binary(min_size=1, max_size=500), where=st.integers(0, 499), flip=st.integers(1, 255)
)
def test_no_flipped_byte_is_ever_read(store: DiskStore, data: bytes, where: int, flip: int) -> None:
    ref = store.put(data)
    damaged = bytearray(data)
    damaged[where % len(data)] ^= flip
    path = store.path(ref)
    overwrite(path, damaged)
    # Also when the date does not tell, as after a fault of the disk itself.
    os.utime(path, (BLOB_TIME, BLOB_TIME))
    with pytest.raises(BlobMissing):
        store.read(ref)
    assert not store.has(ref)
    assert store.read(store.put(data)) == data


@pytest.mark.parametrize("failure", [ValueError, BuildError, ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_blob_is_suspected_when_its_reader_fails(
    store: DiskStore, warnings: list[str], failure: type[BaseException], damaged: bool
) -> None:
    ref = store.put(b"content")
    if damaged:
        overwrite(store.path(ref), b"CONTENT")
        os.utime(store.path(ref), (BLOB_TIME, BLOB_TIME))
    with pytest.raises(failure), store.open(ref):
        raise failure("the reader cannot make sense of it")
    dropped = damaged and failure is not KeyboardInterrupt
    assert store.has(ref) == (not dropped)
    assert warnings == dropped * [
        f"dropped a damaged blob from the store: {ref.digest} (7 B): its content was changed"
    ]


def test_a_change_through_a_hard_link_is_seen_by_stat(
    store: DiskStore, warnings: list[str], tmp_path: Path
) -> None:
    ref = store.put(b"content")
    os.link(store.path(ref), tmp_path / "link")
    overwrite(str(tmp_path / "link"), b"CONTENT")
    assert not store.has(ref)
    assert warnings == [
        f"dropped a damaged blob from the store: {ref.digest} (7 B): its content was changed"
    ]
    assert store.read(store.put(b"content")) == b"content"
    assert (tmp_path / "link").read_bytes() == b"CONTENT"


def test_a_touched_blob_is_looked_at_once_and_kept(store: DiskStore, warnings: list[str]) -> None:
    ref = store.put(b"content")
    os.utime(store.path(ref))
    assert store.has(ref)
    assert os.stat(store.path(ref)).st_mtime == BLOB_TIME
    assert warnings == []


def test_a_truncated_blob_is_dropped(store: DiskStore, warnings: list[str]) -> None:
    ref = store.put(b"content")
    os.truncate(store.path(ref), 3)
    with pytest.raises(BlobMissing):
        store.open(ref)
    assert warnings == [
        f"dropped a damaged blob from the store: {ref.digest} (7 B): it has 3 bytes"
    ]
    assert not os.path.exists(store.path(ref))


def test_a_symlink_in_the_place_of_a_blob_is_not_followed(store: DiskStore, tmp_path: Path) -> None:
    ref = store.put(b"content")
    (tmp_path / "elsewhere").write_bytes(b"content")
    os.unlink(store.path(ref))
    os.symlink(tmp_path / "elsewhere", store.path(ref))
    assert not store.has(ref)


KEY = ActionKey.parse(hashlib.sha256(b"k").hexdigest())
RESULT = ActionResult(KEY, {"tar": BlobRef.of(b"tar")}, (), {"n": 3})


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_damage_to_a_cached_result_is_a_miss(store: DiskStore, data: st.DataObject) -> None:
    good = render_result(RESULT)
    bad = data.draw(
        st.one_of(
            st.integers(0, len(good) - 1).map(lambda cut: good[:cut]),
            st.tuples(st.integers(0, len(good) - 1), st.integers(1, 255)).map(
                lambda at: good[: at[0]] + bytes([good[at[0]] ^ at[1]]) + good[at[0] + 1 :]
            ),
            st.binary(max_size=300),
        )
    )
    store.actions.put(RESULT)
    Path(store.actions.path(KEY)).write_bytes(bad)
    assert store.actions.get(KEY) is None
    store.actions.put(RESULT)
    assert store.actions.get(KEY) == RESULT


def test_a_result_under_another_key_is_a_miss(store: DiskStore, warnings: list[str]) -> None:
    other = ActionKey.parse("0" * 64)
    store.actions.put(RESULT)
    os.makedirs(os.path.dirname(store.actions.path(other)))
    os.link(store.actions.path(KEY), store.actions.path(other))
    assert store.actions.get(other) is None
    assert warnings == [
        f"ignored a damaged cached result in the store: {other}: it is the result of {KEY}"
    ]


def test_a_cached_result_is_one_text(store: DiskStore) -> None:
    assert parse_result(KEY, render_result(RESULT)) == RESULT
    body = render_result(RESULT).split(b"\n")[1]
    assert body == (
        b'{"blobs":{"tar":["' + BlobRef.of(b"tar").digest.encode() + b'",3]},"delta":[],'
        b'"key":"' + KEY.encode() + b'","schema":"hq.result/1","values":{"n":3}}'
    )


# Modes.


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_no_umask_shows_in_the_store(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with DiskStore(str(tmp_path / "s")) as store:
            ref = store.put(b"small")
            with store.create() as writer:
                writer.write(b"x" * 6_000_000)
                writer.commit()
            store.actions.put(RESULT)
    finally:
        os.umask(before)
    modes = {
        os.path.join(folder, name)[len(store.root) :]: oct(
            os.stat(os.path.join(folder, name)).st_mode
        )
        for folder, folders, files in os.walk(store.root)
        for name in folders + files
        if not name.startswith(("keys", "use"))
    }
    assert oct(os.stat(store.path(ref)).st_mode) == "0o100444"
    assert {mode for path, mode in modes.items() if path.startswith("/cas/sha256/")} == {
        "0o100444",
        "0o40755",
    }
    assert {mode for path, mode in modes.items() if not path.startswith("/cas/")} == {
        "0o100644",
        "0o40755",
    }


# What the disk refuses.


def run_as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Permission bits do not bind root, so this runs Python as another user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user who may not write")
    # The imports come first: the other user may not be able to read this Python.
    script = code.replace("BECOME", "import os, sys; os.setgroups([]); os.setgid(1); os.setuid(1)")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )


def open_to_all(path: Path) -> None:
    for folder in [path, *path.parents]:
        if folder.stat().st_mode & 0o5 != 0o5:
            pytest.skip(f"{folder} is closed to other users")


READ_ONLY = """
from hq.model.digest import BlobRef
from hq.model.errors import InfrastructureError
from hq.store.disk import DiskStore
BECOME
store = DiskStore(sys.argv[1])
print(store.read(BlobRef.of(b"content")).decode())
try:
    store.put(b"more")
except InfrastructureError as error:
    print(error)
"""


def test_a_read_only_store_reads_and_says_why_it_does_not_write() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        os.chmod(folder, 0o755)
        root = f"{folder}/store"
        with DiskStore(root) as store:
            store.put(b"content")
        open_to_all(Path(root))
        done = run_as_nobody(READ_ONLY, root)
    assert done.stderr == ""
    assert done.stdout == (
        "content\n"
        "error: cannot write a blob to the store: permission denied\n"
        f"  at: {root}\n"
        "  help: make it writable for you, or choose another store with --store DIR or HQ_STORE\n"
    )


FULL_DISK = """
import os, subprocess, sys
from hq.model.digest import BlobRef
from hq.model.errors import InfrastructureError
from hq.store.disk import DiskStore
folder = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], check=True)
store = DiskStore(folder + "/store")
print(store.read(store.put(b"content")).decode())
def used():
    found = os.statvfs(folder)
    return found.f_blocks - found.f_bfree
before = used()
def report(error):
    for line in str(error).splitlines():
        print("free: some" if line.startswith("  free:") else line)
try:
    with store.create() as writer:
        for _ in range(20):
            writer.write(os.urandom(1 << 20))
        writer.commit()
except InfrastructureError as error:
    report(error)
try:
    store.put(bytes(9_000_000))
except InfrastructureError as error:
    report(error)
print(os.listdir(folder + "/store/tmp"), used() == before)
subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
print(store.has(store.put(bytes(9_000_000))))
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
try:
    store.put(b"more")
except InfrastructureError as error:
    print(error)
"""


@pytest.mark.system
def test_a_full_disk_gives_one_clear_error_and_the_store_goes_on(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the permission to mount a small file system (unshare -m)")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", FULL_DISK, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )
    assert done.stderr == ""
    size = done.stdout.split("needed: at least ")[1].split("\n")[0]
    full = (
        "error: cannot write a blob to the store: the disk is full\n"
        f"  at: {folder}/store\n"
        "  needed: at least {}\n"
        "free: some\n"
        "  help: free some space there, run 'hq store gc', or choose another store with --store DIR"
        " or HQ_STORE; then run hq again\n"
    )
    assert done.stdout == (
        "content\n"
        + full.format(size)
        + full.format("9.0 MB")
        + "[] True\nTrue\n"
        + "error: cannot write a blob to the store: the file system is read-only\n"
        f"  at: {folder}/store\n"
        "  help: mount it writable, or choose another store with --store DIR or HQ_STORE\n"
    )


def test_a_file_system_that_refuses_direct_writes_gets_ordinary_ones(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import fcntl

    refused: list[int] = []
    real = os.pwrite

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0):
            refused.append(offset)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(fd, data[:100_000], offset)  # and writes short

    monkeypatch.setattr(os, "pwrite", pwrite)
    data = os.urandom(8_000_000)
    with store.create() as writer:
        writer.write(data)
        assert writer.commit() == BlobRef.of(data)
    assert store.read(BlobRef.of(data)) == data
    assert len(refused) <= 1


def test_a_fault_in_the_writing_thread_reaches_the_caller(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import threading

    real = os.pwrite

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        if threading.current_thread() is not threading.main_thread():
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(InfrastructureError) as caught, store.create() as writer:
        for _ in range(30):
            writer.write(bytes(1 << 20))
        writer.commit()
    assert str(caught.value) == (
        "error: cannot write a blob to the store: the disk reported an input/output error\n"
        f"  at: {store.root}\n"
        "  help: look at the kernel's log for a failing disk; then run 'hq store verify'"
    )
    assert leftovers(store) == []
    assert not [t for t in threading.enumerate() if t.name.startswith("hq-blob")]


def test_an_unknown_fault_keeps_the_words_of_the_system() -> None:
    import errno

    error = disk_fault(OSError(errno.EMLINK, "Too many links"), "link a blob", "/s")
    assert isinstance(error, InfrastructureError)
    assert str(error) == "error: cannot link a blob: too many links\n  at: /s"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_940, "999.9 kB"),
        (999_960, "1.0 MB"),
        (315_961_042, "316.0 MB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text
