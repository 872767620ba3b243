"""``hq push``."""

from __future__ import annotations

import argparse
import json
import os

from hq.app.ship import commit_of, find_image, is_layout, push, push_target
from hq.cli.main import Invocation
from hq.cli.options import add_jobs, add_pin, add_store, optional_session
from hq.cli.transfers import TransferView, warn_of_changes
from hq.oci.reference import Reference
from hq.store.faults import human_size
from hq.transfer.push import Pushed

SCHEMA = "hq.push/1"
_THREADS = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("shipped", metavar="IMAGE", help="an image, or a folder with a layout")
    parser.add_argument("reference", metavar="REF", help="[HOST[:PORT]/]REPOSITORY[:TAG]")
    add_pin(parser)
    add_store(parser)
    parser.add_argument("--output", default="", metavar="DIR", help="where images are (dist/)")
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="a tag; may be repeated (default: REF's, else the pin and sha-<commit>)",
    )
    parser.add_argument(
        "--no-attach", action="store_true", help="do not attach provenance and SBOM"
    )
    parser.add_argument("--mount-from", default="", metavar="REPOSITORY", help="a sister repository"
                        " of the registry that may have the layers")  # fmt: skip
    add_registry_options(parser)
    parser.set_defaults(run=run)


def add_registry_options(parser: argparse.ArgumentParser) -> None:
    """What ``push`` and ``pull`` share."""
    parser.add_argument(
        "--plain-http", action="store_true", help="speak to the registry without TLS"
    )
    add_jobs(parser, _THREADS, f"threads (default: {_THREADS})")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing on the way")


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Runs the command."""
    console = invocation.console
    console.quiet = parsed.quiet
    image = "" if is_layout(parsed.shipped) else parsed.shipped
    with optional_session(parsed, invocation, image) as session:
        shipment = find_image(parsed.shipped, parsed.pin, session)
        warn_of_changes(console, shipment, session)
        target = push_target(
            shipment, parsed.reference, parsed.tag, lambda: commit_of(shipment, session)
        )
        for note in target.notes:
            console.note(note)
        with TransferView(console, "pushed") as view:
            pushed = push(
                session,
                shipment,
                target,
                os.environ,
                plain_http=parsed.plain_http,
                attach=not parsed.no_attach,
                mount_from=parsed.mount_from,
                threads=parsed.jobs,
                progress=view,
            )
    if parsed.json:
        console.print(json.dumps(_document(target.repository, pushed), indent=2))
    else:
        console.print(_text(target.repository, pushed))
    return 0


def _document(repository: Reference, pushed: Pushed) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "repository": repository.name,
        "manifest": pushed.manifest,
        "tags": list(pushed.tags),
        "blobs": dict(sorted(pushed.blobs.items())),
        "bytes_sent": pushed.bytes_sent,
        "attached": [item._asdict() for item in pushed.attached],
        "referrers": "api" if pushed.native else "tag",
    }


def _text(repository: Reference, pushed: Pushed) -> str:
    lines = [f"{repository.name}@{pushed.manifest}"]
    lines += [f"  tag       {tag}" for tag in pushed.tags]
    counts = {how: list(pushed.blobs.values()).count(how) for how in ("sent", "mounted", "there")}
    shown = ", ".join(f"{count} {how}" for how, count in counts.items() if count)
    lines.append(f"  blobs     {shown or 'all there'}")
    for item in pushed.attached:
        state = "attached" if item.new else "there"
        lines.append(f"  referrer  {item.artifact_type} {state}")
    lines.append(f"  sent      {human_size(pushed.bytes_sent)}")
    return "\n".join(lines)
