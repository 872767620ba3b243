"""``audit``: what the changed files read of the environment, held against the registry.

Its inputs are the reads of each node's files without line numbers, and the names that the generated
``envs.py`` defines. So neither a moved line nor a changed default runs it again; lines are looked
up only to word a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from hq.knobs.audit import Declared, Export, Subject, audit, merged, refusal
from hq.knobs.reads import FileReads, Row, reads
from hq.model.errors import Location
from hq.rules.context import Context, Made


def run(context: Context) -> Made:
    """Value ``ok``; warnings for what does not fail the build. Raises ``BuildError``."""
    nodes = _in_order(context)
    by_node = [cast("Mapping[str, Sequence[Row]]", context.value(f"reads:{n}")) for n in nodes]
    facts = merged(_rows(one) for one in by_node)
    prefixes = cast("list[str]", context.params["prefixes"])
    subject = Subject(
        knobs=tuple(_declared(knob) for knob in cast("list[Any]", context.params["knobs"])),
        prefixes=("VLLM_", *prefixes),
        variables=frozenset(cast("list[str]", context.value("variables"))),
        attributes=frozenset(cast("list[str]", context.value("attributes"))),
        facts=facts,
        retired=cast("dict[str, str]", context.params["retired"]),
        envs_path=str(context.params["target"]),
        exports=tuple(
            Export(name, exporter, Location(file, line))
            for name, exporter, file, line in cast("list[Any]", context.params.get("exports", ()))
        ),
        exporters=tuple(cast("list[str]", context.params.get("exporters", ()))),
    )
    findings = audit(subject)
    if findings:
        findings = audit(subject, _lines(context, nodes, facts))
    error = refusal(findings)
    if error is not None:
        raise error
    for finding in findings:
        context.warn(str(finding.problem))
    return Made(values={"ok": True})


def _in_order(context: Context) -> list[str]:
    order = cast("list[str]", context.params["order"])
    return list(order)


def _rows(facts: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    return {path: [cast("Row", tuple(row)) for row in rows] for path, rows in facts.items()}


def _declared(knob: Mapping[str, Any]) -> Declared:
    return Declared(knob["name"], knob["owner"], tuple(knob["exported_by"]))


def _lines(
    context: Context, nodes: Sequence[str], facts: Mapping[str, Sequence[Row]]
) -> Iterator[FileReads]:
    for path in facts:
        for node in reversed(nodes):
            data = context.content_of(node, path)
            if data is not None:
                yield reads(path, data)
                break
