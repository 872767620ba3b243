"""Builds every node once more and compares the results.

Each node gets the inputs that it had in the first build, not what the second one made of them, so a
node that is not deterministic is named itself and its successors are not. The second results go
into a scratch store and are gone afterwards. Wheels come from the store, where their hash is their
name; a node that only fetches has nothing to compare but its index.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Final, NamedTuple, TypeVar

from hq.app.derived import DerivedSession, ScratchStore, scratch_store
from hq.app.layertar import content, open_tar
from hq.app.session import Session
from hq.evidence.text import first_difference
from hq.execute.context import NodeContext
from hq.execute.walk import Observer, Outcome
from hq.model.action import ActionResult, Json
from hq.model.digest import BlobRef
from hq.model.errors import BuildError, HqError
from hq.model.tree import Entry
from hq.plan.resolve import Resolver
from hq.rules.context import Made, Rule
from hq.rules.table import RULES

T = TypeVar("T")
_SHORT: Final = 100


class Finding(NamedTuple):
    """A part of a node's result that came out otherwise: a file, a blob or a value."""

    node: str
    what: str
    how: str

    def __str__(self) -> str:
        return f"{self.node}: {self.what}: {self.how}"


def check(
    session: Session,
    outcomes: Mapping[str, Outcome],
    observer: Observer,
    rules: Mapping[str, Rule] = RULES,
) -> tuple[Finding, ...]:
    """Runs every node of a finished build again. Findings in the graph's order."""
    results = {name: found.result for name, found in outcomes.items() if found.result is not None}
    findings: list[Finding] = []
    for name, outcome in outcomes.items():
        observer.started(name)
        # One scratch store for each node: a layer of gigabytes is gone before the next is made.
        with scratch_store(session) as store:
            made = _again(session, store, outcome, results, rules, observer)
            findings += _compare(name, results[name], made, store)
        observer.finished(outcome._replace(status="built", warnings=()))
    return tuple(findings)


def refusal(findings: tuple[Finding, ...]) -> BuildError:
    """The error for findings."""
    nodes = list(dict.fromkeys(finding.node for finding in findings))
    count = "one node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    return BuildError(
        f"{count} gave another result when built again",
        node=nodes[0],
        details=[str(finding) for finding in findings],
        hint="the same inputs must give the same bytes; this is a fault of hq or of the machine",
    )


def _again(
    session: Session,
    store: ScratchStore,
    outcome: Outcome,
    results: Mapping[str, ActionResult],
    rules: Mapping[str, Rule],
    observer: Observer,
) -> Made:
    node = outcome.node
    machine = DerivedSession(session, store=store)
    resolver = Resolver(results, machine.sources.ref, machine.index)
    context = NodeContext(
        node,
        {name: resolver.resolve(selector) for name, selector in node.inputs.items()},
        machine,
        results,
        lambda done, total: observer.progressed(node.name, done, total),
        lambda _: None,
    )
    try:
        return rules[node.kind](context)
    except HqError as error:
        raise error.in_node(node.name) from error


def _compare(node: str, old: ActionResult, new: Made, store: ScratchStore) -> Iterator[Finding]:
    for path, was, now in _pairs(dict(old.delta), dict(new.delta)):
        yield Finding(node, path, _file(was, now, store))
    blobs = list(_pairs(old.blobs, new.blobs))
    is_layer = "layer" in old.values
    for name, one, other in blobs:
        if one is None or other is None:
            yield Finding(node, f"blob {name}", "it was made only once")
        elif is_layer:
            yield from (Finding(node, what, how) for what, how in _layer(one, other, store))
        else:
            how = str(first_difference(store.read(one), store.read(other)))
            yield Finding(node, f"blob {name}", how)
    if is_layer and blobs:
        return  # its values are digests of the blob
    values: Mapping[str, Json] = json.loads(json.dumps(dict(new.values)))
    for name, left, right in _pairs(old.values, values):
        yield Finding(node, f"value {name}", f"{_short(left)}, then {_short(right)}")


def _pairs(old: Mapping[str, T], new: Mapping[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def _file(old: Entry | None, new: Entry | None, store: ScratchStore) -> str:
    if old is None or new is None:
        return "it was changed only once"
    if old.kind != new.kind:
        return f"kind {old.kind}, then {new.kind}"
    was, now = (store.read(BlobRef(entry.digest, entry.size)) for entry in (old, new))
    return str(first_difference(was, now))


def _layer(old: BlobRef, new: BlobRef, store: ScratchStore) -> Iterator[tuple[str, str]]:
    """The members of two layers that differ, in the order of the tars."""
    with (
        store.open(old) as one,
        store.open(new) as other,
        open_tar(one) as left,
        open_tar(other) as right,
    ):
        found = False
        for was, now in zip_longest(left, right):
            difference = _member(was, now, left, right)
            if difference is not None:
                found = True
                yield (now or was).name, difference
                if was is None or now is None or was.name != now.name:
                    return
        if not found:
            yield "blob blob", "the same files, packed in another way"


def _member(
    was: tarfile.TarInfo | None,
    now: tarfile.TarInfo | None,
    left: tarfile.TarFile,
    right: tarfile.TarFile,
) -> str | None:
    if was is None or now is None:
        return "it is in one of the layers only"
    if was.name != now.name:
        return f"{was.name} stood there the first time"
    for field in ("type", "mode", "uid", "gid", "uname", "gname", "mtime", "linkname"):
        one, other = getattr(was, field), getattr(now, field)
        if one != other:
            return f"{field} {one!r}, then {other!r}"
    if not was.isreg():
        return None
    one, other = content(left, was), content(right, now)
    return None if one == other else str(first_difference(one, other))


def _short(value: Json) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."
