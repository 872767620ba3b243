"""The project's own base, unpacked and run.

Takes a while and fetches 94 MB once: ``HQ_TEST_STORE`` names a store that has the packages already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.project import SampleProject
from hq.app.bases import read_base_lock
from hq.model.digest import BlobRef
from hq.model.errors import HqError
from hq.model.project import BaseSpec
from hq.store.disk import DiskStore
from hq.transfer.debs import fetch_debs

pytestmark = [pytest.mark.system, pytest.mark.slow]

LOCK = Path(__file__).resolve().parent.parent.parent / "lockfiles" / "base-trixie.toml"


@pytest.fixture(scope="module")
def base() -> BaseSpec:
    return read_base_lock("lockfiles/base-trixie.toml", LOCK.read_bytes())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, base: BaseSpec) -> SampleProject:
    """A small project on the real base, built."""
    for program in ("apt-get", "umoci", "bwrap"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    made = SampleProject(tmp_path_factory.mktemp("real"))
    if os.environ.get("HQ_TEST_STORE"):
        made.store = Path(os.environ["HQ_TEST_STORE"])
    made.supply()
    with DiskStore(str(made.store)) as store:
        try:
            fetch_debs(store, base)
        except HqError as error:
            pytest.skip(f"the packages cannot be fetched here: {error.message}")
    made.write("lockfiles/base-trixie.toml", LOCK.read_bytes())
    made.write(
        "images/demo.toml",
        'schema = "hq.image/1"\nname = "demo"\nprefix = "/opt/demo"\n'
        'base = { debian = "lockfiles/base-trixie.toml" }\n',
    )
    made.first = made.build()
    return made


@pytest.fixture(scope="module")
def root(project: SampleProject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's root file system."""
    target = tmp_path_factory.mktemp("root") / "root"
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    subprocess.run(
        ["umoci", "raw", "unpack", *rootless, "--image", f"{project.layout()}:1.0", target],
        check=True,
        capture_output=True,
    )
    yield target
    shutil.rmtree(target)


def inside(root: Path, *command: str) -> str:
    """Runs a command in a sandbox on the root, without network; its output."""
    sandbox = [
        *("bwrap", "--unshare-all", "--clearenv", "--bind", str(root), "/", "--dev", "/dev"),
        *("--proc", "/proc", "--tmpfs", "/tmp"),
        *("--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ]
    done = subprocess.run([*sandbox, *command], check=False, capture_output=True, text=True)
    if "bwrap:" in done.stderr:
        pytest.skip(f"no sandbox here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_runs(root: Path) -> None:
    code = (
        "import sys, ssl, sqlite3, ctypes.util, zlib, bz2, lzma, decimal, pwd, locale, readline\n"
        "print(sys.version_info[:2], ctypes.util.find_library('ssl'))\n"
        "print(pwd.getpwuid(0).pw_dir, len(ssl.create_default_context().get_ca_certs()) > 100)"
    )
    assert inside(root, "python3", "-c", code) == "(3, 13) libssl.so.3\n/root True\n"


def test_the_compiler_makes_programs_that_run(root: Path) -> None:
    code = "#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }"
    script = f"printf '%s\\n' '{code}' > /tmp/a.c && cc -fopenmp /tmp/a.c -o /tmp/a && /tmp/a"
    inside(root, "/bin/sh", "-c", script)
    assert inside(root, "gcc", "--version").startswith("gcc (Debian 14")


def test_the_database_is_whole(root: Path, base: BaseSpec) -> None:
    listed = subprocess.run(
        ["dpkg-query", "--admindir", root / "var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    assert listed[:-1] == sorted(f"{deb.name} {deb.version}" for deb in base.debs)
    assert inside(root, "dpkg", "--audit") == ""
    # Every file of every package is there with the sum that the package gives.
    assert inside(root, "dpkg", "--verify") == ""


def test_what_scripts_would_have_made_is_what_they_make(root: Path) -> None:
    certificates = root / "etc/ssl/certs"
    bundle = (certificates / "ca-certificates.crt").read_bytes()
    links = {path.name: os.readlink(path) for path in certificates.iterdir() if path.is_symlink()}
    cache = inside(root, "ldconfig", "-p")
    inside(root, "update-ca-certificates", "--fresh")
    inside(root, "ldconfig")
    assert (certificates / "ca-certificates.crt").read_bytes() == bundle
    again = {path.name: os.readlink(path) for path in certificates.iterdir() if path.is_symlink()}
    assert again == links
    theirs = inside(root, "ldconfig", "-p")
    assert theirs.split("\nCache generated by")[0].strip() == cache.strip()
    assert inside(root, "update-alternatives", "--query", "awk").startswith("Name: awk\n")


def test_another_store_makes_the_same(
    project: SampleProject, base: BaseSpec, tmp_path: Path
) -> None:
    other = SampleProject(tmp_path)
    other.supply()
    with DiskStore(str(project.store)) as source, DiskStore(str(other.store)) as target:
        for deb in base.debs:
            target.put(source.read(BlobRef(deb.sha256, deb.size)))
    for name in ("lockfiles/base-trixie.toml", "images/demo.toml"):
        other.write(name, project.read(name))
    assert (
        other.build("--offline")["images"][0]["manifest"] == project.first["images"][0]["manifest"]
    )
