"""The same inputs give the same bytes, whoever builds them, where, when and with what.

Every test builds a project of its own, cold, under one circumstance that must not matter, and
compares all that lies in ``dist`` with what a plain build gave.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from helpers.project import SampleProject
from helpers.pythons import environment

SHUFFLE = """
import os, random

listdir, scandir = os.listdir, os.scandir

class Shuffled:
    def __init__(self, path):
        with scandir(path) as entries:
            self.entries = list(entries)
        random.shuffle(self.entries)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass
    def close(self):
        pass
    def __iter__(self):
        return self
    def __next__(self):
        if not self.entries:
            raise StopIteration
        return self.entries.pop()

def shuffled(path="."):
    names = listdir(path)
    random.shuffle(names)
    return names

os.listdir, os.scandir = shuffled, lambda path=".": Shuffled(path)
"""


def outputs(folder: Path) -> dict[str, bytes]:
    """Every file beneath ``folder``."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a plain build gives."""
    project = SampleProject(tmp_path_factory.mktemp("plain"))
    project.build()
    return outputs(project.root / "dist")


def same(project: SampleProject, plain: Mapping[str, bytes]) -> None:
    found = outputs(project.root / "dist")
    assert sorted(found) == sorted(plain)
    assert [name for name in found if found[name] != plain[name]] == []


@pytest.mark.parametrize(
    "folder",
    [b"a folder \xc3\xbcnder % another, longer path/" + b"x" * 200, b"in latin-1: caf\xe9"],
)
def test_01_another_folder(plain: Mapping[str, bytes], tmp_path: Path, folder: bytes) -> None:
    project = SampleProject(tmp_path / os.fsdecode(folder))
    project.supply()  # pip would split the path of its folder at the blanks
    project.build()
    same(project, plain)
    assert project.build()["built"] == []
    for command in ("build", "plan", "graph"):
        assert project.run(command).returncode == 0


@pytest.mark.parametrize("umask", ["000", "077"])
def test_02_umask(plain: Mapping[str, bytes], project: SampleProject, umask: str) -> None:
    project.build(prefix=("sh", "-c", f'umask {umask} && exec "$@"', "sh"))
    same(project, plain)


@pytest.mark.parametrize(
    "variables",
    [
        {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "0"},
        {"LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "1"},
        {"LC_ALL": "C.UTF-8", "LANG": "de_DE", "PYTHONOPTIMIZE": "2", "CI": "true"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONHASHSEED": "random", "COLUMNS": "20"},
        {"HOME": "/nowhere", "USER": "somebody", "HOSTNAME": "elsewhere", "TERM": "dumb"},
    ],
    ids=lambda variables: ",".join(f"{name}={value}" for name, value in variables.items()),
)
def test_03_environment(
    plain: Mapping[str, bytes], project: SampleProject, variables: Mapping[str, str]
) -> None:
    project.build(env=variables)
    same(project, plain)


@pytest.mark.parametrize("jobs", ["-j1", "-j8"])
def test_04_jobs(plain: Mapping[str, bytes], project: SampleProject, jobs: str) -> None:
    project.build(jobs)
    same(project, plain)


@pytest.mark.parametrize("attempt", range(2))
def test_05_order_of_directories(
    plain: Mapping[str, bytes], project: SampleProject, tmp_path: Path, attempt: int
) -> None:
    custom = tmp_path / "custom"
    custom.mkdir()
    (custom / "sitecustomize.py").write_text(SHUFFLE)
    path = f"{custom}:{project.environment()['PYTHONPATH']}"
    project.build(env={"PYTHONPATH": path})
    same(project, plain)
    assert project.build(env={"PYTHONPATH": path})["built"] == []


def test_06_order_in_which_the_files_were_made(
    plain: Mapping[str, bytes], project: SampleProject
) -> None:
    for path in sorted(project.root.rglob("*"), reverse=True):
        if path.is_file():
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data)
            path.chmod(0o600)
            os.utime(path, (0, 0))
    project.build()
    same(project, plain)


def test_07_a_warm_store_and_a_cold_one(
    plain: Mapping[str, bytes], project: SampleProject, tmp_path: Path
) -> None:
    project.build()
    other = SampleProject(tmp_path / "other")
    other.store = project.store
    document = other.build()
    assert document["built"] == []
    # The records say that the results were there already; everything else is the same.
    found = outputs(other.root / "dist")
    assert [name for name in found if found[name] != plain[name]] == ["demo-1.0.records.json"]


def test_08_a_detour(plain: Mapping[str, bytes], project: SampleProject) -> None:
    project.build()
    text = project.read("patches/first.patch")
    project.replace("patches/first.patch", "+line ten", "+line TEN")
    project.build()
    project.write("patches/first.patch", text)
    document = project.build()
    assert document["built"] == []
    found = outputs(project.layout())
    assert found == {
        name.removeprefix("demo-1.0/"): data
        for name, data in plain.items()
        if name.startswith("demo-1.0/")
    }


def test_09_the_epoch_does_matter(plain: Mapping[str, bytes], project: SampleProject) -> None:
    zero = project.build(env={"SOURCE_DATE_EPOCH": "0"})
    same(project, plain)
    dated = project.build(env={"SOURCE_DATE_EPOCH": "1700000000"})
    assert dated["images"][0]["image_id"] != zero["images"][0]["image_id"]
    # No file was patched again for it.
    assert all(name.startswith(("layer:", "image:")) for name in dated["built"])
    again = project.build(env={"SOURCE_DATE_EPOCH": "1700000000"})
    assert again["built"] == []
    assert again["images"] == dated["images"]


def test_10_another_user(plain: Mapping[str, bytes], project: SampleProject) -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can build as another user, with setpriv")
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    asked = subprocess.run(
        [*prefix, sys.executable, "-c", "import blake3"], check=False, capture_output=True
    )
    if asked.returncode != 0:
        pytest.skip("the other user cannot run this Python")
    top = project.root.parent
    for path in (top, *top.rglob("*")):
        os.chown(path, 65534, 65534)
    for path in list(top.parents)[:-2]:
        path.chmod(path.stat().st_mode | 0o055)
    project.build(prefix=prefix, env={"HOME": "/nonexistent"})
    same(project, plain)
    assert (project.layout() / "index.json").stat().st_uid == 65534


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_11_another_python(
    plain: Mapping[str, bytes], project: SampleProject, version: str
) -> None:
    python = environment(version)
    if python is None:
        pytest.skip(f"there is no CPython {version} here; HQ_TEST_PYTHONS can name one")
    document = project.build(python=python)
    assert document["nodes"]["built"] == 13
    same(project, plain)
