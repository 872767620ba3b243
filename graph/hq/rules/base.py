"""``base``: packages put together to a root tree, cut into layers.

The layers' trees are blobs of their own: a change of one package changes the tree of its layer and
that of the generated files, and the other layers are reused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple, cast

from hq.debian.package import Item, Package, Stream, compress
from hq.debian.root import Root, merge, with_items
from hq.debian.state import Made as Added
from hq.debian.state import make_state
from hq.model.action import Json
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError
from hq.model.ports import BlobWriter
from hq.rules.context import Context, Made
from hq.wheels.content import DEFLATED, Contents, Member

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STATE: Final = ""
"""The package name under which generated files stand."""


class Row(NamedTuple):
    """One entry of a layer's tree: an item and the package whose pack holds its content."""

    item: Item
    package: str


def run(context: Context) -> Made:
    """Blobs ``tree:<layer>`` and ``state`` (a pack); value ``base`` for the image."""
    packages = [
        Package.decode(context.store.read(context.blob(f"index:{name}")))
        for name in context.names("index:")
    ]
    root = merge(packages)
    with ExitStack() as opened:
        added = make_state(root, packages, _reader(context, root, opened))
    with context.store.create() as writer:
        items = _packed(added, writer)
        state = writer.commit()
    whole = with_items(root, items)
    blobs = {"state": state} | _trees(context, whole)
    base: dict[str, Json] = {"config": {"Env": [f"PATH={PATH}"]}, "history": [], "layers": []}
    return Made(blobs=blobs, values={"base": base, "entries": len(whole)})


def _reader(context: Context, root: Root, opened: ExitStack) -> Callable[[str], bytes]:
    """Reads files of the root out of the packs."""
    contents: dict[str, Contents] = {}

    def read(path: str) -> bytes:
        item, package = root[path]
        if item.type == "h":
            item = root[item.link].item
        if package not in contents:
            reader = opened.enter_context(context.store.open(context.blob(f"pack:{package}")))
            contents[package] = Contents(reader, package)
        data = b"".join(contents[package].small(member(item, stream)) for stream in item.streams)
        if BlobRef.of(data) != BlobRef(_digest(item), item.size):
            raise BuildError(f"/{path} of {package} is not what the package's index says")
        return data

    return read


def member(item: Item, stream: Stream) -> Member:
    """One stream of a pack, for those who read members of wheels."""
    return Member(
        path=item.path,
        kind="f",
        offset=stream.offset,
        csize=stream.csize,
        size=stream.size,
        crc=stream.crc,
        method=DEFLATED,
        digest=_digest(item),
    )


def _digest(item: Item) -> Digest:
    return Digest.from_hex(item.sha256)


def _packed(added: list[Added], pack: BlobWriter) -> list[Item]:
    offset = 0
    items: list[Item] = []
    for item, data in added:
        full = item
        if item.type == "f":
            full, offset = compress(item, data, pack, offset)
        items.append(full)
    return items


def _trees(context: Context, root: Root) -> dict[str, BlobRef]:
    layers = cast("Mapping[str, list[str]]", context.params["layers"])
    layer_of = {name: layer for layer, names in layers.items() for name in names}
    trees: dict[str, dict[str, Row]] = {layer: {} for layer in layers}
    for path, (item, package) in root.items():
        tree = trees[layer_of[package]]
        above = path
        # A directory stands in every layer that has something in it, always the same.
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in tree:
                break
            tree[above] = Row(root[above].item, root[above].package)
        tree[path] = Row(item, package)
    return {f"tree:{layer}": context.store.put(encode(tree)) for layer, tree in trees.items()}


def encode(tree: Mapping[str, Row]) -> bytes:
    """A layer's tree as bytes."""
    rows = [
        [tree[path].package, *tree[path].item[:8], [list(part) for part in tree[path].item.streams]]
        for path in sorted(tree)
    ]
    return json.dumps(rows, separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> list[Row]:
    """Reads ``encode``'s bytes, which the store has verified."""
    return [
        Row(Item(*row[1:9])._replace(streams=tuple(Stream(*stream) for stream in row[9])), row[0])
        for row in json.loads(data)
    ]
