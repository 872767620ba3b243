"""From arguments to an exit code.

``build`` with plain options skips ``argparse``: it is the command that must be quick. Exit codes: 0
done, 1 the build or a check failed, 2 usage or configuration, 3 infrastructure, 70 a bug in hq, 130
interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from hq.app import noop
from hq.cli.console import Console, OutputError, system_console
from hq.model.errors import HqError, UsageError

if TYPE_CHECKING:
    import argparse

BUG = 70
INTERRUPTED = 130


class Command(NamedTuple):
    """A command: its module under ``hq.cli.commands``, and one line of help."""

    module: str
    help: str


COMMANDS = {
    "build": Command("build", "build the images of a pin"),
    "plan": Command("plan", "say what a build would run and reuse, and why"),
    "why": Command("why", "say why a node ran the last time"),
    "graph": Command("graph", "draw the graph (text, DOT, Mermaid, SVG)"),
    "series": Command("series", "check or apply a quilt series on any tree"),
    "envs": Command("envs", "check the knobs of a built tree, or list them"),
    "port": Command("port", "move the series to another release: triage, rebase, retire"),
    "lock": Command("lock", "resolve a pin's dependencies into its lock, or check it"),
    "pin": Command("pin", "build, and write down what that gave"),
    "diff": Command("diff", "compare two builds by node, by file and by line"),
    "pair": Command("pair", "say whether two builds differ by the pin alone"),
    "red": Command("red", "build the red controls: each must fail its check for its reason"),
    "blame": Command("blame", "say where each line of a file of the built tree comes from"),
    "verify": Command("verify", "check an image, by looking and by running it"),
    "provenance": Command("provenance", "print an image's provenance statement"),
    "run": Command("run", "show or start the container of a profile"),
    "load": Command("load", "load an image into a Docker engine"),
    "push": Command("push", "push an image to a registry"),
    "pull": Command("pull", "pull a base image from a registry into the store"),
    "store": Command("store", "look after the store: stats, verify, gc"),
}


class Invocation(NamedTuple):
    """What a command is run with."""

    console: Console
    started: float


def run(arguments: Sequence[str], started: float) -> int:
    """Runs a command line; returns the exit code. Never raises for a user's mistake."""
    console = system_console()
    try:
        code = _dispatch(list(arguments), Invocation(console, started))
        console.flush()
        return code
    except HqError as error:
        console.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        console.err.write("interrupted; what was finished is in the store\n")
        return INTERRUPTED
    except OutputError as error:
        return noop.output_failed(error.cause)
    except Exception:  # noqa: BLE001  # a bug: say so, and show where
        import traceback

        traceback.print_exc(file=console.err)
        console.err.write("error: this is a bug in hq; please report it with the lines above\n")
        return BUG


def _dispatch(arguments: list[str], invocation: Invocation) -> int:
    request = noop.parse(arguments)
    if request is not None:
        from hq.cli.commands import build

        return build.run_request(request, invocation)
    parser = _parser(arguments)
    parsed = parser.parse_args(arguments)
    if "run" not in parsed:
        parser.print_help()
        return 2
    code: int = parsed.run(parsed, invocation)
    return code


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    import argparse

    from hq import __version__

    parser = argparse.ArgumentParser(
        prog="hq", description="Builds container images of a patched wheel.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"hq {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    named = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name, help=command.help, description=command.help.capitalize() + ".", allow_abbrev=False
        )
        # Only the command that was named loads its module.
        if name == named:
            import_module(f"hq.cli.commands.{command.module}").configure(sub)
    return parser


def project_root() -> str:
    """The project around the working directory. Raises ``UsageError``."""
    try:
        root = noop.find_root(os.getcwd())
    except FileNotFoundError:
        raise UsageError("the working directory is not there any more") from None
    if root is None:
        raise UsageError(
            "there is no build.toml here or in any folder above",
            hint="run hq inside a project",
        )
    return root


def store_root(text: str) -> str:
    """The store that ``--store`` or the environment names. Raises ``UsageError``."""
    try:
        store = os.path.abspath(text) if text else noop.default_store(os.environ)
    except FileNotFoundError:
        raise UsageError("the working directory is not there any more") from None
    if store:
        return store
    named = os.environ.get("HQ_STORE")
    found = f"HQ_STORE is {named!r}" if named else f"HOME is {os.environ.get('HOME', '')!r}"
    raise UsageError(
        "the store's place is no absolute path",
        details=[found],
        hint="give an absolute path: a relative one would be another store in each folder",
    )
