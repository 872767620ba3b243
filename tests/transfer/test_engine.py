"""Loading into a real Docker engine: only what it lacks, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from helpers.engine import docker, engine
from helpers.memory import MemoryBlobs
from hq.model.digest import BlobRef
from hq.model.errors import BuildError, HqError, InfrastructureError, UsageError
from hq.oci.arrange import File
from hq.oci.encode import Compression
from hq.oci.image import Layer, config, manifest
from hq.oci.layer import write_layer
from hq.transfer import engine as engine_module
from hq.transfer.engine import Loaded, load_image

pytestmark = pytest.mark.engine
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with engine() as found:
        yield found


@pytest.fixture(autouse=True)
def _no_images(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "address" in request.fixturenames:
        host = request.getfixturevalue("address")
        for tag in docker(host, "images", "--format", "{{.Repository}}:{{.Tag}}").split():
            if tag.startswith(b"hq-test"):
                docker(host, "rmi", "--force", tag.decode())


def image(
    store: MemoryBlobs, *texts: str, compression: Compression = "gzip", note: str = ""
) -> BlobRef:
    """An image of one file a layer; ``note`` tells tests apart."""
    layers = []
    for number, text in enumerate(texts):
        with store.create() as writer:
            data = f"{note}{text}".encode()
            items = [File(f"file{number}", "f", lambda data=data: data)]  # type: ignore[misc]
            made = write_layer(items, writer, compression=compression, prefix="opt")
        layers.append(Layer(made.diff_id, made.blob, made.media_type, f"layer {number}"))
    made_config = config(layers)
    store.put(made_config.data)
    return store.put(manifest(made_config, layers).data)


def load(
    address: str, store: MemoryBlobs, ref: BlobRef, *tags: str, environment: Mapping[str, str] = {}
) -> Loaded:
    return load_image(store, ref, tags or ("hq-test:1",), engine=address, environment=environment)


def counts(loaded: Loaded) -> tuple[int, int, bool]:
    return loaded.sent, loaded.kept, loaded.already


def inspected(address: str, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(docker(address, "image", "inspect", name))[0]
    return found


@pytest.mark.parametrize("compression", ["gzip", "none", "zstd"])
def test_the_engine_has_the_image_by_its_id(address: str, compression: Compression) -> None:
    store = MemoryBlobs()
    ref = image(store, "a", "b", compression=compression, note=compression)
    loaded = load(address, store, ref, "hq-test:1", "hq-test-other:x")
    for name in (loaded.image_id, "hq-test:1", "hq-test-other:x"):
        assert inspected(address, name)["Id"] == loaded.image_id
    assert counts(loaded) == (2, 0, False)


def test_what_the_engine_has_is_not_sent(address: str) -> None:
    store = MemoryBlobs()
    first = load(address, store, image(store, "a", "b", "c", note="n1"))
    assert counts(first) == (3, 0, False)
    again = load(address, store, image(store, "a", "b", "c", note="n1"), "hq-test:2")
    assert counts(again) == (0, 3, True)
    assert again.bytes_sent == 0
    # The tag's own image tells which layers are there.
    changed = load(address, store, image(store, "a", "b", "C", note="n1"))
    assert counts(changed) == (1, 2, False)
    assert inspected(address, "hq-test:1")["Id"] == changed.image_id


def test_a_load_that_has_nothing_to_do_needs_no_sdk(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryBlobs()
    ref = image(store, "a", "b", note="glance")
    tags = ("hq-test:one", "hq-test/with/folders:two")
    first = load(address, store, ref, *tags)
    by_sdk = load(address, store, ref, "hq-test:one", "hq-test:new")
    assert by_sdk.already
    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "_Engine", None)
        again = load(address, store, ref, *tags)
        by_environment = load("", store, ref, *tags, environment={"DOCKER_HOST": address})
    assert again == by_environment == first._replace(sent=0, kept=2, bytes_sent=0, already=True)
    assert again.engine == by_sdk.engine


def test_a_tag_that_was_moved_is_set_again(address: str) -> None:
    store = MemoryBlobs()
    one, two = image(store, "a", note="moved"), image(store, "b", note="moved")
    load(address, store, one, "hq-test:m")
    load(address, store, two, "hq-test:m")
    assert load(address, store, one, "hq-test:m").bytes_sent == 0
    configuration = json.loads(store.read(one))["config"]["digest"]
    assert inspected(address, "hq-test:m")["Id"] == configuration


def test_layers_of_an_image_under_another_name(address: str) -> None:
    store = MemoryBlobs()
    load(address, store, image(store, "a", "b", "c", note="n2"))
    other = load(address, store, image(store, "a", "B", "c", note="n2"), "hq-test-new:1")
    assert counts(other) == (2, 1, False)


def test_a_guess_that_was_too_high(address: str) -> None:
    store = MemoryBlobs()
    load(address, store, image(store, "a", "b", note="n3"))
    # Nothing bears this tag, so at first nothing is sent; the engine has no layer of it.
    other = load(address, store, image(store, "x", "y", note="n3"), "hq-test-new:1")
    assert counts(other) == (2, 0, False)


def test_one_layer_twice(address: str) -> None:
    store = MemoryBlobs()
    with store.create() as writer:
        made = write_layer([File("f", "f", lambda: b"twice")], writer, prefix="opt")
    layer = Layer(made.diff_id, made.blob, made.media_type, "x")
    made_config = config([layer, layer])
    store.put(made_config.data)
    ref = store.put(manifest(made_config, [layer, layer]).data)
    assert counts(load(address, store, ref)) == (2, 0, False)


# What goes wrong.


def failure(kind: type[HqError], address: str) -> HqError:
    store = MemoryBlobs()
    with pytest.raises(kind) as caught:
        load(address, store, image(store, "a"))
    return caught.value


def test_a_damaged_layer_is_not_loaded(address: str) -> None:
    store = MemoryBlobs()
    ref = image(store, "a" * 5000, note="n4")
    layer = json.loads(store.read(ref))["layers"][0]
    store.data[layer["digest"]] = bytes(layer["size"])
    with pytest.raises(BuildError) as caught:
        load(address, store, ref)
    assert caught.value.render() == (
        f"error: a blob of the image is damaged: {layer['digest']}\n"
        f"  size: {layer['size']} bytes\n"
        "  help: build the image again; 'hq store verify' finds damage in the store"
    )
    assert docker(address, "images", "--quiet", "hq-test") == b""


def test_a_layer_that_is_not_what_the_configuration_says(address: str) -> None:
    store = MemoryBlobs()
    ref = image(store, "a", note="n5")
    document = json.loads(store.read(ref))
    other = json.loads(store.read(image(store, "b", note="n5")))
    document["layers"] = other["layers"]
    lying = store.put(json.dumps(document).encode())
    with pytest.raises(InfrastructureError) as caught:
        load(address, store, lying)
    assert caught.value.message.startswith(
        "the engine cannot load the image: invalid diffID for layer 0: expected "
    )
    assert docker(address, "images", "--quiet", "hq-test") == b""


def test_no_engine_there(tmp_path: Path) -> None:
    error = failure(InfrastructureError, f"unix://{tmp_path}/socket")
    assert error.render() == (
        f"error: cannot reach a Docker engine at unix://{tmp_path}/socket: "
        "there is no such socket\n"
        "  help: start the engine, or name another with --engine URL or DOCKER_HOST"
    )


def test_nobody_listens() -> None:
    error = failure(InfrastructureError, "tcp://127.0.0.1:1")
    assert error.message == (
        "cannot reach a Docker engine at tcp://127.0.0.1:1: connection refused"
    )


@pytest.mark.parametrize("text", ["nonsense://x", "unix:/", "/var/run/docker.sock", "tcp://"])
def test_no_address(text: str) -> None:
    error = failure(UsageError, text)
    assert error.render() == (
        f"error: {text!r} is no address of a Docker engine\n"
        "  help: give unix:///PATH, tcp://HOST:PORT or ssh://HOST"
    )


def test_the_engine_of_the_environment(address: str, tmp_path: Path) -> None:
    store = MemoryBlobs()
    ref = image(store, "a", note="n6")
    assert load("", store, ref, environment={"DOCKER_HOST": address}).engine.endswith(address)
    _context(tmp_path, address)
    environment = {"DOCKER_CONFIG": str(tmp_path)}
    assert load("", store, ref, environment=environment).engine.endswith(address)


def _context(folder: Path, address: str) -> None:
    """Makes ``mine`` Docker's current context."""
    subprocess.run(
        ["docker", "context", "create", "mine", "--docker", f"host={address}"],
        check=True,
        capture_output=True,
        env={"DOCKER_CONFIG": str(folder), "PATH": os.environ["PATH"]},
    )
    (folder / "config.json").write_text('{"currentContext": "mine"}')


KILLED = """
import sys, os
sys.path[:0] = [sys.argv[1] + "/graph", sys.argv[1] + "/tests"]
from transfer.test_engine import image
from helpers.memory import MemoryBlobs
from hq.transfer.engine import load_image
store = MemoryBlobs()
ref = image(store, os.urandom(6 << 20).hex(), compression="none", note="n7")
def progress(done, total):
    if done > total // 2:
        print("half", flush=True)
        sys.stdin.read()
load_image(store, ref, ["hq-test-killed:1"], engine=sys.argv[2], environment={}, progress=progress)
"""


def test_a_killed_load_leaves_nothing(address: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(ROOT), address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
    for _ in range(50):
        if docker(address, "images", "--quiet", "hq-test-killed") == b"":
            break
        time.sleep(0.1)
    assert docker(address, "images", "--quiet", "hq-test-killed") == b""
    store = MemoryBlobs()
    assert counts(load(address, store, image(store, "a", "b", note="n7"))) == (2, 0, False)
