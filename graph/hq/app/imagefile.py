"""What an image's file says beyond what the graph is made of."""

from __future__ import annotations

from hq.app.config import Files, read_project
from hq.app.declaration import CheckTable, ImageFile
from hq.app.validate import load_document
from hq.model.errors import UsageError


def declared_checks(files: Files, name: str) -> tuple[CheckTable, ...]:
    """The ``[[check]]`` tables of the image ``name``. Raises ``UsageError``."""
    project = read_project(files)
    for path in project.declared.images:
        image, _ = load_document(path, files.read(path), ImageFile)
        if image.name == name:
            return image.check
    raise UsageError(f"there is no image {name!r} in build.toml")
