"""``hq pin`` writes down what a build made; ``hq build --locked`` holds another build to it."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.project import SampleProject
from hq.app.pins import render
from hq.evidence.pins import (
    Difference,
    PinnedImage,
    PinnedNode,
    Pins,
    Row,
    first_difference,
)

PINS = "lockfiles/1.0.images.toml"
HELP = (
    "  help: if the change is meant, run hq pin and commit the file; if not, hq plan says what "
    "changed\n"
)

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
LEAVES = st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20)
TEXTS = st.text(min_size=1, max_size=20)
NODES = st.builds(
    PinnedNode,
    key=HEX,
    version=st.integers(1, 9),
    result=HEX.map("blake3:{}".format),
    inputs=st.dictionaries(TEXTS, HEX, max_size=3),
    params=st.dictionaries(TEXTS, LEAVES, max_size=3),
)
IMAGES = st.builds(PinnedImage, HEX.map("sha256:{}".format), HEX.map("sha256:{}".format))
ALL_PINS = st.builds(
    Pins,
    st.just("1.0"),
    st.dictionaries(TEXTS, IMAGES, min_size=1, max_size=2),
    st.dictionaries(TEXTS, NODES, min_size=1, max_size=4),
)


def parsed(data: bytes) -> Pins:
    """The pins in a file's bytes, by another parser than the one that writes."""
    value = tomllib.loads(data.decode())
    images = {
        name: PinnedImage(row["image-id"], row["manifest"]) for name, row in value["images"].items()
    }
    nodes = {
        name: PinnedNode(
            row["key"], row["version"], row["result"], row.get("inputs", {}), row.get("params", {})
        )
        for name, row in value["nodes"].items()
    }
    return Pins(value["pin"], images, nodes)


@settings(max_examples=40)
@given(ALL_PINS)
def test_what_is_written_is_read_back(pins: Pins) -> None:
    found = parsed(render(pins))
    assert repr(found) == repr(pins._replace(images=dict(sorted(pins.images.items()))))


@settings(max_examples=40)
@given(ALL_PINS, ALL_PINS)
def test_an_edited_file_says_what_a_new_one_says(old: Pins, new: Pins) -> None:
    edited = render(new, render(old).decode())
    assert repr(parsed(edited)) == repr(parsed(render(new)))
    assert render(new, edited.decode()) == edited


@given(ALL_PINS)
def test_equal_pins_do_not_differ(pins: Pins) -> None:
    assert first_difference(pins, pins) is None


@given(ALL_PINS, st.data())
def test_the_first_changed_node_is_named(pins: Pins, data: st.DataObject) -> None:
    names = list(pins.nodes)
    changed = data.draw(st.sets(st.sampled_from(names), min_size=1) if names else st.just(set()))
    other = pins._replace(
        nodes={
            name: node._replace(key="x" * 64) if name in changed else node
            for name, node in pins.nodes.items()
        }
    )
    found = first_difference(pins, other)
    if not changed:
        assert found is None
    else:
        assert found is not None
        assert found.name == next(name for name in names if name in changed)


@given(ALL_PINS, st.data())
def test_a_node_that_is_gone_comes_where_it_stood(pins: Pins, data: st.DataObject) -> None:
    names = list(pins.nodes)
    kept = data.draw(st.sets(st.sampled_from(names)) if names else st.just(set()))
    other = pins._replace(nodes={name: pins.nodes[name] for name in names if name in kept})
    found = first_difference(pins, other)
    gone = [name for name in names if name not in kept]
    assert (found and (found.name, found.kind)) == ((gone[0], "gone") if gone else None)


def test_a_result_that_differs_under_the_same_key_is_told() -> None:
    node = PinnedNode("k", 1, "one", {}, {"a": 1})
    old, new = Pins("1", {}, {"n": node}), Pins("1", {}, {"n": node._replace(result="two")})
    assert first_difference(old, new) == Difference(
        "n", "differs", (Row("result", "one", "two"),), 1
    )


# The commands.


def pin(project: SampleProject) -> str:
    done = project.run("pin")
    assert done.returncode == 0, done.stderr
    return done.stdout


def short(text: str) -> str:
    """A digest as the message shows it."""
    head, colon, rest = text.rpartition(":")
    return head + colon + rest[:16]


def test_pin_says_where_and_writes_it(built: SampleProject) -> None:
    image = built.first["images"][0]
    assert pin(built) == (
        f"demo 1.0\n  image id  {image['image_id']}\n  manifest  {image['manifest']}\n"
        f"{PINS}: written, 13 nodes\n"
    )
    assert pin(built).endswith(f"{PINS}: as it was, 13 nodes\n")
    value = tomllib.loads(built.read(PINS))
    assert value["images"] == {
        "demo": {"image-id": image["image_id"], "manifest": image["manifest"]}
    }
    assert set(built.first["built"]) == set(value["nodes"])
    assert str(built.root) not in built.read(PINS)


def test_locked_passes_while_nothing_changed(built: SampleProject) -> None:
    pin(built)
    assert built.build("--locked")["images"] == built.first["images"]


def test_locked_names_the_first_node_with_both_sides(built: SampleProject) -> None:
    pin(built)
    before = tomllib.loads(built.read(PINS))["nodes"]["patch:first"]
    layout = built.layout() / "index.json"
    index = layout.read_bytes()
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    done = built.run("build", "--locked", "-q")
    assert done.returncode == 1
    # A refused build writes no image.
    assert layout.read_bytes() == index
    pin(built)
    text = built.read(PINS)
    after = tomllib.loads(text)["nodes"]["patch:first"]
    line = text.split("\n").index('[nodes."patch:first"]') + 1
    assert done.stderr == (
        f"error: patch:first is not what {PINS} pins\n"
        f"  at: {PINS}:{line}\n"
        "  node: patch:first\n"
        "               pinned                   built\n"
        f"  key          {before['key'][:16]}         {after['key'][:16]}\n"
        f"  input patch  {short(before['inputs']['patch'])}  {short(after['inputs']['patch'])}\n"
        f"  result       {short(before['result'])}  {short(after['result'])}\n"
        "  the same: 3 other inputs and parameters\n" + HELP
    )


def test_locked_names_the_knob_that_changed(built: SampleProject) -> None:
    pin(built)
    built.replace("patches/knobs.toml", "default = 3", "default = 4")
    done = built.run("build", "--locked", "-q")
    assert done.returncode == 1
    assert "error: envs is not what" in done.stderr
    assert "parameter registry.knobs.VLLM_FORK_LEVEL" in done.stderr


def test_a_dropped_and_an_added_patch_are_named(built: SampleProject) -> None:
    pin(built)
    built.replace("patches/series", "second.patch\n", "")
    (built.root / "patches/second.patch").rename(built.root / "second.patch")
    done = built.run("build", "--locked", "-q")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: patch:second is pinned in {PINS} and not built\n")
    pin(built)
    (built.root / "second.patch").rename(built.root / "patches/second.patch")
    built.replace("patches/series", "first.patch\n", "first.patch\nsecond.patch\n")
    done = built.run("build", "--locked", "-q")
    assert done.stderr.startswith(
        f"error: patch:second is built and not pinned in {PINS}\n  at: {PINS}\n"
    )


def test_another_epoch_is_another_build(built: SampleProject) -> None:
    pin(built)
    done = built.run("build", "--locked", "-q", env={"SOURCE_DATE_EPOCH": "7"})
    assert done.returncode == 1
    assert "  parameter mtime  0                        7\n" in done.stderr


def test_a_file_changed_by_hand_is_told(built: SampleProject) -> None:
    pin(built)
    image = built.first["images"][0]
    built.replace(PINS, image["manifest"], "sha256:" + "0" * 64)
    done = built.run("build", "--locked", "-q")
    assert done.returncode == 1
    assert done.stderr == (
        f"error: image:demo is not what {PINS} pins\n"
        f"  at: {PINS}:7\n"
        "  node: image:demo\n"
        "            pinned                   built\n"
        f"  manifest  sha256:0000000000000000  {short(image['manifest'])}\n" + HELP
    )


def test_without_a_pin_file(built: SampleProject) -> None:
    done = built.run("build", "--locked")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: there is no {PINS}\n"
        "  help: run hq pin --pin 1.0 and put the file under version control\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hq.pins/1", "hq.pins/2", "schema: expected 'hq.pins/1', found \"hq.pins/2\""),
        ("[images.demo]\n", "[images.demo]\nextra = 1\n", "images.demo.extra: unknown key"),
        ("image-id = ", "image-id = 3 #", "images.demo.image-id: expected a text, found 3"),
    ],
)
def test_a_wrong_pin_file(built: SampleProject, old: str, new: str, message: str) -> None:
    pin(built)
    built.replace(PINS, old, new)
    for command in (["build", "--locked"], ["pin"]):
        done = built.run(*command)
        assert done.returncode == 2
        assert f"error: {PINS} has one mistake\n" in done.stderr
        assert message in done.stderr


def test_the_pin_file_of_another_pin(built: SampleProject) -> None:
    pin(built)
    built.replace(PINS, '\npin = "1.0"\n\n', '\npin = "2.0"\n\n')
    done = built.run("build", "--locked")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {PINS} is the pin file of '2.0', expected '1.0'\n  at: {PINS}:5\n"
    )


def test_comments_stay(built: SampleProject) -> None:
    pin(built)
    built.replace(PINS, '\npin = "1.0"\n\n', '\npin = "1.0" # ours\n\n# the image\n')
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    pin(built)
    assert 'pin = "1.0" # ours\n\n# the image\n' in built.read(PINS)


def test_the_same_file_from_another_folder_and_store(built: SampleProject, tmp_path: Path) -> None:
    pin(built)
    other = SampleProject(tmp_path / "elsewhere")
    other.supply()
    pin(other)
    assert other.read(PINS) == built.read(PINS)


def test_a_folder_that_cannot_be_written(built: SampleProject) -> None:
    folder = built.root / "lockfiles"
    subprocess.run(["chattr", "+i", str(folder)], check=False, capture_output=True)
    try:
        (folder / "probe").write_text("")
    except OSError:
        done = built.run("pin", "-j1")
        assert done.returncode == 3
        assert "error: cannot write the pin file" in done.stderr
    else:
        pytest.skip("this file system has no immutable folders")
    finally:
        subprocess.run(["chattr", "-i", str(folder)], check=False, capture_output=True)
