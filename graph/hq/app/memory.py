"""What the store remembers of a project between builds, one JSON file each.

* ``spec@<pin>``: the checked declaration, with the digests of all files that it was read from.
* ``touched``: for every patch content and options, the paths it touches.
* ``records@<pin>``: a record for every node (``hq.provenance.record``), for ``plan`` and ``why``.
* ``root``: the project's folder, where its path is too long to be the name of the place of these.

The two with a pin are there once for what is built by default, and once for each choice of images
(``spec+<images>@<pin>``). All of it can be lost: then it is computed again. None of it enters a
key.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hq import __version__
from hq.app.noop import project_folder
from hq.model.digest import Digest
from hq.model.project import (
    BaseSpec,
    Exported,
    Fact,
    ImageSpec,
    KnobsSpec,
    LockedDeb,
    LockedWheel,
    OverlaySpec,
    PinSpec,
    PythonSpec,
    SeriesItem,
)

ROOT = "root"
_SUM = "sum"  # not the name of any node
SPEC_FORMAT = f"hq.spec/5 {__version__}"


def scoped(kind: str, pin: str, images: Sequence[str] = ()) -> str:
    """The name of a pin's document: one for what is built by default, one for each choice.

    A pin is any text; the name of an image has neither ``@`` nor ``,``.
    """
    return f"{kind}+{','.join(images)}@{pin}" if images else f"{kind}@{pin}"


class Memory:
    """The files of one project in the store."""

    def __init__(self, store_root: str, project_root: str, write: Callable[[str, bytes], None]):
        self._store_root = store_root
        self._folder = project_folder(store_root, project_root)
        named = os.path.basename(self._folder).startswith("%2F")
        self._root = "" if named else project_root
        self._write = write

    def load(self, name: str) -> Any:
        """The document called ``name``, or ``None`` when there is none or it is damaged."""
        try:
            with open(self._path(name), "rb") as file:
                return json.loads(file.read())
        except (OSError, ValueError):
            return None

    def save(self, name: str, document: object) -> None:
        """Writes ``document`` whole, by rename."""
        self._mark()
        self._put(name, _compact(document))

    def load_rows(self, name: str) -> dict[str, str]:
        """The JSON texts of the document called ``name``; none when it is not there or damaged."""
        try:
            with open(self._path(name), encoding="utf-8") as file:
                rows = rows_from_json(file.read())
        except (OSError, ValueError):
            return {}
        # The texts are passed on undecoded, so damage would not be noticed by itself.
        stated = rows.pop(_SUM, "")
        return rows if stated == _sum(rows) else {}

    def save_rows(self, name: str, rows: Mapping[str, str]) -> None:
        """Writes ``rows``, JSON texts by name."""
        self._mark()
        self._put(name, rows_to_json({_SUM: _sum(rows), **rows}))

    def _mark(self) -> None:
        if self._root and self.load(ROOT) != self._root:
            self._put(ROOT, _compact(self._root))

    def _put(self, name: str, data: bytes) -> None:
        self._write(os.path.relpath(self._path(name), self._store_root), data)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name.replace("/", "%2F") + ".json")


def _sum(rows: Mapping[str, str]) -> str:
    return json.dumps(Digest.of(rows_to_json(rows)))


def _compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def rows_to_json(rows: Mapping[str, str]) -> bytes:
    """One JSON object with a line for each name. ``rows``: the values as JSON, each one line."""
    lines = [f"{json.dumps(name)}: {text}" for name, text in rows.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def rows_from_json(text: str) -> dict[str, str]:
    """Reads what ``rows_to_json`` made; the values stay text. Raises ``ValueError``."""
    if text == "{\n\n}\n":
        return {}
    if not (text.startswith("{\n") and text.endswith("\n}\n")):
        raise ValueError("not an object with a line for each name")
    rows = {}
    decoder = json.JSONDecoder()
    for line in text[2:-3].split(",\n"):
        name, end = decoder.raw_decode(line)
        if not isinstance(name, str) or line[end : end + 2] != ": ":
            raise ValueError("not a name and a value")
        rows[name] = line[end + 2 :]
    return rows


def spec_to_json(spec: PinSpec) -> object:
    """The spec as JSON values; named tuples become arrays."""
    return list(spec)


def spec_from_json(value: Any) -> PinSpec:
    """Reads ``spec_to_json``'s value. Raises ``TypeError``, ``ValueError`` or ``KeyError``."""
    raw = PinSpec(*value)
    return raw._replace(
        wheel=_wheel(raw.wheel),
        dependencies=tuple(_wheel(row) for row in raw.dependencies),
        series=_items(raw.series),
        knobs=None if raw.knobs is None else KnobsSpec(*raw.knobs),
        overlays=tuple(_overlay(overlay) for overlay in raw.overlays),
        images=tuple(_image(image) for image in raw.images),
        exports=tuple(Exported(*row) for row in raw.exports),
        exporters=tuple(raw.exporters),
    )


def _wheel(row: Any) -> LockedWheel:
    wheel = LockedWheel(*row)
    return wheel._replace(sha256=Digest.parse(wheel.sha256))


def _items(rows: Any) -> tuple[SeriesItem, ...]:
    return tuple(SeriesItem(*row) for row in rows)


def _overlay(row: Any) -> OverlaySpec:
    overlay = OverlaySpec(*row)
    return overlay._replace(
        replaces=tuple(overlay.replaces),
        patches=_items(overlay.patches),
        facts=tuple(Fact(*fact) for fact in overlay.facts),
    )


def _image(row: Any) -> ImageSpec:
    image = ImageSpec(*row)
    return image._replace(
        entrypoint=tuple(image.entrypoint),
        cmd=tuple(image.cmd),
        ports=tuple(image.ports),
        volumes=tuple(image.volumes),
        base=None if image.base is None else _base(image.base),
        python=None if image.python is None else PythonSpec(*image.python),
    )


def _base(row: Any) -> BaseSpec:
    base = BaseSpec(*row)
    debs = (LockedDeb(*deb) for deb in base.debs)
    return base._replace(debs=tuple(deb._replace(sha256=Digest.parse(deb.sha256)) for deb in debs))


def remembered_spec(
    document: Any, digest_of: Callable[[str], str], names: Callable[[str], list[str]], epoch: int
) -> PinSpec | None:
    """The spec in ``document`` if every file and folder it was read from is the same today."""
    try:
        if document["format"] != SPEC_FORMAT or document["epoch"] != epoch:
            return None
        for folder, listed in document["folders"].items():
            if names(folder) != listed:
                return None
        for path, digest in document["files"].items():
            if digest_of(path) != digest:
                return None
        return spec_from_json(document["spec"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def spec_document(
    spec: PinSpec, files: Mapping[str, str], folders: Mapping[str, list[str]], epoch: int
) -> object:
    """What ``remembered_spec`` reads."""
    return {
        "format": SPEC_FORMAT,
        "epoch": epoch,
        "files": dict(files),
        "folders": dict(folders),
        "spec": spec_to_json(spec),
    }
