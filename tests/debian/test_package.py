"""Reading packages: what comes out is what went in, and hostile ones are refused by name."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.debmaker import (
    COMPRESSORS,
    Member,
    ar,
    control,
    deb,
    folder,
    hard_link,
    md5sums,
    symlink,
    tar,
    tar_header,
)
from helpers.memory import MemoryBlobs, MemoryBytes
from hq.debian import package as package_module
from hq.debian.package import PIECE, Item, Package, read_package
from hq.model.errors import BuildError

HINT = "the package is damaged or hostile; do not use this file"


def read(data: bytes) -> tuple[Package, bytes]:
    """The index, and the pack."""
    store = MemoryBlobs()
    with store.create() as writer:
        package = read_package(MemoryBytes(data), writer, "demo.deb")
        pack = writer.commit()
    return package, store.read(pack)


def content(item: Item, pack: bytes) -> bytes:
    """An item's content out of the pack."""
    pieces = []
    for stream in item.streams:
        inflater = zlib.decompressobj(-15)
        piece = inflater.decompress(pack[stream.offset : stream.offset + stream.csize])
        assert inflater.eof and not inflater.unused_data
        assert (len(piece), zlib.crc32(piece)) == (stream.size, stream.crc)
        pieces.append(piece)
    return b"".join(pieces)


def refused(data: bytes) -> str:
    with pytest.raises(BuildError) as caught:
        read(data)
    lines = caught.value.render().split("\n")
    assert lines[1:] == ["  at: demo.deb", f"  help: {HINT}"]
    return lines[0].removeprefix("error: ")


NAMES = st.text("abcxyz019.-_+é \\", min_size=1, max_size=120).filter(
    lambda name: name not in (".", "..") and not name.startswith(".wh.")
)
FILES = st.dictionaries(NAMES, st.binary(max_size=2000), max_size=6)


@settings(max_examples=60)
@given(FILES, st.sampled_from(sorted(COMPRESSORS)), st.integers(0, 0o7777), st.integers(0, 99))
def test_what_went_in_comes_out(
    files: dict[str, bytes], compressor: str, mode: int, gid: int
) -> None:
    members = [
        folder("./"),
        folder("./usr/", gid=gid),
        *(Member(f"./usr/{name}", data, mode=mode, gid=gid) for name, data in files.items()),
        symlink("./link", "usr"),
    ]
    package, pack = read(deb(members, compressor=compressor, files={"md5sums": md5sums(members)}))
    found = {item.path: item for item in package.items}
    assert list(found) == ["usr", *(f"usr/{name}" for name in files), "link"]
    for name, data in files.items():
        item = found[f"usr/{name}"]
        assert (item.type, item.mode, item.uid, item.gid) == ("f", mode, 0, gid)
        assert content(item, pack) == data
        assert item.sha256 == hashlib.sha256(data).hexdigest()
        assert item.size == len(data)
    assert found["link"][:6] == ("link", "l", 0o777, 0, 0, "usr")
    assert Package.decode(package.encode()) == package


def test_the_offset_is_that_of_the_content_in_the_data_tar() -> None:
    members = [folder("./"), Member("./a", b"first"), Member("./b", b"second")]
    package, _ = read(deb(members))
    whole = tar(members)
    assert [whole[i.offset : i.offset + i.size] for i in package.items] == [b"first", b"second"]


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_pieces_are_cut_at_fixed_places(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    package, pack = read(deb([Member("./big", data)], compressor="gz"))
    (item,) = package.items
    assert [stream.size for stream in item.streams] == [
        min(PIECE, size - at) for at in range(0, size, PIECE)
    ]
    assert content(item, pack) == data


def test_a_pack_does_not_depend_on_how_the_package_is_compressed() -> None:
    members = [folder("./"), Member("./a", b"x" * 5000), Member("./b", bytes(3000))]
    packs = {read(deb(members, compressor=name))[1] for name in COMPRESSORS}
    assert len(packs) == 1


def test_several_compressed_streams_are_one() -> None:
    whole = tar([Member("./a", b"x" * 900)])
    for name, compress in COMPRESSORS.items():
        data = compress(whole[:700]) + compress(whole[700:])
        package, pack = read(
            ar(
                [
                    ("debian-binary", b"2.0\n"),
                    (
                        f"control.tar.{name}".rstrip("."),
                        compress(tar([Member("./control", control().encode())])),
                    ),
                    (f"data.tar.{name}".rstrip("."), data),
                ]
            )
        )
        assert content(package.items[0], pack) == b"x" * 900


def test_setuid_is_kept() -> None:
    package, _ = read(
        deb([Member("./su", b"x", mode=0o4755), Member("./pw", b"y", mode=0o2755, gid=42)])
    )
    assert [(i.mode, i.gid) for i in package.items] == [(0o4755, 0), (0o2755, 42)]


def test_configuration_files() -> None:
    members = [folder("./etc/"), Member("./etc/a", b"1"), Member("./etc/b", b"2")]
    lines = b"/etc/b\nremove-on-upgrade /etc/gone\n/etc/a\n"
    package, _ = read(deb(members, files={"conffiles": lines}))
    assert package.conffiles() == ["etc/b", "etc/a"]


def test_a_script_comes_back_as_it_was_whatever_its_encoding() -> None:
    script = b"#!/bin/sh\n# \xe9\xff\n"
    package, _ = read(deb(files={"postinst": script}))
    again = Package.decode(package.encode())
    assert again.files["postinst"].encode("utf-8", "surrogateescape") == script


BOMB = lzma.compress(bytes(8 << 20))
LONG = "a/" * 2500 + "x"


HOSTILE = {
    "no package": (b"PK\3\4", "this is no Debian package: it does not begin as an ar archive"),
    "nothing in it": (
        ar([]),
        "expected the members debian-binary, control.tar, data.tar, found none",
    ),
    "another order": (
        ar([("debian-binary", b"2.0\n"), ("data.tar", b""), ("control.tar", b"")]),
        "expected the members debian-binary, control.tar, data.tar, "
        "found debian-binary, data.tar, control.tar",
    ),
    "two data members": (
        ar(
            [
                ("debian-binary", b"2.0\n"),
                ("control.tar", b""),
                ("data.tar", b""),
                ("data.tar", b""),
            ]
        ),
        "expected the members debian-binary, control.tar, data.tar, "
        "found debian-binary, control.tar, data.tar, data.tar",
    ),
    "format 3": (
        ar([("debian-binary", b"3.0\n"), ("control.tar", b""), ("data.tar", b"")]),
        "expected a package of format 2.0, found b'3.0\\n'",
    ),
    "a strange compressor": (
        ar([("debian-binary", b"2.0\n"), ("control.tar.xz", b""), ("data.tar.lz4", b"")]),
        "data.tar has the unknown compressor 'lz4'",
    ),
    "a member that is cut off": (
        deb([Member("./a", b"x")])[:-30],
        "member 'data.tar.xz' states",
    ),
    "too many members": (
        ar([("debian-binary", b"2.0\n"), *(("_x", b"") for _ in range(20))]),
        "the package has more than 16 members",
    ),
    "a cut xz": (
        ar(
            [
                ("debian-binary", b"2.0\n"),
                ("control.tar.xz", lzma.compress(tar([Member("./control", control().encode())]))),
                ("data.tar.xz", lzma.compress(tar([Member("./a", b"x" * 99)]))[:-8]),
            ]
        ),
        "data.tar ends in the middle of its compressed stream",
    ),
    "a damaged xz": (
        deb()[:-40] + b"!" * 40,
        "data.tar cannot be decompressed: ",
    ),
    "an absolute name": (
        deb([Member("/etc/passwd", b"x")]),
        "data.tar: '/etc/passwd': an absolute path",
    ),
    "a name up": (deb([Member("./../x", b"")]), "data.tar: './../x': a '..' in the path"),
    "an empty part": (
        deb([Member("./a//b", b"")]),
        "data.tar: './a//b': an empty or '.' part in the path",
    ),
    "a whiteout": (
        deb([Member("./etc/.wh.passwd", b"")]),
        "data.tar: './etc/.wh.passwd': a name that begins with '.wh.' would remove files of the "
        "layers below",
    ),
    "a line feed": (
        deb([Member("./a\nb", b"")]),
        "data.tar: './a\\nb': a control character in the name",
    ),
    "a long name": (deb([Member(LONG, b"")]), "data.tar has a name of more than 4096 bytes"),
    "a symlink out": (
        deb([symlink("./usr/x", "../../etc")]),
        "data.tar: 'usr/x': a symlink out of the tree, to '../../etc'",
    ),
    "an empty symlink": (deb([symlink("./x", "")]), "data.tar: 'x': a symlink without a target"),
    "a file through a symlink": (
        deb([symlink("./etc", "/tmp"), Member("./etc/x", b"")]),
        "data.tar: 'etc/x' would be written through 'etc', which is a symlink",
    ),
    "a file beneath a file": (
        deb([Member("./a", b""), Member("./a/b", b"")]),
        "data.tar: 'a/b' would be written through 'a', which is a file",
    ),
    "a hard link to nothing": (
        deb([hard_link("./x", "./y")]),
        "data.tar: 'x' is a hard link to 'y', which is not before it",
    ),
    "a hard link to a symlink": (
        deb([symlink("./y", "z"), hard_link("./x", "./y")]),
        "data.tar: 'x' is a hard link to 'y', which is a symlink",
    ),
    "a hard link out": (
        deb([hard_link("./x", "../y")]),
        "data.tar: '../y': a '..' in the path",
    ),
    "twice": (deb([Member("./a", b"1"), Member("./a", b"2")]), "data.tar has 'a' twice"),
    "a device": (deb([Member("./null", type=b"3")]), "data.tar: './null' is a character device"),
    "a fifo": (deb([Member("./p", type=b"6")]), "data.tar: './p' is a FIFO"),
    "a pax header": (deb([Member("./p", b"x", type=b"x")]), "data.tar: './p' is a pax header"),
    "an unknown type": (
        deb([Member("./p", type=b"Z")]),
        "data.tar: './p' has the unknown type b'Z'",
    ),
    "a root that is a file": (
        deb([Member("./", b"", type=b"2", link="x")]),
        "data.tar: the root './' is no directory",
    ),
    "a link with content": (
        deb([Member("./a", b"x", type=b"2", link="y")]),
        "data.tar: './a' is a link with content",
    ),
    "a huge owner": (
        deb([Member("./a", uid=8**7)]),
        "data.tar: './a' belongs to 2097152:0",
    ),
    "a bad checksum": (
        deb(data=b"x" + tar([Member("./a")])[1:]),
        "data.tar has a damaged header at byte 0",
    ),
    "no end": (deb([Member("./a", b"x")], end=b""), "data.tar is cut off at byte 1024"),
    "more after the end": (
        deb([Member("./a", b"x")], end=bytes(1024) + b"more"),
        "data.tar goes on after its end",
    ),
    "content cut off": (
        deb(data=tar_header(Member("./a"), size=5000) + b"x" * 512),
        "data.tar is cut off at byte 1024",
    ),
    "md5sums that lie": (
        deb([Member("./a", b"x")], files={"md5sums": b"0" * 32 + b"  a\n"}),
        "data.tar: 'a' is not what md5sums says",
    ),
    "md5sums of nothing": (
        deb(files={"md5sums": b"0" * 32 + b"  gone\n"}),
        "md5sums names 'gone', which is not in the package",
    ),
    "md5sums unreadable": (
        deb(files={"md5sums": b"hello\n"}),
        "the file md5sums cannot be read: line 1",
    ),
    "no control": (deb(text=""), "the control file cannot be read: line 1"),
    "a control file with a field twice": (
        deb(text="Package: a\nPackage: b\n"),
        "the control file cannot be read: line 2",
    ),
    "no version": (
        deb(text="Package: demo\nArchitecture: all\n"),
        "the control file has no field Version",
    ),
    "a name with a slash": (
        deb(text=control(name="../x")),
        "the control file's Package is '../x'",
    ),
    "conffile of nothing": (
        deb(files={"conffiles": b"/etc/x\n"}),
        "the configuration file /etc/x is declared and not in the package",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    data, message = HOSTILE[name]
    assert refused(data).startswith(message)


def test_a_bomb_is_stopped_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_module, "MAX_DATA", 1 << 20)
    data = ar(
        [
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", lzma.compress(tar([Member("./control", control().encode())]))),
            ("data.tar.xz", lzma.compress(tar([Member("./a", bytes(8 << 20))]))),
        ]
    )
    assert refused(data) == "data.tar unpacks to more than 1048576 bytes"


def test_too_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hq.debian.tar.MAX_ENTRIES", 3)
    members = [Member(f"./{number}") for number in range(4)]
    assert refused(deb(members)) == "data.tar has more than 3 entries"


@settings(max_examples=150)
@given(st.data())
def test_a_damaged_package_is_refused_or_read_the_same(data: st.DataObject) -> None:
    good = deb([folder("./a/"), Member("./a/b", b"hello" * 40)], compressor="gz")
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    try:
        package, pack = read(bytes(bad))
    except BuildError:
        return
    # Bytes that nothing depends on: owners and dates in the ar headers, gzip's header.
    assert [content(item, pack) for item in package.items if item.type == "f"] == [b"hello" * 40]


@pytest.mark.system
def test_a_package_of_dpkg_deb(tmp_path: Path) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not installed")
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(control())
    deep = tree / "usr" / ("d" * 120)
    deep.mkdir(parents=True)
    (deep / "é").write_bytes(b"text")
    (tree / "usr" / "link").symlink_to("x" * 150)
    for compressor in ("xz", "gzip", "none", "zstd"):
        target = tmp_path / f"{compressor}.deb"
        done = subprocess.run(
            ["dpkg-deb", f"-Z{compressor}", "--root-owner-group", "-b", tree, target],
            check=False,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr
        package, pack = read(target.read_bytes())
        found = {item.path: item for item in package.items}
        assert content(found[f"usr/{'d' * 120}/é"], pack) == b"text"
        assert found["usr/link"].link == "x" * 150
