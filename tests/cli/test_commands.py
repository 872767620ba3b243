"""What commands say when their arguments are wrong, and what they print as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.project import SampleProject


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> SampleProject:
    return SampleProject(tmp_path_factory.mktemp("commands"))


JOBS = "error: --jobs: expected a number from 1 to 9999, found {found!r}\n"
LAYOUT = "nowhere.example/a:b"


@pytest.mark.parametrize(
    "arguments",
    [("build",), ("plan",), ("envs", "table"), ("push", "demo", LAYOUT), ("pull", LAYOUT)],
)
@pytest.mark.parametrize("found", ["0", "-3", "", "two", "1.5", "10000", "9" * 5000, "\u0663"])
def test_a_number_of_threads_that_is_none(
    project: SampleProject, arguments: tuple[str, ...], found: str
) -> None:
    done = project.run(*arguments, "-j", found)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", JOBS.format(found=found))


def test_the_knobs_as_json(project: SampleProject) -> None:
    done = project.run("envs", "table", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "schema": "hq.envs-table/1",
        "pin": "1.0",
        "knobs": [
            {
                "name": "VLLM_FORK_LEVEL",
                "type": "int",
                "default": "3",
                "meaning": "How much",
                "owner": "patch:fourth",
                "compile_key": False,
                "exported_by": [],
                "choices": [],
            }
        ],
        "prefixes": ["DEMO_"],
        "retired": [],
    }


@pytest.mark.parametrize("action", ["lint", "table"])
def test_a_series_outside_a_project(project: SampleProject, tmp_path: Path, action: str) -> None:
    done = project.run("series", action, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "error: there is no build.toml here or in any folder above\n"
        "  help: run hq inside a project, or give --series FILE\n",
    )


@pytest.mark.parametrize(
    ("arguments", "output", "command"),
    [
        ((), "dist", "hq build --image demo"),
        (("--pin", "1.0"), "dist", "hq build --image demo --pin 1.0"),
        (("--output", "an other"), "an other", "hq build --image demo --output 'an other'"),
    ],
)
def test_provenance_of_an_image_that_is_not_built(
    project: SampleProject, arguments: tuple[str, ...], output: str, command: str
) -> None:
    done = project.run("provenance", "demo", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"error: demo 1.0 is not built in {project.root / output}\n  help: run {command} first\n",
    )


def test_provenance_takes_one_image(project: SampleProject) -> None:
    done = project.run("provenance", "demo", "--image", "demo")
    assert done.returncode == 2
    assert done.stderr.endswith("error: unrecognized arguments: --image demo\n")
