"""``hq run``."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from typing import Any, cast

from hq.app.config import read_project
from hq.app.imagefile import declared_launchers
from hq.app.profiles import (
    ProfileFile,
    container_command,
    find_profile,
    read_profiles,
    setting_warnings,
    shown,
)
from hq.cli.main import Invocation
from hq.cli.options import add_pin, add_store, session
from hq.knobs.prefix import STOCK_PREFIX
from hq.model.errors import UsageError
from hq.model.project import PinSpec


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.usage = "hq run [options] PROFILE [-- ARGS...]"
    parser.add_argument("profile", metavar="PROFILE", nargs="?", default="", help="a profile")
    _take_rest(parser)
    add_pin(parser)
    add_store(parser)
    parser.add_argument("--list", action="store_true", help="list the profiles")
    parser.add_argument("--start", action="store_true", help="start it; otherwise it is shown")
    parser.add_argument(
        "-e", "--env", action="append", default=[], metavar="NAME=VALUE", help="set a setting"
    )
    parser.add_argument(
        "-v", "--volume", action="append", default=[], metavar="PLACE:PATH", help="mount a folder"
    )
    parser.add_argument(
        "--tag",
        default="",
        metavar="IMAGE",
        help="the image to run (default: IMAGE:PIN, as loaded)",
    )
    parser.add_argument(
        "--with", dest="program", default="docker", metavar="PROGRAM", help="default: docker"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def _take_rest(parser: argparse.ArgumentParser) -> None:
    """Keeps what follows ``--`` for the launcher; argparse takes no options between the two."""
    parse = parser.parse_known_args

    def parse_known_args(words: Any, namespace: Any) -> Any:
        at = words.index("--") if "--" in words else len(words)
        parsed, others = parse(words[:at], namespace)
        parsed.args = words[at + 1 :]
        return parsed, others

    # argparse has no hook for this; a subparser is made by its parent, so no class can be given.
    parser.parse_known_args = parse_known_args  # type: ignore[method-assign, assignment]


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Lists profiles, or shows or starts the container of one."""
    with session(parsed, invocation) as opened:
        project = read_project(opened.sources)
        folder = project.declared.profiles
        names = opened.sources.names(folder) if folder else []
        paths = [f"{folder}/{name}" for name in names if name.endswith(".toml")]
        profiles = read_profiles(paths, opened.sources.read)
        if parsed.list or not parsed.profile:
            return _list([profile for profile, _ in profiles], parsed, invocation)
        profile = find_profile(profiles, parsed.profile)
        env = dict(_pair(text) for text in parsed.env)
        if env:
            launchers = declared_launchers(opened.sources, profile.image)
            prefixes = _prefixes(opened.spec(parsed.pin))
            for warning in setting_warnings(env, launchers, prefixes):
                invocation.console.warn(warning)
    pin = parsed.pin or project.default_pin
    command = container_command(
        profile,
        parsed.tag or f"{profile.image}:{pin}",
        program=parsed.program,
        env=env,
        args=parsed.args,
        volumes=parsed.volume,
    )
    if parsed.start:
        return _start(command)
    if parsed.json:
        document = {"schema": "hq.run/1", "profile": profile.name, "command": command}
        invocation.console.print(json.dumps(document, indent=2))
    else:
        invocation.console.print(shown(command))
    return 0


def _list(profiles: list[ProfileFile], parsed: argparse.Namespace, invocation: Invocation) -> int:
    if parsed.json:
        rows = [{"name": p.name, "image": p.image, "what": p.what} for p in profiles]
        invocation.console.print(json.dumps({"schema": "hq.run/1", "profiles": rows}, indent=2))
        return 0
    width = max((len(profile.name) for profile in profiles), default=0)
    for profile in profiles:
        invocation.console.print(f"{profile.name:<{width}}  {profile.what}")
    return 0


def _prefixes(spec: PinSpec) -> tuple[str, ...]:
    """What knobs begin with. Those are the server's, whatever the launcher looks at."""
    own = spec.knobs.registry["prefixes"] if spec.knobs is not None else []
    return (STOCK_PREFIX, *cast("list[str]", own))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--env: expected NAME=VALUE, found {text!r}")
    return name, value


def _start(command: list[str]) -> int:
    """Becomes the container's program, so that signals and the exit code are its own."""
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(
            f"there is no program {command[0]!r}", hint="install it, or name another with --with"
        )
    os.execv(program, command)  # noqa: S606 - no shell is wanted
