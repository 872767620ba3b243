"""``wheel``: a locked wheel, fetched, hash-checked, and its index of members.

The index takes each member's digest from RECORD. Nothing is inflated here: a member's content is
checked against that digest by whoever reads it, and the wheel's layer reads all of them.
"""

from __future__ import annotations

from hq.model.digest import Digest
from hq.model.errors import BuildError
from hq.model.ports import RandomAccess
from hq.model.project import LockedWheel
from hq.rules.context import Context, Made
from hq.wheels.index import WheelIndex
from hq.wheels.reading import read_index


def run(context: Context) -> Made:
    """Blobs ``wheel`` and ``index``."""
    params = context.params
    size = params["size"]
    assert isinstance(size, int)
    locked = LockedWheel(
        name=str(params["name"]),
        version=str(params["version"]),
        file=str(params["file"]),
        sha256=Digest.parse(str(params["sha256"])),
        size=size,
        record=str(params.get("record", "check")),
    )
    wheel = context.fetch(locked)
    with context.store.open(wheel) as reader:
        index = _index(reader, locked)
    encoded = context.store.put(index.encode())
    return Made(blobs={"wheel": wheel, "index": encoded}, values={"members": len(index)})


def _index(reader: RandomAccess, locked: LockedWheel) -> WheelIndex:
    try:
        return read_index(
            reader,
            project=locked.name,
            version=locked.version,
            wheel=locked.file,
            trust_record=locked.record == "check",
        )
    except BuildError as error:
        if "RECORD" in error.message and locked.record == "check":
            error.hint = (
                'if the wheel was published like this, say record = "ignore" in the lock\'s '
                f"entry of {locked.name}: then its members are named by what they hold"
            )
        raise
