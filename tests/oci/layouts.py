"""A small image in a layout, as a dictionary of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from helpers.memory import MemoryBlobs, MemoryBytes
from helpers.wheelmaker import make_wheel
from hq.oci.arrange import File, Item, Packed, Removed
from hq.oci.encode import COMPRESSIONS, Compression
from hq.oci.image import LAYOUT, Layer, Platform, RunConfig, blob_path, config, index, manifest
from hq.oci.layer import write_layer
from hq.wheels.reading import read_index

WHEEL = {
    "demo/__init__.py": b"VERSION = 1\n",
    "demo/data.bin": bytes(range(256)) * 3000,
    "demo/old.py": b"old\n",
    "demo/run.sh": b"#!/bin/sh\nexec true\n",
    "demo/\u00e9" + "n" * 120 + ".txt": b"long\n",
}


def layers_of(prefix: str = "opt/demo") -> list[list[Item]]:
    """A wheel, and above it a layer that changes one file, removes one and adds one."""
    reader = MemoryBytes(make_wheel(WHEEL, executables=["demo/run.sh"]))
    members = read_index(reader, project="demo", version="1.0")
    lower: list[Item] = [Packed(m.path, m, reader, "demo.whl") for m in members]
    upper: list[Item] = [
        File("demo/__init__.py", "f", lambda: b"VERSION = 2\n"),
        Removed("demo/old.py"),
        File("demo/new/tool", "x", lambda: b"#!/bin/sh\n"),
        File("demo/link", "l", lambda: b"run.sh"),
    ]
    return [lower, upper]


def expected_tree(prefix: str = "opt/demo") -> dict[str, bytes]:
    """What the image holds of the wheel's package and the layer above, links left out."""
    tree = {**WHEEL, "demo/__init__.py": b"VERSION = 2\n", "demo/new/tool": b"#!/bin/sh\n"}
    del tree["demo/old.py"]
    return {f"{prefix}/{path}": data for path, data in tree.items()}


def make_layout(compressions: Sequence[Compression] = COMPRESSIONS) -> dict[str, bytes]:
    """One image for each compression, in one layout."""
    files: dict[str, bytes] = {"oci-layout": LAYOUT}
    images = []
    store = MemoryBlobs()
    for compression in compressions:
        layers = []
        for number, items in enumerate(layers_of()):
            with store.create() as writer:
                made = write_layer(items, writer, compression=compression, prefix="opt/demo")
            layers.append(Layer(made.diff_id, made.blob, made.media_type, f"layer {number}"))
            files[blob_path(made.blob.digest)] = store.read(made.blob)
        run = RunConfig(env={"PYTHONPATH": "/opt/demo"}, entrypoint=("/opt/demo/demo/run.sh",))
        image_config = config(layers, run)
        image = manifest(image_config, layers)
        for document in (image_config, image):
            files[blob_path(document.ref.digest)] = document.data
        images.append((image, compression, Platform()))
    files["index.json"] = index(images).data
    return files


def write_files(files: dict[str, bytes], folder: Path) -> None:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
