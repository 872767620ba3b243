"""``hq blame``: totals equal the file's lines, and each attributed line is where it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.project import SampleProject, diff, patch
from hq.knobs.generate import generate
from hq.knobs.origins import line_origins
from hq.knobs.registry import Knob, Registry
from knobs.envsfiles import SMALL


def blame(project: SampleProject, file: str, *more: str) -> dict[str, Any]:
    done = project.run("blame", "--json", file, *more)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def origins(document: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(line["kind"], line["name"], line["source_line"]) for line in document["lines"]]


TREE = [
    "vllm/__init__.py",
    "vllm/envs.py",
    "vllm/one.py",
    "vllm/two.py",
    "vllm/three.py",
    "vllm/config.py",
    "vllm/extra/__init__.py",
    "demo-1.0.dist-info/RECORD",
    "demo-1.0.dist-info/METADATA",
    "demo-1.0.dist-info/hq/series.csv",
]


def test_the_image_s_own_lines_are_all_attributed(built: SampleProject, tmp_path: Path) -> None:
    """Against the files of the image itself, unpacked by tarfile."""
    files = unpacked(built)
    texts = {path for path, data in files.items() if b"\0" not in data}
    assert set(TREE) <= texts
    for path in sorted(texts):
        document = blame(built, f"demo:{path}")
        lines = files[path].decode().splitlines()
        assert [line["text"] for line in document["lines"]] == lines
        assert [line["line"] for line in document["lines"]] == list(range(1, len(lines) + 1))
        assert sum(document["totals"].values()) == len(lines)
        for line in document["lines"]:
            if line["kind"] in ("patch", "overlay"):
                source = built.read(line["file"]).split("\n")[line["source_line"] - 1]
                mark = "+" if line["kind"] == "patch" else ""
                assert source == mark + line["text"]


def unpacked(project: SampleProject) -> dict[str, bytes]:
    """The files of the image's layers, the later ones winning."""
    import tarfile

    layout = project.layout()
    index = json.loads((layout / "index.json").read_text())
    blobs = layout / "blobs/sha256"
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    files: dict[str, bytes] = {}
    for layer in manifest["layers"]:
        with tarfile.open(blobs / layer["digest"][7:]) as tar:
            for member in tar:
                file = tar.extractfile(member)
                if file is not None:
                    files[member.name.removeprefix("opt/demo/")] = file.read()
    return files


def test_a_patched_file_as_a_table(built: SampleProject) -> None:
    done = built.run("blame", "demo:vllm/one.py", "-L", "9,11")
    assert done.stdout == (
        "wheel:demo:9                      9  line 9\n"
        "patches/first.patch:18 (hunk 1)  10  line ten\n"
        "wheel:demo:11                    11  line 11\n"
    )


def test_porcelain(built: SampleProject) -> None:
    done = built.run("blame", "demo:/opt/demo/vllm/one.py", "-L", "39,40", "--porcelain")
    assert done.stdout == (
        "wheel:demo 39 39\nkind wheel\nname demo-1.0-py3-none-any.whl\nfile vllm/one.py\n"
        "\tline 39\n"
        "patch:third 18 40\nkind patch\nname third\nfile patches/third.patch\nhunk 1\n"
        "\tline forty\n"
    )


def test_knobs_overlay_files_and_overlay_patches(built: SampleProject) -> None:
    knobs = blame(built, "1.0:vllm/envs.py")
    assert {line["name"] for line in knobs["lines"] if line["kind"] == "knob"} == {
        "VLLM_FORK_LEVEL"
    }
    assert all(
        "VLLM_FORK_LEVEL" in line["text"] or "How much" in line["text"]
        for line in knobs["lines"]
        if line["kind"] == "knob"
    )
    assert origins(blame(built, "demo:vllm/extra/__init__.py")) == [("overlay", "over", 1)]
    config = blame(built, "demo:vllm/config.py")["lines"][2]
    assert (config["node"], config["kind"], config["name"], config["file"]) == (
        "overlay:over",
        "patch",
        "register",
        "over/patches/register.patch",
    )


def test_a_layout_is_blamed_after_the_project_went_on(built: SampleProject) -> None:
    before = blame(built, f"{built.layout()}:vllm/one.py")
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    assert blame(built, f"{built.layout()}:vllm/one.py") == before
    assert blame(built, "demo:vllm/one.py") != before


def test_a_renamed_file_across_nodes(project: SampleProject) -> None:
    text = (
        "diff --git a/vllm/two.py b/vllm/second.py\nsimilarity index 99%\n"
        "rename from vllm/two.py\nrename to vllm/second.py\n"
    )
    project.write("patches/fifth.patch", patch("Fifth", text))
    edited = project.texts["vllm/two.py"].replace("line 33\n", "line 33 and more\n")
    project.write(
        "patches/sixth.patch",
        patch("Sixth", diff("vllm/second.py", project.texts["vllm/two.py"], edited)),
    )
    series = project.read("patches/series")
    project.write("patches/series", series + "fifth.patch\nsixth.patch\n")
    found = origins(blame(project, "demo:vllm/second.py"))
    assert found[18:21] == [
        ("wheel", "demo-1.0-py3-none-any.whl", 19),
        ("patch", "second", 18),
        ("wheel", "demo-1.0-py3-none-any.whl", 21),
    ]
    assert found[32][:2] == ("patch", "sixth")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["vllm/one.py"],
            2,
            "error: 'vllm/one.py' names no file of an image\n"
            "  help: write IMAGE:PATH, such as vllm:vllm/envs.py\n",
        ),
        (
            ["demo:vllm/on.py"],
            2,
            "error: there is no file vllm/on.py in the built tree\n"
            "  help: did you mean 'vllm/one.py'?\n",
        ),
        (
            ["demo:vllm/data.bin"],
            1,
            "error: vllm/data.bin is no text\n  at: vllm/data.bin\n"
            "  help: hq diff compares bytes\n",
        ),
        (
            ["nothing:vllm/one.py"],
            2,
            "error: nothing is no pin, no image, no folder and no commit\n"
            "  pins: 1.0\n  images: demo\n"
            "  help: name one of these, NAME:PIN, a layout in dist/, or a *.records.json file\n",
        ),
        (
            ["demo:vllm/one.py", "-L", "9,x"],
            2,
            "error: -L 9,x: expected a line, or two lines with a comma between them\n",
        ),
        (
            ["demo:vllm/one.py", "-L", "61"],
            2,
            "error: -L 61: the file has lines 1 to 60\n",
        ),
        (
            ["demo:vllm/one.py", "-L", "5,2"],
            2,
            "error: -L 5,2: the first line is after the last\n",
        ),
    ],
)
def test_bad_input(built: SampleProject, arguments: list[str], code: int, message: str) -> None:
    done = built.run("blame", *arguments)
    assert (done.returncode, done.stderr) == (code, message)


def test_content_that_was_collected_is_named(built: SampleProject) -> None:
    from hq.model.digest import Digest

    source = Digest.of(built.read("patches/first.patch").encode())
    built.replace("patches/first.patch", "Words", "Other words")
    (built.store / "cas/sha256" / source.hex[:2] / source.hex).unlink()
    done = built.run("blame", f"{built.layout()}:vllm/one.py")
    assert done.returncode == 2
    assert done.stderr == (
        "error: patches/first.patch is not in the store any more\n  help: run hq build again\n"
    )


def knob(name: str) -> Knob:
    return Knob(name, "int", "1", "What it does", "patch:x", compile_key=False)


def test_each_generated_line_is_one_knob_s() -> None:
    names = ["VLLM_B", "VLLM_A_RATHER_LONG_NAME_THAT_MAKES_ITS_ENTRY_TAKE_THREE_LINES_OF_IT"]
    registry = Registry(knobs=tuple(knob(name) for name in sorted(names)), prefixes=("DEMO_",))
    before = SMALL.encode()
    after = generate(before, registry, "envs.py").split(b"\n")
    found = line_origins(before, registry, "envs.py")
    old = before.split(b"\n")
    assert len(found) == len(after) - 1
    for line, origin in zip(after, found, strict=False):
        if origin.old:
            assert line == old[origin.old - 1]
    for name in names:
        lines = [line for line, origin in zip(after, found, strict=False) if origin.knob == name]
        assert sum(name.encode() in line for line in lines) == sum(
            name.encode() in line for line in after
        )
