"""Killed, interrupted, out of space, without permission, eight at once: the store stays good."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.project import FILES, SampleProject
from helpers.realproject import RealProject, real_wheel

SEED = 20_290
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def start(project: SampleProject, *arguments: str) -> subprocess.Popen[str]:
    """Starts a build in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hq", "build", *arguments],
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def names(folder: Path) -> list[str]:
    """Every file beneath a folder, by path."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def large(folder: Path, megabytes: int) -> SampleProject:
    """A project whose wheel is half noise, half zeros."""
    noise = random.Random(SEED)
    files = dict(FILES)
    for number in range(megabytes // 2):
        files[f"vllm/noise/{number:03}.bin"] = noise.randbytes(1 << 20)
        files[f"vllm/zeros/{number:03}.bin"] = bytes(1 << 20)
    project = SampleProject(folder, files, level=1)
    project.supply()
    return project


def killed_again_and_again(project: SampleProject, kills: int) -> None:
    """Kills cold builds at random moments; after each, a build must give what a calm one gave."""
    began = time.monotonic()
    calm = project.build()
    span = time.monotonic() - began
    dist = names(project.root / "dist")
    store = {part: names(project.store / part) for part in ("cas", "ac", "projects")}
    moments = random.Random(SEED)
    ends: Counter[int] = Counter()
    for kill in range(kills):
        # What a build leaves besides blobs and results stays from kill to kill, and must not grow.
        for part in ("cas", "ac"):
            shutil.rmtree(project.store / part)
        shutil.rmtree(project.root / "dist", ignore_errors=kill % 3 > 0)
        if kill % 4:
            project.supply()
        running = start(project)
        time.sleep(moments.uniform(0, span))
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
        ends[running.returncode] += 1
        again = project.run("build", "--json")
        assert again.returncode == 0, (kill, again.stderr)
        assert json.loads(again.stdout)["images"] == calm["images"]
        assert names(project.root / "dist") == dist
        assert list((project.store / "tmp").iterdir()) == []
        assert {part: names(project.store / part) for part in store} == store
        if kill % 10 == 0:
            checked = project.run("store", "verify")
            assert checked.returncode == 0, checked.stdout + checked.stderr
    assert project.run("store", "verify").returncode == 0
    # Enough of them were really killed.
    assert ends[-signal.SIGKILL] >= kills // 3, ends


def test_01_killed_six_times(project: SampleProject) -> None:
    killed_again_and_again(project, 6)


@pytest.mark.slow
def test_02_killed_fifty_times(tmp_path: Path) -> None:
    killed_again_and_again(large(tmp_path, 48), 50)


def interrupt(running: subprocess.Popen[str], when: Path) -> tuple[int, str]:
    """Sends what Ctrl-C sends when ``when`` holds a file; returns the exit code and the words."""
    while running.poll() is None and not any(when.glob("*")):
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGINT)
    _, words = running.communicate()
    return running.returncode, words


def test_03_interrupted(tmp_path: Path) -> None:
    project = large(tmp_path, 24)
    code, words = interrupt(start(project), project.store / "tmp")
    assert code == 130
    assert words.splitlines()[-1] == "interrupted; what was finished is in the store"
    assert "Traceback" not in words
    assert project.build()["nodes"]["total"] == 13
    assert list((project.store / "tmp").iterdir()) == []
    assert project.run("store", "verify").returncode == 0


def test_04_interrupted_while_pip_works(fresh: SampleProject) -> None:
    code, words = interrupt(start(fresh), fresh.store / "tmp")
    assert code == 130
    assert words.splitlines()[-1] == "interrupted; what was finished is in the store"
    assert "Traceback" not in words
    assert fresh.build()["nodes"]["built"] == 13
    assert list((fresh.store / "tmp").iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "hq-test", str(place)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.system
@pytest.mark.parametrize("jobs", ["-j1", "-j4"])
def test_05_a_full_disk(tmp_path: Path, small_disk: Path, jobs: str) -> None:
    project = large(tmp_path / "project", 32)
    good = project.build()["images"]
    project.store = small_disk / "store"
    project.supply()
    done = project.run("build", jobs)
    assert done.returncode == 3
    told = done.stderr[done.stderr.index("error: ") :].splitlines()
    if jobs == "-j1":
        assert told[0] == "error: cannot write a blob to the store: the disk is full"
        assert told[2] == "  node: layer:wheel"
    # With several threads a smaller node may be the first to notice.
    assert re.fullmatch("error: cannot [a-z ]+: the disk is full", told[0])
    assert told[1] == f"  at: {project.store}"
    assert told[-1] == (
        "  help: free some space there, run 'hq store gc', or choose another store with "
        "--store DIR or HQ_STORE; then run hq again"
    )
    assert done.stderr.count("error: ") == 1
    assert list((project.store / "tmp").iterdir()) == []
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    again = project.build(jobs)
    assert again["images"] == good
    assert "wheel:demo" not in again["built"]
    assert project.run("store", "verify").returncode == 0


@pytest.mark.slow
@pytest.mark.system
def test_06_a_disk_too_small_for_the_wheel(tmp_path: Path, small_disk: Path) -> None:
    project = large(tmp_path / "project", 56)
    good = project.build()["images"]
    project.store = small_disk / "store"
    done = project.run("build")
    assert done.returncode == 3
    assert done.stderr.startswith(
        "error: cannot store demo 1.0: the disk is full\n"
        f"  at: {project.store}\n"
        "  node: wheel:demo\n"
        "  needed: at least 29.5 MB\n"
    )
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    assert project.build()["images"] == good


@pytest.mark.system
def test_07_a_full_disk_for_the_images(tmp_path: Path, small_disk: Path) -> None:
    project = large(tmp_path / "project", 56)
    good = project.build()["images"][0]
    done = project.run("build", "--output", str(small_disk / "out"))
    assert done.returncode == 3
    assert done.stderr.startswith(
        f"error: cannot write the image layout: the disk is full\n  at: {small_disk}/out/demo-1.0\n"
    )
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    again = project.build("--output", str(small_disk / "out"))
    assert again["images"][0]["image_id"] == good["image_id"]
    # On another file system there are no hard links to the store; a second build copies nothing.
    blobs = sorted((small_disk / "out/demo-1.0/blobs/sha256").iterdir())
    before = [path.stat().st_ino for path in blobs]
    project.write("build.toml", "# a remark\n" + project.read("build.toml"))
    assert project.build("--output", str(small_disk / "out"))["built"] == []
    assert [path.stat().st_ino for path in blobs] == before


@pytest.mark.system
@pytest.mark.wheel
@pytest.mark.slow
def test_08_the_real_wheel_on_200_megabytes(tmp_path: Path, small_disk: Path) -> None:
    real_wheel("0.29.0")
    subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
    project = RealProject(small_disk)
    done = project.run("build")
    assert done.returncode == 3
    assert done.stderr.startswith(
        "error: cannot store vllm 0.29.0: the disk is full\n"
        f"  at: {project.store}\n"
        "  node: wheel:vllm\n"
        "  needed: at least 316.0 MB\n"
    )
    subprocess.run(["mount", "-o", "remount,size=1200m", str(small_disk)], check=True)
    assert project.build()["nodes"]["reused"] == 0
    assert project.run("store", "verify").returncode == 0


def count(documents: list[dict[str, Any]]) -> Counter[str]:
    """How often each node was built."""
    found: Counter[str] = Counter()
    for document in documents:
        found.update(document["built"])
    return found


def finish(running: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    documents = []
    for one in running:
        out, words = one.communicate()
        assert one.returncode == 0, words
        documents.append(json.loads(out))
    return documents


def test_09_eight_at_once_on_one_store(tmp_path: Path) -> None:
    projects = [SampleProject(tmp_path / str(number)) for number in range(8)]
    for project in projects:
        project.store = tmp_path / "store"
    documents = finish([start(project, "--json") for project in projects])
    images = {
        json.dumps(d["images"]).replace(str(p.root), "")
        for d, p in zip(documents, projects, strict=True)
    }
    assert len(images) == 1
    assert set(count(documents).values()) == {1}
    assert len(count(documents)) == 13
    assert list((tmp_path / "store/tmp").iterdir()) == []
    assert projects[0].run("store", "verify").returncode == 0


def test_10_eight_at_once_in_one_project(fresh: SampleProject) -> None:
    documents = finish([start(fresh, "--json") for _ in range(8)])
    assert len({json.dumps(document["images"]) for document in documents}) == 1
    assert set(count(documents).values()) == {1}
    assert list((fresh.store / "tmp").iterdir()) == []
    left = {path.name for path in (fresh.root / "dist").iterdir()}
    assert all(name.endswith(".json") or name == "demo-1.0" for name in left)
    assert len(names(fresh.layout())) == 8
    assert fresh.build()["built"] == []
    assert fresh.run("store", "verify").returncode == 0


@pytest.mark.slow
def test_11_eight_large_ones(tmp_path: Path) -> None:
    project = large(tmp_path, 48)
    documents = finish([start(project, "--json") for _ in range(8)])
    assert len({json.dumps(document["images"]) for document in documents}) == 1
    assert set(count(documents).values()) == {1}


def test_12_builds_beside_a_collection(built: SampleProject) -> None:
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    running = [start(built, "--json") for _ in range(2)]
    collected = built.run("store", "gc", "--json")
    assert collected.returncode == 0
    finish(running)
    assert built.build()["built"] == []
    assert built.run("store", "verify").returncode == 0


def test_13_collection_keeps_what_the_last_build_needs(built: SampleProject) -> None:
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    built.build()
    freed = json.loads(built.run("store", "gc", "--json").stdout)
    # Both patches of the file, their layer, the image.
    assert freed["results"] == 4
    built.write("build.toml", "# a remark\n" + built.read("build.toml"))
    assert built.build()["built"] == []
    built.replace("patches/first.patch", "+line TEN", "+line ten")
    again = built.build()
    assert again["built"] == ["patch:first", "patch:third", "layer:series", "image:demo"]
    assert again["images"] == built.first["images"]


def damage(project: SampleProject, digest: str) -> None:
    """Changes a blob of the store so that its status does not show it."""
    name = digest.rpartition(":")[2]
    path = project.store / "cas/sha256" / name[:2] / name
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(bytes(byte ^ 0x55 for byte in path.read_bytes()))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def digests(project: SampleProject) -> dict[str, str]:
    """Blobs that a rebuild of the first patch reads."""
    records = json.loads((project.root / "dist/demo-1.0.records.json").read_text())
    return {
        "patch:second": records["patch:second"]["result"]["delta"][0][2],
        "wheel:demo": records["wheel:demo"]["result"]["blobs"]["index"][0],
    }


@pytest.mark.parametrize("jobs", ["-j1", "-j4"])
@pytest.mark.parametrize("node", ["patch:second", "wheel:demo"])
def test_16_damage_that_only_reading_shows(built: SampleProject, node: str, jobs: str) -> None:
    damage(built, digests(built)[node])
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    done = built.run("build", "--json", jobs)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: dropped a damaged blob from the store: sha256:") == 1
    assert json.loads(done.stdout)["built"] == [
        name
        for name in ("wheel:demo", "patch:first", "patch:second", "patch:third")
        if name in (node, "patch:first", "patch:third")
    ] + ["layer:series", "image:demo"]
    assert built.run("store", "verify").returncode == 0


def test_17_a_plan_sees_it_too(built: SampleProject) -> None:
    damage(built, digests(built)["patch:second"])
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    done = built.run("plan")
    assert done.returncode == 0
    assert done.stderr.count("warning: dropped a damaged blob from the store: sha256:") == 1
    assert "run     patch:second  its result is no longer in the store\n" in done.stdout


@pytest.fixture
def read_only(built: SampleProject) -> Iterator[SampleProject]:
    """A built project of a user who may not write to the store."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can run hq as a user who may not write to the store")
    asked = [*NOBODY, sys.executable, "-c", "import blake3"]
    if subprocess.run(asked, check=False, capture_output=True).returncode != 0:
        pytest.skip("the other user cannot run this Python")
    for path in (built.root, *built.root.rglob("*")):
        os.chown(path, 65534, 65534)
    for folder in list(built.root.parents)[:-2]:
        folder.chmod(folder.stat().st_mode | 0o055)
    yield built


CANNOT = "cannot write to the store: permission denied"


def test_14_a_store_that_cannot_be_written_serves(read_only: SampleProject) -> None:
    shutil.rmtree(read_only.root / "dist")
    done = read_only.run("build", "--json", prefix=NOBODY)
    assert done.returncode == 0
    assert json.loads(done.stdout)["images"] == read_only.first["images"]
    assert done.stderr == f"warning: nothing is remembered of this run: {CANNOT}\n"
    for command in (
        ("plan",),
        ("graph",),
        ("why", "envs"),
        ("store", "stats"),
        ("store", "verify"),
    ):
        done = read_only.run(*command, prefix=NOBODY)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


def test_15_and_says_so_when_it_must_be(read_only: SampleProject) -> None:
    read_only.replace("patches/first.patch", "+line ten", "+line TEN")
    planned = read_only.run("plan", "--json", prefix=NOBODY)
    assert planned.returncode == 0
    done = read_only.run("build", prefix=NOBODY)
    assert done.returncode == 3
    assert done.stderr == (
        f"warning: nothing is remembered of this run: {CANNOT}\n"
        "error: cannot lock a node: permission denied\n"
        f"  at: {read_only.store}\n"
        "  help: make it writable for you, or choose another store with --store DIR or HQ_STORE\n"
    )


@pytest.mark.parametrize("action", ["stats", "verify", "gc"])
@pytest.mark.parametrize("there", [False, True])
def test_18_looking_after_no_store_makes_none(tmp_path: Path, action: str, there: bool) -> None:
    project = SampleProject(tmp_path / "project")
    project.store = tmp_path / "elsewhere" / "store"
    if there:
        project.store.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    done = project.run("store", action)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: there is no store\n  at: {project.store}\n"
        "  help: the first hq build makes it; name another one with --store DIR or HQ_STORE\n"
    )
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    (tmp_path / "elsewhere" / "thesis.tex").write_text("")
    done = project.run("store", action, "--store", str(tmp_path / "elsewhere"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: this is not a store of hq\n")


def test_19_a_collection_keeps_what_a_plan_shows(built: SampleProject) -> None:
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    built.write("kvarn/files/vllm/new.py", "new = 2\n")
    plans = []
    for command in ("stats", "gc"):
        assert built.run("store", command).returncode == 0
        plans.append(built.run("plan").stdout)
    assert re.search(r"\n *-\+line ten\n *\+\+line TEN\n", plans[0]), plans[0]
    assert plans[1] == plans[0]


def test_20_a_deleted_project_is_forgotten(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 50)  # too long to be a name in the store
    kept, gone, far = (SampleProject(folder) for folder in (tmp_path / "kept", tmp_path, deep))
    kept.replace("patches/first.patch", "+line ten", "+line TEN")
    for project in (kept, gone, far):
        project.store = tmp_path / "store"
        project.supply()
        project.build()
    calm = json.loads(kept.run("store", "gc", "--json").stdout)
    assert (calm["results"], calm["forgotten"]) == (0, [])
    shutil.rmtree(gone.root)
    shutil.rmtree(far.root)
    done = kept.run("store", "gc", "--json")
    found = json.loads(done.stdout)
    assert found["forgotten"] == sorted([str(gone.root), str(far.root)])
    assert done.stderr == "".join(
        f"forgot the project {root}: no build.toml is there any more\n"
        for root in found["forgotten"]
    )
    assert found["results"] > 0
    assert len(list((tmp_path / "store/projects").iterdir())) == 1
    assert len(list((tmp_path / "store/stat").iterdir())) == 1
    assert kept.build()["built"] == []
    assert kept.run("store", "verify").returncode == 0


@pytest.mark.parametrize("whole", [False, True])
def test_21_a_link_with_its_date_kept_is_mended_by_a_verification(
    tmp_path: Path, whole: bool
) -> None:
    """Another project makes the dropped blobs again, and the first one's links are still bad."""
    first, second = SampleProject(tmp_path / "first"), SampleProject(tmp_path / "second")
    for project in (first, second):
        project.store = tmp_path / "store"
        project.supply()
        project.build()
    blobs = sorted((first.layout() / "blobs/sha256").iterdir())
    for blob in blobs if whole else blobs[:1]:
        damage(first, blob.name)
    checked = first.run("store", "verify")
    assert checked.returncode == 1
    assert checked.stderr.count("damaged blob, dropped") == (len(blobs) if whole else 1)
    second.build()
    first.build()
    for blob in blobs:
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    assert first.run("store", "verify").returncode == 0


@pytest.mark.parametrize("jobs", ["-j1", "-j4"])
@pytest.mark.parametrize("what", ["wheel", "all"])
def test_22_damage_that_is_read_in_parts(built: SampleProject, what: str, jobs: str) -> None:
    """The wheel and the layers are never read as a whole by a build."""
    wheel = built.links / "demo-1.0-py3-none-any.whl"
    blobs = [hashlib.sha256(wheel.read_bytes()).hexdigest()]
    if what == "all":
        blobs = sorted(path.name for path in (built.store / "cas").rglob("*") if path.is_file())
    for blob in blobs:
        damage(built, blob)
    shutil.rmtree(built.root / "dist")
    built.replace("patches/first.patch", "+line ten", "+line TEN")
    done = built.run("build", "--json", jobs)
    assert done.returncode == 0, done.stderr
    assert f"dropped a damaged blob from the store: sha256:{blobs[0]}" in done.stderr or (
        what == "all"
    )
    built.run("store", "verify")
    built.build()
    assert built.run("store", "verify").returncode == 0
    for path in (built.layout() / "blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
