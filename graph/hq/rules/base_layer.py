"""``base-layer``: one layer of a Debian root file system, spliced from the packages' packs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import cast

from hq.model.ports import RandomAccess
from hq.oci.arrange import Packed
from hq.oci.encode import Compression
from hq.oci.rootfs import RootEntry, write_root
from hq.oci.tar import HARD_LINK
from hq.rules.base import Row, decode, member
from hq.rules.context import Context, Made
from hq.rules.layer import layer_made


def run(context: Context) -> Made:
    """Blob ``blob``; value ``layer``."""
    rows = decode(context.store.read(context.blob("tree")))
    mtime = context.params["mtime"]
    assert isinstance(mtime, int)
    with ExitStack() as opened:
        packs = {
            name: opened.enter_context(context.store.open(context.blob(f"pack:{name}")))
            for name in context.names("pack:")
        }
        entries = _links_after_files([_entry(row, packs) for row in rows])
        with context.store.create() as writer:
            result = write_root(
                entries,
                writer,
                compression=cast("Compression", context.params["compression"]),
                mtime=mtime,
            )
    return layer_made(context, result)


def _entry(row: Row, packs: dict[str, RandomAccess]) -> RootEntry:
    item = row.item
    content: tuple[Packed, ...] = ()
    if item.type == "f" and item.streams:
        name = row.package or "state"
        reader = packs[row.package or "state"]
        content = tuple(
            Packed(item.path, member(item, stream), reader, name) for stream in item.streams
        )
    return RootEntry(
        item.path, item.type, item.mode, item.uid, item.gid, item.link, item.size, item.sha256,
        content,
    )  # fmt: skip


def _links_after_files(entries: list[RootEntry]) -> list[RootEntry]:
    """Sorted by path, but hard links last: each needs its file before it."""
    return [
        *(entry for entry in entries if entry.kind != HARD_LINK),
        *(entry for entry in entries if entry.kind == HARD_LINK),
    ]
