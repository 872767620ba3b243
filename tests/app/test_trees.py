"""Trees of any depth, and whose fault it is when the disk refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.app import series
from hq.app.trees import DirectoryTree, write_tree
from hq.model.errors import InfrastructureError
from hq.patchwork.apply import File

DEPTHS = st.one_of(st.integers(1, 5), st.sampled_from([600, 1200]))


def remove(folder: str) -> None:
    """Removes a tree that is too deep for ``shutil.rmtree``."""
    for path, _, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        os.rmdir(path)


@settings(deadline=None, max_examples=12)
@given(depths=st.lists(DEPTHS, min_size=1, max_size=3, unique=True))
def test_a_tree_of_any_depth_is_patched_and_read_again(
    tmp_path_factory: pytest.TempPathFactory, depths: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("deep")
    (folder / "tree").mkdir()
    paths = ["d/" * depth + "file" for depth in depths]
    patch = "".join(f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n" for path in paths)
    (folder / "new.patch").write_text(patch)
    (folder / "series").write_text("new.patch\n")
    with pytest.MonkeyPatch.context() as moved:
        moved.chdir(folder)
        made = series.apply("tree", "series", "made")
        assert made.applied
        tree = DirectoryTree("made")
        assert tree.entries() == dict.fromkeys(paths, "f")
        assert all(tree.read(path) == File("f", b"x\n") for path in paths)
        assert write_tree(tree, {}, "copy") == made.tree
        remove("copy")
        remove("made")


def test_a_deep_result_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree").mkdir()
    monkeypatch.chdir(tmp_path)
    changes: dict[str, File | None] = {
        "d/" * 1200 + "file": File("f", b"x"),
        "e/" * 1200 + "n" * 300: File("f", b"x"),  # longer than names may be
    }
    with pytest.raises(InfrastructureError) as caught:
        write_tree(DirectoryTree("tree"), changes, "made")
    assert str(caught.value) == "error: cannot write the result: file name too long\n  at: made"
    assert os.listdir(tmp_path) == ["tree"]


FULL = (
    "error: cannot write the result: the disk is full\n  at: made\n"
    "  help: free some space there, or choose another folder with --into DIR; then run hq again"
)
READ_ONLY = (
    "error: cannot write the result: the file system is read-only\n  at: made\n"
    "  help: mount it writable, or choose another folder with --into DIR"
)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("call", ["write", "mkdir", "symlink", "rename"])
def test_a_refused_write_is_told_of_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "copied").write_bytes(b"content")
    (tmp_path / "tree" / "link").symlink_to("copied")
    monkeypatch.chdir(tmp_path)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, "")

    place = "hq.app.trees._write_all" if call == "write" else f"os.{call}"
    monkeypatch.setattr(place, refuse)
    with pytest.raises(InfrastructureError) as caught:
        write_tree(DirectoryTree("tree"), {}, "made")
    assert str(caught.value) == (FULL if number == errno.ENOSPC else READ_ONLY)
    assert os.listdir(tmp_path) == ["tree"]


def _no_file(tree: Path) -> None:
    (tree / "file").unlink()


def _a_folder(tree: Path) -> None:
    (tree / "file").unlink()
    (tree / "file").mkdir()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(_no_file, "no such file or directory"), (_a_folder, "is a directory")],
)
def test_a_refused_read_is_told_of_the_tree(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], None],
    words: str,
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"content")
    tree = DirectoryTree(str(tmp_path / "tree"))
    entries = tree.entries()
    monkeypatch.setattr(tree, "entries", lambda: entries)
    spoil(tmp_path / "tree")
    with pytest.raises(InfrastructureError) as caught:
        write_tree(tree, {}, str(tmp_path / "made"))
    assert str(caught.value) == f"error: cannot read a file of the tree: {words}\n  at: file"
    assert os.listdir(tmp_path) == ["tree"]
