"""Commands in containers of a real engine: shut off as in the sandbox."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.engine import docker, engine
from hq.model.digest import Digest
from hq.transfer.engine import Containers

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with engine() as found:
        yield found


@pytest.fixture(scope="module")
def image_id(address: str) -> Digest:
    """An image of a shell and the libraries that it needs."""
    shell = shutil.which("busybox")
    if shell is None:
        pytest.skip("there is no busybox")
    linked = subprocess.run(["ldd", shell], capture_output=True, text=True, check=False).stdout
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in (".", "bin", "lib", "lib64", "lib/x86_64-linux-gnu"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for path in re.findall(r"(/\S+)", linked):
            tar.add(os.path.realpath(path), path)
        tar.add(os.path.realpath(shell), "/bin/sh")
    made = subprocess.run(
        ["docker", "--host", address, "import", "-", "hq-sh:1"],
        input=data.getvalue(),
        capture_output=True,
        check=True,
    )
    found = Digest.parse(made.stdout.decode().strip())
    probe = [
        "docker",
        "--host",
        address,
        "run",
        "--rm",
        "--net=none",
        "hq-sh:1",
        "/bin/sh",
        "-c",
        "",
    ]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the engine runs no containers here: {done.stderr[-300:]}")
    return found


def test_a_command_is_run_and_its_container_removed(address: str, image_id: Digest) -> None:
    containers = Containers(address, {}, image_id)
    assert containers.why_not() == ""
    done = containers.run(["/bin/sh", "-c", "echo $A; exit 3"], {"A": "b c"}, 60)
    assert (done.code, done.output) == (3, "b c\n")
    assert docker(address, "ps", "--all", "--quiet") == b""


def test_it_has_no_network_and_writes_nothing(address: str, image_id: Digest) -> None:
    script = (
        "while read -r name _; do case $name in *:) echo $name ;; esac; done < /proc/net/dev\n"
        "echo x > /y || echo refused\necho x > /tmp/y\n"
    )
    done = Containers(address, {}, image_id).run(["/bin/sh", "-c", script], {}, 60)
    assert done.code == 0, done.output
    lines = [line for line in done.output.splitlines() if "Read-only" not in line]
    assert lines == ["lo:", "refused"]


def test_a_command_that_does_not_end_is_ended(address: str, image_id: Digest) -> None:
    loop = ["/bin/sh", "-c", "while :; do :; done"]
    assert Containers(address, {}, image_id).run(loop, {}, 2).code == -1
    assert docker(address, "ps", "--all", "--quiet") == b""


def test_an_image_that_the_engine_lacks(address: str) -> None:
    reason = Containers(address, {}, Digest.of(b"none")).why_not()
    assert reason.endswith(f" at {address} does not have the image; run hq load first")


def test_no_engine(tmp_path: Path) -> None:
    reason = Containers(f"unix://{tmp_path}/socket", {}, Digest.of(b"none")).why_not()
    assert reason == (
        f"cannot reach a Docker engine at unix://{tmp_path}/socket: there is no such socket"
    )
