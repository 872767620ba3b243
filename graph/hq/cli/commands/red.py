"""``hq red``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hq.cli.console import Console
from hq.cli.main import Invocation

if TYPE_CHECKING:
    from hq.app.red import Outcome

_WORDS = {
    "red": ("red", "green"),
    "green": ("GREEN", "red"),
    "other-check": ("other check", "red"),
    "other-reason": ("other reason", "red"),
    "skipped": ("not for this pin", "dim"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these red controls")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Builds what must fail; exit code 1 when one of them does not fail as declared."""
    from hq.app.red import refusal, to_json
    from hq.app.red import run as run_reds
    from hq.cli.observer import BuildObserver
    from hq.cli.options import session

    console = invocation.console
    observer = BuildObserver(console)
    with session(parsed, invocation) as opened:
        try:
            pin, outcomes = run_reds(opened, parsed.pin, parsed.names, observer)
        finally:
            observer.close()
    if parsed.json:
        console.print(json.dumps(to_json(pin, outcomes), indent=2))
    else:
        console.print("\n".join(_table(pin, outcomes, console)))
    error = refusal(outcomes)
    if error is None:
        return 0
    console.error(error)
    return error.exit_code


def _table(pin: str, outcomes: Sequence[Outcome], console: Console) -> Iterator[str]:
    width = max((len(one.red.declared.name) for one in outcomes), default=0)
    for one in outcomes:
        word, style = _WORDS[one.state]
        declared = one.red.declared
        shown = console.style(f"{word:<16}", style, console.out)
        yield f"{shown}  {declared.name:<{width}}  {declared.expect.check}: {declared.expect.shown}"
    tried = [one for one in outcomes if one.state != "skipped"]
    red = sum(one.is_good for one in tried)
    skipped = len(outcomes) - len(tried)
    more = f"; {skipped} not for this pin" if skipped else ""
    yield f"pin {pin}: {red} of {len(tried)} red controls are red for their reason{more}"
