"""The image holds the tree that other tools make: the wheel, GNU patch's work, the overlay.

Nothing of hq is asked what the tree should be: the wheel is read with ``zipfile``, the series is
applied by GNU patch with ``-F0``, the image is read with ``tarfile``.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.project import SampleProject, patch
from helpers.realproject import PINS, SERIES, RealProject, real_wheel
from helpers.unpack import (
    Found,
    Tree,
    disk_tree,
    image_tree,
    layer_of,
    layer_tree,
    members,
    wheel_tree,
)


def gnu_patch(tree: Path, patches: list[Path]) -> None:
    """Applies the patches in order; nothing may be left over, nothing placed by fuzz."""
    program = shutil.which("patch")
    if program is None:
        pytest.skip("GNU patch is not installed")
    for path in patches:
        command = [program, "-F0", "-p1", "-s", "--no-backup-if-mismatch", "-i", str(path)]
        done = subprocess.run(command, cwd=tree, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, ""), path


def series_of(file: Path) -> list[Path]:
    """The patches that a series names."""
    lines = file.read_text().splitlines()
    words = [line.partition("#")[0].split() for line in lines]
    assert all(word[1:] in ([], ["-p1"]) for word in words)
    return [file.parent / word[0] for word in words if word]


def unpack(wheel: Path, folder: Path, suffix: str = "") -> None:
    """The wheel's files whose names end in ``suffix``."""
    with zipfile.ZipFile(wheel) as archive:
        names = [info.filename for info in archive.infolist() if info.filename.endswith(suffix)]
        archive.extractall(folder, names)


def without_prefix(tree: Tree, prefix: str) -> Tree:
    assert all(path.startswith(prefix + "/") for path in tree)
    return {path.removeprefix(prefix + "/"): found for path, found in tree.items()}


class Subject:
    """A built image and what it was built from."""

    def __init__(
        self, project: SampleProject, layout: Path, wheel: Path, series: Path, overlay: Path
    ) -> None:
        self.project = project
        self.layout = layout
        self.wheel = wheel
        self.series = series
        self.overlay = overlay
        self.prefix = "opt/demo" if "demo" in wheel.name else "opt/site"
        self.info = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
        tree, self.kept = image_tree(layout, ("/RECORD", ".csv"))
        self.tree = without_prefix(tree, self.prefix)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    project = SampleProject(tmp_path_factory.mktemp("sample"))
    project.supply()
    create = (
        "diff --git a/vllm/new.py b/vllm/new.py\nnew file mode 100755\nindex 0000000..1111111\n"
        "--- /dev/null\n+++ b/vllm/new.py\n@@ -0,0 +1 @@\n+NEW = 1\n"
    )
    delete = (
        "diff --git a/vllm/two.py b/vllm/two.py\ndeleted file mode 100644\n"
        "--- a/vllm/two.py\n+++ /dev/null\n@@ -1,60 +0,0 @@\n"
        + "".join(f"-{line}\n" for line in project.texts["vllm/two.py"].splitlines())
    )
    project.write("patches/fifth.patch", patch("Fifth", create, delete))
    project.write("patches/series", project.read("patches/series") + "fifth.patch\n")
    project.build()
    return Subject(
        project,
        project.layout(),
        next(project.links.glob("*.whl")),
        project.root / "patches/series",
        project.root / "over/files",
    )


@pytest.fixture(scope="module", params=PINS)
def real(request: pytest.FixtureRequest) -> Iterator[Subject]:
    pin: str = request.param
    wheel = real_wheel(pin)
    with tempfile.TemporaryDirectory(prefix="hq-real-") as folder:
        project = RealProject(Path(folder))
        project.first = project.build("--pin", pin)
        yield Subject(
            project,
            project.layout("vllm", pin),
            wheel,
            project.root / SERIES[pin],
            project.root / "kvarn/files",
        )


def series_is_gnu_patch(subject: Subject, folder: Path, suffix: str) -> None:
    """The layer of the series holds exactly the files that GNU patch changed, byte for byte."""
    unpack(subject.wheel, folder, suffix)
    before = disk_tree(folder)
    gnu_patch(folder, series_of(subject.series))
    after = disk_tree(folder)
    layer = without_prefix(layer_tree(subject.layout, "series"), subject.prefix)
    assert layer.pop(f"{subject.info}/hq/series.csv", None) is not None
    content = {path: (found.sha256, found.size) for path, found in layer.items()}
    changed = {
        path: (found.sha256, found.size)
        for path, found in after.items()
        if before.get(path, Found(False, "", 0)).sha256 != found.sha256
    }
    assert content == changed
    gone = sorted(set(before) - set(after))
    assert not set(gone) & set(subject.tree)
    marks = {
        member.name.removeprefix(subject.prefix + "/")
        for member, _ in members(subject.layout, layer_of(subject.layout, "series"))
        if "/.wh." in member.name
    }
    assert marks == {f"{Path(path).parent}/.wh.{Path(path).name}" for path in gone}


def image_is_sum_of_parts(subject: Subject) -> None:
    """Every file of the image is the wheel's unless a record says that a node changed it."""
    expected = wheel_tree(subject.wheel)
    records = json.loads(Path(f"{subject.layout}.records.json").read_text())
    order = [name for name in records if name.partition(":")[0] in ("patch", "envs", "overlay")]
    for name in order:
        for path, *entry in records[name]["result"]["delta"]:
            if entry[0] is None:
                del expected[path]
            else:
                kind, digest, size = entry
                expected[path] = Found(kind == "x", digest.removeprefix("sha256:"), size)
    found = dict(subject.tree)
    for path in list(found):
        if path.startswith(f"{subject.info}/hq/"):
            del found[path]
    assert found.pop(f"{subject.info}/RECORD") != expected.pop(f"{subject.info}/RECORD")
    assert found == expected


def record_is_consistent(subject: Subject) -> None:
    """RECORD lists every file once; a hash that it gives is right; hq's own lists are complete."""
    info = subject.info
    data = subject.kept[f"{subject.prefix}/{info}/RECORD"]
    rows = list(csv.reader(io.StringIO(data.decode())))
    assert sorted(row[0] for row in rows) == sorted(subject.tree)
    empty = {path for path, digest, size in rows if not digest}
    assert all(size == "" for path, digest, size in rows if not digest)
    for path, digest, size in rows:
        if digest:
            assert (digest, int(size)) == listed(subject.tree[path])
    own = {f"{info}/RECORD"}
    # A later layer's row stands for the file of an earlier one.
    for layer in [step.name for step in layers(subject)]:
        path = f"{info}/hq/{layer}.csv"
        own.add(path)
        tree = without_prefix(layer_tree(subject.layout, layer), subject.prefix)
        tree.pop(f"{info}/RECORD", None)
        tree.pop(path)
        named = list(csv.reader(io.StringIO(subject.kept[f"{subject.prefix}/{path}"].decode())))
        present = {row[0]: (row[1], int(row[2])) for row in named if row[1]}
        assert present == {file: listed(found) for file, found in tree.items()}
        own |= set(tree)
    assert empty == own & set(subject.tree)


def layers(subject: Subject) -> list[Path]:
    return sorted(
        Path(path).with_suffix("")
        for path in subject.kept
        if path.startswith(f"{subject.prefix}/{subject.info}/hq/")
    )


def listed(found: Found) -> tuple[str, int]:
    digest = base64.urlsafe_b64encode(bytes.fromhex(found.sha256)).decode().rstrip("=")
    return f"sha256={digest}", found.size


@pytest.mark.system
def test_01_the_series_is_what_gnu_patch_makes(sample: Subject, tmp_path: Path) -> None:
    series_is_gnu_patch(sample, tmp_path, "")


def test_02_the_image_is_the_sum_of_its_parts(sample: Subject) -> None:
    image_is_sum_of_parts(sample)


def test_03_record_fits_the_tree(sample: Subject) -> None:
    record_is_consistent(sample)


def test_04_the_overlay_is_there(sample: Subject) -> None:
    for path, found in disk_tree(sample.overlay).items():
        assert sample.tree[path] == found


def test_05_python_finds_the_package_and_its_metadata(sample: Subject, tmp_path: Path) -> None:
    place = write_tree(sample, tmp_path)
    code = (
        "import importlib.metadata as m, vllm.extra, vllm.envs, vllm.new;"
        "d = m.distribution('demo');"
        "print(d.version, vllm.envs.VLLM_FORK_LEVEL, vllm.extra.EXTRA, len(d.files),"
        "all(f.locate().exists() for f in d.files))"
    )
    done = subprocess.run(
        ["python3", "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"1.0 3 1 {len(sample.tree)} True\n"


def write_tree(subject: Subject, folder: Path) -> Path:
    """The image's tree on disk, with ``tarfile``."""
    for name in ("wheel", "series", "envs", "over"):
        for member, data in members(subject.layout, layer_of(subject.layout, name)):
            path = folder / member.name
            if path.name.startswith(".wh."):
                path.with_name(path.name.removeprefix(".wh.")).unlink()
            elif member.isreg():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    return folder / subject.prefix


def test_06_headers_are_plain(sample: Subject) -> None:
    for name in ("wheel", "series", "envs", "over"):
        seen = [member for member, _ in members(sample.layout, layer_of(sample.layout, name))]
        for member in seen:
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            assert member.mtime == 0
            assert member.mode == (0o755 if member.isdir() or member.mode & 0o100 else 0o644)
        names = [member.name for member in seen]
        assert len(set(names)) == len(names)
    assert sample.tree["vllm/new.py"].executable


@pytest.mark.wheel
@pytest.mark.system
@pytest.mark.slow
def test_07_the_real_series_is_what_gnu_patch_makes(real: Subject, tmp_path: Path) -> None:
    series_is_gnu_patch(real, tmp_path, ".py")
    shutil.rmtree(tmp_path / "vllm")


@pytest.mark.wheel
@pytest.mark.slow
def test_08_the_real_image_is_the_sum_of_its_parts(real: Subject) -> None:
    image_is_sum_of_parts(real)
    record_is_consistent(real)


@pytest.mark.wheel
@pytest.mark.slow
def test_09_the_real_project_rebuilds_as_little(real: Subject) -> None:
    pin = real.project.first["pin"]
    nodes = real.project.first["nodes"]["total"]
    assert real.project.first["nodes"]["built"] == nodes
    assert real.project.build("--pin", pin)["built"] == []
    name = series_of(real.series)[0]
    text = name.read_text()
    head, line, rest = text.partition("\n+")
    # The first added line that is not a header's gets a remark at its end.
    while rest.startswith("++"):
        more, separator, rest = rest.partition("\n+")
        head, line = head + line + more, separator
    first, newline, rest = rest.partition("\n")
    name.write_text(f"{head}{line}{first}  # changed{newline}{rest}")
    again = real.project.build("--pin", pin)
    assert again["built"][0] == f"patch:{name.stem}"
    assert [n for n in again["built"] if not n.startswith("patch:")] == [
        "layer:series",
        "image:vllm",
    ]
    name.write_text(f"Remark: words\n{text}")
    preamble = real.project.build("--pin", pin)
    assert preamble["built"] == [f"patch:{name.stem}"]
    assert preamble["images"] == real.project.first["images"]


@pytest.mark.wheel
@pytest.mark.system
@pytest.mark.slow
def test_10_umoci_unpacks_the_real_image(real: Subject) -> None:
    umoci = shutil.which("umoci")
    if umoci is None:
        pytest.skip("umoci is not installed")
    bundle = real.project.root.parent / "bundle"
    pin = real.project.first["pin"]
    command = [umoci, "unpack", "--rootless", "--image", f"{real.layout}:{pin}", str(bundle)]
    subprocess.run(command, check=True, capture_output=True)
    found = disk_tree(bundle / "rootfs")
    shutil.rmtree(bundle)
    assert without_prefix(found, real.prefix) == real.tree


def test_11_identity_of_the_bytes(sample: Subject) -> None:
    for path in (sample.layout / "blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
