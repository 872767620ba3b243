"""The build: graph, walk, records, layouts, provenance, and the state for the fast path."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hq import __version__
from hq.app import noop
from hq.app.causes import causes_of, stored
from hq.app.materials import SUFFIX as SBOM
from hq.app.materials import image_sbom
from hq.app.memory import rows_to_json, scoped
from hq.app.session import Session
from hq.execute.walk import Observer, Outcome, Walk, despite_damage
from hq.model.action import Json
from hq.model.digest import ActionKey, BlobRef, Digest
from hq.model.errors import UsageError
from hq.model.project import ImageSpec, LockedWheel, PinSpec
from hq.oci.image import LAYOUT, MANIFEST_TYPE, Document, Platform, index
from hq.plan.node import Graph, Node, Source
from hq.plan.reasons import Before, describe_input
from hq.provenance.record import Input, record
from hq.provenance.slsa import BASE_IMAGE, Byproduct, Material, Subject, statement
from hq.rules.table import RULES
from hq.store.faults import OUTPUT, disk_fault
from hq.store.files import replace_file, sweep
from hq.store.layout import write_layout

SCHEMA = "hq.build/1"
TOOL = f"hq {__version__}"


class BuiltImage(NamedTuple):
    """An image that a build made or found made. ``layout`` is the folder, an absolute path."""

    name: str
    role: str
    pin: str
    image_id: Digest
    manifest: BlobRef
    layout: str
    tag: str
    layers: tuple[Mapping[str, Json], ...]


class BuildReport(NamedTuple):
    """What a build did. ``outcomes`` are in the graph's order; ``control``: as it is declared."""

    pin: str
    images: tuple[BuiltImage, ...]
    outcomes: Mapping[str, Outcome]
    control: Mapping[str, str] | None = None

    def names(self, status: str) -> list[str]:
        """The nodes with that status, in order."""
        return [name for name, outcome in self.outcomes.items() if outcome.status == status]


class Records:
    """The records of one pin, as the store remembers them.

    ``texts``: each node's as JSON. They are decoded one by one, where one is asked for: of hundreds
    that are written again after a change of a line, three are new.
    """

    def __init__(self, session: Session, pin: str) -> None:
        self._session = session
        # A build of chosen images says nothing about the nodes of others: it has its own file, and
        # knows what the others have.
        images = session.settings.images
        self._name = scoped("records", pin, images)
        self.texts = session.memory.load_rows(scoped("records", pin))
        if images:
            self.texts |= session.memory.load_rows(self._name)

    def get(self, node: str) -> dict[str, Any] | None:
        """The record of the node's last run, if one is remembered."""
        text = self.texts.get(node)
        try:
            found = None if text is None else json.loads(text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def before(self, node: str) -> Before | None:
        """What is remembered of the node's last run."""
        found = self.get(node)
        if found is None:
            return None
        try:
            return Before(
                key=ActionKey.parse(found["key"]),
                version=found["version"],
                params=found["params"],
                inputs={entry["name"]: entry["digest"] for entry in found["inputs"]},
            )
        except (KeyError, TypeError, ValueError):
            return None

    def update(self, outcomes: Iterable[Outcome], graph: Graph) -> None:
        """Takes in what a walk did and writes the file if anything is new."""
        changed = False
        for outcome in outcomes:
            if outcome.result is None:
                continue
            known = self.texts.get(outcome.node.name, "")
            if outcome.status == "reused" and f'"key": "{outcome.key}"' in known:
                continue
            self.texts[outcome.node.name] = json.dumps(self._record(outcome))
            changed = True
        gone = [name for name in self.texts if name not in graph.nodes]
        for name in gone:
            del self.texts[name]
        if changed or gone:
            self._session.memory.save_rows(self._name, self.texts)

    def _record(self, outcome: Outcome) -> dict[str, Json]:
        node = outcome.node
        assert outcome.result is not None
        return record(
            node=node.name,
            kind=node.kind,
            version=node.version,
            params=json.loads(json.dumps(node.params)),
            inputs=[
                Input(name, describe_input(node, name), digest)
                for name, digest in outcome.inputs.items()
            ],
            result=outcome.result,
            causes=causes_of(outcome, stored(self._session.disk)),
            warnings=outcome.warnings,
            tool=TOOL,
        )


Verify = Callable[[PinSpec, Mapping[str, Outcome]], None]
"""Looks at what the nodes gave before an image is written; raises ``HqError`` to stop the build."""


def build(
    session: Session, pin: str, observer: Observer, *, verify: Verify | None = None
) -> BuildReport:
    """Builds every image of ``pin`` (the default one if empty) into the output folder.

    Raises ``HqError``. What was finished before a failure stays in the store.
    """
    spec = session.spec(pin)
    if not spec.images:
        raise UsageError(
            "no image is built by default: each says default = false",
            hint="name images with --image",
        )
    graph = session.graph(spec)

    def attempt() -> BuildReport:
        records, outcomes = run_nodes(session, spec, graph, observer)
        if verify is not None:
            verify(spec, outcomes)
        images = _write_images(session, spec, outcomes, graph, records)
        return BuildReport(spec.pin, images, outcomes, spec.control)

    # A blob may turn out to be damaged only when it is brought into a layout.
    return despite_damage(attempt)


def run_nodes(
    session: Session, spec: PinSpec, graph: Graph, observer: Observer
) -> tuple[Records, Mapping[str, Outcome]]:
    """Runs or reuses every node; writes no image. What was finished before a failure is kept."""
    records = Records(session, spec.pin)
    built: dict[str, Outcome] = {}

    def attempt(part: Graph = graph) -> Mapping[str, Outcome]:
        found = _walk(session, part, records, observer, built, keep=graph)
        return {name: built.get(name, outcome) for name, outcome in found.items()}

    lacking = _lacking(session, spec)
    if lacking:
        # A mistake in a patch is told now, and not after minutes of download.
        rest = _without(graph, lacking)
        _fetch(session, lacking, observer, lambda: despite_damage(lambda: attempt(rest)))
    return records, despite_damage(attempt)


def _walk(
    session: Session,
    graph: Graph,
    records: Records,
    observer: Observer,
    built: dict[str, Outcome],
    *,
    keep: Graph,
) -> Mapping[str, Outcome]:
    """Walks ``graph``; records of nodes outside of ``keep`` are forgotten."""
    walk = Walk(
        graph,
        session,
        session.disk.actions,
        RULES,
        records.before,
        observer,
        jobs=session.settings.jobs,
    )
    try:
        return walk.run()
    finally:
        finished = walk.finished()
        records.update(finished, keep)
        built |= {one.node.name: one for one in finished if one.status == "built"}


def _lacking(session: Session, spec: PinSpec) -> list[LockedWheel]:
    """The dependencies that the store lacks. vLLM's own wheel is left to its node."""
    refs = [(wheel, BlobRef(wheel.sha256, wheel.size)) for wheel in spec.dependencies]
    return [wheel for wheel, ref in refs if not session.disk.has(ref)]


def _without(graph: Graph, wheels: Sequence[LockedWheel]) -> Graph:
    """The part of the graph that can be built before ``wheels`` are there."""
    digests = {wheel.sha256 for wheel in wheels}
    nodes: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        fetches = node.kind == "wheel" and node.params["sha256"] in digests
        if not fetches and all(other in nodes for other in node.depends_on()):
            nodes[name] = node
    return graph._replace(nodes=nodes)


def _fetch(
    session: Session,
    wheels: Sequence[LockedWheel],
    observer: Observer,
    meanwhile: Callable[[], object],
) -> None:
    """Fetches many wheels in one go, for a pip each would spend more time starting."""
    from hq.transfer.batch import fetch_many

    label = f"{len(wheels)} wheels"
    observer.started(label)
    fetch_many(
        session.disk,
        wheels,
        lambda done, total: observer.progressed(label, done, total),
        offline=session.settings.offline,
        meanwhile=meanwhile,
    )
    observer.fetched(label)


def _write_images(
    session: Session,
    spec: PinSpec,
    outcomes: Mapping[str, Outcome],
    graph: Graph,
    records: Records,
) -> tuple[BuiltImage, ...]:
    return tuple(
        _write_image(session, spec, image, outcomes, graph, records) for image in spec.images
    )


def _write_image(
    session: Session,
    spec: PinSpec,
    image: ImageSpec,
    outcomes: Mapping[str, Outcome],
    graph: Graph,
    records: Records,
) -> BuiltImage:
    result = outcomes[f"image:{image.name}"].result
    assert result is not None
    layers: Any = result.values["layers"]
    manifest = result.blobs["manifest"]
    folder = os.path.join(session.settings.output, f"{image.name}-{spec.pin}")
    refs = [BlobRef(Digest.parse(layer["digest"]), layer["size"]) for layer in layers]
    platform = Platform(os=image.os, architecture=image.architecture)
    document = Document(MANIFEST_TYPE, session.disk.read(manifest), manifest)
    listing = index([(document, spec.pin, platform)])
    write_layout(
        session.disk,
        folder,
        [*refs, result.blobs["config"], manifest],
        index=listing.data,
        marker=LAYOUT,
    )
    built = BuiltImage(
        name=image.name,
        role=image.role,
        pin=spec.pin,
        image_id=Digest.parse(str(result.values["image_id"])),
        manifest=manifest,
        layout=folder,
        tag=spec.pin,
        layers=tuple(layers),
    )
    _write_reports(session, spec, built, graph, records, outcomes)
    return built


def _write_reports(
    session: Session,
    spec: PinSpec,
    image: BuiltImage,
    graph: Graph,
    records: Records,
    outcomes: Mapping[str, Outcome],
) -> None:
    needed = closure(graph, f"image:{image.name}")
    listed = [name for name in graph.nodes if name in needed]
    rows = rows_to_json({name: records.texts[name] for name in listed})
    _write_if_new(image.layout + ".records.json", rows)
    made = statement(
        Subject(f"{image.name}:{spec.pin}", image.manifest.digest),
        parameters={"pin": spec.pin, "image": image.name, "epoch": spec.epoch},
        materials=_materials(session, spec, graph, needed),
        byproducts=[_byproduct(outcomes[name]) for name in listed],
        commit=session.commit(),
        tool_version=__version__,
    )
    _write_if_new(image.layout + ".provenance.json", _pretty(made))
    spec_of = next(each for each in spec.images if each.name == image.name)
    bill = image_sbom(session, spec, spec_of, image.image_id, image.manifest.digest, __version__)
    _write_if_new(image.layout + SBOM, _pretty(bill))


def _byproduct(outcome: Outcome) -> Byproduct:
    result = outcome.result
    assert result is not None
    blobs = {name: ref.digest for name, ref in sorted(result.blobs.items())}
    return Byproduct(outcome.node.name, result.key, blobs)


def closure(graph: Graph, target: str) -> set[str]:
    """``target`` and every node that it depends on, at any distance."""
    needed: set[str] = set()
    pending = [target]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += graph.nodes[name].depends_on()
    return needed


def _materials(session: Session, spec: PinSpec, graph: Graph, needed: set[str]) -> list[Material]:
    paths = {
        selector.path
        for name in needed
        for selector in graph.nodes[name].inputs.values()
        if isinstance(selector, Source)
    }
    files = [Material(path, session.sources.ref(path).digest) for path in paths]
    own = Material(spec.wheel.file, spec.wheel.sha256)
    fetched = {material for name in needed if (material := _fetched(graph.nodes[name]))}
    return [own, *files, *sorted(fetched - {own})]


def _fetched(node: Node) -> Material | None:
    """What a node takes from outside: a wheel, a package, or an image."""
    if node.kind in ("wheel", "deb"):
        return Material(str(node.params["file"]), Digest.parse(str(node.params["sha256"])))
    if node.kind == "base-image":
        return Material(BASE_IMAGE, Digest.parse(str(node.params["digest"])))
    return None


def _pretty(document: Mapping[str, object]) -> bytes:
    """JSON with a line for each entry: readable enough, and at the speed of the C encoder."""
    return rows_to_json({name: json.dumps(value) for name, value in document.items()})


def _write_if_new(path: str, data: bytes) -> None:
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return
    except OSError:
        pass
    folder = os.path.join(os.path.dirname(path), ".hq-tmp")
    try:
        sweep(folder)  # what killed builds left there
        replace_file(folder, path, data, flush=False)
        with suppress(OSError):  # another build writes too
            os.rmdir(folder)
    except OSError as error:
        raise disk_fault(error, "write a report", path, size=len(data), elsewhere=OUTPUT) from error


def report_json(report: BuildReport, seconds: float | None) -> dict[str, object]:
    """The document that ``hq build --json`` prints."""
    return {
        "schema": SCHEMA,
        "pin": report.pin,
        "images": [
            {
                "name": image.name,
                "role": image.role,
                "pin": image.pin,
                "image_id": image.image_id,
                "manifest": image.manifest.digest,
                "layout": image.layout,
                "tag": image.tag,
            }
            for image in report.images
        ],
        "nodes": {
            "total": len(report.outcomes),
            "reused": len(report.names("reused")),
            "built": len(report.names("built")),
        },
        "built": report.names("built"),
        "seconds": seconds,
    }


def remember_noop(
    session: Session, request: noop.Request, report: BuildReport, text: str, json_text: str
) -> None:
    """Writes down what the build looked at, for ``hq.app.noop.replay``."""
    settings = session.settings
    path = noop.state_path(settings.store, settings.root, request, settings.output)
    try:
        state = _noop_state(session, report, text, json_text).encode(time.time_ns())
    except OSError:  # another build changes the same output: the next one looks for itself
        return
    session.keep(os.path.relpath(path, settings.store), state)


def _noop_state(session: Session, report: BuildReport, text: str, json_text: str) -> noop.State:
    state = noop.State(text, json_text)
    for path, seen in sorted(session.sources.seen.items()):
        state.file(session.sources.absolute(path), seen.status, seen.ref.digest.hex)
    for folder, field in sorted(session.sources.folders.items()):
        state.folder(folder, field)
    state.commit(session.settings.root, session.commit())
    state.environment("SOURCE_DATE_EPOCH")
    state.outputs(_outputs(session, report))
    state.modules(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return state


def _outputs(session: Session, report: BuildReport) -> list[str]:
    refs = {
        ref
        for outcome in report.outcomes.values()
        if outcome.result is not None
        for ref in outcome.result.references()
    }
    paths = [session.disk.path(ref) for ref in sorted(refs)]
    for image in report.images:
        blobs = [image.manifest.digest, image.image_id, *(str(x["digest"]) for x in image.layers)]
        paths += [os.path.join(image.layout, "blobs", "sha256", name[7:]) for name in blobs]
        paths += [os.path.join(image.layout, name) for name in ("index.json", "oci-layout")]
        paths += [image.layout + ".records.json", image.layout + ".provenance.json"]
        paths.append(image.layout + SBOM)
    return paths
