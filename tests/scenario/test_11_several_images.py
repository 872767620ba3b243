"""Two images of one project, and a build of one of them: the choice changes nothing but the size.

Names of nodes stand in pin files, in records and in what ``hq why`` is asked, so they must not
depend on which images a command line names.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.project import SampleProject

IMAGES = ("demo", "other", "third")


@pytest.fixture
def project(tmp_path: Path) -> SampleProject:
    """Three images; the last two lay their layers out alike."""
    made = SampleProject(tmp_path)
    made.supply()
    made.replace(
        "build.toml", '["images/demo.toml"]', json.dumps([f"images/{n}.toml" for n in IMAGES])
    )
    for name in IMAGES[1:]:
        made.write(
            f"images/{name}.toml",
            f'schema = "hq.image/1"\nname = "{name}"\nprefix = "/elsewhere"\n\n'
            f'[config]\nenv = {{ NAME = "{name}" }}\n',
        )
    return made


def nodes(project: SampleProject, *arguments: str) -> dict[str, str]:
    """The nodes of a plan and what would become of each."""
    done = project.run("plan", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return {row["name"]: row["action"] for row in json.loads(done.stdout)["nodes"]}


def test_every_image_is_built_and_alike_layers_once(project: SampleProject) -> None:
    first = project.build()
    assert [image["name"] for image in first["images"]] == list(IMAGES)
    layers = [name for name in first["built"] if name.startswith("layer:")]
    kinds = ("wheel", "series", "envs", "over")
    assert layers == [f"layer:{kind}{of}" for of in ("", "@other") for kind in kinds]
    assert len({image["manifest"] for image in first["images"]}) == 3


@pytest.mark.parametrize("chosen", [("demo",), ("other",), ("third",), ("third", "demo")])
def test_a_node_has_one_name_whatever_is_chosen(
    project: SampleProject, chosen: tuple[str, ...]
) -> None:
    every = project.build()
    options = [word for name in chosen for word in ("--image", name)]
    found = nodes(project, *options)
    assert set(found.values()) == {"reuse"}
    assert set(found) < set(every["built"])
    again = project.build(*options)
    expected = [image for image in every["images"] if image["name"] in chosen]
    assert again["images"] == expected


@pytest.mark.parametrize(
    "name", ["wheel", "series", "envs", "launch", "deps-03", "dep-torch", "base-00"]
)
def test_an_overlay_is_not_called_like_a_layer_of_hq(project: SampleProject, name: str) -> None:
    project.replace("over/overlay.toml", 'name = "over"', f'name = "{name}"')
    done = project.run("build")
    assert done.returncode == 2
    assert done.stderr == (
        "error: over/overlay.toml has one mistake\n"
        f"  over/overlay.toml:2: name: hq calls a layer of its own {name!r}\n"
    )


def lock(project: SampleProject, path: str, version: str) -> None:
    project.write(
        path,
        'schema = "hq.base-lock/1"\nsuite = "trixie"\narchitecture = "amd64"\n\n[[package]]\n'
        f'name = "one"\nversion = "{version}"\narchitecture = "all"\n'
        f'file = "one_{version}_all.deb"\nsha256 = "{"0" * 64}"\nsize = 1\n',
    )


@pytest.mark.parametrize("second", ["lockfiles/old/base-small.toml", "lockfiles/small.toml"])
def test_two_bases_are_not_called_alike(project: SampleProject, second: str) -> None:
    first = "lockfiles/base-small.toml"
    for name, path, version in (("demo", first, "1"), ("other", second, "2")):
        lock(project, path, version)
        project.replace(
            f"images/{name}.toml", "[config]", f'base = {{ debian = "{path}" }}\n[config]'
        )
    done = project.run("plan")
    assert done.returncode == 2
    message = f"base.debian: the bases of {first} and {second} would both be 'small'"
    assert message in done.stderr
    assert project.run("plan", "--image", "other").returncode == 0


def test_an_index_is_another_base_for_each_platform(project: SampleProject) -> None:
    digest = f"sha256:{'1' * 64}"
    for name, architecture in (("demo", "amd64"), ("other", "arm64")):
        project.replace(
            f"images/{name}.toml",
            "[config]",
            f'base = {{ registry = "localhost:1/b", digest = "{digest}" }}\n\n'
            f'[platform]\nos = "linux"\narchitecture = "{architecture}"\n\n[config]',
        )
    found = nodes(project)
    bases = [name for name in found if name.startswith("base:")]
    assert bases == ["base:b@111111111111-amd64", "base:b@111111111111-arm64"]


def test_a_build_of_one_image_forgets_nothing_of_the_others(project: SampleProject) -> None:
    project.build()
    project.build("--image", "third")
    for name in IMAGES:
        done = project.run("why", f"image:{name}")
        assert "it was never built for this project" in done.stdout, done.stderr
    project.replace("patches/first.patch", "+line ten", "+line TEN")
    project.build("--image", "third")
    assert nodes(project)["layer:series"] == "run"
    assert nodes(project)["layer:series@other"] == "reuse"


@pytest.mark.parametrize("chosen", IMAGES)
def test_one_image_is_held_to_its_pins(project: SampleProject, chosen: str) -> None:
    assert project.run("pin").returncode == 0
    done = project.run("build", "--locked", "--image", chosen)
    assert done.returncode == 0, done.stderr
    project.replace("patches/first.patch", "+line ten", "+line TEN")
    done = project.run("build", "--locked", "--image", chosen)
    assert done.returncode == 1
    assert "error: patch:first is not what lockfiles/1.0.images.toml pins\n" in done.stderr
    assert f"run hq pin --image {chosen} and commit the file" in done.stderr


@pytest.mark.parametrize("chosen", IMAGES)
def test_pinning_one_image_keeps_the_pins_of_the_others(
    project: SampleProject, chosen: str
) -> None:
    file = "lockfiles/1.0.images.toml"
    assert project.run("pin").returncode == 0
    before = project.read(file)
    assert project.run("pin", "--image", chosen).returncode == 0
    assert project.read(file) == before
    project.replace("patches/first.patch", "+line ten", "+line TEN")
    assert project.run("pin", "--image", chosen).returncode == 0
    assert project.run("build", "--locked", "--image", chosen).returncode == 0
    assert project.run("pin").returncode == 0
    assert project.run("build", "--locked").returncode == 0


def test_a_plain_build_forgets_nothing_of_an_image_that_it_leaves_out(
    project: SampleProject,
) -> None:
    project.replace("images/other.toml", "prefix =", "default = false\nprefix =")
    project.build("--image", "other")
    assert [image["name"] for image in project.build()["images"]] == ["demo", "third"]
    assert project.build("--image", "other")["built"] == []
    done = project.run("why", "--image", "other", "image:other")
    assert "it was never built for this project" in done.stdout, done.stderr
    assert project.run("pin").returncode == 0
    done = project.run("build", "--locked", "--image", "other")
    assert (done.returncode, "run hq pin --image other" in done.stderr) == (1, True)
    assert project.run("pin", "--image", "other").returncode == 0
    assert project.run("build", "--locked", "--image", "other").returncode == 0


def test_a_collection_keeps_what_a_build_of_one_image_needs(project: SampleProject) -> None:
    project.replace("images/other.toml", "prefix =", "default = false\nprefix =")
    project.build()
    project.build("--image", "other")
    assert project.run("store", "gc").returncode == 0
    assert project.build("--image", "other", "--output", "new")["built"] == []
    assert project.build("--output", "new")["built"] == []


def test_a_collection_takes_what_a_later_plain_build_made_anew(project: SampleProject) -> None:
    project.build("--image", "third")
    project.replace("patches/first.patch", "+line ten", "+line TEN")
    total = project.build()["nodes"]["total"]
    assert project.run("store", "gc").returncode == 0
    assert json.loads(project.run("store", "stats", "--json").stdout)["results"] == total
    # The other way round both count: either may be what is built next.
    project.replace("patches/first.patch", "+line TEN", "+line tenth")
    project.build("--image", "third")
    assert project.run("store", "gc").returncode == 0
    assert project.build("--image", "third", "--output", "new")["built"] == []


def test_where_no_image_is_built_by_default_one_has_to_be_named(project: SampleProject) -> None:
    for name in IMAGES:
        project.replace(f"images/{name}.toml", "prefix =", "default = false\nprefix =")
    for command in ("build", "pin"):
        done = project.run(command)
        assert done.returncode == 2
        assert done.stderr == (
            "error: no image is built by default: each says default = false\n"
            "  help: name images with --image\n"
        )
    assert len(project.build("--image", "third")["images"]) == 1


@pytest.mark.parametrize("word", ["--image=demo,other", "--image=", "--image=,"])
@pytest.mark.parametrize("more", [(), ("--check",)])
def test_a_name_is_one_name(project: SampleProject, word: str, more: tuple[str, ...]) -> None:
    done = project.run("build", word, *more)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --image: ")
    assert "no image's name" in done.stderr
