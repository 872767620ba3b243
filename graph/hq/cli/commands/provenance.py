"""``hq provenance``."""

from __future__ import annotations

import argparse
import os
import shlex

from hq.cli.main import Invocation
from hq.model.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_output, add_pin, add_store

    add_pin(parser)
    add_store(parser)
    add_output(parser)
    parser.add_argument("name", metavar="IMAGE", help="the image's name, as in images/")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--records",
        dest="kind",
        action="store_const",
        const="records",
        default="provenance",
        help="print the nodes' records instead",
    )
    kind.add_argument(
        "--sbom",
        dest="kind",
        action="store_const",
        const="sbom",
        help="print the bill of materials (CycloneDX) instead",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Prints the statement that the last build of the image wrote."""
    from hq.cli.options import session

    parsed.image = [parsed.name]
    with session(parsed, invocation) as opened:
        spec = opened.spec(parsed.pin)
        output = opened.settings.output
    if parsed.name not in [image.name for image in spec.images]:
        names = ", ".join(image.name for image in spec.images)
        raise UsageError(f"there is no image {parsed.name!r}", details=[f"declared: {names}"])
    path = os.path.join(output, f"{parsed.name}-{spec.pin}.{parsed.kind}.json")
    try:
        with open(path, encoding="utf-8") as file:
            invocation.console.print(file.read())
    except FileNotFoundError:
        raise UsageError(
            f"{parsed.name} {spec.pin} is not built in {output}", hint=f"run {_build(parsed)} first"
        ) from None
    return 0


def _build(parsed: argparse.Namespace) -> str:
    """The command that makes what is missing."""
    words = ["hq", "build", "--image", parsed.name]
    for name in ("pin", "output"):
        if getattr(parsed, name):
            words += [f"--{name}", getattr(parsed, name)]
    return shlex.join(words)
