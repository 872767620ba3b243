"""A pin with dependencies, from nothing: they come together, and beside the work on the series."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from helpers.fakeregistry import fake_registry
from helpers.project import SampleProject
from helpers.wheelmaker import build_zip, wheel_items
from hq.model.digest import Digest

NAMES = ("Alpha", "beta", "gam_ma")
PYTHON = """dependencies = true

[python]
interpreter = "/usr/bin/python3.13"
scripts = "/usr/bin"
data = "/usr"
headers = "/usr/include/python3.13"
"""


@pytest.fixture
def project(tmp_path: Path) -> SampleProject:
    """A project whose image has three dependencies. The store is empty, pip finds all wheels."""
    made = SampleProject(tmp_path)
    lock = made.read("lockfiles/1.0.toml")
    for name in NAMES:
        code = {f"{name.lower()}.py": b"X = 1\n"}
        data = build_zip(wheel_items(code, project=name, version="2.0"))
        file = f"{name}-2.0-py3-none-any.whl"
        (made.links / file).write_bytes(data)
        lock += (
            f'\n[[wheel]]\nname = "{name}"\nversion = "2.0"\nfile = "{file}"\n'
            f'sha256 = "{Digest.of(data).hex}"\nsize = {len(data)}\n'
        )
    made.write("lockfiles/1.0.toml", lock)
    made.replace("images/demo.toml", "[config]", f"{PYTHON}\n[config]")
    return made


def test_an_empty_store_is_filled_and_serves_without_an_index(project: SampleProject) -> None:
    done = project.run("build")
    assert done.returncode == 0, done.stderr
    assert "\nfetched 3 wheels " in done.stderr
    text = project.run("graph").stdout
    assert all(f"wheel:{name}" in text for name in ("alpha", "beta", "gam-ma"))
    for wheel in project.links.iterdir():
        wheel.unlink()
    again = project.build("--offline", "--output", "elsewhere")
    assert again["nodes"]["built"] == 0


def test_the_answer_counts_every_node_once(project: SampleProject) -> None:
    first = project.build()
    assert first["nodes"]["reused"] == 0
    assert len(first["built"]) == len(set(first["built"])) == first["nodes"]["total"]
    assert {"wheel:demo", "wheel:alpha", "wheel:gam-ma", "image:demo"} <= set(first["built"])


def test_a_patch_that_does_not_apply_is_told_before_a_wheel_that_does_not_come(
    project: SampleProject,
) -> None:
    whole = project.read("patches/third.patch")
    project.replace("patches/third.patch", " line 39\n", " line thirty-nine\n")
    (project.links / "beta-2.0-py3-none-any.whl").unlink()
    done = project.run("build")
    assert done.returncode == 1
    assert "third.patch" in done.stderr.partition("error: ")[2].splitlines()[1]
    assert "beta" not in done.stderr
    project.write("patches/third.patch", whole)
    done = project.run("build")
    assert done.returncode == 1
    assert "error: no index has beta 2.0 in this form\n" in done.stderr
    assert "--wheel" not in done.stderr, "that is for the pin's own wheel"
    assert list((project.store / "tmp").iterdir()) == []


def test_provenance_names_every_wheel_and_a_commit_holds_the_rest(project: SampleProject) -> None:
    git = ["git", "-C", str(project.root), "-c", "user.name=x", "-c", "user.email=x@x"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    project.build()
    statement = json.loads(project.read("dist/demo-1.0.provenance.json"))
    materials = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    digests = {row["name"]: row["digest"] for row in materials if "name" in row}
    for wheel in project.links.iterdir():
        assert digests[wheel.name] == {"sha256": Digest.of(wheel.read_bytes()).hex}
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    with fake_registry() as registry:
        done = project.run("push", "demo", f"{registry.host}/r")
        assert done.returncode == 0, done.stderr
        assert ("r", f"sha-{head.stdout.strip()}") in registry.manifests


def test_without_a_network_every_wheel_that_lacks_is_named(project: SampleProject) -> None:
    project.supply()
    done = project.run("build", "--offline")
    assert done.returncode == 1
    assert "error: 3 wheels (" in done.stderr
    assert all(f"{name}-2.0-py3-none-any.whl sha256:" in done.stderr for name in NAMES)
