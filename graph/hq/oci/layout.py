"""Checks an OCI image layout: everything is there, and is what its descriptor says.

Written from the specification (image-layout.md, descriptor.md, manifest.md, config.md), not from
the code that writes layouts, so that tests can hold one against the other. All problems are
reported, not only the first.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from hq.model.digest import Digest, DigestError
from hq.model.errors import Location, Problem

Read = Callable[[str], bytes | None]
"""A file of the layout by its ``/``-separated path, or ``None`` when it is not there."""

_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_DEPTH: Final = 8
_CHUNK: Final = 64 << 10


def check_layout(read: Read, *, deep: bool = True) -> list[Problem]:
    """What is wrong with a layout, in the order in which it is met; nothing when all is well.

    ``deep`` also decompresses every layer and compares it with its DiffID. Blobs are read whole,
    one at a time.
    """
    check = _Check(read, deep=deep)
    check.layout()
    return check.problems


class _Check:
    """One check of one layout."""

    def __init__(self, read: Read, *, deep: bool) -> None:
        self.problems: list[Problem] = []
        self._read = read
        self._deep = deep

    def _report(self, file: str, message: str) -> None:
        self.problems.append(Problem(Location(file), message))

    def layout(self) -> None:
        marker = self._read("oci-layout")
        if marker is None:
            self._report("oci-layout", "the file is missing")
        elif _object(marker).get("imageLayoutVersion") != "1.0.0":
            self._report("oci-layout", "expected imageLayoutVersion '1.0.0'")
        index = self._read("index.json")
        if index is None:
            self._report("index.json", "the file is missing")
        else:
            self._index("index.json", index, 0)

    def _index(self, file: str, data: bytes, depth: int) -> None:
        document = self._document(file, data)
        for place, entry in self._entries(file, document, "manifests"):
            found = self._blob(file, place, entry)
            if found is None:
                continue
            path, content = found
            media = entry.get("mediaType")
            if media == _MANIFEST:
                self._manifest(path, content)
            elif media == _INDEX and depth < _DEPTH:
                self._index(path, content, depth + 1)
            else:
                self._report(file, f"{place}: unexpected media type {media!r}")

    def _document(self, file: str, data: bytes) -> Mapping[str, object]:
        document = _object(data)
        if document.get("schemaVersion") != 2:
            self._report(file, "expected a JSON object with schemaVersion 2")
        return document

    def _entries(
        self, file: str, document: Mapping[str, object], key: str
    ) -> Iterator[tuple[str, Mapping[str, object]]]:
        entries = document.get(key)
        if not isinstance(entries, list):
            self._report(file, f"expected an array {key!r}")
            return
        for number, entry in enumerate(entries):
            if isinstance(entry, dict):
                yield f"{key}[{number}]", entry
            else:
                self._report(file, f"{key}[{number}]: expected a descriptor")

    def _blob(self, file: str, place: str, entry: Mapping[str, object]) -> tuple[str, bytes] | None:
        """The path and the content of what a descriptor names, if it is there and right."""
        try:
            digest = Digest.parse(str(entry.get("digest")))
        except DigestError as error:
            self._report(file, f"{place}: {error}")
            return None
        path = f"blobs/sha256/{digest.hex}"
        data = self._read(path)
        if data is None:
            self._report(file, f"{place}: {path} is missing")
            return None
        if entry.get("size") != len(data):
            self._report(
                file, f"{place}: expected {entry.get('size')} bytes, {path} has {len(data)}"
            )
        if Digest.of(data) != digest:
            self._report(path, f"the content has another digest: {Digest.of(data)}")
            return None
        return path, data

    def _manifest(self, file: str, data: bytes) -> None:
        document = self._document(file, data)
        if document.get("mediaType") != _MANIFEST:
            self._report(file, f"unexpected media type {document.get('mediaType')!r}")
        diff_ids: list[object] | None = None
        config = document.get("config")
        if isinstance(config, dict):
            found = self._blob(file, "config", config)
            if found is not None and config.get("mediaType") == _CONFIG:
                diff_ids = self._config(*found)
        else:
            self._report(file, "expected a descriptor 'config'")
        layers = list(self._entries(file, document, "layers"))
        if diff_ids is not None and len(diff_ids) != len(layers):
            self._report(file, f"{len(layers)} layers, but {len(diff_ids)} DiffIDs")
            diff_ids = None
        for number, (place, entry) in enumerate(layers):
            blob = self._blob(file, place, entry)
            if blob is not None and diff_ids is not None and self._deep:
                self._layer(file, place, entry, blob[1], diff_ids[number])

    def _config(self, file: str, data: bytes) -> list[object] | None:
        document = _object(data)
        for key in ("architecture", "os"):
            if not isinstance(document.get(key), str):
                self._report(file, f"expected a text {key!r}")
        rootfs = document.get("rootfs")
        diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
        if not isinstance(rootfs, dict) or rootfs.get("type") != "layers":
            self._report(file, "expected a rootfs of type 'layers'")
        if not isinstance(diff_ids, list):
            self._report(file, "expected an array rootfs.diff_ids")
            return None
        history = document.get("history")
        if isinstance(history, list):
            filled = [h for h in history if isinstance(h, dict) and not h.get("empty_layer")]
            if len(filled) != len(diff_ids):
                self._report(
                    file, f"the history has {len(filled)} layers, there are {len(diff_ids)}"
                )
        return diff_ids

    def _layer(
        self, file: str, place: str, entry: Mapping[str, object], data: bytes, diff_id: object
    ) -> None:
        media = entry.get("mediaType")
        whole = hashlib.sha256()
        try:
            for piece in _unpacked(str(media), data):
                whole.update(piece)
        except (_Undecodable, zlib.error) as error:
            self._report(file, f"{place}: cannot be decompressed: {error}")
            return
        found = f"sha256:{whole.hexdigest()}"
        if found != diff_id:
            self._report(file, f"{place}: expected DiffID {diff_id}, found {found}")


class _Undecodable(Exception):
    """A layer that is not what its media type says."""


def _object(data: bytes) -> Mapping[str, object]:
    """The JSON object in ``data``; an empty one for anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _unpacked(media: str, data: bytes) -> Iterable[bytes]:
    if media == _LAYER:
        return [data]
    if media == _LAYER + "+gzip":
        return _gunzip(data)
    if media == _LAYER + "+zstd":
        return _unzstd(data)
    raise _Undecodable(f"unknown media type {media!r}")


def _gunzip(data: bytes) -> Iterator[bytes]:
    """All members, one after the other (RFC 1952, 2.2)."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        member = zlib.decompressobj(31)
        while not member.eof:
            piece = view[at : at + _CHUNK]
            if not piece:
                raise _Undecodable("the gzip file is cut off")
            at += len(piece)
            yield member.decompress(piece)
        at -= len(member.unused_data)


def _unzstd(data: bytes) -> Iterator[bytes]:
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    view = memoryview(data)
    try:
        for at in range(0, len(view), _CHUNK):
            yield frame.decompress(view[at : at + _CHUNK])
    except zstandard.ZstdError as error:
        raise _Undecodable(str(error)) from None
    if not frame.eof or frame.unused_data:
        raise _Undecodable("expected exactly one zstd frame")
