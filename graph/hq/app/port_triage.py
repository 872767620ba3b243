"""``hq port triage``: what a release makes of the project's patches. Nothing is written."""

from __future__ import annotations

from typing import NamedTuple

from hq.app.config import read_project
from hq.app.folder import ProjectFolder
from hq.app.port_steps import Goal, open_goal, steps_of
from hq.app.port_trees import Trees
from hq.app.session import Session
from hq.model.action import Json
from hq.model.project import PinSpec
from hq.port.program import Parsed
from hq.port.replay import Step, replay
from hq.port.report import document, text
from hq.port.retire import Proposal, proposals
from hq.port.review import Finding, Knobs, Side, review, side
from hq.port.tree import Tree
from hq.port.triage import LARGE_OFFSET, Triage, triage


class Report(NamedTuple):
    """A triage and the findings of the review; ``as_text`` and ``as_json`` show both."""

    triage: Triage
    findings: tuple[Finding, ...]
    carried: tuple[Proposal, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether every patch applies, without doubt."""
        found = self.triage
        return not found.of("fails") and not found.of("doubtful") and not found.taken

    def as_text(self, *, markdown: bool = False) -> str:
        """For people."""
        return text(self.triage, self.findings, self.carried, markdown=markdown)

    def as_json(self) -> dict[str, Json]:
        """The ``hq.triage/1`` document."""
        return document(self.triage, self.findings, self.carried)


def run_triage(
    session: Session, pin: str, goal: Goal, *, large: int = LARGE_OFFSET, reviewed: bool = True
) -> Report:
    """Tries the series of ``pin`` (the default one if empty) on another release.

    ``large``: lines from which on an offset is doubtful. Without ``reviewed`` only the placing is
    done. Raises ``HqError``.
    """
    spec = session.spec(pin)
    project = read_project(ProjectFolder(session.settings.root))
    steps = steps_of(session, spec)
    with Trees(session) as trees:
        old = trees.of_pin(spec.pin)
        new = open_goal(session, trees, project, spec, goal).tree
        return report_on(old, new, steps, spec, large=large, reviewed=reviewed)


def report_on(
    old: Tree, new: Tree, steps: list[Step], spec: PinSpec, *, large: int, reviewed: bool
) -> Report:
    """The lists and the findings for ``steps`` between two releases."""
    parsed: Parsed = {}
    after = side(replay(new, steps), parsed)
    found = triage(old, new, steps, after.whole, large, after.replay)
    before = side(replay(old, steps), parsed)
    carried = proposals(before.replay, after.replay)
    return Report(found, _reviewed(before, after, spec) if reviewed else (), carried)


def _reviewed(before: Side, after: Side, spec: PinSpec) -> tuple[Finding, ...]:
    knobs = None
    if spec.knobs is not None:
        rows = spec.knobs.registry.get("knobs")
        names = [row["name"] for row in rows] if isinstance(rows, (list, tuple)) else []
        knobs = Knobs(spec.knobs.target, frozenset(names))
    return review(before, after, knobs)
