"""What a patch's header must say, and the ledger of a series.

The fields answer the questions that come up when a pin moves: what does this change (``Subject``),
where is it from (``Origin``), is it on its way upstream (``Forwarded``, ``Applied-Upstream``),
which tree was it cut against, and when may it go. DEP-3 defines the first group; ``Kind``,
``Cut-Against`` and ``Retires-When`` are hq's.

==========  =============================================================================
kind        a patch that
==========  =============================================================================
backport    carries a change that upstream has: needs ``Origin`` or ``Applied-Upstream``
fix         mends a fault: says in ``Forwarded`` where it was sent
feature     adds something: the same
local       fits the tree to this place: needs no ``Forwarded``
own         belongs to code that lives here: needs no ``Forwarded``
==========  =============================================================================
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hq.model.errors import Location, Problem
from hq.patchwork.header import KNOWN, is_known
from hq.patchwork.patch import Patch
from hq.patchwork.target import Target, resolve

KINDS = ("backport", "fix", "feature", "local", "own")
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)$")
_FORWARDED = re.compile(r"(?:no|not-needed|yes)\b|\S+://\S+|#?\d+\b|\S+@\S+", re.IGNORECASE)
_MAIL = frozenset({"to", "cc", "message-id", "in-reply-to", "references", "mime-version", "from"})


class Row(NamedTuple):
    """One patch in the ledger of ``hq series table``."""

    name: str
    kind: str
    subject: str
    origin: str
    forwarded: str
    cut_against: str
    retires_when: str
    files: int
    hunks: int
    added: int
    removed: int


def lint(patch: Patch, file: str, strip: int = 1) -> list[Problem]:
    """Every mistake in a patch's header, and what it would be refused for; ``file``: its path."""
    problems = [
        Problem(Location(file, refusal.line), refusal.message, refusal.hint)
        for refusal in patch.refusals
    ]
    for section in patch.sections:
        target = resolve(section, strip, False)
        if not isinstance(target, Target):
            problems.append(Problem(Location(file, target.line), target.message, target.hint))
    header = _Header(patch, file)
    header.check()
    return sorted(problems + header.problems)


class _Header:
    def __init__(self, patch: Patch, file: str) -> None:
        self.patch = patch
        self.file = file
        self.problems: list[Problem] = []

    def check(self) -> None:
        if not self.value("Subject") and not self.value("Description"):
            self.complain("", "no Subject", "say in one line what the patch changes")
        self._kind()
        self._dates()
        if not self.value("Cut-Against"):
            self.complain(
                "Cut-Against", "no Cut-Against", "name the tree it was made from, as 0.29.0"
            )
        if not self.value("Retires-When"):
            self.complain(
                "Retires-When", "no Retires-When", "say what makes it unnecessary, or 'never'"
            )
        self._names()

    def value(self, name: str) -> str:
        return (self.patch.field(name) or "").strip()

    def complain(self, name: str, message: str, hint: str = "") -> None:
        line = self._line(name) if name else 0
        self.problems.append(Problem(Location(self.file, line), message, hint))

    def _line(self, name: str) -> int:
        wanted = name.lower().encode() + b":"
        for number, line in enumerate(self.patch.preamble.split(b"\n"), 1):
            if line.lower().startswith(wanted):
                return number
        return 0

    def _kind(self) -> None:
        kind = self.value("Kind").lower()
        if kind not in KINDS:
            found = f"'{self.value('Kind')}' is no Kind" if kind else "no Kind"
            self.complain("Kind", found, "one of " + ", ".join(KINDS))
            return
        if kind == "backport" and not (self.value("Origin") or self.value("Applied-Upstream")):
            self.complain("Kind", "a backport without Origin", "name the commit or pull request")
        forwarded = self.value("Forwarded")
        if kind in ("fix", "feature") and not forwarded:
            self.complain("Forwarded", "no Forwarded", "an address, 'no' or 'not-needed'")
        elif forwarded and not _FORWARDED.match(forwarded):
            self.complain(
                "Forwarded", f"Forwarded is '{forwarded}'", "an address, 'no' or 'not-needed'"
            )

    def _dates(self) -> None:
        date = self.value("Last-Update")
        match = _DATE.match(date)
        if date and not (match and 1 <= int(match[2]) <= 12 and 1 <= int(match[3]) <= 31):
            self.complain("Last-Update", f"Last-Update is '{date}'", "a date as 2026-09-18")

    def _names(self) -> None:
        seen: set[str] = set()
        for name, _ in self.patch.fields:
            lower = name.lower()
            if lower in seen and not lower.startswith("bug"):
                self.complain(name, f"{name} stands twice")
            seen.add(lower)
            if is_known(name) or lower in _MAIL or lower.startswith(("x-", "content-")):
                continue
            near = _nearest(name)
            self.complain(
                name, f"unknown field {name}",
                f"did you mean {near}?" if near else "begin the names of your own fields with X-",
            )  # fmt: skip


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    lower = {known.lower(): known for known in KNOWN}
    found = get_close_matches(name.lower(), lower, 1, 0.75)
    return lower[found[0]] if found else ""


def row(patch: Patch, strip: int = 1) -> Row:
    """The ledger's line for a patch."""
    hunks = [hunk for section in patch.sections for hunk in section.hunks]
    context = sum(hunk.leading + hunk.trailing for hunk in hunks)
    paths = {
        target.paths[0] if not target.dest else target.dest
        for target in (resolve(section, strip, False) for section in patch.sections)
        if isinstance(target, Target)
    }
    return Row(
        name=patch.name,
        kind=_line(patch, "Kind"),
        subject=_subject(patch),
        origin=_line(patch, "Origin") or _line(patch, "Applied-Upstream"),
        forwarded=_line(patch, "Forwarded"),
        cut_against=_line(patch, "Cut-Against"),
        retires_when=_line(patch, "Retires-When"),
        files=len(paths),
        hunks=len(hunks),
        added=sum(len(hunk.new) for hunk in hunks) - context,
        removed=sum(len(hunk.old) for hunk in hunks) - context,
    )


def _line(patch: Patch, name: str) -> str:
    return " ".join((patch.field(name) or "").split())


def _subject(patch: Patch) -> str:
    subject = _line(patch, "Subject") or (patch.field("Description") or "").strip().split("\n")[0]
    return re.sub(r"^\[PATCH[^\]]*\]\s*", "", subject)
