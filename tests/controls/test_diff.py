"""``hq diff``: what differs by node, by file and by line; the diff itself applies."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers.project import SampleProject
from hq.evidence.text import first_difference, is_text, shown, unified
from hq.patchwork.apply import File, apply_patch
from hq.patchwork.parse import parse_patch

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "\tindented"]), max_size=12).map("\n".join)


@given(TEXTS, TEXTS)
def test_a_unified_diff_makes_the_one_out_of_the_other(old: str, new: str) -> None:
    assume(old and new and old != new)
    text = "\n".join(unified("f", old.encode(), new.encode())) + "\n"
    outcome = apply_patch(
        parse_patch(text.encode(), "d"), lambda _: File("f", old.encode()), 1, False
    )
    assert outcome.outcome in ("applied", "already-applied", "rejected"), outcome.reason
    if outcome.outcome == "applied":
        assert outcome.changes == {"f": File("f", new.encode())}


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_the_first_difference_is_one(old: bytes, new: bytes) -> None:
    assume(old != new)
    found = first_difference(old, new)
    assert bool(found.line) == (is_text(old) and is_text(new))
    if found.line:
        left, right = old.split(b"\n"), new.split(b"\n")
        assert left[: found.line - 1] == right[: found.line - 1]
        assert left[found.line - 1 : found.line] != right[found.line - 1 : found.line]


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert shown("a\x1b[31m\r\tb") == "a\\x1b[31m\\x0d\tb"


@pytest.fixture
def changed(built: SampleProject) -> SampleProject:
    """A built project whose build is kept aside, then changed."""
    shutil.copytree(built.root / "dist", built.root / "old")
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    built.write("over/files/vllm/extra/more.py", "MORE = 1\n")
    return built


def test_by_node_file_and_line(changed: SampleProject) -> None:
    done = changed.run("diff", "old/demo-1.0", "demo")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert lines[0] == "nodes: 7 differ, 6 the same"
    assert lines[1] == "  patch:first"
    assert lines[2].startswith("    patches/first.patch  sha256:")
    assert done.stdout.endswith(
        "files: 1 added, 1 changed, 10 the same\n"
        "  A vllm/extra/more.py\n  M vllm/one.py\n"
        "--- a/vllm/extra/more.py\n+++ b/vllm/extra/more.py\n@@ -0,0 +1 @@\n+MORE = 1\n"
        "--- a/vllm/one.py\n+++ b/vllm/one.py\n@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n"
        "-line ten\n+line TEN\n line 11\n line 12\n line 13\n"
    )


def test_the_same_build(built: SampleProject) -> None:
    done = built.run("diff", "1.0", "demo:1.0")
    assert done.stdout == "nodes: 13 the same\nfiles: 11 the same\n"


def test_only_some_files_and_parts(changed: SampleProject) -> None:
    done = changed.run("diff", "old/demo-1.0", "demo", "--path", "vllm/extra", "--only", "files")
    assert done.stdout == "files: 1 added, 10 the same\n  A vllm/extra/more.py\n"


def test_json(changed: SampleProject) -> None:
    done = changed.run(
        "diff", "--json", "old/demo-1.0.records.json", "demo", "--path", "vllm/one.py"
    )
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["schema"] == "hq.diff/1"
    assert document["nodes"]["same"] == 6
    assert [node["node"] for node in document["nodes"]["differ"]] == [
        "patch:first",
        "patch:third",
        "overlay:over",
        "audit",
        "layer:series",
        "layer:over",
        "image:demo",
    ]
    (file,) = document["files"]["differ"]
    assert (file["path"], file["state"]) == ("vllm/one.py", "changed")
    assert "-line ten" in file["diff"]


@pytest.mark.system
def test_gnu_patch_takes_it(changed: SampleProject, tmp_path: Path) -> None:
    if shutil.which("patch") is None:
        pytest.skip("GNU patch is not installed")
    done = changed.run("diff", "old/demo-1.0", "demo", "--path", "vllm/one.py", "--only", "text")
    target = tmp_path / "tree/vllm/one.py"
    target.parent.mkdir(parents=True)
    target.write_text(changed.texts["vllm/one.py"])
    subprocess.run(
        ["patch", "-p1", "-F0"], input=done.stdout, text=True, cwd=tmp_path / "tree", check=True
    )
    assert target.read_text() == changed.texts["vllm/one.py"].replace("line ten", "line TEN")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.records.json", "{", "error: x.records.json is not JSON\n  at: x.records.json\n"),
        (
            "x.records.json",
            '{"a": {"schema": "other/1"}}',
            "error: x.records.json is no records file of hq: a: expected schema 'hq.record/1', "
            "found 'other/1'\n  at: x.records.json\n"
            "  help: name a file that hq build wrote beside an image layout, *.records.json\n",
        ),
        (
            "x.records.json",
            "[]",
            "error: x.records.json is no records file of hq: expected an object with a record for "
            "every node\n  at: x.records.json\n"
            "  help: name a file that hq build wrote beside an image layout, *.records.json\n",
        ),
    ],
)
def test_bad_records(built: SampleProject, name: str, content: str, message: str) -> None:
    built.write(name, content)
    done = built.run("diff", name, "demo")
    assert (done.returncode, done.stderr) == (2, message)


def test_a_folder_that_is_no_layout(built: SampleProject) -> None:
    done = built.run("diff", "patches", "demo")
    assert (done.returncode, done.stderr) == (
        2,
        "error: patches.records.json cannot be read: No such file or directory\n"
        "  help: name a layout that hq build wrote, or its *.records.json\n",
    )


def test_a_folder_called_like_an_image(built: SampleProject) -> None:
    (built.root / "demo").mkdir()
    assert built.run("diff", "demo", "1.0").returncode == 0
    done = built.run("diff", "./demo", "1.0")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ./demo.records.json cannot be read: ")
