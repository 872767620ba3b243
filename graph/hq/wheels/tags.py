"""Which wheels a Python on a platform takes, and which it likes best.

After the platform compatibility tags specification; the order is that of ``packaging.tags``, asked
for a target that need not be this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hq.model.errors import UsageError

_MANYLINUX = re.compile(r"(?P<arch>x86_64|aarch64)-manylinux_?(?P<major>2)_(?P<minor>\d{1,3})\Z")
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_OLDEST = {"x86_64": 5, "aarch64": 17}


def platforms(platform: str) -> list[str]:
    """The platform tags of ``x86_64-manylinux_2_39``, best first. Raises ``UsageError``."""
    found = _MANYLINUX.match(platform)
    if found is None:
        raise UsageError(
            f"unknown platform {platform!r}",
            hint="name it as x86_64-manylinux_2_39: architecture, then the base's glibc version",
        )
    arch = found["arch"]
    tags: list[str] = []
    for minor in range(int(found["minor"]), _OLDEST[arch] - 1, -1):
        tags.append(f"manylinux_2_{minor}_{arch}")
        if minor in _LEGACY:
            tags.append(f"{_LEGACY[minor]}_{arch}")
    return [*tags, f"linux_{arch}"]


def ranks(python: str, platform: str) -> dict[str, int]:
    """Every tag ``py-abi-platform`` that the target takes, with its rank; 0 is best."""
    from packaging.tags import compatible_tags, cpython_tags

    major, _, minor = python.partition(".")
    version = (int(major), int(minor))
    names = platforms(platform)
    tags = [
        *cpython_tags(version, platforms=names),
        *compatible_tags(version, f"cp{major}{minor}", platforms=names),
    ]
    return {str(tag): rank for rank, tag in enumerate(tags)}


def best(files: Iterable[str], order: dict[str, int]) -> str | None:
    """The file that the target likes best, ``None`` when it takes none of them."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    found: list[tuple[int, str]] = []
    for file in files:
        try:
            tags = parse_wheel_filename(file)[3]
        except InvalidWheelFilename:
            continue
        fitting = [order[str(tag)] for tag in tags if str(tag) in order]
        if fitting:
            found.append((min(fitting), file))
    return min(found)[1] if found else None
