"""A built tree, read back from its records and the store alone.

The records say which wheel, which files each node changed and which sources it took; their contents
are in the store, by digest. So a tree can be looked into whatever the project's files say by now,
and whichever commit it was built from.
"""

from __future__ import annotations

from typing import NamedTuple

from hq.app.layertar import content, open_tar
from hq.evidence.records import Records
from hq.model.action import ActionResult, from_json
from hq.model.digest import BlobRef, Digest
from hq.model.errors import UsageError
from hq.model.ports import BlobMissing
from hq.model.tree import Entry, merge
from hq.store.disk import DiskStore
from hq.wheels.content import extract
from hq.wheels.index import WheelIndex


class Content(NamedTuple):
    """A file's kind (``f``, ``x``, ``l``) and bytes."""

    kind: str
    data: bytes


class Generated(NamedTuple):
    """A file that a layer writes about itself: RECORD, or the list of the layer's own files."""

    layer: str
    data: bytes


class RecordedTree:
    """The files of one build. ``writers``: the nodes that change files, in the graph's order."""

    def __init__(self, records: Records, disk: DiskStore) -> None:
        self.records = records
        self.disk = disk
        self.results: dict[str, ActionResult] = {
            name: from_json(record.result) for name, record in records.items()
        }
        self.wheel = _wheel_of(records)
        self.writers = [name for name, result in self.results.items() if result.delta]
        self._deltas = {name: dict(self.results[name].delta) for name in self.writers}
        self._index: WheelIndex | None = None

    @property
    def wheel_file(self) -> str:
        """The wheel's file name."""
        return str(self.records[self.wheel].params["file"])

    def index(self) -> WheelIndex:
        """The wheel's members."""
        if self._index is None:
            ref = self.results[self.wheel].blobs["index"]
            self._index = WheelIndex.decode(self.blob(ref, "the wheel's index"))
        return self._index

    def files(self) -> dict[str, Entry]:
        """What stands in the tree after every node, by path, sorted."""
        files: dict[str, Entry | None] = {
            member.path: Entry(member.kind, member.digest, member.size) for member in self.index()
        }
        files |= merge(self.results[name].delta for name in self.writers)
        return {path: entry for path, entry in sorted(files.items()) if entry is not None}

    def before(self, rank: int, path: str) -> tuple[int, Entry | None]:
        """What stands at ``path`` before the writer of ``rank``, and the writer it is from.

        The writer is -1 for the wheel.
        """
        for earlier in range(rank - 1, -1, -1):
            delta = self._deltas[self.writers[earlier]]
            if path in delta:
                return earlier, delta[path]
        member = self.index().get(path)
        if member is None:
            return -1, None
        return -1, Entry(member.kind, member.digest, member.size)

    def read(self, rank: int, path: str) -> Content | None:
        """The file at ``path`` before the writer of ``rank``. Raises ``UsageError``."""
        writer, entry = self.before(rank, path)
        if entry is None:
            return None
        member = self.index().get(path) if writer < 0 else None
        if member is None:
            return Content(entry.kind, self.blob(BlobRef(entry.digest, entry.size), path))
        try:
            with self.disk.open(self.results[self.wheel].blobs["wheel"]) as reader:
                return Content(entry.kind, extract(reader, member, wheel=self.wheel_file))
        except BlobMissing:
            raise _gone(self.wheel_file) from None

    def last(self, path: str) -> Content | None:
        """The file as the last node left it."""
        return self.read(len(self.writers), path)

    def generated(self, path: str) -> Generated | None:
        """The file at ``path`` if a layer of changes writes it; then it is in no node's delta."""
        if ".dist-info/" not in path:
            return None
        for name in reversed(self.results):
            record = self.records[name]
            if record.kind != "layer" or record.params.get("layer") == "wheel":
                continue
            wanted = f"{str(record.params['prefix']).strip('/')}/{path}".lstrip("/")
            with self.disk.open(self.results[name].blobs["blob"]) as blob, open_tar(blob) as tar:
                for member in tar:
                    if member.name == wanted and not self._is_changed(path):
                        return Generated(name, content(tar, member))
        return None

    def _is_changed(self, path: str) -> bool:
        return any(path in delta for delta in self._deltas.values())

    def source(self, node: str, name: str) -> bytes:
        """A source file of a node by its input's name. Raises ``UsageError``."""
        record = self.records[node]
        digest = Digest.parse(record.inputs[name])
        size = self.disk.size_of(digest)
        if size is None:
            raise _gone(record.what[name])
        return self.blob(BlobRef(digest, size), record.what[name])

    def blob(self, ref: BlobRef, what: str) -> bytes:
        """A blob. Raises ``UsageError`` that names ``what`` when it is not in the store."""
        try:
            return self.disk.read(ref)
        except BlobMissing:
            raise _gone(what) from None


def _gone(what: str) -> UsageError:
    return UsageError(f"{what} is not in the store any more", hint="run hq build again")


def _wheel_of(records: Records) -> str:
    """The wheel that the patches are for: the one that ``layer:wheel`` holds."""
    files = {
        str(record.params["file"]): name
        for name, record in records.items()
        if record.kind == "wheel"
    }
    for record in records.values():
        if record.kind == "layer" and record.params.get("layer") == "wheel":
            name = files.get(str(record.params.get("file")))
            if name is not None:
                return name
    raise UsageError("the records name no patched wheel")


def prefix_of(records: Records) -> str:
    """Where the package stands in the image."""
    for record in records.values():
        if record.kind == "layer":
            return str(record.params.get("prefix", ""))
    return ""
