"""``hq build``."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from hq.app import noop
from hq.app.build import BuildReport, build, remember_noop, report_json
from hq.app.session import Session, settings_from
from hq.cli.console import Console
from hq.cli.main import Invocation, project_root, store_root
from hq.cli.observer import BuildObserver
from hq.model.errors import UsageError

if TYPE_CHECKING:
    # The command that must be quick is run without argparse (hq.cli.main).
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    from hq.cli.options import add_build_options

    add_build_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--wheel", default=None, metavar="FILE", help="take the pin's wheel from this file"
    )
    parser.add_argument(
        "--locked", action="store_true", help="fail unless everything is as hq pin wrote it down"
    )
    parser.add_argument(
        "--check", action="store_true", help="build every node once more and compare the results"
    )
    parser.add_argument(
        "--control",
        default="",
        metavar="WHICH",
        help="also build a control: merge-base, a pin, a git revision, or none",
    )
    parser.add_argument(
        "--red", action="store_true", help="then run the red controls; fail unless each is red"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no table and no progress")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Runs the command."""
    request = noop.Request()
    request.pin = parsed.pin
    request.store = parsed.store
    request.output = parsed.output
    request.offline = parsed.offline
    request.as_json = parsed.json
    request.quiet = parsed.quiet
    request.jobs = parsed.jobs
    for name in parsed.image:
        if not name or "," in name:
            raise UsageError(
                f"--image: {name!r} is no image's name", hint="for several images repeat --image"
            )
    request.images = "".join(f",{name}" for name in parsed.image)
    extras = Extras(parsed.wheel, parsed.locked, parsed.check, parsed.control, parsed.red)
    return run_request(request, invocation, extras)


class Extras(NamedTuple):
    """What only a spelt-out command line asks for. None of it is answered by the fast path."""

    wheel: str | None = None
    locked: bool = False
    check: bool = False
    control: str = ""
    red: bool = False


PLAIN: Final = Extras()


def run_request(request: noop.Request, invocation: Invocation, extras: Extras = PLAIN) -> int:
    """Builds, prints the answer, and remembers it for the fast path."""
    console = invocation.console
    console.quiet = request.quiet
    settings = settings_from(
        project_root(),
        store=store_root(request.store),
        output=os.path.abspath(request.output) if request.output else "",
        offline=request.offline,
        jobs=request.jobs,
        environment=os.environ,
        images=tuple(name for name in request.images.split(",") if name),
    )
    observer = BuildObserver(console)
    with Session(settings, console.warn) as session:
        if extras.wheel is not None:
            _supply(session, request.pin, extras.wheel, console)
        verify = None
        if extras.locked:
            from hq.app.pins import verifier

            verify = verifier(session, request.pin)
        try:
            report = build(session, request.pin, observer, verify=verify)
        finally:
            observer.close()
        if extras.check:
            _check(session, report, console)
        if extras.red:
            _red(session, report, console)
        if extras.control or report.control is not None:
            _with_control(session, request, extras, report, invocation)
            return 0
        seconds = time.perf_counter() - invocation.started
        if request.as_json:
            console.print(_json(report_json(report, round(seconds, 3))))
        elif not request.quiet:
            console.print(_table(report, f"{seconds:.3f}"))
        unchanged = report._replace(
            outcomes={
                name: outcome._replace(status="reused") for name, outcome in report.outcomes.items()
            }
        )
        json_text = _json(report_json(unchanged, None)).replace(
            '"seconds": null', f'"seconds": {noop.SECONDS}'
        )
        remember_noop(session, request, unchanged, _table(unchanged, noop.SECONDS), json_text)
    return 0


def _supply(session: Session, pin: str, path: str, console: Console) -> None:
    from hq.cli.transfers import TransferView

    name = os.path.basename(path)
    with TransferView(console, "imported") as view:
        session.supply(pin, path, lambda done, total: view(name, done, total))


def _with_control(
    session: Session,
    request: noop.Request,
    extras: Extras,
    report: BuildReport,
    invocation: Invocation,
) -> None:
    """Builds the control too. No answer for the fast path: that does not look at git."""
    from hq.cli import control

    console = invocation.console
    found = control.run(session, request.pin, extras.control, console)
    seconds = time.perf_counter() - invocation.started
    if request.as_json:
        document = report_json(report, round(seconds, 3))
        control.add_json(document, found)
        console.print(_json(document))
    elif not request.quiet:
        console.print(_table(control.with_images(report, found), f"{seconds:.3f}"))


def _check(session: Session, report: BuildReport, console: Console) -> None:
    from hq.app.check import refusal
    from hq.app.recheck import check_elsewhere

    findings = check_elsewhere(session, report.pin)
    if findings:
        raise refusal(findings)
    console.note(f"built {len(report.outcomes)} nodes once more: each gave the same result")


def _red(session: Session, report: BuildReport, console: Console) -> None:
    from hq.app.red import refusal, run
    from hq.execute.speculate import Quiet

    _, outcomes = run(session, report.pin, (), Quiet())
    error = refusal(outcomes)
    if error is not None:
        raise error
    count = sum(outcome.state == "red" for outcome in outcomes)
    console.note(f"red controls: {count}, each red for its reason")


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"


def _table(report: BuildReport, seconds: str) -> str:
    lines: list[str] = []
    for image in report.images:
        size = sum(int(str(layer["size"])) for layer in image.layers)
        lines += [
            f"{image.name} {image.pin} ({image.role})",
            f"  image id  {image.image_id}",
            f"  manifest  {image.manifest.digest}",
            f"  layers    {len(image.layers)}, {_human(size)}",
            f"  layout    {_shown(image.layout)}:{image.tag}",
        ]
    built, reused = len(report.names("built")), len(report.names("reused"))
    total = len(report.outcomes)
    lines.append(f"{total} nodes: {built} built, {reused} reused, in {seconds} s")
    return "\n".join(lines) + "\n"


def _shown(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _human(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.2f} GiB"
