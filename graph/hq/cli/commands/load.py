"""``hq load``."""

from __future__ import annotations

import argparse
import json
import os

from hq.app.ship import engine_tags, find_image, is_layout
from hq.cli.main import Invocation
from hq.cli.options import add_pin, add_store, optional_session
from hq.cli.transfers import TransferView, warn_of_changes
from hq.store.faults import human_size
from hq.transfer.engine import Loaded, load_image

SCHEMA = "hq.load/1"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("shipped", metavar="IMAGE", help="an image, or a folder with a layout")
    add_pin(parser)
    add_store(parser)
    parser.add_argument("--output", default="", metavar="DIR", help="where images are (dist/)")
    parser.add_argument(
        "--engine", default="", metavar="URL", help="the engine (default: docker's own choice)"
    )
    parser.add_argument(
        "--tag", action="append", default=[], metavar="NAME:TAG", help="default: IMAGE:PIN"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing on the way")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Runs the command."""
    console = invocation.console
    console.quiet = parsed.quiet
    image = "" if is_layout(parsed.shipped) else parsed.shipped
    with optional_session(parsed, invocation, image) as session:
        shipment = find_image(parsed.shipped, parsed.pin, session)
        warn_of_changes(console, shipment, session)
    tags = engine_tags(shipment, parsed.tag)
    with TransferView(console, "sent") as view:
        loaded = load_image(
            shipment.source,
            shipment.manifest,
            tags,
            engine=parsed.engine,
            environment=os.environ,
            progress=lambda done, total: view(tags[0], done, total),
        )
    if parsed.json:
        console.print(json.dumps({"schema": SCHEMA, **loaded._asdict()}, indent=2))
    else:
        console.print(_text(loaded))
    return 0


def _text(loaded: Loaded) -> str:
    lines = list(loaded.tags)
    lines.append(f"  image id  {loaded.image_id}")
    lines.append(f"  engine    {loaded.engine}")
    if loaded.already:
        lines.append("  layers    all there")
    else:
        lines.append(f"  layers    {loaded.sent} sent, {loaded.kept} there")
    lines.append(f"  sent      {human_size(loaded.bytes_sent)}")
    return "\n".join(lines)
