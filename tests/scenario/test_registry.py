"""Images leave for a real registry and a real engine, and base images arrive.

Each test drives hq as a user does, against Debian's docker-registry on this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from helpers.engine import docker, engine
from helpers.fakeregistry import Fault, fake_registry, reset_after, status
from helpers.project import FILES, SampleProject
from helpers.registry import RealRegistry, docker_config, free_port, real_registry

pytestmark = pytest.mark.system


@pytest.fixture(scope="session")
def registry() -> Iterator[RealRegistry]:
    with real_registry() as found:
        yield found


@pytest.fixture(scope="session")
def guarded() -> Iterator[RealRegistry]:
    """A registry that wants a password."""
    with real_registry(password=True) as found:
        yield found


def no_credentials(project: SampleProject) -> SampleProject:
    """Gives the project's user an empty Docker configuration."""
    (project.store.parent / "docker").mkdir()
    return project


@pytest.fixture
def shipped(built: SampleProject) -> SampleProject:
    """A built project, to be changed."""
    return no_credentials(built)


def prepared(factory: pytest.TempPathFactory, files: Mapping[str, bytes]) -> SampleProject:
    project = no_credentials(SampleProject(factory.mktemp("common")))
    project.wheel(files)
    project.supply()
    project.first = project.build()
    return project


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> SampleProject:
    """A built project for tests that change nothing."""
    return prepared(tmp_path_factory, FILES)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> SampleProject:
    """The same with a wheel of 24 MB that does not compress."""
    noise = random.Random(1).randbytes(24_000_000)
    return prepared(tmp_path_factory, {**FILES, "vllm/noise.bin": noise})


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return "t/" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]


def run(
    project: SampleProject, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs hq without the credentials of whoever runs the tests."""
    environment = {"DOCKER_CONFIG": str(project.store.parent / "docker"), **(env or {})}
    return project.run(*arguments, env=environment)


def push(project: SampleProject, *arguments: str, **options: Any) -> dict[str, Any]:
    done = run(project, "push", "demo", *arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def skopeo(*arguments: str) -> str:
    return subprocess.run(
        [program("skopeo"), "--insecure-policy", *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def git(project: SampleProject, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(
        ["git", *identity, *arguments],
        cwd=project.root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def commit(project: SampleProject) -> str:
    """Puts the project's files under git; the commit."""
    git(project, "init", "--quiet")
    git(project, "add", "build.toml", "patches", "over", "images", "lockfiles")
    git(project, "commit", "--quiet", "--message", "All")
    return git(project, "rev-parse", "HEAD")


# Push.


def test_01_a_push_brings_all_and_skopeo_agrees(
    common: SampleProject, registry: RealRegistry, repository: str, tmp_path: Path
) -> None:
    pushed = push(common, f"{registry.host}/{repository}")
    manifest = common.first["images"][0]["manifest"]
    assert pushed["manifest"] == manifest
    assert pushed["tags"] == ["1.0"]
    assert sorted(pushed["blobs"].values()) == ["sent"] * 5
    shown = json.loads(
        skopeo("inspect", "--tls-verify=false", f"docker://{registry.host}/{repository}:1.0")
    )
    assert shown["Digest"] == manifest
    copy = tmp_path / "copy"
    source = f"docker://{registry.host}/{repository}:1.0"
    skopeo("copy", "-q", "--src-tls-verify=false", source, f"oci:{copy}:x")
    for path in (common.layout() / "blobs/sha256").iterdir():
        assert (copy / "blobs/sha256" / path.name).read_bytes() == path.read_bytes()


def test_02_a_second_push_sends_nothing(
    common: SampleProject, registry: RealRegistry, repository: str
) -> None:
    push(common, f"{registry.host}/{repository}")
    again = push(common, f"{registry.host}/{repository}")
    assert (again["bytes_sent"], again["blobs"]) == (0, {})
    assert [item["new"] for item in again["attached"]] == [False, False]


def test_03_after_one_patch_one_layer_is_sent(
    shipped: SampleProject, registry: RealRegistry, repository: str
) -> None:
    target = f"{registry.host}/{repository}"
    push(shipped, target)
    shipped.replace("patches/second.patch", "+line twenty", "+line TWENTY")
    shipped.build()
    again = push(shipped, target, "--no-attach")
    assert sorted(again["blobs"].values()) == ["sent", "sent", "there", "there", "there"]
    sizes = [
        (shipped.layout() / "blobs/sha256" / digest[7:]).stat().st_size
        for digest, how in again["blobs"].items()
        if how == "sent"
    ]
    manifest = (shipped.layout() / "blobs/sha256" / again["manifest"][7:]).stat().st_size
    # Layer, configuration and manifest, each once.
    assert again["bytes_sent"] == sum(sizes) + manifest
    assert again["bytes_sent"] < 10_000


def test_04_a_preamble_sends_no_blob(
    shipped: SampleProject, registry: RealRegistry, repository: str
) -> None:
    target = f"{registry.host}/{repository}"
    push(shipped, target)
    shipped.replace("patches/first.patch", "Words about it.", "Other words.")
    shipped.build()
    assert push(shipped, target, "--no-attach")["bytes_sent"] == 0


def test_05_another_repository_mounts(
    shipped: SampleProject, registry: RealRegistry, repository: str
) -> None:
    push(shipped, f"{registry.host}/{repository}")
    again = push(shipped, f"{registry.host}/{repository}-b", "--no-attach")
    assert set(again["blobs"].values()) == {"mounted"}
    # Where the project does not remember, the user may.
    shutil.rmtree(shipped.store / "projects")
    told = ["--no-attach", "--mount-from", repository]
    third = push(shipped, f"{registry.host}/{repository}-c", *told)
    assert set(third["blobs"].values()) == {"mounted"}


def test_06_tags(shipped: SampleProject, registry: RealRegistry, repository: str) -> None:
    target = f"{registry.host}/{repository}"
    assert push(shipped, f"{target}:one")["tags"] == ["one"]
    assert push(shipped, f"{target}:one", "--tag", "two")["tags"] == ["one", "two"]
    head = commit(shipped)
    shipped.build()
    assert push(shipped, target)["tags"] == ["1.0", f"sha-{head}"]


def test_07_no_tag_for_a_commit_that_does_not_hold_the_image(
    shipped: SampleProject, registry: RealRegistry, repository: str
) -> None:
    commit(shipped)
    shipped.replace("patches/second.patch", "+line twenty", "+line TWENTY")
    shipped.build()
    done = run(shipped, "push", "demo", f"{registry.host}/{repository}")
    assert done.returncode == 0
    assert "no commit holds what the image was made from, so there is no sha- tag" in done.stderr
    assert "sha-" not in done.stdout


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_07_an_image_that_is_older_than_the_project_is_told(
    shipped: SampleProject, registry: RealRegistry, repository: str, change: str
) -> None:
    target = f"{registry.host}/{repository}:x"
    assert "warning" not in run(shipped, "push", "demo", target).stderr
    path = "patches/second.patch"
    if change == "edited":
        shipped.replace(path, "+line twenty", "+line TWENTY")
    else:
        (shipped.root / path).unlink()
        shipped.write("patches/series", "first.patch\nthird.patch\nfourth.patch\n")
    done = run(shipped, "push", "demo", target)
    assert done.returncode == 0
    assert (
        "patches/second.patch changed since demo was built; hq build makes it anew" in done.stderr
    )
    shipped.build()
    assert "warning" not in run(shipped, "push", "demo", target).stderr


def test_08_what_is_printed(
    shipped: SampleProject, registry: RealRegistry, repository: str
) -> None:
    done = run(shipped, "push", "demo", f"{registry.host}/{repository}:x", "--no-attach")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        f"{registry.host}/{repository}@{shipped.first['images'][0]['manifest']}",
        "  tag       x",
        "  blobs     5 sent",
    ]
    assert lines[3].startswith("  sent      ")
    assert done.stderr == ""


def test_09_provenance_is_attached_and_read_back(
    shipped: SampleProject, registry: RealRegistry, repository: str
) -> None:
    pushed = push(shipped, f"{registry.host}/{repository}")
    assert [item["artifact_type"] for item in pushed["attached"]] == [
        "application/vnd.in-toto+json",
        "application/vnd.cyclonedx+json",
    ]
    assert pushed["referrers"] == "tag"  # this registry keeps no list itself
    tag = pushed["manifest"].replace(":", "-")
    place = f"docker://{registry.host}/{repository}"
    index = json.loads(skopeo("inspect", "--raw", "--tls-verify=false", f"{place}:{tag}"))
    assert {entry["digest"] for entry in index["manifests"]} == {
        item["manifest"] for item in pushed["attached"]
    }
    first = pushed["attached"][0]["manifest"]
    shown = json.loads(skopeo("inspect", "--raw", "--tls-verify=false", f"{place}@{first}"))
    assert shown["subject"]["digest"] == pushed["manifest"]
    statement = (shipped.root / "dist/demo-1.0.provenance.json").read_bytes()
    assert shown["layers"][0]["digest"] == "sha256:" + hashlib.sha256(statement).hexdigest()
    assert shown["layers"][0]["digest"][7:] in registry.blobs()


@pytest.mark.parametrize(
    ("suffix", "what"),
    [("provenance", "the provenance statement"), ("sbom", "the bill of materials")],
)
def test_10_what_is_about_another_image_is_not_attached(
    shipped: SampleProject, registry: RealRegistry, repository: str, suffix: str, what: str
) -> None:
    path = shipped.root / f"dist/demo-1.0.{suffix}.json"
    digest = shipped.first["images"][0]["manifest"][7:]
    text = path.read_text()
    assert digest in text
    path.write_text(text.replace(digest, "0" * 64))
    done = run(shipped, "push", "demo", f"{registry.host}/{repository}:x")
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {what} is about another image\n  at: {path}\n"
        f"  expected: sha256:{digest}\n  found:    sha256:{'0' * 64}\n"
        "  help: build the image again, or push it with --no-attach\n"
    )


def test_11_any_layout_can_be_pushed(
    shipped: SampleProject, registry: RealRegistry, repository: str, tmp_path: Path
) -> None:
    layout = shipped.layout().rename(tmp_path / "elsewhere")
    done = run(shipped, "push", str(layout), f"{registry.host}/{repository}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tags"] == ["1.0"]


# Who we are.


def test_12_with_credentials(
    common: SampleProject, guarded: RealRegistry, repository: str, tmp_path: Path
) -> None:
    env = {"DOCKER_CONFIG": str(docker_config(tmp_path / "docker", guarded.host))}
    pushed = push(common, f"{guarded.host}/{repository}", env=env)
    assert pushed["manifest"] == common.first["images"][0]["manifest"]


def test_13_without(common: SampleProject, guarded: RealRegistry, repository: str) -> None:
    done = run(common, "push", "demo", f"{guarded.host}/{repository}:x")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {guarded.host} wants credentials to use it, and there are none\n"
        "  registry: UNAUTHORIZED: authentication required\n"
        f"  help: run 'docker login {guarded.host}', or name a folder with Docker's "
        "config.json in DOCKER_CONFIG\n"
    )


def test_14_with_wrong_ones(
    common: SampleProject, guarded: RealRegistry, repository: str, tmp_path: Path
) -> None:
    folder = docker_config(tmp_path / "docker", guarded.host, password="guessed")
    env = {"DOCKER_CONFIG": str(folder)}
    done = run(common, "push", "demo", f"{guarded.host}/{repository}:x", env=env)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: {guarded.host} does not take the credentials to use it",
        f"  credentials: {folder}/config.json",
        "  registry: UNAUTHORIZED: authentication required",
        f"  help: run 'docker login {guarded.host}' again",
    ]
    assert "guessed" not in done.stdout + done.stderr


# What goes wrong.


def test_15_nobody_listens(common: SampleProject, repository: str) -> None:
    host = f"localhost:{free_port()}"
    done = run(common, "push", "demo", f"{host}/{repository}:x")
    assert done.returncode == 3
    assert done.stderr == (
        f"error: cannot reach {host}: connection refused\n"
        "  help: check the name, the network and the proxy (https_proxy, no_proxy); "
        "then run hq again\n"
    )


def test_16_a_registry_that_is_out_of_order(common: SampleProject) -> None:
    with fake_registry() as broken:
        broken.faults = [Fault("GET /v2/", status(503), 99)]
        done = run(common, "push", "demo", f"{broken.host}/r:x")
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: {broken.host} fails: it answers GET with status 503\n")


def test_17_an_image_that_is_not_built(project: SampleProject) -> None:
    done = run(project, "push", "demo", "localhost:1/x")
    assert done.returncode == 2
    assert done.stderr == (
        "error: the image demo of pin 1.0 is not built\n"
        f"  at: {project.layout()}\n  help: run 'hq build --pin 1.0 --image demo' first\n"
    )
    done = run(project, "load", "other")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no image 'other' in build.toml\n")
    done = run(project, "load", "./other")
    assert done.returncode == 2
    assert done.stderr == (
        "error: there is no image layout in ./other\n  help: name the folder that has index.json\n"
    )


class SlowWay:
    """A way to a registry that carries some bytes and no more, so that a client can be killed."""

    def __init__(self, host: str, carried: int) -> None:
        self._port = int(host.rpartition(":")[2])
        self._left = carried
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self._threads: list[threading.Thread] = []
        self.host = f"localhost:{self._sockets[0].getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._sockets[0].accept()
                upstream = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [client, upstream]
                self._start(self._pump, client, upstream, True)
                self._start(self._pump, upstream, client, False)

    def _pump(self, source: socket.socket, target: socket.socket, limited: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if limited and self._left < len(data):
                    return
                self._left -= len(data) if limited else 0
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def wait_for(what: Any) -> None:
    for _ in range(400):
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to that")


def test_18_a_push_that_is_killed_and_run_again(
    large: SampleProject, registry: RealRegistry, repository: str
) -> None:
    with SlowWay(registry.host, 12 << 20) as way:
        command = [sys.executable, "-m", "hq", "push", "demo", f"{way.host}/{repository}:x"]
        environment = large.environment(DOCKER_CONFIG=str(large.store.parent / "docker"))
        with subprocess.Popen(command, cwd=large.root, env=environment) as process:
            wait_for(lambda: _received(registry, repository) > 10 << 20)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
    place = registry.folder / "data/docker/registry/v2/repositories" / repository
    assert not (place / "_manifests").exists()  # no tag, nothing that can be pulled
    assert run(large, "store", "verify").returncode == 0
    again = push(large, f"{registry.host}/{repository}:x")
    assert again["tags"] == ["x"]
    skopeo("inspect", "--tls-verify=false", f"docker://{registry.host}/{repository}:x")


def _received(registry: RealRegistry, repository: str) -> int:
    place = registry.folder / "data/docker/registry/v2/repositories" / repository
    return sum(path.stat().st_size for path in place.glob("_uploads/*/data"))


def test_19_a_connection_that_breaks_is_taken_up(large: SampleProject, repository: str) -> None:
    with fake_registry() as broken:
        broken.faults = [Fault("PATCH", reset_after(9 << 20))]
        pushed = push(large, f"{broken.host}/r:x")
        starts = [
            r.headers["Content-Range"].partition("-")[0]
            for r in broken.requests
            if r.method == "PATCH"
        ]
        assert starts == ["0", str(9 << 20)]
        assert ("r", pushed["manifest"]) in broken.manifests


# Pull.


def test_20_a_pulled_image_is_the_pushed_one(
    common: SampleProject, registry: RealRegistry, repository: str, tmp_path: Path
) -> None:
    pushed = push(common, f"{registry.host}/{repository}:x")
    store = tmp_path / "other"
    for reference in (f"{repository}:x", f"{repository}@{pushed['manifest']}"):
        done = run(
            common, "pull", f"{registry.host}/{reference}", "--json",
            "--store", str(store), "--output", str(tmp_path / "base"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["digest"] == found["manifest"] == pushed["manifest"]
        assert found["image_id"] == common.first["images"][0]["image_id"]
    for path in (common.layout() / "blobs/sha256").iterdir():
        assert (tmp_path / "base/blobs/sha256" / path.name).read_bytes() == path.read_bytes()
    skopeo("copy", "-q", f"oci:{tmp_path / 'base'}", f"dir:{tmp_path / 'dir'}")


def test_21_an_image_of_another_program_in_dockers_format(
    common: SampleProject, registry: RealRegistry, repository: str, tmp_path: Path
) -> None:
    target = f"docker://{registry.host}/{repository}:v2"
    flags = ("--format", "v2s2", "--dest-tls-verify=false")
    skopeo("copy", "-q", *flags, f"oci:{common.layout()}", target)
    done = run(
        common, "pull", f"{registry.host}/{repository}:v2", "--store", str(tmp_path / "s"),
        "--output", str(tmp_path / "base"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    raw = skopeo("inspect", "--raw", "--tls-verify=false", target)
    assert found["digest"] == "sha256:" + hashlib.sha256(raw.encode()).hexdigest()
    assert len(found["layers"]) == 4


def test_22_no_such_image(common: SampleProject, registry: RealRegistry, repository: str) -> None:
    done = run(common, "pull", f"{registry.host}/{repository}:x")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: there is no image {registry.host}/{repository}:x\n"
        "  help: check the name; a private one may need "
        f"'docker login {registry.host}' first\n"
    )


def test_23_a_base_whose_digest_is_not_what_was_asked(
    common: SampleProject, registry: RealRegistry, repository: str, tmp_path: Path
) -> None:
    pushed = push(common, f"{registry.host}/{repository}:x")
    layer = next(iter(pushed["blobs"]))[7:]
    folder = registry.folder / f"data/docker/registry/v2/blobs/sha256/{layer[:2]}/{layer}"
    good = (folder / "data").read_bytes()
    try:
        (folder / "data").write_bytes(bytes(len(good)))
        done = run(
            common, "pull", f"{registry.host}/{repository}:x", "--store", str(tmp_path / "s")
        )
    finally:
        (folder / "data").write_bytes(good)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {registry.host} gives another blob than was asked for\n"
        f"  expected: sha256:{layer}\n"
        f"  found:    sha256:{hashlib.sha256(bytes(len(good))).hexdigest()}\n"
        "  help: do not use it; ask who runs the registry, and look at proxies in between\n"
    )
    assert not (tmp_path / "s/cas/sha256" / layer[:2] / layer).exists()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_24_a_full_disk(
    large: SampleProject, registry: RealRegistry, repository: str, tmp_path: Path
) -> None:
    push(large, f"{registry.host}/{repository}:x")
    with small_disk(tmp_path / "small") as folder:
        done = run(large, "pull", f"{registry.host}/{repository}:x", "--store", f"{folder}/store")
        assert done.returncode == 3
        lines = done.stderr.splitlines()
        assert lines[0] == "error: cannot pull the image: the disk is full"
        assert lines[1] == f"  at: {folder}/store"
        assert lines[2].startswith("  needed: ")
        left = [p for p in (folder / "store").rglob("*") if p.is_file() and p.stat().st_size > 4000]
        assert left == []


# The engine.


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with engine() as found:
        yield found


def load(project: SampleProject, address: str, *arguments: str) -> dict[str, Any]:
    done = run(project, "load", "demo", "--engine", address, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.engine
def test_25_load_change_one_patch_load_again(shipped: SampleProject, address: str) -> None:
    first = load(shipped, address, "--tag", "hq-test-load:1")
    assert first["image_id"] == shipped.first["images"][0]["image_id"]
    shown = json.loads(docker(address, "image", "inspect", "hq-test-load:1"))[0]
    assert shown["Id"] == first["image_id"]
    again = load(shipped, address, "--tag", "hq-test-load:1")
    assert (again["already"], again["bytes_sent"]) == (True, 0)
    shipped.replace("over/files/vllm/extra/__init__.py", "EXTRA = 1", "EXTRA = 2")
    shipped.build()
    changed = load(shipped, address, "--tag", "hq-test-load:1")
    assert (changed["sent"], changed["kept"]) == (1, 3)
    shown = json.loads(docker(address, "image", "inspect", "hq-test-load:1"))[0]
    assert shown["Id"] == changed["image_id"] != first["image_id"]
    docker(address, "rmi", "hq-test-load:1")


@pytest.mark.engine
def test_26_docker_pulls_what_was_pushed(
    common: SampleProject, registry: RealRegistry, repository: str, address: str
) -> None:
    push(common, f"{registry.host}/{repository}:x")
    name = f"{registry.host}/{repository}:x"
    docker(address, "pull", "--quiet", name)
    shown = json.loads(docker(address, "image", "inspect", name))[0]
    assert shown["Id"] == common.first["images"][0]["image_id"]
    assert shown["RepoDigests"] == [
        f"{registry.host}/{repository}@{common.first['images'][0]['manifest']}"
    ]
    docker(address, "rmi", name)


@pytest.mark.engine
def test_27_no_engine(common: SampleProject, tmp_path: Path) -> None:
    done = run(common, "load", "demo", "--engine", f"unix://{tmp_path}/none")
    assert done.returncode == 3
    assert done.stderr == (
        f"error: cannot reach a Docker engine at unix://{tmp_path}/none: there is no such socket\n"
        "  help: start the engine, or name another with --engine URL or DOCKER_HOST\n"
    )
