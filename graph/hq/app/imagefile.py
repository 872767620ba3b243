"""What an image's file says beyond what the graph is made of."""

from __future__ import annotations

from hq.app.config import Files, read_project
from hq.app.declaration import CheckTable, ImageFile
from hq.app.launchers import Launchers, launchers_of
from hq.app.validate import did_you_mean, load_document
from hq.model.errors import UsageError


def declared_checks(files: Files, name: str) -> tuple[CheckTable, ...]:
    """The ``[[check]]`` tables of the image ``name``. Raises ``UsageError``."""
    return _image(files, name).check


def declared_launchers(files: Files, name: str) -> Launchers:
    """The launchers of the image ``name``. Raises ``UsageError``."""
    return launchers_of(_image(files, name), lambda _place, path: files.read(path))


def _image(files: Files, name: str) -> ImageFile:
    names = []
    for path in read_project(files).declared.images:
        image, _ = load_document(path, files.read(path), ImageFile)
        if image.name == name:
            return image
        names.append(image.name)
    raise UsageError(
        f"there is no image {name!r} in build.toml",
        hint=did_you_mean(name, sorted(names)),
    )
