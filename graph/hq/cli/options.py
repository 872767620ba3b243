"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from hq.app import noop
from hq.app.session import Session, Settings, settings_from
from hq.cli.main import Invocation, project_root, store_root
from hq.model.errors import UsageError


def add_pin(parser: argparse.ArgumentParser) -> None:
    """``--pin``."""
    parser.add_argument("--pin", default="", metavar="V", help="the pin (default: build.toml's)")


def add_store(parser: argparse.ArgumentParser) -> None:
    """``--store``."""
    parser.add_argument(
        "--store", default="", metavar="DIR", help="the store (default: HQ_STORE, or the cache)"
    )


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """What ``build`` and its relatives share."""
    add_pin(parser)
    add_store(parser)
    add_output(parser)
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="NAME",
        help="build this image; may be repeated (default: those that are built by default)",
    )
    parser.add_argument("--offline", action="store_true", help="use the store only")
    add_jobs(parser, 0, "threads (default: one for each processor)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """``--output``."""
    parser.add_argument(
        "--output", default="", metavar="DIR", help="where images go (default: dist/)"
    )


def add_jobs(parser: argparse.ArgumentParser, default: int, text: str) -> None:
    """``--jobs``; ``default`` where it is not given."""
    parser.add_argument("-j", "--jobs", type=_jobs, default=default, metavar="N", help=text)


def _jobs(text: str) -> int:
    # Not ValueError, of which argparse would make a message of its own.
    if re.fullmatch(r"0*[1-9][0-9]{0,3}", text) is None:
        raise UsageError(f"--jobs: expected a number from 1 to 9999, found {text!r}")
    return int(text)


def store_path(text: str) -> str:
    """The store's folder."""
    return store_root(text)


def settings(parsed: argparse.Namespace) -> Settings:
    """The settings of a command with build options."""
    output = getattr(parsed, "output", "")
    return settings_from(
        project_root(),
        store=store_path(parsed.store),
        output=os.path.abspath(output) if output else "",
        offline=getattr(parsed, "offline", False),
        jobs=getattr(parsed, "jobs", 0),
        images=tuple(getattr(parsed, "image", ())),
        environment=os.environ,
    )


@contextmanager
def optional_session(
    parsed: argparse.Namespace, invocation: Invocation, image: str
) -> Iterator[Session | None]:
    """A session with the named image if the working directory is inside a project."""
    parsed.image = [image] if image else []
    if noop.find_root(os.getcwd()) is None:
        yield None
        return
    with session(parsed, invocation) as opened:
        yield opened


def session(parsed: argparse.Namespace, invocation: Invocation) -> Session:
    """A session for a command with build options."""
    return Session(settings(parsed), invocation.console.warn)
