"""git as the port uses it: odd names, scratch repositories, branches made of objects."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hq.model.errors import BuildError, InfrastructureError, UsageError
from hq.patchwork.apply import File
from hq.transfer.git_worktree import (
    Commit,
    Git,
    Layer,
    changed_files,
    diff_files,
    make_repository,
    merge_texts,
)

pytestmark = [
    pytest.mark.system, pytest.mark.skipif(not shutil.which("git"), reason="no git"),
]  # fmt: skip

LETTERS = st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"])
PART = st.text(LETTERS, min_size=1, max_size=8).filter(
    lambda part: part.strip(". ") and not part.lower().startswith((".git", "git~"))
)
FILE = st.builds(File, st.sampled_from(["f", "x"]), st.binary(max_size=60))


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(PART.filter(lambda p: not p.endswith((".rej", ".orig"))), FILE, max_size=5))
def test_a_scratch_repository_holds_any_names_and_bytes(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, File]
) -> None:
    folder = tmp_path_factory.mktemp("work")
    layers = [Layer("One\n", {"kept": File("f", b"k\r\n"), **files})]
    make_repository(str(folder), layers)
    for name, file in {"kept": File("f", b"k\r\n"), **files}.items():
        target = folder / name
        assert target.read_bytes() == file.data
        assert bool(target.stat().st_mode & 0o100) == (file.kind == "x")
    assert changed_files(str(folder)) == {}


def test_changes_committed_staged_and_not_are_seen(tmp_path: Path) -> None:
    names = ["gone", "mode", "link", "text", "committed"]
    make_repository(str(tmp_path), [Layer("One\n", {n: File("f", b"1\n") for n in names})])
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    (tmp_path / "committed").write_bytes(b"2\n")
    subprocess.run(["git", *who, "commit", "-qam", "x"], cwd=tmp_path, check=True)
    (tmp_path / "gone").unlink()
    (tmp_path / "mode").chmod(0o755)
    (tmp_path / "link").unlink()
    os.symlink("text", tmp_path / "link")
    (tmp_path / "fresh é").write_bytes(b"3\n")
    (tmp_path / "text.rej").write_bytes(b"left over\n")
    assert changed_files(str(tmp_path)) == {
        "committed": File("f", b"2\n"),
        "fresh é": File("f", b"3\n"),
        "gone": None,
        "link": File("l", b"text"),
        "mode": File("x", b"1\n"),
    }


def test_the_same_layers_give_the_same_commits_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(name: str) -> bytes:
        folder = tmp_path / name
        make_repository(str(folder), [Layer("One\n", {"a": File("f", b"1\n")})])
        return Git(str(folder), scratch=True).run("rev-parse", "HEAD")

    first = made("one")
    config = tmp_path / "config"
    config.write_text("[core]\n\tautocrlf = true\n[init]\n\tdefaultBranch = other\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert made("two") == first


def test_configuration_does_not_change_a_diff_or_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> tuple[bytes, bytes]:
        before, after = File("f", b"def f():\n" + b"    x\n" * 9), File("f", b"def f():\n    y\n")
        merged = merge_texts(b"a\n", b"b\n", b"c\n", ("1", "2", "3"))
        return diff_files({"a.py": before}, {"a.py": after}), merged.data

    plain = made()
    config = tmp_path / "config"
    config.write_text(
        "[diff]\n\tnoprefix = true\n\talgorithm = patience\n\tcontext = 9\n"
        "[color]\n\tui = always\n[merge]\n\tconflictStyle = zdiff3\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    assert made() == plain


def test_binary_files_are_refused() -> None:
    with pytest.raises(BuildError, match="a patch cannot hold a binary file"):
        diff_files({"f": None}, {"f": File("f", b"\0\1\2")})
    with pytest.raises(InfrastructureError, match="git cannot merge a file"):
        merge_texts(b"\0", b"\0\1", b"\0\2", ("1", "2", "3"))


def test_a_branch_is_made_of_objects_and_appears_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "A")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@example.org")
    git = Git(str(tmp_path))
    git.run("init", "-q", "-b", "main")
    with pytest.raises(UsageError, match="the repository has no commit yet"):
        git.commit_branch("b", [])
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_text("1\n")
    git.run("add", "-A")
    git.run("commit", "-qm", "One")
    (tmp_path / "sub" / "a").write_text("edited\n")
    below = Git(str(tmp_path / "sub"))
    files = {"a": None, "dir/b c": b"2\n"}
    tip = below.commit_branch("topic/x", [Commit("Two\n", files, {"dir/b c": "x"})])
    assert git.file(tip, "sub/dir/b c") == File("x", b"2\n")
    assert git.file(tip, "sub/a") is None
    assert (tmp_path / "sub" / "a").read_text() == "edited\n"
    assert git.run("diff", "--cached", "--name-only") == b""
    with pytest.raises(UsageError, match="there is a branch topic/x already"):
        below.commit_branch("topic/x", [])
    with pytest.raises(UsageError, match=r"'a\.\.b' is no name for a branch"):
        below.has_branch("a..b")
    assert below.changed(["a", "none"]) == ["sub/a"]
