"""A glance at an engine says yes only to a plain yes; whatever else is there, it says nothing."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hq.transfer.glance import version_if_there

ID = "sha256:" + "1" * 64
LAYERS = ["sha256:" + "2" * 64]
GOOD = json.dumps({"Id": ID, "RootFS": {"Layers": LAYERS}}).encode()


def answer(data: bytes, status: str = "200 OK", server: str = "Docker/27.1 (linux)") -> bytes:
    head = f"HTTP/1.1 {status}\r\nServer: {server}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@contextmanager
def engine(folder: Path, *answers: bytes) -> Iterator[str]:
    """The socket of an engine that gives these answers, one a request, and then hangs up."""
    rest = list(answers)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while rest and self.rfile.readline():
                while self.rfile.readline() not in (b"\r\n", b""):
                    pass
                self.wfile.write(rest.pop(0))

    path = folder / "socket"
    path.unlink(missing_ok=True)
    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield str(path)
        finally:
            server.shutdown()
            thread.join()


def test_a_plain_yes(tmp_path: Path) -> None:
    with engine(tmp_path, answer(GOOD), answer(GOOD)) as path:
        assert version_if_there(path, ["a:1", "b/c:2"], ID, LAYERS) == "27.1"


@pytest.mark.parametrize(
    "said",
    [
        answer(GOOD, "404 Not Found"),
        answer(GOOD, server="nginx"),
        answer(GOOD.replace(b"1", b"3", 1)),
        answer(GOOD.replace(b"2", b"3", 1)),
        answer(b'{"Id": "%s", "RootFS": null}' % ID.encode()),
        answer(b"[]"),
        answer(b"no JSON"),
        answer(GOOD)[:-9],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
)
def test_everything_else_is_nothing(tmp_path: Path, said: bytes) -> None:
    with engine(tmp_path, said) as path:
        assert version_if_there(path, ["a:1"], ID, LAYERS) == ""
    with engine(tmp_path, answer(GOOD), said) as path:
        assert version_if_there(path, ["a:1", "a:2"], ID, LAYERS) == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.binary(max_size=300))
def test_whatever_it_answers(tmp_path: Path, said: bytes) -> None:
    with engine(tmp_path, said) as path:
        assert version_if_there(path, ["a:1"], ID, LAYERS) == ""


def test_nobody_there(tmp_path: Path) -> None:
    assert version_if_there(str(tmp_path / "none"), ["a:1"], ID, LAYERS) == ""
    (tmp_path / "file").touch()
    assert version_if_there(str(tmp_path / "file"), ["a:1"], ID, LAYERS) == ""
    assert version_if_there(str(tmp_path / ("x" * 200)), ["a:1"], ID, LAYERS) == ""
