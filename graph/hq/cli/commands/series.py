"""``hq series``: check, apply, lint, table. Works on any tree and any quilt series."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING

from hq.app import series
from hq.cli.main import Invocation, project_root
from hq.model.errors import UsageError

if TYPE_CHECKING:
    from hq.app.ledger import LedgerEntry


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = _action(actions, "check", "say where every hunk would land; changes nothing")
    _placing(check)
    check.set_defaults(run=_check)
    apply = _action(actions, "apply", "write the tree with the series applied into a new folder")
    _placing(apply)
    apply.add_argument("--into", required=True, metavar="DIR", help="the new folder")
    apply.set_defaults(run=_apply)
    lint = _action(actions, "lint", "check the header fields of every patch")
    _named(lint, required=False)
    lint.set_defaults(run=_lint)
    table = _action(actions, "table", "list the patches with what their headers say")
    _named(table, required=False)
    table.set_defaults(run=_table)
    _editing(actions)


def _editing(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    edit = _action(actions, "edit", "lay a patch out as a git work tree")
    new = _action(actions, "new", "lay out a work tree for a new patch")
    for parser in (edit, new):
        parser.add_argument("name", metavar="NAME", help="the patch")
        parser.add_argument(
            "--into", default="", metavar="DIR", help="where (default: .hq/edit/NAME)"
        )
        parser.add_argument(
            "--pin", default="", metavar="V", help="the pin (default: build.toml's)"
        )
        _store(parser)
    new.add_argument(
        "--after", default="", metavar="PATCH", help="its place (default: the end of the series)"
    )
    edit.set_defaults(run=_edit)
    new.set_defaults(run=_new)
    refresh = _action(actions, "refresh", "make a patch again from its work tree")
    refresh.add_argument("name", metavar="NAME", help="the patch")
    refresh.add_argument(
        "--from", dest="from_", default="", metavar="DIR", help="the work tree, when elsewhere"
    )
    refresh.add_argument(
        "--later", action="store_true", help="make the patches above it again where they merge"
    )
    _store(refresh)
    refresh.set_defaults(run=_refresh)


def _store(parser: argparse.ArgumentParser) -> None:
    # hq.cli.options has the same; it loads the store, which the other commands here do not need.
    parser.add_argument(
        "--store", default="", metavar="DIR", help="the store (default: HQ_STORE, or the cache)"
    )


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    return actions.add_parser(name, help=text, description=text.capitalize() + ".")


def _named(parser: argparse.ArgumentParser, *, required: bool) -> None:
    shown = "" if required else " (default: the project's, for --pin)"
    parser.add_argument(
        "--series", required=required, metavar="FILE", help=f"the series file{shown}"
    )
    parser.add_argument(
        "--patches", metavar="DIR", help="the folder of the patches (default: the series file's)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if not required:
        parser.add_argument(
            "--pin", default="", metavar="V", help="the pin (default: build.toml's)"
        )


def _placing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tree", required=True, metavar="DIR", help="the tree to patch")
    _named(parser, required=True)
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="leave out a patch that does not apply, and try the next one",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="reject a hunk that lies outside the function that its heading names",
    )


def _print(parsed: argparse.Namespace, invocation: Invocation, result: series.Result) -> int:
    invocation.console.print(json.dumps(result.document) if parsed.json else result.text)
    return result.exit_code


def _check(parsed: argparse.Namespace, invocation: Invocation) -> int:
    result = series.run_check(
        parsed.tree,
        parsed.series,
        parsed.patches,
        keep_going=parsed.keep_going,
        strict=parsed.strict,
        json=parsed.json,
    )
    return _print(parsed, invocation, result)


def _apply(parsed: argparse.Namespace, invocation: Invocation) -> int:
    result = series.run_apply(
        parsed.tree,
        parsed.series,
        parsed.into,
        parsed.patches,
        keep_going=parsed.keep_going,
        strict=parsed.strict,
    )
    return _print(parsed, invocation, result)


def _series_of(parsed: argparse.Namespace) -> tuple[str, str | None]:
    """The series named on the command line, or the project's."""
    if parsed.series is not None:
        return parsed.series, parsed.patches
    from hq.app.config import read_project, series_of
    from hq.app.folder import ProjectFolder

    try:
        root = project_root()
    except UsageError as error:
        error.hint = f"{error.hint}, or give --series FILE".removeprefix(", or ")
        raise
    project = read_project(ProjectFolder(root))
    file, folder = series_of(project, parsed.pin)
    return os.path.relpath(os.path.join(root, file)), os.path.relpath(os.path.join(root, folder))


def _lint(parsed: argparse.Namespace, invocation: Invocation) -> int:
    return _print(parsed, invocation, series.run_lint(*_series_of(parsed)))


def _table(parsed: argparse.Namespace, invocation: Invocation) -> int:
    result = series.run_table(*_series_of(parsed))
    entries = _ledger() if parsed.series is None else ()
    if entries:
        from hq.app import ledger

        result.document["ledger"] = ledger.document(entries)
        text = f"{result.text}\n\n{ledger.text(ledger.rows(entries))}"
        result = result._replace(text=text)
    return _print(parsed, invocation, result)


def _ledger() -> tuple[LedgerEntry, ...]:
    from hq.app.config import read_project
    from hq.app.folder import ProjectFolder
    from hq.app.ledger import read_ledger

    files = ProjectFolder(project_root())
    return read_ledger(files, read_project(files))


def _edit(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.series_edit import edit, edit_text
    from hq.cli.options import session

    with session(parsed, invocation) as opened:
        done = edit(opened, parsed.name, parsed.pin, _absolute(parsed.into))
    invocation.console.print(edit_text(done))
    return 0


def _new(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.series_edit import edit_text, new
    from hq.cli.options import session

    with session(parsed, invocation) as opened:
        done = new(opened, parsed.name, parsed.pin, _absolute(parsed.into), parsed.after)
    invocation.console.print(edit_text(done))
    return 0


def _refresh(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.series_edit import refresh, refresh_text
    from hq.cli.options import session

    with session(parsed, invocation) as opened:
        done = refresh(opened, parsed.name, _absolute(parsed.from_), later=parsed.later)
    invocation.console.print(refresh_text(done))
    return 0 if done.is_clean else 1


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""
