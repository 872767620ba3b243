"""An image's tree, read out of its layout with nothing but the standard library and zstandard."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast


class Found(NamedTuple):
    """A regular file: whether it is executable, the SHA-256 of its content, its length."""

    executable: bool
    sha256: str
    size: int

    @classmethod
    def of(cls, data: bytes, executable: bool = False) -> Found:
        return cls(executable, hashlib.sha256(data).hexdigest(), len(data))


Tree = dict[str, Found]


def document(layout: Path, digest: str) -> dict[str, Any]:
    """A JSON blob of the layout."""
    return cast("dict[str, Any]", json.loads(blob(layout, digest).read_bytes()))


def blob(layout: Path, digest: str) -> Path:
    """Where a blob is."""
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def manifest(layout: Path) -> dict[str, Any]:
    """The manifest of the one image in the layout."""
    (entry,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    return document(layout, entry["digest"])


def config(layout: Path) -> dict[str, Any]:
    """Its configuration."""
    return document(layout, manifest(layout)["config"]["digest"])


def open_layer(layout: Path, descriptor: dict[str, Any]) -> BinaryIO:
    """The layer's tar."""
    path = blob(layout, descriptor["digest"])
    kind = descriptor["mediaType"].rpartition(".")[2]
    if kind == "tar+gzip":
        return cast("BinaryIO", gzip.open(path))
    if kind == "tar+zstd":
        import zstandard

        return cast("BinaryIO", zstandard.ZstdDecompressor().stream_reader(path.open("rb")))
    return path.open("rb")


def members(layout: Path, descriptor: dict[str, Any]) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The layer's members with their content."""
    with open_layer(layout, descriptor) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            yield member, file.read() if file is not None else b""


def layer_tree(layout: Path, name: str) -> Tree:
    """The files of one layer, by its name in the history."""
    return {
        member.name: Found.of(data, bool(member.mode & 0o100))
        for member, data in members(layout, layer_of(layout, name))
        if member.isreg() and "/.wh." not in member.name
    }


def layer_of(layout: Path, name: str) -> dict[str, Any]:
    """The descriptor of a layer."""
    names = [step["created_by"].rpartition(" ")[2] for step in config(layout)["history"]]
    return cast("dict[str, Any]", manifest(layout)["layers"][names.index(name)])


def image_tree(layout: Path, keep: tuple[str, ...] = ()) -> tuple[Tree, dict[str, bytes]]:
    """The whole tree, and the content of the files whose paths end like one of ``keep``."""
    tree: Tree = {}
    kept: dict[str, bytes] = {}
    for descriptor in manifest(layout)["layers"]:
        for member, data in members(layout, descriptor):
            folder, _, name = member.name.rpartition("/")
            if name.startswith(".wh."):
                gone = f"{folder}/{name.removeprefix('.wh.')}".lstrip("/")
                assert name != ".wh..wh..opq"
                for path in [p for p in tree if p == gone or p.startswith(gone + "/")]:
                    del tree[path]
            elif member.isreg():
                tree[member.name] = Found.of(data, bool(member.mode & 0o100))
                if member.name.endswith(keep):
                    kept[member.name] = data
            else:
                assert member.isdir(), member.name
    return tree, kept


def disk_tree(folder: Path) -> Tree:
    """Every file beneath a folder."""
    tree: Tree = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            assert not path.is_symlink()
            executable = bool(path.stat().st_mode & 0o100)
            tree[str(path.relative_to(folder))] = Found.of(path.read_bytes(), executable)
    return tree


def wheel_tree(wheel: Path) -> Tree:
    """A wheel's files by path."""
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        return {
            info.filename: Found.of(archive.read(info), bool(info.external_attr >> 16 & 0o100))
            for info in archive.infolist()
            if not info.is_dir()
        }
