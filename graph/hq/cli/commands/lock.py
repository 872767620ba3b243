"""``hq lock``."""

from __future__ import annotations

import argparse
import os

from hq.app.config import check_pin, read_project
from hq.app.folder import ProjectFolder
from hq.app.lock import (
    differences,
    edited,
    fresh_lock,
    pylock_text,
    read_lock,
    requirements_text,
)
from hq.cli.main import Invocation, project_root


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--pin", default="", metavar="V", help="the pin (default: build.toml's)")
    parser.add_argument("--python", default="", metavar="3.N", help="default: build.toml's target")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="say how a fresh resolution differs; writes nothing"
    )
    what.add_argument(
        "--export",
        choices=("requirements", "pylock"),
        help="print the lock as it is in another format; resolves nothing",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, invocation: Invocation) -> int:
    """Locks, checks or exports."""
    root = project_root()
    files = ProjectFolder(root)
    project = read_project(files)
    pin = parsed.pin or project.default_pin
    check_pin(project, pin)
    path = project.declared.pins[pin].lock
    lock = read_lock(files, path)
    console = invocation.console
    if parsed.export == "requirements":
        console.print(requirements_text(lock))
        return 0
    if parsed.export == "pylock":
        target = project.declared.target
        console.print(pylock_text(lock, target.python if target is not None else "3"))
        return 0
    console.note(f"resolving {pin} ...")
    fresh = fresh_lock(project, pin, parsed.python)
    found = [str(difference) for difference in differences(lock.wheel, fresh)]
    for line in found:
        console.print(line)
    if parsed.check:
        console.note(f"{path}: {len(found)} differences" if found else f"{path} is up to date")
        return 1 if found else 0
    full = os.path.join(root, path)
    with open(full, encoding="utf-8") as file:
        text = file.read()
    new = edited(text, fresh)
    if new != text:
        temporary = f"{full}.{os.getpid()}.new"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(new)
        os.replace(temporary, full)
    console.note(f"{path}: {len(fresh)} wheels, {len(found)} changed")
    return 0
