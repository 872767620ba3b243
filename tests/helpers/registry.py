"""A real registry for tests: Debian's docker-registry on a free port of this machine."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

USER = "somebody"
PASSWORD = "secret word"
# bcrypt of PASSWORD, the only kind that the registry takes.
_HTPASSWD = f"{USER}:$2b$05$89/bOSlmASevW5goqNTyFuNqQ9qA4dyzVkGj/3QHexMlMaYgzuqvy\n"


class RealRegistry(NamedTuple):
    """``host``: name and port. ``folder``: where it keeps what it has."""

    host: str
    folder: Path

    def blobs(self) -> set[str]:
        """The digests of its blobs, in hex."""
        places = self.folder.glob("data/docker/registry/v2/blobs/sha256/*/*/data")
        return {place.parent.name for place in places}

    def uploads(self, repository: str) -> list[str]:
        """Unfinished uploads."""
        place = self.folder / f"data/docker/registry/v2/repositories/{repository}/_uploads"
        return [path.name for path in place.glob("*")]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def real_registry(*, password: bool = False) -> Iterator[RealRegistry]:
    """Runs a registry; skips the test when there is none to run."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    with tempfile.TemporaryDirectory(prefix="hq-registry-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        port = free_port()
        config = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
            "http": {"addr": f"127.0.0.1:{port}", "secret": "x"},
        }
        if password:
            (folder / "htpasswd").write_text(_HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
        (folder / "config.yml").write_text(json.dumps(config))
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(
                [program, "serve", str(folder / "config.yml")], stdout=log, stderr=log
            ) as process,
        ):
            try:
                _wait(process, port, folder / "log")
                yield RealRegistry(f"localhost:{port}", folder)
            finally:
                process.terminate()
                process.wait(30)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    pytest.skip(f"docker-registry does not run here: {log.read_text()[-500:]}")


def docker_config(folder: Path, host: str, user: str = USER, password: str = PASSWORD) -> Path:
    """A folder for ``DOCKER_CONFIG`` with credentials for ``host``."""
    folder.mkdir(parents=True, exist_ok=True)
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return folder
