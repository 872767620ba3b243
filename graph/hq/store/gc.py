"""Collection, verification and statistics of a store.

**Beside running builds.** A build relies on a blob that it has seen, so nothing may vanish under
it. Every open store holds a share of ``locks/use``; collection takes that lock whole. It waits for
builds that run, and builds that start meanwhile wait for it. An age limit instead would have to
guess how long a build takes, and would keep the gigabytes that a failed build has just left.

**What stays.** The results named as roots (pins and recent builds know their keys) with all blobs
they name. Further results stay, the latest used first, while everything fits into ``max_size``. A
blob that no kept result names goes.

Verification reads every blob, and needs no more than the share: a bad blob is no use to a build.
Builds beside it add blobs, drop bad ones and make them again, so every name is listed once, what is
gone when its turn comes does not count, and only the very file that was read is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef, Digest, DigestError
from hq.store.actions import parse_result
from hq.store.disk import DiskStore, hash_file, unlink_same
from hq.store.faults import disk_fault
from hq.store.files import TMP, read_file, sweep
from hq.store.rootfs import FOLDER, drop_rootfs


class Collected(NamedTuple):
    """What a collection did. Sizes in bytes; ``size`` is what is left."""

    results: int
    blobs: int
    freed: int
    size: int


class Verified(NamedTuple):
    """What a verification saw. ``problems``: one line for each, sorted; empty when all is well."""

    blobs: int
    size: int
    results: int
    problems: tuple[str, ...]


class Stats(NamedTuple):
    """How much a store holds. Sizes in bytes. ``unpacked``: the files of images run by verify."""

    blobs: int
    blob_size: int
    results: int
    result_size: int
    temporary: int
    temporary_size: int
    unpacked: int
    unpacked_size: int


def collect(
    store: DiskStore,
    roots: Iterable[ActionKey],
    *,
    max_size: int = 0,
    keep: Iterable[BlobRef] = (),
) -> Collected:
    """Removes what ``roots`` do not need, down to ``max_size`` bytes of blobs.

    ``keep``: blobs that stay in any case. The store may stay larger than ``max_size`` when the
    roots are. Raises ``InfrastructureError``.
    """
    try:
        with store.alone():
            sweep(f"{store.root}/{TMP}")
            unpacked = drop_rootfs(store.root)
            found = _collect(store, set(roots), max_size, set(keep))
            return found._replace(freed=found.freed + unpacked)
    except OSError as error:
        raise disk_fault(error, "collect the store", store.root) from error


class _Kept:
    """The blobs that stay, and their size."""

    def __init__(self, blobs: Iterable[BlobRef]) -> None:
        self.blobs = set(blobs)
        self.size = sum(ref.size for ref in self.blobs)

    def growth(self, refs: Iterable[BlobRef]) -> int:
        return sum(ref.size for ref in set(refs) - self.blobs)

    def add(self, refs: Iterable[BlobRef]) -> None:
        new = set(refs) - self.blobs
        self.blobs |= new
        self.size += sum(ref.size for ref in new)


def _collect(
    store: DiskStore, roots: set[ActionKey], max_size: int, keep: set[BlobRef]
) -> Collected:
    kept = _Kept(keep)
    others: list[tuple[float, ActionKey, ActionResult]] = []
    removed = 0
    for key, used, result in _results(store):
        if result is None:
            removed += _remove(store.actions.path(key))
        elif key in roots:
            kept.add(result.references())
        else:
            others.append((used, key, result))
    for _, key, result in sorted(others, key=lambda other: (-other[0], other[1])):
        if max_size and kept.size + kept.growth(result.references()) <= max_size:
            kept.add(result.references())
        else:
            removed += _remove(store.actions.path(key))
    return _sweep_blobs(store, {ref.digest for ref in kept.blobs}, removed)


def _sweep_blobs(store: DiskStore, keep: set[Digest], removed: int) -> Collected:
    blobs = freed = size = 0
    for ref, path in _blobs(store):
        if ref.digest in keep:
            size += ref.size
        elif _remove(path):
            blobs += 1
            freed += ref.size
    return Collected(removed, blobs, freed, size)


def verify(
    store: DiskStore,
    *,
    has: Callable[[BlobRef], bool] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verified:
    """Hashes every blob again and reads every result; what is damaged is dropped and reported.

    ``has``: answers for content that is not a loose blob; the store's own by default.
    ``progress`` gets the bytes done so far. Raises ``InfrastructureError``.
    """
    try:
        return _verify(store, has or store.has, progress)
    except OSError as error:
        raise disk_fault(error, "verify the store", store.root) from error


def _verify(
    store: DiskStore, has: Callable[[BlobRef], bool], progress: Callable[[int], None]
) -> Verified:
    problems: list[str] = []
    blobs = size = results = 0
    for path in _paths(store):
        ref = _blob(store, path)
        if ref is None:
            problems.append(f"not a file of the store: {os.path.relpath(path, store.root)}")
            continue
        good = _is_good(path, ref)
        if good is None:
            continue
        blobs += 1
        size += ref.size
        if not good:
            problems.append(f"damaged blob, dropped: {ref.digest}")
        progress(size)
    for key, _, result in _results(store):
        results += 1
        problem = _result_problem(result, has)
        if problem:
            _remove(store.actions.path(key))
            problems.append(f"cached result, dropped: {key}: {problem}")
    return Verified(blobs, size, results, tuple(sorted(problems)))


def _is_good(path: str, ref: BlobRef) -> bool | None:
    """Hashes a blob and drops a bad one; ``None`` when it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        if hash_file(fd) == ref.digest.hex:
            return True
        unlink_same(fd, path)
    finally:
        os.close(fd)
    return False


def _result_problem(result: ActionResult | None, has: Callable[[BlobRef], bool]) -> str:
    if result is None:
        return "it is damaged"
    gone = sorted({ref.digest for ref in result.references() if not has(ref)})
    return f"its blob {gone[0]} is missing" if gone else ""


def stats(store: DiskStore) -> Stats:
    """Counts what is there. Raises ``InfrastructureError``."""
    try:
        blobs = [ref.size for ref, _ in _blobs(store)]
        results = list(_sizes(f"{store.root}/ac"))
        temporary = list(_sizes(f"{store.root}/{TMP}"))
        unpacked = list(_sizes(f"{store.root}/{FOLDER}"))
    except OSError as error:
        raise disk_fault(error, "read the store", store.root) from error
    counted = (blobs, results, temporary, unpacked)
    return Stats(*(number for sizes in counted for number in (len(sizes), sum(sizes))))


def _blobs(store: DiskStore) -> Iterator[tuple[BlobRef, str]]:
    """Every blob with its path, in the order of the names. Other files are passed over."""
    for path in _paths(store):
        ref = _blob(store, path)
        if ref is not None:
            yield ref, path


def _paths(store: DiskStore) -> Iterator[str]:
    """What is in the place of blobs. Raises ``OSError``."""
    for folder, name in _two_levels(f"{store.root}/cas/sha256"):
        yield f"{folder}/{name}"


def _blob(store: DiskStore, path: str) -> BlobRef | None:
    """The blob whose file is at ``path``; ``None`` for a file that is no blob."""
    try:
        digest = Digest.from_hex(os.path.basename(path))
    except DigestError:
        return None
    ref = BlobRef(digest, store.size_of(digest) or 0)
    return ref if store.path(ref) == path else None


def _results(store: DiskStore) -> Iterator[tuple[ActionKey, float, ActionResult | None]]:
    """Every result with the time of its last use; ``None`` for a damaged one."""
    for folder, name in _two_levels(f"{store.root}/ac"):
        try:
            key = ActionKey.parse(name)
            path = f"{folder}/{name}"
            used = os.stat(path).st_mtime
            data = read_file(path)
        except (DigestError, FileNotFoundError):
            continue
        try:
            yield key, used, parse_result(key, data)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            yield key, used, None


def _two_levels(top: str) -> Iterator[tuple[str, str]]:
    for first in _names(top):
        for second in _names(f"{top}/{first}"):
            yield f"{top}/{first}", second


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sizes(top: str) -> Iterator[int]:
    for folder, _, names in os.walk(top, onerror=_refuse):
        for name in names:
            try:
                yield os.lstat(f"{folder}/{name}").st_size
            except FileNotFoundError:
                continue


def _refuse(error: OSError) -> None:
    """Keeps ``os.walk`` from taking a folder that cannot be read for an empty one."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
