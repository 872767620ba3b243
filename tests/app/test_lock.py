"""``hq lock``: resolution by a real uv from a local index, and the lock edited in place."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.project import SampleProject
from helpers.wheelmaker import build_zip, metadata, wheel_items
from hq.app.declaration import LockWheel
from hq.app.lock import Difference, differences, edited

HEAD = '# Kept.\nschema = "hq.lock/1"\npin = "1.0"\ndistribution = "demo"\n'


def row(name: str, version: str = "1", sha256: str = "a", record: str = "check") -> LockWheel:
    return LockWheel(
        name=name,
        version=version,
        file=f"{name}-{version}-py3-none-any.whl",
        sha256=sha256 * 64,
        size=10,
        record=record,  # type: ignore[arg-type]  # one of two texts
    )


rows = st.lists(
    st.builds(row, st.sampled_from("abcd"), st.sampled_from("123"), st.sampled_from("ef")),
    unique_by=lambda found: found.name,
    min_size=1,
)


@given(rows, rows)
def test_an_edited_lock_holds_the_new_rows_and_the_old_words(
    old: list[LockWheel], new: list[LockWheel]
) -> None:
    text = edited(edited(HEAD, old), new)
    assert text.startswith(HEAD)
    found = [LockWheel(**table) for table in tomllib.loads(text)["wheel"]]
    assert found == new
    assert edited(text, new) == text
    assert (list(differences(old, new)) == []) == (sorted(map(str, old)) == sorted(map(str, new)))


def test_comments_of_a_row_stay_and_a_word_on_its_record_goes_with_its_file() -> None:
    text = edited(HEAD, [row("a"), row("b")])
    noted = text.replace('name = "a"', '# Why it is so.\nname = "a"')
    noted = noted.replace("size = 10\n", 'size = 10\nrecord = "ignore"\n', 1)
    same = edited(noted, [row("a"), row("b")])
    assert "# Why it is so." in same
    assert 'record = "ignore"' in same
    other = edited(noted, [row("a", sha256="c"), row("b")])
    assert "# Why it is so." in other
    assert 'record = "ignore"' not in other


def test_differences_in_words() -> None:
    old, new = [row("a"), row("b"), row("c")], [row("a", "2"), row("b", sha256="f"), row("d")]
    assert [str(found) for found in differences(old, new)] == [
        "a is locked at 1; a fresh resolution takes 2",
        "b is locked at b-1-py3-none-any.whl; a fresh resolution takes b-1-py3-none-any.whl",
        "c 1 is not needed",
        "d 1 is not in the lock",
    ]
    assert Difference("a", "1", "").fresh == ""


@pytest.fixture
def indexed(tmp_path: Path) -> SampleProject:
    """The sample project with two dependencies in the folder that pip and uv look into."""
    project = SampleProject(tmp_path)
    if shutil.which("uv") is None and not Path(sys.executable).with_name("uv").exists():
        pytest.skip("uv is not installed")
    for name, version in (("needed", "1.5"), ("needed", "2.0"), ("further", "3.0")):
        needs = b"Requires-Dist: further\n" if name == "needed" else b""
        text = metadata(name, version).replace(b"\n\n", b"\n" + needs + b"\n", 1)
        items = wheel_items(
            {f"{name}.py": b""}, project=name, version=version, extra_info={"METADATA": text}
        )
        path = project.links / f"{name}-{version}-py3-none-any.whl"
        path.write_bytes(build_zip(items))
    build = project.read("build.toml")
    project.write(
        "build.toml",
        build.replace('[pins."1.0"]', '[target]\npython = "3.13"\nplatform = '
                      '"x86_64-manylinux_2_39"\n\n[pins."1.0"]\nrequires = ["needed<2"]'),
    )  # fmt: skip
    return project


def lock(project: SampleProject, *words: str) -> subprocess.CompletedProcess[str]:
    return project.run("lock", *words, env={"UV_CACHE_DIR": str(project.store.parent / "uv")})


@pytest.mark.system
def test_a_resolution_is_locked_checked_and_exported(indexed: SampleProject) -> None:
    done = lock(indexed, "--check")
    assert (done.returncode, done.stdout.splitlines()) == (
        1,
        ["further 3.0 is not in the lock", "needed 1.5 is not in the lock"],
    )
    assert lock(indexed).returncode == 0
    found = tomllib.loads(indexed.read("lockfiles/1.0.toml"))["wheel"]
    assert [(wheel["name"], wheel["version"]) for wheel in found] == [
        ("demo", "1.0"),
        ("further", "3.0"),
        ("needed", "1.5"),
    ]
    assert "http" not in indexed.read("lockfiles/1.0.toml")
    checked = lock(indexed, "--check")
    assert (checked.returncode, checked.stdout) == (0, "")
    hashes = {wheel["name"]: wheel["sha256"] for wheel in found}
    requirements = lock(indexed, "--export", "requirements").stdout
    assert f"needed==1.5 \\\n    --hash=sha256:{hashes['needed']}\n" in requirements
    exported = tomllib.loads(lock(indexed, "--export", "pylock").stdout)
    assert exported["lock-version"] == "1.0"
    assert [package["name"] for package in exported["packages"]] == ["demo", "further", "needed"]
    assert indexed.build()["built"][0] == "wheel:demo"


@pytest.mark.system
def test_a_conflict_is_told_in_the_resolver_s_words(indexed: SampleProject) -> None:
    before = indexed.read("lockfiles/1.0.toml")
    build = indexed.read("build.toml")
    indexed.write("build.toml", build.replace("needed<2", 'needed<2", "needed>=2'))
    done = lock(indexed)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[1:5] == [
        "error: the requirements have no solution for Python 3.13 on x86_64-manylinux_2_39",
        "  required: demo==1.0",
        "  required: needed<2",
        "  required: needed>=2",
    ]
    assert "unsatisfiable" in done.stderr
    assert lines[-1] == "  help: change what build.toml requires of this pin"
    assert indexed.read("lockfiles/1.0.toml") == before
