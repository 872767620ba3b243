"""``hq verify``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable

from hq.app.imagefile import declared_checks
from hq.app.verify import Runner, report_json, report_text, verify
from hq.cli.main import Invocation
from hq.cli.options import add_pin, add_store, session
from hq.cli.transfers import TransferView
from hq.model.digest import Digest
from hq.model.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "name", metavar="IMAGE", nargs="?", default="", help="the image's name, as in images/"
    )
    parser.add_argument(
        "--red", action="store_true", help="instead: build the red controls, as hq red does"
    )
    add_pin(parser)
    add_store(parser)
    parser.add_argument("--output", default="", metavar="DIR", help="where images are (dist/)")
    parser.add_argument("--no-run", action="store_true", help="only look, run nothing")
    parser.add_argument(
        "--require-run", action="store_true", help="fail when a check cannot run here"
    )
    parser.add_argument(
        "--engine",
        nargs="?",
        const="",
        metavar="URL",
        help="run in containers of an engine that has the image (default: a bubblewrap sandbox)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing on the way")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Runs the command."""
    console = invocation.console
    console.quiet = parsed.quiet
    if parsed.red:
        from hq.cli.commands import red

        parsed.names = [parsed.name] if parsed.name else []
        return red.run(parsed, invocation)
    if not parsed.name:
        raise UsageError("which image?", hint="hq verify IMAGE, or hq verify --red")
    parsed.image = [parsed.name]
    with session(parsed, invocation) as opened:
        checks = declared_checks(opened.sources, parsed.name)
        with TransferView(console, "read") as view:
            report = verify(
                opened,
                parsed.name,
                parsed.pin,
                checks,
                run=not parsed.no_run,
                engine=_engine(parsed),
                progress=lambda done, total: view(parsed.name, done, total),
            )
    if parsed.json:
        document = report_json(report, require_run=parsed.require_run)
        console.print(json.dumps(document, indent=2))
    else:
        console.print(report_text(report))
    return 1 if report.failed(require_run=parsed.require_run) else 0


def _engine(parsed: argparse.Namespace) -> Callable[[Digest], Runner | str] | None:
    """Makes containers of the image, or says why it cannot."""
    if parsed.engine is None:
        return None
    from hq.transfer.engine import Containers

    def containers(image_id: Digest) -> Runner | str:
        made = Containers(parsed.engine, os.environ, image_id)
        return made.why_not() or made

    return containers
