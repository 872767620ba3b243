"""How a build's control is built, told and added to the build's answer."""

from __future__ import annotations

import os
from typing import Any

from hq.app.build import BuildReport, report_json
from hq.app.control import (
    MERGE_BASE,
    ControlReport,
    Skipped,
    build_control,
    choose,
    to_json,
)
from hq.app.session import Session
from hq.cli.console import Console
from hq.cli.observer import BuildObserver

Found = ControlReport | Skipped


def run(session: Session, pin: str, wanted: str, console: Console) -> Found:
    """Finds and builds the control of ``pin``; ``wanted`` as ``--control``. Raises ``HqError``."""
    choice = choose(session, session.spec(pin), wanted)
    if isinstance(choice, Skipped):
        if wanted != "none":
            console.note(f"no control: {choice.reason}")
        return choice
    for note in choice.notes:
        console.warn(note)
    console.note(f"control: {choice.label}")
    observer = BuildObserver(console)
    try:
        found = build_control(session, choice, observer)
    finally:
        observer.close()
    if choice.kind == MERGE_BASE:
        _suggest(found, console)
    return found


def _suggest(found: ControlReport, console: Console) -> None:
    for image in found.report.images:
        folder = os.path.relpath(image.layout)
        console.note(f"hq pair {folder} {image.name} says what they differ in")


def add_json(document: dict[str, Any], found: Found) -> None:
    """Adds the control to the document that ``hq build --json`` prints."""
    images: list[Any] = []
    if isinstance(found, ControlReport):
        rows: Any = report_json(found.report, None)["images"]
        images = list(rows)
    document["images"] += images
    document["control"] = to_json(found, images)


def with_images(report: BuildReport, found: Found) -> BuildReport:
    """The report with the control's images in it, for the table."""
    if isinstance(found, Skipped):
        return report
    return report._replace(images=(*report.images, *found.report.images))
