"""``hq series edit``, ``refresh`` and ``new`` as a person meets them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from port.conftest import PortProject

pytestmark = pytest.mark.system


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode()


def ok(project: PortProject, *arguments: str, code: int = 0) -> str:
    done = project.run("series", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.replace(str(project.root), "ROOT")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.fixture
def work(project: PortProject) -> Path:
    return project.root / ".hq/edit/third"


def test_edit_lays_out_the_patches_below_as_commits_and_the_patch_as_changes(
    project: PortProject, work: Path
) -> None:
    assert ok(project, "edit", "third") == (
        "ROOT/.hq/edit/third: 3 commits below third.patch; git diff shows the patch\n"
        "when it is right: hq series refresh third\n"
    )
    assert git(work, "log", "--format=%s").split("\n")[:-1] == [
        "second: Second", "first: First", "The wheel of 1.0",
    ]  # fmt: skip
    assert "+line forty\n" in git(work, "diff")
    assert "line ten\n" in (work / "vllm/one.py").read_text()
    assert ok(project, "refresh", "third") == "patches/third.patch is as it was\n"
    assert project.git("status", "--porcelain") == ""


def test_refresh_takes_edits_committed_and_not_and_keeps_the_header(
    project: PortProject, work: Path
) -> None:
    before = project.read("patches/third.patch")
    ok(project, "edit", "third")
    replace(work / "vllm/one.py", "line forty\n", "line forty!\n")
    git(work, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qam", "mine")
    (work / "vllm/added.py").write_text("NEW = 1\n")
    assert ok(project, "refresh", "third") == "patches/third.patch is made again\n"
    after = project.read("patches/third.patch")
    head = before[: before.index("--- a/")].replace("2026-01-01", after.split("Update: ")[1][:10])
    assert after[: after.index("--- ")] == head
    assert "+line forty!\n" in after
    assert "--- /dev/null\n+++ b/vllm/added.py\n@@ -0,0 +1 @@\n+NEW = 1\n" in after
    project.build()


def test_a_later_patch_that_no_longer_applies_is_told_and_nothing_is_lost(
    project: PortProject,
) -> None:
    third = project.read("patches/third.patch")
    ok(project, "edit", "first")
    work = project.root / ".hq/edit/first"
    replace(work / "vllm/one.py", "line 40\n", "line 40 was here\n")
    assert ok(project, "refresh", "first", code=1) == (
        "patches/first.patch is made again\n"
        "  third.patch does not apply: hunk 1 of vllm/one.py does not match the file anywhere\n"
        "with --later those that merge are made again; edit the others\n"
    )
    assert "+line 40 was here\n" in project.read("patches/first.patch")
    assert project.read("patches/third.patch") == third
    # The one above is edited next: what fits of it is there, the rest in a .rej file.
    assert ok(project, "edit", "third").split("\n")[1] == (
        "the patch does not apply whole; what is left of it is in .rej files"
    )
    above = project.root / ".hq/edit/third"
    assert "+line forty\n" in (above / "vllm/one.py.rej").read_text()
    replace(above / "vllm/one.py", "line 40 was here\n", "line forty\n")
    assert ok(project, "refresh", "third") == "patches/third.patch is made again\n"
    assert "-line 40 was here\n+line forty\n" in project.read("patches/third.patch")
    project.build()


def test_later_patches_that_merge_are_made_again_when_asked(project: PortProject) -> None:
    ok(project, "edit", "first")
    work = project.root / ".hq/edit/first"
    replace(work / "vllm/one.py", "line 38\n", "line 38\nline 38 and a half\n")
    replace(work / "vllm/one.py", "line 1\n", "line 0\nline 1\n")
    assert ok(project, "refresh", "first", "--later") == (
        "patches/first.patch is made again\n  third.patch is made again\n"
    )
    assert " line 38 and a half\n" in project.read("patches/third.patch")
    project.build()


def test_new_adds_a_patch_at_its_place(project: PortProject) -> None:
    ok(project, "new", "between", "--after", "second")
    work = project.root / ".hq/edit/between"
    assert project.read("patches/series").count("between") == 0
    assert "error: nothing differs from the patches below between.patch\n" in project.fails(
        "series", "refresh", "between"
    )
    replace(work / "vllm/two.py", "line 30\n", "line thirty\n")
    assert ok(project, "refresh", "between") == (
        "patches/between.patch is made again\nadded to patches/series\n"
    )
    assert project.read("patches/series").split("\n")[:4] == [
        "first.patch", "second.patch", "between.patch -p1", "third.patch",
    ]  # fmt: skip
    assert project.read("patches/between.patch").startswith(
        "Subject: Between\nOrigin: own\nForwarded: no\nKind: local\nCut-Against: demo 1.0\n"
    )
    assert project.run("series", "lint").returncode == 0
    # From now on it is a patch like any other.
    replace(work / "vllm/two.py", "line thirty\n", "line 3o\n")
    assert ok(project, "refresh", "between") == "patches/between.patch is made again\n"
    project.build()


def test_a_patch_of_an_overlay_is_edited_above_its_files(project: PortProject) -> None:
    ok(project, "edit", "register")
    work = project.root / ".hq/edit/register"
    assert git(work, "log", "-1", "--format=%s") == "Files of overlay:over\n"
    assert (work / "vllm/extra/__init__.py").exists()


def test_what_cannot_be_edited_is_refused(project: PortProject, work: Path) -> None:
    assert project.fails("series", "edit", "therd") == (
        "error: 'therd' names no patch of the pin\n  help: did you mean 'third'?\n"
    )
    ok(project, "edit", "third")
    assert project.fails("series", "edit", "third") == (
        "error: there is something at the place of the work tree\n"
        "  at: ROOT/.hq/edit/third\n"
        "  help: finish it (hq series refresh third), remove it, or give --into DIR\n"
    )
    assert project.fails("series", "refresh", "first") == (
        "error: there is no work tree of first\n  at: ROOT/.hq/edit/first\n"
        "  help: make one with hq series edit first, or say where it is: --from DIR\n"
    )
    assert project.fails("series", "new", "third") == (
        "error: there is a patch third already\n  help: hq series edit third\n"
    )
    project.replace("patches/first.patch", "Words about it.", "Other words.")
    assert "error: the patches below third.patch changed since the edit began\n" in project.fails(
        "series", "refresh", "third"
    )
