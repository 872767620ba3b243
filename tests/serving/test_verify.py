"""``hq verify``: a good image passes, and each fault is named by the check that is for it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.project import SampleProject
from hq.app.declaration import CheckTable
from hq.app.verify import Report, Result, declared_problems, report_text
from hq.execute.sandbox import Sandbox, why_not
from hq.model.digest import Digest
from hq.model.ran import Ran
from serving.layers import Entry, Layout

GOOD = """\
demo 1.0
  image id  {}
  ok        layout
  ok        records
  ok        files
  ok        knobs
  ok        RECORD
  ok        layer lists
  ok        versions
"""
SERIES, ENVS, OVER = 1, 2, 3


def problems(project: SampleProject, *arguments: str) -> dict[str, list[str]]:
    """The details of each check that fails; the exit code must agree."""
    done = project.run("verify", "demo", "--json", *arguments)
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["schema"] == "hq.verify/1"
    assert document["passed"] == (done.returncode == 0), done.stderr
    return {c["name"]: c["details"] for c in document["checks"] if c["status"] == "fail"}


def changed(project: SampleProject, layer: int, name: str, data: bytes) -> None:
    """Gives a file of a layer another content, every digest above following."""

    def change(entries: list[Entry]) -> list[Entry]:
        assert name in [entry.name for entry in entries]
        return [e._replace(data=data) if e.name == name else e for e in entries]

    Layout(project.layout()).change(layer, change)


def test_a_good_image_passes(built: SampleProject) -> None:
    done = built.run("verify", "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == GOOD.format(built.first["images"][0]["image_id"])
    assert problems(built) == {}


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_any_compression_is_read(project: SampleProject, compression: str) -> None:
    project.replace(
        "images/demo.toml",
        'prefix = "/opt/demo"\n',
        f'prefix = "/opt/demo"\ncompression = "{compression}"\n',
    )
    project.build()
    assert problems(project) == {}


def test_a_damaged_blob_is_named(built: SampleProject) -> None:
    layout = built.layout()
    index = json.loads((layout / "index.json").read_bytes())
    manifest = layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]
    name = json.loads(manifest.read_bytes())["layers"][1]["digest"][7:]
    blob = layout / "blobs/sha256" / name
    data = bytearray(blob.read_bytes())
    data[30] ^= 1
    blob.unlink()
    blob.write_bytes(data)
    assert problems(built) == {
        "layout": [f"blobs/sha256/{name}: the content has another digest: {Digest.of(bytes(data))}"]
    }


def test_a_changed_file_is_named_with_both_digests(built: SampleProject) -> None:
    changed(built, SERIES, "opt/demo/vllm/one.py", b"x = 1\n")
    found = problems(built)
    assert set(found) == {"records", "files", "layer lists"}
    (line,) = found["files"]
    assert line.startswith("vllm/one.py: expected sha256:")
    assert line.endswith(f", found {Digest.of(b'x = 1' + bytes([10]))}")
    assert found["records"][0].startswith("manifest: the records say sha256:")


def test_a_missing_file_and_a_foreign_one_are_named(built: SampleProject) -> None:
    def change(entries: list[Entry]) -> list[Entry]:
        kept = [e for e in entries if e.name != "opt/demo/vllm/one.py"]
        return [*kept, Entry("opt/demo/vllm/evil.py")]

    Layout(built.layout()).change(SERIES, change)
    found = problems(built)
    listing = "demo-1.0.dist-info/hq/series.csv"
    assert found["RECORD"] == ["/opt/demo/vllm/evil.py: no RECORD lists it"]
    assert found["layer lists"] == [
        f"vllm/evil.py: the layer has it, and {listing} does not list it"
    ]
    assert len(found["files"]) == 1  # the wheel's own file stands there now
    assert found["files"][0].startswith("vllm/one.py: expected sha256:")


def test_a_wheel_file_that_record_does_not_mean_is_named(built: SampleProject) -> None:
    changed(built, 0, "opt/demo/vllm/data.bin", b"x")
    (line,) = problems(built)["RECORD"]
    assert "vllm/data.bin: expected sha256:" in line
    assert line.startswith("demo-1.0.dist-info/RECORD:")


def test_a_knob_that_is_not_defined_is_named(built: SampleProject) -> None:
    envs = built.root / "envs.py"
    envs.write_text(built.texts["vllm/envs.py"])
    changed(built, ENVS, "opt/demo/vllm/envs.py", envs.read_bytes())
    assert problems(built)["knobs"] == ["vllm/envs.py does not define VLLM_FORK_LEVEL"]


def test_another_version_is_named(built: SampleProject) -> None:
    changed(
        built,
        0,
        "opt/demo/demo-1.0.dist-info/METADATA",
        b"Name: demo\nVersion: 1.1\n\nVersion: 1.0",
    )
    assert problems(built)["versions"] == ["demo: expected 1.0, found 1.1"]


def test_records_of_another_build_are_refused(built: SampleProject) -> None:
    records = Path(f"{built.layout()}.records.json")
    records.unlink()
    assert problems(built) == {"records": ["demo-1.0.records.json is missing"]}
    records.write_text("{}")
    assert list(problems(built)) == ["records"]


def test_an_entry_out_of_the_tree_ends_it(built: SampleProject) -> None:
    Layout(built.layout()).change(SERIES, lambda entries: [*entries, Entry("../../evil")])
    done = built.run("verify", "demo")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the entry '../../evil' is refused: it has '..'\n  at: ")


def test_an_image_that_is_not_built(project: SampleProject) -> None:
    done = project.run("verify", "demo")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: the image demo of pin 1.0 is not built\n  at: {project.layout()}\n"
        "  help: run 'hq build --pin 1.0 --image demo' first\n"
    )


# Declared checks.


class Answers:
    """A runner that gives one answer and notes what it was asked."""

    def __init__(self, code: int, output: str) -> None:
        self.answer = Ran(code, output)
        self.asked: list[tuple[Sequence[str], Mapping[str, str], float]] = []

    def run(self, command: Sequence[str], env: Mapping[str, str], timeout: float) -> Ran:
        self.asked.append((command, env, timeout))
        return self.answer


def check(**fields: Any) -> CheckTable:
    return CheckTable(name="it", command=("tool",), **fields)


@pytest.mark.parametrize(
    ("fields", "code", "output", "expected"),
    [
        ({}, 0, "", []),
        ({}, 3, "a\nb\n", ["expected it to pass, and exit code 3", "| a", "| b"]),
        ({"expect": "fail"}, 1, "", []),
        ({"expect": "fail"}, 0, "fine", ["expected it to fail, and it passed", "| fine"]),
        ({"output": "^v{pin}$"}, 0, "x\nv1.0\n", []),
        (
            {"output": "^v{pin}$"},
            0,
            "v1x0",
            ["its output does not match '^v1\\\\.0$'", "| v1x0"],
        ),
        ({"expect": "fail", "output": "boom"}, 1, "other", None),
        ({"timeout": 5}, -1, "", ["not done after 5 s"]),
    ],
)
def test_what_a_declared_check_says(
    fields: dict[str, Any], code: int, output: str, expected: list[str] | None
) -> None:
    found = declared_problems(check(**fields), "1.0", Answers(code, output), {})
    assert found == (
        ["its output does not match 'boom'", "| other"] if expected is None else expected
    )


def test_a_check_has_the_images_environment_and_its_own() -> None:
    runner = Answers(0, "")
    declared_problems(check(env={"A": "2"}), "1.0", runner, {"A": "1", "B": "1"})
    assert runner.asked == [(["tool"], {"A": "2", "B": "1"}, 600)]


def test_a_skipped_check_fails_only_when_it_is_required() -> None:
    skipped = Result("run: x", "skipped", ("bubblewrap (bwrap) is not installed",))
    report = Report("demo", "1.0", "sha256:1", "sha256:2", (Result("layout", "pass"), skipped))
    assert not report.failed(require_run=False)
    assert report.failed(require_run=True)
    assert report_text(report).splitlines()[2:] == [
        "  ok        layout",
        "  skipped   run: x",
        "              bubblewrap (bwrap) is not installed",
    ]


def test_a_wrong_check_is_refused_with_its_line(project: SampleProject) -> None:
    text = project.read("images/demo.toml")
    project.write(
        "images/demo.toml", text + '\n[[check]]\nname = "x"\ncommand = ["a"]\noutput = "("\n'
    )
    done = project.run("plan")
    assert done.returncode == 2
    assert (
        "check[0].output: no regular expression: missing ), unterminated subpattern" in done.stderr
    )


# The sandbox.


def needs_sandbox(test: Callable[..., None]) -> Callable[..., None]:
    reason = why_not()
    return pytest.mark.system(pytest.mark.skipif(bool(reason), reason=reason)(test))


@needs_sandbox
def test_a_command_sees_no_network_no_environment_and_writes_nothing(tmp_path: Path) -> None:
    program = (
        "import os, socket\n"
        "print(sorted(os.environ), [name for _, name in socket.if_nameindex()])\n"
        "for place in ('/', '/usr', '/etc'):\n"
        "    try: open(place + '/x', 'w'); print('written')\n"
        "    except OSError: pass\n"
        "open('/tmp/x', 'w')\n"
    )
    done = Sandbox("/").run([os.path.realpath(sys.executable), "-I", "-c", program], {"A": "1"}, 60)
    assert done.code == 0, done.output
    assert done.output.splitlines()[0].startswith("['A', ")
    assert "HOME" not in done.output.splitlines()[0]
    assert done.output.splitlines()[0].endswith("['lo']")
    assert len(done.output.splitlines()) == 1


@needs_sandbox
def test_a_command_that_does_not_end_is_ended() -> None:
    assert Sandbox("/").run(["sleep", "100"], {"PATH": "/usr/bin:/bin"}, 0.5).code == -1


@needs_sandbox
def test_a_missing_program_fails() -> None:
    done = Sandbox("/").run(["/no/such/program"], {}, 60)
    assert done.code != 0
    assert "No such file" in done.output
