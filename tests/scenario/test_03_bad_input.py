"""Bad input: one clear message with an exit code, a store as before, and a build that works after.

Every case changes a project that builds, sees the exact message, changes it back, and builds.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.project import FILES, SampleProject, diff, patch
from helpers.wheelmaker import MODE_SYMLINK, ZipItem, build_zip, wheel_items

WHEEL = "demo-1.0-py3-none-any.whl"
Change = Callable[[SampleProject], object]


def text(done: subprocess.CompletedProcess[str]) -> str:
    """The error, without the lines that tell what was built before it."""
    lines = done.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("built "))


def blobs_of(project: SampleProject) -> dict[str, bytes]:
    """What the store has, by name."""
    return {
        str(path.relative_to(project.store)): path.read_bytes()
        for part in ("cas", "ac")
        for path in sorted((project.store / part).rglob("*"))
        if path.is_file()
    }


def files_of(folder: Path) -> dict[str, bytes]:
    """What the project has."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Case:
    """A project that was built. ``refused`` sees it refused; ``mend`` puts it back and builds."""

    def __init__(self, project: SampleProject) -> None:
        self.project = project
        self.good = project.build()["images"]
        self.sources = files_of(project.root)
        self.wheel = (project.links / WHEEL).read_bytes()

    def refused(self, code: int, message: str, *arguments: str, **options: object) -> None:
        """Asserts the outcome of a build, and that the store still has what it had."""
        before = blobs_of(self.project)
        done = self.project.run("build", *arguments, **options)  # type: ignore[arg-type]
        assert (done.returncode, text(done)) == (code, message)
        assert done.stdout == ""
        after = blobs_of(self.project)
        assert {name: after.get(name) for name in before} == before
        assert not list((self.project.store / "tmp").iterdir())

    def mend(self) -> None:
        """Puts everything back and builds."""
        shutil.rmtree(self.project.root)
        (self.project.links / WHEEL).write_bytes(self.wheel)
        for name, data in self.sources.items():
            self.project.write(name, data)
        assert self.project.build()["images"] == self.good


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(SampleProject(tmp_path_factory.mktemp("shared")))


@pytest.fixture
def case(shared: Case) -> Iterator[Case]:
    yield shared
    shared.mend()


def substitute(path: str, pattern: str, new: str) -> Change:
    def change(project: SampleProject) -> None:
        changed, count = re.subn(pattern, new, project.read(path))
        assert count == 1
        project.write(path, changed)

    return change


def a_name_in_latin_1(project: SampleProject) -> None:
    folder = os.fsencode(project.root / "over/files/vllm")
    Path(os.fsdecode(folder + b"/caf\xe9.py")).write_text("")


def a_pipe(project: SampleProject) -> None:
    (project.root / "patches/first.patch").unlink()
    os.mkfifo(project.root / "patches/first.patch")


LOCK = "lockfiles/1.0.toml"

DECLARED: dict[str, tuple[Change, str]] = {
    "lock of another pin": (
        substitute(LOCK, 'pin = "1.0"', 'pin = "2.0"'),
        "error: lockfiles/1.0.toml has 2 mistakes\n"
        "  lockfiles/1.0.toml:2: pin: expected '1.0', found '2.0': the lock is for another pin "
        "(make the lock of this pin)\n"
        "  lockfiles/1.0.toml:7: wheel[0].version: expected the pin '2.0', found '1.0'\n",
    ),
    "lock of another version": (
        substitute(LOCK, 'version = "1.0"', 'version = "2.0"'),
        "error: lockfiles/1.0.toml has 2 mistakes\n"
        "  lockfiles/1.0.toml:7: wheel[0].version: expected the pin '1.0', found '2.0'\n"
        "  lockfiles/1.0.toml:8: demo-1.0-py3-none-any.whl is no wheel of demo 2.0\n",
    ),
    "lock of something else": (
        substitute(LOCK, 'distribution = "demo"', 'distribution = "other"'),
        "error: lockfiles/1.0.toml has one mistake\n"
        "  lockfiles/1.0.toml:3: distribution: expected one wheel of other, found 0\n",
    ),
    "no sha256": (
        substitute(LOCK, 'sha256 = "[0-9a-f]+"', 'sha256 = "abc"'),
        "error: lockfiles/1.0.toml has one mistake\n"
        "  lockfiles/1.0.toml:9: wheel[0].sha256: expected a text that matches ^[0-9a-f]{64}$, "
        'found "abc"\n',
    ),
    "a misspelt key in a row of a table": (
        substitute(LOCK, "size", "sise"),
        "error: lockfiles/1.0.toml has 2 mistakes\n"
        "  lockfiles/1.0.toml:5: wheel[0].size: missing\n"
        "  lockfiles/1.0.toml:10: wheel[0].sise: unknown key (did you mean 'size'?)\n",
    ),
    "an unknown key": (
        substitute("build.toml", "default-pin", "defaultpin"),
        "error: build.toml has 2 mistakes\n"
        "  build.toml:5: project.default-pin: missing\n"
        "  build.toml:7: project.defaultpin: unknown key (did you mean 'default-pin'?)\n",
    ),
    "a default pin that is not declared": (
        substitute("build.toml", 'default-pin = "1.0"', 'default-pin = "1.1"'),
        "error: build.toml has one mistake\n"
        "  build.toml:7: project.default-pin: there is no pin '1.1' (did you mean '1.0'?)\n",
    ),
    "a path out of the project": (
        substitute("build.toml", "lockfiles/1.0.toml", "../1.0.toml"),
        "error: build.toml has one mistake\n"
        "  build.toml:14: pins.\"1.0\".lock: a '..' in the path; "
        "a path is relative to the project's root\n",
    ),
    "a prefix that the kernel takes": (
        substitute("images/demo.toml", 'prefix = "/opt', 'prefix = "/proc'),
        "error: images/demo.toml has one mistake\n"
        "  images/demo.toml:3: prefix: nothing can be kept in /proc: "
        "a container has a file system of the kernel there\n",
    ),
    "another schema": (
        substitute("build.toml", "hq.project/1", "hq.project/2"),
        "error: build.toml has one mistake\n"
        "  build.toml:1: schema: expected 'hq.project/1', found \"hq.project/2\" "
        "(did you mean 'hq.project/1'?)\n",
    ),
    "not UTF-8": (
        lambda project: project.write("build.toml", project.read("build.toml").encode() + b"#\xff"),
        "error: build.toml has one mistake\n  build.toml:16: not UTF-8: byte 0xff\n",
    ),
    "not TOML": (
        lambda project: project.write("build.toml", project.read("build.toml") + "[oops\n"),
        "error: build.toml has one mistake\n"
        "  build.toml:16: not valid TOML: Expected ']' at the end of a table declaration "
        "(column 6)\n",
    ),
    "no build.toml": (
        lambda project: (project.root / "build.toml").unlink(),
        "error: there is no build.toml here or in any folder above\n"
        "  help: run hq inside a project\n",
    ),
    "no lock": (
        lambda project: (project.root / LOCK).unlink(),
        "error: build.toml has one mistake\n"
        "  build.toml:14: lock: there is no file lockfiles/1.0.toml\n",
    ),
    "no image": (
        lambda project: (project.root / "images/demo.toml").unlink(),
        "error: build.toml has one mistake\n"
        "  build.toml:3: images: there is no file images/demo.toml\n",
    ),
    "no registry": (
        lambda project: (project.root / "patches/knobs.toml").unlink(),
        "error: build.toml has one mistake\n"
        "  build.toml:10: knobs.registry: there is no file patches/knobs.toml\n",
    ),
    "a folder for a file": (
        substitute("build.toml", "patches/series", "patches"),
        "error: patches is not a regular file\n  at: patches\n",
    ),
    "a pipe for a patch": (
        a_pipe,
        "error: patches/first.patch is not a regular file\n  at: patches/first.patch\n",
    ),
    "a link to a folder": (
        lambda project: (project.root / "over/files/vllm/more").symlink_to("extra"),
        "error: over/files/vllm/more is not a regular file\n  at: over/files/vllm/more\n",
    ),
    "a name that is not UTF-8": (
        a_name_in_latin_1,
        "error: over/files has one mistake\n"
        "  over/files/vllm/caf\\udce9.py: the name of the file is not UTF-8 (rename it)\n",
    ),
    "a patch in no series": (
        lambda project: project.write("patches/orphan.patch", ""),
        "error: one patch file is in no series\n"
        "  patches/orphan.patch: this patch is in no series (name it in one, or remove it)\n",
    ),
    "a series without its patches": (
        lambda project: project.write(
            "patches/series", project.read("patches/series") + "nowhere.patch\nother/gone.patch\n"
        ),
        "error: patches/series has 2 mistakes\n"
        "  patches/series:5: there is no patch file 'nowhere.patch'\n"
        "  patches/series:6: there is no patch file 'other/gone.patch'\n",
    ),
    "patches in no series": (
        lambda project: [project.write(f"patches/{name}.patch", "") for name in ("x", "sub/y")],
        "error: 2 patch files are in no series\n"
        "  patches/sub/y.patch: this patch is in no series (name it in one, or remove it)\n"
        "  patches/x.patch: this patch is in no series (name it in one, or remove it)\n",
    ),
    "a series with fuzz and without its patch": (
        substitute("patches/series", "first.patch", "gone.patch --fuzz=3"),
        "error: patches/series has 2 mistakes\n"
        "  patches/series:1: there is no patch file 'gone.patch'\n"
        "  patches/series:1: unknown option '--fuzz=3' "
        "(the options are -pN (default -p1) and -R)\n",
    ),
    "a patch twice": (
        lambda project: project.write(
            "patches/series", project.read("patches/series") + "first.patch\n"
        ),
        "error: patches/series has one mistake\n"
        "  patches/series:5: 'first.patch' stands twice, first at line 1\n",
    ),
    "a series with fuzz": (
        substitute("patches/series", "first.patch", "first.patch --fuzz=3"),
        "error: patches/series has one mistake\n"
        "  patches/series:1: unknown option '--fuzz=3' "
        "(the options are -pN (default -p1) and -R)\n",
    ),
    "a knob twice": (
        lambda project: project.write(
            "patches/knobs.toml",
            project.read("patches/knobs.toml")
            + project.read("patches/knobs.toml").split("\n\n", 1)[1],
        ),
        "error: patches/knobs.toml has one mistake\n"
        "  patches/knobs.toml:12: knob[1].name: VLLM_FORK_LEVEL is already declared as knob[0]\n",
    ),
    "a knob that nobody has": (
        substitute("patches/knobs.toml", "patch:fourth", "patch:forth"),
        "error: patches/knobs.toml has one mistake\n"
        "  patches/knobs.toml:4: VLLM_FORK_LEVEL is owned by patch:forth, which no pin has "
        "(did you mean 'patch:fourth'?)\n",
    ),
    "an overlay twice": (
        substitute(
            "build.toml",
            r'overlays = \["over/overlay.toml"\]',
            'overlays = ["over/overlay.toml", "over/overlay.toml"]',
        ),
        "error: over/overlay.toml has one mistake\n"
        "  over/overlay.toml:2: name: over/overlay.toml is also called 'over'\n",
    ),
}


@pytest.mark.parametrize("name", DECLARED)
def test_01_a_mistake_in_a_declaration(case: Case, name: str) -> None:
    change, message = DECLARED[name]
    change(case.project)
    case.refused(2, message)


def test_02_mistakes_in_several_files_are_told_at_once(case: Case) -> None:
    substitute(LOCK, "size", "sise")(case.project)
    case.project.write("patches/orphan.patch", "x")
    substitute("patches/knobs.toml", '"int"', '"integer"')(case.project)
    substitute("over/overlay.toml", "literal-member", "literal")(case.project)
    substitute("images/demo.toml", 'prefix = "/opt/demo"', 'prefix = "opt/../demo"')(case.project)
    case.refused(
        2,
        "error: 5 files have mistakes\n"
        "  lockfiles/1.0.toml has 2 mistakes\n"
        "    lockfiles/1.0.toml:5: wheel[0].size: missing\n"
        "    lockfiles/1.0.toml:10: wheel[0].sise: unknown key (did you mean 'size'?)\n"
        "  one patch file is in no series\n"
        "    patches/orphan.patch: this patch is in no series (name it in one, or remove it)\n"
        "  over/overlay.toml has one mistake\n"
        "    over/overlay.toml:14: facts.check[0].kind: expected 'literal-member', 'dict-entry', "
        "'enum-member', 'assign', 'function-returns', 'name-in-function', 'call-in-function' or "
        "'name-absent', found \"literal\" (did you mean 'literal-member'?)\n"
        "  images/demo.toml has one mistake\n"
        "    images/demo.toml:3: prefix: expected an absolute path in the image without '..' or a "
        "final '/'\n"
        "  patches/knobs.toml has one mistake\n"
        "    patches/knobs.toml:6: knob[0].type: expected 'bool', 'int', 'float', 'str', 'choice' "
        "or 'path', found \"integer\" (did you mean 'int'?)\n",
    )


ARGUMENTS: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "a pin that is not declared": (
        ("--pin", "9"),
        {},
        "error: there is no pin '9' in build.toml\n"
        "  at: build.toml:13\n"
        "  declared: 1.0\n"
        "  help: name one of these, or add a [pins] table and a lock for it\n",
    ),
    "an epoch that is none": (
        (),
        {"SOURCE_DATE_EPOCH": "yesterday"},
        "error: SOURCE_DATE_EPOCH: expected seconds since 1970 as decimal digits, "
        "found 'yesterday'\n"
        "  help: unset it for the default, 0\n",
    ),
    "an epoch that is too late": (
        (),
        {"SOURCE_DATE_EPOCH": "99999999999"},
        "error: SOURCE_DATE_EPOCH: expected at most 8589934591, found '99999999999'\n"
        "  help: a layer's time stamps end in the year 2242\n",
    ),
    "an option that is none": (
        ("--colour",),
        {},
        "usage: hq [-h] [--version] COMMAND ...\nhq: error: unrecognized arguments: --colour\n",
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_03_a_mistake_in_the_command(case: Case, name: str) -> None:
    arguments, variables, message = ARGUMENTS[name]
    case.refused(2, message, *arguments, env=variables)


def forged(change: Callable[[list[ZipItem]], list[ZipItem] | bytes | None]) -> Change:
    """Puts a wheel that is locked by its true hash, and wrong inside, into the store."""

    def make(project: SampleProject) -> None:
        items = wheel_items(FILES, project="demo", version="1.0")
        changed = change(items)
        data = changed if isinstance(changed, bytes) else build_zip(changed or items)
        (project.links / WHEEL).write_bytes(data)
        project.lock(WHEEL, data)
        project.supply()

    return make


def lie(path: str, old: bytes, new: bytes) -> Callable[[list[ZipItem]], None]:
    def change(items: list[ZipItem]) -> None:
        (place,) = (n for n, item in enumerate(items) if item.name == path.encode())
        assert old in items[place].data
        items[place] = dataclasses.replace(
            items[place], data=items[place].data.replace(old, new, 1)
        )

    return change


def another_version(_: list[ZipItem]) -> bytes:
    return build_zip(wheel_items(FILES, project="demo", version="2.0"))


WHEELS: dict[str, tuple[Change, str]] = {
    "cut off": (
        forged(lambda items: build_zip(items)[:-1000]),
        "error: the wheel is cut off: its zip archive has no end record\n"
        f"  at: {WHEEL}\n"
        "  node: wheel:demo\n"
        "  help: the file is damaged or cut off; fetch the wheel again\n",
    ),
    "a path out of it": (
        forged(lambda items: [ZipItem(name=b"../evil.py", data=b"x"), *items]),
        "error: member '../evil.py': a '..' in the path\n"
        f"  at: {WHEEL}\n"
        "  node: wheel:demo\n"
        "  help: no wheel builder writes this; do not use this file\n",
    ),
    "an absolute path": (
        forged(lambda items: [ZipItem(name=b"/etc/evil", data=b"x"), *items]),
        "error: member '/etc/evil': an absolute path\n"
        f"  at: {WHEEL}\n"
        "  node: wheel:demo\n"
        "  help: no wheel builder writes this; do not use this file\n",
    ),
    "a symbolic link": (
        forged(lambda items: [ZipItem(name=b"vllm/x", data=b"/etc", mode=MODE_SYMLINK), *items]),
        "error: member 'vllm/x' is a symbolic link\n"
        f"  at: {WHEEL}\n"
        "  node: wheel:demo\n"
        "  help: wheels hold no links; repack the wheel with the file itself\n",
    ),
    "a RECORD that lies": (
        forged(lie("vllm/data.bin", b"\x00", b"\x01")),
        "error: member 'vllm/data.bin' is not what RECORD says\n"
        f"  at: {WHEEL}\n"
        "  node: layer:wheel\n"
        "  expected sha256 e96760a87768717bcebcfd25ddc7d46b4dbc95a4b0014def080c08539f7d90d0\n"
        "  found    sha256 9bfb346c54ee7acadff017391814e231c64b941588814f5c3c0ce058a553b4ea\n"
        "  help: the wheel is damaged or its metadata lies; do not use this file\n",
    ),
    "another version inside": (
        forged(another_version),
        "error: the wheel's version is '2.0'; the lock says '1.0'\n"
        f"  at: {WHEEL}/demo-2.0.dist-info/METADATA:3\n"
        "  node: wheel:demo\n"
        "  help: lock this wheel, or fetch the one that is locked\n",
    ),
}


@pytest.mark.parametrize("name", WHEELS)
def test_04_a_bad_wheel(case: Case, name: str) -> None:
    change, message = WHEELS[name]
    change(case.project)
    case.refused(1, message, "-j1")


def test_05_a_lie_about_a_patched_file_stops_its_patch(project: SampleProject) -> None:
    forged(lie("vllm/one.py", b"line 1\n", b"line X\n"))(project)
    done = project.run("build", "-j1")
    assert done.returncode == 1
    assert text(done) == (
        "error: member 'vllm/one.py' is not what RECORD says\n"
        "  at: wheel:demo\n"
        "  node: patch:first\n"
        "  expected sha256 48f12c137e3b430d27afa58900975bed0d5767cd73ded61789fd0c15335fa9fc\n"
        "  found    sha256 0df97e626c5e449033d4f5a5c40627a9b770a7f939f61b35567531df6bc73d91\n"
        "  help: the wheel is damaged or its metadata lies; do not use this file\n"
    )


def test_06_another_file_than_the_locked_one(case: Case) -> None:
    data = (case.project.links / WHEEL).read_bytes()
    found = case.project.read(LOCK)
    sha256 = re.search(r'sha256 = "([0-9a-f]+)"', found)
    assert sha256 is not None
    substitute(LOCK, 'sha256 = "[0-9a-f]+"', f'sha256 = "{"ab" * 32}"')(case.project)
    case.refused(
        1,
        "error: this is not the locked wheel of demo 1.0\n"
        f"  at: {WHEEL}\n"
        "  node: wheel:demo\n"
        f"  expected: sha256 {'ab' * 32}\n"
        f"  found:    sha256 {sha256[1]}\n"
        "  help: do not use this file unless you know why it differs; then lock the pin again\n",
    )
    case.project.write(LOCK, found)
    substitute(LOCK, r"size = \d+", "size = 12345")(case.project)
    case.refused(
        1,
        "error: this is not the locked wheel of demo 1.0\n"
        f"  at: {WHEEL}\n"
        "  node: wheel:demo\n"
        "  expected: 12345 bytes\n"
        f"  found:    {len(data)} bytes\n"
        "  help: do not use this file unless you know why it differs; then lock the pin again\n",
    )


def test_07_a_wheel_that_may_not_be_fetched(fresh: SampleProject) -> None:
    lock = fresh.read(LOCK)
    found = re.search(r'sha256 = "([0-9a-f]+)"\nsize = (\d+)', lock)
    assert found is not None
    done = fresh.run("build", "--offline")
    assert done.returncode == 1
    assert text(done) == (
        "error: demo 1.0 is not in the store, and --offline forbids to fetch it\n"
        "  node: wheel:demo\n"
        f"  file:   {WHEEL}\n"
        f"  sha256: {found[1]}\n"
        f"  size:   {found[2]} bytes ({int(found[2]) / 1000:.1f} kB)\n"
        "  help: run once without --offline, or give the file with --wheel FILE\n"
    )
    assert fresh.build()["nodes"]["built"] == 13
    assert fresh.build("--offline")["built"] == []


CONTENT: dict[str, tuple[Change, str]] = {
    "an overlay over a file": (
        lambda project: project.write("over/files/vllm/one.py", "x"),
        "error: the overlay would overwrite vllm/one.py\n"
        "  at: over/files/vllm/one.py\n"
        "  node: overlay:over\n"
        "  a file stands there already, with another content\n"
        "  help: give the file another name, or list the path in overlay.toml: files.replaces\n",
    ),
    "an overlay beneath a file": (
        lambda project: project.write("over/files/vllm/one.py/x.py", "x"),
        "error: the overlay cannot put a file at vllm/one.py/x.py: vllm/one.py is no directory\n"
        "  at: over/files/vllm/one.py/x.py\n"
        "  node: overlay:over\n",
    ),
    "a false fact": (
        substitute("over/overlay.toml", 'value = "extra"', 'value = "ultra"'),
        "error: the declared fact 'kind' does not hold: the parser takes the kind\n"
        "  at: vllm/config.py\n"
        "  node: overlay:over\n"
        "  check: literal-member, target = 'Kind', value = 'ultra'\n"
        "  found: 'ultra' is 0 times among the members of Kind\n"
        "  help: mend the overlay's files or patches, or the fact in overlay.toml if it is wrong\n",
    ),
    "a fact about no file": (
        substitute("over/overlay.toml", "vllm/config.py", "vllm/confg.py"),
        "error: the declared fact 'kind' does not hold: the parser takes the kind\n"
        "  at: vllm/confg.py\n"
        "  node: overlay:over\n"
        "  check: literal-member, target = 'Kind', value = 'extra'\n"
        "  found: there is no such file\n"
        "  help: mend the overlay's files or patches, or the fact in overlay.toml if it is wrong\n",
    ),
    "a knob that is read and not registered": (
        substitute("patches/fourth.patch", "VLLM_FORK_LEVEL", "VLLM_FORK_LEVLE"),
        "error: the audit of environment knobs found one fault\n"
        "  node: audit\n"
        "  vllm/three.py:5: envs.VLLM_FORK_LEVLE is read and VLLM_FORK_LEVLE is not registered "
        "(did you mean VLLM_FORK_LEVEL?)\n",
    ),
    "a raw read": (
        lambda project: project.write(
            "over/files/vllm/extra/__init__.py", "import os\nX = os.environ['DEMO_X']\n"
        ),
        "error: the audit of environment knobs found one fault\n"
        "  node: audit\n"
        "  vllm/extra/__init__.py:2: raw read of DEMO_X, which is not registered "
        "(declare DEMO_X in knobs.toml and read it as envs.DEMO_X)\n",
    ),
    "no module for the knobs": (
        substitute("build.toml", "vllm/envs.py", "vllm/env.py"),
        "error: there is no vllm/env.py to write the knobs into\n"
        "  at: vllm/env.py\n"
        "  node: envs\n"
        "  help: name the module in build.toml: knobs.target\n",
    ),
    "a patch without a diff": (
        lambda project: project.write("patches/third.patch", "Only words.\n"),
        "error: patches/third.patch is refused: the patch changes nothing: no diff in it, "
        "only text\n"
        "  at: patches/third.patch\n"
        "  node: patch:third\n"
        "  help: drop it from the series or add its diff\n",
    ),
    "a patch that creates a file that is there": (
        lambda project: project.write(
            "patches/third.patch",
            patch("Third", "--- /dev/null\n+++ b/vllm/one.py\n@@ -0,0 +1 @@\n+x\n"),
        ),
        "error: patches/third.patch does not apply: creates 'vllm/one.py', which exists with other "
        "content\n"
        "  at: patches/third.patch:11\n"
        "  node: patch:third\n"
        "  help: drop the patch if the tree has its own version of the file, or make it again\n",
    ),
    "a patch of a name that is not UTF-8": (
        lambda project: project.write(
            "patches/third.patch",
            patch(
                "T",
                'diff --git "a/vllm/caf\\351.py" "b/vllm/caf\\351.py"\nnew file mode 100644\n'
                '--- /dev/null\n+++ "b/vllm/caf\\351.py"\n@@ -0,0 +1 @@\n+x\n',
            ),
        ),
        "error: patches/third.patch is refused: vllm/caf\\udce9.py is no name in UTF-8\n"
        "  at: patches/third.patch\n"
        "  help: RECORD is UTF-8, so no file of a distribution has such a name\n",
    ),
    "a patch that climbs": (
        lambda project: project.write("patches/third.patch", patch("T", diff("../x", "", "y\n"))),
        "error: patches/third.patch is refused: a '..' in the path: 'a/../x'\n"
        "  at: patches/third.patch:11\n"
        "  node: patch:third\n"
        "  help: a patch may only name files in its tree\n",
    ),
}


@pytest.mark.parametrize("name", CONTENT)
def test_08_content_that_does_not_fit(case: Case, name: str) -> None:
    change, message = CONTENT[name]
    change(case.project)
    case.refused(1, message, "-j1")


CONFLICT = (
    "error: patches/third.patch does not apply: hunk 1 of vllm/one.py does not match the file "
    "anywhere\n"
    "  at: patches/third.patch:13\n"
    "  node: patch:third\n"
    "  file vllm/one.py, hunk 1, stated at line 37; most alike at line 37:\n"
    "\n"
    "          expected           found\n"
    "     37   line 37            line 37\n"
    "     38   line 38            line 38\n"
    "     39 ! line 39 and more | line 39\n"
    "     40   line 40            line 40\n"
    "     41   line 41            line 41\n"
    "     42   line 42            line 42\n"
    "     43   line 43            line 43\n"
    "\n"
    "  help: make the patch again from this tree, or drop it if the tree has its own change\n"
)


def test_09_a_patch_that_does_not_apply(case: Case) -> None:
    case.project.replace("patches/third.patch", " line 39\n", " line 39 and more\n")
    case.refused(1, CONFLICT, "-j1")


def test_10_where_actions_run_the_place_is_annotated(case: Case) -> None:
    case.project.replace("patches/third.patch", " line 39\n", " line 39 and more\n")
    escaped = CONFLICT.removeprefix("error: ").removesuffix("\n").replace("\n", "%0A")
    annotation = f"::error file=patches/third.patch,line=13::{escaped}\n"
    case.refused(1, CONFLICT + annotation, "-j1", env={"GITHUB_ACTIONS": "true"})


def test_11_what_does_not_depend_on_a_failed_node_is_kept(case: Case) -> None:
    case.project.replace("patches/third.patch", " line 39\n", " line 39 and more\n")
    case.project.replace("patches/second.patch", "+line twenty", "+line TWENTY")
    case.refused(1, CONFLICT, "-j1")
    case.project.replace("patches/third.patch", " line 39 and more\n", " line 39\n")
    assert case.project.build()["built"] == ["layer:series", "image:demo"]


@pytest.mark.parametrize(
    ("prepare", "found"),
    [
        (lambda store: store.write_text("x"), "a file"),
        (lambda store: (store.mkdir(), (store / "x").write_text("x")), "x"),
    ],
    ids=["a file", "another folder"],
)
def test_12_a_store_that_is_none(
    fresh: SampleProject, prepare: Callable[[Path], object], found: str
) -> None:
    prepare(fresh.store)
    done = fresh.run("build")
    assert done.returncode == 2
    assert done.stderr == (
        "error: this is not a store of hq\n"
        f"  at: {fresh.store}\n"
        "  expected: a store, an empty directory, or nothing\n"
        f"  found: {found}\n"
        "  help: choose another directory with --store DIR or HQ_STORE\n"
    )


def test_13_a_place_for_images_that_is_none(case: Case) -> None:
    case.project.write("taken", "x")
    case.refused(
        3,
        "error: cannot write the image layout: not a directory\n"
        f"  at: {case.project.root}/taken/demo-1.0\n"
        f"  {case.project.root}/taken is not a folder\n"
        "  help: choose another folder with --output DIR\n",
        *("--output", str(case.project.root / "taken")),
    )


def test_14_a_folder_that_is_gone(project: SampleProject, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = ["sh", "-c", 'rmdir ../gone && exec "$@"', "sh", sys.executable, "-m", "hq", "build"]
    done = subprocess.run(
        command,
        cwd=tmp_path / "gone",
        env=project.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "error: the working directory is not there any more\n"


@pytest.mark.parametrize("lines", ["", "hq.noop/2\nx\n\n\n\nend", "hq.noop/2\n1\na\nb\nf\tx\nend"])
def test_15_a_damaged_state_of_the_fast_path(built: SampleProject, lines: str) -> None:
    (state,) = (p for p in (built.store / "projects").rglob("*") if p.name.startswith("noop@"))
    state.write_text(lines)
    assert built.build()["built"] == []
    assert state.read_text() != lines


@pytest.mark.parametrize("data", [b"", b"[]", b'{"x": 1}', b"\xff"])
def test_16_damaged_memory_is_no_memory(built: SampleProject, data: bytes) -> None:
    found = [path for path in (built.store / "projects").rglob("*") if path.suffix == ".json"]
    assert sorted(path.name for path in found) == ["records@1.0.json", "spec@.json", "touched.json"]
    for path in [*found, *(built.store / "stat").iterdir()]:
        path.write_bytes(data)
    built.write("build.toml", "# a remark\n" + built.read("build.toml"))
    again = built.build()
    assert again["built"] == []
    assert again["images"] == built.first["images"]
    assert built.run("why", "image:demo").returncode == 0


def test_17_a_reader_that_goes_away(built: SampleProject) -> None:
    for arguments in ("build", "build -j1 --pin 1.0", "plan", "graph"):
        line = f"{sys.executable} -m hq {arguments} | true"
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=built.root,
            env=built.environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr
