"""``launch``: a layer of files of the project at places of the image, outside the package tree.

They are what starts the image: launchers. A file that begins with ``#!`` is executable, whatever
its mode in the project, so that a checkout's modes do not enter the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from hq.model.tree import EXECUTABLE, FILE, Kind
from hq.oci.arrange import File, Item
from hq.rules.context import Context, Made
from hq.rules.layer import layer_made, write


def run(context: Context) -> Made:
    """Blob ``blob``; value ``layer``."""
    files = cast("Mapping[str, str]", context.params["files"])
    items: list[Item] = []
    for place, name in sorted(files.items()):
        data = context.source_bytes(f"file:{name}")
        kind: Kind = EXECUTABLE if data.startswith(b"#!") else FILE
        # The default binds this round's value; mypy cannot type a lambda with one.
        items.append(File(place.strip("/"), kind, lambda data=data: data))  # type: ignore[misc]
    return layer_made(context, write(context, items))
