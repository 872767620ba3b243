"""Locking and fetching Debian packages with a real apt and an archive in a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.aptrepo import AptRepo
from helpers.debmaker import deb
from hq.app.base_lock import Request, lock_base, refresh_base_lock, render
from hq.model.digest import BlobRef, Digest
from hq.model.errors import BuildError, HqError, InfrastructureError, UsageError
from hq.model.project import BaseSpec, LockedDeb
from hq.store.disk import DiskStore
from hq.transfer.debs import fetch_debs, import_debs, missing

pytestmark = pytest.mark.system


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AptRepo:
    made = AptRepo(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    with DiskStore(str(tmp_path / "store")) as made:
        yield made
        left = [name for name in os.listdir(f"{made.root}/tmp") if not name.startswith(".")]
        assert left == []


def locked(name: str, data: bytes, version: str = "1.0") -> LockedDeb:
    digest = Digest.of(data)
    return LockedDeb(name, version, "amd64", f"{name}_{version}_amd64.deb", digest, len(data))


def base(*debs: LockedDeb) -> BaseSpec:
    return BaseSpec("debian", "small", "amd64", "trixie", debs)


def refused(store: DiskStore, spec: BaseSpec, kind: type[HqError], **options: bool) -> HqError:
    with pytest.raises(kind) as caught:
        fetch_debs(store, spec, **options)
    return caught.value


def test_packages_are_fetched_and_named_by_their_bytes(repo: AptRepo, store: DiskStore) -> None:
    one, two = repo.add("one"), repo.add("two", "2:1.5~rc+b1-3")
    repo.publish()
    told: list[tuple[int, int]] = []
    spec = base(locked("one", one), locked("two", two, "2:1.5~rc+b1-3"))
    fetch_debs(store, spec, lambda done, total: told.append((done, total)))
    for data in (one, two):
        assert store.read(BlobRef.of(data)) == data
    assert (told[0], told[-1]) == ((0, len(one) + len(two)), (len(one) + len(two),) * 2)
    # Nothing is asked any more when all is there.
    shutil.rmtree(repo.root)
    fetch_debs(store, spec, offline=True)


def test_a_line_for_another_release_serves(repo: AptRepo, store: DiskStore) -> None:
    repo.sources(f"deb [trusted=yes] copy:{repo.root} bookworm main\n")
    one = repo.add("one")
    repo.publish()
    fetch_debs(store, base(locked("one", one)))
    assert missing(store, [locked("one", one)]) == []


def test_offline(repo: AptRepo, store: DiskStore) -> None:
    debs = [locked(f"p{number}", b"x" * (number + 1)) for number in range(7)]
    assert refused(store, base(debs[0]), BuildError, offline=True).render() == (
        "error: a package of the base small is not in the store, and --offline forbids to fetch\n"
        "  p0_1.0_amd64.deb (1 B)\n"
        "  help: run once without --offline"
    )
    details = refused(store, base(*debs), BuildError, offline=True).details
    assert len(details) == 6
    assert details[-1] == "and 2 more"


def test_a_version_that_is_gone(repo: AptRepo, store: DiskStore) -> None:
    one, two = repo.add("one"), repo.add("two", "1.1")
    repo.publish()
    spec = base(locked("one", one), locked("two", two, "1.0"))
    error = refused(store, spec, BuildError)
    assert error.render() == (
        "error: the archive has no longer what the base small has locked\n"
        "  apt: E: Version '1.0' for 'two' was not found\n"
        "  help: make the base lock again, or add a source that keeps old versions to apt's "
        "configuration (sources.list(5))"
    )


def test_other_bytes_under_the_same_version(repo: AptRepo, store: DiskStore) -> None:
    one = repo.add("one")
    repo.publish()
    wrong = locked("one", one + b"x")
    error = refused(store, base(wrong), BuildError)
    assert error.message == "apt fetched other files than the base small has locked"
    assert error.hint == (
        "the archive has other bytes under the same version; make the base lock again"
    )
    assert not store.has(BlobRef.of(one))


def test_an_archive_that_cannot_be_read(repo: AptRepo, store: DiskStore) -> None:
    error = refused(store, base(locked("one", b"x")), InfrastructureError)
    assert error.message == "apt cannot fetch the packages of the base small"
    assert any("Failed to fetch" in line for line in error.details)


def test_a_file_that_the_archive_lost(repo: AptRepo, store: DiskStore) -> None:
    one, two = repo.add("one"), repo.add("two")
    repo.publish()
    next(repo.root.glob("pool/two*")).unlink()
    error = refused(store, base(locked("one", one), locked("two", two)), InfrastructureError)
    assert error.message == "apt cannot fetch the packages of the base small"
    assert store.has(BlobRef.of(one)), "what has come is kept"


def test_sources_without_a_debian_archive(repo: AptRepo, store: DiskStore) -> None:
    repo.sources("deb [trusted=yes] copy:/nowhere jammy main\n")
    assert refused(store, base(locked("one", b"x")), BuildError).render() == (
        "error: apt's sources name no Debian archive for trixie\n"
        "  help: add a source of a Debian archive to apt's configuration (sources.list(5))"
    )


def test_no_apt(repo: AptRepo, store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    error = refused(store, base(locked("one", b"x")), InfrastructureError)
    assert error.message == "no apt was found to fetch Debian packages with"


def test_an_interrupt_ends_apt_and_leaves_nothing(repo: AptRepo, store: DiskStore) -> None:
    one = repo.add("one")
    repo.publish()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_debs(store, base(locked("one", one)), stop)


def test_packages_from_a_folder(tmp_path: Path, store: DiskStore) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    one = deb()
    (folder / "any-name.deb").write_bytes(one)
    (folder / "other.deb").write_bytes(b"something else")
    wanted = [locked("demo", one), locked("two", b"two")]
    assert import_debs(store, str(folder), wanted) == [wanted[1]]
    assert store.read(BlobRef.of(one)) == one
    with pytest.raises(BuildError) as caught:
        import_debs(store, str(tmp_path / "none"), wanted)
    assert caught.value.message == "cannot read the packages: no such file or directory"


def lockable(repo: AptRepo) -> None:
    repo.add("base-files", Essential="yes", Pre_Depends="awk")
    repo.add("mawk", Provides="awk", Depends="libc6 (>= 1.0)")
    repo.add("libc6", Depends="libgcc-s1")
    repo.add("libgcc-s1", Depends="libc6")
    repo.add("python3", "3.13.5-1", Depends="libc6, tzdata | other", Recommends="extra")
    repo.add("tzdata")
    repo.add("extra")
    repo.publish()


def test_lock(repo: AptRepo, store: DiskStore) -> None:
    lockable(repo)
    found = lock_base(store, Request("trixie", "amd64", ("python3",)))
    assert [deb.name for deb in found] == [
        "base-files", "libgcc-s1", "libc6", "mawk", "tzdata", "python3",
    ]  # fmt: skip
    python = found[-1]
    data = (repo.root / "pool" / python.file).read_bytes()
    assert python[:4] == ("python3", "3.13.5-1", "amd64", "python3_3.13.5-1_amd64.deb")
    assert (python.sha256, python.size) == (Digest.of(data), len(data))
    assert not store.has(BlobRef(python.sha256, python.size))


def test_a_lock_names_no_place_and_is_made_again_in_place(repo: AptRepo, store: DiskStore) -> None:
    lockable(repo)
    request = Request("trixie", "amd64", ("python3",))
    text = render(request, lock_base(store, request))
    assert str(repo.root) not in text
    text = "# ours\n" + text
    same = refresh_base_lock(store, "lockfiles/base-small.toml", text.encode())
    assert same == (text, [])
    repo.add("python3", "3.13.6-1", Depends="libc6, newlib")
    repo.add("newlib")
    repo.publish()
    again = refresh_base_lock(store, "lockfiles/base-small.toml", text.encode())
    assert again.changes == ["+ newlib 1.0", "  python3 3.13.5-1 → 3.13.6-1", "- tzdata 1.0"]
    assert again.text.startswith("# ours\n# Packages of Debian trixie")


def test_a_package_that_the_suite_has_not(repo: AptRepo, store: DiskStore) -> None:
    lockable(repo)
    with pytest.raises(UsageError) as caught:
        lock_base(store, Request("trixie", "amd64", ("pyhton3",)))
    assert caught.value.render() == (
        "error: apt cannot resolve the base for trixie\n"
        "  apt: E: Unable to locate package pyhton3\n"
        "  help: check the names of the packages in the lock"
    )


def test_nothing_of_the_user_s_apt_is_touched(repo: AptRepo, store: DiskStore) -> None:
    def fingerprint() -> str:
        listed = sorted(
            (entry.name, entry.stat().st_mtime_ns)
            for place in ("/var/lib/apt/lists", "/var/cache/apt")
            if os.path.isdir(place)
            for entry in os.scandir(place)
        )
        return hashlib.sha256(repr(listed).encode()).hexdigest()

    before = fingerprint()
    one = repo.add("one")
    repo.publish()
    fetch_debs(store, base(locked("one", one)))
    assert fingerprint() == before
