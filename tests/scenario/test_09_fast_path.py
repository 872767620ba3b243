"""What the fast path must notice: every change that the ordinary path would act on.

Each test builds, changes one thing, and looks at the next plain build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.project import SampleProject
from helpers.unpack import layer_tree
from hq.app.folder import files_beneath
from hq.model.errors import UsageError

NEW = "opt/demo/vllm/sub/new.py"


def test_01_a_file_in_a_folder_that_was_empty(project: SampleProject) -> None:
    (project.root / "over/files/vllm/sub").mkdir()
    project.build()
    assert project.build()["built"] == []
    project.write("over/files/vllm/sub/new.py", "new = 1\n")
    assert "overlay:over" in project.build()["built"]
    assert NEW in layer_tree(project.layout(), "over")


def test_02_a_file_that_comes_back(project: SampleProject) -> None:
    project.write("over/files/vllm/sub/new.py", "new = 1\n")
    project.build()
    (project.root / "over/files/vllm/sub/new.py").unlink()
    project.build()
    assert NEW not in layer_tree(project.layout(), "over")
    project.write("over/files/vllm/sub/new.py", "new = 1\n")
    project.build()
    assert NEW in layer_tree(project.layout(), "over")


def test_03_an_orphan_in_a_folder_that_was_empty(project: SampleProject) -> None:
    (project.root / "patches/sub").mkdir()
    project.build()
    project.write("patches/sub/orphan.patch", "")
    done = project.run("build")
    assert done.returncode == 2
    assert "patches/sub/orphan.patch: this patch is in no series" in done.stderr


def test_04_a_folder_that_became_a_link(project: SampleProject) -> None:
    project.write("over/files/vllm/sub/new.py", "new = 1\n")
    project.build()
    folder = project.root / "over/files/vllm/sub"
    folder.rename(project.root / "elsewhere")
    folder.symlink_to("../../../elsewhere")
    done = project.run("build")
    assert done.returncode == 2
    assert "over/files/vllm/sub is not a regular file" in done.stderr


def test_05_a_commit_of_what_was_built(project: SampleProject) -> None:
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=project.root,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def named() -> str:
        path = Path(f"{project.layout()}.provenance.json")
        build = json.loads(path.read_text())["predicate"]["buildDefinition"]
        digest: str = build["resolvedDependencies"][0]["digest"]["gitCommit"]
        return digest

    (project.root / ".gitignore").write_text("/dist/\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    project.build()
    assert named() == git("rev-parse", "HEAD")
    git("commit", "-qm", "two", "--allow-empty")
    assert project.build()["built"] == []
    assert named() == git("rev-parse", "HEAD")


def test_06_a_folder_that_cannot_be_read(
    project: SampleProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = str(project.root / "over/files/vllm/extra")
    look = os.scandir

    def refuse(path: str) -> object:
        # Root may look into any folder, so the system's answer is made here.
        if path == closed:
            raise PermissionError(13, "Permission denied", path)
        return look(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UsageError) as caught:
        files_beneath(str(project.root / "over/files"))
    assert caught.value.render() == (
        f"error: {closed} cannot be read: Permission denied\n"
        f"  at: {closed}\n"
        "  help: make the folder readable: what is in it is an input"
    )


def test_07_a_link_out_of_the_project(project: SampleProject) -> None:
    (project.root / "over/files/vllm/extra/secret.txt").symlink_to("/etc/hostname")
    done = project.run("build")
    assert (done.returncode, done.stderr) == (
        2,
        "error: over/files/vllm/extra/secret.txt is a link to a place outside of the project\n"
        "  at: over/files/vllm/extra/secret.txt\n"
        "  it leads to: /etc/hostname\n"
        "  help: put the file itself there\n",
    )


@pytest.mark.parametrize("command", ["build", "plan", "graph"])
def test_08_an_output_that_takes_nothing(project: SampleProject, command: str) -> None:
    project.build()
    environment = project.environment()
    line = [sys.executable, "-m", "hq", command]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            line,
            cwd=project.root,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        3,
        b"error: cannot write to standard output: No space left on device\n",
    )
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *line], cwd=project.root, env=environment, check=False
    )
    assert closed.returncode == 0


def test_09_a_relative_store_is_refused(project: SampleProject) -> None:
    done = project.run("build", env={"HQ_STORE": "here"})
    assert (done.returncode, done.stderr) == (
        2,
        "error: the store's place is no absolute path\n"
        "  HQ_STORE is 'here'\n"
        "  help: give an absolute path: a relative one would be another store in each folder\n",
    )
