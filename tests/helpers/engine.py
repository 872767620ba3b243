"""A Docker engine for tests: the one that ``DOCKER_HOST`` names, or one started for the session."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def engine() -> Iterator[str]:
    """The engine's address; skips the test when there is none and none can be started."""
    named = os.environ.get("DOCKER_HOST")
    if named:
        yield named
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("DOCKER_HOST names no engine, and only root can start dockerd")
    with tempfile.TemporaryDirectory(prefix="hq-engine-", ignore_cleanup_errors=True) as folder:
        address = f"unix://{folder}/socket"
        command = [
            *("dockerd", "--host", address, "--bridge", "none", "--iptables=false"),
            *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"),
            *("--pidfile", f"{folder}/pid", "--storage-driver", "vfs"),
        ]
        with (
            Path(folder, "log").open("wb") as log,
            subprocess.Popen(command, stdout=log, stderr=log) as daemon,
        ):
            try:
                _wait(daemon, address, Path(folder, "log"))
                yield address
            finally:
                daemon.terminate()
                daemon.wait(60)


def _wait(daemon: subprocess.Popen[bytes], address: str, log: Path) -> None:
    for _ in range(120):
        asked = ["docker", "--host", address, "version", "--format", "{{.Server.Version}}"]
        if subprocess.run(asked, check=False, capture_output=True).returncode == 0:
            return
        if daemon.poll() is not None:
            break
        time.sleep(0.5)
    pytest.skip(f"dockerd does not run here: {log.read_text()[-500:]}")


def docker(address: str, *arguments: str) -> bytes:
    """What a docker command prints."""
    return subprocess.run(
        ["docker", "--host", address, *arguments], check=True, capture_output=True
    ).stdout
