"""This repository's series on the real releases, held against GNU patch.

Run with the wheels in ``HQ_TEST_WHEELS`` (a folder); skipped without.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hq.app.config import load
from hq.app.folder import ProjectFolder
from hq.app.port_trees import WheelTree
from hq.patchwork.apply import File, apply_patch
from hq.patchwork.parse import parse_patch
from hq.port.program import Found, Missing, Parsed, Program
from hq.port.rebase import Rebase, Text
from hq.port.references import Reference, references
from hq.port.replay import FileStep, Origin, PatchStep, Replay, Step, Tried, replay
from hq.port.review import review, side
from hq.port.tree import View
from hq.port.triage import HunkRow, Triage, triage
from hq.store.reader import FileReader
from hq.transfer.git_worktree import merge_texts
from hq.wheels.reading import read_index
from port.trees import diff

pytestmark = [pytest.mark.wheel, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent.parent


def open_wheel(version: str) -> WheelTree:
    folder = os.environ.get("HQ_TEST_WHEELS", "")
    found = sorted(Path(folder).glob(f"vllm-{version}-*.whl")) if folder else []
    if not found:
        pytest.skip(f"no wheel of vllm {version} in HQ_TEST_WHEELS")
    path = found[0]
    reader = FileReader(os.open(path, os.O_RDONLY), path.stat().st_size, str(path))
    index = read_index(reader, project="vllm", version=version, wheel=path.name)
    return WheelTree(index, reader, version, path.name)


def steps_for(pin: str) -> list[Step]:
    spec = load(ProjectFolder(str(ROOT)), pin, 0)
    steps: list[Step] = []
    for item in spec.series:
        data = (ROOT / item.file).read_bytes()
        steps.append(PatchStep(item.name, item.file, data, item.strip, item.reverse))
    for overlay in spec.overlays:
        for path, source in sorted(overlay.files.items()):
            steps.append(FileStep(path, source, (ROOT / source).read_bytes()))
        for item in overlay.patches:
            data = (ROOT / item.file).read_bytes()
            steps.append(PatchStep(item.name, item.file, data, item.strip, item.reverse))
    return steps


PAIRS = [("0.28.0", "0.29.0"), ("0.29.0", "0.30.0")]


def both(old: str, new: str) -> tuple[WheelTree, WheelTree, list[Step], Replay, Triage]:
    before, after, steps = open_wheel(old), open_wheel(new), steps_for(old)
    done = side(replay(after, steps))
    found = triage(before, after, steps, done.whole, done=done.replay)
    return before, after, steps, done.replay, found


def by_gnu_patch(done: Replay, folder: Path) -> Iterator[tuple[str, str, int, str]]:
    """``(patch, path, hunk, outcome)`` as GNU patch tells, each patch on what applied before."""
    state: dict[str, bytes] = {}
    for number, tried in enumerate(done.tried):
        work = folder / str(number)
        for path in tried.touched:
            data = state.get(path)
            if data is None:
                file = done.tree.read(path)
                data = file.data if file else b""
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            if data:
                (work / path).write_bytes(data)
        run = subprocess.run(
            ["patch", "-p1", "-N", "-F2", "--verbose", "--dry-run"],
            input=tried.step.data, cwd=work, capture_output=True, check=False,
        )  # fmt: skip
        path = ""
        for line in run.stdout.decode().split("\n"):
            named = re.match(r"(?:checking|patching) file '?(.+?)'?$", line)
            path = named[1] if named else path
            hunk = re.match(r"Hunk #(\d+) (FAILED|succeeded)(.*)", line)
            if hunk:
                rest = hunk[3]
                outcome = "offset" if "offset" in rest else "exact"
                outcome = "fuzzy" if "fuzz" in rest else outcome
                outcome = "fails" if hunk[2] == "FAILED" else outcome
                yield tried.step.name, path, int(hunk[1]), outcome
        for changed, file in tried.outcome.changes.items():
            state[changed] = file.data if file else b""


@pytest.mark.system
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_each_hunk_is_judged_as_by_gnu_patch_or_more_strictly(
    old: str, new: str, tmp_path: Path
) -> None:
    if not shutil.which("patch"):
        pytest.skip("no GNU patch")
    _, _, _, done, found = both(old, new)
    ours = {(row.patch, row.path, row.n): _word(row) for row in found.hunks if row.n}
    theirs = {(p, path, n): outcome for p, path, n, outcome in by_gnu_patch(done, tmp_path)}
    assert set(theirs) <= set(ours)
    different = {key: (ours[key], theirs[key]) for key in theirs if ours[key] != theirs[key]}
    # After a hunk by fuzz the two count offsets from different places; nothing else may differ,
    # and GNU patch never finds a hunk bad that is called good here.
    assert set(different.values()) <= {("exact", "offset"), ("offset", "exact"), ("fuzzy", "fails")}
    assert not [k for k, v in different.items() if v[1] == "fails" and v[0] in ("exact", "offset")]


def _word(row: HunkRow) -> str:
    return row.outcome if row.outcome in ("exact", "offset", "fuzzy") else "fails"


@pytest.mark.parametrize("version", ["0.28.0", "0.29.0"])
def test_an_unchanged_release_gives_nothing_to_look_at(version: str) -> None:
    tree, again, steps = open_wheel(version), open_wheel(version), steps_for(version)
    parsed: Parsed = {}
    before, after = side(replay(tree, steps), parsed), side(replay(again, steps), parsed)
    found = triage(tree, again, steps, after.whole, done=after.replay)
    assert {row.outcome for row in found.patches} == {"applied"}
    assert {row.list for row in found.hunks} == {"clean"}
    assert (found.moved, found.missing) == ((), ())
    assert review(before, after) == ()


def test_the_removed_flag_of_the_padding_rule_is_found() -> None:
    """The fault that once cost a port most of a day: it applies cleanly and refuses everything."""
    old, new = open_wheel("0.28.0"), open_wheel("0.29.0")
    path = "vllm/v1/core/kv_cache_utils.py"
    text = old.read(path)
    assert text is not None
    head = "def unify_kv_cache_spec_page_size(\n"
    before_text = text.data.decode()
    assert before_text.count(head) == 1
    asked = 'can_pad = getattr(object, "indexes_kv_by_block_stride", False)\n\n\n'
    data = diff(path, before_text, before_text.replace(head, asked + head), 1)
    step = PatchStep("flag.patch", "flag.patch", data.encode())
    before, after = side(replay(old, [step])), side(replay(new, [step]))
    assert after.replay.tried[0].applied, after.replay.tried[0].outcome.reason
    shown = [(one.kind, [line.text for line in one.upstream]) for one in review(before, after)]
    assert [kind for kind, _ in shown] == ["default"]
    assert "indexes_kv_by_block_stride: bool = False" in shown[0][1]


# What the hand-made series does on 0.29.0 and the one of 0.28.0 could not: see its ledger entry.
_MORE_ON_0_29 = {"vllm/v1/worker/gpu/cudagraph_utils.py", "vllm/v1/worker/gpu/model_runner.py"}


@pytest.mark.system
def test_what_merges_equals_the_series_that_was_made_by_hand() -> None:
    """Each patch of 0.28.0 is carried on top of the hand-made ones below it."""
    old, new = open_wheel("0.28.0"), open_wheel("0.29.0")
    steps, hand = steps_for("0.28.0"), steps_for("0.29.0")
    engine = Rebase(old, new, merge)
    base, theirs = View(old), View(new)
    clean, conflicts = 0, 0
    for step, made in zip(steps, hand, strict=True):
        if isinstance(step, FileStep):
            for view in (base, theirs):
                view.changes[step.path] = File("f", step.data)
            continue
        assert isinstance(made, PatchStep)
        tried = attempt_on(base, step)
        attempt = engine.attempt(tried, base, theirs)
        wanted = attempt_on(theirs, made).outcome.changes
        for one in attempt.files:
            conflicts += one.outcome == "conflict"
            if one.outcome != "conflict" and one.path not in _MORE_ON_0_29:
                clean += 1
                assert one.file == wanted[one.path], (step.name, one.path)
        base.changes.update(tried.outcome.changes)
        theirs.changes.update(wanted)
    assert clean > 20
    assert conflicts < 8


def merge(base: bytes, ours: bytes, theirs: bytes) -> Text:
    done = merge_texts(base, ours, theirs, ("ours", "base", "theirs"))
    return Text(done.data, done.conflicts)


def attempt_on(view: View, step: PatchStep) -> Tried:
    patch = parse_patch(step.data, step.name)
    outcome = apply_patch(patch, view.read, step.strip, step.reverse)
    assert outcome.outcome == "applied", outcome.reason
    return Tried(step, patch, outcome, ())


def test_what_syntax_says_of_a_working_release_is_right() -> None:
    """As if patches had written upstream: every name is bound, and nearly every call fits."""
    tree = open_wheel("0.29.0")
    python = [path for path in tree.paths() if path.endswith(".py")]
    view = View(tree)
    program = Program(view, python)
    asked: Counter[tuple[str, str]] = Counter()
    unbound: list[Reference] = []
    for path in python[::40]:
        count = view.data(path).count(b"\n") + 1
        own = [Origin(path, line) for line in range(1, count + 1)]
        for one in references(program, path, own):
            fits = "misfit" if one.problem else "fits"
            asked[one.kind, fits if isinstance(one.answer, Found) else "unknown"] += 1
            if one.kind in ("name", "import") and isinstance(one.answer, Missing):
                unbound.append(one)
    assert unbound == []
    assert asked["name", "fits"] > 1000
    assert asked["call", "fits"] > 500
    assert asked["call", "misfit"] <= asked["call", "fits"] // 200
