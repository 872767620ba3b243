"""``layer``: one deterministic tar, compressed, of a wheel or of some nodes' changes.

A layer of changes also carries a small record of its own files with their hashes
(``<dist-info>/hq/<layer>.csv``). The last of them rewrites the distribution's RECORD: rows of
changed and added files lose hash and size, which the recording-installed-projects
specification allows, so that RECORD depends on the set of paths and a one-line change of a patch
leaves this layer alone (docs/adr/0004).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from hq.model.action import Json
from hq.model.digest import BlobRef
from hq.model.errors import BuildError, Location
from hq.model.tree import FILE, Entry, merge
from hq.oci.arrange import File, Item, Packed, Removed
from hq.oci.encode import Compression
from hq.oci.layer import LayerResult, write_layer
from hq.rules.context import Context, Made
from hq.wheels.index import WheelIndex
from hq.wheels.record import layer_record, rewrite


def run(context: Context) -> Made:
    """Blob ``blob``; value ``layer`` with what the image needs."""
    is_wheel = context.params["layer"] == "wheel"
    return layer_made(context, _wheel_layer(context) if is_wheel else _changes_layer(context))


def layer_made(context: Context, result: LayerResult) -> Made:
    """A written layer as a result: blob ``blob``, value ``layer``."""
    described: dict[str, Json] = {
        "name": str(context.params["layer"]),
        "diff_id": result.diff_id,
        "digest": result.blob.digest,
        "size": result.blob.size,
        "media_type": result.media_type,
    }
    return Made(blobs={"blob": result.blob}, values={"layer": described})


def _wheel_layer(context: Context) -> LayerResult:
    index = WheelIndex.decode(context.store.read(context.blob("index")))
    with context.store.open(context.blob("wheel")) as reader:
        name = str(context.params["file"])
        items: list[Item] = [Packed(member.path, member, reader, name) for member in index]
        return write(context, items)


def _changes_layer(context: Context) -> LayerResult:
    merged = merge(context.delta(f"delta:{name}") for name in context.names("delta:"))
    own = str(context.params["dist_info"]) + "/"
    for path in merged:
        if path == f"{own}RECORD" or path.startswith(f"{own}hq/"):
            raise BuildError(
                f"{path} is written by hq itself",
                where=Location(path),
                hint="RECORD and the lists of layers follow from what is changed; leave them out",
            )
    items = [_item(context, path, entry) for path, entry in merged.items()]
    items += [
        # The default binds this round's value; mypy cannot type a lambda with one.
        File(path, FILE, lambda data=data: data)  # type: ignore[misc]
        for path, data in _records(context, merged)
    ]
    return write(context, items)


def _item(context: Context, path: str, entry: Entry | None) -> Item:
    if entry is None:
        return Removed(path)
    ref = BlobRef(entry.digest, entry.size)
    return File(path, entry.kind, lambda: context.store.read(ref))


def _records(context: Context, merged: dict[str, Entry | None]) -> Iterator[tuple[str, bytes]]:
    info = str(context.params["dist_info"])
    yield f"{info}/hq/{_name(context)}.csv", layer_record(merged)
    if context.params["record"]:
        changed: dict[str, bool] = {}
        for name in context.names("paths:"):
            changed |= dict(context.paths(f"paths:{name}"))
        stages = context.params["stages"]
        assert isinstance(stages, (list, tuple))
        for stage in stages:
            changed[f"{info}/hq/{stage}.csv"] = True
        yield (
            f"{info}/RECORD",
            rewrite(
                _record_before(context),
                changed_or_added=[path for path, stays in changed.items() if stays],
                removed=[path for path, stays in changed.items() if not stays],
            ),
        )


def _record_before(context: Context) -> bytes:
    """RECORD without any change: the wheel's, or that of the installed wheel."""
    if "schemes" not in context.params:
        return context.file_bytes("record")
    from hq.rules.installed import installed_record

    return installed_record(context)


def _name(context: Context) -> str:
    return str(context.params["layer"])


def write(context: Context, items: list[Item]) -> LayerResult:
    """Writes the items as the layer that the parameters describe."""
    mtime = context.params["mtime"]
    assert isinstance(mtime, int)
    with context.store.create() as writer:
        return write_layer(
            items,
            writer,
            compression=cast("Compression", context.params["compression"]),
            mtime=mtime,
            prefix=str(context.params["prefix"]).strip("/"),
        )
