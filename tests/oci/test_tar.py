"""Tar headers, against Python's ``tarfile`` and GNU tar."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hq.model.errors import UsageError
from hq.oci.tar import END, MAX_MTIME, EntryKind, check_mtime, entry, padding

parts = st.text(
    st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=90
).filter(lambda part: part not in (".", ".."))
paths = st.lists(parts, min_size=1, max_size=5).map("/".join)
kinds: st.SearchStrategy[EntryKind] = st.sampled_from(["f", "x", "l", "d"])


def read_one(header: bytes, size: int = 0) -> tarfile.TarInfo:
    data = header + bytes(min(size, 4096)) + padding(size) + END
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        found = archive.next()
    assert found is not None
    return found


@given(paths, kinds, st.integers(0, 1 << 40), st.integers(0, MAX_MTIME), paths)
@example("a/" * 49 + "ab", "f", 0, 0, "x")
@example("p" * 155 + "/" + "n" * 100, "f", 0, 0, "x")
@example("p" * 156 + "/" + "n" * 100, "f", 0, 0, "x")
@example("p" * 155 + "/" + "n" * 101, "f", 0, 0, "x")
@example("d" * 100, "d", 0, 0, "x")
@example("a/" + "d" * 99, "d", 0, 0, "x")
@example("x", "l", 0, 0, "t" * 101)
@example("x", "f", 8**11 - 1, 0, "x")
@example("x", "f", 8**11, 0, "x")
def test_tarfile_reads_the_same(
    path: str, kind: EntryKind, size: int, mtime: int, target: str
) -> None:
    if kind in ("l", "d"):
        size = 0
    header = entry(path, kind, size, mtime, target if kind == "l" else "")
    found = read_one(header, size)
    assert (found.name, found.size, found.mtime) == (path, size, mtime)
    assert found.linkname == (target if kind == "l" else "")
    assert found.mode == {"f": 0o644, "x": 0o755, "l": 0o777, "d": 0o755}[kind]
    assert (found.uid, found.gid, found.uname, found.gname) == (0, 0, "", "")
    flags = (found.isreg(), found.issym(), found.isdir())
    assert flags == (kind in ("f", "x"), kind == "l", kind == "d")


@pytest.mark.parametrize(
    ("path", "blocks"),
    [
        ("a" * 100, 1),
        ("a" * 101, 3),
        ("p" * 155 + "/" + "n" * 100, 1),
        ("p" * 156 + "/" + "n" * 100, 3),
        ("p/" + "n" * 101, 3),
        ("é", 3),
    ],
)
def test_pax_records_only_where_ustar_cannot_hold_it(path: str, blocks: int) -> None:
    assert len(entry(path, "f", 1, 0)) == blocks * 512
    assert len(entry("a", "f", 8**11 - 1, 0)) == 512
    assert len(entry("a", "f", 8**11, 0)) == 3 * 512


def test_a_header_is_these_bytes() -> None:
    header = entry("opt/vllm/a.py", "x", 0o1234, 0o17)
    assert header[:100] == b"opt/vllm/a.py".ljust(100, b"\0")
    assert header[100:157] == (
        b"0000755\0" + b"0000000\0" * 2 + b"00000001234\0" + b"00000000017\0" + b"011566\0 0"
    )
    assert header[157:] == bytes(100) + b"ustar\00000" + bytes(64) + b"0000000\0" * 2 + bytes(167)


def test_pax_record_lengths_count_themselves() -> None:
    for length in range(80, 110):
        body = entry("é" + "a" * length, "f", 0, 0)[512:1024].rstrip(b"\0")
        assert int(body.split(b" ", 1)[0]) == len(body)


def test_times_that_no_header_holds() -> None:
    assert check_mtime(MAX_MTIME) == MAX_MTIME
    for mtime in (-1, MAX_MTIME + 1):
        with pytest.raises(UsageError) as caught:
            check_mtime(mtime)
        assert caught.value.render() == (
            f"error: a modification time of {mtime} does not fit into a tar header\n"
            "  help: set SOURCE_DATE_EPOCH to a number from 0 to 8589934591"
        )


@pytest.mark.system
def test_gnu_tar_unpacks_long_and_foreign_names(tmp_path: Path) -> None:
    if shutil.which("tar") is None:
        pytest.skip("tar is not installed")
    names = ["a/" + "b" * 150, "x" * 90 + "/" + "y" * 90, "é/ü", "q" * 120, "blank name", "-dash"]
    data = b"".join(entry(n, "f", 1, 0) + b"." + padding(1) for n in names)
    data += entry("link", "l", 0, 0, "ü" * 80) + END
    (tmp_path / "a.tar").write_bytes(data)
    (tmp_path / "out").mkdir()
    subprocess.run(
        ["tar", "-xf", "../a.tar"],
        cwd=tmp_path / "out",
        check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == b"."
    assert str((tmp_path / "out/link").readlink()) == "ü" * 80
