"""Other programs read the images: skopeo, umoci, buildah; and other Pythons write the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import pythons
from hq.oci.encode import COMPRESSIONS, Compression
from oci.layouts import expected_tree, make_layout, write_files

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    folder = tmp_path / "layout"
    write_files(make_layout(), folder)
    return folder


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_skopeo_inspects_and_copies(layout: Path, tmp_path: Path, compression: Compression) -> None:
    skopeo = program("skopeo")
    source = f"oci:{layout}:{compression}"
    shown = subprocess.run([skopeo, "inspect", source], capture_output=True, check=True)
    found = json.loads(shown.stdout)
    assert (found["Architecture"], found["Os"]) == ("amd64", "linux")
    assert found["Env"] == ["PYTHONPATH=/opt/demo"]
    assert len(found["Layers"]) == 2
    # Copying verifies every blob against its descriptor.
    copy = f"oci:{tmp_path / 'copy'}:x"
    subprocess.run([skopeo, "--insecure-policy", "copy", "-q", source, copy], check=True)


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_umoci_unpacks_the_tree(layout: Path, tmp_path: Path, compression: str) -> None:
    umoci = program("umoci")
    bundle = tmp_path / "bundle"
    command = [umoci, "unpack", "--rootless", "--image", f"{layout}:{compression}", str(bundle)]
    subprocess.run(command, check=True, capture_output=True)
    root = bundle / "rootfs"
    found = {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and "dist-info" not in str(path)
    }
    assert found == expected_tree()
    assert (root / "opt/demo/demo/link").readlink() == Path("run.sh")
    tool = (root / "opt/demo/demo/new/tool").stat()
    assert stat.S_IMODE(tool.st_mode) == 0o755
    assert tool.st_mtime == 0


# Prints one digest over the layout's files; run by other interpreters.
DIGEST = """
import hashlib, sys
sys.path[:0] = [sys.argv[1] + "/graph", sys.argv[1] + "/tests"]
from oci.layouts import make_layout
whole = hashlib.sha256()
for path, data in sorted(make_layout().items()):
    whole.update(path.encode() + b"\\0" + data)
print(whole.hexdigest())
"""


def layout_digest() -> str:
    whole = hashlib.sha256()
    for path, data in sorted(make_layout().items()):
        whole.update(path.encode() + b"\0" + data)
    return whole.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_other_pythons_write_the_same_bytes(version: str) -> None:
    found = pythons.environment(version)
    if found is None:
        pytest.skip(f"there is no CPython {version} here; HQ_TEST_PYTHONS can name one")
    environment = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    command = [found, "-W", "error", "-c", DIGEST, str(ROOT)]
    shown = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    assert shown.stdout.strip() == layout_digest()


def test_without_isal_the_bytes_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "isal").mkdir()
    (tmp_path / "isal/__init__.py").write_text("raise ImportError('hidden')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", DIGEST, str(ROOT)]
    shown = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    assert shown.stdout.strip() == layout_digest()
