"""Red controls: each fails its check for its reason, and one that does not is told."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.project import FILES, SampleProject, diff, patch

TWINS = "\n\n".join(
    f"def {name}():\n    x = 0\n    a = 1\n    b = 2\n    return x + a + b\n"
    for name in ("one", "two", "three")
)
FAULTS = {
    "wrong-layout": (
        '[fault]\nkind = "edit"\npath = "over/patches/register.patch"\n'
        "find = '\"extra\"]'\nreplace = '\"other\"]'\n",
        "overlay:over",
        "the declared fact 'kind' does not hold: the parser takes the kind",
    ),
    "removed-flag": (
        '[fault]\nkind = "edit"\npath = "patches/fourth.patch"\n'
        'find = "+    return envs.VLLM_FORK_LEVEL"\n'
        "replace = \"+    return getattr(envs.VLLM_FORK_LEVEL, 'by_stride', 0)\"\n",
        "overlay:over",
        "by_stride occurs in line 5",
    ),
    "dropped-patch": (
        '[fault]\nkind = "drop-patch"\npatch = "first"\n',
        "patch:fifth",
        "patches/fifth.patch does not apply",
    ),
    "unregistered-knob": (
        '[fault]\nkind = "drop-knob"\nknob = "VLLM_FORK_LEVEL"\n',
        "audit",
        "VLLM_FORK_LEVEL is not registered",
    ),
    "shifted-hunk": (
        '[fault]\nkind = "shift-hunk"\npath = "patches/twin.patch"\nhunk = 1\nby = 2\n'
        "context = 1\nheading = false\n",
        "patch:twin",
        "fits equally well at lines",
    ),
    "corrupt-wheel": (
        '[fault]\nkind = "corrupt-member"\nmember = "vllm/data.bin"\n',
        "layer:wheel",
        "member 'vllm/data.bin'",
    ),
    "raw-read": (
        '[fault]\nkind = "edit"\npath = "over/files/vllm/extra/__init__.py"\n'
        'find = "EXTRA = 1\\n"\n'
        "replace = \"import os\\n\\nEXTRA = os.environ.get('VLLM_FORK_LEVEL')\\n\"\n",
        "audit",
        "raw read of the registered knob VLLM_FORK_LEVEL",
    ),
}


def declare(project: SampleProject, name: str, **changes: str) -> None:
    """Writes one of the red controls, with parts of it changed."""
    fault, check, reason = FAULTS[name]
    check, reason = changes.get("check", check), changes.get("reason", reason)
    project.write(
        f"images/red-{name}.toml",
        f'schema = "hq.red/1"\nname = "{name}"\nwhat = "something is wrong"\n\n'
        f"{changes.get('fault', fault)}\n[expect]\ncheck = {json.dumps(check)}\n"
        f"reason = {json.dumps(reason)}\n",
    )


@pytest.fixture
def project(tmp_path: Path) -> SampleProject:
    """The sample project with what the faults need, and every red control."""
    made = SampleProject(tmp_path, {**FILES, "vllm/twin.py": TWINS.encode()})
    made.supply()
    one = made.texts["vllm/one.py"]
    made.write(
        "patches/fifth.patch",
        patch("Fifth", diff("vllm/one.py", one, one.replace("line ten\n", "line ten!\n"))),
    )
    head, middle, tail = TWINS.partition("def two():\n    x = 0\n")
    changed = head + middle + tail.replace("a = 1", "a = 2", 1)
    made.write("patches/twin.patch", patch("Twin", diff("vllm/twin.py", TWINS, changed)))
    made.write("patches/series", made.read("patches/series") + "fifth.patch\ntwin.patch\n")
    made.write(
        "over/overlay.toml",
        made.read("over/overlay.toml")
        + '\n[[facts.check]]\nfact = "kind"\nwhat = "the flag is gone"\npath = "vllm/three.py"\n'
        'kind = "name-absent"\nvalue = "by_stride"\n',
    )
    for name in FAULTS:
        declare(made, name)
    return made


def outcomes(project: SampleProject, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = project.run("red", "--json", *arguments)
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["ok"] == (code == 0)
    return document


def test_each_is_red_for_its_reason(project: SampleProject) -> None:
    document = outcomes(project)
    assert {one["name"]: one["state"] for one in document["controls"]} == dict.fromkeys(
        FAULTS, "red"
    )
    for one in document["controls"]:
        assert one["check"] == FAULTS[one["name"]][1]


def test_the_table(project: SampleProject) -> None:
    done = project.run("red", "raw-read")
    assert done.returncode == 0
    assert done.stdout == (
        "red               raw-read  audit: raw read of the registered knob VLLM_FORK_LEVEL\n"
        "pin 1.0: 1 of 1 red controls are red for their reason\n"
    )


def test_verify_runs_them_too(project: SampleProject) -> None:
    done = project.run("verify", "--red", "raw-read")
    assert done.returncode == 0, done.stderr
    assert done.stdout == project.run("red", "raw-read").stdout
    assert json.loads(project.run("verify", "--red", "--json").stdout)["ok"]


def test_nothing_of_it_is_kept(project: SampleProject) -> None:
    first = project.build()

    def state() -> dict[str, str]:
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for base in (project.root, project.store)
            for path in sorted(base.rglob("*"))
            # The stat cache and the locks say nothing of results.
            if path.is_file() and not {"stat", "locks"} & set(path.parts)
        }

    before = state()
    outcomes(project)
    assert state() == before
    again = project.build()
    assert (again["images"], again["built"]) == (first["images"], [])
    assert os.listdir(project.store / "tmp") == []


def without_the_fact(project: SampleProject) -> None:
    text = project.read("over/overlay.toml")
    project.write("over/overlay.toml", text.partition("[facts]")[0])


def test_with_the_check_removed_it_comes_up_green(project: SampleProject) -> None:
    without_the_fact(project)
    done = project.run("red", "wrong-layout")
    assert done.returncode == 1
    assert done.stdout.startswith("GREEN             wrong-layout  overlay:over: ")
    line = project.read("images/red-wrong-layout.toml").split("\n").index("[expect]") + 1
    assert done.stderr.partition("error: ")[2] == (
        "one red control is not red as declared\n"
        f"  at: images/red-wrong-layout.toml:{line}\n"
        "  wrong-layout: green: overlay:over passed with the fault in it\n"
        "  help: a check has stopped looking, or the control no longer describes the tree\n"
    )


def test_the_build_reports_a_green_one(project: SampleProject) -> None:
    done = project.run("build", "--red")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("red controls: 7, each red for its reason\n")
    without_the_fact(project)
    done = project.run("build", "--red", "-q")
    assert done.returncode == 1
    assert done.stderr.startswith("error: 2 red controls are not red as declared\n")


def test_another_reason_is_not_good_enough(project: SampleProject) -> None:
    declare(project, "raw-read", reason="a reason that it does not give")
    (one,) = outcomes(project, "raw-read", code=1)["controls"]
    assert (one["state"], one["check"]) == ("other-reason", "audit")
    done = project.run("red", "raw-read")
    assert done.stderr.partition("declared\n")[2].split("\n")[1:5] == [
        "  raw-read: audit failed for another reason",
        "    expected: a reason that it does not give",
        "    error: the audit of environment knobs found one fault",
        "      node: audit",
    ]


def test_nor_is_another_check(project: SampleProject) -> None:
    declare(project, "wrong-layout", check="layer:over")
    (one,) = outcomes(project, "wrong-layout", code=1)["controls"]
    assert (one["state"], one["check"]) == ("other-check", "overlay:over")
    declare(project, "wrong-layout", check="declaration")
    (one,) = outcomes(project, "wrong-layout", code=1)["controls"]
    assert (one["state"], one["check"]) == ("green", "")


def test_a_declaration_can_be_what_fails(project: SampleProject) -> None:
    declare(
        project,
        "dropped-patch",
        fault='[fault]\nkind = "drop-patch"\npatch = "first"\nkeep = true\n',
        check="declaration",
        reason="patches/first.patch",
    )
    (one,) = outcomes(project, "dropped-patch")["controls"]
    assert one["state"] == "red"


def test_a_pattern_is_a_regular_expression(project: SampleProject) -> None:
    text = project.read("images/red-shifted-hunk.toml")
    text = text.replace('reason = "fits equally well at lines"', r"pattern = 'at lines \d+, \d+'")
    project.write("images/red-shifted-hunk.toml", text)
    (one,) = outcomes(project, "shifted-hunk")["controls"]
    assert (one["state"], one["expected"]["reason"]) == ("red", r"/at lines \d+, \d+/")


def test_those_of_other_pins_are_left_out(project: SampleProject) -> None:
    project.replace(
        "build.toml",
        '[pins."1.0"]',
        '[pins."2.0"]\nlock = "x"\nseries = "patches/series"\n\n[pins."1.0"]',
    )
    path = "images/red-raw-read.toml"
    project.write(path, project.read(path).replace("\nwhat =", '\npins = ["2.0"]\nwhat ='))
    (one,) = outcomes(project, "raw-read")["controls"]
    assert one["state"] == "skipped"


def test_a_check_that_fails_anyway_proves_nothing(project: SampleProject) -> None:
    project.replace(
        "over/files/vllm/extra/__init__.py",
        "EXTRA = 1",
        "import os\n\nEXTRA = os.environ.get('DEMO_X')",
    )
    done = project.run("red", "unregistered-knob")
    assert done.returncode == 1
    assert "error: the audit of environment knobs found one fault\n" in done.stderr


BAD: list[tuple[str, Callable[[str], str], str]] = [
    (
        "an unknown kind",
        lambda text: text.replace('kind = "edit"', 'kind = "guess"'),
        "fault.kind: expected 'edit', 'drop-patch', 'drop-knob', 'shift-hunk' or 'corrupt-member'",
    ),
    (
        "a key that the kind needs",
        lambda text: "\n".join(x for x in text.split("\n") if not x.startswith("find")),
        "fault: a fault of kind 'edit' needs 'find'",
    ),
    (
        "a key that the kind does not take",
        lambda text: text.replace('kind = "edit"', 'kind = "edit"\nhunk = 1'),
        "fault: a fault of kind 'edit' takes no 'hunk'",
    ),
    (
        "no reason",
        lambda text: "\n".join(x for x in text.split("\n") if not x.startswith("reason")),
        "expect: expected one of 'reason', a text, and 'pattern', a regular expression",
    ),
    (
        "a wrong pattern",
        lambda text: text.replace('reason = "', 'pattern = "('),
        "expect: pattern: not a regular expression",
    ),
    (
        "an unknown pin",
        lambda text: text.replace("what =", 'pins = ["9"]\nwhat ='),
        "pins: there is no pin '9'",
    ),
]


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in BAD], ids=[r[0] for r in BAD])
def test_mistakes(project: SampleProject, change: Callable[[str], str], message: str) -> None:
    path = "images/red-raw-read.toml"
    project.write(path, change(project.read(path)))
    done = project.run("red")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path} has one mistake\n")
    assert message in done.stderr


def test_a_fault_without_a_place(project: SampleProject) -> None:
    project.replace("images/red-raw-read.toml", "EXTRA = 1", "EXTRA = 7")
    done = project.run("red", "raw-read")
    assert done.returncode == 2
    assert done.stderr.partition("error: ")[2] == (
        "the fault of raw-read has no place: over/files/vllm/extra/__init__.py: 'EXTRA = 7\\n' "
        "stands there 0 times, expected once\n"
        "  at: images/red-raw-read.toml:5\n"
    )


def test_a_check_that_is_no_node(project: SampleProject) -> None:
    declare(project, "raw-read", check="patch:none")
    done = project.run("red", "raw-read")
    assert done.returncode == 2
    assert done.stderr == (
        "error: raw-read: there is no node 'patch:none' in the graph\n"
        "  at: images/red-raw-read.toml:11\n"
        "  help: see hq plan for the nodes\n"
    )


def test_a_name_that_is_none(project: SampleProject) -> None:
    done = project.run("red", "raw-raed")
    assert (done.returncode, done.stderr) == (
        2,
        "error: there is no red control 'raw-raed'\n  help: did you mean 'raw-read'?\n",
    )


def test_one_name_twice(project: SampleProject) -> None:
    project.write("images/red-zz.toml", project.read("images/red-raw-read.toml"))
    done = project.run("red")
    assert (done.returncode, done.stderr) == (
        2,
        "error: images/red-zz.toml has one mistake\n"
        "  images/red-zz.toml: name: images/red-raw-read.toml is also called that\n",
    )
