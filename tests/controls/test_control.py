"""The merge-base control: an image of another commit, from git's objects alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from controls.repository import Repository, git, image, needs_git
from helpers.project import SampleProject, diff, patch

pytestmark = needs_git


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """A repository on its base branch."""
    return Repository(tmp_path)


@pytest.fixture
def ported(repo: Repository) -> Repository:
    """A repository on a port branch."""
    repo.port()
    return repo


def refused(repo: SampleProject, *arguments: str, code: int = 2, **options: object) -> str:
    """What a refused build says, without what it said it built before that."""
    done = repo.run("build", "-q", *arguments, **options)  # type: ignore[arg-type]
    assert done.returncode == code, done.stderr
    return done.stderr


# What it proves.


def test_the_control_equals_a_clean_build_of_the_merge_base(
    ported: Repository, tmp_path: Path
) -> None:
    document = ported.control("--pin", "2.0")
    base = ported.git("merge-base", "main", "HEAD")
    assert document["control"] == {
        "kind": "merge-base",
        "commit": base,
        "base_branch": "main",
        "pin": "1.0",
        "images": ["demo"],
        "nodes": {"total": 13, "reused": 5, "built": 8},
        "built": document["control"]["built"],
        "notes": [],
    }
    control, candidate = image(document, "control"), image(document, "image")
    assert (control["pin"], candidate["pin"]) == ("1.0", "2.0")
    clean = SampleProject(tmp_path / "clean")
    shutil.rmtree(clean.root)
    git(tmp_path, "clone", "-q", str(ported.root), str(clean.root))
    git(clean.root, "checkout", "-q", base)
    clean.supply()
    (built,) = clean.build()["images"]
    assert (control["image_id"], control["manifest"]) == (built["image_id"], built["manifest"])
    assert control["layout"] == str(ported.root / "dist/control/demo-1.0")


def test_the_pair_differs_by_the_pin_alone_until_an_entry_point_changes(
    ported: Repository,
) -> None:
    ported.control()
    done = ported.run("pair", "dist/control/demo-1.0", "demo", "--expect", "pin")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "demo (2.0) and dist/control/demo-1.0 (1.0) differ by the pin alone\n"
        "  pin      wheel:demo\n"
    )
    ported.write("images/demo.toml", ported.read("images/demo.toml") + 'entrypoint = ["serve"]\n')
    ported.commit("Change an entry point")
    ported.control()
    done = ported.run("pair", "dist/control/demo-1.0", "demo", "--expect", "pin")
    assert done.returncode == 1
    assert "  other    image:demo: entrypoint  images/demo.toml:6\n" in done.stdout


def test_a_launcher_line_is_named_by_node_file_and_line(repo: Repository) -> None:
    repo.write("images/launch/serve", "#!/bin/sh\nexec vllm serve\n")
    repo.write(
        "images/demo.toml",
        repo.read("images/demo.toml")
        + '\n[launch]\nfiles = { "/usr/bin/serve" = "images/launch/serve" }\n',
    )
    repo.commit("Add a launcher")
    repo.port()
    repo.control()
    done = repo.run("pair", "dist/control/demo-1.0", "demo", "--expect", "pin")
    assert done.returncode == 0, done.stdout
    repo.replace("images/launch/serve", "vllm serve", "vllm serve --enforce-eager")
    repo.commit("Change a line of the launcher")
    repo.control()
    done = repo.run("pair", "dist/control/demo-1.0", "demo", "--expect", "pin")
    assert done.returncode == 1
    assert done.stdout.startswith(
        "demo (2.0) and dist/control/demo-1.0 (1.0) differ in more than the pin and its port: "
        "one node\n"
    )
    assert (
        "  other    layer:launch/demo: images/launch/serve  images/launch/serve:2\n"
        "             - exec vllm serve\n"
        "             + exec vllm serve --enforce-eager\n"
    ) in done.stdout


def test_pair_and_blame_take_commits(ported: Repository) -> None:
    assert ported.run("pair", "merge-base", "2.0").returncode == 0
    assert ported.run("pair", "main", "HEAD").returncode == 0
    done = ported.run("blame", "main:vllm/one.py", "-L", "10")
    assert done.stdout == "patches/first.patch:18 (hunk 1)  10  line ten\n"


def test_neither_tree_nor_index_is_touched(ported: Repository) -> None:
    ported.write("patches/first.patch", ported.read("patches/first.patch").replace("ten", "TEN"))
    ported.git("add", "patches/first.patch")
    ported.write("notes.txt", "mine\n")

    def state() -> dict[str, tuple[int, str]]:
        return {
            str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(ported.root.rglob("*"))
            if path.is_file() and "dist" not in path.parts
        }

    before = state()
    document = ported.control()
    assert state() == before
    assert document["control"]["notes"] == [
        "2 files differ from HEAD (notes.txt, patches/first.patch): "
        "the image is of the working tree, the control of a commit"
    ]


def test_the_control_s_provenance_names_its_commit(ported: Repository) -> None:
    ported.control()
    for layout, commit in (
        ("dist/demo-2.0", ported.git("rev-parse", "HEAD")),
        ("dist/control/demo-1.0", ported.git("merge-base", "main", "HEAD")),
    ):
        statement = json.loads(ported.read(f"{layout}.provenance.json"))
        first = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]
        assert (first["name"], first["digest"]) == ("project", {"gitCommit": commit})


def test_a_declared_control_is_built_without_an_option(ported: Repository) -> None:
    ported.write("build.toml", ported.read("build.toml") + '\n[control]\nbase-branch = "main"\n')
    ported.commit("Declare a control")
    for _ in range(2):
        assert image(ported.build(), "control")["pin"] == "1.0"
    assert "control" not in {one["role"] for one in ported.build("--control", "none")["images"]}
    assert image(ported.build(), "control")["pin"] == "1.0"


def test_without_a_declaration_there_is_none(ported: Repository) -> None:
    document = ported.build()
    assert "control" not in document
    assert len(document["images"]) == 1


def test_the_table_shows_both(ported: Repository) -> None:
    done = ported.run("build", "--control", "merge-base")
    assert "demo 2.0 (image)\n" in done.stdout
    assert "demo 1.0 (control)\n" in done.stdout
    base = ported.git("merge-base", "main", "HEAD")
    assert f"control: merge base {base[:12]} of main\n" in done.stderr
    assert done.stderr.endswith("hq pair dist/control/demo-1.0 demo says what they differ in\n")


# Which commit.


def test_a_pin_a_branch_and_a_commit(ported: Repository) -> None:
    by_pin = ported.build("--control", "1.0")
    assert by_pin["control"]["kind"] == "pin"
    by_name = ported.build("--control", "main")
    commit = ported.git("rev-parse", "main")
    assert (by_name["control"]["kind"], by_name["control"]["commit"]) == ("rev", commit)
    ids = {image(one, "control")["image_id"] for one in (by_pin, by_name)}
    assert ids == {image(ported.build("--control", commit[:10]), "control")["image_id"]}


def test_the_build_itself_is_no_control(ported: Repository) -> None:
    assert refused(ported, "--control", "2.0") == (
        "error: the control would be the build itself: pin 2.0\n"
        "  help: name another pin, merge-base, or a git revision\n"
    )


@pytest.mark.parametrize("name", ["nothing", "--upload-pack=x", "HEAD~9", "main:build.toml"])
def test_what_is_no_commit(ported: Repository, name: str) -> None:
    assert refused(ported, f"--control={name}") == (
        f"error: {name} is no pin of this project and no commit of its repository\n"
        "  help: name a pin, merge-base, none, or a branch, tag or commit\n"
    )


def test_on_the_base_branch(repo: Repository) -> None:
    repo.write("build.toml", repo.read("build.toml") + "\n[control]\n")
    repo.commit("Declare a control")
    done = repo.run("build", "--json")
    assert done.returncode == 0
    reason = "HEAD is on main, so the merge base is HEAD itself"
    assert done.stderr.endswith(f"no control: {reason}\n")
    assert json.loads(done.stdout)["control"] == {"kind": "none", "reason": reason}
    assert refused(repo, "--control", "merge-base") == (
        f"error: {reason}\n  help: name a pin or a commit: --control PIN, --control COMMIT\n"
    )


def test_a_dirty_base_branch_has_its_head_as_control(repo: Repository) -> None:
    repo.replace("patches/first.patch", "+line ten", "+line TEN")
    document = repo.control()
    assert document["control"]["commit"] == repo.git("rev-parse", "HEAD")
    assert image(document, "control")["image_id"] != image(document, "image")["image_id"]


def test_a_base_branch_that_only_the_remote_has(ported: Repository, tmp_path: Path) -> None:
    clone = SampleProject(tmp_path / "clone")
    shutil.rmtree(clone.root)
    git(tmp_path, "clone", "-q", "-b", "port", str(ported.root), str(clone.root))
    git(clone.root, "remote", "set-head", "origin", "main")
    clone.store = ported.store
    document = clone.build("--control", "merge-base")
    assert document["control"]["base_branch"] == "origin/main"
    assert document["control"]["commit"] == ported.git("rev-parse", "main")


def test_a_missing_base_branch(ported: Repository) -> None:
    ported.write("build.toml", ported.read("build.toml") + '\n[control]\nbase-branch = "trunk"\n')
    assert refused(ported) == (
        "error: there is no branch trunk here\n"
        "  at: build.toml\n"
        "  help: git fetch origin trunk, or mend control.base-branch\n"
    )


def test_no_base_branch_to_be_found(ported: Repository) -> None:
    ported.git("branch", "-m", "main", "trunk")
    assert refused(ported, "--control", "merge-base") == (
        "error: which branch is the base branch? there is no branch main or master, and origin "
        "names none\n"
        '  help: name it in build.toml: [control] base-branch = "…"\n'
    )


def test_two_base_branches(ported: Repository) -> None:
    ported.git("branch", "master", "main")
    assert refused(ported, "--control", "merge-base") == (
        "error: which branch is the base branch? there is both main and master\n"
        '  help: name it in build.toml: [control] base-branch = "…"\n'
    )


def test_no_merge_base(ported: Repository) -> None:
    ported.git("checkout", "-q", "--orphan", "other")
    ported.commit("From nothing")
    assert refused(ported, "--control", "merge-base") == (
        "error: HEAD and main have no merge base: they share no commit\n"
        "  help: name the control: --control PIN or --control COMMIT\n"
    )


def test_several_merge_bases(ported: Repository) -> None:
    ported.git("checkout", "-q", "main")
    one = ported.commit("One")
    other = ported.git("rev-parse", "port")
    ported.git("checkout", "-q", "-b", "crossing", one)
    ported.git("merge", "-q", "--no-edit", other)
    ported.git("checkout", "-q", "main")
    ported.git("checkout", "-q", "port")
    ported.git("merge", "-q", "--no-edit", one)
    ported.git("branch", "-f", "main", "crossing")
    # The two merges have the same parents, in another order.
    ported.commit("Go on")
    rows = sorted([(one, "One"), (other, "Port to 2.0")])
    assert refused(ported, "--control", "merge-base") == (
        "error: HEAD and main have 2 merge bases\n"
        + "".join(f"  {commit[:12]} {subject}\n" for commit, subject in rows)
        + "  help: name one of them: --control COMMIT; or merge the base branch once more\n"
    )
    assert ported.build("--control", one)["control"]["commit"] == one


def test_a_shallow_clone(ported: Repository, tmp_path: Path) -> None:
    clone = SampleProject(tmp_path / "clone")
    shutil.rmtree(clone.root)
    clone.store = ported.store
    url = f"file://{ported.root}"
    git(tmp_path, "clone", "-q", "--depth", "1", "-b", "port", url, str(clone.root))
    git(clone.root, "fetch", "-q", "--depth", "1", "origin", "main:refs/remotes/origin/main")
    git(clone.root, "remote", "set-head", "origin", "main")
    assert refused(clone, "--control", "merge-base") == (
        "error: this clone is cut short: the merge base of HEAD and origin/main is not in it\n"
        "  help: git fetch --unshallow; in GitHub Actions, checkout with fetch-depth: 0\n"
    )
    git(clone.root, "fetch", "-q", "--deepen", "1", "origin", "port")
    document = clone.build("--control", "merge-base")
    assert document["control"]["commit"] == ported.git("rev-parse", "main")


def test_no_commit_yet(tmp_path: Path) -> None:
    project = SampleProject(tmp_path)
    project.supply()
    git(project.root, "init", "-q")
    assert refused(project, "--control", "merge-base") == (
        "error: the repository has no commit yet\n  help: commit, or use --control PIN\n"
    )


def test_no_repository(project: SampleProject) -> None:
    assert refused(project, "--control", "merge-base") == (
        "error: the project is in no git repository\n"
        "  help: build with --control none or --control PIN, or where its repository is\n"
    )


def test_no_git(ported: Repository, tmp_path: Path) -> None:
    assert refused(ported, "--control", "merge-base", env={"PATH": str(tmp_path)}) == (
        "error: git is not installed\n  help: install it, or build with --control none\n"
    )


# What stands at the merge base.


def test_an_older_schema(repo: Repository) -> None:
    repo.replace("build.toml", "hq.project/1", "hq.project/0")
    base = repo.commit("Of old")
    repo.git("checkout", "-q", "-b", "port")
    repo.replace("build.toml", "hq.project/0", "hq.project/1")
    repo.commit("Of today")
    assert refused(repo, "--control", "merge-base").partition("error: ")[2] == (
        f"the control, merge base {base[:12]} of main: its build.toml has the schema "
        "'hq.project/0', this hq reads 'hq.project/1'\n"
        f"  at: {base[:12]}:build.toml\n"
        "  help: build it with the hq of that time, or name another: --control PIN or COMMIT\n"
    )


def test_no_project_at_the_merge_base(repo: Repository) -> None:
    text = repo.read("build.toml")
    (repo.root / "build.toml").unlink()
    base = repo.commit("Before hq")
    repo.git("checkout", "-q", "-b", "port")
    repo.write("build.toml", text)
    repo.commit("With hq")
    assert refused(repo, "--control", "merge-base").partition("error: ")[2] == (
        f"the control, merge base {base[:12]} of main: it has no build.toml\n"
        "  help: name another control: --control PIN, COMMIT or none\n"
    )


def test_a_mistake_at_the_merge_base_is_told_as_its_own(repo: Repository) -> None:
    repo.replace("patches/series", "third.patch\n", "third.patch\nfifth.patch\n")
    base = repo.commit("Forget a file")
    repo.git("checkout", "-q", "-b", "port")
    repo.replace("patches/series", "third.patch\nfifth.patch\n", "third.patch\n")
    repo.commit("Mend it")
    text = refused(repo, "--control", "merge-base").partition("error: ")[2]
    assert text.startswith(
        f"the control, merge base {base[:12]} of main: patches/series has one mistake\n"
    )


def test_a_failure_of_the_control_s_build_names_the_commit(repo: Repository) -> None:
    repo.replace("patches/first.patch", "-line 10\n", "-line eleven\n")
    base = repo.commit("Break a patch")
    repo.git("checkout", "-q", "-b", "port")
    repo.replace("patches/first.patch", "-line eleven\n", "-line 10\n")
    repo.commit("Mend it")
    text = refused(repo, "--control", "merge-base", code=1).partition("error: ")[2]
    assert text.startswith(
        f"the control, merge base {base[:12]} of main: patches/first.patch does not apply: "
    )
    assert f"  at: {base[:12]}:patches/first.patch:" in text
    assert "  node: patch:first\n" in text


# Where the project stands.


def test_from_a_subfolder_of_a_project_in_a_subfolder(ported: Repository) -> None:
    inner = ported.root / "deep/down"
    inner.mkdir(parents=True)
    for name in ported.git("ls-files").split("\n"):
        target = inner / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (ported.root / name).rename(target)
    ported.commit("Move it down")
    ported.git("branch", "-f", "main", "HEAD")
    moved = SampleProject.__new__(SampleProject)
    moved.__dict__ |= vars(ported) | {"root": inner}
    moved.replace("patches/first.patch", "+line ten", "+line TEN")
    git(inner, "commit", "-q", "-am", "Change a line")
    document = moved.build("--control", "merge-base", cwd=inner / "patches")
    assert document["control"]["commit"] == ported.git("rev-parse", "main")
    assert document["control"]["built"] == [
        "patch:first",
        "patch:third",
        "layer:series",
        "image:demo",
    ]


def test_a_linked_worktree(ported: Repository, tmp_path: Path) -> None:
    place = tmp_path / "linked"
    ported.git("worktree", "add", "-q", "-b", "fix", str(place), "port")
    linked = SampleProject.__new__(SampleProject)
    linked.__dict__ |= vars(ported) | {"root": place}
    linked.write("notes.txt", "x\n")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "In the worktree")
    document = linked.build("--control", "merge-base")
    assert document["control"]["commit"] == ported.git("rev-parse", "main")
    statement = json.loads(linked.read("dist/demo-2.0.provenance.json"))
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependencies[0]["digest"] == {"gitCommit": git(place, "rev-parse", "HEAD")}


def test_run_by_a_hook(ported: Repository, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    elsewhere = {"GIT_DIR": str(other / ".git"), "GIT_INDEX_FILE": str(other / "index")}
    document = ported.control(env=elsewhere)
    assert document["control"]["commit"] == ported.git("rev-parse", "main")


def submodule(repo: Repository, tmp_path: Path) -> Path:
    """Moves the overlay into a repository of its own, taken in as a submodule."""
    other = tmp_path / "overlay"
    shutil.move(repo.root / "over", other)
    git(other, "init", "-q")
    git(other, "add", "-A")
    git(other, "commit", "-q", "-m", "The overlay")
    repo.git("rm", "-rq", "--cached", "over")
    repo.git("submodule", "add", "-q", str(other), "over")
    repo.commit("Take the overlay from elsewhere")
    return other


def test_a_submodule_is_read_at_the_commit_that_was_recorded(
    repo: Repository, tmp_path: Path
) -> None:
    submodule(repo, tmp_path)
    plain = repo.build()
    repo.git("checkout", "-q", "-b", "port")
    inner = repo.root / "over"
    (inner / "files/vllm/extra/__init__.py").write_text("EXTRA = 2\n")
    git(inner, "commit", "-q", "-am", "Change the overlay")
    repo.commit("Take the change")
    document = repo.control()
    assert image(document, "control")["image_id"] == plain["images"][0]["image_id"]
    assert "overlay:over" in document["built"]


def test_a_submodule_that_is_not_there(repo: Repository, tmp_path: Path) -> None:
    submodule(repo, tmp_path)
    base = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "-b", "port")
    over = {
        path: path.read_bytes()
        for path in (repo.root / "over").rglob("*")
        if path.name != ".git" and path.is_file()
    }
    repo.git("rm", "-q", "-f", "over")
    for path, data in over.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    repo.commit("Take the overlay home")
    assert refused(repo, "--control", "merge-base").partition("error: ")[2] == (
        f"the control, merge base {base[:12]} of main: the submodule over is not checked out\n"
        f"  at: {base[:12]}:over\n"
        "  help: git submodule update --init over\n"
    )


def test_a_project_that_is_a_submodule(ported: Repository, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "add", "-q", "-b", "port", str(ported.root), "project")
    inside = SampleProject.__new__(SampleProject)
    inside.__dict__ |= vars(ported) | {"root": outer / "project"}
    document = inside.build("--control", "origin/main")
    assert image(document, "control")["pin"] == "1.0"
    assert document["control"]["commit"] == ported.git("rev-parse", "main")


def test_symlinks_are_followed_inside_the_repository(repo: Repository) -> None:
    plain = repo.build()
    (repo.root / "shared").mkdir()
    (repo.root / "patches/first.patch").rename(repo.root / "shared/first.patch")
    os.symlink("../shared/first.patch", repo.root / "patches/first.patch")
    (repo.root / "over/files").rename(repo.root / "shared/files")
    os.symlink("../shared/files", repo.root / "over/files")
    repo.commit("Share files")
    repo.git("checkout", "-q", "-b", "port")
    repo.replace("patches/second.patch", "+line twenty", "+line TWENTY")
    repo.commit("Change a line")
    document = repo.control()
    assert image(document, "control")["image_id"] == plain["images"][0]["image_id"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/etc/passwd", "patches/first.patch is a symlink out of the repository, to /etc/passwd"),
        ("../../x", "patches/first.patch is a symlink out of the repository, to ../../x"),
        ("first.patch", "patches/first.patch is a symlink that leads to itself"),
    ],
)
def test_other_symlinks_are_refused(repo: Repository, target: str, message: str) -> None:
    text = repo.read("patches/first.patch")
    path = repo.root / "patches/first.patch"
    path.unlink()
    os.symlink(target, path)
    repo.commit("Point elsewhere")
    repo.git("checkout", "-q", "-b", "port")
    path.unlink()
    repo.write("patches/first.patch", text)
    repo.commit("Mend it")
    assert message in refused(repo, "--control", "merge-base")


def test_a_pointer_of_git_lfs_is_no_patch(repo: Repository) -> None:
    text = repo.read("patches/first.patch")
    repo.write(
        "patches/first.patch",
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    )
    repo.commit("Store it elsewhere")
    repo.git("checkout", "-q", "-b", "port")
    repo.write("patches/first.patch", text)
    repo.commit("Take it home")
    assert (
        "patches/first.patch is kept outside git: the commit holds a pointer of Git LFS to it"
        in refused(repo, "--control", "merge-base", code=1)
    )


def test_names_that_git_would_quote(repo: Repository) -> None:
    name = "patches/a ü \t.patch"
    second = patch(
        "X", diff("vllm/two.py", repo.texts["vllm/two.py"], repo.texts["vllm/two.py"] + "end\n")
    )
    repo.write("patches/ünïcode.patch", second)
    repo.write("patches/series", repo.read("patches/series") + "ünïcode.patch\n")
    repo.write(name.replace("patches/", "over/files/"), "x\n")
    repo.commit("Odd names")
    plain = repo.build()
    repo.git("checkout", "-q", "-b", "port")
    repo.commit("Nothing")
    document = repo.control()
    assert image(document, "control")["image_id"] == plain["images"][0]["image_id"]
