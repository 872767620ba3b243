"""``hq port rebase`` as a person meets it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from helpers.project import FILES, diff, patch
from port.conftest import PortProject

pytestmark = pytest.mark.system

MOVED = ("vllm/one.py", "line 1\n", "line 0\nline 1\n")
NEAR = ("vllm/one.py", "line 8\n", "line eight\n")
CLASH = ("vllm/two.py", "line 20\n", "line XX\n")
TAKEN = ("vllm/two.py", "line 20\n", "line twenty\n")

FIFTH = patch(
    "Fifth",
    diff(
        "vllm/three.py",
        "from vllm import envs\n\n\ndef f():\n    return envs.VLLM_FORK_LEVEL\n",
        "from vllm import envs\nfrom vllm.config import Kind\n\n\ndef f():\n"
        "    return envs.VLLM_FORK_LEVEL\n",
    ),
)


def statuses(document: dict[str, object]) -> list[tuple[str, str]]:
    rows = document["patches"]
    assert isinstance(rows, list)
    return [(row["name"], row["status"]) for row in rows]


def test_an_equal_release_takes_every_file_as_it_is(project: PortProject) -> None:
    done = project.port("rebase", "--wheel", project.release())
    assert {status for _, status in statuses(done)} == {"same"}
    assert done["branch"] == "port/2.0"
    assert project.on_branch("patches/series-2.0").split("\n") == [
        "# demo 2.0", "first.patch -p1", "second.patch -p1", "third.patch -p1", "fourth.patch -p1",
        "",
    ]  # fmt: skip
    assert project.on_branch("over/patches/series-2.0") == "# demo 2.0\nregister.patch -p1\n"
    # The work tree, its index and its branch are as they were.
    assert project.git("status", "--porcelain") == ""
    assert project.git("branch", "--show-current") == "main\n"


def test_moved_and_merged_patches_are_made_again_and_the_pin_builds(project: PortProject) -> None:
    done = project.port("rebase", "--wheel", project.release(MOVED, NEAR))
    assert statuses(done) == [
        ("first.patch", "ported"), ("second.patch", "same"), ("third.patch", "ported"),
        ("fourth.patch", "same"), ("register.patch", "same"),
    ]  # fmt: skip
    made = project.on_branch("patches/2.0/first.patch")
    assert made == project.read("patches/first.patch").replace(
        "Cut-Against: demo 1.0", "Cut-Against: demo 2.0"
    ).replace("2026-01-01", made.partition("Last-Update: ")[2][:10]).replace(
        "@@ -7,7 +7,7 @@\n", "@@ -8,7 +8,7 @@\n"
    ).replace(" line 8\n", " line eight\n")
    log = project.git("log", "--format=%s", "main..port/2.0").split("\n")[:-1]
    assert log == [
        "Declare the pin 2.0", "Port third to 2.0", "Port first to 2.0", "Lock demo 2.0",
    ]  # fmt: skip
    declared = project.on_branch("build.toml")
    assert declared == project.read("build.toml") + (
        '\n[pins."2.0"]\nlock = "lockfiles/2.0.toml"\nseries = "patches/series-2.0"\n'
    )
    project.git("switch", "-q", "port/2.0")
    project.build("--pin", "2.0")
    project.build("--pin", "1.0")


def test_a_conflict_stops_and_is_gone_on_with(project: PortProject) -> None:
    waiting = project.port("rebase", "--wheel", project.release(CLASH), code=1)
    assert (waiting["status"], waiting["patch"]) == ("waiting", "patches/second.patch")
    assert waiting["files"] == {"vllm/two.py": "1 conflict, the first at line 20"}
    work = project.root / ".hq/port/work/vllm/two.py"
    text = work.read_text()
    assert text.split("\n")[19:26] == [
        "<<<<<<< the patch on 1.0", "line twenty", "||||||| 1.0", "line 20", "=======", "line XX",
        ">>>>>>> 2.0",
    ]  # fmt: skip
    assert project.fails("port", "rebase", "--continue") == (
        "error: patches/second.patch: conflict markers are left\n"
        "  ROOT/.hq/port/work/vllm/two.py:20\n"
        "  help: resolve them, then go on with hq port rebase --continue\n"
    )
    assert "error: a rebase is under way\n" in project.fails("port", "rebase", "--to", "2.0")
    start, rest = text[: text.index("<<<<<<<")], text[text.index(">>>>>>> 2.0\n") + 12 :]
    work.write_text(f"{start}line XX and twenty\n{rest}")
    done = project.port("rebase", "--continue")
    assert statuses(done)[1] == ("second.patch", "ported")
    assert "-line XX\n+line XX and twenty\n" in project.on_branch("patches/2.0/second.patch")
    assert not (project.root / ".hq/port").exists()


def test_a_resolution_is_remembered_over_an_abort(project: PortProject) -> None:
    wheel = project.release(CLASH)
    project.port("rebase", "--wheel", wheel, code=1)
    work = project.root / ".hq/port/work/vllm/two.py"
    text = work.read_text()
    start, rest = text[: text.index("<<<<<<<")], text[text.index(">>>>>>> 2.0\n") + 12 :]
    work.write_text(f"{start}line both\n{rest}")
    project.port("rebase", "--continue")
    project.git("branch", "-q", "-D", "port/2.0")
    # The same conflict in a file that differs elsewhere.
    wheel = project.release(CLASH, ("vllm/two.py", "line 50\n", "line fifty\n"))
    done = project.port("rebase", "--wheel", wheel)
    rows = done["patches"]
    assert isinstance(rows, list)
    assert rows[1]["notes"] == ["vllm/two.py: resolved as before"]
    assert "+line both\n" in project.on_branch("patches/2.0/second.patch")


def test_skip_leaves_the_patch_out_and_abort_leaves_nothing(project: PortProject) -> None:
    wheel = project.release(CLASH)
    project.port("rebase", "--wheel", wheel, code=1)
    assert project.run("port", "rebase", "--abort").stderr == "given up; resolutions are kept\n"
    assert "error: no rebase is under way\n" in project.fails("port", "rebase", "--abort")
    project.port("rebase", "--wheel", wheel, code=1)
    done = project.port("rebase", "--skip")
    assert statuses(done)[1] == ("second.patch", "skipped")
    assert "second" not in project.on_branch("patches/series-2.0")


def test_a_patch_of_which_nothing_is_left_is_never_dropped_by_itself(project: PortProject) -> None:
    waiting = project.port("rebase", "--wheel", project.release(TAKEN), code=1)
    assert waiting["patch"] == "patches/second.patch"
    assert waiting["reason"] == "nothing is left of it: the new tree has all that it changes"
    assert "error: patches/second.patch: nothing is left of it" in project.fails(
        "port", "rebase", "--continue"
    )
    done = project.port("rebase", "--skip")
    assert statuses(done)[1] == ("second.patch", "skipped")


def test_a_file_that_upstream_moved_is_merged_at_its_new_place(project: PortProject) -> None:
    files = dict(FILES)
    files["vllm/core/two.py"] = files.pop("vllm/two.py") + b"line 61\n"
    done = project.port("rebase", "--wheel", project.release(files=files))
    rows = done["patches"]
    assert isinstance(rows, list)
    assert rows[1]["notes"] == ["upstream moved vllm/two.py here"]
    assert "+++ b/vllm/core/two.py\n" in project.on_branch("patches/2.0/second.patch")


def test_what_is_not_committed_is_refused_and_so_is_a_taken_branch(project: PortProject) -> None:
    wheel = project.release()
    project.replace("patches/first.patch", "Words about it.", "Other words.")
    assert project.fails("port", "rebase", "--wheel", wheel) == (
        "error: files that the new pin is made from are not committed\n"
        "  patches/first.patch\n"
        "  help: commit them first: the branch begins at HEAD\n"
    )
    project.commit("Words")
    project.git("branch", "port/2.0")
    assert project.fails("port", "rebase", "--wheel", wheel) == (
        "error: there is a branch port/2.0 already\n"
        "  help: give --branch another name, or delete it (git branch -D port/2.0)\n"
    )
    assert project.port("rebase", "--wheel", wheel, "--branch", "try")["branch"] == "try"


def test_a_series_that_changed_since_it_stopped_is_refused(project: PortProject) -> None:
    project.port("rebase", "--wheel", project.release(CLASH), code=1)
    project.replace("patches/first.patch", "Words about it.", "Other words.")
    assert project.fails("port", "rebase", "--continue") == (
        "error: the series changed since the rebase began\n"
        "  help: undo the changes, or begin anew after hq port rebase --abort\n"
    )


def test_mentions_of_the_pin_are_brought_up_to_date_and_leftovers_told(
    project: PortProject,
) -> None:
    project.write("NOTES.md", "Built from demo 1.0.\nSee v1.0 and 1.0.1; 11.0 is no pin.\n")
    project.write("build.toml", project.read("build.toml") + '\n[port]\nmentions = ["NOTES.md"]\n')
    project.commit("Notes")
    done = project.port("rebase", "--wheel", project.release())
    assert project.on_branch("NOTES.md") == (
        "Built from demo 2.0.\nSee v1.0 and 1.0.1; 11.0 is no pin.\n"
    )
    assert done["leftovers"] == [
        {"file": "NOTES.md", "line": 2, "text": "See v1.0 and 1.0.1; 11.0 is no pin."}
    ]


def test_without_a_repository_the_files_are_written_in_place(project: PortProject) -> None:
    (project.root / ".git").rename(project.root.parent / "away")
    done = project.port("rebase", "--wheel", project.release(MOVED))
    assert done["branch"] == ""
    assert "patches/2.0/first.patch" in project.read("patches/series-2.0").replace(
        "2.0/first.patch", "patches/2.0/first.patch"
    )
    project.build("--pin", "2.0")


def test_a_pin_that_is_declared_and_a_release_that_is_not_named_are_refused(
    project: PortProject,
) -> None:
    assert project.fails("port", "rebase", "--to", "1.0").startswith(
        "error: build.toml declares the pin 1.0 already\n"
    )
    assert project.fails("port", "rebase") == (
        "error: no release is named to move to\n"
        "  help: give --to VERSION, --wheel FILE or --tree DIR\n"
    )


def test_the_end_of_a_rebase_says_what_no_longer_means_what_it_did(project: PortProject) -> None:
    project.write("patches/fifth.patch", FIFTH)
    project.write("patches/series", project.read("patches/series") + "fifth.patch\n")
    project.commit("Fifth")
    wheel = project.release(
        ("vllm/config.py", "Kind = ", "Sort = "), ("vllm/three.py", "\n\n\ndef", "\n\n\n\ndef")
    )
    files = project.port("rebase", "--wheel", wheel, code=1)["files"]
    assert files == {"vllm/config.py": "1 conflict, the first at line 3"}
    done = project.port("rebase", "--skip")
    assert [(one["kind"], one["where"]["file"], one["message"]) for one in done["findings"]] == [
        (
            "import",
            "patches/2.0/fifth.patch",
            "vllm.config.Kind: Kind is not defined in vllm/config.py any more",
        ),
    ]


def test_a_state_that_cannot_be_read_is_told_and_can_be_given_up(project: PortProject) -> None:
    project.port("rebase", "--wheel", project.release(CLASH), code=1)
    project.write(".hq/port/state.json", "{}")
    assert project.fails("port", "rebase", "--continue", code=1) == (
        "error: the state of the rebase cannot be read\n  at: ROOT/.hq/port/state.json\n"
        "  help: give it up with hq port rebase --abort\n"
    )
    assert project.run("port", "rebase", "--abort").returncode == 0
    assert project.port("rebase", "--wheel", project.release())["status"] == "done"


def test_a_rebase_that_broke_off_is_gone_on_with(project: PortProject, tmp_path: Path) -> None:
    git = shutil.which("git")
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    # The second diff fails, as it would on a full disk.
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *--no-index*) echo x >> {tmp_path}/n;'
        f' [ "$(wc -l < {tmp_path}/n)" = 2 ] && {{ echo "disk full" >&2; exit 128; }};; esac\n'
        f'exec {git} "$@"\n'
    )
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{os.environ['PATH']}"
    done = project.run(
        "port", "rebase", "--wheel", project.release(MOVED, NEAR), env={"PATH": path}
    )
    assert done.returncode == 3
    assert done.stderr.split("\n")[0] == "error: git diff failed with exit code 128"
    assert "  git: disk full\n" in done.stderr
    assert project.git("branch", "--list", "port/2.0") == ""
    again = project.port("rebase", "--continue")
    assert statuses(again)[:3] == [
        ("first.patch", "ported"), ("second.patch", "same"), ("third.patch", "ported"),
    ]  # fmt: skip
