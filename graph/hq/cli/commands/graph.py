"""``hq graph``."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from hq.app.explain import graph_of
from hq.cli.main import Invocation
from hq.plan import draw
from hq.plan.node import Graph
from hq.plan.svg import svg

_FORMATS: dict[str, Callable[[Graph], str]] = {
    "text": draw.text,
    "dot": draw.dot,
    "mermaid": draw.mermaid,
    "svg": svg,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("--format", choices=sorted(_FORMATS), default="text", help="default: text")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Prints the graph."""
    from hq.cli.options import session

    with session(parsed, invocation) as opened:
        invocation.console.print(_FORMATS[parsed.format](graph_of(opened, parsed.pin)))
    return 0
