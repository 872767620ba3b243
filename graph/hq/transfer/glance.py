"""Asks the engine at a local socket whether it has an image already, without Docker's SDK.

Most loads are of an image that the engine has, and loading the SDK takes four times as long as the
whole answer. Whatever is not a plain yes is left to the SDK's way, which also tells what is wrong.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import quote

_PATIENCE: Final = 10.0  # seconds
_MOST: Final = 4 << 20  # bytes of an answer
_SERVER: Final = "Docker/"


class _Local(HTTPConnection):
    """A connection to a socket of this machine."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE)
        self._path = path

    def connect(self) -> None:
        """Connects. Raises ``OSError``."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def version_if_there(
    path: str, names: Sequence[str], image_id: str, diff_ids: Sequence[str]
) -> str:
    """The engine's version if all of ``names`` stand at the image there; else, or if in doubt, "".

    ``path``: the socket's. An image is its ID and its DiffIDs.
    """
    connection = _Local(path)
    version = ""
    try:
        for name in names:
            connection.request("GET", f"/images/{quote(name, safe='/:@')}/json")
            answer = connection.getresponse()
            data = answer.read(_MOST)
            server = answer.getheader("Server", "").partition(" ")[0]
            if answer.status != 200 or not server.startswith(_SERVER):
                return ""
            found = json.loads(data)
            if found["Id"] != image_id or found["RootFS"]["Layers"] != list(diff_ids):
                return ""
            version = server.removeprefix(_SERVER)
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return ""
    finally:
        connection.close()
    return version
