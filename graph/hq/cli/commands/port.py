"""``hq port``: move the series to another release of the wheel."""

from __future__ import annotations

import argparse
import json

from hq.cli.main import Invocation
from hq.cli.options import add_pin, add_store, session


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    triage = _action(actions, "triage", "say what another release makes of every patch")
    _goal(triage)
    triage.add_argument("--json", action="store_true", help="print one JSON object")
    triage.add_argument("--markdown", action="store_true", help="print Markdown")
    triage.add_argument(
        "--large", type=int, default=100, metavar="LINES", help="offsets above this are doubtful"
    )
    triage.add_argument(
        "--no-review", action="store_true", help="leave out the review of what applies cleanly"
    )
    triage.set_defaults(run=_triage)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    return actions.add_parser(name, help=text, description=text.capitalize() + ".")


def _goal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", default="", metavar="V", help="the release to move to")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--wheel", default="", metavar="FILE", help="its wheel, from a file")
    what.add_argument("--tree", default="", metavar="DIR", help="its wheel, unpacked")
    add_pin(parser)
    add_store(parser)
    parser.add_argument("--offline", action="store_true", help="use the store only")


def _triage(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.port_steps import Goal
    from hq.app.port_triage import run_triage

    goal = Goal(parsed.to, parsed.wheel, parsed.tree)
    with session(parsed, invocation) as opened:
        report = run_triage(
            opened, parsed.pin, goal, large=parsed.large, reviewed=not parsed.no_review
        )
    if parsed.json:
        invocation.console.print(json.dumps(report.as_json()))
    else:
        invocation.console.print(report.as_text(markdown=parsed.markdown))
    return 0 if report.is_clean else 1
