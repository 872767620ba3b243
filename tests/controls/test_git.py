"""Reading a commit equals reading a checkout of it; HEAD is found without starting git."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controls.repository import git, needs_git
from hq.app.commit import git_folder, head_commit
from hq.app.control import GitSources
from hq.app.folder import ProjectFolder
from hq.model.errors import UsageError
from hq.transfer.git import CommitTree, Git

pytestmark = needs_git

PARTS = st.sampled_from(["a", "b", "ü", "c d", ".hidden", "__pycache__", "e~"])
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
LINKS = st.lists(st.sampled_from(["..", "a", "b", "c d", "."]), min_size=1, max_size=3).map(
    "/".join
)
TREES = st.dictionaries(
    PATHS,
    st.binary(max_size=30).map(lambda data: (False, data)) | LINKS.map(lambda to: (True, to)),
    min_size=1, max_size=8,
)  # fmt: skip


def written(root: Path, tree: dict[str, tuple[bool, bytes | str]]) -> None:
    """Writes what can stand beside each other of ``tree``."""
    for path, (is_link, content) in sorted(tree.items()):
        target = root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if is_link:
                os.symlink(content, target)
            else:
                with target.open("xb") as file:
                    assert isinstance(content, bytes)
                    file.write(content)
        except OSError:
            continue


@settings(max_examples=25)
@given(TREES)
def test_a_commit_reads_like_its_checkout(tree: dict[str, tuple[bool, bytes | str]]) -> None:
    with TemporaryDirectory() as name:
        root = Path(name) / "repository"
        inside = root / "project"
        inside.mkdir(parents=True)
        git(root, "init", "-q")
        written(inside, tree)
        git(root, "add", "-Af")
        git(root, "commit", "-q", "--allow-empty", "-m", "x")
        facade = Git(str(root))
        commit = facade.commit("HEAD")
        assert commit is not None
        checkout = ProjectFolder(str(inside))
        with CommitTree(facade, commit, "project") as opened:
            sources = GitSources(opened, str(root))
            for folder in ["", *sorted(tree), "nothing"]:
                assert _names(sources, folder) == _known(inside, folder, checkout)
            for path in [*sorted(tree), "nothing", "a/b", "a/b/a"]:
                assert _read(sources, path) == _content(inside, path, checkout)


def _names(sources: GitSources, folder: str) -> list[str] | None:
    try:
        return sources.names(folder)
    except UsageError:
        return None


def _known(root: Path, folder: str, checkout: ProjectFolder) -> list[str] | None:
    if not _stays(root, folder):
        return None
    if (root / folder).is_file():
        return []
    # A link that leads out of the project or round in a circle stands there as a name.
    return checkout.names(folder)


def _read(sources: GitSources, path: str) -> bytes | None:
    try:
        return sources.read(path)
    except (FileNotFoundError, UsageError):
        return None


def _content(root: Path, path: str, checkout: ProjectFolder) -> bytes | None:
    if not _stays(root, path):
        return None
    try:
        return checkout.read(path)
    except OSError:
        return None


def _stays(root: Path, path: str) -> bool:
    try:
        real = os.path.realpath(root / path, strict=False)
    except OSError:
        return False
    top = os.path.realpath(root.parent)
    looping = False
    try:
        os.stat(root / path)
    except FileNotFoundError:
        pass
    except OSError as error:
        looping = error.errno == 40
    return not looping and (real == top or real.startswith(top + "/"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a commit."""
    git(tmp_path, "init", "-q")
    (tmp_path / "f").write_text("1\n")
    git(tmp_path, "add", "f")
    git(tmp_path, "commit", "-q", "-m", "One")
    return tmp_path


def head(folder: Path) -> str:
    return git(folder, "rev-parse", "HEAD")


def test_head_on_a_branch_packed_detached_and_below(root: Path) -> None:
    assert head_commit(str(root)) == head(root)
    git(root, "pack-refs", "--all")
    assert not (root / ".git/refs/heads/main").exists()
    assert head_commit(str(root)) == head(root)
    git(root, "checkout", "-q", "--detach")
    assert head_commit(str(root)) == head(root)
    below = root / "a/b"
    below.mkdir(parents=True)
    assert head_commit(str(below)) == head(root)


def test_head_in_a_worktree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("linked") / "tree"
    git(root, "worktree", "add", "-q", "-b", "feature/x", str(place))
    git(place, "commit", "-q", "--allow-empty", "-m", "Two")
    assert head_commit(str(place)) == head(place) != head(root)
    git(root, "pack-refs", "--all")
    assert head_commit(str(place)) == head(place)


def test_head_in_a_submodule(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outer = tmp_path_factory.mktemp("outer")
    git(outer, "init", "-q")
    git(outer, "submodule", "add", "-q", str(root), "inner")
    git(outer, "commit", "-q", "-m", "Take it in")
    assert head_commit(str(outer / "inner")) == head(root)
    assert head_commit(str(outer)) == head(outer)


def test_no_head(tmp_path: Path) -> None:
    assert head_commit(str(tmp_path)) == ""
    git(tmp_path, "init", "-q")
    assert head_commit(str(tmp_path)) == ""
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/a\n")
    (tmp_path / ".git/refs/heads/a").write_text("ref: refs/heads/a\n")
    assert head_commit(str(tmp_path)) == ""
    (tmp_path / ".git/HEAD").write_bytes(b"\xff\0x")
    assert head_commit(str(tmp_path)) == ""


def test_a_git_file_that_points_nowhere(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: ../gone\n")
    assert git_folder(str(tmp_path)) == str(tmp_path.parent / "gone")
    assert head_commit(str(tmp_path)) == ""


def test_an_object_that_is_gone(root: Path) -> None:
    facade = Git(str(root))
    commit = facade.commit("HEAD")
    assert commit is not None
    oid = git(root, "rev-parse", "HEAD:f")
    shutil.rmtree(root / ".git/objects" / oid[:2])
    with CommitTree(facade, commit) as tree, pytest.raises(UsageError) as caught:
        tree.read("f")
    assert caught.value.render() == (
        "error: the repository does not have the content of f\n"
        f"  object: {oid}\n"
        "  help: fetch it: git fetch, in a partial clone with --refetch"
    )


def test_replaced_objects_are_not_looked_at(root: Path) -> None:
    first = head(root)
    (root / "f").write_text("2\n")
    git(root, "commit", "-qam", "Two")
    git(root, "replace", first, "HEAD")
    with CommitTree(Git(str(root)), first) as tree:
        assert tree.read("f") == b"1\n"
    git(root, "replace", "-d", first)
