"""A sample project under git, with two pins: the base branch is at 1.0, a port branch at 2.0."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.project import FILES, SampleProject
from helpers.wheelmaker import build_zip, wheel_items
from hq.store.disk import DiskStore

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

IDENTITY = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(folder: Path, *arguments: str) -> str:
    """Runs git in a folder; returns its output."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *arguments],
        cwd=folder,
        env={**kept, **IDENTITY},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout.strip()


class Repository(SampleProject):
    """The sample project as a repository; ``git`` runs git in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.supply()
        self.write(".gitignore", "dist\n")
        git(self.root, "init", "-q")
        self.commit("Begin at 1.0")

    def git(self, *arguments: str) -> str:
        """Runs git in the project."""
        return git(self.root, *arguments)

    def commit(self, subject: str) -> str:
        """Commits everything; returns the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def port(self) -> None:
        """On a new branch: the wheel, the lock and the series of 2.0, and nothing else."""
        self.git("checkout", "-q", "-b", "port")
        files = {**FILES, "vllm/one.py": b"# 2.0\n" + FILES["vllm/one.py"]}
        data = build_zip(wheel_items(files, project="demo", version="2.0"))
        name = "demo-2.0-py3-none-any.whl"
        (self.links / name).write_bytes(data)
        with DiskStore(str(self.store)) as store:
            store.put(data)
        self.lock(name, data, "2.0")
        text = self.read("build.toml").replace('default-pin = "1.0"', 'default-pin = "2.0"')
        self.write(
            "build.toml",
            text + '\n[pins."2.0"]\nlock = "lockfiles/2.0.toml"\nseries = "patches/series-2.0"\n',
        )
        self.write("patches/series-2.0", "first.patch\nsecond.patch\nthird.patch\nfourth.patch\n")
        self.replace(
            "over/overlay.toml", "\n[facts]", '\n[pins."2.0"]\nseries = "series"\n\n[facts]'
        )
        self.commit("Port to 2.0")

    def control(self, *arguments: str, **options: Any) -> dict[str, Any]:
        """Builds with the merge base as control; the JSON document."""
        return self.build("--control", "merge-base", *arguments, **options)


def image(document: dict[str, Any], role: str) -> dict[str, Any]:
    """The one image of a role."""
    (found,) = [one for one in document["images"] if one["role"] == role]
    result: dict[str, Any] = found
    return result
