"""The trees that the behaviour tests compare: a pin as it ships, and with its series and knobs.

Only the Python sources of a wheel are unpacked; its compiled parts cannot run without a GPU. The
series is applied by GNU patch without fuzz, so that these tests do not stand on the engine that
other tests check, and ``envs.py`` is generated from the registry as a build does it.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path

from hq.app.knobsfile import load_registry
from hq.knobs.generate import generate

PATCHES = Path(__file__).resolve().parents[2] / "patches"
PINS = {"0.29.0": "series", "0.28.0": "series-0.28.0"}


def series(pin: str) -> list[Path]:
    """The patch files of a pin, in the order in which they apply."""
    lines = (PATCHES / PINS[pin]).read_text().splitlines()
    return [PATCHES / line.split()[0] for line in lines if line.strip() and line[0] != "#"]


def unpack(wheel: Path, tree: Path) -> None:
    """The Python sources of ``wheel``, and the metadata that ``importlib.metadata`` reads."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith((".py", ".dist-info/METADATA")):
                archive.extract(name, tree)


def apply(patch: Path, tree: Path) -> bool:
    """Whether ``patch`` applies without fuzz; the tree is left as it was when it does not."""
    command = ["patch", "-p1", "-F0", "-s", "--no-backup-if-mismatch", "-i", str(patch)]
    trial = subprocess.run([*command, "--dry-run"], cwd=tree, capture_output=True, check=False)
    if trial.returncode == 0:
        subprocess.run(command, cwd=tree, check=True)
    return trial.returncode == 0


def register(tree: Path, patches: Iterable[Path]) -> None:
    """Generate ``envs.py`` with the knobs of ``patches``."""
    registry = load_registry("knobs.toml", (PATCHES / "knobs.toml").read_bytes())
    owned = registry.owned_by({f"patch:{patch.stem}" for patch in patches})
    envs = tree / "vllm" / "envs.py"
    envs.write_bytes(generate(envs.read_bytes(), owned, "vllm/envs.py"))


def patched(stock: Path, tree: Path, patches: Iterable[Path]) -> list[str]:
    """Make ``tree`` from ``stock`` and ``patches``; the names of those that did not apply."""
    shutil.copytree(stock, tree)
    tried = list(patches)
    applied = [patch for patch in tried if apply(patch, tree)]
    register(tree, applied)
    return [patch.stem for patch in tried if patch not in applied]
