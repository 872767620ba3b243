"""Many packages, one root tree, by dpkg's rules.

* **Merged /usr.** ``/bin``, ``/sbin``, ``/lib`` and their like are symlinks into ``/usr``; what a
  package puts beneath them stands beneath ``/usr``, whichever package ships the links.
* **Replaces.** A path of two packages is a conflict, unless one of them says that it replaces the
  other's files; that one's file stands, whatever the order.
* **Directories** of many packages are one; ``base-files`` says how they are, else the first name.
* **Symlinks.** A directory of one package where another has a symlink to a directory is that
  symlink, as dpkg leaves it. A *file* that would be written through such a link is refused, which
  is stricter than dpkg: no package of a usual base does it, and a hostile one could escape by it.

Diversions are not carried out and no maintainer script runs; ``state`` says what takes their
place. The result does not depend on the order of the packages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hq.debian.control import relations
from hq.debian.package import Item, Package
from hq.debian.version import satisfies
from hq.model.errors import BuildError

MERGED: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libo32", "libx32")
"""The directories that are symlinks to those of the same name in ``/usr``."""

_ALWAYS: Final = ("bin", "lib", "sbin")


class Placed(NamedTuple):
    """An entry of the root: the item under its real path, and the package it is from."""

    item: Item
    package: str


Root = dict[str, Placed]
"""Entries by path; parents are there, hard links point to files of the same package."""


def real_path(path: str) -> str:
    """Where a path of a package stands when /usr is merged."""
    top, slash, _ = path.partition("/")
    return f"usr/{path}" if slash and top in MERGED else path


def merge(packages: Sequence[Package]) -> Root:
    """The root of ``packages``. Raises ``BuildError`` with every conflict."""
    ordered = sorted(packages, key=_rank)
    _check_names(ordered)
    merger = _Merger({package.name: package for package in ordered})
    for package in ordered:
        for item in package.items:
            merger.add(item, package)
    return merger.finish()


def _rank(package: Package) -> tuple[bool, str, str]:
    return package.name != "base-files", package.name, package.architecture


def _check_names(packages: Sequence[Package]) -> None:
    seen: dict[str, Package] = {}
    for package in packages:
        other = seen.setdefault(package.name, package)
        if other is not package:
            raise BuildError(
                f"a base cannot hold {other.title} and {package.title}",
                hint="lock one version and one architecture of each package",
            )


class _Merger:
    def __init__(self, packages: Mapping[str, Package]) -> None:
        self._packages = packages
        self._root: Root = {}
        self._problems: list[str] = []
        self._conflicts = False

    def add(self, item: Item, package: Package) -> None:
        """Puts an item of the package where it belongs."""
        path = real_path(item.path)
        if path in MERGED:
            if item.type == "l" and _target(item.link) == f"usr/{path}":
                path_item = item._replace(link=f"usr/{path}")
                self._root[path] = Placed(path_item, package.name)
                return
            if item.type != "d":
                self._problem(f"/{path} of {package.title} is not the symlink to usr/{path}")
                return
            path = f"usr/{path}"
        link = real_path(item.link) if item.type == "h" else item.link
        self._place(item._replace(path=path, link=link), package)

    def _place(self, item: Item, package: Package) -> None:
        standing = self._root.get(item.path)
        if standing is None:
            self._root[item.path] = Placed(item, package.name)
            return
        if item.type == "d" and standing.item.type in ("d", "l"):
            return
        if item.type == "l" and standing.item.type == "d":
            self._root[item.path] = Placed(item, package.name)
            return
        other = self._packages[standing.package]
        newer, older = self._replaces(package, other), self._replaces(other, package)
        if newer == older or "d" in (item.type, standing.item.type):
            self._problem(f"/{item.path} is in {other.title} and in {package.title}")
            self._conflicts = True
        elif newer:
            self._root[item.path] = Placed(item, package.name)

    def _problem(self, text: str) -> None:
        self._problems.append(text)

    @staticmethod
    def _replaces(package: Package, other: Package) -> bool:
        return any(
            relation.name == other.name
            and satisfies(other.version, relation.operator, relation.version)
            for group in relations(package.fields.get("Replaces", ""))
            for relation in group
        )

    def finish(self) -> Root:
        """The root with its links and parents, or the error."""
        for name in MERGED:
            if name in _ALWAYS or f"usr/{name}" in self._root:
                link = Item(name, "l", 0o777, 0, 0, f"usr/{name}")
                self._root.setdefault(name, Placed(link, ""))
        for path in list(self._root):
            self._add_parents(path)
        for path, (item, owner) in self._root.items():
            # Beside a conflict this would only repeat it.
            if item.type == "h" and not self._conflicts:
                self._check_hard_link(path, item, owner)
        if self._problems:
            raise BuildError(
                "the packages of the base do not fit together",
                details=sorted(self._problems),
                hint="lock the base again, from one suite",
            )
        return {path: self._root[path] for path in sorted(self._root)}

    def _add_parents(self, path: str) -> None:
        owner = self._root[path].package
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            parent = self._root.get(above)
            if parent is None:
                self._root[above] = Placed(Item(above, "d", 0o755, 0, 0), owner)
            elif parent.item.type != "d":
                kind = "the symlink " if parent.item.type == "l" else ""
                self._problem(
                    f"/{path} of {owner} would be written through {kind}/{above} of "
                    f"{parent.package or 'the merged /usr'}"
                )
                return

    def _check_hard_link(self, path: str, item: Item, owner: str) -> None:
        target = self._root.get(item.link)
        if target is None or target.package != owner or target.item.type != "f":
            self._problem(f"/{path} of {owner} is a hard link to /{item.link}, which is replaced")


def _target(link: str) -> str:
    return link.removeprefix("/")


def with_items(root: Root, added: Sequence[Item]) -> Root:
    """The root with ``added`` entries, which replace what stands there; parents are made.

    Raises ``BuildError`` when a parent is no directory (threat: a package whose ``etc`` is a link).
    """
    merged = dict(root)
    for item in added:
        merged[item.path] = Placed(item, "")
    for item in added:
        above = item.path
        while "/" in above:
            above = above.rpartition("/")[0]
            parent = merged.setdefault(above, Placed(Item(above, "d", 0o755, 0, 0), ""))
            if parent.item.type != "d":
                raise BuildError(
                    f"/{item.path} cannot be made: /{above} is no directory",
                    details=[f"it is from: {parent.package or 'the merged /usr'}"],
                )
    return {path: merged[path] for path in sorted(merged)}
