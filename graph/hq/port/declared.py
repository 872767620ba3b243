"""What a project declares of the built tree and the new release does not bear out.

Facts of overlays, and the places in ``envs.py`` that knobs are written to. Only what held on the
old release is told; a fact about a file that a failed patch was to change is not, for the patch is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hq.knobs.generate import generate
from hq.knobs.registry import Registry
from hq.model.errors import HqError
from hq.model.project import Fact
from hq.port.replay import Replay
from hq.rules.facts import check, parse


class Broken(NamedTuple):
    """A declaration that the new tree breaks. ``what``: as declared; ``found``: what is there."""

    what: str
    path: str
    found: str


def broken_facts(facts: Iterable[Fact], before: Replay, after: Replay) -> Iterator[Broken]:
    """Facts that held on the old release and do not on the new one."""
    failed = {path for tried in after.tried if not tried.applied for path in tried.touched}
    for fact in facts:
        if fact.path in failed or _judged(fact, before) is not None:
            continue
        found = _judged(fact, after)
        if found is not None:
            yield Broken(fact.what, fact.path, found)


def _judged(fact: Fact, done: Replay) -> str | None:
    if done.view.read(fact.path) is None:
        return "the file is not there"
    module = parse(done.view.data(fact.path))
    return module if isinstance(module, str) else check(fact.kind, fact.params, module)


def broken_knobs(target: str, registry: Registry, done: Replay) -> Iterator[Broken]:
    """Why the knobs cannot be written into the new tree's module, if they cannot."""
    if done.view.read(target) is None:
        yield Broken("the knobs are written into it", target, "the file is not there")
        return
    try:
        generate(done.view.data(target), registry, target)
    except HqError as error:
        yield Broken("the knobs are written into it", target, error.message)
