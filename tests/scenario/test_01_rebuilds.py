"""What a change rebuilds, and what it does not.

Each test builds a project, changes one thing, and builds again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers.project import SampleProject, patch
from helpers.unpack import layer_tree

ALL = [
    "wheel:demo",
    "patch:first",
    "patch:second",
    "patch:third",
    "patch:fourth",
    "envs",
    "overlay:over",
    "audit",
    "layer:wheel",
    "layer:series",
    "layer:envs",
    "layer:over",
    "image:demo",
]


def identity(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Image ids and manifests of a build."""
    return [(image["image_id"], image["manifest"]) for image in document["images"]]


def forget_answer(project: SampleProject) -> None:
    """Takes the fast path's state away, so that the next build takes the ordinary one."""
    states = [
        path for path in (project.store / "projects").rglob("*") if path.name.startswith("noop@")
    ]
    assert states
    for path in states:
        path.unlink()


def test_01_a_first_build_runs_every_node(project: SampleProject) -> None:
    document = project.build()
    assert document["built"] == ALL
    assert document["nodes"] == {"total": 13, "reused": 0, "built": 13}


def test_02_a_second_build_runs_none_and_says_the_same(built: SampleProject) -> None:
    again = built.build()
    assert again["built"] == []
    assert again["nodes"] == {"total": 13, "reused": 13, "built": 0}
    assert again["images"] == built.first["images"]


def test_03_nor_does_the_ordinary_path(built: SampleProject) -> None:
    forget_answer(built)
    again = built.build("-j1")
    assert again["built"] == []
    assert identity(again) == identity(built.first)


def test_04_an_added_line_of_a_patch(built: SampleProject) -> None:
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    again = built.build()
    assert again["built"] == ["patch:first", "patch:third", "layer:series", "image:demo"]
    assert identity(again) != identity(built.first)


def test_05_and_of_one_whose_file_no_later_patch_touches(built: SampleProject) -> None:
    built.replace("patches/second.patch", "+line twenty", "+line TWENTY")
    assert built.build()["built"] == ["patch:second", "layer:series", "image:demo"]


def test_06_a_preamble_is_no_content(built: SampleProject) -> None:
    built.replace("patches/first.patch", "Words about it.", "Other words.")
    again = built.build()
    assert again["built"] == ["patch:first"]
    assert identity(again) == identity(built.first)


def test_07_a_change_that_a_later_patch_undoes_stops_there(built: SampleProject) -> None:
    built.replace("patches/second.patch", "line twenty", "line 20 now")
    two = built.texts["vllm/two.py"].replace("line twenty", "line 20 now")
    built.texts["vllm/two.py"] = two
    back = built.edited("vllm/two.py", ("line 20 now", "line 20"))
    built.write("patches/back.patch", patch("Back", back))
    built.write("patches/series", built.read("patches/series") + "back.patch\n")
    before = built.build()
    for name in ("second", "back"):
        built.replace(f"patches/{name}.patch", "line 20 now", "line 20 then")
    again = built.build()
    assert again["built"] == ["patch:second", "patch:back", "layer:series"]
    assert identity(again) == identity(before)


def test_08_a_knobs_default(built: SampleProject) -> None:
    built.replace("patches/knobs.toml", "default = 3", "default = 4")
    again = built.build()
    assert again["built"] == ["envs", "layer:envs", "image:demo"]
    assert identity(again) != identity(built.first)


def test_09_comments_are_nothing(built: SampleProject) -> None:
    for path in (
        *("build.toml", "patches/knobs.toml", "over/overlay.toml", "images/demo.toml"),
        *("patches/series", "over/patches/series", "lockfiles/1.0.toml"),
    ):
        built.write(path, f"# a remark\n{built.read(path)}")
    again = built.build()
    assert again["built"] == []
    assert identity(again) == identity(built.first)


def test_10_a_new_patch(built: SampleProject) -> None:
    more = built.edited("vllm/two.py", ("line 50\n", "line fifty\n"))
    built.write("patches/fifth.patch", patch("Fifth", more))
    built.write("patches/series", built.read("patches/series") + "fifth.patch\n")
    # The audit and RECORD's layer look at every patch, so also at the new one.
    assert built.build()["built"] == [
        "patch:fifth",
        "audit",
        "layer:series",
        "layer:over",
        "image:demo",
    ]


def test_11_a_removed_patch(built: SampleProject) -> None:
    built.write("patches/series", "first.patch\nthird.patch\nfourth.patch\n")
    (built.root / "patches/second.patch").unlink()
    again = built.build()
    assert again["built"] == ["audit", "layer:series", "layer:over", "image:demo"]
    assert again["nodes"]["total"] == 12


def test_12_another_order_of_patches_that_share_no_file(built: SampleProject) -> None:
    built.write("patches/series", "second.patch\nfirst.patch\nthird.patch\nfourth.patch\n")
    again = built.build()
    # The layers' inputs come in another order; what they hold is the same.
    assert not [name for name in again["built"] if name.startswith("patch:")]
    assert "image:demo" not in again["built"]
    assert identity(again) == identity(built.first)


def test_13_another_order_of_patches_that_share_a_file(built: SampleProject) -> None:
    built.write("patches/series", "third.patch\nsecond.patch\nfirst.patch\nfourth.patch\n")
    again = built.build()
    assert {"patch:first", "patch:third"} <= set(again["built"])
    assert not {"patch:second", "patch:fourth"} & set(again["built"])
    assert identity(again) == identity(built.first)


def test_14_another_name_for_a_patch_file(built: SampleProject) -> None:
    (built.root / "patches/first.patch").rename(built.root / "patches/uno.patch")
    built.replace("patches/series", "first.patch", "uno.patch")
    again = built.build()
    # A name is no part of a key: the patch is not applied again.
    assert not [name for name in again["built"] if name.startswith(("patch:", "layer:", "image:"))]
    assert identity(again) == identity(built.first)


@pytest.mark.parametrize("jobs", ["-j1", "-j8"])
def test_15_times_are_nothing(built: SampleProject, jobs: str) -> None:
    for path in built.root.rglob("*"):
        if path.is_file() and "dist" not in path.parts:
            os.utime(path, (1_000_000_000, 1_000_000_000))
    again = built.build(jobs)
    assert again["built"] == []
    assert identity(again) == identity(built.first)


def test_16_a_file_written_anew_with_the_same_content(built: SampleProject) -> None:
    text = built.read("patches/first.patch")
    (built.root / "patches/first.patch").unlink()
    built.write("patches/first.patch", text)
    assert built.build()["built"] == []


def test_17_a_change_of_the_same_size_with_the_old_time(built: SampleProject) -> None:
    path = built.root / "patches/first.patch"
    before = path.stat()
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "patch:first" in built.build()["built"]


def test_18_files_beside_the_sources_are_nothing(built: SampleProject) -> None:
    for name in ("patches/.pc/applied", "patches/.first.patch.swp", "patches/first.patch~"):
        built.write(name, "an editor's")
    again = built.build()
    assert again["built"] == []
    assert identity(again) == identity(built.first)


def blobs(built: SampleProject) -> list[Path]:
    """The blobs of the image in ``dist``."""
    return sorted((built.layout() / "blobs/sha256").iterdir())


def whole(built: SampleProject) -> None:
    """Asserts that every blob of the layout has the content that its name says."""
    found = blobs(built)
    assert len(found) == 6
    for path in found:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name


@pytest.mark.parametrize("position", [0, 5])
def test_19_an_output_that_was_removed_is_back(built: SampleProject, position: int) -> None:
    blobs(built)[position].unlink()
    again = built.build()
    assert again["built"] == []
    assert identity(again) == identity(built.first)
    whole(built)


@pytest.mark.parametrize(
    "name", ["demo-1.0/index.json", "demo-1.0/oci-layout", "demo-1.0.provenance.json"]
)
def test_20_so_is_what_lies_beside_the_blobs(built: SampleProject, name: str) -> None:
    path = built.root / "dist" / name
    before = path.read_bytes()
    path.unlink()
    assert built.build()["built"] == []
    assert path.read_bytes() == before


def test_21_the_whole_of_dist(built: SampleProject) -> None:
    shutil.rmtree(built.root / "dist")
    again = built.build()
    assert again["built"] == []
    assert identity(again) == identity(built.first)
    whole(built)


@pytest.mark.parametrize("layer", ["wheel", "over"])
def test_22_a_blob_that_the_store_lost_is_made_again(built: SampleProject, layer: str) -> None:
    record = json.loads((built.root / "dist/demo-1.0.records.json").read_text())
    digest = record[f"layer:{layer}"]["result"]["blobs"]["blob"][0].removeprefix("sha256:")
    (built.store / "cas/sha256" / digest[:2] / digest).unlink()
    again = built.build()
    assert again["built"] == [f"layer:{layer}"]
    assert identity(again) == identity(built.first)
    whole(built)


def test_23_without_the_action_cache_everything_runs_once_more(built: SampleProject) -> None:
    shutil.rmtree(built.store / "ac")
    # The fast path answers from the outputs, which are there; the first change shows the loss.
    built.write("build.toml", "# a remark\n" + built.read("build.toml"))
    again = built.build()
    assert again["built"] == ALL
    assert identity(again) == identity(built.first)


def test_24_a_damaged_result_is_a_miss(built: SampleProject) -> None:
    for path in (built.store / "ac").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"!")
    forget_answer(built)
    again = built.build()
    assert again["built"] == ALL
    assert identity(again) == identity(built.first)


def overwrite(path: Path) -> os.stat_result:
    """Changes the first byte of a blob in place; returns its status from before."""
    before = path.stat()
    assert before.st_nlink == 2
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"#")
    return before


def test_25_writing_through_the_hard_link(built: SampleProject) -> None:
    for path in blobs(built):
        overwrite(path)
    again = built.run("build", "--json")
    assert again.returncode == 0
    assert identity(json.loads(again.stdout)) == identity(built.first)
    assert again.stderr.count("warning: dropped a damaged blob from the store: sha256:") == 6
    whole(built)


def test_26_and_hiding_it(built: SampleProject) -> None:
    for path in blobs(built):
        before = overwrite(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    # Nothing but reading every byte shows it; that is what verification is for.
    seen = built.run("store", "verify", "--json")
    assert seen.returncode == 1
    assert sum("damaged blob, dropped" in line for line in json.loads(seen.stdout)["problems"]) == 6
    again = built.build()
    assert identity(again) == identity(built.first)
    whole(built)


def test_27_one_answer_for_each_way_of_asking(built: SampleProject) -> None:
    words = built.run("build").stdout
    assert words.startswith("demo 1.0 (image)\n  image id  sha256:")
    assert built.run("build", "--quiet").stdout == ""
    assert built.build("--pin", "1.0")["built"] == []
    assert built.build("--pin=1.0", "--offline")["built"] == []
    other = built.build("--output", str(built.root / "other"))
    assert other["built"] == []
    assert other["images"][0]["layout"] == str(built.root / "other" / "demo-1.0")


def test_28_from_a_folder_within(built: SampleProject) -> None:
    again = built.build(cwd=built.root / "over" / "files")
    assert again["built"] == []
    assert again["images"] == built.first["images"]


def test_an_overlay_s_program_stays_executable(project: SampleProject) -> None:
    program = project.root / "over/files/vllm/extra/tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    before = project.build()
    assert layer_tree(project.layout(), "over")["opt/demo/vllm/extra/tool"].executable
    program.chmod(0o644)
    after = project.build()
    assert after["built"] == ["overlay:over", "layer:over", "image:demo"]
    assert after["images"] != before["images"]
    assert not layer_tree(project.layout(), "over")["opt/demo/vllm/extra/tool"].executable


def test_hq_s_own_lists_cannot_be_replaced(project: SampleProject) -> None:
    project.write("over/files/demo-1.0.dist-info/hq/series.csv", "x")
    done = project.run("build")
    assert (done.returncode, done.stderr.split("\n")[-5:-1]) == (
        1,
        [
            "error: demo-1.0.dist-info/hq/series.csv is written by hq itself",
            "  at: demo-1.0.dist-info/hq/series.csv",
            "  node: layer:over",
            "  help: RECORD and the lists of layers follow from what is changed; leave them out",
        ],
    )
