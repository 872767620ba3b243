"""The three lists, on small releases with one change each."""

from __future__ import annotations

import json

from hq.port.report import document, text
from port.trees import DictTree, patch_step, run_triage

BODY = "".join(f"    step({number})\n" for number in range(12))
MODULE = (
    f"import os\n\n\ndef first(a):\n{BODY}    return a\n\n\n"
    "def second(b):\n    done()\n    return b\n"
)
CALLER = "from pkg.one import first\n\nfirst(1)\n\n\ndef later():\n    return first(2)\n"
OLD = DictTree("1.0", {"pkg/one.py": MODULE, "pkg/two.py": CALLER, "pkg/__init__.py": ""})
ADD = patch_step(OLD, "add", ("pkg/one.py", "    step(5)\n", "    step(5)\n    extra()\n"))


def test_an_unchanged_release_has_empty_lists() -> None:
    found = run_triage(OLD, DictTree("2.0", OLD.files), ADD)
    assert [(row.outcome, row.list) for row in found.hunks] == [("exact", "clean")]
    assert (found.moved, found.missing, found.taken) == ((), (), ())
    assert text(found) == (
        "1.0 to 2.0: 1 of 1 patches apply, 1 hunks: 1 exact, 0 at an offset, 0 by fuzz only; "
        "0 fail, 0 doubtful, 0 files of patches moved, 0 findings"
    )


def test_a_changed_function_around_a_clean_hunk_is_moved_ground_with_its_callers() -> None:
    new = OLD.edited("2.0", ("pkg/one.py", "    return a\n", "    b = a\n    return b\n"))
    found = run_triage(OLD, new, ADD)
    assert [row.list for row in found.hunks] == ["clean"]
    assert text(found).split("\n")[1:] == [
        "",
        "Clean, and the ground moved:",
        "  add.patch: pkg/one.py +2 -1 (hunk 1)",
        "    first +2 -1, line 4; called at pkg/two.py:3, pkg/two.py:7",
    ]


def test_a_change_elsewhere_in_the_file_is_moved_ground_without_a_function() -> None:
    new = OLD.edited("2.0", ("pkg/one.py", "    done()\n", "    did()\n"))
    found = run_triage(OLD, new, ADD)
    assert [(row.path, row.added, row.removed) for row in found.moved] == [("pkg/one.py", 1, 1)]
    assert [(c.name, c.added, c.removed) for c in found.moved[0].definitions] == [("first", 0, 0)]


def test_a_moved_anchor_is_an_offset_and_a_far_one_is_doubtful() -> None:
    new = OLD.edited("2.0", ("pkg/one.py", "import os\n", "import os\n" + "# more\n" * 50))
    assert [(r.list, r.offset) for r in run_triage(OLD, new, ADD).hunks] == [("clean", 50)]
    doubtful = run_triage(OLD, new, ADD, large=20)
    assert [(r.list, r.text) for r in doubtful.hunks] == [
        ("doubtful", "applies at line 58, +50 from where it should be")
    ]


def test_fuzz_is_doubtful_and_never_applied() -> None:
    new = OLD.edited("2.0", ("pkg/one.py", "    step(3)\n", "    other(3)\n"))
    found = run_triage(OLD, new, ADD)
    assert [(r.list, r.outcome, r.fuzz) for r in found.hunks] == [("doubtful", "fuzzy", 1)]
    assert [row.outcome for row in found.patches] == ["rejected"]


def test_a_twin_context_is_doubtful() -> None:
    two = MODULE + MODULE.replace("def first", "def third").replace("def second", "def fourth")
    new = DictTree("2.0", {**OLD.files, "pkg/one.py": "# head\n" + two})
    found = run_triage(OLD, new, ADD)
    assert [(r.list, r.outcome) for r in found.hunks] == [("doubtful", "ambiguous")]


def test_a_removed_anchor_fails_and_what_stands_on_the_patch_is_told() -> None:
    lines = "".join(f"    step({number})\n" for number in range(3, 9))
    new = OLD.edited("2.0", ("pkg/one.py", lines, "    all_steps()\n"))
    later = patch_step(OLD, "later", ("pkg/one.py", "    done()\n", "    done(1)\n"))
    found = run_triage(OLD, new, ADD, later)
    assert [r.list for r in found.hunks] == ["fails", "clean"]
    assert [row.behind for row in found.patches] == [(), ("add.patch",)]
    assert "patches/later.patch: stands on add.patch, which did not apply" in text(found)


def test_a_file_that_moved_is_missing_and_its_new_place_named() -> None:
    files = {p: d for p, d in OLD.files.items() if p != "pkg/one.py"}
    new = DictTree("2.0", {**files, "pkg/core/one.py": MODULE + "\n\nx = 1\n"})
    found = run_triage(OLD, new, ADD)
    assert [(r.list, r.outcome) for r in found.hunks] == [("fails", "target-missing")]
    assert "add.patch: pkg/one.py seems to be pkg/core/one.py now" in text(found)


def test_a_change_that_is_there_already_is_doubtful_and_not_put_in_again() -> None:
    new = OLD.edited("2.0", ("pkg/one.py", "    step(5)\n", "    step(5)\n    extra()\n"))
    found = run_triage(OLD, new, ADD)
    assert [(r.list, r.outcome) for r in found.hunks] == [("doubtful", "already-applied")]


def test_unchanged_files_are_not_read() -> None:
    new = DictTree("2.0", OLD.files)
    run_triage(OLD, new, ADD)
    assert set(new.read_paths) <= {"pkg/one.py", "pkg"}


def test_the_document_and_markdown_say_the_same() -> None:
    new = OLD.edited("2.0", ("pkg/one.py", "    step(3)\n", "    other(3)\n"))
    found = run_triage(OLD, new, ADD)
    shown = document(found)
    assert shown["schema"] == "hq.triage/1"
    assert json.loads(json.dumps(shown))["counts"]["fuzzy"] == 1
    assert text(found, markdown=True).split("\n") == [
        "## 1.0 to 2.0",
        "",
        "0 of 1 patches apply, 1 hunks: 0 exact, 0 at an offset, 1 by fuzz only; 0 fail, "
        "1 doubtful, 0 files of patches moved, 0 findings",
        "",
        "### Doubtful: fuzz, twins, far away, there already",
        "",
        "- patches/add.patch:10: hunk 1 of pkg/one.py fits only with one context line ignored, at "
        "line 8",
    ]
