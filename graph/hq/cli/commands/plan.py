"""``hq plan``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from hq.app.explain import Plan, Row, plan, plan_json
from hq.cli.console import Console
from hq.cli.main import Invocation

_MANY: Final = 10
_STYLES = {"run": "green", "reuse": "dim", "fail": "red", "unknown": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--all", action="store_true", help="a line for every node, also for many that are alike"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Prints the plan; exit code 1 when the build would fail."""
    from hq.cli.options import session

    console = invocation.console
    with session(parsed, invocation) as opened:
        found = plan(opened, parsed.pin)
    if parsed.json:
        console.print(json.dumps(plan_json(found), indent=2))
    else:
        console.print(_table(found, console, every=parsed.all))
    if found.failure is None:
        return 0
    console.error(found.failure)
    return found.failure.exit_code


def _table(found: Plan, console: Console, *, every: bool) -> str:
    groups = [(row.node, row) for row in found.rows] if every else _groups(found.rows)
    width = max(len(name) for name, _ in groups)
    lines: list[str] = []
    for name, row in groups:
        action = console.style(f"{row.action:<8}", _STYLES[row.action], console.out)
        first = row.causes[0].text if row.causes else ""
        lines.append(f"{action}{name:<{width}}  {first}".rstrip())
        for number, cause in enumerate(row.causes):
            if number:
                lines.append(f"{'':<{width + 10}}{cause.text}")
            lines += [f"{'':<{width + 12}}{detail}" for detail in cause.details]
    counts = [
        f"{sum(row.action == action for row in found.rows)} {word}"
        for action, word in (
            ("run", "to run"),
            ("reuse", "to reuse"),
            ("unknown", "unknown until those have run"),
            ("fail", "failing"),
        )
    ]
    shown = [count for count in counts if not count.startswith("0 ")]
    lines.append(f"pin {found.pin}, {len(found.rows)} nodes: {', '.join(shown)}")
    return "\n".join(lines)


def _groups(rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """The rows to print. Many alike beside each other are one: the kind, and how many."""
    found: list[tuple[str, Row]] = []
    for (_, kind, _), alike in groupby(rows, lambda row: (row.action, _kind(row.node), row.causes)):
        same = list(alike)
        if len(same) < _MANY:
            found += [(row.node, row) for row in same]
        else:
            found.append((f"{kind}:… ({len(same)} nodes)", same[0]))
    return found


def _kind(node: str) -> str:
    return node.partition(":")[0]
