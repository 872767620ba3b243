"""``installed``: a layer of one or more wheels as they stand when installed.

Members go from the wheels' own deflate streams into the layer; scripts, INSTALLER and RECORD are
the only new bytes. Two wheels of a layer may bring one path if its content is the same, as
namespace packages do.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import cast

from hq.model.errors import BuildError
from hq.model.ports import RandomAccess
from hq.oci.arrange import File, Item, Packed
from hq.rules.context import Context, Made
from hq.rules.layer import layer_made, write
from hq.wheels import installed as wheel_files
from hq.wheels.content import extract
from hq.wheels.index import WheelIndex
from hq.wheels.install import Schemes
from hq.wheels.installed import Installed, Kept, install


def run(context: Context) -> Made:
    """Blob ``blob``; value ``layer``."""
    items: dict[str, Item] = {}
    origins: dict[str, tuple[str, Installed]] = {}
    files = cast("Mapping[str, str]", context.params["wheels"])
    with ExitStack() as opened:
        for name in context.names("wheel:"):
            reader = opened.enter_context(context.store.open(context.blob(f"wheel:{name}")))
            index = WheelIndex.decode(context.store.read(context.blob(f"index:{name}")))
            for installed in _install(context, index, reader, files[name]):
                if _is_new(installed, name, origins):
                    items[installed.path] = _item(installed, reader, files[name])
        return layer_made(context, write(context, list(items.values())))


def installed_record(context: Context) -> bytes:
    """RECORD of the one wheel that is an input, as installed."""
    index = WheelIndex.decode(context.store.read(context.blob("index")))
    with context.store.open(context.blob("wheel")) as reader:
        files = _install(context, index, reader, str(context.params["file"]))
    name = f"/{index.meta.dist_info}/RECORD"
    return next(f.data for f in files if isinstance(f, wheel_files.Made) and f.path.endswith(name))


def _install(
    context: Context, index: WheelIndex, reader: RandomAccess, file: str
) -> list[Installed]:
    schemes = Schemes(**cast("dict[str, str]", context.params["schemes"]))
    read = partial(extract, reader, wheel=file)
    return install(index, schemes, str(context.params["interpreter"]), read)


def _is_new(installed: Installed, name: str, origins: dict[str, tuple[str, Installed]]) -> bool:
    other, known = origins.setdefault(installed.path, (name, installed))
    if other == name:
        return True
    if _content(known) == _content(installed):
        return False
    raise BuildError(
        f"{other} and {name} both install {installed.path}, with different content",
        hint="lock versions that do not, or leave one of them out",
    )


def _content(installed: Installed) -> tuple[str, object]:
    if isinstance(installed, Kept):
        return installed.member.kind, installed.member.digest
    return installed.kind, installed.data


def _item(installed: Installed, reader: RandomAccess, file: str) -> Item:
    if isinstance(installed, Kept):
        return Packed(installed.path, installed.member, reader, file)
    data = installed.data
    return File(installed.path, installed.kind, lambda: data)
