"""Quilt's ``series`` file, and a series applied patch by patch.

Grammar, as quilt's own scripts read it: one patch a line, blank lines and ``#`` lines left out, and
what follows a blank and ``#``::

    line   = name option*
    option = "-pN" | "-p N" | "-pab" | "--strip=N" | "-R" | "--reverse"

``-pab`` is quilt's way to name patches with ``a/`` and ``b/`` in front: it strips one directory.
Any other option would go to GNU patch (``--fuzz=3``, ``-l``) and change what is checked, so it is
refused. All that is wrong with a series file is reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hq.model.errors import Location, Problem, UsageError, problems_error
from hq.patchwork.apply import File, Lines, PatchOutcome, Read, apply_patch
from hq.patchwork.names import decode, show
from hq.patchwork.parse import parse_patch
from hq.patchwork.patch import Patch

MAX_BYTES = 16 << 20
_COMMENT = re.compile(r"(?:^|[ \t])#.*")
_STRIP = re.compile(r"(?:-p|--strip=)(\d{1,3})$")
_OPTIONS_HINT = "the options are -pN (default -p1) and -R"


class Entry(NamedTuple):
    """A line of a series: the patch's path below its folder, how to apply it, where it stands."""

    name: str
    strip: int
    reverse: bool
    line: int


class SeriesOutcome(NamedTuple):
    """What became of a series.

    ``changes``: what differs from the tree it was applied to, with the patches that applied.
    """

    outcomes: tuple[PatchOutcome, ...]
    changes: dict[str, File | None]

    @property
    def applied(self) -> bool:
        """Whether every patch that was tried applied."""
        return all(outcome.outcome == "applied" for outcome in self.outcomes)


def parse_series(
    data: bytes, file: str = "series", is_there: Callable[[str], bool] | None = None
) -> tuple[Entry, ...]:
    """The entries of a series file, in order.

    ``is_there``: whether there is a patch file of that name; not asked when left out. Raises
    ``UsageError`` that lists every mistake with its line.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"the series has {len(data)} bytes; the limit is {MAX_BYTES}", where=Location(file)
        )
    text = data.removeprefix(b"\xef\xbb\xbf")
    entries: list[Entry] = []
    problems: list[Problem] = []
    first: dict[str, int] = {}
    for number, raw in enumerate(text.split(b"\n"), 1):
        words = _COMMENT.sub("", decode(raw.rstrip(b"\r"))).split()
        if not words:
            continue
        entry, wrong = _entry(words, number)
        before = first.setdefault(entry.name, number)
        if before != number:
            wrong.append((f"'{show(entry.name)}' stands twice, first at line {before}", ""))
        elif is_there and not _name_problems(entry.name) and not is_there(entry.name):
            wrong.append((f"there is no patch file '{show(entry.name)}'", ""))
        problems += [Problem(Location(file, number), text, hint) for text, hint in wrong]
        entries.append(entry)
    if problems:
        count = "one mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
        raise problems_error(f"{file} has {count}", problems)
    return tuple(entries)


def _entry(words: list[str], line: int) -> tuple[Entry, list[tuple[str, str]]]:
    name, options = words[0], words[1:]
    wrong = _name_problems(name)
    strip, reverse = 1, False
    while options:
        option = options.pop(0)
        if option == "-p" and options:
            option += options.pop(0)
        match = _STRIP.match(option)
        if match:
            strip = int(match[1])
        elif option == "-pab":
            strip = 1
        elif option in ("-R", "--reverse"):
            reverse = True
        elif option.startswith("-"):
            wrong.append((f"unknown option '{show(option)}'", _OPTIONS_HINT))
        else:
            wrong.append((f"'{show(option)}' after the name of a patch", "one patch a line"))
    return Entry(name, strip, reverse, line), wrong


def _name_problems(name: str) -> list[tuple[str, str]]:
    if name.startswith("-"):
        return [(f"an option without a patch: '{show(name)}'", "")]
    if name.startswith("/"):
        return [
            (f"an absolute path: '{show(name)}'", "name patches by their path below the folder")
        ]
    if "\0" in name:
        return [("a NUL byte in the name of a patch", "")]
    if any(part in ("", ".", "..") for part in name.split("/")):
        return [(f"an empty, '.' or '..' part in '{show(name)}'", "")]
    return []


def orphan_problems(named: Iterable[str], present: Iterable[str], folder: str) -> list[Problem]:
    """One problem for each patch file (``*.patch``, ``*.diff``) that no series names."""
    known = set(named)
    return [
        Problem(
            Location(f"{folder}/{name}" if folder else name),
            "this patch is in no series", "name it in one, or remove it",
        )
        for name in sorted(present)
        if name.endswith((".patch", ".diff")) and name not in known
    ]  # fmt: skip


def apply_series(
    entries: Sequence[Entry],
    load: Callable[[str], bytes],
    read: Read,
    *,
    keep_going: bool = False,
    strict: bool = False,
) -> SeriesOutcome:
    """Applies the patches in order to the tree that ``read`` answers for.

    ``load(name)`` gives a patch file's bytes. The first patch that does not apply ends the series
    and is the last one reported; with ``keep_going`` it is left out whole and the next is tried.
    """
    changes: dict[str, File | None] = {}

    def current(path: str) -> File | None:
        return changes[path] if path in changes else read(path)

    lines = Lines()
    outcomes = []
    for entry in entries:
        patch: Patch = parse_patch(load(entry.name), entry.name)
        outcome = apply_patch(patch, current, entry.strip, entry.reverse, strict, lines)
        outcomes.append(outcome)
        if outcome.outcome == "applied":
            changes.update(outcome.changes)
        elif not keep_going:
            break
    return SeriesOutcome(tuple(outcomes), _net(changes, read))


def _net(changes: dict[str, File | None], read: Read) -> dict[str, File | None]:
    return {path: file for path, file in sorted(changes.items()) if file != read(path)}
