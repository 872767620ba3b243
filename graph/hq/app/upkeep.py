"""Looking after a store: what it holds, whether it is sound, what can go.

**What is live.** The results that the last build of each pin of each project used, and the texts
that those results were made from, small ones, for ``plan`` and ``why`` show which line changed.

**Projects that are gone.** What is remembered of a project keeps its results alive, so a deleted
project has to be forgotten or its results stay for good. One counts as deleted when there is no
``build.toml`` in its folder, and that folder, or the one above if it is gone too, is there and
holds something. A disk that is not mounted leaves an empty folder or none, so its projects stay.
Where this guess is wrong the results are made again, and that is all.

**After damage.** An output folder holds hard links to blobs. When a damaged one is dropped from the
store and made again, the link is still the damaged file, with the status of the good one. So after
a verification that found anything every project's next build looks for itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from hq.app.causes import MAX_TEXT
from hq.app.memory import ROOT, scoped
from hq.app.noop import project_folder
from hq.model.digest import ActionKey, BlobRef, Digest, DigestError
from hq.store.disk import DiskStore
from hq.store.stat import stat_file


class Live:
    """What the last builds on a store need. ``forgotten``: the projects that are gone.

    All is read when it is taken: a collection takes it when it has the store for itself, so that
    the builds it waited for count. ``keys`` comes first.
    """

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._projects = os.path.join(store.root, "projects")
        self.forgotten: list[str] = []

    def keys(self) -> Iterator[ActionKey]:
        """The keys of the results. Forgets the projects that are gone."""
        for name in _names(self._projects):
            root = _root_of(self._projects, name)
            if root is not None and _is_gone(root):
                self._forget(name, root)
        self.forgotten.sort()
        for record in self._records():
            with suppress(KeyError, TypeError, AttributeError, DigestError):
                yield ActionKey.parse(record["key"])

    def sources(self) -> Iterator[BlobRef]:
        """What the results were made from, as far as it is worth showing."""
        for record in self._records():
            with suppress(KeyError, TypeError, AttributeError, DigestError):
                for taken in record["inputs"]:
                    ref = self._source(taken["digest"])
                    if ref is not None:
                        yield ref

    def _source(self, text: str) -> BlobRef | None:
        # The digest of a file's state carries its kind before it: "f:sha256:…".
        start = text.find("sha256:")
        if start < 0:
            return None
        digest = Digest.parse(text[start:])
        size = self._store.size_of(digest)
        return BlobRef(digest, size) if size is not None and size <= MAX_TEXT else None

    def _records(self) -> Iterator[Any]:
        for project in _names(self._projects):
            folder = os.path.join(self._projects, project)
            files = {
                unquote(name).removesuffix(".json"): os.path.join(folder, name)
                for name in _names(folder)
            }
            for name, path in files.items():
                kind, _, pin = name.partition("@")
                if kind == "records":
                    yield from _read(path).values()
                elif kind.startswith("records+"):
                    yield from _chosen(path, files.get(scoped("records", pin), ""))

    def _forget(self, name: str, root: str) -> None:
        import shutil

        shutil.rmtree(os.path.join(self._projects, name), ignore_errors=True)
        with suppress(OSError):
            os.unlink(os.path.join(self._store.root, stat_file(root)))
        self.forgotten.append(root)


def forget_answers(store: DiskStore) -> None:
    """Makes every project's next build look for itself. Never raises."""
    top = os.path.join(store.root, "projects")
    for project in _names(top):
        for name in _names(os.path.join(top, project)):
            if name.startswith("noop@"):
                with suppress(OSError):
                    os.unlink(os.path.join(top, project, name))


def _root_of(projects: str, name: str) -> str | None:
    """The folder of a project by the name of what is remembered; ``None`` if that is unknown."""
    root = name.replace("%2F", "/").replace("%25", "%")
    if not os.path.isabs(root):  # a path too long for a name
        try:
            with open(os.path.join(projects, name, f"{ROOT}.json"), encoding="utf-8") as file:
                root = str(json.load(file))
        except (OSError, ValueError):
            return None
    return root if project_folder("", root) == os.path.join("", "projects", name) else None


def _is_gone(root: str) -> bool:
    try:
        os.lstat(os.path.join(root, "build.toml"))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        return False
    else:
        return False
    try:
        return bool(os.listdir(root if os.path.lexists(root) else os.path.dirname(root)))
    except OSError:
        return False


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _chosen(path: str, plain: str) -> Iterator[Any]:
    """The records of a build of chosen images.

    What a later build of everything (``plain``) made of a node counts alone; else an old choice
    would keep old layers for good.
    """
    later = _read(plain) if plain and _time(plain) > _time(path) else {}
    yield from (record for node, record in _read(path).items() if node not in later)


def _time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError, TypeError):
        # A damaged record protects nothing; what it named is made again when it is needed.
        return {}
