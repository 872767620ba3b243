"""Indexes of small packages, made through the reader, and the content of their files."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from helpers.debmaker import Member, control, deb, md5sums
from helpers.memory import MemoryBlobs, MemoryBytes
from hq.debian.package import Package, read_package
from hq.debian.root import Root, merge


class Made(NamedTuple):
    """A package and its pack."""

    package: Package
    pack: bytes


def make(
    name: str,
    members: Sequence[Member] = (),
    *,
    version: str = "1.0",
    arch: str = "amd64",
    files: dict[str, bytes] | None = None,
    sums: bool = True,
    **fields: str,
) -> Made:
    """A package of ``members``; ``fields`` as in ``helpers.debmaker.control``."""
    held = {"md5sums": md5sums(members)} if sums else {}
    data = deb(
        members, text=control(name, version, arch, **fields), files={**held, **(files or {})}
    )
    store = MemoryBlobs()
    with store.create() as writer:
        package = read_package(MemoryBytes(data), writer, f"{name}.deb")
        return Made(package, store.read(writer.commit()))


def rooted(*made: Made) -> Root:
    return merge([each.package for each in made])


class Reader:
    """Reads files of a root."""

    def __init__(self, root: Root, made: Sequence[Made]) -> None:
        self._root = root
        self._packs = {each.package.name: each.pack for each in made}

    def __call__(self, path: str) -> bytes:
        item, package = self._root[path]
        pack = self._packs[package]
        return b"".join(
            zlib.decompress(pack[part.offset : part.offset + part.csize], -15)
            for part in item.streams
        )
