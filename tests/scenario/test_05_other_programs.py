"""Other programs take the images: skopeo, umoci, gzip and its relatives, a Docker engine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.engine import docker, engine
from helpers.project import SampleProject
from helpers.realproject import RealProject, real_wheel
from helpers.unpack import Found, blob, config, disk_tree, image_tree, manifest
from hq.oci.layout import check_layout

COMPRESSIONS = ("gzip", "none", "zstd")
DECODERS = ("gzip -dc", "pigz -dc", "igzip -dc")


def need(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def declare(project: SampleProject, compression: str) -> None:
    """Sets the image's compression."""
    lines = project.read("images/demo.toml").splitlines()
    kept = [line for line in lines if not line.startswith("compression")]
    kept.insert(2, f'compression = "{compression}"')
    project.write("images/demo.toml", "\n".join(kept) + "\n")


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], Path]]:
    """For each compression what the build said, and a layout."""
    project = SampleProject(tmp_path_factory.mktemp("programs"))
    project.supply()
    found = {}
    for compression in COMPRESSIONS:
        declare(project, compression)
        output = project.root / compression
        document = project.build("--output", str(output))
        found[compression] = (document, output / "demo-1.0")
    return found


Layouts = dict[str, tuple[dict[str, Any], Path]]


def test_01_one_image_id_three_manifests(layouts: Layouts) -> None:
    images = [document["images"][0] for document, _ in layouts.values()]
    assert len({image["image_id"] for image in images}) == 1
    assert len({image["manifest"] for image in images}) == 3


def test_02_only_layers_and_the_image_are_built_for_another_compression(layouts: Layouts) -> None:
    for compression in ("none", "zstd"):
        built = layouts[compression][0]["built"]
        assert built
        assert all(name.startswith(("layer:", "image:")) for name in built)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_03_the_layout_is_valid(layouts: Layouts, compression: str) -> None:
    _, layout = layouts[compression]

    def read(path: str) -> bytes | None:
        file = layout / path
        return file.read_bytes() if file.is_file() else None

    assert check_layout(read, deep=True) == []
    kinds = {layer["mediaType"].rpartition(".")[2] for layer in manifest(layout)["layers"]}
    assert kinds == {{"gzip": "tar+gzip", "none": "tar", "zstd": "tar+zstd"}[compression]}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_04_the_tree_is_the_same(layouts: Layouts, compression: str) -> None:
    assert image_tree(layouts[compression][1]) == image_tree(layouts["gzip"][1])


def test_05_the_configuration_is_whole(layouts: Layouts) -> None:
    document, layout = layouts["gzip"]
    found = config(layout)
    image = document["images"][0]
    data = blob(layout, image["image_id"]).read_bytes()
    assert "sha256:" + hashlib.sha256(data).hexdigest() == image["image_id"]
    assert found["architecture"] == "amd64"
    assert found["os"] == "linux"
    assert found["config"] == {"Env": ["PYTHONPATH=/opt/demo"]}
    assert found["rootfs"]["type"] == "layers"
    assert [step["created_by"] for step in found["history"]] == [
        "hq layer wheel",
        "hq layer series",
        "hq layer envs",
        "hq layer over",
    ]
    assert manifest(layout)["annotations"] == {
        "org.opencontainers.image.title": "demo",
        "org.opencontainers.image.version": "1.0",
        "org.opencontainers.image.description": "demo 1.0, patched",
    }


@pytest.mark.system
@pytest.mark.parametrize("command", DECODERS)
def test_06_spliced_layers_decode_to_their_diff_ids(layouts: Layouts, command: str) -> None:
    need(command.split(maxsplit=1)[0])
    decodes(layouts["gzip"][1], command)


def decodes(layout: Path, command: str) -> None:
    """Every layer through a program, hashed as it comes."""
    layers = manifest(layout)["layers"]
    for layer, expected in zip(layers, config(layout)["rootfs"]["diff_ids"], strict=True):
        whole = hashlib.sha256()
        with (
            blob(layout, layer["digest"]).open("rb") as source,
            subprocess.Popen(command.split(), stdin=source, stdout=subprocess.PIPE) as decoder,
        ):
            assert decoder.stdout is not None
            while piece := decoder.stdout.read(1 << 20):
                whole.update(piece)
        assert decoder.returncode == 0
        assert "sha256:" + whole.hexdigest() == expected


@pytest.mark.system
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_07_skopeo_inspects_and_copies(layouts: Layouts, tmp_path: Path, compression: str) -> None:
    skopeo = need("skopeo")
    document, layout = layouts[compression]
    source = f"oci:{layout}:1.0"
    shown = subprocess.run([skopeo, "inspect", source], check=True, capture_output=True)
    seen = json.loads(shown.stdout)
    assert seen["Digest"] == document["images"][0]["manifest"]
    assert seen["Env"] == ["PYTHONPATH=/opt/demo"]
    copy = [skopeo, "--insecure-policy", "copy", "--quiet", source]
    subprocess.run([*copy, f"dir:{tmp_path}/copy"], check=True, capture_output=True)
    assert len(list((tmp_path / "copy").iterdir())) == 7
    if compression == "zstd":
        return  # docker's own archive format knows no zstd
    subprocess.run([*copy, f"docker-archive:{tmp_path}/a.tar:x:1"], check=True, capture_output=True)
    with tarfile.open(tmp_path / "a.tar") as archive:
        (entry,) = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
    # The same image id in docker's format.
    assert f"sha256:{entry['Config'].removesuffix('.json')}" == document["images"][0]["image_id"]


@pytest.mark.system
@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_08_umoci_unpacks_the_tree(layouts: Layouts, tmp_path: Path, compression: str) -> None:
    umoci = need("umoci")
    _, layout = layouts[compression]
    command = [umoci, "unpack", "--rootless", "--image", f"{layout}:1.0", str(tmp_path / "bundle")]
    subprocess.run(command, check=True, capture_output=True)
    assert disk_tree(tmp_path / "bundle/rootfs") == image_tree(layout)[0]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    need("docker")
    need("skopeo")
    with engine() as found:
        yield found


def load(address: str, layout: Path, tag: str, name: str) -> None:
    """Gives an image to the engine."""
    source, target = f"oci:{layout}:{tag}", f"docker-daemon:{name}:{tag}"
    command = ["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-daemon-host", address]
    subprocess.run([*command, source, target], check=True, capture_output=True)


def engine_tree(address: str, image: str) -> dict[str, Found]:
    """The files of an image as the engine has them."""
    container = docker(address, "create", image, "/none").decode().strip()
    try:
        data = docker(address, "export", container)
    finally:
        docker(address, "rm", container)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {
            member.name: Found.of(
                tar.extractfile(member).read(),  # type: ignore[union-attr]
                bool(member.mode & 0o100),
            )
            for member in tar
            if member.isreg() and not member.name.startswith(("dev/", "etc/", ".dockerenv"))
        }


@pytest.mark.engine
@pytest.mark.system
@pytest.mark.slow
def test_09_an_engine_loads_it(address: str, layouts: Layouts) -> None:
    document, layout = layouts["gzip"]
    load(address, layout, "1.0", "hq-demo")
    found = json.loads(docker(address, "image", "inspect", "hq-demo:1.0"))[0]
    assert found["Id"] == document["images"][0]["image_id"]
    assert found["RootFS"]["Layers"] == config(layout)["rootfs"]["diff_ids"]
    assert engine_tree(address, "hq-demo:1.0") == image_tree(layout)[0]


@pytest.fixture(scope="module")
def real() -> Iterator[tuple[dict[str, Any], Path]]:
    real_wheel("0.29.0")
    with tempfile.TemporaryDirectory(prefix="hq-real-") as folder:
        project = RealProject(Path(folder))
        yield project.build(), project.layout("vllm", "0.29.0")


@pytest.mark.wheel
@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("command", DECODERS)
def test_10_the_real_layers_decode(real: tuple[dict[str, Any], Path], command: str) -> None:
    need(command.split(maxsplit=1)[0])
    decodes(real[1], command)


@pytest.mark.wheel
@pytest.mark.slow
def test_11_the_real_wheel_s_layer_is_as_small_as_the_wheel(
    real: tuple[dict[str, Any], Path],
) -> None:
    wheel = real_wheel("0.29.0").stat().st_size
    layer = manifest(real[1])["layers"][0]["size"]
    assert layer < wheel * 1.01


@pytest.mark.wheel
@pytest.mark.engine
@pytest.mark.system
@pytest.mark.slow
def test_12_an_engine_loads_the_real_image(address: str, real: tuple[dict[str, Any], Path]) -> None:
    document, layout = real
    load(address, layout, "0.29.0", "hq-vllm")
    found = json.loads(docker(address, "image", "inspect", "hq-vllm:0.29.0"))[0]
    assert found["Id"] == document["images"][0]["image_id"]


def test_13_a_plain_gzip_reader_reads_it(layouts: Layouts) -> None:
    _, layout = layouts["gzip"]
    for layer, expected in zip(
        manifest(layout)["layers"], config(layout)["rootfs"]["diff_ids"], strict=True
    ):
        data = gzip.decompress(blob(layout, layer["digest"]).read_bytes())
        assert "sha256:" + hashlib.sha256(data).hexdigest() == expected
