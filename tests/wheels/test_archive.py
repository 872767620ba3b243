"""Hostile archives: each refusal with its exact message."""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.memory import MemoryBytes
from helpers.wheelmaker import (
    MODE_DIRECTORY,
    MODE_EXECUTABLE,
    MODE_SYMLINK,
    REGULAR,
    STORED,
    ZipItem,
    build_zip,
    deflate,
    item,
    with_descriptor,
)
from hq.model.errors import BuildError
from hq.wheels.archive import Limits, RawMember, read_archive

HOSTILE = "  help: no wheel builder writes this; do not use this file"
AGAIN = "  help: the file is damaged or cut off; fetch the wheel again"

A = item("a.py", b"print(1)\n")
B = item("b/c.py", b"x" * 100)


DEFAULT = Limits()


def read(data: bytes, limits: Limits = DEFAULT) -> list[RawMember]:
    return read_archive(MemoryBytes(data), "w.whl", limits)


def refusal(data: bytes, limits: Limits = DEFAULT) -> str:
    with pytest.raises(BuildError) as caught:
        read(data, limits)
    return caught.value.render()


def hostile(message: str) -> str:
    return f"error: {message}\n  at: w.whl\n{HOSTILE}"


def damaged(message: str) -> str:
    return f"error: {message}\n  at: w.whl\n{AGAIN}"


# What is read


def test_members_come_sorted_with_their_places() -> None:
    data = build_zip([B, A])
    first, second = read(data)
    assert (first.path, second.path) == ("a.py", "b/c.py")
    assert data[first.offset :][: first.csize] == A.packed
    assert (first.size, first.crc, first.method) == (9, A.true_crc, 8)


def test_an_empty_archive_has_no_members() -> None:
    assert read(build_zip([])) == []


def test_the_executable_bit_counts_on_regular_files_as_in_pip() -> None:
    data = build_zip(
        [
            replace(A, name=b"yes", mode=MODE_EXECUTABLE),
            replace(A, name=b"group", mode=REGULAR | 0o654),
            replace(A, name=b"no", mode=REGULAR | 0o664),
            replace(A, name=b"typeless", mode=0o755),
        ]
    )
    assert {m.path for m in read(data) if m.executable} == {"yes", "group"}


def test_directories_are_left_out() -> None:
    directory = replace(item("b/"), mode=MODE_DIRECTORY, method=STORED)
    assert [m.path for m in read(build_zip([directory, B]))] == ["b/c.py"]


def test_data_descriptors_of_every_form_are_read() -> None:
    plain = with_descriptor(A)
    wide = struct.pack("<LQQ", A.true_crc, len(A.packed), 9)
    forms = [plain.descriptor, plain.descriptor[4:], wide, b"PK\x07\x08" + wide, b""]
    for form in forms:
        assert len(read(build_zip([replace(plain, descriptor=form), B]))) == 2


def test_zip64_records_are_read() -> None:
    values = struct.pack("<2Q", len(A.data), len(A.packed))
    field = struct.pack("<2H", 1, 16) + values
    wide = replace(
        A, size=0xFFFFFFFF, csize=0xFFFFFFFF, extra=field, local_extra=field, data=A.data
    )
    assert read(build_zip([wide, B], zip64=True))[0].size == 9


names = st.lists(
    st.from_regex(r"\A[a-c]{1,3}(/[d-f]{1,2}){0,2}\Z"), unique=True, max_size=6
).filter(
    lambda names: not any(a != b and (b + "/").startswith(a + "/") for a in names for b in names)
)


@settings(deadline=None)
@given(names, st.data())
def test_what_zipfile_writes_is_read_alike(paths: list[str], data: st.DataObject) -> None:
    out = io.BytesIO()
    contents = {path: data.draw(st.binary(max_size=300)) for path in paths}
    with zipfile.ZipFile(out, "w") as archive:
        for path, content in contents.items():
            method = data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
            archive.writestr(zipfile.ZipInfo(path), content, compress_type=method)
    found = read(out.getvalue())
    assert [(m.path, m.size) for m in found] == [(p, len(contents[p])) for p in sorted(paths)]


def test_what_zipfile_writes_to_a_pipe_is_read() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.data += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"aaaaaaaaaaa")
        with archive.open("b", "w", force_zip64=True) as member:
            member.write(b"bbbbbbbbbbbb")
    assert [m.path for m in read(pipe.data)] == ["a", "b"]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_any_damage_gives_members_or_a_clear_refusal(data: st.DataObject) -> None:
    whole = bytearray(build_zip([A, with_descriptor(B), item("é", b"zz")], zip64=True))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for damaged_data in (bytes(whole), bytes(whole[:cut])):
        try:
            read(damaged_data)
        except BuildError as error:
            assert error.where is not None and error.hint


# Names


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../evil.py", "a '..' in the path"),
        ("a/../../evil.py", "a '..' in the path"),
        ("/etc/passwd", "an absolute path"),
        ("a\\b.py", "a backslash in the path"),
        ("a\0b", "a NUL byte in the path"),
        ("a//b", "an empty or '.' part in the path"),
        ("./a", "an empty or '.' part in the path"),
        ("", "an empty path"),
        ("a\nb", "an unprintable character in the path"),
        ("a\x1b[31m", "an unprintable character in the path"),
        ("a\u202eb", "an unprintable character in the path"),
        ("é\x85", "an unprintable character in the path"),
        ("é\n", "an unprintable character in the path"),
        ("x" * 256, "a path or a part of it that no file system takes"),
        ("y/" * 2048 + "z", "a path or a part of it that no file system takes"),
    ],
)
def test_paths_that_leave_the_tree_or_deceive(path: str, reason: str) -> None:
    assert refusal(build_zip([item(path, b"x")])) == hostile(f"member {path!r}: {reason}")


def test_names_have_one_reading() -> None:
    assert refusal(build_zip([replace(A, name=b"\x82.py")])) == hostile(
        "a member's name is neither ASCII nor marked as UTF-8: b'\\x82.py'"
    )
    assert refusal(build_zip([replace(A, name=b"\xff.py", flags=0x0800)])) == hostile(
        "a member's name is neither ASCII nor marked as UTF-8: b'\\xff.py'"
    )
    assert refusal(build_zip([replace(A, extra=struct.pack("<2H", 0x7075, 0))])) == hostile(
        "member 'a.py' has a second name in an extra field"
    )
    assert refusal(build_zip([replace(A, local_name=b"b.py")])) == hostile(
        "member 'a.py' has another name in its local header: 'b.py'"
    )


def test_a_path_stands_once() -> None:
    assert refusal(build_zip([A, A])) == hostile("member 'a.py' is there twice")
    assert refusal(build_zip([item("a/b", b""), item("a", b"")])) == hostile(
        "member 'a' is a file and a directory"
    )
    directory = replace(item("a.py/"), mode=MODE_DIRECTORY)
    assert refusal(build_zip([A, directory])) == hostile("member 'a.py' is a file and a directory")


def test_only_files_and_directories() -> None:
    assert refusal(build_zip([replace(A, mode=MODE_SYMLINK, data=b"/etc/passwd")])) == (
        "error: member 'a.py' is a symbolic link\n"
        "  at: w.whl\n"
        "  help: wheels hold no links; repack the wheel with the file itself"
    )
    for mode in (0o020644, 0o060644, 0o010644, 0o140644, MODE_DIRECTORY):
        assert refusal(build_zip([replace(A, mode=mode)])) == hostile(
            "member 'a.py' is neither a file nor a directory"
        )
    assert refusal(build_zip([replace(A, name=b"d/", mode=MODE_DIRECTORY)])) == hostile(
        "member 'd/' is a directory with 9 bytes of data"
    )


# Methods and flags


@pytest.mark.parametrize("flags", [0x0001, 0x0040, 0x2000])
def test_encryption(flags: int) -> None:
    assert refusal(build_zip([replace(A, flags=flags)])) == hostile("member 'a.py' is encrypted")


@pytest.mark.parametrize("method", [1, 9, 12, 14, 93, 99])
def test_other_methods(method: int) -> None:
    assert refusal(build_zip([replace(A, method=method)])) == (
        f"error: member 'a.py' has compression method {method}; "
        "expected 0 (stored) or 8 (deflated)\n"
        "  at: w.whl\n"
        "  help: repack the wheel with an ordinary wheel builder"
    )


def test_headers_agree() -> None:
    assert refusal(build_zip([replace(A, local_method=0)])) == hostile(
        "member 'a.py' has another method or flags in its local header"
    )
    for change in (
        replace(A, local_crc=1),
        replace(A, local_size=10),
        replace(A, local_csize=3),
        replace(A, local_crc=0, local_size=0, local_csize=0),
    ):
        assert refusal(build_zip([change])) == hostile(
            "member 'a.py' has other sizes or CRC in its local header"
        )
    assert refusal(build_zip([replace(A, method=STORED, csize=8, raw=b"print(1)")])) == hostile(
        "member 'a.py' is stored, but its two sizes differ: 8 and 9"
    )
    assert refusal(build_zip([replace(A, local_mark=b"PK\x03\x05")])) == damaged(
        "member 'a.py' has no local header"
    )


def test_extra_fields() -> None:
    for extra in (b"\1\0\x10\0abc", b"abc"):
        assert refusal(build_zip([replace(A, extra=extra)])) == hostile(
            "member 'a.py' has a malformed extra field"
        )
    twice = struct.pack("<2H", 1, 0) * 2
    assert refusal(build_zip([replace(A, extra=twice)])) == hostile(
        "member 'a.py' has two zip64 fields"
    )
    short = replace(A, size=0xFFFFFFFF, extra=struct.pack("<2HL", 1, 4, 0))
    assert refusal(build_zip([short])) == hostile("member 'a.py' has a malformed zip64 field")
    assert len(read(build_zip([replace(A, extra=b"\0\0\0")]))) == 1


# Where things lie


def test_what_is_no_archive_or_is_cut_off() -> None:
    assert refusal(b"") == damaged("the file is not a zip archive")
    assert refusal(b"<html>not found</html>") == damaged("the file is not a zip archive")
    whole = build_zip([A, B])
    for length in (4, 40, len(whole) - 30, len(whole) - 1):
        assert refusal(whole[:length]) == damaged(
            "the wheel is cut off: its zip archive has no end record"
        )


def test_nothing_before_between_or_after() -> None:
    assert refusal(build_zip([A], before=b"#!/bin/sh\n")) == hostile(
        "there are bytes before the first member of the zip archive"
    )
    assert refusal(build_zip([A], after=b"x")) == hostile(
        "there are bytes after the end of the zip archive"
    )
    assert refusal(build_zip([replace(A, after=b"hidden!"), B])) == hostile(
        "there are 7 hidden bytes after member 'a.py'"
    )
    assert refusal(build_zip([replace(A, listed=False), B])) == hostile(
        "there are bytes before the first member of the zip archive"
    )
    unlisted = build_zip([A, replace(B, listed=False)])
    assert refusal(unlisted).startswith("error: there are ")
    wrong = replace(with_descriptor(A), descriptor=b"PK\x07\x08" + bytes(12))
    assert refusal(build_zip([wrong, B])) == hostile(
        "there are 16 hidden bytes after member 'a.py'"
    )


def test_an_archive_in_the_comment_of_another_is_seen() -> None:
    inner = build_zip([B])
    assert refusal(build_zip([A], comment=inner)) == hostile(
        "the zip archive's central directory does not lie where its end record says: "
        f"expected it to end at byte {len(build_zip([A])) + len(inner) - 22}, "
        f"found {len(inner) - 22}"
    )


def test_an_ordinary_comment_is_no_harm() -> None:
    assert len(read(build_zip([A], comment=b"made by hand"))) == 1


def test_members_do_not_overlap() -> None:
    first = replace(A, name=b"aaaa")
    assert refusal(build_zip([first, replace(A, name=b"aaaa2", offset=0, listed=True)])).startswith(
        "error: member 'aaaa'"
    )
    inside = replace(B, csize=len(B.packed) + 10)
    assert refusal(build_zip([inside, A])) == hostile(
        "member 'b/c.py' overlaps what comes after it"
    )


def test_the_directory_is_exact() -> None:
    assert refusal(build_zip([A, B], entries=1)) == hostile(
        "the central directory has 52 bytes after its 1 entries"
    )
    cut = build_zip([A, B], entries=3)
    assert refusal(cut).startswith("error: the zip archive's central directory is malformed at")
    assert refusal(build_zip([A], directory_tail=b"junk")) == hostile(
        "the central directory has 4 bytes after its 1 entries"
    )
    assert refusal(build_zip([A], directory_shift=1)).startswith(
        "error: the zip archive's central directory does not lie where its end record says"
    )
    assert refusal(build_zip([A], disk=1)) == hostile(
        "the zip archive is spread over several disks"
    )
    # The plain end record has a number of its own beside zip64's.
    two = bytearray(build_zip([A], zip64=True))
    two[-14:-10] = b"\7\0\7\0"
    assert refusal(bytes(two)) == hostile(
        "the zip archive's two end records disagree about the directory's entries: 7 and 1"
    )


def test_a_zip64_locator_points_at_its_record() -> None:
    data = bytearray(build_zip([A], zip64=True))
    at = data.rfind(b"PK\x06\x07") + 8
    data[at] ^= 1
    assert refusal(bytes(data)) == hostile(
        "the zip64 end record does not lie where its locator says"
    )


# Bombs


def bomb(size: int, name: str = "bomb") -> ZipItem:
    return ZipItem(name=name.encode(), data=bytes(size), level=9)


def test_limits_of_size_and_number() -> None:
    small = Limits(members=1, member=50, total=60)
    assert refusal(build_zip([A, B]), small) == hostile(
        "the zip archive has 2 members in a directory of 102 bytes; the limits are 1 and 67108864"
    )
    assert refusal(build_zip([B]), small) == hostile(
        "member 'b/c.py' would unpack to 100 bytes; the limit is 50"
    )
    two = [item("1", b"x" * 40), item("2", b"x" * 40)]
    assert refusal(build_zip(two), small._replace(members=2)) == hostile(
        "the wheel would unpack to 80 bytes; the limit is 60"
    )


def test_bombs_are_known_by_their_ratio() -> None:
    one = bomb(17 << 20)
    assert refusal(build_zip([one])) == hostile(
        f"member 'bomb' would unpack {len(one.packed)} bytes to {17 << 20}, "
        "more than 250 times as many"
    )
    many = build_zip([bomb(1 << 20, f"b{n}") for n in range(4)])
    limits = Limits(total_ratio_from=2 << 20)
    assert refusal(many, limits) == hostile(
        f"the wheel would unpack {len(many)} bytes to {4 << 20}, more than 100 times as many"
    )
    assert len(read(many)) == 4


def test_a_directory_that_lies_about_sizes_is_found_without_reading_content() -> None:
    huge = replace(A, size=0xFFFFFFF0, local_size=0xFFFFFFF0, csize=None)
    assert refusal(build_zip([huge])) == hostile(
        f"member 'a.py' would unpack {len(deflate(A.data))} bytes to {0xFFFFFFF0}, "
        "more than 250 times as many"
    )
