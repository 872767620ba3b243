"""Layers applied in memory and on disk: the two agree, and nothing leaves the tree."""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.app.imagescan import LayerRef, Scanned, scan
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError
from hq.store.disk import DiskStore
from hq.store.rootfs import Unpacker, drop_rootfs, rootfs_path, unpacking
from hq.store.source import LayoutSource
from serving.layers import Entry, make_tar

TAR = "application/vnd.oci.image.layer.v1.tar"


def run(
    folder: Path, *layers: list[Entry], unpacker: Unpacker | None = None, wanted: str = ""
) -> Scanned:
    refs = []
    (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    for layer in layers:
        data = make_tar(layer)
        digest = Digest.of(data)
        (folder / "blobs" / "sha256" / digest.hex).write_bytes(data)
        refs.append(LayerRef(BlobRef(digest, len(data)), TAR, digest))
    return scan(LayoutSource(str(folder)), refs, lambda path: path == wanted, unpacker)


def names(found: Scanned) -> list[str]:
    return [path for path, _ in found.stack.files()]


def directory(name: str) -> Entry:
    return Entry(name, tarfile.DIRTYPE, mode=0o755)


def link(name: str, target: str) -> Entry:
    return Entry(name, tarfile.SYMTYPE, target=target)


def hard(name: str, target: str) -> Entry:
    return Entry(name, tarfile.LNKTYPE, target=target)


def test_a_whiteout_takes_away_what_is_below(tmp_path: Path) -> None:
    found = run(
        tmp_path, [Entry("a/x"), Entry("a/y"), Entry("b/z")], [Entry("a/.wh.x"), Entry(".wh.b")]
    )
    assert names(found) == ["a/y"]


@pytest.mark.parametrize("first", [True, False])
def test_an_opaque_directory_keeps_what_its_own_layer_has(tmp_path: Path, first: bool) -> None:
    marker, new = Entry("a/.wh..wh..opq"), Entry("a/new/n")
    upper = [marker, new] if first else [new, marker]
    found = run(tmp_path, [Entry("a/x"), Entry("a/new/old")], upper)
    assert names(found) == ["a/new/n"]


def test_a_name_leads_through_a_symlink_inside_the_image(tmp_path: Path) -> None:
    found = run(tmp_path, [directory("usr/lib"), link("lib", "usr/lib")], [Entry("lib/x")])
    assert names(found) == ["lib", "usr/lib/x"]
    found = run(tmp_path, [directory("usr/lib"), link("lib", "/../../usr/lib")], [Entry("lib/x")])
    assert names(found) == ["lib", "usr/lib/x"]
    assert found.stack.follow("lib/x") == "usr/lib/x"


def test_a_hard_link_is_the_file(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    found = run(tmp_path, [Entry("a", data=b"1"), hard("b", "./a")], unpacker=Unpacker(str(tree)))
    one, two = found.stack.get("a"), found.stack.get("b")
    assert one is not None and two is not None
    assert one.digest == two.digest == Digest.of(b"1").hex
    assert (tree / "b").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([Entry("../x")], "the entry '../x' is refused: it has '..'"),
        ([Entry("a/../../x")], "the entry 'a/../../x' is refused: it has '..'"),
        ([Entry("/etc/x")], "the entry '/etc/x' is refused: it is absolute"),
        ([Entry(".wh...")], "the entry '.wh...' is refused: it is no name of a whiteout"),
        (
            [Entry("f"), Entry("f/x")],
            "the entry 'f/x' is refused: /f is no directory",
        ),
        (
            [link("a", "b"), link("b", "a"), Entry("a/x")],
            "the entry 'a' is refused: it leads through a loop of symlinks",
        ),
        (
            [link("a", "/etc"), hard("b", "a/passwd")],
            "the entry 'b' is refused: it is a hard link to 'a/passwd', which is no file",
        ),
        (
            [hard("b", "../../etc/passwd")],
            "the entry '../../etc/passwd' is refused: it has '..'",
        ),
    ],
)
def test_what_would_leave_the_tree_is_refused(
    tmp_path: Path, entries: list[Entry], why: str
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with pytest.raises(BuildError) as caught:
        run(tmp_path, entries, unpacker=Unpacker(str(tree)))
    assert caught.value.message == why


def test_a_symlink_out_of_the_tree_is_never_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = tmp_path / "tree"
    tree.mkdir()
    run(
        tmp_path,
        [link("a", str(outside)), Entry("a/x", data=b"1")],
        [link("b", f"../../..{outside}"), Entry("b/y", data=b"2")],
        unpacker=Unpacker(str(tree)),
    )
    assert list(outside.iterdir()) == []
    assert (tree / f".{outside}" / "x").read_bytes() == b"1"
    assert (tree / f".{outside}" / "y").read_bytes() == b"2"


def test_a_special_mode_and_a_device_do_not_reach_the_disk(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    run(
        tmp_path,
        [
            Entry("su", mode=0o6755),
            Entry("dev/null", tarfile.CHRTYPE),
            Entry("p", tarfile.FIFOTYPE),
        ],
        unpacker=Unpacker(str(tree)),
    )
    assert sorted(os.listdir(tree)) == ["su"]
    assert (tree / "su").stat().st_mode & 0o7777 == 0o755


def test_a_layer_that_is_not_what_it_is_said_to_be_is_a_problem(tmp_path: Path) -> None:
    data = make_tar([Entry("a")])
    digest = Digest.of(data)
    (tmp_path / "blobs" / "sha256").mkdir(parents=True)
    (tmp_path / "blobs" / "sha256" / digest.hex).write_bytes(data)
    ref = LayerRef(BlobRef(digest, len(data)), TAR, Digest.of(b""))
    found = scan(LayoutSource(str(tmp_path)), [ref], lambda _: False)
    assert [str(problem) for problem in found.problems] == [
        f"blobs/sha256/{digest.hex}: expected DiffID {Digest.of(b'')}, found {digest}"
    ]


_NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=3).map("/".join)
_TARGETS = st.sampled_from(["a", "../b", "/c/d", "../../a/b", "."])
_ENTRIES = st.one_of(
    st.builds(lambda n, d: Entry(n, data=d), _NAMES, st.binary(max_size=3)),
    st.builds(directory, _NAMES),
    st.builds(link, _NAMES, _TARGETS),
    st.builds(hard, _NAMES, _NAMES),
    st.builds(lambda n: Entry("/".join([*n.split("/")[:-1], ".wh." + n.split("/")[-1]])), _NAMES),
    st.builds(lambda n: Entry(n + "/.wh..wh..opq"), _NAMES),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(_ENTRIES, max_size=6), min_size=1, max_size=3))
def test_what_is_on_disk_is_what_is_in_memory(layers: list[list[Entry]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        try:
            found = run(Path(folder), *layers, unpacker=Unpacker(str(tree)))
        except BuildError:
            return
        on_disk = {}
        for top, folders, files in os.walk(tree):
            for name in [*files, *(f for f in folders if Path(top, f).is_symlink())]:
                path = Path(top, name)
                on_disk[str(path.relative_to(tree))] = (
                    str(path.readlink()) if path.is_symlink() else Digest.of(path.read_bytes()).hex
                )
        assert on_disk == {
            path: leaf.target if leaf.kind == "l" else leaf.digest
            for path, leaf in found.stack.files()
        }


def test_a_tree_appears_whole_or_not_at_all_and_a_collection_removes_it(tmp_path: Path) -> None:
    image_id = Digest.of(b"image")
    with DiskStore(str(tmp_path / "store")) as store:
        place = Path(rootfs_path(store, image_id))
        with pytest.raises(BuildError), unpacking(store, image_id) as tree:
            tree.file("x", 0o644, [b"12"])
            raise BuildError("bad")
        assert not place.exists()
        with unpacking(store, image_id) as tree:
            tree.file("x", 0o644, [b"12"])
            tree.keep = False
        assert not place.exists()
        with unpacking(store, image_id) as tree:
            tree.directory("d", 0o500)
            tree.file("d/x", 0o4, [b"12"])
        assert (place / "d" / "x").read_bytes() == b"12"
        assert drop_rootfs(store.root) == 2
        assert not place.exists()
        assert os.listdir(f"{store.root}/tmp") == []
