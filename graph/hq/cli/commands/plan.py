"""``hq plan``."""

from __future__ import annotations

import argparse
import json

from hq.app.explain import Plan, plan, plan_json
from hq.cli.console import Console
from hq.cli.main import Invocation

_STYLES = {"run": "green", "reuse": "dim", "fail": "red", "unknown": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
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
        console.print(_table(found, console))
    if found.failure is None:
        return 0
    console.error(found.failure)
    return found.failure.exit_code


def _table(found: Plan, console: Console) -> str:
    width = max(len(row.node) for row in found.rows)
    lines: list[str] = []
    for row in found.rows:
        action = console.style(f"{row.action:<8}", _STYLES[row.action], console.out)
        first, *others = row.causes or (None,)
        text = first.text if first is not None else ""
        lines.append(f"{action}{row.node:<{width}}  {text}".rstrip())
        for cause in row.causes:
            if cause is not first:
                lines.append(f"{'':<{width + 10}}{cause.text}")
            lines += [f"{'':<{width + 12}}{detail}" for detail in cause.details]
        del others
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
