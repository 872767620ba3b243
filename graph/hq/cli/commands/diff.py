"""``hq diff``."""

from __future__ import annotations

import argparse
import json

from hq.cli.main import Invocation

_PARTS = ("nodes", "files", "text")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("a", metavar="A", help="a pin, an image, a layout or a records file")
    parser.add_argument("b", metavar="B", help="the other one")
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        metavar="PATH",
        help="only files at or beneath this path of the tree; may be repeated",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=_PARTS,
        default=[],
        help="only this part; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Prints what differs."""
    from hq.app.diff import compare, text, to_json
    from hq.app.operands import side
    from hq.cli.observer import BuildObserver
    from hq.cli.options import session

    observer = BuildObserver(invocation.console)
    with session(parsed, invocation) as opened:
        try:
            sides = [side(opened, name, observer, parsed.pin) for name in (parsed.a, parsed.b)]
        finally:
            observer.close()
        found = compare(sides[0], sides[1], opened.disk, parsed.path)
        if parsed.json:
            invocation.console.print(json.dumps(to_json(found), indent=1))
        else:
            for line in text(found, parsed.only or _PARTS):
                invocation.console.print(line)
    return 0
