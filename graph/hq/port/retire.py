"""What upstream seems to carry now: proposals, never more.

A hunk is proposed when three things hold in the new release: it does not apply any more; what it
would leave stands there, once; and that place is in the definition that the hunk stood in before.
That its result is there somewhere proves nothing (a twin function has it), and so does a reverse
dry run. Or a commit that the patch's header names is in the release, as the user's clone of
upstream tells: that is the only way for a change that upstream made in other words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hq.model.errors import Location
from hq.patchwork.apply import FileReport, split_lines
from hq.patchwork.patch import Hunk, Patch
from hq.patchwork.place import Image
from hq.port.outline import Definition, enclosing, outline
from hq.port.replay import Replay, Tried, body

_LEAST: Final = 24  # characters that added lines must have to be told apart without context
_FIELDS: Final = ("Applied-Upstream", "Origin", "Bug", "Retires-When")


class Carried(NamedTuple):
    """A hunk whose result the new tree has, at ``line``, in ``definition`` (may be empty)."""

    n: int
    where: Location
    path: str
    line: int
    definition: str


class NamedCommit(NamedTuple):
    """A commit of the new release that the patch's header names by number or id."""

    commit: str
    subject: str
    named: str


class Proposal(NamedTuple):
    """A patch that upstream may carry: ``hunks`` of ``total``, or a commit, or both."""

    patch: str
    file: str
    total: int
    hunks: tuple[Carried, ...]
    commits: tuple[NamedCommit, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the patch would be left."""
        return len(self.hunks) == self.total


def proposals(
    before: Replay, after: Replay, commits: Mapping[str, NamedCommit] | None = None
) -> tuple[Proposal, ...]:
    """The proposals, in the order of the series.

    ``commits``: from a name (``#55450``, or a commit id) to the commit of the release that it is.
    """
    old = {tried.step.file: tried for tried in before.tried if tried.applied}
    found = []
    for tried in after.tried:
        known = old.get(tried.step.file)
        hunks = tuple(_carried(known, tried)) if known is not None and not tried.applied else ()
        named = tuple(
            (commits or {})[name] for name in names(tried.patch) if name in (commits or {})
        )
        if hunks or named:
            total = sum(len(section.hunks) for section in tried.patch.sections)
            found.append(Proposal(tried.step.name, tried.step.file, total, hunks, named))
    return tuple(found)


def names(patch: Patch) -> tuple[str, ...]:
    """Pull requests and commits that a patch's header names: ``#55450``, ``0123abc…``."""
    text = " ".join(patch.field(name) or "" for name in _FIELDS)
    found = re.findall(r"#\d{2,}\b|\b[0-9a-f]{10,40}\b|(?<=/pull/)\d+", text)
    return tuple(dict.fromkeys(one if not one.isdigit() else f"#{one}" for one in found))


def _carried(old: Tried, new: Tried) -> Iterator[Carried]:
    stood = {
        (report.path, placed.hunk.line): _around(report, placed.at + placed.hunk.leading + 1)
        for report in old.outcome.files
        for placed in report.hunks
    }
    text = split_lines(new.step.data)
    for report in new.outcome.files:
        image = Image(list(report.lines))
        found = outline(b"".join(report.lines))
        for placed in report.hunks:
            if placed.lands:
                continue
            at = _result_at(image, text, placed.hunk, new.step.reverse)
            if at < 0:
                continue
            definition = enclosing(found, at + 1)
            name = definition.name if definition is not None else ""
            if stood.get((report.path, placed.hunk.line), "?") == name:
                where = Location(new.step.file, placed.hunk.line)
                yield Carried(placed.hunk.n, where, report.path, at + 1, name)


def _around(report: FileReport, line: int) -> str:
    definitions: Sequence[Definition] = outline(b"".join(report.lines))
    found = enclosing(definitions, line)
    return found.name if found is not None else ""


def _result_at(image: Image, text: list[bytes], hunk: Hunk, reverse: bool) -> int:
    """The one place of what the hunk leaves, from its first changed line on; -1 without one.

    Tried with all its context, then with less. With none, only when the added lines say enough and
    nothing is removed: lines that are not there prove no removal.
    """
    adds = removes = 0
    for sign, number in body(text, hunk, reverse):
        adds += len(text[number - 1].strip()) if sign == "+" else 0
        removes += sign == "-"
    most = max(hunk.leading, hunk.trailing)
    least = 0 if adds >= _LEAST and not removes else 1
    for context in range(most, least - 1, -1):
        head, tail = min(context, hunk.leading), min(context, hunk.trailing)
        form = hunk.new[hunk.leading - head : len(hunk.new) - hunk.trailing + tail]
        places = image.places(form, 0) if form else []
        if len(places) > 1:
            return -1
        if places:
            return places[0] + head
    return -1
