"""What a collection takes for a deleted project, and what it keeps of the others."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.app.causes import MAX_TEXT
from hq.app.memory import Memory
from hq.app.upkeep import Live, forget_answers
from hq.store.disk import DiskStore

PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=30)
NAMES = PARTS.filter(lambda part: part not in (".", "..") and len(part.encode()) < 100)


def remember(store: DiskStore, root: str, digest: str, name: str = "records@1.0") -> None:
    """A project's records as a build leaves them: one node that took one input."""
    record = {"key": "0" * 64, "inputs": [{"name": "patch", "digest": digest}]}
    Memory(store.root, root, store.write_file).save(name, {"node": record})


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(NAMES, min_size=1, max_size=12), mark=st.sampled_from("%2F%25"))
def test_a_project_of_any_path_is_forgotten_when_it_is_gone(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], mark: str
) -> None:
    top = tmp_path_factory.mktemp("upkeep")
    root = os.path.join(top, "all", *parts, mark)
    os.makedirs(root)
    Path(root, "build.toml").write_text("")
    with DiskStore(str(top / "store")) as store:
        remember(store, root, "")
        live = Live(store)
        assert list(live.keys()) == ["0" * 64]
        assert live.forgotten == []
        shutil.rmtree(root)
        Path(os.path.dirname(root), "other").write_text("")
        assert list(live.keys()) == []
        assert live.forgotten == [root]
        assert os.listdir(f"{store.root}/projects") == []
    shutil.rmtree(top)


@pytest.mark.parametrize(
    ("left", "gone"),
    [
        ({"disk/p/build.toml"}, False),
        ({"disk/p/dist/x"}, True),  # the folder is there, and is no project any more
        ({"disk/other"}, True),
        ({"disk/p/"}, False),  # where a disk with the project at its top is mounted
        ({"disk/"}, False),  # where a disk with the project in it is mounted
        ({"other"}, False),  # a place to mount disks that has none
        (set(), False),
        ({"disk"}, False),
    ],
)
def test_a_project_on_a_disk_that_is_not_mounted_stays(
    tmp_path: Path, left: set[str], gone: bool
) -> None:
    root = tmp_path / "media/disk/p"
    for name in left:
        path = tmp_path / "media" / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text("")
    with DiskStore(str(tmp_path / "store")) as store:
        remember(store, str(root), "")
        live = Live(store)
        assert list(live.keys()) == ([] if gone else ["0" * 64])
        assert live.forgotten == ([str(root)] if gone else [])


@pytest.mark.parametrize("name", ["%" + "0" * 64, "what", "%2Fx%"])
def test_a_strange_folder_stays(tmp_path: Path, name: str) -> None:
    with DiskStore(str(tmp_path / "store")) as store:
        store.write_file(f"projects/{name}/records@1.0.json", b"{}")
        live = Live(store)
        assert list(live.keys()) == []
        assert live.forgotten == []
        assert os.listdir(f"{store.root}/projects") == [name]


def test_small_sources_stay(tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_text("")
    with DiskStore(str(tmp_path / "store")) as store:
        refs = [store.put(b"a patch"), store.put(bytes(MAX_TEXT)), store.put(bytes(MAX_TEXT + 1))]
        for n, ref in enumerate(refs):
            remember(store, str(tmp_path), ref.digest, f"records@{n}")
        remember(store, str(tmp_path), f"f:{refs[0].digest}", "records@state")
        remember(store, str(tmp_path), "sha256:" + "0" * 64, "records@no blob")
        for n, bad in enumerate([[], {"a": 1}, {"a": {"inputs": [{}]}}, {"a": {"inputs": 3}}]):
            store.write_file(f"projects/%2Fp/records@bad{n}.json", json.dumps(bad).encode())
        assert set(Live(store).sources()) == set(refs[:2])


def test_answers_are_forgotten_and_nothing_else(tmp_path: Path) -> None:
    with DiskStore(str(tmp_path / "store")) as store:
        for name in ("noop@x", "noop@y", "records@1.json", "touched.json"):
            store.write_file(f"projects/p/{name}", b"")
        forget_answers(store)
        assert sorted(os.listdir(f"{store.root}/projects/p")) == ["records@1.json", "touched.json"]
