"""``hq pull``."""

from __future__ import annotations

import argparse
import json
import os

from hq.app.ship import parse_platform, pull, write_pulled
from hq.cli.commands.push import add_registry_options
from hq.cli.main import Invocation
from hq.cli.options import add_store, store_path
from hq.cli.transfers import TransferView
from hq.oci.reference import parse_reference
from hq.oci.remote import platform_name
from hq.store.disk import DiskStore
from hq.store.faults import human_size
from hq.transfer.pull import Pulled

SCHEMA = "hq.pull/1"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "reference", metavar="REF", help="[HOST[:PORT]/]REPOSITORY[:TAG][@sha256:DIGEST]"
    )
    add_store(parser)
    parser.add_argument(
        "--platform", default="linux/amd64", metavar="OS/ARCH[/VARIANT]", help="of an index"
    )
    parser.add_argument(
        "--output", default="", metavar="DIR", help="also write the image there as a layout"
    )
    add_registry_options(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Runs the command."""
    console = invocation.console
    console.quiet = parsed.quiet
    reference = parse_reference(parsed.reference)
    platform = parse_platform(parsed.platform)
    with (
        DiskStore(store_path(parsed.store), warn=console.warn) as store,
        TransferView(console, "pulled") as view,
    ):
        pulled = pull(
            store,
            reference,
            platform,
            os.environ,
            plain_http=parsed.plain_http,
            threads=parsed.jobs,
            progress=view,
        )
        if parsed.output:
            write_pulled(store, pulled, os.path.abspath(parsed.output))
        place = parsed.output or f"the store {store.root}"
    console.print(json.dumps(_document(pulled), indent=2) if parsed.json else _text(pulled, place))
    return 0


def _document(pulled: Pulled) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "reference": str(pulled.reference),
        "digest": pulled.named,
        "manifest": pulled.manifest.digest,
        "image_id": pulled.config.digest,
        "platform": platform_name(pulled.platform),
        "layers": [
            {
                "media_type": layer.media_type,
                "digest": layer.ref.digest,
                "size": layer.ref.size,
                "diff_id": diff_id,
            }
            for layer, diff_id in zip(pulled.layers, pulled.diff_ids, strict=True)
        ],
    }


def _text(pulled: Pulled, place: str) -> str:
    size = sum(layer.ref.size for layer in pulled.layers)
    return "\n".join(
        [
            str(pulled.reference.at(pulled.named)),
            f"  platform  {platform_name(pulled.platform)}",
            f"  manifest  {pulled.manifest.digest}",
            f"  image id  {pulled.config.digest}",
            f"  layers    {len(pulled.layers)}, {human_size(size)}",
            f"  place     {place}",
        ]
    )
