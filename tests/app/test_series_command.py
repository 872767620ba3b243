"""``hq series`` on real directories: lazily read, written at once, nothing left behind."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from hq.app.series import apply, check, run_apply, run_check, run_lint, run_table
from hq.app.trees import DirectoryTree, tree_digest
from hq.model.errors import BuildError, HqError, UsageError
from patchwork.odd_cases import CASES, DONE, MAKES_N, STANDARD, Case, F
from patchwork.support import Tree, after, need, read_tree, regular, tree, write_tree


def lay_out(root: Path, files: Tree, patches: dict[str, bytes], series: str | None = None) -> None:
    write_tree(files, root / "tree")
    (root / "patches").mkdir()
    for name, data in patches.items():
        (root / "patches" / name).write_bytes(data)
    text = "".join(f"{name}\n" for name in patches) if series is None else series
    (root / "patches" / "series").write_text(text)


def digest_of(files: Tree) -> str:
    """The rule, written out once more."""
    rows = sorted(
        path.encode("utf-8", "surrogateescape")
        + f"\0{file.kind}\0{hashlib.sha256(file.data).hexdigest()}\n".encode()
        for path, file in files.items()
    )
    return hashlib.sha256(b"".join(rows)).hexdigest()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_odd_patches_on_disk(case: Case, tmp_path: Path) -> None:
    """Every odd patch again, through directories, and the tree untouched."""
    options = f"x.patch -p{case.strip}{' -R' if case.reverse else ''}\n"
    lay_out(tmp_path, case.tree, {"x.patch": case.data}, options)
    source, series = str(tmp_path / "tree"), str(tmp_path / "patches" / "series")
    before = read_tree(tmp_path / "tree")
    result = run_apply(source, series, str(tmp_path / "out"))
    assert result.document["patches"][0]["outcome"] == case.want  # type: ignore[index, call-overload]
    assert result.exit_code == (0 if case.want == "applied" else 1)
    wanted = case.tree if case.after is None else case.after
    assert result.document["tree"] == digest_of(wanted)
    if case.want == "applied":
        assert read_tree(tmp_path / "out") == wanted
    else:
        assert not (tmp_path / "out").exists()
    assert read_tree(tmp_path / "tree") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["patches", "tree", *(["out"] if case.want == "applied" else [])]
    )


def places(root: Path) -> tuple[str, str]:
    return str(root / "tree"), str(root / "patches" / "series")


def test_document(tmp_path: Path) -> None:
    lay_out(tmp_path, F, {"a.patch": STANDARD.encode(), "b.patch": STANDARD.encode()})
    result = run_check(*places(tmp_path), keep_going=True, json=True)
    hunk = {"n": 1, "outcome": "exact", "line": 4, "offset": 0, "fuzz": 0, "note": ""}
    assert result.exit_code == 1
    assert result.document == {
        "schema": "hq.series/1",
        "tree": digest_of(DONE),
        "patches": [
            {
                "name": "a.patch",
                "outcome": "applied",
                "reason": "",
                "files": [{"path": "f", "hunks": [hunk]}],
            },
            {
                "name": "b.patch",
                "outcome": "already-applied",
                "reason": "all that it changes is there already",
                "files": [{"path": "f", "hunks": [hunk | {"outcome": "already-applied"}]}],
            },
        ],
    }


def test_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = tree(f=b"new\n" + F["f"].data)
    lay_out(tmp_path, moved, {"a.patch": STANDARD.encode(), "b.patch": b"", "c.patch": b""})
    monkeypatch.chdir(tmp_path)
    assert run_check("tree", "patches/series").text == (
        "ok       a.patch  1 file, 1 hunk, 1 at an offset\n"
        "         f hunk 1 applies at line 5, +1 from where it should be\n"
        "REFUSED  b.patch\n\n"
        "error: patches/b.patch is refused: the patch changes nothing: the patch is empty\n"
        "  at: patches/b.patch\n"
        "  help: drop it from the series or add its diff\n\n"
        "3 patches: 1 applied, 1 refused, 1 not tried"
    )


def test_keep_going_writes_what_applied(tmp_path: Path) -> None:
    lay_out(tmp_path, F, {"a.patch": b"", "b.patch": STANDARD.encode()})
    result = run_apply(*places(tmp_path), str(tmp_path / "out"), keep_going=True)
    assert result.exit_code == 1
    assert read_tree(tmp_path / "out") == DONE


def test_the_result_has_the_right_modes(tmp_path: Path) -> None:
    files = tree(f=F["f"], s=regular("#!/bin/sh\n", "x"), l=regular("f", "l"), d__e__g="x")
    lay_out(tmp_path, files, {"a.patch": STANDARD.encode()})
    os.chmod(tmp_path / "tree" / "f", 0o600)
    (tmp_path / "tree" / "empty").mkdir()
    old = os.umask(0o077)
    try:
        apply(*places(tmp_path), str(tmp_path / "out"))
    finally:
        os.umask(old)
    modes = {
        path.relative_to(tmp_path / "out").as_posix(): path.lstat().st_mode & 0o777
        for path in (tmp_path / "out").rglob("*")
        if not path.is_symlink()
    }
    assert modes == {"f": 0o644, "s": 0o755, "d": 0o755, "d/e": 0o755, "d/e/g": 0o644}
    assert os.readlink(tmp_path / "out" / "l") == "f"
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755


def test_names_of_any_bytes(tmp_path: Path) -> None:
    files = {"caf\udce9": regular("1"), "\U0001f600": regular("2"), "\ufffd": regular("3")}
    lay_out(tmp_path, files, {})
    report = check(*places(tmp_path))
    assert report.tree == digest_of(files)
    apply(*places(tmp_path), str(tmp_path / "out"))
    assert read_tree(tmp_path / "out") == files


def test_only_patched_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path, F | tree(other="x"), {"a.patch": STANDARD.encode()})
    asked: list[str] = []
    read = DirectoryTree.read

    def noting(self: DirectoryTree, path: str):
        asked.append(path)
        return read(self, path)

    monkeypatch.setattr(DirectoryTree, "read", noting)
    monkeypatch.setattr(DirectoryTree, "entries", None)
    assert check(*places(tmp_path), digest=False).applied
    assert asked == ["f"]


def test_files_behind_a_symlink_are_not_seen(tmp_path: Path) -> None:
    lay_out(tmp_path, tree(real__f=F["f"], d=regular("real", "l")), {})
    source = DirectoryTree(str(tmp_path / "tree"))
    assert source.read("d/f") is None
    assert source.read("real") == ("d", b"")
    assert source.read("real/f/x") is None
    assert source.read("x" * 5000) is None


def failing(root: Path, *arguments: object, **more: object) -> HqError:
    with pytest.raises(HqError) as caught:
        apply(*places(root), *arguments, **more)  # type: ignore[arg-type]
    return caught.value


def test_taken_destinations(tmp_path: Path) -> None:
    lay_out(tmp_path, F, {"a.patch": STANDARD.encode()})
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "x").write_text("")
    (tmp_path / "empty").mkdir()
    error = failing(tmp_path, str(tmp_path / "taken"))
    assert error.exit_code == 2
    assert error.render() == (
        "error: the result goes into a new or an empty directory; this one is taken\n"
        f"  at: {tmp_path}/taken\n"
        "  help: give --into another name, or remove what is there"
    )
    inside = failing(tmp_path, str(tmp_path / "tree" / "out"))
    assert inside.message == "the result cannot be written into the tree that it is made from"
    orphan = failing(tmp_path, str(tmp_path / "no" / "out"))
    assert orphan.message == "the directory that is to hold the result does not exist"
    apply(*places(tmp_path), str(tmp_path / "empty"))
    assert read_tree(tmp_path / "empty") == DONE


def test_a_special_file(tmp_path: Path) -> None:
    lay_out(tmp_path, F, {"a.patch": STANDARD.encode()})
    os.mkfifo(tmp_path / "tree" / "pipe")
    with pytest.raises(BuildError) as caught:
        check(*places(tmp_path))
    assert caught.value.render() == (
        "error: a special file in the tree: neither a regular file, a directory nor a symlink\n"
        "  at: pipe\n"
        "  help: remove it from the tree"
    )
    assert failing(tmp_path, str(tmp_path / "out")).exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["patches", "tree"]


def test_missing_inputs(tmp_path: Path) -> None:
    lay_out(tmp_path, F, {"a.patch": b""}, "a.patch\ngone.patch\nsub/gone.patch\n")
    source, series = places(tmp_path)
    with pytest.raises(UsageError, match="the tree does not exist"):
        check(str(tmp_path / "nowhere"), series)
    with pytest.raises(UsageError, match="the tree is not a directory"):
        check(series, series)
    with pytest.raises(UsageError, match="cannot read the series: No such file or directory"):
        check(source, str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="the folder of the patches is not there"):
        check(source, series, str(tmp_path / "nowhere"))
    with pytest.raises(UsageError) as caught:
        check(source, series)
    assert caught.value.details == (
        f"{series}:2: there is no patch file 'gone.patch'",
        f"{series}:3: there is no patch file 'sub/gone.patch'",
    )


def test_a_patch_in_no_series_is_a_warning_and_a_lint_error(tmp_path: Path) -> None:
    patches = {"a.patch": STANDARD.encode(), "old.patch": b"", "other.patch": b""}
    lay_out(tmp_path, F, patches, "a.patch\n")
    (tmp_path / "patches" / "series-other").write_text("other.patch\n")
    source, series = places(tmp_path)
    result = run_check(source, series)
    assert result.exit_code == 0
    assert result.text.splitlines()[0] == (
        f"warning: {tmp_path}/patches/old.patch: this patch is in no series "
        "(name it in one, or remove it)"
    )
    lint = run_lint(series)
    assert lint.exit_code == 1
    assert "old.patch: this patch is in no series" in lint.text
    assert "other.patch" not in lint.text


def test_table(tmp_path: Path) -> None:
    header = b"Subject: Seven\nKind: own\nCut-Against: 1.0\nRetires-When: never\n\n"
    lay_out(tmp_path, F, {"a.patch": header + STANDARD.encode()})
    result = run_table(places(tmp_path)[1])
    assert result.exit_code == 0
    assert result.text == (
        "patch    kind  subject  cut against  retires when  files  +  -\n"
        "a.patch  own   Seven    1.0          never         1      1  1"
    )
    assert run_lint(places(tmp_path)[1]).text == "every header is complete"


def test_the_digest_streams(tmp_path: Path) -> None:
    files = tree(big=b"x" * 700_000, f=F["f"])
    write_tree(files, tmp_path / "tree")
    assert tree_digest(DirectoryTree(str(tmp_path / "tree")), {}) == digest_of(files)
    changes = {"big": None, "n": regular("new", "x")}
    after_changes = {"f": F["f"], "n": regular("new", "x")}
    assert tree_digest(DirectoryTree(str(tmp_path / "tree")), changes) == digest_of(after_changes)


@pytest.mark.system
def test_quilt_pushes_the_same_folder(tmp_path: Path) -> None:
    need("quilt")
    make = b"--- /dev/null\n+++ b/d/n\n" + MAKES_N.encode()
    lay_out(
        tmp_path, F, {"a.patch": STANDARD.encode(), "b.patch": make},
        "# a comment\na.patch -p1 # why\nb.patch\n",
    )  # fmt: skip
    apply(*places(tmp_path), str(tmp_path / "out"))
    env = {
        "PATH": os.environ["PATH"], "QUILT_PATCHES": str(tmp_path / "patches"), "LC_ALL": "C",
        "HOME": str(tmp_path),
    }  # fmt: skip
    subprocess.run(
        ["quilt", "--quiltrc", "-", "push", "-a"],
        cwd=tmp_path / "tree", env=env, check=True, capture_output=True,
    )  # fmt: skip
    pushed = {
        path: file
        for path, file in read_tree(tmp_path / "tree").items()
        if not path.startswith(".pc")
    }
    assert pushed == read_tree(tmp_path / "out") == after(F, check_outcome(tmp_path))


def check_outcome(root: Path):
    """What the library says the series makes of the unpatched file."""
    from hq.patchwork.series import apply_series, parse_series

    folder = root / "patches"
    entries = parse_series((folder / "series").read_bytes())
    return apply_series(entries, lambda name: (folder / name).read_bytes(), F.get)
