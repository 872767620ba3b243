"""``hq port triage``: what a release makes of the project's patches. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hq.app.config import read_project
from hq.app.folder import ProjectFolder
from hq.app.port_steps import Goal, knobs_of, open_goal, steps_of
from hq.app.port_trees import Trees
from hq.app.session import Session
from hq.knobs.registry import from_values
from hq.model.action import Json
from hq.model.project import PinSpec
from hq.port.commits import Touched, named, touched
from hq.port.declared import Broken, broken_facts, broken_knobs
from hq.port.program import Parsed
from hq.port.replay import Replay, replay
from hq.port.report import document, text
from hq.port.retire import Proposal, proposals
from hq.port.review import Finding, review, side
from hq.port.triage import LARGE_OFFSET, Triage, triage
from hq.transfer.git_worktree import UpstreamClone


class Report(NamedTuple):
    """A triage and the findings of the review; ``as_text`` and ``as_json`` show both."""

    triage: Triage
    findings: tuple[Finding, ...]
    carried: tuple[Proposal, ...] = ()
    commits: tuple[Touched, ...] = ()
    broken: tuple[Broken, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether every patch applies, without doubt."""
        found = self.triage
        doubts = found.of("fails") or found.of("doubtful") or found.taken or self.broken
        return not doubts

    def as_text(self, *, markdown: bool = False) -> str:
        """For people."""
        return text(
            self.triage, self.findings, self.carried, self.commits, self.broken, markdown=markdown
        )

    def as_json(self) -> dict[str, Json]:
        """The ``hq.triage/1`` document."""
        return document(self.triage, self.findings, self.carried, self.commits, self.broken)


def run_triage(
    session: Session,
    pin: str,
    goal: Goal,
    *,
    large: int = LARGE_OFFSET,
    reviewed: bool = True,
    upstream: str = "",
) -> Report:
    """Tries the series of ``pin`` (the default one if empty) on another release.

    ``large``: lines from which on an offset is doubtful. Without ``reviewed`` only the placing is
    done. ``upstream``: the folder of a clone, asked for commits. Raises ``HqError``.
    """
    spec = session.spec(pin)
    project = read_project(ProjectFolder(session.settings.root))
    steps = steps_of(session, spec)
    with Trees(session) as trees:
        old = trees.of_pin(spec.pin)
        new = open_goal(session, trees, project, spec, goal).tree
        history = UpstreamClone(upstream, old.version, new.version) if upstream else None
        parsed: Parsed = {}
        before = side(replay(old, steps), parsed)
        after = side(replay(new, steps), parsed)
        found = triage(old, new, steps, after.whole, large, after.replay)
        findings = review(before, after, knobs_of(spec)) if reviewed else ()
        commits = history.between() if history is not None else ()
        carried = proposals(before.replay, after.replay, named(after.replay, commits))
        behind = touched(old, new, after.replay, history) if history is not None else ()
        broken = _broken(spec, before.replay, after.replay)
        return Report(found, findings, carried, tuple(behind), tuple(broken))


def _broken(spec: PinSpec, before: Replay, after: Replay) -> Iterator[Broken]:
    for overlay in spec.overlays:
        yield from broken_facts(overlay.facts, before, after)
    if spec.knobs is not None:
        yield from broken_knobs(spec.knobs.target, from_values(spec.knobs.registry), after)
