"""Many processes, and processes that are killed: the store as others find it afterwards."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hq.model.digest import ActionKey, BlobRef, Digest
from hq.store.disk import DiskStore
from hq.store.files import make_temp_dir, make_temp_file, sweep

ENVIRONMENT = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))

WRITER = """
import hashlib, sys
from hq.model.action import ActionResult
from hq.model.digest import ActionKey
from hq.store.disk import DiskStore
seed = int(sys.argv[2])
print("ready", flush=True)
for n in range(100000):
    store = DiskStore(sys.argv[1])
    block = hashlib.sha256(b"%d" % (seed + n)).digest() * 4096
    small = store.put(block[:3000])
    with store.create() as writer:
        for _ in range(n % 50):
            writer.write(block)
        large = writer.commit()
    key = ActionKey.parse(hashlib.sha256(b"%d" % n).hexdigest())
    with store.staging() as folder, open(folder + "/part", "wb") as part:
        part.write(block)
    with store.actions.lock(key):
        store.actions.put(ActionResult(key, {"small": small, "large": large}))
    store.close()
"""


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE
    )


def blobs_on_disk(root: str) -> list[Path]:
    return [path for path in Path(root, "cas").rglob("*") if path.is_file()]


def test_killed_at_any_moment_the_store_has_whole_blobs_and_no_litter(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    moments = random.Random(20)
    warnings: list[str] = []
    seen: set[Path] = set()
    for round_ in range(50):
        process = start(WRITER, root, str(round_))
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(moments.random() * 0.06)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with DiskStore(root, warn=warnings.append) as store:
            assert os.listdir(f"{root}/tmp") == []
            for path in set(blobs_on_disk(root)) - seen:
                assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
                assert path.stat().st_mode & 0o777 == 0o444
                seen.add(path)
            for name in Path(root, "ac").rglob("*/*"):
                result = store.actions.get(ActionKey.parse(name.name))
                assert result is not None
                assert all(store.has(ref) for ref in result.references())
    assert warnings == []
    assert seen
    assert sorted(os.listdir(f"{root}/locks")) == ["keys", "use"]
    assert os.stat(f"{root}/locks/keys").st_size == 0


ONCE = """
import sys, hashlib
from hq.model.action import ActionResult
from hq.model.digest import ActionKey
from hq.store.disk import DiskStore
sys.stdin.read()
store = DiskStore(sys.argv[1])
for n in range(30):
    key = ActionKey.parse(hashlib.sha256(b"%d" % n).hexdigest())
    with store.actions.lock(key):
        result = store.actions.get(key)
        if result is None or not all(store.has(ref) for ref in result.references()):
            ref = store.put(b"result %d" % n)
            store.actions.put(ActionResult(key, {"out": ref}))
            print(n)
"""


def test_eight_processes_run_each_key_once(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ONCE, root],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    ran: list[int] = []
    for process in processes:
        assert process.stdout is not None
        ran += map(int, process.stdout.read().split())
        process.stdout.close()
        assert process.wait() == 0
    assert sorted(ran) == list(range(30))


SAME = """
import sys
from hq.store.disk import DiskStore
sys.stdin.read()
for n in range(20):
    with DiskStore(sys.argv[1]) as store:
        data = b"%d" % (n % 5) * 100000
        with store.create() as writer:
            writer.write(data)
            ref = writer.commit()
        assert store.read(ref) == data
        assert store.read(store.put(b"small %d" % n)) == b"small %d" % n
"""


def test_eight_processes_put_the_same_blobs(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    processes = [
        subprocess.Popen([sys.executable, "-c", SAME, root], env=ENVIRONMENT, stdin=subprocess.PIPE)
        for _ in range(8)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait() for process in processes] == [0] * 8
    assert len(blobs_on_disk(root)) == 25
    assert os.listdir(f"{root}/tmp") == []


HOLD = """
import sys, time
from hq.store.disk import DiskStore
store = DiskStore(sys.argv[1])
with store.actions.lock("0" * 64), store.create() as writer:
    writer.write(b"x" * 5000000)
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_holder_lets_go_and_its_file_is_swept(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    process = start(HOLD, root)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    with DiskStore(root):
        assert len(os.listdir(f"{root}/tmp")) == 1, "a live writer's file stays"
    process.kill()
    process.wait()
    process.stdout.close()
    with DiskStore(root) as store:
        assert os.listdir(f"{root}/tmp") == []
        with store.actions.lock("0" * 64):
            pass


WAITING = """
import sys, threading
from hq.store.disk import DiskStore
store = DiskStore(sys.argv[1])
def work():
    print("waiting", flush=True)
    with store.actions.lock("0" * 64):
        print("held", flush=True)
threading.excepthook = lambda args: print(args.exc_type.__name__, flush=True)
thread = threading.Thread(target=work)
try:
    thread.start()
    thread.join()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_thread_that_waits_for_a_key(tmp_path: Path) -> None:
    with DiskStore(str(tmp_path)) as store, store.actions.lock("0" * 64):
        process = start(WAITING, store.root)
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        said = process.stdout.read().split()
        assert said[0] == b"interrupted"
        assert b"held" not in said
        process.stdout.close()
        assert process.wait() == 0


def test_a_thread_that_waits_gets_the_key(tmp_path: Path) -> None:
    import threading

    with DiskStore(str(tmp_path)) as store:
        got = threading.Event()

        def work() -> None:
            with store.actions.lock("0" * 64):
                got.set()

        thread = threading.Thread(target=work)
        with store.actions.lock("0" * 64):
            thread.start()
            assert not got.wait(0.05)
        assert got.wait(60)
        thread.join()


def test_a_sweep_takes_only_what_nobody_owns(tmp_path: Path) -> None:
    folder = str(tmp_path / "tmp")
    live_file = make_temp_file(folder)
    live_dir = make_temp_dir(folder)
    (tmp_path / "tmp" / "dead").write_bytes(b"x")
    (tmp_path / "tmp" / "dead-dir" / "deep").mkdir(parents=True)
    assert sweep(folder) == 2
    assert sorted(os.listdir(folder)) == sorted(
        [os.path.basename(live_file.path), os.path.basename(live_dir.path)]
    )
    os.close(live_file.fd)
    os.close(live_dir.fd)
    assert sweep(folder) == 2
    assert os.listdir(folder) == []


def test_a_staging_folder_goes_away_and_its_file_can_be_adopted(tmp_path: Path) -> None:
    store = DiskStore(str(tmp_path / "store"))
    data = b"downloaded"
    ref = BlobRef(Digest.of(data), len(data))
    with store.staging() as folder:
        path = Path(folder, "file.whl")
        path.write_bytes(data)
        inode = path.stat().st_ino
        store.adopt(str(path), ref)
    assert os.listdir(f"{store.root}/tmp") == []
    assert store.read(ref) == data
    assert os.stat(store.path(ref)).st_ino == inode
    assert oct(os.stat(store.path(ref)).st_mode) == "0o100444"


def test_any_number_of_keys_leaves_one_empty_file(tmp_path: Path) -> None:
    with DiskStore(str(tmp_path)) as store:
        for n in range(200):
            with store.actions.lock(hashlib.sha256(b"%d" % n).hexdigest()):
                pass
        assert sorted(os.listdir(f"{store.root}/locks")) == ["keys", "use"]
        assert os.stat(f"{store.root}/locks/keys").st_size == 0
