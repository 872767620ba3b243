"""The stat cache: never a wrong digest, and no reading where it can be spared."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hq.store.stat
from hq.model.digest import BlobRef
from hq.model.errors import BuildError, InfrastructureError
from hq.store.disk import DiskStore, hash_file
from hq.store.stat import StatCache, is_racy

SHARED = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SECOND = 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    with DiskStore(str(tmp_path / "store")) as made:
        yield made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each file that is hashed."""
    seen: list[int] = []
    real = hash_file

    def counted(fd: int) -> str:
        seen.append(os.fstat(fd).st_ino)
        return real(fd)

    monkeypatch.setattr(hq.store.stat, "hash_file", counted)
    return seen


def late() -> int:
    """A clock by which every file is old."""
    return 2**62


def test_a_file_is_hashed_once(store: DiskStore, tmp_path: Path, reads: list[int]) -> None:
    (tmp_path / "a.patch").write_bytes(b"content")
    cache = StatCache(store, str(tmp_path), clock=late)
    first = cache.digest_file("a.patch")
    assert first.ref == BlobRef.of(b"content")
    assert stat.S_ISREG(first.status.st_mode)
    cache.save()
    again = StatCache(store, str(tmp_path), clock=late)
    assert again.digest_file(str(tmp_path / "a.patch")).ref == first.ref
    assert len(reads) == 1


def test_projects_do_not_share_a_cache(store: DiskStore, tmp_path: Path, reads: list[int]) -> None:
    (tmp_path / "f").write_bytes(b"content")
    for name in ("one", "two"):
        cache = StatCache(store, name, clock=late)
        cache.digest_file(str(tmp_path / "f"))
        cache.save()
    assert len(reads) == 2


@SHARED
@given(
    steps=st.lists(
        st.tuples(
            st.binary(min_size=4, max_size=4),
            st.sampled_from(["write", "replace", "write-and-set-back"]),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_no_quick_change_is_missed(
    store: DiskStore, tmp_path: Path, steps: list[tuple[bytes, str, bool]]
) -> None:
    """Changes of equal length, as fast as they can be made, with the times set back or not."""
    path = tmp_path / "file"
    path.write_bytes(b"0000")
    cache = StatCache(store, str(tmp_path))
    for content, how, restart in steps:
        cache.digest_file("file")
        before = path.stat()
        if how == "replace":
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").rename(path)
        else:
            path.write_bytes(content)
            if how == "write-and-set-back":
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        if restart:
            cache.save()
            cache = StatCache(store, str(tmp_path))
        assert cache.digest_file("file").ref == BlobRef.of(content)


def test_a_young_file_is_read_again_until_it_has_aged(
    store: DiskStore, tmp_path: Path, reads: list[int]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    now = path.stat().st_ctime_ns
    cache = StatCache(store, str(tmp_path), clock=lambda: now)
    cache.digest_file("file")
    cache.digest_file("file")
    assert len(reads) == 2
    now += SECOND
    cache.digest_file("file")
    cache.digest_file("file")
    assert len(reads) == 3


@given(
    mtime=st.integers(0, 10 * SECOND),
    ctime=st.integers(0, 10 * SECOND),
    now=st.integers(0, 20 * SECOND),
)
@settings(deadline=None)
def test_what_is_not_racy_is_older_than_a_tick(mtime: int, ctime: int, now: int) -> None:
    found = fake_status(mtime, ctime)
    if not is_racy(found, now):
        assert max(mtime, ctime) < now - 20_000_000


def fake_status(mtime: int, ctime: int) -> os.stat_result:
    names = {"st_atime_ns": 0, "st_mtime_ns": mtime, "st_ctime_ns": ctime}
    return os.stat_result([0] * 10, names)


@pytest.mark.parametrize(
    ("mtime", "age", "racy"),
    [
        (5 * SECOND + 1, 10_000_000, True),
        (5 * SECOND + 1, 30_000_000, False),
        (5 * SECOND, 30_000_000, True),  # whole seconds: the file system may know no finer
        (5 * SECOND, 2 * SECOND + 1, False),
        (5 * SECOND + 1, -SECOND, True),  # from the future
    ],
)
def test_ticks(mtime: int, age: int, racy: bool) -> None:
    assert is_racy(fake_status(mtime, mtime), mtime + age) is racy


def test_permissions_are_part_of_the_state(
    store: DiskStore, tmp_path: Path, reads: list[int]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    path.chmod(0o644)
    cache = StatCache(store, str(tmp_path), clock=late)
    assert stat.S_IMODE(cache.digest_file("file").status.st_mode) == 0o644
    path.chmod(0o755)
    assert stat.S_IMODE(cache.digest_file("file").status.st_mode) == 0o755


@SHARED
@given(st.data())
def test_damage_costs_time_only(store: DiskStore, tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / "file").write_bytes(b"content")
    cache = StatCache(store, str(tmp_path), clock=late)
    cache.digest_file("file")
    cache.save()
    (saved,) = Path(store.root, "stat").iterdir()
    good = saved.read_bytes()
    bad = data.draw(
        st.one_of(
            st.integers(0, len(good) - 1).map(lambda cut: good[:cut]),
            st.tuples(st.integers(0, len(good) - 1), st.integers(1, 255)).map(
                lambda at: good[: at[0]] + bytes([good[at[0]] ^ at[1]]) + good[at[0] + 1 :]
            ),
            st.binary(max_size=100),
        )
    )
    saved.write_bytes(bad)
    assert StatCache(store, str(tmp_path)).digest_file("file").ref == BlobRef.of(b"content")
    saved.unlink()


@pytest.mark.parametrize(
    "name", ["blank s", "new\nline", "tab\t", b"\xff\xfe".decode("utf-8", "surrogateescape")]
)
def test_any_file_name(store: DiskStore, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    for _ in range(2):
        cache = StatCache(store, str(tmp_path), clock=late)
        assert cache.digest_file(name).ref == BlobRef.of(b"x")
        cache.save()


def test_entries_that_a_run_did_not_ask_for_stay(
    store: DiskStore, tmp_path: Path, reads: list[int]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
        cache = StatCache(store, str(tmp_path), clock=late)
        cache.digest_file(name)
        cache.save()
    cache = StatCache(store, str(tmp_path), clock=late)
    cache.digest_file("a")
    cache.digest_file("b")
    assert len(reads) == 2


def test_the_cache_has_a_limit(
    store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hq.store.stat, "LIMIT", 3)
    for n in range(6):
        (tmp_path / str(n)).write_bytes(b"x")
        cache = StatCache(store, str(tmp_path), clock=late)
        cache.digest_file(str(n))
        cache.save()
    (saved,) = Path(store.root, "stat").iterdir()
    names = [line.rsplit("/", 1)[1] for line in saved.read_text().splitlines()[1:]]
    assert names == ["5", "4", "3"]


def test_what_is_not_a_file(store: DiskStore, tmp_path: Path) -> None:
    cache = StatCache(store, str(tmp_path))
    with pytest.raises(FileNotFoundError):
        cache.digest_file("gone")
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "store"):
        with pytest.raises(BuildError) as caught:
            cache.digest_file(name)
        assert str(caught.value) == f"error: not a regular file\n  at: {tmp_path}/{name}"


def test_a_file_that_changes_all_the_time(
    store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "busy"
    path.write_bytes(b"")

    def busy(fd: int) -> str:
        with path.open("ab") as file:
            file.write(b"x")
        return "0" * 64

    monkeypatch.setattr(hq.store.stat, "hash_file", busy)
    with pytest.raises(InfrastructureError) as caught:
        StatCache(store, str(tmp_path)).digest_file("busy")
    assert str(caught.value) == (
        "error: a file changes while it is read\n"
        "  at: busy\n"
        "  help: wait until the program that writes it is done, then run hq again"
    )
