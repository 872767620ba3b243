"""A project in a git repository, and a second release of its wheel."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers.project import FILES, NUMBERS, SampleProject
from helpers.wheelmaker import build_zip, wheel_items


class PortProject(SampleProject):
    """``SampleProject`` under git; ``release`` makes another release of its wheel."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.supply()
        self.git("init", "-q", "-b", "main")
        self.write(".gitignore", "/.hq/\n/dist/\n")
        self.commit("Begin")

    def git(self, *arguments: str) -> str:
        """Runs git in the project as a made-up person."""
        done = subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments],
            cwd=self.root, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, message: str) -> None:
        """Commits everything."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def environment(self, **more: str) -> dict[str, str]:
        """With an identity for the commits that hq makes."""
        who = {
            "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }  # fmt: skip
        return super().environment(**{**who, **more})

    def release(
        self, *changes: tuple[str, str, str], files: Mapping[str, bytes] | None = None
    ) -> str:
        """The wheel of 2.0: the stock files with ``(path, old, new)`` replaced, each once."""
        made = dict(FILES if files is None else files)
        for path, old, new in changes:
            assert made[path].count(old.encode()) == 1, (path, old)
            made[path] = made[path].replace(old.encode(), new.encode())
        data = build_zip(wheel_items(made, project="demo", version="2.0"))
        wheel = self.links / "demo-2.0-py3-none-any.whl"
        wheel.write_bytes(data)
        return str(wheel)

    def port(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """``hq port ARGUMENTS --json``; its document."""
        done = self.run("port", *arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def fails(self, *arguments: str, code: int = 2) -> str:
        """What hq says when it refuses."""
        done = self.run(*arguments)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.replace(str(self.root), "ROOT")

    def on_branch(self, path: str, branch: str = "port/2.0") -> str:
        """A file of the branch that a rebase made."""
        return self.git("show", f"{branch}:{path}")


@pytest.fixture
def project(tmp_path: Path) -> PortProject:
    if not shutil.which("git"):
        pytest.skip("no git")
    return PortProject(tmp_path)


__all__ = ["NUMBERS", "PortProject", "project"]
