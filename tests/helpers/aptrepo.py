"""A small Debian archive in a folder, and an apt configuration that knows it alone."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from helpers.debmaker import control, deb


class AptRepo:
    """``add`` packages, then ``publish``; ``environment`` makes apt use it."""

    def __init__(self, folder: Path, suite: str = "trixie") -> None:
        if shutil.which("apt-get") is None:
            pytest.skip("apt is not installed")
        self.root = folder / "archive"
        self.suite = suite
        self._folder = folder
        self._stanzas: list[str] = []
        (self.root / "pool").mkdir(parents=True)
        self.sources(f"deb [trusted=yes] copy:{self.root} {suite} main\n")

    def sources(self, text: str) -> None:
        """Says what is in the user's sources.list."""
        (self._folder / "etc").mkdir(exist_ok=True)
        (self._folder / "etc" / "sources.list").write_text(text)
        (self._folder / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{self._folder}/etc/sources.list";\n'
            f'Dir::Etc::sourceparts "{self._folder}/etc/parts";\n'
        )

    @property
    def environment(self) -> Mapping[str, str]:
        return {"APT_CONFIG": str(self._folder / "apt.conf")}

    def add(
        self, name: str, version: str = "1.0", *, data: bytes | None = None, **fields: str
    ) -> bytes:
        """Adds a package; ``fields`` as in ``helpers.debmaker.control``."""
        text = control(name, version, **fields)
        made = deb(text=text) if data is None else data
        file = f"pool/{name}_{version.partition(':')[2] or version}_amd64.deb"
        (self.root / file).write_bytes(made)
        self._stanzas.append(
            f"{text}Filename: {file}\nSize: {len(made)}\n"
            f"SHA256: {hashlib.sha256(made).hexdigest()}\n"
        )
        return made

    def publish(self) -> None:
        """Writes the lists."""
        place = self.root / "dists" / self.suite / "main" / "binary-amd64"
        place.mkdir(parents=True, exist_ok=True)
        packages = "\n".join(self._stanzas).encode()
        (place / "Packages").write_bytes(packages)
        (place.parent.parent / "Release").write_text(
            f"Suite: {self.suite}\nCodename: {self.suite}\nArchitectures: amd64\n"
            "Components: main\nDate: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n"
            f" {hashlib.sha256(packages).hexdigest()} {len(packages)} main/binary-amd64/Packages\n"
        )

    def mark_essential(self, name: str) -> None:
        """Says so of a package in the lists, and publishes them."""
        self._stanzas = [
            stanza.replace(f"Package: {name}\n", f"Package: {name}\nEssential: yes\n")
            for stanza in self._stanzas
        ]
        self.publish()
