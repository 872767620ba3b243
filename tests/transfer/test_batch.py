"""Many wheels at once: who stops whom, and which error is told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from helpers.wheelmaker import build_zip, wheel_items
from hq.model.digest import Digest
from hq.model.errors import BuildError
from hq.model.project import LockedWheel
from hq.store.disk import DiskStore
from hq.transfer import batch
from hq.transfer.batch import fetch_many
from hq.transfer.process import DIE_WITH_PARENT


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[LockedWheel]:
    """Five wheels where pip finds them."""
    made = []
    for number in range(5):
        name = f"demo{number}"
        data = build_zip(wheel_items({f"{name}.py": b"x" * 99 * number}, project=name))
        file = f"{name}-1.0-py3-none-any.whl"
        (tmp_path / file).write_bytes(data)
        made.append(LockedWheel(name, "1.0", file, Digest.of(data), len(data)))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return made


def lanes() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fetch ")]


def test_what_is_done_meanwhile_stops_the_fetch_when_it_fails(
    tmp_path: Path, wheels: list[LockedWheel], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def endless(
        _python: str, folder: str, _arguments: Sequence[str], progress: Callable[[int], None]
    ) -> str:
        begun.set()
        while True:
            progress(1)

    def fail() -> None:
        begun.wait()
        raise BuildError("a patch does not apply")

    monkeypatch.setattr(batch, "download_all", endless)
    with DiskStore(str(tmp_path / "store")) as store:
        with pytest.raises(BuildError, match="a patch does not apply"):
            fetch_many(store, wheels, lambda _done, _total: None, meanwhile=fail)
        assert lanes() == []
        assert os.listdir(f"{store.root}/tmp") == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BuildError("wrong")])
def test_a_lane_that_fails_leaves_its_wheels_to_single_fetches(
    tmp_path: Path,
    wheels: list[LockedWheel],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def fails(*_: object) -> str:
        raise error

    monkeypatch.setattr(batch, "download_all", fails)
    seen: list[tuple[int, int]] = []
    with DiskStore(str(tmp_path / "store")) as store:
        fetch_many(store, wheels, lambda done, total: seen.append((done, total)))
        assert all(store.size_of(wheel.sha256) == wheel.size for wheel in wheels)
        assert os.listdir(f"{store.root}/tmp") == []
    assert "Traceback" not in capfd.readouterr().err


def test_progress_never_leaves_the_total(tmp_path: Path, wheels: list[LockedWheel]) -> None:
    seen: list[tuple[int, int]] = []
    with DiskStore(str(tmp_path / "store")) as store:
        fetch_many(store, wheels, lambda done, total: seen.append((done, total)))
        assert all(store.size_of(wheel.sha256) == wheel.size for wheel in wheels)
    total = sum(wheel.size for wheel in wheels)
    assert all(0 <= done <= total and whole == total for done, whole in seen)


def test_what_came_whole_is_kept_when_pip_fails(
    tmp_path: Path, wheels: list[LockedWheel], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut, wrong = wheels[:3]

    def breaks(_python: str, folder: str, *_: object) -> None:
        place = Path(folder, "unpack", "pip-unpack-x")
        place.mkdir(parents=True)
        for wheel in (whole, cut, wrong):
            data = (tmp_path / wheel.file).read_bytes()
            if wheel is cut:
                data = data[:-1]
            if wheel is wrong:
                data = data[:-1] + b"?"
            (place / wheel.file).write_bytes(data)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(batch, "download_all", breaks)
    monkeypatch.setattr(batch, "LANES", 1)
    asked: list[LockedWheel] = []
    monkeypatch.setattr(batch, "fetch_wheel", lambda _store, wheel, own: asked.append(wheel))
    with DiskStore(str(tmp_path / "store")) as store:
        fetch_many(store, wheels, lambda _done, _total: None)
        have = [wheel for wheel in wheels if store.size_of(wheel.sha256) is not None]
        assert have == [whole]
        assert asked == wheels, "each one, which costs nothing where it is there"
        assert os.listdir(f"{store.root}/tmp") == []


def test_two_fetches_on_one_store_bring_each_wheel_once(
    tmp_path: Path, wheels: list[LockedWheel], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def copies(_python: str, folder: str, arguments: Sequence[str], *_: object) -> None:
        listed = Path(arguments[arguments.index("--requirement") + 1]).read_text()
        for wheel in wheels:
            if f"{wheel.name}==" in listed:
                asked.append(wheel.name)
                data = (tmp_path / wheel.file).read_bytes()
                Path(folder, wheel.file).write_bytes(data)

    monkeypatch.setattr(batch, "download_all", copies)
    with DiskStore(str(tmp_path / "store")) as store:
        others = [
            threading.Thread(target=fetch_many, args=(store, part, lambda _done, _total: None))
            for part in (wheels, wheels[1:], wheels[:-1])
        ]
        for other in others:
            other.start()
        for other in others:
            other.join()
    assert sorted(asked) == [wheel.name for wheel in wheels]


def test_who_waits_for_another_fetch_can_stop_waiting(
    tmp_path: Path, wheels: list[LockedWheel]
) -> None:
    def fail() -> None:
        raise BuildError("a patch does not apply")

    with DiskStore(str(tmp_path / "store")) as store:
        with (
            store.actions.lock(batch._TURN),
            pytest.raises(BuildError, match="a patch does not apply"),
        ):
            fetch_many(store, wheels, lambda _done, _total: None, meanwhile=fail)
        assert os.listdir(f"{store.root}/tmp") == []


def test_a_program_whose_parent_has_died_ends_by_itself(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"{DIE_WITH_PARENT}open({str(mark)!r}, 'w')\n"
    for parent, expected in ((os.getpid(), 0), (os.getppid(), 1)):
        done = subprocess.run([sys.executable, "-c", code, str(parent)], check=False)
        assert (done.returncode, mark.exists()) == (expected, expected == 0)
        mark.unlink(missing_ok=True)
