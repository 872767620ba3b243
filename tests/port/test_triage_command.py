"""``hq port triage`` as a person meets it: by version, by wheel, by directory."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from helpers.project import FILES
from port.conftest import PortProject

pytestmark = pytest.mark.system

CLASH = ("vllm/two.py", "line 20\n", "line XX\n")


def test_a_version_is_asked_for_once_and_a_wheel_and_a_directory_say_the_same(
    project: PortProject, tmp_path: Path
) -> None:
    wheel = project.release(CLASH)
    by_version = project.port("triage", "--to", "2.0", code=1)
    assert by_version["counts"]["fails"] == 1
    Path(wheel).rename(tmp_path / Path(wheel).name)  # the index has it no more
    assert project.port("triage", "--to", "2.0", "--offline", code=1) == by_version
    by_wheel = project.port("triage", "--wheel", str(tmp_path / Path(wheel).name), code=1)
    assert by_wheel == by_version
    with zipfile.ZipFile(tmp_path / Path(wheel).name) as archive:
        archive.extractall(tmp_path / "2.0")
    assert project.port("triage", "--tree", str(tmp_path / "2.0"), code=1) == by_version


def test_nothing_is_written_and_a_clean_release_is_0(project: PortProject) -> None:
    project.release()
    done = project.run("port", "triage", "--to", "2.0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "1.0 to 2.0: 5 of 5 patches apply, 5 hunks: 5 exact, 0 at an offset, 0 by fuzz only; "
        "0 fail, 0 doubtful, 0 files of patches moved, 0 findings\n"
    )
    assert project.git("status", "--porcelain") == ""


def test_a_declared_fact_and_a_place_of_the_knobs_that_are_gone_are_told(
    project: PortProject,
) -> None:
    files = dict(FILES)
    files["vllm/config.py"] = b'Kind = "other"\n' + files["vllm/config.py"]
    files["vllm/envs.py"] = files["vllm/envs.py"].replace(b"ignored_factors", b"left_out")
    found = project.port("triage", "--wheel", project.release(files=files), code=1)
    assert found["counts"]["fails"] == 0
    assert found["broken"] == [
        {
            "what": "the parser takes the kind",
            "path": "vllm/config.py",
            "found": "Kind is assigned 2 times, expected once",
        },
        {
            "what": "the knobs are written into it",
            "path": "vllm/envs.py",
            "found": "cannot register knobs: no ignored_factors in compile_factors",
        },
    ]


def test_what_cannot_be_read_is_refused(project: PortProject, tmp_path: Path) -> None:
    def said(*arguments: str, code: int = 2) -> str:
        return project.fails("port", "triage", *arguments, code=code).split("\n")[0]

    assert said() == "error: no release is named to move to"
    assert said("--wheel", "none.whl") == "error: cannot read the wheel: no such file or directory"
    (tmp_path / "x.whl").write_bytes(b"")
    assert said("--wheel", str(tmp_path / "x.whl")).startswith("error: ")
    assert said("--tree", "none") == "error: the tree does not exist"
    assert said("--to", "9.9", code=1) == "error: no index has demo 9.9 in this form"
    assert said("--to", "9.9", "--offline", code=1) == (
        "error: demo 9.9 is in no lock, and --offline forbids to ask for it"
    )
    bad = tmp_path / "demo-3.0-py3-none-any.whl"
    bad.write_bytes(b"PK\3\4 not a wheel")
    assert said("--wheel", str(bad), code=1) == (
        "error: the wheel is cut off: its zip archive has no end record"
    )
