"""A series as a branch of a fork, and back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.project import FILES
from hq.port.topics import Topic, message, topic
from port.conftest import PortProject

LINE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=9)


@settings(deadline=None)
@given(LINE, st.lists(st.lists(LINE, min_size=1, max_size=3), max_size=3))
def test_a_header_survives_the_way_through_a_commit(subject: str, blocks: list[list[str]]) -> None:
    rest = "\n\n".join("\n".join(block) for block in blocks)
    preamble = f"Subject: {subject}\n" + (f"{rest}\n" if rest else "") + "\n"
    made = Topic("0.28.0/a-b.patch", preamble.encode())
    assert topic(message(made), 7) == made


def test_a_commit_without_a_name_gets_one_from_its_subject() -> None:
    assert topic("Fix: the Thing (#12)\n\nWhy.\n", 3) == Topic(
        "0003-fix-the-thing-12.patch", b"Subject: Fix: the Thing (#12)\nWhy.\n\n"
    )
    assert topic("x\n\nPatch: ../evil.patch\n", 1).name == "0001-x.patch"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode()


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    made = tmp_path / "fork"
    for path, data in {**FILES, "tests/test_one.py": b"pass\n"}.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(data)
    git(made, "init", "-q", "-b", "main")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "Begin")
    git(made, "tag", "v1.0")
    return made


@pytest.mark.system
def test_import_check_and_export_go_round(project: PortProject, fork: Path) -> None:
    done = project.run("port", "import", "--fork", str(fork), "--branch", "series")
    assert done.returncode == 0, done.stderr
    assert git(fork, "log", "--format=%s", "v1.0..series").split() == [
        "Fourth", "Third", "Second", "First",
    ]  # fmt: skip
    assert git(fork, "status", "--porcelain") == ""
    same = project.run("port", "check", "--fork", str(fork), "--branch", "series")
    assert same.stdout == "the built tree and the branch are the same: 3 changed files\n"
    into = project.root.parent / "exported"
    done = project.run(
        "port", "export", "--fork", str(fork), "--range", "v1.0..series", "--into", str(into)
    )
    assert done.returncode == 0, done.stderr
    for name in ("first", "second", "third", "fourth"):
        exported = (into / f"{name}.patch").read_text()
        here = project.read(f"patches/{name}.patch")
        # git adds the function that a hunk stands in.
        assert exported.replace("@@ def f():", "@@") == here
    assert (into / "series").read_text().split("\n")[0] == "first.patch -p1"


@pytest.mark.system
def test_check_names_the_first_difference(project: PortProject, fork: Path) -> None:
    project.run("port", "import", "--fork", str(fork), "--branch", "series")
    git(fork, "switch", "-q", "series")
    text = (fork / "vllm/two.py").read_text()
    (fork / "vllm/two.py").write_text(text.replace("line 33\n", "line drei\n"))
    (fork / "vllm/more.py").write_text("x = 1\n")
    (fork / "tests/test_one.py").write_text("assert 1\n")
    git(fork, "add", "-A")
    git(fork, "commit", "-qm", "More\n\nPatch: more.patch")
    found = project.run("port", "check", "--fork", str(fork), "--branch", "series")
    assert (found.returncode, found.stdout) == (
        1,
        "2 of 4 changed files differ, the first at vllm/more.py\n"
        "  built   no such file\n  branch  a file\n",
    )
    (fork / "vllm/more.py").unlink()
    git(fork, "commit", "-qam", "Less")
    found = project.run("port", "check", "--fork", str(fork), "--branch", "series")
    assert found.stdout == (
        "1 of 3 changed files differ, the first at vllm/two.py:33\n"
        "  built   line 33\n  branch  line drei\n"
    )
    into = project.root.parent / "exported"
    done = project.run(
        "port", "export", "--fork", str(fork), "--range", "v1.0..series", "--into", str(into)
    )
    assert done.stdout.endswith(
        "6 patches\n1 files are no part of the wheel: tests/test_one.py …\n"
    )


@pytest.mark.system
def test_what_cannot_be_done_is_refused(project: PortProject, fork: Path) -> None:
    where = ("--fork", str(fork))
    assert project.fails("port", "check", *where, "--branch", "none").startswith(
        "error: there is no commit 'none'\n"
    )
    assert project.fails("port", "export", *where, "--range", "v1.0", "--into", "x") == (
        "error: --range: expected A..B, found 'v1.0'\n"
    )
    text = (fork / "vllm/two.py").read_text()
    (fork / "vllm/two.py").write_text(text.replace("line 20\n", "line XX\n"))
    git(fork, "commit", "-qam", "Clash")
    assert "error: patches/second.patch does not apply:" in project.fails(
        "port", "import", *where, "--onto", "main", "--branch", "series", code=1
    )
    assert git(fork, "branch", "--list", "series") == ""
