"""Where each line of a file comes from, followed through what the nodes did to it.

Nothing is guessed from similarity: a patch is placed once more by the same engine, and its hunks
say which lines they kept, took away and put in; the knobs' lines come from the generator's own
edits. Lines are ended by LF, as everywhere in hq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from hq.knobs.origins import line_origins
from hq.knobs.registry import Registry
from hq.patchwork.apply import File, FileReport, Read, apply_patch, split_lines
from hq.patchwork.parse import parse_patch
from hq.patchwork.patch import Hunk, Refusal
from hq.patchwork.place import Placed
from hq.patchwork.target import Target, resolve

Kind = Literal["wheel", "patch", "knob", "envs", "overlay", "layer", "other"]


class Origin(NamedTuple):
    """Where one line comes from.

    ``node``: the node that put it there. ``name``: the wheel, patch, knob or overlay. ``file`` and
    ``line``: where it stands there: in a member of the wheel, a patch file, an overlay's file, the
    registry. ``hunk``: of that file's section of the patch, from 1; 0 for anything else.
    """

    kind: Kind
    node: str
    name: str
    file: str = ""
    line: int = 0
    hunk: int = 0


Origins = Sequence[Origin]
OriginsOf = Callable[[str], Origins | None]
"""The origins of a file's lines as the nodes before left it; ``None`` when there is no file."""


def whole(kind: Kind, node: str, name: str, file: str, data: bytes) -> Origins:
    """The origins of a file that one node brought as it is."""
    return [Origin(kind, node, name, file, n + 1) for n in range(len(split_lines(data)))]


def kept(data: bytes, before: bytes, origins: Origins, otherwise: Origin) -> Origins:
    """The origins of a list of different lines: those that stood there before keep theirs."""
    known = dict(zip(split_lines(before), origins, strict=True))
    return [
        known.get(line) or otherwise._replace(line=number)
        for number, line in enumerate(split_lines(data), 1)
    ]


def with_knobs(
    before: bytes, origins: Origins, registry: Registry, file: str, node: str
) -> Origins:
    """The origins of ``envs.py`` after the knobs were written into it."""
    return [
        origins[line.old - 1]
        if line.old
        else Origin("knob", node, line.knob)
        if line.knob
        else Origin("envs", node, file)
        for line in line_origins(before, registry, file)
    ]


class Step(NamedTuple):
    """A patch in a node: its file's path and content, and how it is applied."""

    node: str
    name: str
    file: str
    data: bytes
    strip: int
    reverse: bool


class Patched(NamedTuple):
    """What a patch made of each file that it changed; ``None`` for one that it removed."""

    origins: Mapping[str, Origins | None]
    files: Mapping[str, File | None]


def patched(step: Step, read: Read, origins_of: OriginsOf) -> Patched:
    """Plays a patch. ``read`` and ``origins_of`` tell of the tree before it; it must apply."""
    patch = parse_patch(step.data, step.file)
    outcome = apply_patch(patch, read, step.strip, step.reverse)
    if outcome.outcome != "applied":
        raise ValueError(f"{step.file}: {outcome.reason}")
    targets: list[Target] = []
    for section in patch.sections:
        target = resolve(section, step.strip, step.reverse)
        assert not isinstance(target, Refusal)
        targets.append(target)
    state = _Sections(step, origins_of, targets)
    for target, report in zip(targets, outcome.files, strict=True):
        if not report.already:
            state.section(target, report)
    return Patched({path: state.now[path] for path in outcome.changes}, outcome.changes)


class _Sections:
    """The sections of a patch one after the other, as ``hq.patchwork.apply`` takes them."""

    def __init__(self, step: Step, origins_of: OriginsOf, targets: Sequence[Target]) -> None:
        self._step = step
        # Files that a rename takes away: two may swap names, and then each is read as it was found.
        self._vacated = {t.paths[0] for t in targets if t.operation == "rename"}
        self._before = origins_of
        self._lines = split_lines(step.data)
        self.now: dict[str, Origins | None] = {}

    def _get(self, path: str) -> Origins | None:
        return self.now[path] if path in self.now else self._before(path)

    def section(self, target: Target, report: FileReport) -> None:
        source = target.paths[0] if target.dest else report.path
        match target.operation:
            case "edit" | "create":
                self.now[source] = self._edited(self._get(source) or (), report)
            case "delete":
                self.now[source] = None
            case "uncopy":
                self.now[target.dest] = None
            case "rename" | "copy":
                self.now[target.dest] = self._edited(self._source(source) or (), report)
                landed_on = source in self._vacated and self.now.get(source) is not None
                if target.operation == "rename" and not landed_on:
                    self.now[source] = None

    def _source(self, path: str) -> Origins | None:
        before = self._before(path)
        if path in self._vacated and path in self.now and before is not None:
            return before
        return self._get(path)

    def _edited(self, origins: Origins, report: FileReport) -> Origins:
        out: list[Origin] = []
        done = 0
        for placed in report.hunks:
            if placed.lands:
                hunk = placed.hunk
                at = max(placed.at, 0)
                out += origins[done : at + hunk.leading]
                out += self._changed(origins, placed, at)
                done = at + len(hunk.old) - hunk.trailing
        out += origins[done:]
        return out

    def _changed(self, origins: Origins, placed: Placed, at: int) -> Iterator[Origin]:
        """The new lines of a hunk without the context around its changes."""
        hunk = placed.hunk
        step = self._step
        side = list(_new_side(self._lines, hunk, step.reverse))
        for line, old in side[hunk.leading : len(hunk.new) - hunk.trailing]:
            if line:
                yield Origin("patch", step.node, step.name, step.file, line, hunk.n)
            else:
                yield origins[at + old]


def _new_side(lines: Sequence[bytes], hunk: Hunk, reverse: bool) -> Iterator[tuple[int, int]]:
    """For each new line of a hunk its line of the patch file, or 0 and its place among the old."""
    added, removed = (b"-", b"+") if reverse else (b"+", b"-")
    old = new = 0
    for number in range(hunk.line, len(lines)):
        if old == len(hunk.old) and new == len(hunk.new):
            return
        mark = lines[number][:1]
        if mark == added:
            yield number + 1, 0
            new += 1
        elif mark == removed:
            old += 1
        elif mark != b"\\":
            yield 0, old
            old, new = old + 1, new + 1


def totals(origins: Origins) -> Mapping[str, int]:
    """How many lines each kind of origin gave, sorted by name."""
    counts: dict[str, int] = {}
    for origin in origins:
        counts[origin.kind] = counts.get(origin.kind, 0) + 1
    return dict(sorted(counts.items()))
