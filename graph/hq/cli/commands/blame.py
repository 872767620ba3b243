"""``hq blame``."""

from __future__ import annotations

import argparse
import json
import re

from hq.cli.main import Invocation
from hq.model.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument(
        "file", metavar="IMAGE:PATH", help="an image, a pin or a layout, and a path of its tree"
    )
    parser.add_argument(
        "-L", dest="lines", default="", metavar="A,B", help="only these lines; B may be missing"
    )
    parser.add_argument("--porcelain", action="store_true", help="print fields for a program")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Prints where each line of a file comes from."""
    from hq.app.blame import blame, porcelain, table
    from hq.app.operands import side
    from hq.app.recorded import RecordedTree, prefix_of
    from hq.cli.observer import BuildObserver
    from hq.cli.options import session

    image, colon, path = parsed.file.rpartition(":")
    if not colon or not path:
        raise UsageError(
            f"{parsed.file!r} names no file of an image",
            hint="write IMAGE:PATH, such as vllm:vllm/envs.py",
        )
    observer = BuildObserver(invocation.console)
    with session(parsed, invocation) as opened:
        try:
            records = side(opened, image, observer, parsed.pin).records
        finally:
            observer.close()
        prefix = prefix_of(records) + "/"
        found = blame(RecordedTree(records, opened.disk), path.removeprefix(prefix))
    found = found.only(*_lines(parsed.lines, len(found.lines)))
    if parsed.json:
        invocation.console.print(json.dumps(found.to_json(), indent=1))
    else:
        lines = porcelain(found) if parsed.porcelain else table(found)
        invocation.console.print("\n".join(lines))
    return 0


def _lines(text: str, count: int) -> tuple[int, int]:
    if not text:
        return 1, count
    found = re.fullmatch(r"(\d{1,9})(?:,(\d{1,9})?)?", text)
    if found is None:
        raise UsageError(f"-L {text}: expected a line, or two lines with a comma between them")
    first = int(found[1])
    last = int(found[2]) if found[2] else count if "," in text else first
    if last < first:
        raise UsageError(f"-L {text}: the first line is after the last")
    if not 1 <= first <= last or first > count:
        raise UsageError(f"-L {text}: the file has lines 1 to {count}")
    return first, min(last, count)
