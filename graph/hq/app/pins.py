"""Pin files: what a build made, written down beside the lock, and held against another build.

``lockfiles/<pin>.images.toml`` belongs to version control: it names images, manifests and nodes by
digest, and no machine, user, folder or time. It is edited in place, so comments stay and a diff of
it shows what changed in the build.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import tomlkit
from pydantic import Field, StringConstraints
from tomlkit.items import Table as TomlTable

from hq.app.build import BuildReport, Verify
from hq.app.declaration import Hex256, Sha256, Table, Text
from hq.app.session import Session
from hq.app.validate import Document, load_document
from hq.evidence.pins import (
    SCHEMA,
    Difference,
    PinnedImage,
    PinnedNode,
    Pins,
    first_difference,
    pins_of,
)
from hq.evidence.records import NodeRecord
from hq.evidence.text import columns
from hq.execute.walk import Outcome
from hq.model.action import to_json
from hq.model.errors import BuildError, Location, UsageError
from hq.model.project import PinSpec
from hq.plan.reasons import describe_input
from hq.store.faults import disk_fault
from hq.store.files import replace_file

_HEADER = (
    "What hq built from this project, by digest. `hq build --locked` holds a build to it;",
    "`hq pin` writes it.",
)
Blake3 = Annotated[str, StringConstraints(pattern=r"^blake3:[0-9a-f]{64}$")]


class ImageTable(Table):
    """``[images.NAME]``."""

    image_id: Sha256
    manifest: Sha256


class NodeTable(Table):
    """``[nodes.NAME]``."""

    key: Hex256
    version: int
    result: Blake3
    inputs: dict[str, Text] = Field(default_factory=dict)
    params: dict[str, str | int | bool] = Field(default_factory=dict)


class PinsFile(Table):
    """``lockfiles/<pin>.images.toml``."""

    schema_: Literal["hq.pins/1"] = Field(alias="schema")
    pin: Text
    images: dict[str, ImageTable]
    nodes: dict[str, NodeTable]


def file_of(pin: str) -> str:
    """The pin file's path from the project's root."""
    return f"lockfiles/{pin}.images.toml"


def record_of(outcome: Outcome) -> NodeRecord:
    """The record of one node of a walk that has a result."""
    node, result = outcome.node, outcome.result
    assert result is not None
    return NodeRecord(
        node=node.name,
        kind=node.kind,
        version=node.version,
        key=result.key,
        params=json.loads(json.dumps(node.params)),
        inputs=outcome.inputs,
        what={name: describe_input(node, name) for name in outcome.inputs},
        result=json.loads(json.dumps(to_json(result))),
    )


def pins_from(spec: PinSpec, outcomes: Mapping[str, Outcome]) -> Pins:
    """What a finished walk of ``spec``'s graph made."""
    images: dict[str, PinnedImage] = {}
    for image in spec.images:
        result = outcomes[f"image:{image.name}"].result
        assert result is not None
        images[image.name] = PinnedImage(
            str(result.values["image_id"]), result.blobs["manifest"].digest
        )
    records = {name: record_of(outcome) for name, outcome in outcomes.items()}
    return pins_of(spec.pin, images, records)


def read(session: Session, pin: str) -> tuple[Pins, Document]:
    """The pin file of ``pin``. Raises ``UsageError`` when there is none or it is wrong."""
    file = file_of(pin)
    try:
        data = session.sources.read(file)
    except FileNotFoundError:
        raise UsageError(
            f"there is no {file}",
            hint=f"run hq pin --pin {pin} and put the file under version control",
        ) from None
    model, document = load_document(file, data, PinsFile)
    if model.pin != pin:
        raise UsageError(
            f"{file} is the pin file of {model.pin!r}, expected {pin!r}",
            where=document.locator()("pin"),
        )
    images = {name: PinnedImage(row.image_id, row.manifest) for name, row in model.images.items()}
    nodes = {
        name: PinnedNode(row.key, row.version, row.result, row.inputs, row.params)
        for name, row in model.nodes.items()
    }
    return Pins(pin, images, nodes), document


def verifier(session: Session, pin: str) -> Verify:
    """Holds a build to the pin file, which is read now.

    Raises ``UsageError``; the function that it gives raises ``BuildError`` at the first node that
    differs.
    """
    pinned, document = read(session, session.spec(pin).pin)

    def verify(spec: PinSpec, outcomes: Mapping[str, Outcome]) -> None:
        built = pins_from(spec, outcomes)
        expected = _only(pinned, built) if session.settings.images else pinned
        difference = first_difference(expected, built)
        if difference is not None:
            raise _refusal(difference, document, session.settings.images)

    return verify


def _only(pinned: Pins, built: Pins) -> Pins:
    """What is pinned of the images that were asked for by name."""
    images = {name: image for name, image in pinned.images.items() if name in built.images}
    nodes = {name: node for name, node in pinned.nodes.items() if name in built.nodes}
    return Pins(pinned.pin, images, nodes)


def _hint(images: Sequence[str]) -> str:
    command = " ".join(["hq pin", *(f"--image {name}" for name in images)])
    return (
        f"if the change is meant, run {command} and commit the file; if not, hq plan says what "
        "changed"
    )


def _refusal(found: Difference, document: Document, images: Sequence[str]) -> BuildError:
    file = document.file
    is_image = found.kind == "image"
    table, name = ("images", found.name.partition(":")[2]) if is_image else ("nodes", found.name)
    messages = {
        "differs": f"{found.name} is not what {file} pins",
        "image": f"{found.name} is not what {file} pins",
        "new": f"{found.name} is built and not pinned in {file}",
        "gone": f"{found.name} is pinned in {file} and not built",
    }
    where = Location(file) if found.kind == "new" else document.locator()(table, name)
    return BuildError(
        messages[found.kind],
        where=where,
        node=found.name,
        details=_side_by_side(found),
        hint=_hint(images),
    )


def _side_by_side(found: Difference) -> list[str]:
    lines = list(columns([("", "pinned", "built"), *found.rows]))
    if found.same:
        lines.append(f"the same: {found.same} other inputs and parameters")
    return lines


def write(session: Session, spec: PinSpec, report: BuildReport) -> tuple[str, bool]:
    """Writes the pin file of a finished build: its path, and whether it changed.

    Raises ``UsageError`` when the file that is there is none of hq's, ``InfrastructureError`` when
    it cannot be written.
    """
    file = file_of(spec.pin)
    pins = pins_from(spec, report.outcomes)
    path = session.sources.absolute(file)
    try:
        with open(path, "rb") as stream:
            old = stream.read()
    except FileNotFoundError:
        old = b""
    if old:
        load_document(file, old, PinsFile)
        if session.settings.images:
            # The others stay pinned; what they share with these is pinned as it is now.
            there, _ = read(session, spec.pin)
            pins = Pins(pins.pin, {**there.images, **pins.images}, {**there.nodes, **pins.nodes})
    new = render(pins, old.decode())
    if new == old:
        return file, False
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        replace_file(os.path.dirname(path), path, new)
    except OSError as error:
        raise disk_fault(error, "write the pin file", path, size=len(new)) from error
    return file, True


def render(pins: Pins, old: str = "") -> bytes:
    """The pin file's bytes: ``old``, a pin file or empty, with what ``pins`` says put in."""
    document = tomlkit.parse(old) if old else _empty()
    _set(document, "schema", SCHEMA)
    _set(document, "pin", pins.pin)
    images = {
        name: {"image-id": image.image_id, "manifest": image.manifest}
        for name, image in sorted(pins.images.items())
    }
    _tables(document, "images", images)
    _tables(document, "nodes", {name: _node(node) for name, node in pins.nodes.items()})
    return tomlkit.dumps(document).encode()


def _node(node: PinnedNode) -> dict[str, Any]:
    return {
        "key": node.key,
        "version": node.version,
        "result": node.result,
        "inputs": dict(node.inputs),
        "params": dict(node.params),
    }


def _empty() -> tomlkit.TOMLDocument:
    document = tomlkit.document()
    for line in _HEADER:
        document.add(tomlkit.comment(line))
    document.add(tomlkit.nl())
    return document


def _set(table: Any, key: str, value: object) -> None:
    # Assigning an equal value would drop the comment behind it.
    # True == 1 in Python, and not in TOML.
    if key not in table or table[key] != value or _is_flag(table[key]) != _is_flag(value):
        table[key] = value


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _tables(document: Any, name: str, wanted: Mapping[str, Mapping[str, Any]]) -> None:
    """Makes ``[name.X]`` be ``wanted``, each table edited in place, in the order given."""
    standing = document.get(name)
    if standing is None or list(standing) != list(wanted):
        standing = _reordered(standing, wanted)
        document[name] = standing
    for key, values in wanted.items():
        _update(standing[key], values)


def _reordered(standing: Any, wanted: Mapping[str, object]) -> TomlTable:
    table = tomlkit.table(is_super_table=True)
    for key in wanted:
        found = standing.get(key) if standing is not None else None
        table.append(key, tomlkit.table() if found is None else found)
    return table


def _update(table: Any, values: Mapping[str, Any]) -> None:
    for key in [key for key in table if key not in values]:
        del table[key]
    for key, value in values.items():
        if not isinstance(value, dict):
            _set(table, key, value)
        elif not value:
            table.pop(key, None)
        else:
            if key not in table:
                table[key] = tomlkit.table()
            _update(table[key], value)
