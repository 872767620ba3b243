"""What a command that compares is given: a pin, an image, or what a build left in a folder.

============================  ====================================================================
``0.29.0``                    all images of a pin of this project, built if they are not
``vllm``, ``vllm:0.28.0``     one image of the default pin, or of that pin
``dist/vllm-0.29.0``          an image layout that hq wrote; its records stand beside it
``…/x.records.json``          the records themselves, from any machine
``merge-base``                the control of this branch (``hq.app.control``)
a branch, tag or commit       the default pin of the project as that commit has it
============================  ====================================================================

Whatever it was, the answer is records; contents are in the store where this store has seen them.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from hq.app.build import closure, run_nodes
from hq.app.derived import DerivedSession
from hq.app.session import Session
from hq.evidence.records import NodeRecord, Records, read_records
from hq.execute.walk import Observer
from hq.model.errors import Location, UsageError
from hq.model.project import PinSpec

MAX_RECORDS = 64 << 20


class Side(NamedTuple):
    """One side of a comparison. ``label``: as it was named. ``records``: in the graph's order."""

    label: str
    records: Records


def side(session: Session, text: str, observer: Observer, pin: str = "") -> Side:
    """Resolves one operand; ``pin`` is for an image that is named without one.

    Raises ``UsageError`` for what is none of these, and whatever a build raises.
    """
    if "/" in text and os.path.exists(text):
        return Side(text, from_folder(text))
    image, _, named = text.partition(":")
    pins, images = _declared(session, pin or named)
    if text in pins:
        return Side(text, built(session, text, (), observer))
    if image in images and (not named or named in pins):
        return Side(text, built(session, named or pin, (image,), observer))
    # A folder may be called like an image; a slash says that it is meant.
    if os.path.exists(text):
        return Side(text, from_folder(text))
    records = _from_git(session, text, observer)
    if records is not None:
        return Side(text, records)
    raise UsageError(
        f"{text} is no pin, no image, no folder and no commit",
        details=[f"pins: {', '.join(sorted(pins))}", f"images: {', '.join(images)}"],
        hint="name one of these, NAME:PIN, a layout in dist/, or a *.records.json file",
    )


def _from_git(session: Session, text: str, observer: Observer) -> Records | None:
    from hq.app import commit, control
    from hq.transfer.git import Git

    if not commit.git_folder(session.settings.root):
        return None
    if text == control.MERGE_BASE:
        choice = control.merge_base(session, session.spec(""))
    else:
        git = Git(session.settings.root)
        if git.commit(text) is None:
            return None
        choice = control.revision(git, text)
    with control.opened(session, choice) as opened:
        return records_of(opened, opened.spec(""), observer)


def _declared(session: Session, pin: str) -> tuple[set[str], list[str]]:
    """The pins, and the names of all images, those too that are not built by default."""
    from hq.app.config import read_project
    from hq.app.validate import parse_toml

    declared = read_project(session.sources).declared
    # Reads and checks everything, so that a mistake in a file is told before a name is judged.
    session.spec(pin if pin in declared.pins else "")
    files = (parse_toml(path, session.sources.read(path)) for path in declared.images)
    return set(declared.pins), [str(file.value["name"]) for file in files]


def built(session: Session, pin: str, images: tuple[str, ...], observer: Observer) -> Records:
    """The records of a pin's images, all of them if none is named; runs what is not in the store.

    Raises ``HqError``.
    """
    settings = session.settings._replace(images=images)
    narrowed = DerivedSession(session, settings=settings)
    return records_of(narrowed, narrowed.spec(pin), observer)


def records_of(session: Session, spec: PinSpec, observer: Observer) -> Records:
    """The records of every node that the images of ``spec`` need, in the graph's order."""
    graph = session.graph(spec)
    records, _ = run_nodes(session, spec, graph, observer)
    needed = set().union(*(closure(graph, f"image:{image.name}") for image in spec.images))
    listed = {name: records.get(name) for name in graph.nodes if name in needed}
    return read_records(listed, spec.pin)


def from_folder(path: str) -> Records:
    """The records of a layout, or of a records file. Raises ``UsageError``."""
    file = path
    if os.path.isdir(path):
        file = path.rstrip("/") + ".records.json"
    try:
        if os.path.getsize(file) > MAX_RECORDS:
            raise UsageError(f"{file} is larger than {MAX_RECORDS} bytes", where=Location(file))
        with open(file, "rb") as stream:
            document = json.loads(stream.read())
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            hint="name a layout that hq build wrote, or its *.records.json",
        ) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{file} is not JSON", where=Location(file)) from None
    return read_records(document, file)


def image_record(records: Records) -> NodeRecord:
    """The image that records are about: the first of them. Raises ``UsageError``."""
    for record in records.values():
        if record.kind == "image":
            return record
    raise UsageError("the records name no image")
