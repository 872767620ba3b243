"""Looking after a store: what it holds, whether it is sound, what can go."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from urllib.parse import unquote

from hq.model.digest import ActionKey, DigestError
from hq.store.disk import DiskStore


def live_keys(store: DiskStore) -> Iterator[ActionKey]:
    """The keys that the last build of each pin of each project on this store used.

    They are read as they are taken: a collection takes them when it has the store for itself, so
    that the builds it waited for count.
    """
    yield from _keys(os.path.join(store.root, "projects"))


def _keys(folder: str) -> Iterator[ActionKey]:
    for project in _names(folder):
        for name in _names(os.path.join(folder, project)):
            if unquote(name).startswith("records@"):
                yield from _keys_of(os.path.join(folder, project, name))


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _keys_of(path: str) -> Iterator[ActionKey]:
    try:
        with open(path, encoding="utf-8") as file:
            records = json.load(file)
        for record in records.values():
            yield ActionKey.parse(record["key"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DigestError):
        # A damaged record protects nothing; what it named is made again when it is needed.
        return
