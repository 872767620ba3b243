"""``hq envs check`` and ``hq envs table``: the registry held against a built tree.

``check`` runs the audit over files that are there, and the bogus-name control: the generated
``envs.py`` is run by an interpreter of its own, with one made-up name exported, and exactly one
line of its output must name it. Only there is code of the wheel executed, isolated from the user's
environment and packages (``python -I``, an empty environment but for the one name).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from hq.knobs.audit import Declared, Export, Finding, Subject, audit
from hq.knobs.envsfile import read_envs
from hq.knobs.reads import ENVS_PATH, Row, facts, reads
from hq.knobs.registry import Registry, to_values
from hq.model.errors import BuildError, InfrastructureError, Location

SCHEMA = "hq.envs/1"
TABLE_SCHEMA = "hq.envs-table/1"
_SUFFIX = "HQ_MADE_UP_NAME"
_TIMEOUT = 120
_PROGRAM = """\
import sys, types
name = "vllm.envs"
module = sys.modules[name] = types.ModuleType(name)
module.__file__ = "envs.py"
exec(compile(sys.stdin.buffer.read(), "envs.py", "exec"), module.__dict__)
module.validate_environ(False)
"""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class ChangedFile(NamedTuple):
    """A Python file of the tree; ``before`` as the wheel had it, ``None`` when it did not."""

    path: str
    before: bytes | None
    after: bytes


class Control(NamedTuple):
    """One made-up name, and every line of output when it was exported."""

    name: str
    lines: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Exactly one line names it, and there is no other."""
        return len(self.lines) == 1 and self.name in self.lines[0]


class Report(NamedTuple):
    """What ``check`` found."""

    knobs: int
    files: int
    findings: tuple[Finding, ...]
    controls: tuple[Control, ...]

    @property
    def ok(self) -> bool:
        """No failure, and every control as it must be; warnings do not count."""
        failed = any(finding.level == "failure" for finding in self.findings)
        return not failed and all(control.ok for control in self.controls)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "schema": SCHEMA,
            "ok": self.ok,
            "knobs": self.knobs,
            "files": self.files,
            "findings": [
                {
                    "level": level,
                    "file": problem.where.file,
                    "line": problem.where.line,
                    "message": problem.message,
                    "hint": problem.hint,
                }
                for level, problem in self.findings
            ],
            "controls": [
                {"name": control.name, "ok": control.ok, "lines": list(control.lines)}
                for control in self.controls
            ],
        }

    def to_text(self) -> str:
        """The report as lines for people, without a final newline."""
        lines = [f"{level}: {problem}" for level, problem in self.findings]
        for control in self.controls:
            if control.ok:
                lines.append(f"control: {control.name} is warned about once")
                continue
            lines.append(
                f"failure: with {control.name} exported, expected one line that names it, "
                f"found {len(control.lines)}"
            )
            lines += [f"  | {line}" for line in control.lines[:20]]
        verdict = "ok" if self.ok else "failed"
        counts = f"{_count(self.knobs, 'knob')}, {_count(self.files, 'changed file')}"
        return "\n".join([*lines, f"{counts}: {verdict}"])


def check(
    envs_py: bytes,
    registry: Registry,
    files: Iterable[ChangedFile],
    *,
    exports: Iterable[Export] = (),
    exporters: Collection[str] = (),
    declared_at: Mapping[str, Location] | None = None,
    envs_path: str = ENVS_PATH,
    control: bool = True,
) -> Report:
    """Audits ``files`` against ``registry`` and the generated ``envs_py``.

    ``registry`` holds the knobs of this build (``Registry.owned_by``). ``control`` also runs the
    bogus-name control for every prefix. Raises ``BuildError`` when ``envs_py`` is not an envs.py.
    """
    envs = read_envs(envs_py, envs_path)
    table: dict[str, list[Row]] = {}
    sources: dict[str, bytes] = {}
    for path, before, after in files:
        if path.endswith(".py"):
            # The generated file is not a patch's work; what patches did to it is audited before.
            old = after if path == envs_path else before
            table[path] = facts(path, old, after)
            sources[path] = after
    subject = Subject(
        knobs=declared(registry),
        prefixes=registry.all_prefixes,
        variables=envs.variables,
        attributes=envs.attributes,
        facts=table,
        exports=tuple(exports),
        exporters=exporters,
        retired={old.name: old.reason for old in registry.retired},
        declared_at=declared_at or {},
        envs_path=envs_path,
    )
    return Report(
        knobs=len(registry.knobs),
        files=len(table),
        findings=audit_with_lines(subject, sources.get),
        controls=tuple(bogus_control(envs_py, prefix) for prefix in registry.all_prefixes)
        if control
        else (),
    )


def declared(registry: Registry) -> tuple[Declared, ...]:
    """What the audit needs of the registry."""
    return tuple(Declared(knob.name, knob.owner, knob.exported_by) for knob in registry.knobs)


def audit_with_lines(subject: Subject, read: Callable[[str], bytes | None]) -> tuple[Finding, ...]:
    """The audit; the files of its findings, if any, are read once more for their lines."""
    findings = audit(subject)
    paths = sorted({problem.where.file for _, problem in findings} & set(subject.facts))
    contents = {path: read(path) for path in paths}
    lines = [reads(path, data) for path, data in contents.items() if data is not None]
    return audit(subject, lines) if lines else findings


def bogus_control(envs_py: bytes, prefix: str) -> Control:
    """Runs ``envs_py`` with one made-up name under ``prefix`` exported.

    Raises ``BuildError`` when the file does not run, ``InfrastructureError`` when no answer comes.
    """
    name = prefix + _SUFFIX
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-X", "utf8", "-c", _PROGRAM],
            input=envs_py,
            env={name: "1"},
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"envs.py could not be run for its control: {error}") from error
    output = (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()
    if done.returncode:
        raise BuildError(
            "envs.py does not run by itself",
            where=Location(ENVS_PATH),
            details=output[-20:],
            hint="it must load with the standard library alone; look at the last line above",
        )
    return Control(name, tuple(line for line in output if line.strip()))


TABLE_HEAD = ("name", "type", "default", "compile key", "owner", "exported by", "meaning")


def table_rows(registry: Registry) -> list[tuple[str, ...]]:
    """One row per knob, in the columns of ``TABLE_HEAD``."""
    return [
        (
            knob.name,
            knob.type if not knob.choices else "|".join(choice or '""' for choice in knob.choices),
            "(unset)" if knob.default is None else knob.default or '""',
            "yes" if knob.compile_key else "no",
            knob.owner,
            ", ".join(knob.exported_by),
            knob.meaning,
        )
        for knob in registry.knobs
    ]


def table_text(registry: Registry) -> str:
    """The table in aligned columns, without a final newline."""
    rows = [TABLE_HEAD, *table_rows(registry)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TABLE_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def table_json(pin: str, registry: Registry) -> dict[str, Any]:
    """The table as plain JSON values; a knob without a default has ``null`` there."""
    return {"schema": TABLE_SCHEMA, "pin": pin, **to_values(registry)}
