"""Fetching through a real pip from a simple index on the loopback interface."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, InfrastructureError, UsageError
from hq.model.project import LockedWheel
from hq.store.disk import DiskStore
from hq.transfer import fetch, pip
from hq.transfer.fetch import (
    fetch_wheel,
    import_file,
    lock_wheel,
    tag_arguments,
    target_arguments,
)

FILE = "demo-1.2-cp38-abi3-manylinux_2_28_x86_64.whl"


def make_wheel(note: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = "demo-1.2.dist-info"
        members = {
            "demo.py": b"x = 1\n" + note,
            f"{info}/METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.2\n"
            b"Requires-Python: >=3.10\n",
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n"
            b"Tag: cp38-abi3-manylinux_2_28_x86_64\n",
        }
        record = "".join(f"{name},,\n" for name in members) + f"{info}/RECORD,,\n"
        for name, data in {**members, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


WHEEL = make_wheel()
LOCKED = LockedWheel("demo", "1.2", FILE, Digest.of(WHEEL), len(WHEEL))


class Index:
    """A simple repository; ``answer`` changes what it says for a file."""

    def __init__(self) -> None:
        self.files = {FILE: WHEEL}
        self.status = 200
        self.cut = 0
        self.slow = False
        self.user = ""
        self.requests: list[str] = []
        self.page = ""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/simple/"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        self.requests.append(request.path)
        wanted = "Basic " + base64.b64encode(self.user.encode()).decode()
        if self.user and request.headers.get("Authorization") != wanted:
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="x"')
            request.send_header("Content-Length", "0")
            request.end_headers()
        elif request.path == "/simple/demo/":
            links = (f'<a href="/files/{name}">{name}</a>' for name in self.files)
            self.send(request, f"<!DOCTYPE html><body>{''.join(links)}</body>".encode())
        elif request.path.startswith("/files/"):
            self.send(request, self.files[request.path[7:]], cut=self.cut, status=self.status)
        else:
            self.send(request, b"no", status=404)

    def send(
        self,
        request: http.server.BaseHTTPRequestHandler,
        data: bytes,
        *,
        cut: int = 0,
        status: int = 200,
    ) -> None:
        request.send_response(status)
        request.send_header("Content-Type", "text/html")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if self.slow and request.path.startswith("/files/"):
            request.wfile.write(data[:2_000_000])
            time.sleep(600)
        request.wfile.write(data[: len(data) - cut])
        request.close_connection = True


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    made = Index()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", made.url)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_RESUME_RETRIES", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(fetch, "_PAUSE", 0.0)
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    with DiskStore(str(tmp_path / "store")) as made:
        yield made
        assert os.listdir(f"{made.root}/tmp") == [], "nothing is left behind"


def told(error: Exception) -> list[str]:
    """The message without pip's own lines and addresses, which differ between its versions."""
    return [line for line in str(error).splitlines() if not line.startswith("  pip: ")]


def test_a_locked_wheel_comes_into_the_store(index: Index, store: DiskStore) -> None:
    seen: list[tuple[int, int]] = []
    ref = fetch_wheel(store, LOCKED, lambda done, total: seen.append((done, total)))
    assert ref == BlobRef.of(WHEEL)
    assert store.read(ref) == WHEEL
    assert seen[-1] == (len(WHEEL), len(WHEEL))
    assert all(done <= total == len(WHEEL) for done, total in seen)
    before = list(index.requests)
    assert fetch_wheel(store, LOCKED) == ref
    assert index.requests == before, "the second time asks nobody"


def test_the_users_configuration_file_counts(
    index: Index, store: DiskStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PIP_INDEX_URL")
    config = tmp_path / "pip.conf"
    address = index.url.replace("http://", "http://user:secret@")
    config.write_text(f"[global]\nindex-url = {address}\nquiet = 3\nrequire-virtualenv = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    index.user = "user:secret"
    assert store.has(fetch_wheel(store, LOCKED))


def test_a_folder_named_in_the_configuration_serves_too(
    index: Index, store: DiskStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / FILE).write_bytes(WHEEL)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    assert store.has(fetch_wheel(store, LOCKED))
    assert index.requests == []
    assert (tmp_path / "wheels" / FILE).read_bytes() == WHEEL


def test_another_file_under_the_locked_name_is_refused(index: Index, store: DiskStore) -> None:
    other = make_wheel(b"y = 2\n")
    index.files[FILE] = other
    with pytest.raises(BuildError) as caught:
        fetch_wheel(store, LOCKED)
    assert str(caught.value) == (
        "error: this is not the locked wheel of demo 1.2\n"
        f"  at: {FILE}\n"
        f"  expected: sha256 {hashlib.sha256(WHEEL).hexdigest()}\n"
        f"  found:    sha256 {hashlib.sha256(other).hexdigest()}\n"
        "  help: do not use this file unless you know why it differs; then lock the pin again"
    )
    assert caught.value.exit_code == 1
    assert not store.has(BlobRef.of(other))


def test_a_wrong_size_in_the_lock_is_named(index: Index, store: DiskStore) -> None:
    with pytest.raises(BuildError) as caught:
        fetch_wheel(store, LOCKED._replace(size=7))
    assert f"  expected: 7 bytes\n  found:    {len(WHEEL)} bytes\n" in str(caught.value)


def test_a_download_that_always_ends_early_is_tried_three_times(
    index: Index, store: DiskStore
) -> None:
    index.cut = 100
    with pytest.raises((InfrastructureError, BuildError)) as caught:
        fetch_wheel(store, LOCKED)
    # Versions of pip before 25.1 call a cut file a wrong one; then twice is enough.
    asked = [path for path in index.requests if path.startswith("/files/")]
    if isinstance(caught.value, InfrastructureError):
        assert told(caught.value)[0] == ("error: the download of demo 1.2 ended early, 3 times")
    assert 2 <= len(asked) <= 3


def test_a_download_that_ended_early_once_succeeds(
    index: Index, store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.cut = 100
    pauses: list[float] = []

    def mend(seconds: float) -> None:
        pauses.append(seconds)
        index.cut = 0

    assert store.has(fetch_wheel(store, LOCKED, pause=mend))
    assert len(pauses) == 1


def test_an_index_without_the_file(index: Index, store: DiskStore) -> None:
    index.files = {"demo-1.3-py3-none-any.whl": b""}
    with pytest.raises(BuildError) as caught:
        fetch_wheel(store, LOCKED)
    assert told(caught.value) == [
        "error: no index has demo 1.2 in this form",
        f"  file: {FILE}",
        "  help: look at the indexes that pip uses ('pip config list' and the PIP_ variables), "
        "check name, version and file in the lock, or give the file with --wheel FILE",
    ]
    assert any("No matching distribution found" in line for line in caught.value.details)


def test_an_index_that_lists_a_file_it_has_not(index: Index, store: DiskStore) -> None:
    index.status = 404
    with pytest.raises(BuildError, match=r"no index has demo 1\.2 in this form"):
        fetch_wheel(store, LOCKED)


def test_an_index_in_trouble(index: Index, store: DiskStore) -> None:
    index.status = 503
    with pytest.raises(InfrastructureError, match=r"cannot fetch demo 1\.2"):
        fetch_wheel(store, LOCKED)


def test_nobody_listens(index: Index, store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    with pytest.raises(InfrastructureError) as caught:
        fetch_wheel(store, LOCKED)
    assert told(caught.value) == [
        "error: cannot fetch demo 1.2",
        f"  file: {FILE}",
        "  help: look at the indexes that pip uses ('pip config list' and the PIP_ variables), "
        "the network and the proxy; then run hq again, or give the file with --wheel FILE",
    ]
    assert caught.value.exit_code == 3


def test_credentials_are_refused(index: Index, store: DiskStore) -> None:
    index.user = "someone:else"
    with pytest.raises(InfrastructureError) as caught:
        fetch_wheel(store, LOCKED)
    assert told(caught.value) == [
        "error: the index refused to give demo 1.2",
        f"  file: {FILE}",
        "  help: give pip the credentials, or give the file with --wheel FILE",
    ]


def test_offline_says_what_is_missing(index: Index, store: DiskStore) -> None:
    with pytest.raises(BuildError) as caught:
        fetch_wheel(store, LOCKED, offline=True)
    assert str(caught.value) == (
        "error: demo 1.2 is not in the store, and --offline forbids to fetch it\n"
        f"  file:   {FILE}\n"
        f"  sha256: {hashlib.sha256(WHEEL).hexdigest()}\n"
        f"  size:   {len(WHEEL)} bytes\n"
        "  help: run once without --offline, or give the file with --wheel FILE"
    )
    assert index.requests == []
    store.put(WHEEL)
    assert fetch_wheel(store, LOCKED, offline=True) == BlobRef.of(WHEEL)


def test_too_little_space_is_seen_before_the_download(index: Index, store: DiskStore) -> None:
    with pytest.raises(InfrastructureError) as caught:
        fetch_wheel(store, LOCKED._replace(size=10**18))
    lines = str(caught.value).splitlines()
    assert lines[0] == "error: cannot store demo 1.2: the disk is full"
    assert lines[2] == "  needed: at least 1000000.0 TB"
    assert index.requests == []


def test_an_error_of_the_observer_ends_pip_and_leaves_nothing(
    index: Index, store: DiskStore
) -> None:
    index.files[FILE] = WHEEL + bytes(3_000_000)
    index.slow = True
    most = 0

    def stop(done: int, total: int) -> None:
        nonlocal most
        most = max(most, done)
        if done >= 1_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_wheel(store, LOCKED._replace(size=len(WHEEL) + 3_000_000), stop)
    assert 1_000_000 <= most < 3_000_000


KILLED = """
import sys
from hq.model.digest import Digest
from hq.model.project import LockedWheel
from hq.store.disk import DiskStore
from hq.transfer.fetch import fetch_wheel
store = DiskStore(sys.argv[1])
wheel = LockedWheel("demo", "1.2", sys.argv[2], Digest.parse(sys.argv[3]), 3000000)
fetch_wheel(store, wheel, lambda done, total: print(done, flush=True))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: the kernel ends pip with hq")
def test_pip_dies_with_a_killed_hq_and_the_next_start_cleans_up(
    index: Index, tmp_path: Path
) -> None:
    index.files[FILE] = bytes(3_000_000)
    index.slow = True
    root = str(tmp_path / "store")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, root, FILE, Digest.of(b"")],
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )
    assert process.stdout is not None
    while int(process.stdout.readline()) < 1_000_000:
        pass
    (folder,) = os.listdir(f"{root}/tmp")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    for _ in range(1000):
        if not is_running(children[0]):
            break
        time.sleep(0.01)
    assert not is_running(children[0])
    assert os.listdir(f"{root}/tmp") == [folder]
    with DiskStore(root):
        assert os.listdir(f"{root}/tmp") == []


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_builds_at_the_same_time_fetch_once(index: Index, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with DiskStore(str(tmp_path / "store")) as store:
                fetch_wheel(store, LOCKED)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert index.requests.count(f"/files/{FILE}") == 1


# Without a network.


def test_a_file_of_the_user_is_taken(store: DiskStore, tmp_path: Path) -> None:
    path = tmp_path / "any-name.whl"
    path.write_bytes(WHEEL)
    seen: list[tuple[int, int]] = []
    ref = import_file(store, str(path), LOCKED, lambda *at: seen.append(at))
    assert store.read(ref) == WHEEL == path.read_bytes()
    assert seen == [(0, len(WHEEL)), (len(WHEEL), len(WHEEL))]


@pytest.mark.parametrize(
    ("content", "expected", "found"),
    [
        (WHEEL[:-1], f"{len(WHEEL)} bytes", f"{len(WHEEL) - 1} bytes"),
        (
            WHEEL[:-1] + b"\1",
            f"sha256 {hashlib.sha256(WHEEL).hexdigest()}",
            f"sha256 {hashlib.sha256(WHEEL[:-1] + bytes([1])).hexdigest()}",
        ),
    ],
)
def test_a_file_that_is_not_the_locked_wheel_is_refused(
    store: DiskStore, tmp_path: Path, content: bytes, expected: str, found: str
) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    with pytest.raises(BuildError) as caught:
        import_file(store, str(path), LOCKED)
    assert str(caught.value) == (
        "error: this is not the locked wheel of demo 1.2\n"
        f"  at: {path}\n"
        f"  expected: {expected}\n"
        f"  found:    {found}\n"
        "  help: do not use this file unless you know why it differs; then lock the pin again"
    )
    assert not os.path.exists(f"{store.root}/cas")
    # The wheel in the store is no reason to take the file's word.
    store.put(WHEEL)
    with pytest.raises(BuildError) as again:
        import_file(store, str(path), LOCKED)
    assert str(again.value) == str(caught.value)


def test_the_locked_wheel_may_be_named_again(store: DiskStore, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(WHEEL)
    assert import_file(store, str(path), LOCKED) == import_file(store, str(path), LOCKED)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.whl", "there is no file '{path}'"),
        ("a.whl/no.whl", "there is no file '{path}'"),
        ("folder", "'{path}' is a folder, not a wheel"),
        ("pipe", "'{path}' is no regular file"),
        ("loop", "cannot read the wheel '{path}': too many levels of symbolic links"),
    ],
)
@pytest.mark.parametrize("stored", [False, True])
def test_a_file_that_is_none(
    store: DiskStore, tmp_path: Path, name: str, message: str, stored: bool
) -> None:
    (tmp_path / "a.whl").write_bytes(WHEEL)
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    if stored:
        store.put(WHEEL)
    with pytest.raises(UsageError) as caught:
        import_file(store, f"{tmp_path}/{name}", LOCKED)
    said = message.format(path=f"{tmp_path}/{name}")
    assert str(caught.value) == f"error: {said}\n  help: name the wheel that is locked, {FILE}"


def test_no_pip_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError) as caught:
        pip.find_pip()
    assert str(caught.value) == (
        "error: no pip was found to fetch wheels with\n"
        f"  looked in: {sys.executable}\n"
        "  looked in: python3 and python on the path\n"
        "  help: run 'python -m ensurepip' with that Python, or give the wheel with --wheel FILE"
    )


def test_the_pip_of_another_python_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pip.find_pip() == str(python)


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        (
            FILE,
            "--implementation cp --python-version 38 --abi abi3 --platform manylinux_2_28_x86_64",
        ),
        (
            "a-1-py2.py3-none-any.whl",
            "--implementation py --python-version 3 --abi none --platform any",
        ),
        (
            "a-1-cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
            "--implementation cp --python-version 312 --abi cp312"
            " --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64",
        ),
    ],
)
def test_the_file_name_decides_what_pip_is_asked_for(file: str, arguments: str) -> None:
    assert tag_arguments(file) == arguments.split()


def test_pip_takes_files_of_every_kind(index: Index, store: DiskStore, tmp_path: Path) -> None:
    names = [
        "demo-1.2-py3-none-any.whl",
        "demo-1.2-py2.py3-none-any.whl",
        "demo-1.2-py3-none-manylinux2014_x86_64.whl",
        "demo-1.2-cp313-cp313-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
    ]
    for name in names:
        index.files = {name: WHEEL}
        ref = fetch_wheel(store, LOCKED._replace(file=name))
        store.drop(ref)


def test_a_wheel_is_locked(index: Index, store: DiskStore) -> None:
    index.files["demo-1.2-cp38-abi3-manylinux_2_28_aarch64.whl"] = b"not this one"
    locked = lock_wheel(store, "demo", "1.2", target_arguments("3.12", "x86_64"))
    assert locked == LOCKED
    assert store.has(BlobRef(locked.sha256, locked.size))


def test_a_wheel_that_no_index_has_is_not_locked(index: Index, store: DiskStore) -> None:
    with pytest.raises(BuildError, match=r"no index has demo 9\.9 in this form"):
        lock_wheel(store, "demo", "9.9", target_arguments("3.12", "x86_64"))


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE", "hash"),
        ("IncompleteRead(3 bytes read, 4 more expected)", "cut"),
        ("[Errno 28] No space left on device", "space"),
        ("Could not fetch URL x: 403 Client Error: Forbidden for url", "denied"),
        ("Could not fetch URL x: connection error: refused", "network"),
        ("ERROR: No matching distribution found for demo", "absent"),
        ("something new", "other"),
    ],
)
def test_what_pip_says_is_understood(text: str, trouble: str) -> None:
    failure = pip.read_failure(f"Looking in indexes\n{text}\n", "")
    assert failure.trouble == trouble
    assert failure.lines[-1] == text


def test_of_a_traceback_of_pips_the_last_line_is_told() -> None:
    output = (
        "WARNING: one\nERROR: Exception:\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\nurllib3.exceptions.ProtocolError: reset by peer\n'
    )
    lines = pip.read_failure(output, "").lines
    assert lines == ("WARNING: one", "urllib3.exceptions.ProtocolError: reset by peer")
