"""The launchers of an image: the scripts among its ``[launch]`` files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from hq.app.declaration import ImageFile


class Launchers(NamedTuple):
    """The launchers of an image: path of the project's file to its text."""

    image: str
    scripts: Mapping[str, str]


def launchers_of(image: ImageFile, read: Callable[[str, str], bytes]) -> Launchers:
    """The launchers of an image; ``read`` gets the key and the path. Raises ``UsageError``."""
    scripts = {}
    if image.launch is not None:
        for place, path in sorted(image.launch.files.items()):
            data = read(place, path)
            if data.startswith(b"#!"):
                scripts[path] = data.decode("utf-8", "replace")
    return Launchers(image.name, scripts)
