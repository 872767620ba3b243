"""What scripts would have made: each file, and the database as dpkg reads it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from debian.packages import Made, Reader, make, rooted
from helpers.debmaker import Member, folder, symlink
from hq.debian.state import Made as Entry
from hq.debian.state import make_state


def state(*made: Made) -> dict[str, Entry]:
    root = rooted(*made)
    entries = make_state(root, [each.package for each in made], Reader(root, made))
    assert [entry.item.path for entry in entries] == sorted(entry.item.path for entry in entries)
    return {entry.item.path: entry for entry in entries}


def test_accounts_and_defaults_are_copied() -> None:
    passwd = b"root:*:0:0:root:/root:/bin/bash\n"
    found = state(
        make("base-passwd", [Member("./usr/share/base-passwd/passwd.master", passwd)]),
        make("libc-bin", [Member("./usr/share/libc-bin/nsswitch.conf", b"hosts: files dns\n")]),
    )
    assert found["etc/passwd"].data == passwd
    assert found["etc/nsswitch.conf"].data == b"hosts: files dns\n"
    assert found["etc/subuid"].data == b""
    assert "etc/shadow" not in found


def test_base_files_folders_and_links() -> None:
    found = state(make("base-files", [folder("./var/run"), folder("./var/lock", mode=0o1777)]))
    assert found["var/run"].item.link == "/run"
    assert found["run/lock"].item.mode == 0o1777
    assert found["var/mail"].item[2:5] == (0o2775, 0, 8)
    assert found["var/log/btmp"].item[2:5] == (0o660, 0, 43)


def test_a_file_of_a_package_is_not_replaced() -> None:
    found = state(
        make("base-files", [Member("./usr/share/base-files/motd", b"default")]),
        make("site", [Member("./etc/motd", b"ours")]),
    )
    assert "etc/motd" not in found


def test_shells() -> None:
    found = state(
        make("debianutils", [Member("./usr/share/debianutils/shells", b"# shells\n/bin/sh\n")]),
        make("zsh", [Member("./usr/share/debianutils/shells.d/zsh", b"/usr/bin/zsh\n")]),
        make("bash", [Member("./usr/share/debianutils/shells.d/bash", b"/bin/bash\n")]),
    )
    assert found["etc/shells"].data.decode().split("\n") == [
        "# shells", "/bin/sh", "/usr/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/zsh", "",
    ]  # fmt: skip


def test_alternatives() -> None:
    found = state(make("mawk", [Member("./usr/bin/mawk", b"x", mode=0o755)]))
    assert found["usr/bin/awk"].item.link == "/etc/alternatives/awk"
    assert found["etc/alternatives/awk"].item.link == "/usr/bin/mawk"
    assert found["etc/alternatives/nawk"].item.link == "/usr/bin/mawk"
    assert found["var/lib/dpkg/alternatives/awk"].data == (
        b"auto\n/usr/bin/awk\nnawk\n/usr/bin/nawk\n\n/usr/bin/mawk\n5\n/usr/bin/mawk\n\n"
    )
    assert "usr/bin/cc" not in found


def test_a_shell_and_a_time_zone() -> None:
    found = state(
        make("dash", [Member("./bin/dash", b"x", mode=0o755)]),
        make("tzdata", [Member("./usr/share/zoneinfo/Etc/UTC", b"TZif")]),
    )
    assert found["usr/bin/sh"].item.link == "dash"
    assert found["etc/localtime"].item.link == "/usr/share/zoneinfo/Etc/UTC"


def test_the_database() -> None:
    conf, plain = Member("./etc/one.conf", b"a = 1\n"), Member("./usr/bin/one", b"#!\n", mode=0o755)
    one = make(
        "one",
        [folder("./"), folder("./etc/"), conf, folder("./usr/"), folder("./usr/bin/"), plain],
        files={"conffiles": b"/etc/one.conf\n", "postinst": b"#!/bin/sh\n"},
        Multi_Arch="same",
    )
    two = make("a-two", [Member("./bin/two", b"2")], arch="all", sums=False)
    found = state(one, two)
    md5 = hashlib.md5(conf.data).hexdigest()
    assert found["var/lib/dpkg/status"].data.decode() == (
        "Package: a-two\nStatus: install ok installed\nVersion: 1.0\nArchitecture: all\n"
        "Maintainer: Nobody <nobody@example.org>\nDescription: a package\n made for a test\n"
        "\n"
        "Package: one\nStatus: install ok installed\nVersion: 1.0\nArchitecture: amd64\n"
        "Multi-Arch: same\nMaintainer: Nobody <nobody@example.org>\n"
        f"Description: a package\n made for a test\nConffiles:\n /etc/one.conf {md5}\n"
    )
    info = "var/lib/dpkg/info/"
    assert found[info + "one:amd64.list"].data == (
        b"/.\n/etc\n/etc/one.conf\n/usr\n/usr/bin\n/usr/bin/one\n"
    )
    # The name that the package gave it, not where the merged /usr puts it.
    assert found[info + "a-two.list"].data == b"/.\n/bin/two\n"
    assert found[info + "a-two.md5sums"].data == b"c81e728d9d4c2f636f067f89cc14862c  bin/two\n"
    assert found[info + "one:amd64.postinst"].item.mode == 0o755
    assert found[info + "one:amd64.conffiles"].data == b"/etc/one.conf\n"
    assert found[info + "format"].data == b"1\n"
    assert found["var/lib/dpkg/arch"].data == b"amd64\n"


@pytest.mark.system
def test_dpkg_query_reads_it(tmp_path: Path) -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("dpkg-query is not installed")
    one = make("one", [Member("./usr/bin/one", b"1")], Multi_Arch="same", version="2:1.0~rc-3")
    found = state(one, make("two", [symlink("./usr/bin/two", "one")], arch="all"))
    for path, entry in found.items():
        if path.startswith("var/lib/dpkg/"):
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(entry.data)
    query = ["dpkg-query", "--admindir", str(tmp_path / "var/lib/dpkg")]
    run: dict[str, Any] = {
        "capture_output": True,
        "text": True,
        "env": {**os.environ, "LC_ALL": "C"},
    }
    shown = subprocess.run(
        [*query, "-W", "-f", "${binary:Package} ${Version} ${db:Status-Status}\n"],
        check=True,
        **run,
    )
    assert shown.stdout == "one:amd64 2:1.0~rc-3 installed\ntwo 1.0 installed\n"
    owner = subprocess.run([*query, "-S", "/usr/bin/two"], check=True, **run)
    assert owner.stdout == "two: /usr/bin/two\n"
