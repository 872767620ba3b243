"""The index: reading wheels, lookups, the encoding, and every disagreement a wheel can have."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.memory import MemoryBytes
from helpers.wheelmaker import (
    ZipItem,
    build_zip,
    item,
    make_wheel,
    metadata,
    record_for,
    record_hash,
    wheel_items,
    wheel_metadata,
)
from hq.model.digest import Digest
from hq.model.errors import BuildError
from hq.model.tree import Entry
from hq.wheels.content import extract
from hq.wheels.index import Meta, WheelIndex
from hq.wheels.reading import read_index

FILES = {"demo/__init__.py": b"", "demo/run.sh": b"#!/bin/sh\n", "demo/sub/mod.py": b"x = 1\n"}
INFO = "demo-1.0.dist-info"
CURRENT = "  help: use a wheel of a current builder"


def index_of(data: bytes, project: str = "demo", version: str = "1.0") -> WheelIndex:
    return read_index(MemoryBytes(data), project=project, version=version, wheel="demo.whl")


def refusal(data: bytes, project: str = "demo", version: str = "1.0") -> str:
    with pytest.raises(BuildError) as caught:
        index_of(data, project, version)
    return caught.value.render()


def with_info(name: str, data: bytes | None) -> bytes:
    """The demo wheel with one file of its dist-info directory replaced or left out."""
    if data is not None:
        return make_wheel(FILES, extra_info={name: data})
    items = wheel_items(FILES)
    record = record_for(
        {i.name.decode(): i.data for i in items if not i.name.endswith((name.encode(), b"RECORD"))},
        f"{INFO}/RECORD",
    )
    kept = [i for i in items if not i.name.endswith(name.encode())]
    return build_zip([replace(i, data=record) if i.name.endswith(b"RECORD") else i for i in kept])


def with_record(lines: list[str]) -> bytes:
    return build_zip(wheel_items(FILES, record="".join(f"{line}\n" for line in lines).encode()))


def record_lines() -> list[str]:
    return wheel_items(FILES)[-1].data.decode().splitlines()


# A right wheel


def test_members_have_record_s_digests() -> None:
    index = index_of(make_wheel(FILES, executables=["demo/run.sh"]))
    assert index.meta == Meta("demo", "1.0", INFO, "demo-1.0.data", True, len(make_wheel(FILES)))
    for path, data in FILES.items():
        kind = "x" if path.endswith(".sh") else "f"
        assert index.entry(path) == Entry(kind, Digest.of(data), len(data))  # type: ignore[arg-type]


def test_record_s_own_digest_is_computed() -> None:
    record = wheel_items(FILES)[-1].data
    member = index_of(make_wheel(FILES)).get(f"{INFO}/RECORD")
    assert member is not None
    assert member.digest == Digest.of(record)


def test_signatures_need_no_row() -> None:
    items = wheel_items(FILES)
    items.append(item(f"{INFO}/RECORD.jws", b"{}"))
    member = index_of(build_zip(items)).get(f"{INFO}/RECORD.jws")
    assert member is not None
    assert member.digest == Digest.of(b"{}")


def test_project_and_version_are_compared_normalised() -> None:
    data = make_wheel({}, project="My_Demo.X", version="1.0.0rc1")
    assert index_of(data, "my-demo-x", "1.0RC1").meta.project == "My_Demo.X"


def test_reading_an_index_reads_no_content() -> None:
    files = {f"demo/{n}.bin": bytes(100_000) for n in range(10)}
    reader = MemoryBytes(make_wheel(files, stored=list(files)))
    read_index(reader, project="demo", version="1.0")
    assert reader.bytes_read < 70_000


# Lookups

tree_paths = st.dictionaries(
    st.from_regex(r"\A[a-c]{1,2}(/[a-cé.]{1,2}){0,2}\.\Z"), st.binary(max_size=20), max_size=12
)


def consistent(paths: Mapping[str, object]) -> bool:
    return not any(
        other.startswith(path + "/") or "/./" in f"/{path}" or "/../" in f"/{path}/"
        or f"/{path}".endswith("/.")
        for path in paths
        for other in paths
    )  # fmt: skip


@given(tree_paths.filter(consistent))
def test_an_index_answers_as_a_dictionary_would(files: dict[str, bytes]) -> None:
    index = index_of(make_wheel(files))
    again = WheelIndex.decode(index.encode())
    everything = [member.path for member in index]
    assert everything == sorted(everything)
    assert list(again) == list(index)
    assert len(index) == len(files) + 3
    for path in [*everything, "nope", "a", "b/c", "", "demo-1.0.dist-info"]:
        assert (path in again) == (path in everything)
        below = any(other.startswith(path + "/") for other in everything)
        assert again.has_directory(path) == below
    for member in index:
        assert again.get(member.path) == member
        assert again.file_above(member.path) is None
        assert again.file_above(member.path + "/x/y") == member.path
    assert again.entries() == {m.path: Entry(m.kind, m.digest, m.size) for m in index}


def test_equal_members_make_equal_bytes_in_any_order() -> None:
    index = index_of(make_wheel(FILES))
    assert WheelIndex.build(index.meta, reversed(list(index))).encode() == index.encode()


def test_the_encoding_is_pinned() -> None:
    index = index_of(make_wheel({"a": b""}, stored=["a"]))
    meta = b'{"data_dir":"demo-1.0.data","dist_info":"demo-1.0.dist-info","project":"demo",'
    meta += b'"purelib":true,"size":%d,"version":"1.0"}' % index.meta.size
    data = index.encode()
    assert data.startswith(b"hqwhl/1\n" + struct.pack("<4L", len(meta), 4, 77, 0) + meta)
    first = data[24 + len(meta) :][:68]
    assert first == struct.pack("<LHBBLQQQ", 0, 1, 0, 0, 0, 31, 0, 0) + bytes.fromhex(
        Digest.of(b"").hex
    )
    assert data[-77:] == (
        b"ademo-1.0.dist-info/METADATAdemo-1.0.dist-info/RECORDdemo-1.0.dist-info/WHEEL"
    )


@given(st.data())
def test_damaged_bytes_are_refused_or_open(data: st.DataObject) -> None:
    whole = bytearray(index_of(make_wheel(FILES)).encode())
    at = data.draw(st.integers(0, 200))
    whole[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for candidate in (bytes(whole), bytes(whole[:cut])):
        with suppress(ValueError):
            WheelIndex.decode(candidate)


def test_a_path_twice_cannot_be_indexed() -> None:
    index = index_of(make_wheel(FILES))
    with pytest.raises(ValueError, match=r"'demo-1\.0\.dist-info/METADATA' is there twice"):
        WheelIndex.build(index.meta, [*index, *index])


# RECORD against the archive


def test_a_wheel_without_its_files() -> None:
    assert refusal(build_zip([item("demo.py")])) == (
        f"error: the wheel has no .dist-info directory\n  at: demo.whl\n{CURRENT}"
    )
    two = [*wheel_items(FILES), item("other-2.dist-info/METADATA")]
    assert refusal(build_zip(two)) == (
        f"error: the wheel has several .dist-info directories: {INFO}, other-2.dist-info\n"
        f"  at: demo.whl\n{CURRENT}"
    )
    assert refusal(build_zip(wheel_items(FILES)[:-1])) == (
        f"error: the wheel has no {INFO}/RECORD\n  at: demo.whl\n{CURRENT}"
    )
    for name in ("METADATA", "WHEEL"):
        assert refusal(with_info(name, None)) == (
            f"error: the wheel has no {INFO}/{name}\n  at: demo.whl\n{CURRENT}"
        )


def test_record_and_archive_list_the_same_files() -> None:
    lines = record_lines()
    assert refusal(with_record(lines[1:])) == (
        "error: member 'demo/__init__.py' is not in RECORD\n"
        f"  at: demo.whl/{INFO}/RECORD\n{CURRENT}"
    )
    assert refusal(with_record(lines[:-1])) == (
        f"error: RECORD does not list itself\n  at: demo.whl/{INFO}/RECORD\n{CURRENT}"
    )
    extra = ["demo/ghost.py," + record_hash(b"") + ",0", *lines]
    assert refusal(with_record(extra)) == (
        "error: RECORD lists 'demo/ghost.py', which is not in the wheel\n"
        f"  at: demo.whl/{INFO}/RECORD:1\n{CURRENT}"
    )
    assert refusal(with_record([*lines, lines[0]])) == (
        "error: RECORD lists 'demo/__init__.py' twice, first in line 1\n"
        f"  at: demo.whl/{INFO}/RECORD:7"
    )


def test_record_s_sizes_and_hashes_are_looked_at() -> None:
    lines = record_lines()
    wrong = [lines[0], lines[1].rpartition(",")[0] + ",11", *lines[2:]]
    assert refusal(with_record(wrong)) == (
        "error: RECORD gives 'demo/run.sh' a size of 11; the archive has 10\n"
        f"  at: demo.whl/{INFO}/RECORD:2\n{CURRENT}"
    )
    missing = ["demo/__init__.py,,", *lines[1:]]
    assert refusal(with_record(missing)) == (
        "error: RECORD has no usable hash for 'demo/__init__.py': expected 'sha256=…', found ''\n"
        f"  at: demo.whl/{INFO}/RECORD:1"
    )
    sha512 = [f"demo/__init__.py,{record_hash(b'', 'sha512')},0", *lines[1:]]
    assert refusal(with_record(sha512)) == (
        "error: RECORD has a sha512 hash for 'demo/__init__.py'; "
        "hq names content by SHA-256 only\n"
        f"  at: demo.whl/{INFO}/RECORD:1\n"
        "  help: use a wheel whose RECORD has sha256, which all current tools write"
    )
    no_size = [lines[0].rpartition(",")[0] + ",", *lines[1:]]
    assert len(index_of(with_record(no_size))) == 6


def test_a_record_that_lies_about_content_is_found_when_the_member_is_read() -> None:
    lines = record_lines()
    lines[2] = f"demo/sub/mod.py,{record_hash(b'x = 2' + b'!')},6"
    data = with_record(lines)
    member = index_of(data).get("demo/sub/mod.py")
    assert member is not None
    with pytest.raises(BuildError) as caught:
        extract(MemoryBytes(data), member, wheel="demo.whl")
    assert caught.value.render() == (
        "error: member 'demo/sub/mod.py' is not what RECORD says\n"
        "  at: demo.whl\n"
        f"  expected sha256 {Digest.of(b'x = 2!').hex}\n"
        f"  found    sha256 {Digest.of(FILES['demo/sub/mod.py']).hex}\n"
        "  help: the wheel is damaged or its metadata lies; do not use this file"
    )


def test_files_that_are_read_whole_have_a_limit() -> None:
    huge = wheel_items(FILES, extra_info={"METADATA": bytes((16 << 20) + 1)}, level=0)
    assert refusal(build_zip(huge)) == (
        f"error: {INFO}/METADATA has 16777217 bytes; the limit is 16777216\n"
        f"  at: demo.whl\n{CURRENT}"
    )


# METADATA and WHEEL


@pytest.mark.parametrize(
    ("name", "data", "message", "line"),
    [
        ("WHEEL", wheel_metadata(version="2.0"),
         "the wheel has format version '2.0'; hq reads 1.x", 1),
        ("WHEEL", b"Wheel-Version: 1\nRoot-Is-Purelib: true\n",
         "the wheel has format version '1'; hq reads 1.x", 1),
        ("WHEEL", b"Root-Is-Purelib: true\n", "WHEEL has no Wheel-Version field", 0),
        ("WHEEL", b"Wheel-Version: 1.0\n\nRoot-Is-Purelib: true\n",
         "WHEEL has no Root-Is-Purelib field", 0),
        ("WHEEL", b"Wheel-Version: 1.0\nRoot-Is-Purelib: maybe\n",
         "Root-Is-Purelib is 'maybe'; expected 'true' or 'false'", 2),
        ("METADATA", b"Version: 1.0\n", "METADATA has no Name field", 0),
        ("METADATA", b"Name: demo\nVersion:\n", "METADATA has no Version field", 0),
        ("METADATA", b"Name: demo\n\xff", "METADATA is not UTF-8", 2),
        ("METADATA", b"\nName: demo\nVersion: 1.0\n", "METADATA has no Name field", 0),
    ],
)  # fmt: skip
def test_malformed_metadata(name: str, data: bytes, message: str, line: int) -> None:
    at = f":{line}" if line else ""
    assert refusal(with_info(name, data)) == (
        f"error: {message}\n  at: demo.whl/{INFO}/{name}{at}\n{CURRENT}"
    )


def test_the_first_field_of_a_name_counts_and_continuations_do_not() -> None:
    data = b"Name: demo\nSummary: x\n Version: 9\nVersion: 1.0\nVersion: 2.0\n\nName: other\n"
    assert index_of(with_info("METADATA", data)).meta.version == "1.0"


def test_a_wheel_that_is_not_the_locked_one() -> None:
    hint = "  help: lock this wheel, or fetch the one that is locked"
    assert refusal(make_wheel(FILES), project="other") == (
        "error: the wheel's name is 'demo'; the lock says 'other'\n"
        f"  at: demo.whl/{INFO}/METADATA:2\n{hint}"
    )
    assert refusal(make_wheel(FILES), version="1.1") == (
        "error: the wheel's version is '1.0'; the lock says '1.1'\n"
        f"  at: demo.whl/{INFO}/METADATA:3\n{hint}"
    )


@pytest.mark.parametrize("data", [metadata("other", "1.0"), metadata("demo", "2.0")])
def test_the_directory_belongs_to_the_project(data: bytes) -> None:
    project, version = ("other", "1.0") if b"other" in data else ("demo", "2.0")
    assert refusal(with_info("METADATA", data), project, version) == (
        f"error: the directory '{INFO}' does not belong to {project} {version}, "
        f"which METADATA names\n  at: demo.whl\n{CURRENT}"
    )


def test_a_record_whose_own_data_is_damaged() -> None:
    items = wheel_items(FILES)
    broken: ZipItem = replace(items[-1], raw=items[-1].packed[:-3] + b"\0\0\0")
    assert refusal(build_zip([*items[:-1], broken])).startswith(f"error: member '{INFO}/RECORD' ")
