"""``deb``: a locked Debian package, fetched, hash-checked, read, and its content compressed."""

from __future__ import annotations

from hq.debian.package import Package, read_package
from hq.debian.refuse import refuse
from hq.model.digest import Digest
from hq.model.project import LockedDeb
from hq.rules.context import Context, Made


def run(context: Context) -> Made:
    """Blobs ``deb``, ``index`` and ``pack`` (``hq.debian.package``); value ``entries``."""
    params = context.params
    size = params["size"]
    assert isinstance(size, int)
    locked = LockedDeb(
        name=str(params["name"]),
        version=str(params["version"]),
        architecture=str(params["architecture"]),
        file=str(params["file"]),
        sha256=Digest.parse(str(params["sha256"])),
        size=size,
    )
    deb = context.fetch_deb(locked)
    with context.store.open(deb) as reader, context.store.create() as writer:
        package = read_package(reader, writer, locked.file)
        _check(package, locked)
        pack = writer.commit()
    index = context.store.put(package.encode())
    blobs = {"deb": deb, "index": index, "pack": pack}
    return Made(blobs=blobs, values={"entries": len(package.items)})


def _check(package: Package, locked: LockedDeb) -> None:
    found = (package.name, package.version, package.architecture)
    expected = (locked.name, locked.version, locked.architecture)
    if found != expected:
        refuse(
            locked.file,
            f"this is {' '.join(found)}, the lock says {' '.join(expected)}",
            hint="make the base lock again",
        )
