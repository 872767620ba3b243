"""``hq pair``."""

from __future__ import annotations

import argparse
import json

from hq.cli.main import Invocation

_EXPECTED = {
    "same": ("same",),
    "pin": ("same", "port", "pin"),
    "any": ("same", "port", "pin", "other"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("a", metavar="A", help="the control: a pin, an image, a layout or records")
    parser.add_argument("b", metavar="B", help="what it is a control for")
    parser.add_argument(
        "--expect",
        choices=sorted(_EXPECTED),
        default="pin",
        help="what may differ for exit code 0: the pin and its port (default), nothing, anything",
    )
    parser.add_argument(
        "--format", choices=("text", "json", "markdown"), default="text", help="how to print it"
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Prints the answer; exit code 1 when more differs than is expected."""
    from hq import __version__
    from hq.app.operands import side
    from hq.app.pair import pair
    from hq.cli.observer import BuildObserver
    from hq.cli.options import session
    from hq.evidence.pairtext import markdown, statement, text

    observer = BuildObserver(invocation.console)
    with session(parsed, invocation) as opened:
        try:
            sides = [side(opened, name, observer, parsed.pin) for name in (parsed.a, parsed.b)]
        finally:
            observer.close()
        found = pair(opened, sides[0], sides[1])
    if parsed.json or parsed.format == "json":
        invocation.console.print(json.dumps(statement(found, __version__), indent=2))
    else:
        lines = markdown(found) if parsed.format == "markdown" else text(found)
        invocation.console.print("\n".join(lines))
    return 0 if found.verdict in _EXPECTED[parsed.expect] else 1
