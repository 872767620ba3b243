"""The project's files for a new pin: lock, series, overlays, ledger, ``build.toml``, mentions.

Nothing of the pin that the port starts from is changed: what is new stands beside it, so the old
pin keeps its keys and its images. TOML files are edited in place; comments and order stay.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hq.app.config import Files, Project, read_project
from hq.app.folder import ProjectFolder
from hq.app.port_state import write_file
from hq.model.errors import Location, UsageError
from hq.model.project import LockedWheel, PinSpec, SeriesItem


class Ported(NamedTuple):
    """A patch on its way to the new pin. ``data`` is ``None`` when the file serves both."""

    item: SeriesItem
    group: str
    data: bytes | None


class Mention(NamedTuple):
    """A line of a file that names the old pin."""

    path: str
    line: int
    text: str


def renamed(name: str, old: str, new: str) -> str:
    """A file's name for the new pin: the pin in it replaced, else below a folder of its name."""
    if _pin(old).search(name):
        return _pin(old).sub(new, name)
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{new}/{base}" if folder else f"{new}/{base}"


def suffixed(path: str, old: str, new: str) -> str:
    """A lock's or a series' name for the new pin: the pin in it replaced, else behind it."""
    if _pin(old).search(path):
        return _pin(old).sub(new, path)
    stem, dot, end = path.rpartition(".")
    if dot and "/" not in end:
        return f"{stem}-{new}.{end}"
    return f"{path}-{new}"


def _pin(pin: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(pin)}(?!\w|\.\d)")


class NewPin:
    """Writes down a new pin. ``files`` maps the changed files of the project to their content."""

    def __init__(self, project: Project, source: Files, spec: PinSpec, new: str) -> None:
        self._declared = project.declared
        self._source = source
        self._old = spec.pin
        self._new = new
        self._spec = spec
        self.files: dict[str, bytes] = {}
        self._series: dict[str, str] = {}
        self.series = suffixed(spec.series_file, spec.pin, new)

    def text(self, path: str) -> str:
        """A file as it stands by now."""
        return (self.files[path] if path in self.files else self._source.read(path)).decode()

    def put(self, path: str, text: str | bytes) -> None:
        """Sets a file's content."""
        self.files[path] = text.encode() if isinstance(text, str) else text

    def taken(self) -> dict[str, bytes]:
        """What changed since the last call, for one commit."""
        files, self.files = self.files, {}
        return files

    # -- parts ----------------------------------------------------------------------------------

    def lock(self, wheel: LockedWheel) -> None:
        """A lock that names the wheel alone; one that is there and names the same wheel stays.

        Raises ``UsageError`` when the one that is there names another.
        """
        path = suffixed(self._declared.pins[self._old].lock, self._old, self._new)
        there = self._existing(path)
        if there is not None:
            if wheel.sha256.hex not in there:
                raise UsageError(
                    f"there is a lock of {self._new} already, and it names another wheel",
                    where=Location(path),
                    hint="remove it, or give the wheel that it names",
                )
            return
        self.put(
            path,
            f'schema = "hq.lock/1"\npin = "{self._new}"\ndistribution = "{wheel.name}"\n\n'
            f'[[wheel]]\nname = "{wheel.name}"\nversion = "{wheel.version}"\n'
            f'file = "{wheel.file}"\nsha256 = "{wheel.sha256.hex}"\nsize = {wheel.size}\n',
        )

    def _existing(self, path: str) -> str | None:
        try:
            return self.text(path)
        except FileNotFoundError:
            return None

    def declare(self) -> None:
        """The pin's table in ``build.toml``."""
        import tomlkit

        document = tomlkit.parse(self.text("build.toml"))
        table = tomlkit.table()
        table.add("lock", suffixed(self._declared.pins[self._old].lock, self._old, self._new))
        table.add("series", self.series)
        pins: Any = document["pins"]
        pins.add(self._new, table)
        self.put("build.toml", _spaced(tomlkit.dumps(document), self._new))

    def patch(self, ported: Ported) -> str:
        """Puts a patch's file down; returns its name in the series."""
        folder = ported.item.file.removesuffix(ported.item.name)
        if ported.data is None:
            return ported.item.name
        name = renamed(ported.item.name, self._old, self._new)
        self.put(folder + name, ported.data)
        return name

    def begin(self, series: str) -> None:
        """An empty series: also one that no patch is left of must be there."""
        self._series[series] = f"# {self._spec.wheel.name} {self._new}\n"
        self.put(series, self._series[series])

    def append(self, series: str, ported: Ported, name: str) -> None:
        """Adds a line to a series that was begun."""
        strip = 1 if ported.data is not None else ported.item.strip
        reverse = ported.data is None and ported.item.reverse
        self._series[series] += f"{name} -p{strip}{' -R' if reverse else ''}\n"
        self.put(series, self._series[series])

    def overlay_series(self, name: str) -> str:
        """The series file of an overlay for the new pin; empty when the old pin has none."""
        path, table = self._overlay(name)
        series = table.get("series")
        if not series:
            return ""
        base = path.rpartition("/")[0]
        folder = str(self._overlay_document(path).get("patches", "patches"))
        prefix = f"{base}/" if base else ""
        return f"{prefix}{folder}/{suffixed(str(series), self._old, self._new)}"

    def overlay(self, name: str) -> None:
        """The pin's table in an overlay's declaration, where it says something for each pin."""
        import tomlkit

        path, table = self._overlay(name)
        if not table:
            return
        document = self._overlay_document(path)
        entry = tomlkit.table()
        for key, value in table.items():
            entry.add(key, suffixed(str(value), self._old, self._new) if key == "series" else value)
        document["pins"].add(self._new, entry)
        for check in document.get("facts", {}).get("check", ()):
            if self._old in check.get("pins", ()) and self._new not in check["pins"]:
                check["pins"].append(self._new)
        self.put(path, _spaced(tomlkit.dumps(document), self._new))

    def _overlay(self, name: str) -> tuple[str, Mapping[str, Any]]:
        for path in self._declared.overlays:
            document = self._overlay_document(path)
            if document.get("name") == name:
                return path, document.get("pins", {}).get(self._old, {})
        raise KeyError(name)

    def _overlay_document(self, path: str) -> Any:
        import tomlkit

        return tomlkit.parse(self.text(path))

    def ledger(self, carried: Sequence[str]) -> None:
        """The new pin in the ledger's entries of the patches that are carried on."""
        path = ledger_path(self._declared)
        if path:
            self.put(path, with_pin(self.text(path), carried, self._old, self._new))

    def mentions(self) -> list[Mention]:
        """Brings the named files up to date; returns what still looks like the old pin."""
        left: list[Mention] = []
        for path in self._declared.port.mentions:
            text = _pin(self._old).sub(self._new, self.text(path))
            self.put(path, text)
            left += leftovers(path, text, self._old)
        return left


def _spaced(text: str, pin: str) -> str:
    """An empty line above and below the pin's new table, which ``tomlkit`` does not put there."""
    head = re.escape(f'[pins."{pin}"]')
    text = re.sub(rf"(?<=[^\n])\n({head}\n)", r"\n\n\1", text)
    text = re.sub(rf"({head}\n(?:[^\n\[]+\n)*)(?=\[)", r"\1\n", text)
    return text.rstrip("\n") + "\n"


def leftovers(path: str, text: str, old: str) -> Iterator[Mention]:
    """Lines that name the old pin in another way: ``v0.29.0``, ``0.29``, ``029``."""
    short = ".".join(old.split(".")[:2])
    run = re.escape(old.replace(".", "")) + "|" + re.escape(short.replace(".", ""))
    other = re.compile(
        rf"v?{re.escape(old)}|(?<![\d.])v?{re.escape(short)}(?![\d])|(?<!\w)(?:{run})(?!\w)"
    )
    for number, line in enumerate(text.split("\n"), 1):
        if other.search(line):
            yield Mention(path, number, line.strip())


def ledger_path(declared: Any) -> str:
    """The ledger of the patches, empty when the project keeps none."""
    return str(getattr(declared.patches, "ledger", None) or "")


def with_pin(text: str, carried: Sequence[str], old: str, new: str) -> str:
    """The ledger with ``new`` among the pins of each carried patch."""
    import tomlkit

    document = tomlkit.parse(text)
    for entry in document.get("patch", ()):
        pins = entry.get("pins")
        if entry.get("name") in carried and pins is not None and old in pins and new not in pins:
            pins.insert(0, new)
    return tomlkit.dumps(document)


def bump(root: str, pin: str, new: str) -> tuple[list[str], list[Mention]]:
    """Replaces a pin (the default one if empty) in the files that ``[port] mentions`` names.

    Returns the files that changed, and the lines that still look like the old pin. Raises
    ``UsageError``.
    """
    files = ProjectFolder(root)
    project = read_project(files)
    old = pin or project.default_pin
    texts: dict[str, bytes] = {}
    for path in project.declared.port.mentions:
        try:
            texts[path] = files.read(path)
        except FileNotFoundError:
            at = project.document.locator()("port", "mentions")
            raise UsageError(f"port.mentions: there is no file {path}", where=at) from None
    changed: list[str] = []
    left: list[Mention] = []
    for path, data in texts.items():
        text = _pin(old).sub(new, data.decode("utf-8", "surrogateescape"))
        left += leftovers(path, text, old)
        made = text.encode("utf-8", "surrogateescape")
        if made != data:
            write_file(os.path.join(root, path), made)
            changed.append(path)
    return changed, left
