"""Resolving dependencies with uv, which answers with files, hashes and sizes (PEP 751).

uv does not read pip's configuration, and hq's users have theirs there: index, further indexes,
local folders and certificates are asked of pip and handed on, unless uv's own variables are set.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from hq.model.errors import BuildError, InfrastructureError, UsageError

_TIMEOUT = 600


class Target(NamedTuple):
    """What is resolved for: ``3.13``, and a platform as uv names it."""

    python: str
    platform: str


class FoundWheel(NamedTuple):
    """One file of one version. ``size`` in bytes, 0 if unknown; ``sha256`` in hex or empty.

    ``path``: where it lies, if that is on this machine.
    """

    file: str
    sha256: str
    size: int
    path: str = ""

    def completed(self) -> FoundWheel:
        """With hash and size read off the file, where the index did not give them."""
        if (self.sha256 and self.size) or not self.path:
            return self
        with open(self.path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return self._replace(sha256=digest, size=os.fstat(file.fileno()).st_size)


class Package(NamedTuple):
    """One resolved package with every wheel that the index has of it."""

    name: str
    version: str
    marker: str
    wheels: tuple[FoundWheel, ...]


def resolve(requirements: Sequence[str], target: Target) -> list[Package]:
    """The packages that ``requirements`` need, sorted by name.

    Raises ``BuildError`` with uv's own explanation when there is no solution, and
    ``InfrastructureError`` when no index answers.
    """
    command = [
        *find_uv(),
        *("pip", "compile", "-", "--quiet", "--no-header", "--format", "pylock.toml"),
        *("--python-version", target.python, "--python-platform", target.platform),
        *("--only-binary", ":all:", "--no-annotate"),
    ]
    done = subprocess.run(
        command,
        input="".join(f"{line}\n" for line in requirements),
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise _failure(done.stderr, requirements, target)
    return _packages(tomllib.loads(done.stdout))


def find_uv() -> list[str]:
    """The command that runs uv. Raises ``UsageError``."""
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    if os.access(beside, os.X_OK):
        return [beside]
    found = shutil.which("uv")
    if found is None:
        raise UsageError(
            "uv is not installed, and hq resolves with it",
            hint="pip install uv",
        )
    return [found]


def _environment() -> dict[str, str]:
    """This process's environment, with pip's configuration in uv's words."""
    environment = dict(os.environ)
    pip = _pip_configuration()
    for name, variable in (("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE")):
        if name in pip:
            environment.setdefault(variable, pip[name])
    further = [url for url in pip.get("extra-index-url", "").split() if _is_there(url)]
    if further:
        environment.setdefault("UV_INDEX", " ".join(further))
        # pip takes the best version of any index, and the user set these up for pip.
        environment.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    links = [link for link in pip.get("find-links", "").split() if _is_there(link)]
    if links:
        environment.setdefault("UV_FIND_LINKS", ",".join(links))
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        environment.setdefault("UV_NO_INDEX", "1")
    environment.setdefault("UV_NO_PROGRESS", "1")
    return environment


def _pip_configuration() -> dict[str, str]:
    """The settings of pip by their plain names; those of ``pip download`` win over ``global``."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, str] = {}
    ranks = {"global": 0, "install": 1, "download": 2, ":env:": 3}
    best: dict[str, int] = {}
    for line in done.stdout.splitlines():
        key, equals, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if equals and section in ranks and ranks[section] >= best.get(name, 0):
            best[name] = ranks[section]
            # pip prints a value as Python does.
            found[name] = value.strip().strip("'\"").replace("\\n", " ")
    return found


def _is_there(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return os.path.isdir(unquote(parts.path))
    return True


def _failure(stderr: str, requirements: Sequence[str], target: Target) -> Exception:
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    if any("No solution found" in line for line in lines):
        return BuildError(
            f"the requirements have no solution for Python {target.python} on {target.platform}",
            details=[*(f"required: {line}" for line in requirements), *lines],
            hint="change what build.toml requires of this pin",
        )
    return InfrastructureError(
        "uv could not resolve the dependencies",
        details=lines[-12:],
        hint="uv must reach a package index; see 'pip config list'",
    )


def _packages(document: Mapping[str, Any]) -> list[Package]:
    found = [
        Package(
            package["name"],
            package["version"],
            package.get("marker", ""),
            tuple(_wheel(wheel) for wheel in package.get("wheels", ())),
        )
        for package in document["packages"]
    ]
    return sorted(found)


def _wheel(wheel: Mapping[str, Any]) -> FoundWheel:
    place = wheel.get("url") or wheel.get("path") or ""
    name = wheel.get("name") or unquote(urlsplit(place).path.rpartition("/")[2])
    parts = urlsplit(place)
    path = unquote(parts.path) if parts.scheme in ("", "file") else ""
    return FoundWheel(name, wheel.get("hashes", {}).get("sha256", ""), wheel.get("size", 0), path)
