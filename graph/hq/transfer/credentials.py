"""Credentials for a registry, where Docker keeps them.

``$DOCKER_CONFIG/config.json`` or ``~/.docker/config.json``: ``credHelpers`` for one registry, else
``credsStore`` for all, else ``auths``. A helper is the program ``docker-credential-<name>``; it is
given the registry's name on standard input and answers with JSON. Nothing is kept or logged; the
text of an error names where credentials came from and never what they are.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hq.model.errors import InfrastructureError, Location, UsageError
from hq.oci.reference import HUB

_HUB_KEY: Final = "https://index.docker.io/v1/"
_MAX_CONFIG: Final = 1 << 20
_PATIENCE: Final = 60.0  # seconds; a helper may ask the user
_HELPER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ABSENT: Final = "credentials not found"


class Credentials(NamedTuple):
    """A user's name and password, or an identity token. ``origin``: where they come from."""

    username: str
    password: str
    token: str
    origin: str

    @property
    def basic(self) -> str:
        """The value of ``Authorization`` in the Basic scheme (RFC 7617)."""
        pair = f"{self.username}:{self.password}".encode()
        return "Basic " + base64.b64encode(pair).decode("ascii")

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, origin={self.origin!r})"


def find_credentials(environment: Mapping[str, str], registry: str) -> Credentials | None:
    """The credentials for a registry (host with port), or ``None`` when there are none.

    Raises ``UsageError`` for a file that is wrong, ``InfrastructureError`` for a failing helper.
    """
    path = config_path(environment)
    config = _load(path)
    key = _HUB_KEY if registry == HUB else registry
    helpers = config.get("credHelpers")
    name = helpers.get(key) or helpers.get(registry) if isinstance(helpers, dict) else None
    name = name or config.get("credsStore")
    if name:
        return _ask(str(name), key, path, environment)
    auths = config.get("auths")
    if not isinstance(auths, dict):
        return None
    entry = auths.get(key)
    if entry is None:
        entry = next((auths[k] for k in sorted(auths) if _host_of(k) == registry), None)
    return _entry(entry, registry, path) if isinstance(entry, dict) else None


def config_path(environment: Mapping[str, str]) -> str:
    """Docker's configuration file, which need not be there."""
    folder = environment.get("DOCKER_CONFIG")
    if not folder:
        home = environment.get("HOME") or os.path.expanduser("~")
        folder = os.path.join(home, ".docker")
    return os.path.join(folder, "config.json")


def _load(path: str) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_CONFIG + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(
            f"Docker's configuration cannot be read: {(error.strerror or '').lower()}",
            where=Location(path),
        ) from error
    try:
        found = json.loads(data) if len(data) <= _MAX_CONFIG else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            "Docker's configuration is not a JSON object",
            where=Location(path),
            hint="mend the file, or name another folder with DOCKER_CONFIG",
        )
    return found


def _host_of(key: str) -> str:
    """The registry that a key of ``auths`` stands for: old keys are URLs."""
    return key.removeprefix("https://").removeprefix("http://").partition("/")[0]


def _entry(entry: Mapping[str, Any], registry: str, path: str) -> Credentials | None:
    token = str(entry.get("identitytoken") or "")
    user = str(entry.get("username") or "")
    password = str(entry.get("password") or "")
    if entry.get("auth"):
        user, password = _decoded(str(entry["auth"]), registry, path)
    if not (user or token):
        return None
    return Credentials(user, password, token, path)


def _decoded(text: str, registry: str, path: str) -> tuple[str, str]:
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise UsageError(
            f"the entry for {registry} is not base64 of 'user:password'",
            where=Location(path),
            hint=f"run 'docker login {registry}' again",
        )
    return user, password.rstrip("\0")


def _ask(name: str, key: str, path: str, environment: Mapping[str, str]) -> Credentials | None:
    import subprocess

    program = f"docker-credential-{name}"
    if not _HELPER.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a credential helper", where=Location(path))
    try:
        done = subprocess.run(
            [program, "get"],
            input=key.encode(),
            capture_output=True,
            check=False,
            timeout=_PATIENCE,
            env=dict(environment),
        )
    except FileNotFoundError:
        raise UsageError(
            f"the credential helper {program} is not on the path",
            where=Location(path),
            hint="install it, or take its name out of the file",
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _helper_failed(program, path, type(error).__name__) from error
    said = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        if said.lower().startswith(_ABSENT):
            return None
        raise _helper_failed(program, path, f"it ended with status {done.returncode}")
    return _answered(said, program, path)


def _answered(said: str, program: str, path: str) -> Credentials | None:
    try:
        found = json.loads(said)
        user, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _helper_failed(program, path, "its answer is not what is expected") from None
    if user == "<token>":
        return Credentials("", "", secret, program)
    return Credentials(user, secret, "", program) if user else None


def _helper_failed(program: str, path: str, why: str) -> InfrastructureError:
    # What it wrote is not shown: it might be a secret.
    return InfrastructureError(
        f"the credential helper {program} failed: {why}",
        where=Location(path),
        hint=f"run '{program} get' by hand, with the registry's name on standard input",
    )
