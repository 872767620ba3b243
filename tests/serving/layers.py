"""Layers made by hand, and a finished image layout with one of its layers changed."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hq.model.digest import Digest


class Entry(NamedTuple):
    """An entry of a layer. ``kind``: tarfile's type; ``data`` of a file, ``target`` of a link."""

    name: str
    kind: bytes = tarfile.REGTYPE
    data: bytes = b""
    target: str = ""
    mode: int = 0o644


def make_tar(entries: Sequence[Entry]) -> bytes:
    """A tar, with the names as they are."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.mode, info.linkname = entry.kind, entry.mode, entry.target
            info.size = len(entry.data)
            tar.addfile(info, io.BytesIO(entry.data))
    return out.getvalue()


def read_tar(data: bytes) -> list[Entry]:
    """The entries of a tar."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [_entry(tar, info) for info in tar]


def _entry(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Entry:
    file = tar.extractfile(info) if info.isreg() else None
    data = file.read() if file else b""
    return Entry(info.name, info.type, data, info.linkname, info.mode)


class Layout:
    """An image layout of one image that is changed in place and stays consistent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _blob(self, digest: str) -> Path:
        return self.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def _read(self, digest: str) -> Any:
        return json.loads(self._blob(digest).read_bytes())

    def _put(self, data: bytes) -> dict[str, Any]:
        digest = Digest.of(data)
        self._blob(digest).write_bytes(data)
        return {"digest": digest, "size": len(data)}

    def change(self, layer: int, change: Callable[[list[Entry]], list[Entry]]) -> None:
        """Replaces the entries of a layer; every digest above follows."""
        index = json.loads((self.folder / "index.json").read_bytes())
        manifest = self._read(index["manifests"][0]["digest"])
        config = self._read(manifest["config"]["digest"])
        row = manifest["layers"][layer]
        tar = make_tar(change(read_tar(gzip.decompress(self._blob(row["digest"]).read_bytes()))))
        row |= self._put(gzip.compress(tar, 1, mtime=0))
        config["rootfs"]["diff_ids"][layer] = Digest.of(tar)
        manifest["config"] |= self._put(json.dumps(config).encode())
        index["manifests"][0] |= self._put(json.dumps(manifest).encode())
        (self.folder / "index.json").write_bytes(json.dumps(index).encode())
