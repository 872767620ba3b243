"""The fast path's state: what it takes for the same, and what it does not."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hq.app import noop

texts = st.text(max_size=20) | st.binary(max_size=90).map(os.fsdecode)


@given(texts)
def test_escaped_text_is_one_field_of_one_line(text: str) -> None:
    escaped = noop._escape(text)
    assert "\n" not in escaped
    assert "\t" not in escaped
    assert noop._unescape(escaped) == text


@given(texts, texts)
def test_state_files_of_two_projects_differ(one: str, other: str) -> None:
    paths = {noop.state_path("/store", f"/{root}", noop.Request(), "/out") for root in (one, other)}
    assert len(paths) == len({one, other})
    for path in paths:
        assert all(len(os.fsencode(part)) <= 255 for part in path.split("/"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("build", {}),
        ("build --json --offline -q", {"as_json": True, "offline": True, "quiet": True}),
        (
            "build --pin 1 --store=s --output o -j8",
            {"pin": "1", "store": "s", "output": "o", "jobs": 8},
        ),
    ],
)
def test_plain_builds_are_understood(words: str, expected: dict[str, object]) -> None:
    request = noop.parse(words.split())
    assert request is not None
    assert {name: getattr(request, name) for name in expected} == expected


@pytest.mark.parametrize(
    "words",
    ["", "plan", "build x", "build --help", "build --pin", "build -j", "build -jx", "--json"],
)
def test_everything_else_is_left_to_the_ordinary_path(words: str) -> None:
    assert noop.parse(words.split()) is None


class Build:
    """A pretended build: one input, one folder, one output, one variable."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.store = folder / "store"
        self.root.mkdir()
        for name in ("build.toml", "input", "output"):
            (self.root / name).write_text(name)
        (self.root / "folder").mkdir()
        self.path = Path(
            noop.state_path(
                str(self.store), str(self.root), noop.Request(), str(self.root / "dist")
            )
        )
        self.path.parent.mkdir(parents=True)

    def remember(self, written_ns: int | None = None) -> None:
        state = noop.State("text @SECONDS@", '{"seconds": @SECONDS@}')
        data = (self.root / "input").read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        state.file(str(self.root / "input"), (self.root / "input").stat(), digest)
        folder = str(self.root / "folder")
        state.folder(folder, noop.folder_field(noop.marked_names(folder)))
        state.environment("SOURCE_DATE_EPOCH")
        state.outputs([str(self.root / "output")])
        self.path.write_bytes(state.encode(written_ns or time.time_ns()))

    def answer(self, *words: str) -> str | None:
        return noop.replay(["build", "--store", str(self.store), *words], time.perf_counter())


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    made = Build(tmp_path)
    monkeypatch.chdir(made.root)
    made.remember()
    return made


def test_the_same_is_the_same(build: Build) -> None:
    answer = build.answer()
    assert answer is not None
    assert answer.startswith("text 0.")
    as_json = build.answer("--json")
    assert as_json is not None
    assert as_json.startswith('{"seconds": 0.')
    assert build.answer("--quiet") == ""


def test_it_answers_from_a_folder_within(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(build.root / "folder")
    assert build.answer() is not None


def change_content(build: Build) -> None:
    (build.root / "input").write_text("INPUT")


def change_mode(build: Build) -> None:
    (build.root / "input").chmod(0o600)


def remove_input(build: Build) -> None:
    (build.root / "input").unlink()


def replace_input(build: Build) -> None:
    (build.root / "new").write_text("INPUT")
    (build.root / "new").rename(build.root / "input")


def add_to_folder(build: Build) -> None:
    (build.root / "folder" / "new").touch()


def remove_folder(build: Build) -> None:
    (build.root / "folder").rmdir()


def remove_output(build: Build) -> None:
    (build.root / "output").unlink()


def change_output(build: Build) -> None:
    (build.root / "output").write_text("other")


def cut_state(build: Build) -> None:
    build.path.write_bytes(build.path.read_bytes()[:-2])


def other_format(build: Build) -> None:
    build.path.write_bytes(build.path.read_bytes().replace(noop.FORMAT.encode(), b"hq.noop/0"))


def unknown_line(build: Build) -> None:
    build.path.write_bytes(build.path.read_bytes().replace(b"\nd\t", b"\nz\t"))


def no_number(build: Build) -> None:
    lines = build.path.read_bytes().split(b"\n")
    lines[1] = b"x"
    build.path.write_bytes(b"\n".join(lines))


def not_text(build: Build) -> None:
    build.path.write_bytes(b"\xff\x00" * 100)


def no_state(build: Build) -> None:
    build.path.unlink()


@pytest.mark.parametrize(
    "change",
    [
        *(change_content, change_mode, remove_input, replace_input, add_to_folder, remove_folder),
        *(remove_output, change_output, cut_state, other_format, unknown_line, no_number),
        *(not_text, no_state),
    ],
)
def test_anything_else_is_not(build: Build, change: object) -> None:
    change(build)  # type: ignore[operator]
    assert build.answer() is None


def test_a_variable_counts(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    assert build.answer() is None


def test_another_pin_or_output_has_another_answer(build: Build) -> None:
    assert build.answer("--pin", "1") is None
    assert build.answer("--output", "elsewhere") is None


def test_a_file_changed_within_the_clock_s_grain_is_read(build: Build) -> None:
    path = build.root / "input"
    build.remember(path.stat().st_ctime_ns)
    assert build.answer() is not None
    # The same status for another content: only reading tells.
    text = build.path.read_text()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    build.path.write_text(text.replace(digest, "0" * 64))
    assert build.answer() is None
    # An old file is not read again.
    build.remember(path.stat().st_ctime_ns + 10**11)
    text = build.path.read_text()
    build.path.write_text(text.replace(digest, "0" * 64))
    assert build.answer() is not None
