"""The real vLLM wheels. ``HQ_TEST_WHEELS`` names the directory that holds them."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hq.model.digest import Digest
from hq.wheels.content import extract
from hq.wheels.filename import parse_filename
from hq.wheels.index import WheelIndex
from hq.wheels.reading import read_index
from hq.wheels.record import parse, rewrite

pytestmark = pytest.mark.wheel


class WheelFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._fd = os.open(path, os.O_RDONLY)

    def pread(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture(scope="module", params=["0.28.0", "0.29.0"])
def wheel(request: pytest.FixtureRequest) -> Iterator[WheelFile]:
    folder = os.environ.get("HQ_TEST_WHEELS")
    if not folder:
        pytest.skip("HQ_TEST_WHEELS names no directory with the real wheels")
    found = sorted(Path(folder).glob(f"vllm-{request.param}-*.whl"))
    if not found:
        pytest.skip(f"no vllm {request.param} wheel in HQ_TEST_WHEELS")
    opened = WheelFile(found[0])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def index(wheel: WheelFile) -> WheelIndex:
    name = parse_filename(wheel.path.name)
    return read_index(wheel, project=name.project, version=name.version, wheel=wheel.path.name)


def test_the_index_agrees_with_zipfile(wheel: WheelFile, index: WheelIndex) -> None:
    with zipfile.ZipFile(wheel.path) as archive:
        expected = {
            info.filename: (info.file_size, info.compress_size, info.CRC)
            for info in archive.infolist()
        }
    assert {m.path: (m.size, m.csize, m.crc) for m in index} == expected


def test_every_python_file_is_what_record_says(wheel: WheelFile, index: WheelIndex) -> None:
    checked = 0
    for member in index:
        if member.path.endswith(".py"):
            assert Digest.of(extract(wheel, member)) == member.digest
            checked += 1
    assert checked > 2000


def test_record_survives_a_rewrite(wheel: WheelFile, index: WheelIndex) -> None:
    member = index.get(f"{index.meta.dist_info}/RECORD")
    assert member is not None
    record = extract(wheel, member)
    again = rewrite(record, ["vllm/envs.py", "vllm/new.py"])
    rows = {row.path: row for row in parse(again)}
    assert rows["vllm/envs.py"].hash == rows["vllm/new.py"].size == ""
    same = {row.path: row.hash for row in parse(record)}
    assert {p: r.hash for p, r in rows.items() if p not in ("vllm/envs.py", "vllm/new.py")} == {
        path: text for path, text in same.items() if path != "vllm/envs.py"
    }
