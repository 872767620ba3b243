"""``hq verify``: is an image what the declaration says, and does it run.

**By looking** (``hq.app.verify_static``): one pass over the layers of the layout that the last
build wrote. **By running**: the image's declared checks and two of hq's own, each a command in a
sandbox without network, on the root file system that the same pass unpacked into the store. A check
that cannot run on this machine is skipped with the reason; it never counts as passed.

==============  ===================================================================================
layout          the layout is whole, every blob and every DiffID is what it is said to be
records         the records beside the layout are those of this image
files           each file that a patch, the knobs or an overlay changed is there, by digest
knobs           the module defines every knob of the pin
RECORD          each distribution's RECORD agrees with the files, each file is in some RECORD
layer lists     each layer of changes holds what its own list says
versions        just the locked distributions, in the locked versions
run: versions   the same, asked of ``importlib.metadata`` inside
run: knobs      made-up names are exported, one under each prefix: one warning must name each
run: NAME       ``[[check]]`` of the image's file
==============  ===================================================================================
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from hq.app import verify_static as static
from hq.app.declaration import CheckTable
from hq.app.imagescan import LayerRef, Progress, Scanned, scan
from hq.app.session import Session
from hq.app.ship import Shipment, find_image
from hq.evidence.records import Records, read_records
from hq.execute.sandbox import Sandbox, why_not
from hq.knobs.registry import from_values
from hq.model.digest import Digest
from hq.model.errors import BuildError, HqError
from hq.model.project import ImageSpec, PinSpec
from hq.model.ran import Ran
from hq.oci.layout import check_layout
from hq.oci.remote import ImageManifest, read_diff_ids, read_document
from hq.store.rootfs import rootfs_path, unpacking

SCHEMA: Final = "hq.verify/1"
_SHOWN: Final = 20
_TIMEOUT: Final = 600
_MADE_UP: Final = "HQ_MADE_UP_NAME"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Result(NamedTuple):
    """What one check gave. ``status``: ``pass``, ``fail`` or ``skipped``; ``details``: why."""

    name: str
    status: str
    details: tuple[str, ...] = ()


class Report(NamedTuple):
    """What all checks of an image gave."""

    image: str
    pin: str
    image_id: str
    manifest: str
    results: tuple[Result, ...]

    def failed(self, *, require_run: bool) -> bool:
        """Whether the image is refused; ``require_run``: for a skipped check as well."""
        bad = {"fail", "skipped"} if require_run else {"fail"}
        return any(result.status in bad for result in self.results)


class Runner(Protocol):
    """Runs a command in the image."""

    def run(self, command: Sequence[str], env: Mapping[str, str], timeout: float) -> Ran:
        """Runs it to its end or for ``timeout`` seconds."""
        ...


Engine = Callable[[Digest], Runner | str]


class _Image(NamedTuple):
    """The image at hand, as its layout describes it."""

    shipment: Shipment
    manifest: ImageManifest
    layers: tuple[LayerRef, ...]
    config: Mapping[str, Any]


def verify(
    session: Session,
    name: str,
    pin: str,
    checks: Sequence[CheckTable],
    *,
    run: bool = True,
    engine: Engine | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Report:
    """Checks the image ``name`` of a pin as the last build left it.

    ``checks``: those that the image's file declares. ``engine`` gives, for an image ID, what runs
    commands instead of a sandbox, or says why it cannot. Raises ``HqError`` when there is nothing
    to check.
    """
    shipment = find_image(name, pin, session)
    spec = session.spec(pin)
    image = next(each for each in spec.images if each.name == name)
    layout = [str(p) for p in check_layout(static.layout_reader(shipment.layout), deep=False)]
    if layout:
        return _report(shipment, "", [_result("layout", layout)])
    opened = _open(shipment)
    image_id = opened.manifest.config.ref.digest
    sandbox = Sandbox(rootfs_path(session.disk, image_id))
    runner = _runner(image, engine, image_id, sandbox) if run else ""
    unpack = runner is sandbox
    scanned = _scan(session, opened, spec, image, unpack=unpack, progress=progress)
    results = [_result("layout", [str(problem) for problem in scanned.problems])]
    results += _looked(opened, spec, image, scanned)
    if run:
        able = "the layout is damaged" if scanned.problems else runner
        results += _ran(spec, image, opened.config, checks, able)
    return _report(shipment, image_id, results)


def _report(shipment: Shipment, image_id: str, results: Sequence[Result]) -> Report:
    digest = shipment.manifest.digest
    return Report(shipment.name, shipment.pin, image_id, digest, tuple(results))


def _result(name: str, problems: Sequence[str]) -> Result:
    shown = list(problems[:_SHOWN])
    if len(problems) > _SHOWN:
        shown.append(f"and {len(problems) - _SHOWN} more")
    return Result(name, "fail" if problems else "pass", tuple(shown))


def _open(shipment: Shipment) -> _Image:
    source = shipment.source
    manifest = read_document(source.read(shipment.manifest), "the manifest")
    if not isinstance(manifest, ImageManifest):
        raise BuildError("the layout has an index where its image should be")
    config = source.read(manifest.config.ref)
    diff_ids = read_diff_ids(config, "the configuration")
    layers = tuple(
        LayerRef(layer.ref, layer.media_type, str(diff_id))
        for layer, diff_id in zip(manifest.layers, diff_ids, strict=True)
    )
    return _Image(shipment, manifest, layers, json.loads(config).get("config", {}))


def _scan(
    session: Session,
    image: _Image,
    spec: PinSpec,
    declared: ImageSpec,
    *,
    unpack: bool,
    progress: Progress,
) -> Scanned:
    image_id = image.manifest.config.ref.digest
    target = spec.knobs.target if spec.knobs is not None else ""
    wanted = partial(static.is_wanted, declared.prefix.strip("/"), target)
    source = image.shipment.source
    if not unpack or os.path.isdir(rootfs_path(session.disk, image_id)):
        return scan(source, image.layers, wanted, None, progress)
    with unpacking(session.disk, image_id) as tree:
        scanned = scan(source, image.layers, wanted, tree, progress)
        tree.keep = not scanned.problems
    return scanned


# By looking.


def _looked(image: _Image, spec: PinSpec, declared: ImageSpec, scanned: Scanned) -> list[Result]:
    results = []
    shipment = image.shipment
    image_id = image.manifest.config.ref.digest
    try:
        records: Records = _records(shipment.layout + ".records.json")
        problems = static.record_problems(records, declared.name, shipment.manifest, image_id)
    except HqError as error:
        records, problems = {}, [error.message]
    results.append(_result("records", problems))
    subject = static.Subject(
        scanned=scanned,
        site=scanned.stack.follow(declared.prefix),
        spec=spec,
        lock=(spec.wheel, *(spec.dependencies if declared.dependencies else ())),
        changed=static.changed_files(records) if records else {},
    )
    if records:
        results.append(_result("files", static.file_problems(subject)))
    versions = static.version_problems(subject.lock, static.installed_versions(subject))
    rows, notes = static.record_file_problems(subject)
    return [
        *results,
        _result("knobs", static.knob_problems(subject)),
        _result("RECORD", rows) if rows else Result("RECORD", "pass", tuple(notes)),
        _result("layer lists", static.list_problems(subject)),
        _result("versions", versions),
    ]


def _records(path: str) -> Records:
    try:
        with open(path, "rb") as file:
            document = json.load(file)
    except FileNotFoundError:
        raise BuildError(f"{os.path.basename(path)} is missing") from None
    except ValueError:
        raise BuildError(f"{os.path.basename(path)} is not JSON") from None
    return read_records(document, os.path.basename(path))


# By running.


def _runner(
    image: ImageSpec, engine: Engine | None, image_id: Digest, sandbox: Sandbox
) -> Runner | str:
    """What runs commands, or why nothing can be run."""
    if image.python is None:
        return "the image has no Python of its own"
    return engine(image_id) if engine is not None else why_not() or sandbox


def _ran(
    spec: PinSpec,
    image: ImageSpec,
    config: Mapping[str, Any],
    checks: Sequence[CheckTable],
    runner: Runner | str,
) -> list[Result]:
    """Every check that is a command. ``runner``: what runs them, or why nothing can."""
    base = {"PATH": _PATH, "HOME": "/tmp"}  # noqa: S108 - in the image
    base |= dict(entry.partition("=")[::2] for entry in config.get("Env", ()))
    steps: list[tuple[str, Callable[[Runner, Mapping[str, str]], list[str]]]] = []
    if image.python is not None:
        steps.append(("versions", partial(_versions, spec, image)))
        if spec.knobs is not None:
            steps.append(("knobs", partial(_bogus, spec, image)))
    steps += [(check.name, partial(declared_problems, check, spec.pin)) for check in checks]
    return [
        Result(f"run: {name}", "skipped", (runner,))
        if isinstance(runner, str)
        else _result(f"run: {name}", step(runner, base))
        for name, step in steps
    ]


_VERSIONS: Final = """\
import importlib.metadata as m, json, sys
found = {}
for d in m.distributions(path=[sys.argv[1]]):
    found[d.name] = d.version
print("hq:" + json.dumps(found))
"""


def _versions(spec: PinSpec, image: ImageSpec, runner: Runner, env: Mapping[str, str]) -> list[str]:
    assert image.python is not None
    command = [image.python.interpreter, "-c", _VERSIONS, image.prefix]
    done = runner.run(command, env, _TIMEOUT)
    lines = [line for line in done.output.splitlines() if line.startswith("hq:")]
    if done.code or len(lines) != 1:
        return _failed(done)
    from hq.wheels.filename import normalize_project

    found = {normalize_project(k): str(v) for k, v in json.loads(lines[0][3:]).items()}
    lock = (spec.wheel, *(spec.dependencies if image.dependencies else ()))
    return static.version_problems(lock, found)


_ENVIRON: Final = """\
import importlib, sys
importlib.import_module(sys.argv[1]).validate_environ(False)
"""


def _bogus(spec: PinSpec, image: ImageSpec, runner: Runner, env: Mapping[str, str]) -> list[str]:
    """The control: a made-up name under every prefix, and one warning must name each."""
    assert image.python is not None
    assert spec.knobs is not None
    prefixes = from_values(spec.knobs.registry).all_prefixes
    names = [f"{prefix}{_MADE_UP}" for prefix in prefixes]
    module = spec.knobs.target.removesuffix(".py").replace("/", ".")
    command = [image.python.interpreter, "-c", _ENVIRON, module]
    done = runner.run(command, {**env, **dict.fromkeys(names, "1")}, _TIMEOUT)
    if done.code:
        return _failed(done)
    counts = {
        name: sum(line.split()[-1:] == [name] for line in done.output.splitlines())
        for name in names
    }
    return [
        f"{name} is exported and unknown: expected one warning, found {count}"
        for name, count in counts.items()
        if count != 1
    ]


def declared_problems(
    check: CheckTable, pin: str, runner: Runner, base: Mapping[str, str]
) -> list[str]:
    """Runs a declared check; why it is not as expected."""
    done = runner.run(list(check.command), {**base, **check.env}, check.timeout)
    if done.code == -1:
        return [f"not done after {check.timeout} s", *_tail(done)]
    if (done.code == 0) != (check.expect == "pass"):
        ended = "it passed" if done.code == 0 else f"exit code {done.code}"
        return [f"expected it to {check.expect}, and {ended}", *_tail(done)]
    if check.output is not None:
        pattern = check.output.replace("{pin}", re.escape(pin))
        if not re.search(pattern, done.output, re.MULTILINE):
            return [f"its output does not match {pattern!r}", *_tail(done)]
    return []


def _failed(done: Ran) -> list[str]:
    return [f"exit code {done.code}", *_tail(done)]


def _tail(done: Ran) -> list[str]:
    return [f"| {line}" for line in done.output.rstrip().splitlines()[-8:]]


# Words.


def report_json(report: Report, *, require_run: bool) -> dict[str, object]:
    """The document that ``hq verify --json`` prints."""
    return {
        "schema": SCHEMA,
        "image": report.image,
        "pin": report.pin,
        "image_id": report.image_id,
        "manifest": report.manifest,
        "passed": not report.failed(require_run=require_run),
        "checks": [
            {"name": name, "status": status, "details": list(details)}
            for name, status, details in report.results
        ],
    }


def report_text(report: Report) -> str:
    """The report as lines, without a final newline."""
    lines = [f"{report.image} {report.pin}", f"  image id  {report.image_id or 'unknown'}"]
    for name, status, details in report.results:
        word = {"pass": "ok", "fail": "FAILED", "skipped": "skipped"}[status]
        lines.append(f"  {word:<8}  {name}")
        note = "note: " if status == "pass" else ""
        lines += [f"              {note}{line}" for line in details]
    return "\n".join(lines)
