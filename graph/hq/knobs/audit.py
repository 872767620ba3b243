"""The audit: does every knob that is read, registered or exported fit together.

It works on facts (``hq.knobs.reads.facts``) of the files that nodes changed, on the names that the
generated ``envs.py`` defines, and on what launchers export. Files that nobody changed are vLLM's
own and cannot name a knob of the fork, so the cost follows the change, not the wheel.

=========================================================================  =========
raw read of a registered name, or of one under a prefix of the fork        failure
raw read, added by a change, of a ``VLLM_`` name that envs.py lacks        failure
variable written into envs.py by a patch instead of the registry           failure
``envs.X`` that envs.py lacks                                              failure
changed file that is no Python                                             failure
exported name under a registered prefix that nothing reads                 failure
launcher named by a knob that does not export it                           failure
registered and never read; exported by a launcher that it does not name    warning
raw read, added by a change, of a computed name                            warning
=========================================================================  =========

Facts carry no lines, so that their key survives a moved line. When there is something to report,
the caller reads the files concerned once more and asks again with ``lines``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from hq.knobs.prefix import STOCK_PREFIX
from hq.knobs.reads import ENVS_PATH, FileReads, Row
from hq.model.errors import BuildError, HqError, Location, Problem, problems_error

Level = Literal["failure", "warning"]


class Finding(NamedTuple):
    """One thing that does not fit."""

    level: Level
    problem: Problem


class Declared(NamedTuple):
    """What the audit needs of a knob; its type, default and meaning are no business of it."""

    name: str
    owner: str
    exported_by: tuple[str, ...] = ()


class Export(NamedTuple):
    """``name`` is set by ``exporter`` (a launcher or profile) at ``where``."""

    name: str
    exporter: str
    where: Location


class Subject(NamedTuple):
    """All that one audit is about.

    ``knobs``, ``prefixes`` (all of them, ``VLLM_`` too) and ``retired`` (name to reason): the
    registry. ``variables`` and ``attributes``: what the generated ``envs.py`` defines.
    ``facts``: per changed file, ``merged``. ``exports``, and ``exporters``: every launcher looked
    at. ``declared_at``: where each knob stands in the registry's file.
    """

    knobs: tuple[Declared, ...]
    prefixes: tuple[str, ...]
    variables: Collection[str]
    attributes: Collection[str]
    facts: Mapping[str, Sequence[Row]]
    exports: tuple[Export, ...] = ()
    exporters: Collection[str] = ()
    retired: Mapping[str, str] = {}
    declared_at: Mapping[str, Location] = {}
    envs_path: str = ENVS_PATH


def merged(nodes: Iterable[Mapping[str, Sequence[Row]]]) -> dict[str, list[Row]]:
    """The facts of nodes in their order as facts of the final files.

    The last node that changed a file says what is in it; what any of them added and is still there
    was added.
    """
    now: dict[str, Sequence[Row]] = {}
    added: dict[tuple[str, str, str], int] = {}
    for facts in nodes:
        for path, rows in facts.items():
            now[path] = rows
            for kind, name, _, more in rows:
                added[path, kind, name] = added.get((path, kind, name), 0) + more
    return {
        path: [
            (kind, name, count, min(count, added[path, kind, name]))
            for kind, name, count, _ in rows
        ]
        for path, rows in sorted(now.items())
    }


def audit(subject: Subject, lines: Iterable[FileReads] = ()) -> tuple[Finding, ...]:
    """Everything that does not fit, failures first, then by place.

    ``lines``: the reads of files with their lines, for messages; without them a message names the
    file alone.
    """
    findings = _Audit(subject, lines).findings()
    return tuple(sorted(set(findings), key=lambda finding: (finding.level, finding.problem)))


def refusal(findings: Sequence[Finding]) -> HqError | None:
    """One error for all failures, or ``None`` when there is none."""
    failures = [finding.problem for finding in findings if finding.level == "failure"]
    if not failures:
        return None
    count = "one fault" if len(failures) == 1 else f"{len(failures)} faults"
    return problems_error(
        f"the audit of environment knobs found {count}", failures, kind=BuildError
    )


class _Audit:
    """One run over a subject."""

    def __init__(self, subject: Subject, lines: Iterable[FileReads]) -> None:
        self.subject = subject
        self.registered = {knob.name for knob in subject.knobs}
        self.fork_prefixes = tuple(set(subject.prefixes) - {STOCK_PREFIX})
        self.lines: dict[tuple[str, str, str], list[int]] = {}
        for file in lines:
            if file.unreadable:
                self.lines[file.path, "unreadable", ""] = [file.line]
            for read in file.reads:
                self.lines.setdefault((file.path, read.kind, read.name), []).append(read.line)
        self.read = {
            name
            for path, rows in subject.facts.items()
            if path != subject.envs_path
            for kind, name, _, _ in rows
            if kind in ("raw", "envs")
        }

    def findings(self) -> Iterator[Finding]:
        for path, rows in self.subject.facts.items():
            for row in rows:
                if path == self.subject.envs_path:
                    yield from self._row_of_envs(path, row)
                else:
                    yield from self._row(path, row)
        for export in self.subject.exports:
            yield from self._export(export)
        for knob in self.subject.knobs:
            yield from self._knob(knob)

    # Files

    def _row(self, path: str, row: Row) -> Iterator[Finding]:
        kind, name, _, added = row
        if kind == "unreadable":
            message = "a changed file is not Python that can be read"
            yield from self._at(path, row, message, "mend the patch that changes it")
        elif kind == "raw":
            yield from self._raw(path, row)
        elif kind == "envs":
            if name not in self.subject.variables and name not in self.subject.attributes:
                message = f"envs.{name} is read and {name} is not registered{self._story(name)}"
                yield from self._at(path, row, message, self._register(name))
        elif added:
            message = f"a patch reads the environment by a computed name: {name}"
            yield from self._at(path, row, message, "read knobs through envs", level="warning")

    def _raw(self, path: str, row: Row) -> Iterator[Finding]:
        _, name, _, added = row
        if name in self.registered:
            message = f"raw read of the registered knob {name}"
            yield from self._at(path, row, message, f"read it as envs.{name}")
        elif name in self.subject.variables:
            return
        elif name.startswith(self.fork_prefixes) or (name.startswith(STOCK_PREFIX) and added):
            message = f"raw read of {name}, which is not registered{self._story(name)}"
            hint = f"{self._register(name)} and read it as envs.{name}"
            yield from self._at(path, row, message, hint)

    def _row_of_envs(self, path: str, row: Row) -> Iterator[Finding]:
        """``envs.py`` reads every variable raw; only what a patch adds to it is looked at."""
        kind, name, _, added = row
        if kind == "unreadable":
            yield from self._row(path, row)
        elif kind == "raw" and added and name.startswith(self.subject.prefixes):
            message = f"{name} is written into envs.py by a patch"
            yield from self._at(path, row, message, self._register(name) + " instead")

    def _at(
        self, path: str, row: Row, message: str, hint: str, *, level: Level = "failure"
    ) -> Iterator[Finding]:
        kind, name, _, _ = row
        for line in self.lines.get((path, kind, name), [0]):
            yield Finding(level, Problem(Location(path, line), message, hint))

    # The registry and the launchers

    def _export(self, export: Export) -> Iterator[Finding]:
        name = export.name
        if name in self.registered:
            if name not in self.read:
                yield from self._dead(export, f"it is registered for {self._owner(name)}")
            elif export.exporter not in self._exporters_of(name):
                message = f"{export.exporter} exports {name}, whose declaration does not say so"
                hint = f"add {export.exporter!r} to its exported_by"
                yield Finding("warning", Problem(export.where, message, hint))
        elif name not in self.subject.variables and name.startswith(self.subject.prefixes):
            yield from self._dead(export, f"envs.py does not know it{self._story(name)}")

    def _dead(self, export: Export, why: str) -> Iterator[Finding]:
        message = f"{export.name} is exported and nothing reads it: {why}"
        hint = self._near(export.name) or "drop the export"
        yield Finding("failure", Problem(export.where, message, hint))

    def _knob(self, knob: Declared) -> Iterator[Finding]:
        where = self.subject.declared_at.get(knob.name, Location("knobs.toml"))
        exported = {export.exporter for export in self.subject.exports if export.name == knob.name}
        if knob.name not in self.read and not exported:
            message = f"{knob.name} is registered for {knob.owner} and nothing reads it"
            yield Finding("warning", Problem(where, message, "read it or drop it"))
        for exporter in sorted(set(knob.exported_by) - exported):
            if exporter in self.subject.exporters:
                message = f"{knob.name} is declared as exported by {exporter}, which does not"
            else:
                message = f"{knob.name} is declared as exported by {exporter}, which is no launcher"
            yield Finding("failure", Problem(where, message, "correct its exported_by"))

    def _exporters_of(self, name: str) -> Collection[str]:
        return next(knob.exported_by for knob in self.subject.knobs if knob.name == name)

    # Words

    def _owner(self, name: str) -> str:
        return next(knob.owner for knob in self.subject.knobs if knob.name == name)

    def _story(self, name: str) -> str:
        reason = self.subject.retired.get(name)
        return f" ({reason})" if reason else ""

    def _register(self, name: str) -> str:
        return self._near(name) or f"declare {name} in knobs.toml"

    def _near(self, name: str) -> str:
        """A misspelling is the likelier fault when a known name is one slip away."""
        from difflib import get_close_matches

        others = sorted(set(self.subject.variables) - {name})
        near = get_close_matches(name, others, n=1, cutoff=0.92)
        return f"did you mean {near[0]}?" if near else ""
