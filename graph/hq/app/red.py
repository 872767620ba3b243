"""Red controls: each is built with its fault in it, and must fail its check for its reason.

A check that has never been seen to fail may have stopped looking. So every fault that matters is
put into a copy of the project's files in memory, the nodes that its check needs are run on it, and
the failure is held against what the control names. Nothing of it reaches the project, its memory,
the store or ``dist/``. A control that comes up green, or red for another reason, fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, NamedTuple

from hq.app.build import closure
from hq.app.derived import DerivedSession, ScratchActions, ScratchStore, scratch_store
from hq.app.redfile import DECLARATION, FaultTable, Red, read_reds
from hq.app.session import Session
from hq.app.sources import ProjectSources
from hq.evidence.faults import FaultError, drop_knob, drop_patch, edit, shift_hunk
from hq.execute.speculate import Quiet
from hq.execute.walk import Observer, Walk
from hq.execute.walk import Outcome as NodeOutcome
from hq.model.digest import BlobRef
from hq.model.errors import BuildError, HqError, InfrastructureError, UsageError
from hq.model.ports import RandomAccess
from hq.model.project import PinSpec
from hq.plan.node import Graph
from hq.rules.table import RULES
from hq.wheels.index import WheelIndex

SCHEMA = "hq.red-report/1"
State = Literal["red", "green", "other-check", "other-reason", "skipped"]


class Outcome(NamedTuple):
    """What became of a red control. ``check``: the one that failed; ``message``: what it said."""

    red: Red
    state: State
    check: str = ""
    message: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it proves what it should."""
        return self.state in ("red", "skipped")


def run(
    session: Session, pin: str, names: Sequence[str], observer: Observer
) -> tuple[str, list[Outcome]]:
    """Runs the checks, then every red control of the pin, or those named: the pin, the outcomes.

    Raises ``HqError`` when a check fails without a fault, ``UsageError`` for an unknown name or a
    fault that has no place.
    """
    reds = read_reds(session.sources)
    known = [red.declared.name for red in reds]
    for name in names:
        if name not in known:
            from hq.app.validate import did_you_mean

            raise UsageError(f"there is no red control {name!r}", hint=did_you_mean(name, known))
    spec = session.spec(pin)
    chosen = [red for red in reds if not names or red.declared.name in names]
    # What is to fail with a fault must pass without one, or red proves nothing.
    graph = session.graph(spec)
    checks = [red.declared.expect.check for red in chosen]
    part = _part(graph, [check for check in checks if check in graph.nodes])
    actions = session.disk.actions
    walk = Walk(part, session, actions, RULES, lambda _: None, observer, jobs=session.settings.jobs)
    built = _Built(spec, walk.run())
    return spec.pin, [_one(session, built, red, observer) for red in chosen]


class _Built(NamedTuple):
    """The pin without a fault."""

    spec: PinSpec
    outcomes: Mapping[str, NodeOutcome]


def _one(session: Session, built: _Built, red: Red, observer: Observer) -> Outcome:
    if red.declared.pins and built.spec.pin not in red.declared.pins:
        return Outcome(red, "skipped")
    observer.started(f"red:{red.declared.name}")
    try:
        _attempt(session, built, red)
    except InfrastructureError:
        raise
    except _NoPlace as error:
        raise UsageError(
            f"the fault of {red.declared.name} has no place: {error}", where=red.fault_at
        ) from None
    except _NoCheck as error:
        raise UsageError(
            str(error), where=red.expect_at, hint="see hq plan for the nodes"
        ) from None
    except HqError as error:
        return _judged(red, error)
    return Outcome(red, "green")


def _judged(red: Red, error: HqError) -> Outcome:
    expect = red.declared.expect
    check, text = error.node or DECLARATION, error.render()
    if check != expect.check:
        return Outcome(red, "other-check", check, text)
    return Outcome(red, "red" if expect.matches(text) else "other-reason", check, text)


class _NoPlace(Exception):
    """The fault cannot be put in."""


class _NoCheck(Exception):
    """The check is no node of the graph."""


def _attempt(session: Session, built: _Built, red: Red) -> None:
    """Runs the check on the faulty project. Raises what the failing check raises."""
    spec = built.spec
    with scratch_store(session) as store:
        faulty = RedSession(session, _sources(session, spec, red.declared.fault), store)
        found = faulty.spec(spec.pin)
        graph = faulty.graph(found)
        check = red.declared.expect.check
        if check == DECLARATION:
            return
        if check not in graph.nodes:
            raise _NoCheck(f"{red.declared.name}: there is no node {check!r} in the graph")
        is_blind = red.declared.fault.kind == "corrupt-member"
        if is_blind:
            corrupt = _corrupted(built, red.declared.fault, store)
            faulty = RedSession(session, faulty.sources, corrupt)
        actions = ScratchActions(session.disk.actions, is_blind=is_blind)
        Walk(_part(graph, [check]), faulty, actions, RULES, lambda _: None, Quiet()).run()


def _part(graph: Graph, checks: Sequence[str]) -> Graph:
    needed = set().union(*(closure(graph, check) for check in checks))
    nodes = {name: node for name, node in graph.nodes.items() if name in needed}
    return Graph(nodes, graph.sources, {})


class _Forgetful:
    """A memory that keeps nothing: what a faulty project says must not be believed later."""

    def load(self, _: str) -> Any:
        """Nothing."""
        return None

    def save(self, _: str, __: object) -> None:
        """Keeps nothing."""


class RedSession(DerivedSession):
    """A session on faulty files or a faulty store."""

    def __init__(self, base: Session, sources: ProjectSources, store: ScratchStore) -> None:
        super().__init__(base, sources=sources, store=store)
        self.memory = _Forgetful()  # type: ignore[assignment]  # the two methods that are used


class FaultySources(ProjectSources):
    """The project's files with some of them changed, and some not there."""

    def __init__(
        self, base: ProjectSources, changed: dict[str, bytes], gone: frozenset[str]
    ) -> None:
        self.root = base.root
        self.seen = {}
        self.folders = {}
        self._base = base
        self._changed = changed
        self._gone = gone

    def ref(self, path: str) -> BlobRef:
        """The digest and size of a file."""
        changed = self._changed.get(path)
        return self._base.ref(path) if changed is None else BlobRef.of(changed)

    def is_executable(self, path: str) -> bool:
        """Whether a file's owner may execute it: a fault changes no mode."""
        return self._base.is_executable(path)

    def read(self, path: str) -> bytes:
        """The content. Raises ``FileNotFoundError``."""
        if path in self._gone:
            raise FileNotFoundError(2, "No such file", path)
        changed = self._changed.get(path)
        return self._base.read(path) if changed is None else changed

    def names(self, folder: str) -> list[str]:
        """Every file beneath ``folder``, without those that are gone."""
        return [n for n in self._base.names(folder) if f"{folder}/{n}" not in self._gone]


def _sources(session: Session, spec: PinSpec, fault: FaultTable) -> ProjectSources:
    files = session.sources
    match fault.kind:
        case "edit":
            find, replace = fault.find or "", fault.replace or ""
            return _changed(files, fault.path or "", lambda data: edit(data, find, replace))
        case "shift-hunk":
            hunk, by, heading = fault.hunk or 1, fault.by or 0, fault.heading is not False
            return _changed(
                files,
                fault.path or "",
                lambda data: shift_hunk(data, hunk, by, fault.context, heading=heading),
            )
        case "drop-knob":
            return _changed(files, _registry(session), lambda d: drop_knob(d, fault.knob or ""))
        case "drop-patch":
            item = next((one for one in spec.series if one.stem == fault.patch), None)
            if item is None:
                raise _NoPlace(f"{spec.series_file} has no patch {fault.patch!r}")
            kept = fault.keep or _is_named_elsewhere(files, spec, item.name)
            gone = frozenset() if kept else frozenset([item.file])
            return _changed(files, spec.series_file, lambda d: drop_patch(d, item.name), gone)
        case "corrupt-member":
            return files


def _is_named_elsewhere(files: ProjectSources, spec: PinSpec, name: str) -> bool:
    """Whether another pin's series has the patch too; then its file has to stay."""
    from hq.app.config import read_project
    from hq.patchwork.series import parse_series

    pins = read_project(files).declared.pins
    return any(
        name in (entry.name for entry in parse_series(files.read(table.series), table.series))
        for pin, table in pins.items()
        if pin != spec.pin and table.series != spec.series_file
    )


def _registry(session: Session) -> str:
    from hq.app.config import read_project

    knobs = read_project(session.sources).declared.knobs
    if knobs is None:
        raise _NoPlace("the project has no registry of knobs")
    return knobs.registry


def _changed(
    files: ProjectSources,
    path: str,
    change: Callable[[bytes], bytes],
    gone: frozenset[str] = frozenset(),
) -> ProjectSources:
    try:
        data = change(files.read(path))
    except FileNotFoundError:
        raise _NoPlace(f"there is no file {path}") from None
    except FaultError as error:
        raise _NoPlace(f"{path}: {error}") from None
    return FaultySources(files, {path: data}, gone)


class _CorruptStore(ScratchStore):
    """A store in which one byte of one blob is wrong, as on a bad disk that nobody noticed."""

    def __init__(self, inner: ScratchStore, ref: BlobRef, offset: int) -> None:
        super().__init__(inner, inner)
        self._inner = inner
        self._wrong = ref
        self._offset = offset

    def open(self, ref: BlobRef) -> AbstractContextManager[RandomAccess]:
        """The blob for reading in parts."""
        opened = self._inner.open(ref)
        return _corrupt(opened, self._offset) if ref == self._wrong else opened


@contextmanager
def _corrupt(opened: AbstractContextManager[RandomAccess], at: int) -> Iterator[RandomAccess]:
    with opened as reader:
        yield _CorruptReader(reader, at)


class _CorruptReader:
    """``RandomAccess`` with the byte at ``at`` inverted."""

    def __init__(self, reader: RandomAccess, at: int) -> None:
        self._reader = reader
        self._at = at
        self.size = reader.size

    def pread(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset``."""
        data = self._reader.pread(offset, length)
        place = self._at - offset
        if not 0 <= place < len(data):
            return data
        return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def _corrupted(built: _Built, fault: FaultTable, store: ScratchStore) -> ScratchStore:
    """The store with a byte in the middle of a member's data turned over."""
    spec, outcomes = built
    result = next(
        (
            outcome.result
            for outcome in outcomes.values()
            if outcome.node.kind == "wheel" and outcome.node.params["file"] == spec.wheel.file
        ),
        None,
    )
    if result is None:
        raise _NoPlace("its check needs no wheel")
    index = WheelIndex.decode(store.read(result.blobs["index"]))
    wheel = result.blobs["wheel"]
    member = index.get(fault.member or "")
    if member is None:
        raise _NoPlace(f"{spec.wheel.file} has no member {fault.member}")
    if not member.csize:
        raise _NoPlace(f"{fault.member} is empty")
    return _CorruptStore(store, wheel, member.offset + member.csize // 2)


def refusal(outcomes: Sequence[Outcome]) -> BuildError | None:
    """The error for controls that prove nothing, or ``None``."""
    bad = [outcome for outcome in outcomes if not outcome.is_good]
    if not bad:
        return None
    count = "one red control is" if len(bad) == 1 else f"{len(bad)} red controls are"
    details = [line for outcome in bad for line in _told(outcome)]
    return BuildError(
        f"{count} not red as declared",
        where=bad[0].red.expect_at,
        details=details,
        hint="a check has stopped looking, or the control no longer describes the tree",
    )


def _told(outcome: Outcome) -> Iterator[str]:
    declared = outcome.red.declared
    expect = declared.expect
    match outcome.state:
        case "green":
            yield f"{declared.name}: green: {expect.check} passed with the fault in it"
        case "other-check":
            yield f"{declared.name}: {outcome.check} failed before {expect.check}"
        case _:
            yield f"{declared.name}: {expect.check} failed for another reason"
    if outcome.message:
        yield f"  expected: {expect.shown}"
        yield from (f"  {line}" for line in outcome.message.split("\n")[:4])


def to_json(pin: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The document that ``hq red --json`` prints."""
    return {
        "schema": SCHEMA,
        "pin": pin,
        "ok": all(outcome.is_good for outcome in outcomes),
        "controls": [
            {
                "name": outcome.red.declared.name,
                "file": outcome.red.file,
                "what": outcome.red.declared.what,
                "state": outcome.state,
                "expected": {
                    "check": outcome.red.declared.expect.check,
                    "reason": outcome.red.declared.expect.shown,
                },
                "check": outcome.check,
                "message": outcome.message,
            }
            for outcome in outcomes
        ],
    }
