"""The loader's cache; ldconfig reads it and would have made the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debian.packages import Reader, make, rooted
from helpers.debmaker import Member, symlink
from hq.debian.loader import Library, describe, encode, loader_cache


def library(folder: Path, name: str, soname: str = "") -> bytes:
    """A shared object of the C compiler's."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler is installed")
    options = [f"-Wl,-soname,{soname}"] if soname else []
    path = folder / name
    command = ["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", str(path), *options]
    subprocess.run(command, check=True, capture_output=True)
    return path.read_bytes()


def listed(folder: Path, cache: bytes) -> list[str]:
    """What ``ldconfig -p`` says of a cache."""
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    if not Path(ldconfig).exists():
        pytest.skip("ldconfig is not installed")
    (folder / "cache").write_bytes(cache)
    command = [ldconfig, "-p", "-C", str(folder / "cache")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [line.strip() for line in done.stdout.split("\n")[1:] if " => " in line]


@pytest.mark.system
def test_ldconfig_makes_the_same(tmp_path: Path) -> None:
    one = library(tmp_path, "one", "libone.so.1")
    two = library(tmp_path, "two")
    members = [
        Member("./etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n"),
        Member("./etc/ld.so.conf.d/x.conf", b"# a comment\n/usr/local/lib\n/lib/deep\n"),
        Member("./usr/lib/deep/libone.so.1.2.3", one),
        symlink("./usr/lib/deep/libone.so.1", "libone.so.1.2.3"),
        symlink("./usr/lib/deep/libone.so", "libone.so.1"),
        Member("./usr/lib/libtwo.so", two),
        Member("./usr/lib/libtext.so", b"INPUT(libone.so)"),
        symlink("./usr/lib/libgone.so.1", "nowhere"),
        symlink("./usr/lib/libloop.so.1", "libloop.so.1"),
    ]
    made = make("libs", members)
    root = rooted(made)
    ours = loader_cache(root, Reader(root, [made]))
    tree = tmp_path / "root"
    for member in members:
        target = tree / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if member.link:
            target.symlink_to(member.link)
        else:
            target.write_bytes(member.data)
    (tree / "lib").symlink_to("usr/lib")
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    # Only -C is there for reading, so the files of the root are made by ldconfig in place.
    done = subprocess.run([ldconfig, "-X", "-r", str(tree)], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip("ldconfig -r needs more privileges here")
    theirs = (tree / "etc/ld.so.cache").read_bytes()
    assert listed(tmp_path, ours) == listed(tmp_path, theirs)
    assert [line.split()[0] for line in listed(tmp_path, ours)] == [
        "libtwo.so", "libone.so.1", "libone.so",
    ]  # fmt: skip


NAMES = st.from_regex(r"lib[a-c]{1,2}[1-2]{0,2}\.so(\.(0|[1-9][0-9]{0,2})){0,2}", fullmatch=True)


@given(st.sets(NAMES, max_size=12))
def test_every_library_is_found_by_glibc_s_search(names: set[str]) -> None:
    cache = encode([Library(name, f"/lib/{name}", 0x303) for name in sorted(names)])
    count = int.from_bytes(cache[20:24], "little")
    assert count == len(names)
    keys = []
    for number in range(count):
        at = 48 + 24 * number
        start = int.from_bytes(cache[at + 4 : at + 8], "little")
        keys.append(cache[start : cache.index(b"\0", start)].decode())
    for wanted in names:  # glibc, elf/dl-cache.c: the records stand in falling order
        left, right = 0, count - 1
        while left <= right:
            middle = (left + right) // 2
            order = compare(wanted, keys[middle])
            if order == 0:
                break
            left, right = (middle + 1, right) if order < 0 else (left, middle - 1)
        assert keys[middle] == wanted


def compare(left: str, right: str) -> int:
    """glibc's ``_dl_cache_libcmp``, from its description: digits are numbers and come last."""
    pattern = r"[0-9]+|[^0-9]"
    for a, b in zip(re.findall(pattern, left), re.findall(pattern, right), strict=False):
        if a.isdigit() != b.isdigit():
            return 1 if a.isdigit() else -1
        if a.isdigit() and int(a) != int(b):
            return int(a) - int(b)
        if not a.isdigit() and a != b:
            return ord(a) - ord(b)
    return len(re.findall(pattern, left)) - len(re.findall(pattern, right))


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 90, b"#!"]
)
def test_what_is_no_library_is_left_out(data: bytes) -> None:
    assert describe(data) is None
