"""``hq store``: stats, verify, gc."""

from __future__ import annotations

import argparse
import json
import os
import re

from hq.app.upkeep import Live, forget_answers
from hq.cli.main import Invocation
from hq.cli.options import add_store, store_path
from hq.model.errors import UsageError
from hq.store.disk import DiskStore
from hq.store.gc import collect, stats, verify
from hq.store.root import require_store

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, run, text in (
        ("stats", _stats, "count what the store holds"),
        ("verify", _verify, "hash every blob again; damaged ones are dropped"),
        ("gc", _gc, "remove what no last build of a project needs"),
    ):
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        add_store(action)
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.set_defaults(run=run)
        if name == "gc":
            action.add_argument(
                "--max-size",
                default="0",
                metavar="SIZE",
                help="keep up to this much beside what is needed (such as 20G), newest first",
            )


def _open(parsed: argparse.Namespace, invocation: Invocation) -> DiskStore:
    root = os.path.abspath(store_path(parsed.store))
    require_store(root)
    return DiskStore(root, warn=invocation.console.warn)


def _print(parsed: argparse.Namespace, invocation: Invocation, found: dict[str, object]) -> None:
    if parsed.json:
        invocation.console.print(json.dumps(found, indent=2))
        return
    width = max(len(name) for name in found)
    for name, value in found.items():
        invocation.console.print(f"{name:<{width}}  {value}")


def _stats(parsed: argparse.Namespace, invocation: Invocation) -> int:
    with _open(parsed, invocation) as store:
        found: dict[str, object] = {"store": store.root, **stats(store)._asdict()}
    _print(parsed, invocation, found)
    return 0


def _verify(parsed: argparse.Namespace, invocation: Invocation) -> int:
    with _open(parsed, invocation) as store:
        found = verify(store)
        if found.problems:
            forget_answers(store)
    for problem in found.problems:
        invocation.console.warn(problem)
    counts: dict[str, object] = found._asdict()
    counts["problems"] = list(found.problems) if parsed.json else len(found.problems)
    _print(parsed, invocation, counts)
    return 1 if found.problems else 0


def _gc(parsed: argparse.Namespace, invocation: Invocation) -> int:
    size = _bytes(parsed.max_size)
    with _open(parsed, invocation) as store:
        live = Live(store)
        found = collect(store, live.keys(), max_size=size, keep=live.sources())
    for root in live.forgotten:
        invocation.console.note(f"forgot the project {root}: no build.toml is there any more")
    counts: dict[str, object] = found._asdict()
    counts["forgotten"] = live.forgotten if parsed.json else len(live.forgotten)
    _print(parsed, invocation, counts)
    return 0


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)(i?B)?", text)
    if found is None:
        raise UsageError(f"--max-size: expected a size such as 500M or 20G, found {text!r}")
    return int(found[1]) * _UNITS[found[2]]
