"""Proposals need their proof; ``hq port retire`` writes all of it or nothing."""

from __future__ import annotations

import shutil
import tomllib

import pytest

from hq.patchwork.parse import parse_patch
from hq.port.replay import replay
from hq.port.retire import NamedCommit, Proposal, names, proposals
from port.conftest import PortProject
from port.trees import DictTree, patch_step

BODY = "".join(f"    step({number})\n" for number in range(6))
OLD = DictTree(
    "1.0",
    {
        "one.py": f"def first(a):\n{BODY}    return a\n\n\n"
        "def second(b):\n    done()\n    return b\n",
        "two.py": "".join(f"x{number} = {number}\n" for number in range(20)),
    },
)
ADD = patch_step(
    OLD, "add", ("one.py", "    step(2)\n", "    step(2)\n    collected_by_name(a)\n"),
    ("two.py", "x9 = 9\n", "x9 = nine_and_a_half()\n"),
)  # fmt: skip


def proposed(new: DictTree, **commits: NamedCommit) -> tuple[Proposal, ...]:
    return proposals(replay(OLD, [ADD]), replay(new, [ADD]), commits)


def test_a_hunk_whose_result_stands_in_the_same_function_is_proposed() -> None:
    new = OLD.edited("2.0", ("one.py", "    step(2)\n", "    step(2)\n    collected_by_name(a)\n"))
    [one] = proposed(new)
    assert [(hunk.n, hunk.path, hunk.line, hunk.definition) for hunk in one.hunks] == [
        (1, "one.py", 5, "first")
    ]
    assert not one.is_whole


def test_it_is_proposed_with_less_context_too_and_as_a_whole() -> None:
    new = OLD.edited(
        "2.0", ("one.py", "    step(2)\n", "    other()\n    step(2)\n    collected_by_name(a)\n"),
        ("two.py", "x9 = 9\n", "x9 = nine_and_a_half()\n"), ("two.py", "x11 = 11\n", "x11 = 0\n"),
    )  # fmt: skip
    [one] = proposed(new)
    assert one.is_whole


def test_a_result_in_another_function_or_in_two_places_is_no_proposal() -> None:
    line = "    collected_by_name(a)\n"
    gone = ("one.py", "    step(1)\n    step(2)\n    step(3)\n", "    all_steps()\n")
    elsewhere = OLD.edited("2.0", gone, ("one.py", "    done()\n", f"    done()\n{line}"))
    assert proposed(elsewhere) == ()
    both = f"    one()\n{line}    two()\n{line}"
    twice = OLD.edited("2.0", ("one.py", gone[1], both))
    assert proposed(twice) == ()


def test_a_hunk_that_still_applies_is_no_proposal() -> None:
    assert proposed(DictTree("2.0", OLD.files)) == ()
    # Its own copy stands below, and its old lines stand too: GNU patch would see a reversed patch.
    new = OLD.edited("2.0", ("one.py", "    done()\n", "    done()\n    collected_by_name(a)\n"))
    assert proposed(new) == ()


def test_the_other_words_of_upstream_are_a_proposal_with_the_named_commit_only() -> None:
    data = ADD.data.replace(b"Kind: own\n", b"Kind: backport\nOrigin: after upstream #1234\n")
    step = ADD._replace(data=data)
    new = OLD.edited("2.0", ("one.py", "    step(1)\n    step(2)\n", "    steps(1, 2)\n"))
    before, after = replay(OLD, [step]), replay(new, [step])
    assert proposals(before, after) == ()
    commit = NamedCommit("ab" * 20, "Collect by name (#1234)", "#1234")
    [one] = proposals(before, after, {"#1234": commit})
    assert (one.commits, one.hunks) == ((commit,), ())


def test_names_of_a_header() -> None:
    text = (
        b"Subject: x #99\nOrigin: https://host/pull/1234, 0123456789abcdef\n"
        b"Retires-When: the pin has #5678\n\n#4444\n\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert names(parse_patch(text)) == ("#1234", "0123456789abcdef", "#5678")


# -- the command -----------------------------------------------------------------------------------

LEDGER = """# What became of them.

schema = "hq.ledger/1"

[[patch]]
name = "fourth"
status = "carried"
kind = "own"
pins = ["1.0"]
ported-as = "added"
reason = "it reads a knob"
retires-when = "never"
"""
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="no git")


@needs_git
def test_retire_moves_a_patch_and_its_knobs_to_the_ledger(project: PortProject) -> None:
    project.write("patches/ledger.toml", LEDGER)
    project.replace("build.toml", "[knobs]", '[patches]\nledger = "patches/ledger.toml"\n\n[knobs]')
    done = project.run("port", "retire", "fourth", "--because", "2.0 reads it itself")
    assert done.stdout == (
        "fourth is retired\n  changed  patches/knobs.toml\n  changed  patches/ledger.toml\n"
        "  changed  patches/series\n  removed  patches/fourth.patch\n"
        "  knob     VLLM_FORK_LEVEL is kept as retired\n"
    )
    assert project.read("patches/series") == "first.patch\nsecond.patch\nthird.patch\n"
    assert project.read("patches/ledger.toml") == LEDGER.replace(
        'status = "carried"', 'status = "retired"'
    ).replace('["1.0"]', "[]").replace(
        '"never"\n', '"retired"\nupstream = "1.0: 2.0 reads it itself"\n'
    )
    assert tomllib.loads(project.read("patches/knobs.toml")) == {
        "schema": "hq.knobs/1",
        "prefixes": ["DEMO_"],
        "retired": [{"name": "VLLM_FORK_LEVEL", "reason": "2.0 reads it itself"}],
    }
    project.build()


@needs_git
def test_a_patch_that_another_pin_has_stays_for_it(project: PortProject) -> None:
    project.port("rebase", "--wheel", project.release())
    project.git("switch", "-q", "port/2.0")
    done = project.run("port", "retire", "fourth.patch", "--because", "it is there", "--pin", "2.0")
    assert done.stdout == "fourth is retired\n  changed  patches/series-2.0\n"
    assert (project.root / "patches/fourth.patch").exists()
    project.build("--pin", "1.0")


@needs_git
def test_a_name_that_is_not_there_and_a_reason_that_is_none_are_refused(
    project: PortProject,
) -> None:
    assert project.fails("port", "retire", "forth", "--because", "x") == (
        "error: there is no patch 'forth' in the series of 1.0\n"
        "  at: patches/series\n"
        "  help: did you mean 'fourth'?\n"
    )
    assert project.fails("port", "retire", "fourth", "--because", " ") == (
        'error: no reason is given\n  help: say why: --because "upstream carries it: …"\n'
    )
    assert project.fails("port", "retire", "fourth", "--because", "x", "--part", "y") == (
        "error: the project keeps no ledger\n  at: build.toml\n"
        '  help: name one: [patches] ledger = "patches/ledger.toml"\n'
    )


@needs_git
def test_a_part_is_only_noted(project: PortProject) -> None:
    project.write("patches/ledger.toml", LEDGER)
    project.replace("build.toml", "[knobs]", '[patches]\nledger = "patches/ledger.toml"\n\n[knobs]')
    project.run("port", "retire", "first", "--because", "in 2.0", "--part", "the first hunk")
    assert tomllib.loads(project.read("patches/ledger.toml"))["patch"][1] == {
        "name": "first", "part": "the first hunk", "status": "retired", "kind": "own", "pins": [],
        "ported-as": "retired", "upstream": "1.0: in 2.0", "reason": "First",
        "retires-when": "retired",
    }  # fmt: skip
    assert project.read("patches/series").startswith("first.patch\n")
