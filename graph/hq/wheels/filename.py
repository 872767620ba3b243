"""Wheel file names, project names and versions, and when two of them are the same.

A wheel's file name is ``name-version(-build)?-python-abi-platform.whl`` (binary distribution
format, "File name convention"). Names compare after normalisation (simple repository API,
"Normalized names"), versions too (version specifiers, "Normalization"), since METADATA, file name
and lock may write one version in different ways.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from hq.model.errors import BuildError

_PART = r"[A-Za-z0-9_.!+]+"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?"
_BUILD = r"[0-9][A-Za-z0-9_.]*"
_PRE = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_HINT = "a wheel is named NAME-VERSION(-BUILD)-PYTHON-ABI-PLATFORM.whl"


class WheelName(NamedTuple):
    """The parts of a wheel's file name.

    ``project`` is normalised, ``version`` as written; the tags are the expanded sets, sorted.
    """

    project: str
    version: str
    build: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]


def normalize_project(name: str) -> str:
    """``Foo.Bar_baz`` → ``foo-bar-baz``."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _version_pattern() -> re.Pattern[str]:
    # Compiled on first use: a short command that opens an index must not pay for it.
    return re.compile(
        r"""v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)
        (?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_n>\d*))?
        (?P<post>-(?P<post_n1>\d+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post_n2>\d*))?
        (?P<dev>[-_.]?dev[-_.]?(?P<dev_n>\d*))?
        (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?""",
        re.VERBOSE | re.IGNORECASE | re.ASCII,
    )


def normalize_version(version: str) -> str | None:
    """The normal form without trailing zeros of the release, or ``None`` for no valid version.

    ``1.0.0RC-1`` → ``1rc1``: equal versions have equal results; the text is for comparing, not for
    display.
    """
    found = _version_pattern().fullmatch(version.strip())
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    text = ".".join(map(str, release))
    if found["epoch"] and int(found["epoch"]):
        text = f"{int(found['epoch'])}!{text}"
    if found["pre"]:
        kind = found["pre"].lower()
        text += f"{_PRE.get(kind, kind)}{int(found['pre_n'] or 0)}"
    if found["post"]:
        text += f".post{int(found['post_n1'] or found['post_n2'] or 0)}"
    if found["dev"]:
        text += f".dev{int(found['dev_n'] or 0)}"
    if found["local"]:
        parts = re.split(r"[-_.]", found["local"].lower())
        text += "+" + ".".join(str(int(part)) if part.isdigit() else part for part in parts)
    return text


def same_version(one: str, other: str) -> bool:
    """Whether both are the same version; texts that are no versions compare as they are."""
    left, right = normalize_version(one), normalize_version(other)
    if left is None or right is None:
        return one == other
    return left == right


def parse_filename(name: str) -> WheelName:
    """Reads a wheel's file name. Raises ``BuildError``."""
    if "/" in name or not name.endswith(".whl"):
        raise BuildError(f"{name!r} is not the file name of a wheel", hint=_HINT)
    parts = name[:-4].split("-")
    if len(parts) not in (5, 6):
        raise BuildError(
            f"{name!r} is not the file name of a wheel: expected 5 or 6 parts, found {len(parts)}",
            hint=_HINT,
        )
    for part in parts:
        if not re.fullmatch(_PART, part):
            raise BuildError(
                f"{name!r} is not the file name of a wheel: bad part {part!r}", hint=_HINT
            )
    if not re.fullmatch(_NAME, parts[0]):
        raise BuildError(
            f"{name!r} is not the file name of a wheel: bad name {parts[0]!r}", hint=_HINT
        )
    build = parts[2] if len(parts) == 6 else ""
    if build and not re.fullmatch(_BUILD, build):
        raise BuildError(
            f"{name!r} is not the file name of a wheel: build {build!r} begins with no digit",
            hint=_HINT,
        )
    pythons, abis, platforms = (tuple(sorted(set(tag.split(".")))) for tag in parts[-3:])
    return WheelName(normalize_project(parts[0]), parts[1], build, pythons, abis, platforms)
