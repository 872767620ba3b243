"""Writing a layer: one pass over its items gives the blob, its digest, and the DiffID.

The producer walks the arranged items, makes tar headers, and inflates wheel members chunk by chunk.
What comes out goes three ways: to the hash of the tar (the DiffID), to the hash of the member
(RECORD's claim), and, unless the encoder splices, to the encoder. With ``gzip`` the encoder gets
headers, changed files and the order to splice a member, and copies the wheel's own stream. So each
byte of a wheel is checked (stream length, CRC-32, size, SHA-256) in the pass that ships it, and a
lie in a wheel leaves no blob.

For more than a few files, producer, hashes and writer run in threads of their own (``lanes``). The
bytes written do not depend on that.

With ``known``, the DiffID that an earlier pass computed for the same items, a splicing encoder has
nothing left to inflate: the pass only copies. Its gzip members still state the CRC-32 of the index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from hq.model.digest import BlobRef, DiffId
from hq.model.errors import BuildError
from hq.model.ports import BlobWriter
from hq.model.tree import SYMLINK
from hq.oci.arrange import Item, Packed, Slot, arrange
from hq.oci.encode import MEDIA_TYPES, Compression, Encoder, encoder
from hq.oci.lanes import Direct, Failure, Lane, Queued
from hq.oci.tar import END, check_mtime, entry, padding
from hq.wheels.content import CHUNK, STORED, Codec, Contents, Member, best_codec

LAYER_VERSION: Final = 1
"""Goes up when the bytes of a layer change for equal items; part of the layer node's key."""

_THREADS_FROM = 4 << 20
_DEPTH = 8
_BATCH = 256


class LayerResult(NamedTuple):
    """A layer that was written.

    ``diff_id``: SHA-256 of the tar; ``blob``: what was written; ``tar_size`` in bytes.
    """

    diff_id: DiffId
    blob: BlobRef
    media_type: str
    tar_size: int


def write_layer(
    items: Iterable[Item],
    writer: BlobWriter,
    *,
    compression: Compression = "gzip",
    mtime: int = 0,
    prefix: str = "",
    known: DiffId | None = None,
    threads: bool | None = None,
) -> LayerResult:
    """Writes the layer of ``items`` below ``prefix`` into ``writer`` and commits it.

    ``mtime``: of every entry, in seconds. ``known``: the DiffID if it was computed before for equal
    items, prefix and mtime; then a wheel's bytes are copied unread by a splicing encoder, so the
    caller must have verified the wheel against its SHA-256. ``threads``: whether to use them; left
    out, when it is worth it.

    Raises ``BuildError`` for paths that cannot stand in a layer and for members that are not what
    their wheel says, and whatever the items' ``read`` and the writer raise. Nothing is committed
    then.
    """
    slots = arrange(items, prefix)
    check_mtime(mtime)
    target = encoder(compression, writer)
    trusted = known if target.splices else None
    if threads is None:
        threads = _work(slots) >= _THREADS_FROM
    lanes = _threaded_lanes() if threads else _direct_lanes()
    # The blob of an uncompressed layer is the tar: its writer computes the DiffID.
    hashed = trusted is None and (compression != "none" or known is not None)
    producer = _Producer(target, lanes, mtime, inflate=trusted is None, hashed=hashed)
    if threads:
        _run_threads(producer, lanes, slots)
    else:
        producer.run(slots)
    found = trusted
    if hashed:
        found = DiffId.from_hex(producer.tar_hash.hexdigest())
        _check_known(found, known)
    blob = writer.commit()
    diff_id = found or DiffId.from_hex(blob.digest.hex)
    return LayerResult(diff_id, blob, MEDIA_TYPES[compression], producer.tar_size)


def _check_known(found: DiffId, known: DiffId | None) -> None:
    if known is not None and found != known:
        raise BuildError(
            "the layer is not the one that was recorded",
            details=[f"expected DiffID {known}", f"found    DiffID {found}"],
        )


def _work(slots: Iterable[Slot]) -> int:
    return sum(slot.item.member.size for slot in slots if isinstance(slot.item, Packed))


_Order = tuple[Callable[[Any], object], object]


class _Lanes(NamedTuple):
    """Where each kind of work goes."""

    blob: Lane
    hash: Lane


def _direct_lanes() -> _Lanes:
    return _Lanes(Direct(), Direct())


def _threaded_lanes() -> _Lanes:
    # Both hashes of a chunk are taken one after the other while it is in the cache: a lane for each
    # costs more CPU time, and saves no wall time beside the slower work of inflating.
    return _Lanes(Queued(_DEPTH), Queued(2 * _DEPTH))


class _Producer:
    """Walks the slots and puts the work into lanes."""

    def __init__(
        self, target: Encoder, lanes: _Lanes, mtime: int, *, inflate: bool, hashed: bool
    ) -> None:
        self.tar_hash = hashlib.sha256()
        self.tar_size = 0
        self.position = 0
        self._target = target
        self._lanes = lanes
        self._mtime = mtime
        self._inflate = inflate
        self._hashed = hashed
        self._codec: Codec | None = None
        self._contents: dict[tuple[int, str], Contents] = {}
        # Small pieces on their way to a lane, so that it is woken once for many.
        self._tar: list[bytes] = []
        self._tar_waiting = 0
        self._orders: list[_Order] = []
        self._orders_waiting = 0

    def run(self, slots: Iterable[Slot]) -> None:
        """Produces the whole layer, or up to where a lane has failed."""
        for self.position, slot in enumerate(slots):
            if self._failed():
                return
            self._slot(slot)
        self._plain(END)
        self._flush_tar()
        self._flush_orders()
        self._lanes.blob.put(_finish, self._target, self.position)

    def _failed(self) -> bool:
        return any(isinstance(lane, Queued) and lane.failure for lane in self._lanes)

    # One entry

    def _slot(self, slot: Slot) -> None:
        item = slot.item
        if isinstance(item, Packed):
            self._packed(slot, item)
            return
        data = item.read() if item is not None else b""
        if slot.kind == SYMLINK:
            target = data.decode("utf-8", "surrogateescape")
            self._plain(entry(slot.path, slot.kind, 0, self._mtime, target))
            return
        self._plain(entry(slot.path, slot.kind, len(data), self._mtime))
        self._plain(data)
        self._plain(padding(len(data)))

    def _packed(self, slot: Slot, item: Packed) -> None:
        member = item.member
        spliced = self._target.splices and member.method != STORED
        self._plain(entry(slot.path, slot.kind, member.size, self._mtime))
        if spliced and member.size:
            self._order(self._target.packed, item, 0)
            if member.csize > CHUNK:
                self._flush_orders()
        if spliced and not self._inflate:
            self.tar_size += member.size
        else:
            self._content(item, spliced=spliced)
        self._plain(padding(member.size))

    def _content(self, item: Packed, *, spliced: bool) -> None:
        member = item.member
        contents = self._contents_of(item)
        if member.size <= CHUNK and member.csize <= CHUNK:
            self._emit(contents.read(member), spliced=spliced)
            return
        whole = hashlib.sha256()
        lane = self._lanes.hash
        for piece in contents.chunks(member):
            lane.put(whole.update, piece, self.position)
            self._emit(piece, spliced=spliced)
            if self._failed():
                return
        lane.put(_check_digest, (contents, member, whole), self.position)

    def _contents_of(self, item: Packed) -> Contents:
        key = id(item.reader), item.wheel
        found = self._contents.get(key)
        if found is None:
            # Loaded by the first member: a layer of changed files has none.
            self._codec = self._codec or best_codec()
            found = self._contents[key] = Contents(item.reader, item.wheel, self._codec)
        return found

    # Where bytes go

    def _plain(self, data: bytes) -> None:
        if data:
            self._emit(data, spliced=False)

    def _emit(self, data: bytes, *, spliced: bool) -> None:
        """Takes the next bytes of the tar; ``spliced``: the encoder has them by another way."""
        self.tar_size += len(data)
        if self._target.splices and not spliced:
            self._order(self._target.plain, data, len(data))
        if self._hashed or not self._target.splices:
            self._tar.append(data)
            self._tar_waiting += len(data)
            if self._tar_waiting >= CHUNK:
                self._flush_tar()

    def _flush_tar(self) -> None:
        if not self._tar:
            return
        data = self._tar[0] if len(self._tar) == 1 else b"".join(self._tar)
        self._tar.clear()
        self._tar_waiting = 0
        if self._hashed:
            self._lanes.hash.put(self.tar_hash.update, data, self.position)
        if not self._target.splices:
            self._lanes.blob.put(self._target.plain, data, self.position)

    def _order(self, function: Callable[[Any], object], argument: object, weight: int) -> None:
        self._orders.append((function, argument))
        self._orders_waiting += weight
        if len(self._orders) >= _BATCH or self._orders_waiting >= CHUNK:
            self._flush_orders()

    def _flush_orders(self) -> None:
        if self._orders:
            self._lanes.blob.put(_follow, self._orders, self.position)
            self._orders = []
            self._orders_waiting = 0


def _follow(orders: list[_Order]) -> None:
    for function, argument in orders:
        function(argument)


def _finish(target: Encoder) -> None:
    target.finish()


def _check_digest(claim: tuple[Contents, Member, Any]) -> None:
    contents, member, whole = claim
    contents.check_digest(member, whole.hexdigest())


def _run_threads(producer: _Producer, lanes: _Lanes, slots: Iterable[Slot]) -> None:
    """Runs each lane in a thread, the writer's in this one, and raises the earliest error."""
    from threading import Thread

    queued = [lane for lane in (lanes.hash, lanes.blob) if isinstance(lane, Queued)]
    failures: list[Failure] = []

    def produce() -> None:
        try:
            producer.run(slots)
        except BaseException as error:  # noqa: BLE001 - raised below, in order
            failures.append(Failure(producer.position, error))
        finally:
            for lane in queued:
                lane.close()

    # Daemons: a second Ctrl-C must be able to end the process.
    runs = [produce, *(lane.run for lane in queued[:-1])]
    threads = [Thread(target=run, daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    queued[-1].run()
    for thread in threads:
        thread.join()
    failures += [lane.failure for lane in queued if lane.failure]
    if failures:
        raise min(failures, key=_urgency).error


def _urgency(failure: Failure) -> tuple[bool, int]:
    # An interrupt goes before all; then what stands first in the layer.
    return isinstance(failure.error, Exception), failure.position
