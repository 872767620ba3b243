"""The example of a workflow, run as far as it goes without GitHub and a registry."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from controls.repository import IDENTITY, Repository, git, needs_git
from controls.test_red import declare
from helpers.project import SOURCE

WORKFLOW = Path(__file__).resolve().parents[2] / "examples/github/workflow.yml"

pytestmark = needs_git


def steps(job: str) -> dict[str, str]:
    """The shell of each named step of a job."""
    text = WORKFLOW.read_text().partition("\njobs:\n")[2]
    body = next(
        part for part in re.split(r"(?m)^  (?=\w+:$)", text) if part.startswith(f"{job}:\n")
    )
    found: dict[str, str] = {}
    for step in re.split(r"(?m)^      - ", body)[1:]:
        name = re.match(r"name: (.+)\n", step)
        run = re.search(r"(?ms)^        run: (?:\|\n(.+)|(.+?)$)", step)
        if name and run:
            found[name[1]] = textwrap.dedent(run[1] or run[2])
    return found


class Runner:
    """Runs steps in a repository as a runner does: ``bash -eo pipefail``, a summary file."""

    def __init__(self, repo: Repository, folder: Path) -> None:
        self.repo = repo
        self.summary = folder / "summary.md"
        hq = folder / "hq"
        hq.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hq "$@"\n')
        hq.chmod(0o755)
        self.environment = {
            **repo.environment(),
            **IDENTITY,
            "HQ": str(hq),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_SHA": repo.git("rev-parse", "HEAD"),
            "PYTHONPATH": str(SOURCE),
        }

    def run(self, script: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs one step; its exit code must be ``code``."""
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=self.repo.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (script, done.stderr)
        return done


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A port branch with a red control."""
    repo = Repository(tmp_path)
    declare(repo, "raw-read")
    repo.commit("Add a red control")
    repo.port()
    return Runner(repo, tmp_path)


CHECKS = ["Build", "Red controls", "Compare with the merge base", "Keep the store small"]


def test_a_pull_request_that_ports_is_green_and_its_second_run_builds_nothing(
    runner: Runner,
) -> None:
    scripts = steps("build")
    for name in CHECKS:
        runner.run(scripts[name])
    assert "✅ **HEAD (2.0) and merge-base (1.0) differ by the pin alone**" in (
        runner.summary.read_text()
    )
    # A new checkout of the same commit, with the store out of the cache.
    git(runner.repo.root, "clean", "-qxfd")
    for path in runner.repo.root.rglob("*.patch"):
        os.utime(path)
    runner.run(scripts["Build"])
    document = json.loads(runner.repo.read("build.json"))
    assert document["built"] == []


def test_the_knobs_are_checked(runner: Runner) -> None:
    assert "envs check" in steps("build")["Build"]


def test_a_pull_request_that_changes_more_is_red_and_says_what(runner: Runner) -> None:
    repo = runner.repo
    repo.write("images/demo.toml", repo.read("images/demo.toml") + 'entrypoint = ["serve"]\n')
    repo.commit("Change an entry point")
    runner.run(steps("build")["Compare with the merge base"], code=1)
    summary = runner.summary.read_text()
    assert "❌ **HEAD (2.0) and merge-base (1.0) differ in more than the pin" in summary
    assert "| `image:demo` | entrypoint | `images/demo.toml:6` | `[]` |" in summary


def test_the_pins_are_proposed_and_then_held_to(runner: Runner, tmp_path: Path) -> None:
    repo = runner.repo
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    repo.git("remote", "add", "origin", str(remote))
    tools = tmp_path / "tools"
    tools.mkdir()
    gh = tools / "gh"
    gh.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/gh.txt"\n')
    gh.chmod(0o755)
    runner.environment["PATH"] = f"{tools}:{runner.environment['PATH']}"
    propose = steps("publish")["Propose the new pins"]
    runner.run(propose)
    branch = f"pins/{runner.environment['GITHUB_SHA'][:12]}"
    assert git(remote, "branch", "--list", branch).strip() == branch
    assert (tmp_path / "gh.txt").read_text().startswith(f"pr create --head {branch} --title")
    runner.run(steps("build")["Hold the build to its pins"])
    # Nothing new: no second pull request.
    before = (tmp_path / "gh.txt").read_text()
    runner.run(propose)
    assert (tmp_path / "gh.txt").read_text() == before
    repo.replace("patches/first.patch", "+line ten", "+line TEN")
    done = runner.run(steps("build")["Hold the build to its pins"], code=1)
    assert "error: patch:first is not what lockfiles/2.0.images.toml pins" in done.stderr


def test_every_command_of_it_exists(runner: Runner) -> None:
    text = WORKFLOW.read_text()
    commands = {tuple(words.split()) for words in re.findall(r"\$HQ ([a-z]+(?: [a-z]+)?)", text)}
    assert {command[0] for command in commands} == {
        "build",
        "envs",
        "pair",
        "pin",
        "push",
        "red",
        "store",
    }
    for command in sorted({command[:1] for command in commands}):
        assert runner.repo.run(*command, "--help").returncode == 0
