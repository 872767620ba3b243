"""``plan``, ``why`` and ``graph``: what would happen, what happened, what hangs on what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hq.app.build import Records
from hq.app.causes import Contents, causes_of, stored
from hq.app.session import Session
from hq.execute.speculate import Forecast, Quiet
from hq.execute.walk import Outcome, despite_damage
from hq.model.digest import Digest
from hq.model.errors import HqError, UsageError
from hq.plan.node import Graph
from hq.provenance.record import Cause
from hq.rules.table import RULES

SCHEMA = "hq.plan/1"
_MANY = 5  # more nodes than these are counted, not named, where a person reads


class Row(NamedTuple):
    """One node of a plan: ``run``, ``reuse``, ``fail`` or ``unknown``, and why.

    ``waits``: the nodes that have to run before it is known, in the graph's order.
    """

    node: str
    action: str
    causes: tuple[Cause, ...]
    waits: tuple[str, ...] = ()


class Plan(NamedTuple):
    """What a build would do now, in the graph's order; ``failure`` is what would stop it."""

    pin: str
    rows: tuple[Row, ...]
    failure: HqError | None


_ACTIONS = {"reused": "reuse", "built": "run", "failed": "fail", "unknown": "unknown"}


def plan(session: Session, pin: str) -> Plan:
    """Forecasts a build of ``pin``. Writes nothing but what is remembered of unchanged files."""
    spec = session.spec(pin)
    graph = session.graph(spec)
    records = Records(session, spec.pin)
    forecast = Forecast(graph, session, session.disk.actions, RULES, records.before, Quiet())
    outcomes = despite_damage(forecast.run)
    contents = _contents(session, forecast)
    rows = tuple(_row(outcome, outcomes, contents) for outcome in outcomes.values())
    return Plan(spec.pin, rows, forecast.failure)


def _contents(session: Session, forecast: Forecast) -> Contents:
    """What the store has, and what the project and the forecast made since."""
    from_disk = stored(session.disk)
    sources = {seen.ref.digest: path for path, seen in session.sources.seen.items()}

    def read(digest: Digest) -> bytes | None:
        if digest in sources:
            return session.sources.read(sources[digest])
        found = forecast.content(digest)
        return from_disk(digest) if found is None else found

    return read


def _row(outcome: Outcome, outcomes: Mapping[str, Outcome], contents: Contents) -> Row:
    action = _ACTIONS[outcome.status]
    if outcome.status == "reused":
        return Row(outcome.node.name, action, ())
    if outcome.key is None:
        needed = set(outcome.node.depends_on())
        waits = [
            name for name, other in outcomes.items() if name in needed and other.result is None
        ]
        return Row(outcome.node.name, action, (Cause(_waits_text(waits)),), tuple(waits))
    causes = tuple(causes_of(outcome, contents))
    return Row(outcome.node.name, action, causes)


def _waits_text(waits: list[str]) -> str:
    if len(waits) > _MANY:
        return f"it waits for {waits[0]} and {len(waits) - 1} more"
    return f"it waits for {', '.join(waits)}"


def plan_json(found: Plan) -> dict[str, object]:
    """The document that ``hq plan --json`` prints."""
    return {
        "schema": SCHEMA,
        "pin": found.pin,
        "nodes": [
            {
                "name": row.node,
                "action": row.action,
                "reasons": [
                    {"text": cause.text, "details": list(cause.details)} for cause in row.causes
                ],
                "waits_for": list(row.waits),
            }
            for row in found.rows
        ],
        "failure": None if found.failure is None else found.failure.render(),
    }


def why(session: Session, pin: str, node: str) -> dict[str, Any]:
    """The record of a node's last run. Raises ``UsageError`` when there is none."""
    spec = session.spec(pin)
    graph = session.graph(spec)
    if node in graph.groups:
        raise UsageError(
            f"{node} is a group, not a node",
            details=[f"its nodes: {', '.join(graph.groups[node])}"],
            hint="ask for one of them",
        )
    if node not in graph.nodes:
        from hq.app.validate import did_you_mean

        raise UsageError(
            f"there is no node {node!r}",
            hint=did_you_mean(node, list(graph.nodes)) or "see hq plan",
        )
    found = Records(session, spec.pin).get(node)
    if found is None:
        raise UsageError(f"{node} was never built here", hint="run hq build first")
    return found


def graph_of(session: Session, pin: str) -> Graph:
    """The graph of ``pin``."""
    return session.graph(session.spec(pin))
