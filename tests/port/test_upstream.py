"""Commits out of a clone of upstream."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.project import FILES
from port.conftest import PortProject

pytestmark = pytest.mark.system


def clone(folder: Path) -> Path:
    """Upstream: 1.0 with a fix of its own on a branch, 2.0 with three commits."""
    made = folder / "upstream"
    made.mkdir()

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *arguments], cwd=made, check=True, capture_output=True)

    def change(path: str, old: str, new: str, message: str) -> None:
        text = (made / path).read_text()
        assert text.count(old) == 1
        (made / path).write_text(text.replace(old, new))
        git("commit", "-qam", message)

    git("init", "-q", "-b", "main")
    for path, data in FILES.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(data)
    git("add", "-A")
    git("commit", "-qm", "Begin")
    git("switch", "-qc", "releases/1.0")
    change("vllm/one.py", "line 60\n", "line sixty\n", "Fix only the release (#90)")
    git("tag", "v1.0")
    git("switch", "-q", "main")
    change("vllm/one.py", "line 12\n", "line twelve\n", "Spell twelve (#101)")
    change("vllm/one.py", "line 55\n", "line fiftyfive\n", "Far away (#102)")
    change("vllm/two.py", "line 20\n", "line 2o\n", "Twenty in other words (#103)")
    git("tag", "v2.0")
    return made


def test_commits_behind_the_hunks_and_those_that_would_be_lost(
    project: PortProject, tmp_path: Path
) -> None:
    made = clone(tmp_path)
    old = FILES["vllm/one.py"].replace(b"line 60\n", b"line sixty\n")
    project.wheel({**FILES, "vllm/one.py": old})
    project.supply()
    project.replace("patches/second.patch", "Origin: here", "Origin: after upstream #103")
    files = {path: (made / path).read_bytes() for path in FILES}
    wheel = project.release(files=files)
    found = project.port("triage", "--wheel", wheel, "--upstream", str(made), code=1)
    shown = {
        (row["patch"], row["path"]): (
            [(commit["subject"], commit["hunks"]) for commit in row["commits"]],
            [commit["subject"] for commit in row["lost"]],
        )
        for row in found["commits"]
    }
    assert shown == {
        ("first.patch", "vllm/one.py"): (
            [("Spell twelve (#101)", [1])], ["Fix only the release (#90)"],
        ),
        ("second.patch", "vllm/two.py"): ([("Twenty in other words (#103)", [1])], []),
        ("third.patch", "vllm/one.py"): ([], ["Fix only the release (#90)"]),
    }  # fmt: skip
    assert [
        (row["patch"], row["hunks"], row["commits"][0]["named"]) for row in found["carried"]
    ] == [("second.patch", [], "#103")]
    text = project.run("port", "triage", "--wheel", wheel, "--upstream", str(made)).stdout
    assert "Fix only the release (#90) (only on the old release)\n" in text


def test_a_clone_without_the_tag_and_a_folder_that_is_none_are_refused(
    project: PortProject, tmp_path: Path
) -> None:
    made = clone(tmp_path)
    subprocess.run(["git", "tag", "-d", "v2.0"], cwd=made, check=True, capture_output=True)
    arguments = ("port", "triage", "--wheel", project.release(), "--upstream")
    assert project.fails(*arguments, str(made)).startswith("error: the clone has no tag v2.0\n")
    (tmp_path / "empty").mkdir()
    assert project.fails(*arguments, str(tmp_path / "empty")).startswith(
        "error: there is no git repository\n"
    )


def test_the_chosen_commit_goes_into_the_header(project: PortProject) -> None:
    wheel = project.release(("vllm/two.py", "line 20\n", "line XX\n"))
    project.port("rebase", "--wheel", wheel, code=1)
    work = project.root / ".hq/port/work/vllm/two.py"
    text = work.read_text()
    start, rest = text[: text.index("<<<<<<<")], text[text.index(">>>>>>> 2.0\n") + 12 :]
    work.write_text(f"{start}line both\n{rest}")
    project.port("rebase", "--continue", "--commit", "0123abcd Twenty in other words (#103)")
    assert project.on_branch("patches/2.0/second.patch").split("\n")[4:6] == [
        "Cut-Against: demo 2.0", "X-Upstream-Commit: 0123abcd Twenty in other words (#103)",
    ]  # fmt: skip


def test_bump_replaces_mentions_in_place(project: PortProject) -> None:
    project.write("NOTES.md", "demo 1.0, demo:1.0.\nv1.0\n")
    project.write("build.toml", project.read("build.toml") + '\n[port]\nmentions = ["NOTES.md"]\n')
    done = project.run("port", "bump", "--to", "2.0")
    assert done.stdout == "changed  NOTES.md\nleft     NOTES.md:2: v1.0\n"
    assert project.read("NOTES.md") == "demo 2.0, demo:2.0.\nv1.0\n"
    project.replace("build.toml", "NOTES.md", "GONE.md")
    assert "error: port.mentions: there is no file GONE.md\n" in project.fails(
        "port", "bump", "--to", "3.0"
    )
