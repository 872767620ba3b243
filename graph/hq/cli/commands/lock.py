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
from hq.cli.options import add_store, store_path
from hq.model.errors import UsageError
from hq.store.disk import DiskStore


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--pin", default="", metavar="V", help="the pin (default: build.toml's)")
    parser.add_argument("--python", default="", metavar="3.N", help="default: build.toml's target")
    parser.add_argument(
        "--base",
        default="",
        metavar="NAME",
        help="lock the Debian packages of lockfiles/base-NAME.toml instead",
    )
    add_store(parser)
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
    if parsed.base:
        return _lock_base(parsed, invocation, root)
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
        _replace(full, new)
    console.note(f"{path}: {len(fresh)} wheels, {len(found)} changed")
    return 0


def _replace(path: str, text: str) -> None:
    temporary = f"{path}.{os.getpid()}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def _lock_base(parsed: argparse.Namespace, invocation: Invocation, root: str) -> int:
    from hq.app.base_lock import refresh_base_lock

    if parsed.export:
        raise UsageError("--export is for the wheels of a pin", hint="leave --base or it away")
    path = f"lockfiles/base-{parsed.base}.toml"
    full = os.path.join(root, path)
    try:
        with open(full, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path}",
            hint="write one with schema, suite, architecture and packages; its packages are "
            "filled in",
        ) from None
    console = invocation.console
    console.note(f"resolving {path} ...")
    with DiskStore(store_path(parsed.store), warn=console.warn) as store:
        fresh = refresh_base_lock(store, path, data)
    for line in fresh.changes:
        console.print(line)
    if parsed.check:
        count = len(fresh.changes)
        console.note(f"{path}: {count} differences" if count else f"{path} is up to date")
        return 1 if count else 0
    if fresh.text.encode() != data:
        _replace(full, fresh.text)
    console.note(
        f"{path}: {fresh.text.count('[[package]]')} packages, {len(fresh.changes)} changed"
    )
    return 0
