"""``hq envs``: check the built tree's knobs, or list them."""

from __future__ import annotations

import argparse
import json

from hq.cli.main import Invocation


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="audit the built tree, and run the control with a made-up name",
        description="Builds the pin, audits each changed file, runs envs.py with made-up names.",
    )
    add_build_options(check)
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check)
    table = actions.add_parser("table", help="list the pin's knobs")
    add_build_options(table)
    table.add_argument("--json", action="store_true", help="print one JSON object")
    table.set_defaults(run=_table)


def _check(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.envs_check import check_pin
    from hq.cli.observer import BuildObserver
    from hq.cli.options import session

    observer = BuildObserver(invocation.console)
    with session(parsed, invocation) as opened:
        try:
            report = check_pin(opened, parsed.pin, observer)
        finally:
            observer.close()
    document = json.dumps(report.to_json(), indent=2)
    invocation.console.print(document if parsed.json else report.to_text())
    return 0 if report.ok else 1


def _table(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.envs import table_json, table_text
    from hq.app.envs_check import registry_of
    from hq.cli.options import session

    with session(parsed, invocation) as opened:
        spec = opened.spec(parsed.pin)
    registry = registry_of(spec)
    document = json.dumps(table_json(spec.pin, registry), indent=2) if parsed.json else ""
    invocation.console.print(document or table_text(registry))
    return 0
