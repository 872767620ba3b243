"""Folders that cannot be made are an error with words, whatever stands in the way."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.model.errors import HqError
from hq.store.disk import DiskStore
from hq.store.files import TMP, make_dir, make_temp_file, replace_file
from hq.store.layout import write_layout

OBSTACLES = ["link to nothing", "link to itself", "file", "link to a file"]


def put_obstacle(kind: str, place: Path) -> None:
    """Makes ``place`` something that no folder can be made in."""
    if kind == "file":
        place.write_text("")
    elif kind == "link to a file":
        place.with_name("other").write_text("")
        place.symlink_to("other")
    else:
        place.symlink_to(place if kind == "link to itself" else "nowhere/deep")


def take_away(place: Path) -> None:
    place.unlink()
    place.with_name("other").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(OBSTACLES), above=st.integers(0, 3), below=st.integers(0, 3),
    slash=st.sampled_from(["", "/"]),
)  # fmt: skip
def test_no_folder_can_be_made_there(
    folder: Path, kind: str, above: int, below: int, slash: str
) -> None:
    real = folder.joinpath(*["real"] * above)
    real.mkdir(parents=True, exist_ok=True)
    put_obstacle(kind, real / "obstacle")
    path = os.path.join(real, "obstacle", *["deep"] * below) + slash
    try:
        with pytest.raises(OSError, match="obstacle"):
            make_dir(path)
        with pytest.raises(OSError, match="obstacle"):
            make_temp_file(path)
        with pytest.raises(OSError, match="obstacle"):
            replace_file(path, f"{path}/file", b"")
        with pytest.raises(HqError):
            DiskStore(path)
        with DiskStore(str(folder / "store")) as store, pytest.raises(HqError):
            write_layout(store, path, [], b"[]")
    finally:
        take_away(real / "obstacle")


def test_a_folder_of_a_thousand_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_dir("d/" * 1200)
    assert os.path.isdir("d/" * 1200)
    os.removedirs("d/" * 1200)  # too deep for the recursion that would remove it


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_what_a_store_in_proc_says() -> None:
    with pytest.raises(HqError) as caught:
        DiskStore("/proc/hq/store")
    assert str(caught.value) == (
        "error: cannot make a store: no such file or directory\n"
        "  at: /proc/hq/store\n"
        "  missing: /proc/hq\n"
        "  help: choose another store with --store DIR or HQ_STORE"
    )


def test_what_a_layout_below_a_link_to_nothing_says(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with DiskStore(str(tmp_path / "store")) as store, pytest.raises(HqError) as caught:
        write_layout(store, f"{tmp_path}/link/dist", [], b"[]")
    assert str(caught.value) == (
        "error: cannot write the image layout: no such file or directory\n"
        f"  at: {tmp_path}/link/dist\n"
        f"  {tmp_path}/link is a symlink to nowhere, which is not there\n"
        "  help: choose another folder with --output DIR"
    )


def test_folders_that_vanish_are_made_again(tmp_path: Path) -> None:
    done = threading.Event()

    def remove() -> None:
        while not done.is_set():
            shutil.rmtree(tmp_path / "a", ignore_errors=True)
            done.wait(0.002)

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        for _ in range(100):
            replace_file(f"{tmp_path}/a/{TMP}", f"{tmp_path}/a/b/c/d", b"content")
    finally:
        done.set()
        thread.join()
