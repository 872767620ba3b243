"""``hq port``: move the series to another release of the wheel."""

from __future__ import annotations

import argparse
import json
import os

from hq.cli.main import Invocation, project_root
from hq.cli.options import add_pin, add_store, session
from hq.model.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    triage = _action(actions, "triage", "say what another release makes of every patch")
    _goal(triage)
    triage.add_argument("--json", action="store_true", help="print one JSON object")
    triage.add_argument("--markdown", action="store_true", help="print Markdown")
    triage.add_argument(
        "--large", type=int, default=100, metavar="LINES", help="offsets above this are doubtful"
    )
    triage.add_argument(
        "--no-review", action="store_true", help="leave out the review of what applies cleanly"
    )
    triage.add_argument(
        "--upstream", default="", metavar="CLONE", help="a clone of upstream, asked for commits"
    )
    triage.set_defaults(run=_triage)
    rebase = _action(actions, "rebase", "make the series again for another release, on a branch")
    _goal(rebase)
    rebase.add_argument(
        "--branch", default="", metavar="NAME", help="the branch to make (default: port/V)"
    )
    rebase.add_argument(
        "--commit", default="", metavar="TEXT",
        help="with --continue: upstream's commit that made it necessary, for the header",
    )  # fmt: skip
    step = rebase.add_mutually_exclusive_group()
    step.add_argument(
        "--continue", dest="step", action="store_const", const="continue",
        help="go on with the files as they lie in .hq/port/work",
    )  # fmt: skip
    step.add_argument(
        "--skip", dest="step", action="store_const", const="skip",
        help="go on without the patch that stopped the rebase",
    )  # fmt: skip
    step.add_argument(
        "--abort", dest="step", action="store_const", const="abort", help="give the rebase up"
    )
    rebase.add_argument("--json", action="store_true", help="print one JSON object")
    rebase.set_defaults(run=_rebase, step="start")
    bump = _action(actions, "bump", "replace a pin where the files of [port] mention it")
    add_pin(bump)
    bump.add_argument("--to", required=True, metavar="V", help="the pin to name instead")
    bump.set_defaults(run=_bump)
    retire = _action(actions, "retire", "take a patch out of a series and write down why")
    retire.add_argument("name", metavar="NAME", help="the patch")
    retire.add_argument("--because", required=True, metavar="TEXT", help="why it may go")
    retire.add_argument(
        "--part", default="", metavar="TEXT", help="only note that this part of it is retired"
    )
    add_pin(retire)
    retire.set_defaults(run=_retire)
    _forks(actions)


def _forks(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = _action(actions, "export", "write the commits of a fork's branch as a series")
    import_ = _action(actions, "import", "make a fork's branch from the series")
    check = _action(actions, "check", "prove that the built tree and a fork's branch are the same")
    for parser in (export, import_, check):
        parser.add_argument("--fork", required=True, metavar="CLONE", help="a clone of the fork")
        add_pin(parser)
        add_store(parser)
    export.add_argument(
        "--range", required=True, metavar="A..B", help="the commits after A up to B"
    )
    export.add_argument("--into", required=True, metavar="DIR", help="a new folder")
    import_.add_argument("--onto", default="", metavar="REV", help="default: the pin's tag")
    import_.add_argument("--branch", required=True, metavar="NAME", help="the branch to make")
    check.add_argument("--branch", required=True, metavar="REV", help="the branch to check")
    check.add_argument("--base", default="", metavar="REV", help="default: the pin's tag")
    export.set_defaults(run=_export)
    import_.set_defaults(run=_import)
    check.set_defaults(run=_check)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    return actions.add_parser(name, help=text, description=text.capitalize() + ".")


def _goal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", default="", metavar="V", help="the release to move to")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--wheel", default="", metavar="FILE", help="its wheel, from a file")
    what.add_argument("--tree", default="", metavar="DIR", help="its wheel, unpacked")
    add_pin(parser)
    add_store(parser)
    parser.add_argument("--offline", action="store_true", help="use the store only")


def _triage(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.port_steps import Goal
    from hq.app.port_triage import run_triage

    goal = Goal(parsed.to, parsed.wheel, parsed.tree)
    with session(parsed, invocation) as opened:
        report = run_triage(
            opened,
            parsed.pin,
            goal,
            large=parsed.large,
            reviewed=not parsed.no_review,
            upstream=absolute(parsed.upstream),
        )
    if parsed.json:
        invocation.console.print(json.dumps(report.as_json()))
    else:
        invocation.console.print(report.as_text(markdown=parsed.markdown))
    return 0 if report.is_clean else 1


def _rebase(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.port_rebase import Waiting, abort, rebase
    from hq.app.port_show import as_json, as_text
    from hq.app.port_steps import Goal

    if parsed.step == "abort":
        abort(project_root())
        invocation.console.note("given up; resolutions are kept")
        return 0
    goal = Goal(parsed.to, absolute(parsed.wheel), absolute(parsed.tree))
    with session(parsed, invocation) as opened:
        result = rebase(opened, parsed.step, parsed.pin, goal, parsed.branch, parsed.commit)
    text = json.dumps(as_json(result)) if parsed.json else as_text(result)
    invocation.console.print(text)
    return 1 if isinstance(result, Waiting) else 0


def _retire(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.port_retire import lines_of, retire

    done = retire(project_root(), parsed.name, parsed.because, parsed.pin, parsed.part)
    invocation.console.print("\n".join(lines_of(done)))
    return 0


def _bump(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.port_files import bump

    changed, left = bump(project_root(), parsed.pin, parsed.to)
    for path in changed:
        invocation.console.print(f"changed  {path}")
    for one in left:
        invocation.console.print(f"left     {one.path}:{one.line}: {one.text}")
    return 0


def _export(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.port_fork import export, export_text

    first, dots, last = parsed.range.partition("..")
    if not (first and dots and last) or last.startswith("."):
        raise UsageError(f"--range: expected A..B, found {parsed.range!r}")
    with session(parsed, invocation) as opened:
        done = export(opened, absolute(parsed.fork), first, last, absolute(parsed.into), parsed.pin)
    invocation.console.print(export_text(done))
    return 0


def _import(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.port_fork import import_

    with session(parsed, invocation) as opened:
        onto = parsed.onto or f"v{opened.spec(parsed.pin).pin}"
        tip = import_(opened, absolute(parsed.fork), onto, parsed.branch, parsed.pin)
    invocation.console.print(f"branch {parsed.branch}, {tip[:12]}")
    return 0


def _check(parsed: argparse.Namespace, invocation: Invocation) -> int:
    from hq.app.port_fork import check, check_text

    with session(parsed, invocation) as opened:
        done = check(opened, absolute(parsed.fork), parsed.branch, parsed.base, parsed.pin)
    invocation.console.print(check_text(done))
    return 0 if done.first is None else 1


def absolute(path: str) -> str:
    """A path that stays right from another folder; empty stays empty."""
    return os.path.abspath(path) if path else ""
