"""A wheel as installed: every file with its place, the scripts, INSTALLER and RECORD.

After the binary distribution format ("Installing a wheel") and the recording of installed projects.
Nothing is unpacked: members stay where they are in the wheel, and only what installing makes
(scripts, INSTALLER, RECORD) is new bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hq.model.digest import Digest
from hq.model.tree import EXECUTABLE, FILE, Entry, Kind
from hq.wheels.content import Member
from hq.wheels.index import WheelIndex
from hq.wheels.install import (
    Schemes,
    entry_points,
    fix_shebang,
    install_path,
    scheme_path,
    script,
)
from hq.wheels.record import Row, row_of, write

INSTALLER = b"hq\n"


class Made(NamedTuple):
    """A file that installing makes: its path from the image's root, kind, content."""

    path: str
    kind: Kind
    data: bytes


class Kept(NamedTuple):
    """A member that is installed as it is: its path from the image's root, and the member."""

    path: str
    member: Member


Installed = Made | Kept


def install(
    index: WheelIndex, schemes: Schemes, interpreter: str, read: Callable[[Member], bytes]
) -> list[Installed]:
    """Every file of the installation, sorted by path.

    ``interpreter``: absolute path of Python in the image. ``read`` gives a member's content. Raises
    ``BuildError``.
    """
    files: dict[str, Installed] = {}
    for member in index:
        if member.path == f"{index.meta.dist_info}/RECORD":
            continue
        installed = _place(index, member, schemes, interpreter, read)
        files[installed.path] = installed
    for made in _scripts(index, schemes, interpreter, read):
        files.setdefault(made.path, made)
    site = schemes.purelib if index.meta.purelib else schemes.platlib
    info = f"{site}/{index.meta.dist_info}"
    files[f"{info}/INSTALLER"] = Made(f"{info}/INSTALLER", FILE, INSTALLER)
    record = _record(files, site, f"{info}/RECORD")
    files[f"{info}/RECORD"] = Made(f"{info}/RECORD", FILE, record)
    return [files[path] for path in sorted(files)]


def _place(
    index: WheelIndex,
    member: Member,
    schemes: Schemes,
    interpreter: str,
    read: Callable[[Member], bytes],
) -> Installed:
    path = install_path(member.path, index.meta, schemes)
    if scheme_path(member.path, index.meta)[0] != "scripts":
        return Kept(path, member)
    return Made(path, EXECUTABLE, fix_shebang(read(member), interpreter))


def _scripts(
    index: WheelIndex, schemes: Schemes, interpreter: str, read: Callable[[Member], bytes]
) -> Iterator[Made]:
    path = f"{index.meta.dist_info}/entry_points.txt"
    member = index.get(path)
    if member is not None:
        for entry in entry_points(read(member), file=path):
            yield Made(f"{schemes.scripts}/{entry.name}", EXECUTABLE, script(entry, interpreter))


def _record(files: dict[str, Installed], site: str, record: str) -> bytes:
    rows = [_row(installed, site) for installed in files.values()]
    return write([*rows, Row(relative(record, site))])


def _row(installed: Installed, site: str) -> Row:
    path = relative(installed.path, site)
    if isinstance(installed, Kept):
        member = installed.member
        return row_of(path, Entry(member.kind, member.digest, member.size))
    entry = Entry(installed.kind, Digest.of(installed.data), len(installed.data))
    return row_of(path, entry)


def relative(path: str, site: str) -> str:
    """``path`` as RECORD writes it: from the directory ``site``, with ``..`` where it must."""
    here, there = site.split("/"), path.split("/")
    same = 0
    while same < min(len(here), len(there)) and here[same] == there[same]:
        same += 1
    return "/".join([".."] * (len(here) - same) + there[same:])
