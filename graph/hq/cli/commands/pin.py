"""``hq pin``."""

from __future__ import annotations

import argparse
import json

from hq.cli.main import Invocation


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Builds, and writes down what that gave."""
    from hq.app.build import build
    from hq.app.pins import write
    from hq.cli.observer import BuildObserver
    from hq.cli.options import session

    observer = BuildObserver(invocation.console)
    with session(parsed, invocation) as opened:
        try:
            report = build(opened, parsed.pin, observer)
        finally:
            observer.close()
        file, changed = write(opened, opened.spec(parsed.pin), report)
    images = {
        image.name: {"image_id": image.image_id, "manifest": image.manifest.digest}
        for image in report.images
    }
    if parsed.json:
        document = {"schema": "hq.pin/1", "pin": report.pin, "file": file, "changed": changed}
        invocation.console.print(json.dumps(document | {"images": images}, indent=2))
        return 0
    for name, ids in images.items():
        invocation.console.print(f"{name} {report.pin}\n  image id  {ids['image_id']}")
        invocation.console.print(f"  manifest  {ids['manifest']}")
    state = "written" if changed else "as it was"
    invocation.console.print(f"{file}: {state}, {len(report.outcomes)} nodes")
    return 0
