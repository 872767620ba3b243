"""``hq envs check``: the audit once more over the finished tree, from the files themselves.

The audit in the graph sees summaries; this one reads every changed Python file of the final tree
against the wheel's, and runs the generated ``envs.py`` with made-up names exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hq.app.build import build
from hq.app.envs import ChangedFile, Report, check
from hq.app.session import Session
from hq.execute.walk import Observer, Outcome
from hq.knobs.audit import Export
from hq.knobs.registry import Registry, from_values
from hq.model.action import ActionResult
from hq.model.digest import BlobRef
from hq.model.errors import Location, UsageError
from hq.model.project import KnobsSpec, PinSpec
from hq.model.tree import merge
from hq.wheels.content import extract

_WRITERS = frozenset({"patch", "envs", "overlay"})


def check_pin(session: Session, pin: str, observer: Observer) -> Report:
    """Builds ``pin`` and checks its tree. Raises ``HqError`` when the build fails."""
    spec = session.spec(pin)
    knobs = _knobs(spec)
    outcomes = build(session, pin, observer).outcomes
    wheel = outcomes[f"wheel:{spec.wheel.name}"].result
    assert wheel is not None
    changed = _final(outcomes)
    envs_py = _after(session, changed.get(knobs.target)) or _before(session, wheel, knobs.target)
    if envs_py is None:
        raise UsageError(f"there is no {knobs.target} in the tree", hint="see knobs.target")
    files = _files(session, wheel, {p: r for p, r in changed.items() if p != knobs.target})
    return check(
        envs_py,
        registry_of(spec),
        files,
        exports=[Export(e.name, e.exporter, Location(e.file, e.line)) for e in spec.exports],
        exporters=spec.exporters,
        envs_path=knobs.target,
    )


def registry_of(spec: PinSpec) -> Registry:
    """The pin's registry. Raises ``UsageError`` when the project has none."""
    return from_values(_knobs(spec).registry)


def _knobs(spec: PinSpec) -> KnobsSpec:
    if spec.knobs is None:
        raise UsageError("build.toml declares no knobs", hint="add a [knobs] table")
    return spec.knobs


def _final(outcomes: Mapping[str, Outcome]) -> dict[str, BlobRef | None]:
    """What the nodes together changed; ``None`` for a removed file."""
    merged = merge(
        outcome.result.delta
        for outcome in outcomes.values()
        if outcome.node.kind in _WRITERS and outcome.result is not None
    )
    return {
        path: None if entry is None else BlobRef(entry.digest, entry.size)
        for path, entry in merged.items()
    }


def _files(
    session: Session, wheel: ActionResult, changed: Mapping[str, BlobRef | None]
) -> Iterator[ChangedFile]:
    for path, ref in sorted(changed.items()):
        after = _after(session, ref) if path.endswith(".py") else None
        if after is not None:
            yield ChangedFile(path, _before(session, wheel, path), after)


def _after(session: Session, ref: BlobRef | None) -> bytes | None:
    return None if ref is None else session.disk.read(ref)


def _before(session: Session, wheel: ActionResult, path: str) -> bytes | None:
    member = session.index(wheel.blobs["index"]).get(path)
    if member is None:
        return None
    with session.disk.open(wheel.blobs["wheel"]) as reader:
        return extract(reader, member)
