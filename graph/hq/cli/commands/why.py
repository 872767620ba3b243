"""``hq why``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hq.app.causes import REUSED
from hq.app.explain import why
from hq.cli.main import Invocation


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("node", metavar="NODE", help="a node's name, such as patch:NAME")
    parser.add_argument("--json", action="store_true", help="print the node's whole record")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Prints why the node ran the last time."""
    from hq.cli.options import session

    with session(parsed, invocation) as opened:
        record = why(opened, parsed.pin, parsed.node)
    if parsed.json:
        invocation.console.print(json.dumps(record, indent=2))
    else:
        invocation.console.print(_text(record))
    return 0


def _text(record: dict[str, Any]) -> str:
    reused = [reason["text"] for reason in record["reasons"]] == [REUSED]
    lines = [f"{record['node']} {'did not run' if reused else 'ran'} the last time because:"]
    for reason in record["reasons"]:
        lines.append(f"  {reason['text']}")
        lines += [f"    {detail}" for detail in reason["details"]]
    lines.append(f"key     {record['key']}")
    for entry in record["inputs"]:
        lines.append(f"input   {entry['what']}")
        lines.append(f"        {entry['digest']}")
    for path, *content in record["result"]["delta"]:
        lines.append(f"result  {path}{' (removed)' if content[0] is None else ''}")
        if content[0] is not None:
            lines.append(f"        {content[1]} ({content[2]} bytes)")
    for name, (digest, size) in record["result"]["blobs"].items():
        lines.append(f"result  {name}")
        lines.append(f"        {digest} ({size} bytes)")
    lines += [f"warning {warning}" for warning in record["warnings"]]
    return "\n".join(lines)
