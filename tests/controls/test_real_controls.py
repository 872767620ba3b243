"""Controls on this repository's own content: the base branch is at 0.28.0, the port at 0.29.0."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controls.repository import git, image, needs_git
from helpers.realproject import ROOT, RealProject, real_wheel
from hq.store.disk import DiskStore

pytestmark = [pytest.mark.wheel, needs_git]


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealProject]:
    """A base branch that knows 0.28.0 alone, and a port branch on top of it."""
    folder = tmp_path_factory.mktemp("real")
    wheels = [real_wheel(pin) for pin in ("0.28.0", "0.29.0")]
    made = RealProject(folder)
    with DiskStore(str(made.store)) as store:
        for wheel in wheels:
            store.put(wheel.read_bytes())
    declaration = made.read("build.toml")
    head, _, pins = declaration.partition('[pins."0.28.0"]')
    old, _, new = pins.partition('[pins."0.29.0"]')
    base = head.replace('"0.29.0"', '"0.28.0"') + '[pins."0.28.0"]' + old
    aside = folder / "aside"
    only_new = _only_new(made)
    for path in only_new:
        (aside / path).parent.mkdir(parents=True, exist_ok=True)
        (made.root / path).rename(aside / path)
    made.write("build.toml", base)
    made.write(".gitignore", "dist\n")
    git(made.root, "init", "-q")
    git(made.root, "add", "-A")
    git(made.root, "commit", "-q", "-m", "At 0.28.0")
    git(made.root, "checkout", "-q", "-b", "port")
    for path in only_new:
        (made.root / path).parent.mkdir(parents=True, exist_ok=True)
        (aside / path).rename(made.root / path)
    made.write("build.toml", declaration)
    assert new
    for red in sorted((ROOT / "images").glob("red-*.toml")):
        shutil.copy(red, made.root / "images")
    git(made.root, "add", "-A")
    git(made.root, "commit", "-q", "-m", "Port to 0.29.0")
    yield made
    shutil.rmtree(folder, ignore_errors=True)


def _only_new(made: RealProject) -> list[str]:
    """The patches that only the series of 0.29.0 names, its series and its lock."""
    names = [
        {line.split()[0] for line in made.read(path).splitlines() if line.strip()}
        for path in ("patches/series", "patches/series-0.28.0")
    ]
    patches = [f"patches/{name}" for name in sorted(names[0] - names[1])]
    return [*patches, "patches/series", "lockfiles/0.29.0.toml"]


def test_the_control_is_the_base_branch_and_the_pair_differs_by_the_pin_alone(
    repo: RealProject, tmp_path: Path
) -> None:
    document = repo.build("--pin", "0.29.0", "--control", "merge-base")
    control = image(document, "control")
    assert (control["pin"], image(document, "package")["pin"]) == ("0.28.0", "0.29.0")
    checkout = RealProject.__new__(RealProject)
    checkout.__dict__ |= vars(repo) | {"root": tmp_path / "clean"}
    git(tmp_path, "clone", "-q", "-b", "main", str(repo.root), str(checkout.root))
    (clean,) = checkout.build()["images"]
    assert (control["image_id"], control["manifest"]) == (clean["image_id"], clean["manifest"])
    done = repo.run("pair", "dist/control/vllm-0.28.0", "vllm", "--expect", "pin", "--json")
    assert done.returncode == 0, done.stdout
    predicate = json.loads(done.stdout)["predicate"]
    assert (predicate["verdict"], predicate["pin"]) == ("pin", ["wheel:vllm"])
    repo.write("images/vllm.toml", repo.read("images/vllm.toml") + "[config]\ncmd = ['x']\n")
    try:
        done = repo.run("pair", "dist/control/vllm-0.28.0", "vllm", "--expect", "pin")
        assert done.returncode == 1
        assert "  other    image:vllm: cmd  images/vllm.toml:7\n" in done.stdout
    finally:
        git(repo.root, "checkout", "-q", "images/vllm.toml")


def test_every_red_control_is_red_for_its_reason(repo: RealProject) -> None:
    done = repo.run("red", "--pin", "0.29.0", "--json")
    assert done.returncode == 0, done.stderr
    states = {one["name"]: one["state"] for one in json.loads(done.stdout)["controls"]}
    assert states == dict.fromkeys(
        (
            "corrupt-wheel",
            "dropped-patch",
            "raw-read",
            "removed-flag",
            "shifted-hunk",
            "unregistered-knob",
            "wrong-layout",
        ),
        "red",
    )


def test_with_the_check_removed_they_come_up_green(repo: RealProject) -> None:
    """Without its facts the overlay installs a wrong layout and a removed flag."""
    overlay = repo.read("kvarn/overlay.toml")
    repo.write("kvarn/overlay.toml", overlay.partition("[facts]")[0])
    try:
        done = repo.run("red", "--json", "wrong-layout", "removed-flag")
        assert done.returncode == 1
        states = {one["name"]: one["state"] for one in json.loads(done.stdout)["controls"]}
        assert states == {"wrong-layout": "green", "removed-flag": "green"}
        assert "  wrong-layout: green: overlay:kvarn passed with the fault in it\n" in done.stderr
    finally:
        repo.write("kvarn/overlay.toml", overlay)


def test_each_line_that_a_node_put_in_is_where_it_says(repo: RealProject) -> None:
    """All files that the series, the knobs and the overlay touch, in one process."""
    from hq.app.blame import blame
    from hq.app.operands import side
    from hq.app.recorded import RecordedTree
    from hq.app.session import Session, settings_from
    from hq.execute.speculate import Quiet

    settings = settings_from(
        str(repo.root), store=str(repo.store), output="", offline=True, jobs=1, environment={}
    )
    totals: dict[str, int] = {}
    sources: dict[str, list[bytes]] = {}
    with Session(settings, pytest.fail) as session:
        tree = RecordedTree(side(session, "0.29.0", Quiet()).records, session.disk)
        changed = {change.path for result in tree.results.values() for change in result.delta}
        assert len(changed) > 30
        for path in sorted(changed):
            content = tree.last(path)
            assert content is not None
            found = blame(tree, path)
            assert b"".join(line.text for line in found.lines) == content.data
            for line in found.lines:
                origin: Any = line.origin
                totals[origin.kind] = totals.get(origin.kind, 0) + 1
                if origin.kind in ("patch", "overlay"):
                    if origin.file not in sources:
                        sources[origin.file] = (repo.root / origin.file).read_bytes().split(b"\n")
                    mark = b"+" if origin.kind == "patch" else b""
                    text = line.text.removesuffix(b"\n")
                    assert sources[origin.file][origin.line - 1] == mark + text
    assert set(totals) == {"wheel", "patch", "knob", "envs", "overlay"}
