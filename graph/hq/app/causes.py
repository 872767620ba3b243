"""Reasons for a run, told in words, down to the line where the content of both sides is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hq.execute.walk import Outcome
from hq.model.digest import BlobRef, Digest
from hq.model.ports import BlobMissing
from hq.plan import reasons
from hq.plan.reasons import Reason
from hq.provenance.record import Cause
from hq.store.disk import DiskStore

Contents = Callable[[Digest], bytes | None]
"""Looks content up by name; ``None`` for what is not at hand."""

_WORDS = {
    reasons.FIRST: "it was never built for this project",
    reasons.LOST: "its result is no longer in the store",
    reasons.ELSEWHERE: "its last record does not match its key",
}
REUSED = "its result was already in the store"
MAX_TEXT = 4 << 20


def causes_of(outcome: Outcome, contents: Contents) -> list[Cause]:
    """Why the node ran; for a reused result that this project had no record of, that."""
    if outcome.status == "reused":
        return [Cause(REUSED)]
    return [_cause(reason, contents) for reason in outcome.reasons]


def _cause(reason: Reason, contents: Contents) -> Cause:
    match reason.cause:
        case reasons.VERSION:
            return Cause(f"its kind's version changed from {reason.old} to {reason.new}")
        case reasons.PARAMETER:
            return Cause(f"{reason.subject} changed from {reason.old} to {reason.new}")
        case reasons.INPUT:
            details = tuple(changed_lines(contents, reason.old, reason.new))
            return Cause(f"{reason.subject} changed", details)
        case reasons.INPUT_NEW:
            return Cause(f"{reason.subject} is a new input")
        case reasons.INPUT_GONE:
            return Cause(f"{reason.subject} is an input no longer")
        case other:
            return Cause(_WORDS[other])


def changed_lines(contents: Contents, old: str, new: str) -> Iterator[str]:
    """The first lines that differ between two contents, if the store has both as text."""
    before, after = _text(contents, old), _text(contents, new)
    if before is None or after is None or before == after:
        return
    left, right = before.splitlines(), after.splitlines()
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    end = 0
    while end < min(len(left), len(right)) - start and left[-1 - end] == right[-1 - end]:
        end += 1
    gone, come = left[start : len(left) - end], right[start : len(right) - end]
    yield f"line {start + 1}:"
    yield from _some(gone, "-")
    yield from _some(come, "+")


def _some(lines: list[str], mark: str, limit: int = 3) -> Iterator[str]:
    for line in lines[:limit]:
        yield f"{mark}{line[:160]}"
    if len(lines) > limit:
        yield f"{mark}… {len(lines) - limit} more"


def _text(contents: Contents, digest: str) -> str | None:
    # The digest of a file's state carries its kind before it: "f:sha256:…".
    name = digest[digest.find("sha256:") :] if "sha256:" in digest else ""
    try:
        data = contents(Digest.parse(name))
        return None if data is None else data.decode("utf-8")
    except ValueError:
        return None


def stored(disk: DiskStore) -> Contents:
    """The contents that a store has, up to a size worth showing."""

    def read(digest: Digest) -> bytes | None:
        size = disk.size_of(digest)
        if size is None or size > MAX_TEXT:
            return None
        try:
            return disk.read(BlobRef(digest, size))
        except BlobMissing:
            return None

    return read
