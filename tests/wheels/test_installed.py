"""A wheel as installed, held against what pip makes of it."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.memory import MemoryBlobs
from helpers.wheelmaker import build_zip, wheel_items
from hq.model.digest import Digest
from hq.wheels.content import Member, extract
from hq.wheels.index import WheelIndex
from hq.wheels.install import Schemes
from hq.wheels.installed import Kept, install, relative
from hq.wheels.reading import read_index

FILES = {
    "demo/__init__.py": b"x = 1\n",
    "demo/main.py": b"def run():\n    return 0\n",
    "demo-1.0.data/scripts/tool": b"#!python\nprint(1)\n",
    "demo-1.0.data/data/share/demo/notes.txt": b"notes\n",
    "demo-1.0.data/headers/demo.h": b"int x;\n",
    "demo-1.0.data/platlib/demo/native.so": b"\x7fELF",
}
POINTS = {"entry_points.txt": b"[console_scripts]\ndemo = demo.main:run\n"}


def made(site: str, root: str) -> dict[str, bytes]:
    """Path from the root to content, of the demo wheel."""
    store = MemoryBlobs()
    wheel = store.put(build_zip(wheel_items(FILES, extra_info=POINTS)))
    schemes = Schemes(site, site, f"{root}/bin", root, f"{root}/include/site/python3.11")
    with store.open(wheel) as reader:
        index = read_index(reader, project="demo", version="1.0")
        index = WheelIndex.decode(index.encode())

        def read(member: Member) -> bytes:
            return extract(reader, member)

        files = install(index, schemes, "/usr/bin/python3", read)
        return {f.path: read(f.member) if isinstance(f, Kept) else f.data for f in files}


def test_every_file_has_its_row_and_its_hash() -> None:
    site = "usr/lib/python3/dist-packages"
    files = made(site, "usr/local")
    rows = list(csv.reader(io.StringIO(files[f"{site}/demo-1.0.dist-info/RECORD"].decode())))
    assert {row[0] for row in rows} == {relative(path, site) for path in files}
    by_name = {relative(path, site): data for path, data in files.items()}
    for name, digest, size in rows:
        if name.endswith("RECORD"):
            assert (digest, size) == ("", "")
        else:
            assert size == str(len(by_name[name]))
            assert digest.startswith("sha256=")
    assert "../../../local/bin/demo" in by_name
    assert by_name["../../../local/bin/tool"] == b"#!/usr/bin/python3\nprint(1)\n"
    assert b"from demo.main import run" in by_name["../../../local/bin/demo"]
    assert by_name["demo-1.0.dist-info/INSTALLER"] == b"hq\n"


@pytest.mark.system
def test_the_files_are_those_that_pip_installs(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    wheel.write_bytes(build_zip(wheel_items(FILES, extra_info=POINTS)))
    target = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
    python = target / "bin/python"
    question = "import sysconfig; print(sysconfig.get_path('purelib'))"
    asked = subprocess.run([python, "-c", question], capture_output=True, text=True, check=True)
    site = Path(asked.stdout.strip())
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
    before = {path for path in target.rglob("*") if path.is_file()}
    subprocess.run([python, "-m", "pip", "install", *options, str(wheel)], check=True)
    installed = {path for path in target.rglob("*") if path.is_file()} - before
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    files = made(str(site.relative_to(target)), ".")
    ours = {
        path.removeprefix("./").replace("include/site/python3.11", f"include/site/{version}")
        for path in files
    }
    # pip notes where a file came from and that it was asked for; hq's wheel comes from a lock.
    extra = {"REQUESTED", "direct_url.json"}
    theirs = {str(p.relative_to(target)) for p in installed if p.name not in extra}
    assert ours == theirs
    for path, data in files.items():
        place = target / path.removeprefix("./").replace("python3.11", version)
        if "/bin/" not in f"/{path}" and place.name not in ("RECORD", "INSTALLER"):
            assert Digest.of(place.read_bytes()) == Digest.of(data)
