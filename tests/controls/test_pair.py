"""``hq pair``: the pin and its port may differ, and nothing else."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.project import SampleProject
from helpers.unpack import manifest
from hq.evidence.pair import Pair, pair
from hq.evidence.pairtext import markdown, sentence, statement
from hq.evidence.records import Records, read_records
from hq.model.errors import Location

PIN = {"wheel:demo"}
PORT = {
    "patch:first",
    "patch:second",
    "patch:third",
    "patch:fourth",
    "envs",
    "overlay:over",
    "audit",
}
MAY = {"layer": {"dist_info", "file", "stages"}, "image": {"pin", "distribution", "layers"}}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The records of a build."""
    project = SampleProject(tmp_path_factory.mktemp("pair"))
    project.supply()
    project.build()
    records: dict[str, Any] = json.loads((project.root / "dist/demo-1.0.records.json").read_text())
    return records


def records(document: dict[str, Any]) -> Records:
    return read_records(document, "x.records.json")


def judged(a: dict[str, Any], b: dict[str, Any]) -> Pair:
    return pair(("a", "b"), records(a), records(b))


def test_a_build_and_itself(document: dict[str, Any]) -> None:
    found = judged(document, document)
    assert (found.verdict, found.same) == ("same", 13)
    assert sentence(found) == "b (1.0) and a (1.0) are the same"


@settings(max_examples=60)
@given(data=st.data())
def test_any_parameter_that_changes(document: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(document)))
    params = sorted(document[name]["params"])
    param = data.draw(st.sampled_from(params))
    other = copy.deepcopy(document)
    other[name]["params"][param] = "something else"
    other[name]["key"] = "0" * 64
    found = judged(document, other)
    is_allowed = name in PIN | PORT or param in MAY.get(document[name]["kind"], set())
    assert (found.verdict == "other") == (not is_allowed)
    if not is_allowed:
        assert {one.node for one in found.other} == {name}
        assert found.other[0].what.partition(".")[0] == param
    assert found.same == 12


@settings(max_examples=40)
@given(data=st.data())
def test_any_node_that_goes(document: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(document)))
    other = {key: value for key, value in document.items() if key != name}
    found = judged(document, other)
    may_go = PIN | PORT | {"layer:series", "layer:envs", "layer:over"}
    assert (found.verdict == "other") == (name not in may_go)


def test_an_input_alone_follows_from_its_node(document: dict[str, Any]) -> None:
    other = copy.deepcopy(document)
    other["layer:series"]["inputs"][0]["digest"] = "blake3:" + "1" * 64
    other["layer:series"]["key"] = "0" * 64
    found = judged(document, other)
    assert (found.verdict, found.follows) == ("port", ("layer:series",))


def test_another_result_of_the_same_key(document: dict[str, Any]) -> None:
    other = copy.deepcopy(document)
    other["envs"]["result"]["values"]["variables"] = []
    found = judged(document, other)
    assert [(one.node, one.what) for one in found.other] == [
        ("envs", "its result, made from the same")
    ]


def test_a_kind_that_means_something_else_now(document: dict[str, Any]) -> None:
    other = copy.deepcopy(document)
    other["audit"]["version"] = 9
    other["audit"]["key"] = "0" * 64
    (found,) = judged(document, other).other
    assert (found.node, found.what, found.a, found.b) == ("audit", "its kind", "audit/1", "audit/9")


def launched(document: dict[str, Any], digest: str) -> dict[str, Any]:
    """The records with a node of a kind that takes a file of the project."""
    other = copy.deepcopy(document)
    node = copy.deepcopy(document["audit"])
    node |= {"node": "launch:serve", "kind": "launch", "params": {}, "key": digest[7:]}
    node["inputs"] = [
        {"name": "file", "what": "images/launch/serve.sh", "digest": digest},
        {"name": "wheel", "what": "wheel of wheel:demo", "digest": "sha256:" + digest[:6] * 10},
    ]
    return {**other, "launch:serve": node}


def test_a_launcher_is_named_with_file_and_line(document: dict[str, Any]) -> None:
    from hq.model.digest import Digest

    one, two = b"#!/bin/sh\nexec vllm serve\n", b"#!/bin/sh\nexec vllm serve --eager\n"
    texts = {Digest.of(one): one, Digest.of(two): two}
    found = pair(
        ("a", "b"),
        records(launched(document, Digest.of(one))),
        records(launched(document, Digest.of(two))),
        contents=texts.get,
    )
    (other,) = found.other
    assert other.where == Location("images/launch/serve.sh", 2)
    assert (other.node, other.a, other.b) == (
        "launch:serve",
        "exec vllm serve",
        "exec vllm serve --eager",
    )


# The command.


def two_pins(project: SampleProject) -> None:
    """A second pin of another wheel, with a series of its own."""
    from helpers.wheelmaker import build_zip, wheel_items
    from hq.store.disk import DiskStore

    files = {path: text.encode() for path, text in ORIGINAL.items()}
    data = build_zip(wheel_items(files, project="demo", version="2.0"))
    name = "demo-2.0-py3-none-any.whl"
    (project.links / name).write_bytes(data)
    with DiskStore(str(project.store)) as store:
        store.put(data)
    project.lock(name, data, "2.0")
    project.write(
        "build.toml",
        project.read("build.toml")
        + '\n[pins."2.0"]\nlock = "lockfiles/2.0.toml"\nseries = "patches/series-2.0"\n',
    )
    project.write("patches/series-2.0", "first.patch\nthird.patch\nfourth.patch\n")
    overlay = project.read("over/overlay.toml")
    project.write(
        "over/overlay.toml",
        overlay.replace("[facts]", '[pins."2.0"]\nseries = "series"\n\n[facts]'),
    )


def _original() -> dict[str, str]:
    from helpers.project import FILES

    texts = {path: data.decode("latin-1") for path, data in FILES.items()}
    return {**texts, "vllm/one.py": "# 2.0\n" + texts["vllm/one.py"]}


ORIGINAL = _original()


def layer_bytes(project: SampleProject, pin: str = "1.0") -> int:
    """The size of all layers of the pin's image."""
    layers = manifest(project.root / "dist" / f"demo-{pin}")["layers"]
    return sum(layer["size"] for layer in layers)


def test_two_pins_of_one_tree(project: SampleProject) -> None:
    two_pins(project)
    done = project.run("pair", "1.0", "2.0", "--expect", "pin")
    assert done.returncode == 0, done.stderr
    *lines, shared = done.stdout.splitlines(keepends=True)
    assert shared.startswith("  shared   0 bytes of layers, of ")
    assert "".join(lines) == (
        "2.0 and 1.0 differ by the pin alone\n"
        "  pin      wheel:demo\n"
        "  port     patch:first, patch:third, audit, patch:second\n"
        "  follows  layer:wheel, layer:series, layer:envs, layer:over, image:demo\n"
        "  same     3 nodes\n"
    )
    assert project.run("pair", "1.0", "2.0", "--expect", "same").returncode == 1


def test_the_statement(project: SampleProject) -> None:
    two_pins(project)
    one, two = (project.build("--pin", pin)["images"][0] for pin in ("1.0", "2.0"))
    done = project.run("pair", "demo:1.0", "dist/demo-2.0", "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "urn:hq:pair:1"
    assert found["subject"] == [
        {"name": "demo:1.0", "digest": {"sha256": one["manifest"][7:]}},
        {"name": "demo:2.0", "digest": {"sha256": two["manifest"][7:]}},
    ]
    predicate = found["predicate"]
    assert predicate["verdict"] == "pin"
    assert predicate["a"]["images"]["demo"]["image_id"] == one["image_id"]
    assert predicate["other"] == []


def test_an_entry_point_that_changed(built: SampleProject) -> None:
    shutil.copytree(built.root / "dist", built.root / "control")
    image = built.read("images/demo.toml")
    built.write("images/demo.toml", image + 'entrypoint = ["python"]\n')
    done = built.run("pair", "control/demo-1.0", "demo")
    assert done.returncode == 1
    assert done.stdout == (
        "demo (1.0) and control/demo-1.0 (1.0) differ in more than the pin and its port: one node\n"
        "  other    image:demo: entrypoint  images/demo.toml:6\n"
        "             - []\n"
        '             + ["python"]\n'
        "  same     12 nodes\n"
        f"  shared   {layer_bytes(built)} bytes of layers, of {layer_bytes(built)} and "
        f"{layer_bytes(built)}\n"
    )
    assert built.run("pair", "control/demo-1.0", "demo", "--expect", "any").returncode == 0


def test_a_variable_of_the_environment_is_named(built: SampleProject) -> None:
    shutil.copytree(built.root / "dist", built.root / "control")
    built.replace("images/demo.toml", 'env = { PYTHONPATH = "/opt/demo" }', "")
    built.write(
        "images/demo.toml",
        built.read("images/demo.toml") + '\n[config.env]\nPYTHONPATH = "/opt/demo"\nA = "1"\n',
    )
    done = built.run("pair", "control/demo-1.0", "demo")
    assert "  other    image:demo: env.A  images/demo.toml:9\n" in done.stdout


def test_markdown(built: SampleProject) -> None:
    shutil.copytree(built.root / "dist", built.root / "control")
    image = built.read("images/demo.toml")
    built.write("images/demo.toml", image + 'cmd = ["a|b", "`x`"]\n')
    done = built.run("pair", "control/demo-1.0", "demo", "--format", "markdown")
    lines = done.stdout.split("\n")
    assert lines[0].startswith("❌ **demo (1.0) and control/demo-1.0 (1.0) differ in more")
    assert lines[2:6] == [
        "| | A | B |",
        "|---|---|---|",
        "| build | control/demo-1.0 | demo |",
        "| pin | 1.0 | 1.0 |",
    ]
    assert (
        lines[-2] == '| `image:demo` | cmd | `images/demo.toml:6` | `[]` | `` ["a\\|b", "`x`"] `` |'
    )


def test_every_row_of_the_markdown_has_its_columns(document: dict[str, Any]) -> None:
    other = copy.deepcopy(document)
    other["image:demo"]["params"]["cmd"] = ["|" * 3, "`" * 2, "\x1b[1m", "\n| a | b |"]
    other["image:demo"]["key"] = "0" * 64
    tables: list[list[str]] = [[]]
    for line in markdown(judged(document, other)):
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    for table in filter(None, tables):
        counts = {line.replace("\\|", "").count("|") for line in table}
        assert len(counts) == 1


def test_the_statement_is_plain_json(document: dict[str, Any]) -> None:
    found = statement(judged(document, document), "0")
    assert json.loads(json.dumps(found)) == found


def test_a_side_that_is_nothing(built: SampleProject, tmp_path: Path) -> None:
    done = built.run("pair", "1.0", "3.0")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: 3.0 is no pin, no image, no folder and no commit\n  pins: 1.0\n"
    )
