"""What the store remembers of a project: specs survive it, damage is forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.project import SampleProject
from hq.app.config import load
from hq.app.folder import ProjectFolder
from hq.app.memory import (
    Memory,
    remembered_spec,
    rows_from_json,
    rows_to_json,
    scoped,
    spec_document,
    spec_from_json,
    spec_to_json,
)
from hq.model.project import PinSpec


@pytest.fixture
def spec(tmp_path: Path) -> PinSpec:
    return load(ProjectFolder(str(SampleProject(tmp_path).root)), "1.0", 7)


def through_json(value: object) -> Any:
    return json.loads(json.dumps(value))


def test_a_spec_survives(spec: PinSpec) -> None:
    found = spec_from_json(through_json(spec_to_json(spec)))
    assert through_json(found) == through_json(spec)
    assert found.series == spec.series
    assert found.wheel == spec.wheel
    assert [type(part) for part in found] == [type(part) for part in spec]


def recall(
    document: Any, *, epoch: int = 7, digest: str = "d", names: list[str] | None = None
) -> object:
    return remembered_spec(document, lambda _: digest, lambda _: names or ["n"], epoch)


def test_it_counts_while_files_folders_and_epoch_are_the_same(spec: PinSpec) -> None:
    document = through_json(spec_document(spec, {"build.toml": "d"}, {"patches": ["n"]}, 7))
    assert through_json(recall(document)) == through_json(spec)
    assert recall(document, epoch=8) is None
    assert recall(document, digest="other") is None
    assert recall(document, names=["n", "new"]) is None


@pytest.mark.parametrize("document", [None, [], {}, {"format": 1}, "x", {"format": "hq.spec/1"}])
def test_anything_else_is_forgotten(document: object) -> None:
    assert recall(document) is None


def test_another_version_of_hq_reads_for_itself(spec: PinSpec) -> None:
    document = through_json(spec_document(spec, {}, {}, 7))
    assert recall(document) is not None
    assert recall({**document, "format": "hq.spec/1 0.0.0"}) is None


def test_damage_inside_is_noticed(spec: PinSpec) -> None:
    document = through_json(spec_document(spec, {}, {}, 7))
    document["spec"] = document["spec"][:3]
    assert recall(document) is None


NAMES = st.text(min_size=1).filter(lambda name: name != "sum")
VALUES = st.recursive(
    st.none() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
)


@given(st.dictionaries(NAMES, VALUES))
def test_rows_are_one_json_object_and_come_back(document: dict[str, Any]) -> None:
    rows = {name: json.dumps(value) for name, value in document.items()}
    data = rows_to_json(rows)
    assert json.loads(data) == document
    assert rows_from_json(data.decode()) == rows


@given(st.text())
def test_rows_of_anything(text: str) -> None:
    try:
        rows = rows_from_json(text)
    except ValueError:
        return
    assert all(isinstance(name, str) for name in rows)


@given(st.data())
def test_damaged_rows_are_forgotten(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("memory")
    files: dict[str, bytes] = {}
    memory = Memory(str(folder), "/project", files.__setitem__)
    rows = {"patch:a": '{"key": "1"}', "patch:b": '{"key": "2"}'}
    memory.save_rows("records@1", rows)
    ((name, content),) = files.items()
    place = folder / name
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    assert memory.load_rows("records@1") == rows
    at = data.draw(st.integers(0, len(content) - 1))
    changed = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
    place.write_bytes(content[:at] + bytes([changed]) + content[at + 1 :])
    assert memory.load_rows("records@1") == {}
    place.write_bytes(content[:at])
    assert memory.load_rows("records@1") == {}


IMAGES = st.lists(st.from_regex(r"[a-z0-9]+([._-][a-z0-9]+)*", fullmatch=True), max_size=3)


@given(st.text(), IMAGES, st.text(), IMAGES)
@example("1.0", ["a"], "1.0+a", [])
def test_no_two_choices_share_a_document(
    pin: str, images: list[str], other: str, others: list[str]
) -> None:
    same = (pin, images) == (other, others)
    assert (scoped("spec", pin, images) == scoped("spec", other, others)) == same
