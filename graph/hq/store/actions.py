"""Action results on disk: one file for each key.

A file is one line, ``sha256:<hex>`` of everything after it, then the result as JSON. The checksum
is there because a flipped bit in a plain value (a DiffID, say) would be valid JSON and a wrong
result.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from hq.model.action import ActionResult, from_json, to_json
from hq.model.digest import ActionKey, Digest
from hq.store.faults import disk_fault
from hq.store.files import TMP, read_file, replace_file
from hq.store.locks import KeyLock
from hq.store.root import Warn, silent

_TOUCH_AFTER = 24 * 3600.0  # seconds; collection removes the entries unused for longest


class DiskActions:
    """``hq.model.ports.ActionCache`` in ``<root>/ac``.

    A hit says nothing about the blobs that it names: the caller looks for them.
    """

    __slots__ = ("_root", "_warn")

    def __init__(self, root: str, warn: Warn = silent) -> None:
        self._root = root
        self._warn = warn

    def path(self, key: ActionKey) -> str:
        """Where the result of ``key`` is, if it is there."""
        return f"{self._root}/ac/{key[:2]}/{key}"

    def get(self, key: ActionKey) -> ActionResult | None:
        """The result, or ``None``. Raises ``InfrastructureError``."""
        try:
            data = read_file(self.path(key))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_fault(error, "read a cached result", self._root) from error
        try:
            result = parse_result(key, data)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            self._warn(f"ignored a damaged cached result in the store: {key}: {error}")
            return None
        self._touch(key, time.time())
        return result

    def put(self, result: ActionResult) -> None:
        """Stores the result, whole or not at all. Raises ``InfrastructureError``."""
        data = render_result(result)
        try:
            # Not flushed: an entry states its own hash, and a lost one is a miss.
            replace_file(f"{self._root}/{TMP}", self.path(result.key), data, flush=False)
        except OSError as error:
            raise disk_fault(
                error, "write a result to the store", self._root, size=len(data)
            ) from error

    def lock(self, key: str) -> KeyLock:
        """Single flight of ``key`` (64 hex digits: an action key, or a digest's ``hex``)."""
        return KeyLock(f"{self._root}/locks", key)

    def _touch(self, key: ActionKey, now: float) -> None:
        """Notes that ``key`` was used at ``now`` (seconds), at most once a day. Never raises."""
        path = self.path(key)
        with suppress(OSError):
            if os.stat(path).st_mtime + _TOUCH_AFTER < now:
                os.utime(path, (now, now))


def render_result(result: ActionResult) -> bytes:
    """The file's bytes for ``result``; the same for equal results."""
    body = json.dumps(to_json(result), sort_keys=True, separators=(",", ":")).encode()
    return f"{Digest.of(body)}\n".encode() + body


def parse_result(key: ActionKey, data: bytes) -> ActionResult:
    """Reads ``render_result``'s bytes.

    Raises ``ValueError``, ``TypeError``, ``KeyError`` or ``IndexError`` when it is anything else.
    """
    checksum, _, body = data.partition(b"\n")
    if checksum != Digest.of(body).encode():
        raise ValueError("its checksum does not match")
    result = from_json(json.loads(body))
    if result.key != key:
        raise ValueError(f"it is the result of {result.key}")
    return result
