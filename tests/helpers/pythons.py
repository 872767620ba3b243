"""CPython interpreters of several versions, each with an environment that has hq's requirements.

``HQ_TEST_PYTHONS`` lists interpreters, separated by colons; else those on the path and of pyenv are
taken. An environment is made once, under ``.hq/test-pythons/``, from ``requirements.txt``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
REQUIREMENTS = ROOT / "requirements.txt"


def interpreter(version: str) -> str | None:
    """A CPython of that version ("3.12"), if the machine has one."""
    question = "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2])"
    for path in _candidates(version):
        done = subprocess.run([path, "-c", question], check=False, capture_output=True, text=True)
        if done.stdout.split() == ["cpython", version]:
            return path
    return None


def _candidates(version: str) -> Iterator[str]:
    yield from filter(None, os.environ.get("HQ_TEST_PYTHONS", "").split(":"))
    found = shutil.which(f"python{version}")
    if found:
        yield found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (str(path) for path in sorted(versions.glob(f"{version}.*/bin/python3")))


def environment(version: str) -> str | None:
    """The Python of an environment of that version; ``None`` without such an interpreter.

    Raises ``CalledProcessError`` when the requirements cannot be installed.
    """
    base = interpreter(version)
    if base is None:
        return None
    mark = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    folder = ROOT / ".hq" / "test-pythons" / f"{version}-{mark}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        hashes = ["--require-hashes", "--only-binary", ":all:", "--requirement", str(REQUIREMENTS)]
        subprocess.run([str(python), *install, *hashes], check=True)
        (folder / "ready").touch()
    return str(python)
