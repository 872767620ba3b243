"""This repository's own series, knobs and overlay on a real wheel, as a project in a folder.

Only the declaration is written here: one package image ``FROM scratch``, a lock of the one wheel.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from helpers.project import SampleProject

ROOT = Path(__file__).resolve().parent.parent.parent
PINS = ("0.28.0", "0.29.0")
SERIES = {"0.28.0": "patches/series-0.28.0", "0.29.0": "patches/series"}


def real_wheel(pin: str) -> Path:
    """The wheel of a pin; skips the test when there is none."""
    folder = os.environ.get("HQ_TEST_WHEELS", "")
    found = sorted(Path(folder).glob(f"vllm-{pin}-*.whl")) if folder else []
    if not found:
        pytest.skip(f"HQ_TEST_WHEELS names no folder with the wheel of {pin}")
    return found[0]


class RealProject(SampleProject):
    """``folder`` should be on a disk with 2 GB to spare."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.store = folder / "store"
        self.links = Path(os.environ.get("HQ_TEST_WHEELS", ""))
        self.first = {}
        for name in ("patches", "kvarn", "images/launch"):
            shutil.copytree(ROOT / name, self.root / name)
        lines = [
            'schema = "hq.project/1"\noverlays = ["kvarn/overlay.toml"]\n'
            'images = ["images/vllm.toml", "images/serve.toml"]\n\n'
            '[project]\nname = "vllm"\ndefault-pin = "0.29.0"\n\n'
            '[knobs]\nregistry = "patches/knobs.toml"\ntarget = "vllm/envs.py"\n'
        ]
        for pin in PINS:
            self._lock(pin)
            lines.append(
                f'[pins."{pin}"]\nlock = "lockfiles/{pin}.toml"\nseries = "{SERIES[pin]}"\n'
            )
        self.write("build.toml", "\n".join(lines))
        self.image("gzip")
        # Never built: the registry names the launchers, so an image has to have them.
        self.write(
            "images/serve.toml",
            'schema = "hq.image/1"\nname = "serve"\ndefault = false\nprefix = "/opt/site"\n\n'
            '[launch]\nfiles = { "/opt/serve" = "images/launch/serve" }\n',
        )

    def image(self, compression: str) -> None:
        """Declares the image."""
        self.write(
            "images/vllm.toml",
            'schema = "hq.image/1"\nname = "vllm"\nrole = "package"\n'
            f'prefix = "/opt/site"\ncompression = "{compression}"\n',
        )

    def _lock(self, pin: str) -> None:
        """The head of the repository's lock and the row of vLLM's own wheel."""
        head, *rows = (ROOT / "lockfiles" / f"{pin}.toml").read_text().split("[[wheel]]\n")
        own = [row for row in rows if row.startswith('name = "vllm"\n')]
        self.write(f"lockfiles/{pin}.toml", f"{head}[[wheel]]\n{own[0]}")
