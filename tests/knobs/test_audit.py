"""The audit's findings, by their exact words."""

from __future__ import annotations

from typing import Any

import pytest

from hq.knobs.audit import Declared, Export, Subject, audit, merged, refusal
from hq.knobs.reads import ENVS_PATH, facts, reads
from hq.model.errors import Location

STOCK = ("VLLM_STOCK", "VLLM_PORT")
PATH = "vllm/v1/x.py"
HEAD = "import os\nimport vllm.envs as envs\n"
KNOBS = (Declared("VLLM_MINE", "patch:mine"), Declared("KVARN_SINK_TOKENS", "overlay:kvarn"))
USED = "envs.VLLM_MINE\nenvs.KVARN_SINK_TOKENS\n"


def subject(after: str, before: str | None = HEAD, path: str = PATH, **changes: Any) -> Subject:
    table = {path: facts(path, None if before is None else before.encode(), after.encode())}
    made = Subject(
        knobs=KNOBS,
        prefixes=("VLLM_", "KVARN_"),
        variables=[*STOCK, *(knob.name for knob in KNOBS)],
        attributes=["os", "is_set", "environment_variables", "enable_envs_cache"],
        facts=table,
        exporters=["fast", "huge"],
    )
    return made._replace(**changes)


def messages(after: str, before: str | None = HEAD, path: str = PATH, **changes: Any) -> list[str]:
    of = subject(after, before, path, **changes)
    findings = audit(of, [reads(path, after.encode())])
    # Without lines the audit finds the same, at the file as a whole.
    assert {(level, problem.message, problem.hint) for level, problem in audit(of)} == {
        (level, problem.message, problem.hint) for level, problem in findings
    }
    return [f"{level}: {problem}" for level, problem in findings]


def test_reading_through_envs_is_right() -> None:
    assert messages(HEAD + USED + "envs.VLLM_STOCK\nenvs.is_set('VLLM_PORT')\n") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "os.environ['VLLM_MINE']",
            "failure: vllm/v1/x.py:5: raw read of the registered knob VLLM_MINE "
            "(read it as envs.VLLM_MINE)",
        ),
        (
            "os.getenv('KVARN_OTHER')",
            "failure: vllm/v1/x.py:5: raw read of KVARN_OTHER, which is not registered "
            "(declare KVARN_OTHER in knobs.toml and read it as envs.KVARN_OTHER)",
        ),
        (
            "os.getenv('VLLM_OTHER')",
            "failure: vllm/v1/x.py:5: raw read of VLLM_OTHER, which is not registered "
            "(declare VLLM_OTHER in knobs.toml and read it as envs.VLLM_OTHER)",
        ),
        (
            "envs.VLLM_OTHER",
            "failure: vllm/v1/x.py:5: envs.VLLM_OTHER is read and VLLM_OTHER is not registered "
            "(declare VLLM_OTHER in knobs.toml)",
        ),
        (
            "envs.KVARN_SINK_TOKEN",
            "failure: vllm/v1/x.py:5: envs.KVARN_SINK_TOKEN is read and KVARN_SINK_TOKEN is not "
            "registered (did you mean KVARN_SINK_TOKENS?)",
        ),
        (
            "envs.VLLM_OLD",
            "failure: vllm/v1/x.py:5: envs.VLLM_OLD is read and VLLM_OLD is not registered "
            "(retired: upstream does it) (declare VLLM_OLD in knobs.toml)",
        ),
        (
            "os.environ.get(name)",
            "warning: vllm/v1/x.py:5: a patch reads the environment by a computed name: name "
            "(read knobs through envs)",
        ),
    ],
)  # fmt: skip
def test_one_finding(line: str, expected: str) -> None:
    retired = {"VLLM_OLD": "retired: upstream does it"}
    assert messages(HEAD + USED + line, retired=retired) == [expected]


def test_every_place_is_named() -> None:
    twice = HEAD + USED + "os.getenv('VLLM_MINE')\n\nos.getenv('VLLM_MINE')\n"
    assert [message.split(": ")[1] for message in messages(twice)] == [
        "vllm/v1/x.py:5",
        "vllm/v1/x.py:7",
    ]


def test_reads_of_vllm_itself_are_none_of_ours() -> None:
    theirs = HEAD + "os.getenv('VLLM_UNLISTED')\nos.environ[name]\nos.getenv('CUDA_HOME')\n"
    assert messages(theirs + USED, before=theirs) == []
    # A registered name, or one under a prefix of the fork, is ours wherever it comes from.
    theirs = HEAD + USED + "os.getenv('KVARN_X')\nos.getenv('VLLM_MINE')\n"
    assert len(messages(theirs, before=theirs)) == 2
    # Reading a stock variable raw is vLLM's own habit.
    assert messages(HEAD + USED + "os.getenv('VLLM_STOCK')\n") == []


def test_a_variable_written_into_envs_by_hand() -> None:
    before = "import os\nv = {'VLLM_STOCK': lambda: os.getenv('VLLM_STOCK')}\n"
    after = before + "w = {\n  'VLLM_HAND': lambda: os.getenv('VLLM_HAND')}\n"
    assert messages(after, before, ENVS_PATH, knobs=()) == [
        "failure: vllm/envs.py:4: VLLM_HAND is written into envs.py by a patch "
        "(declare VLLM_HAND in knobs.toml instead)"
    ]
    # A read in envs.py alone keeps no knob alive.
    found = messages("import os\nos.getenv('VLLM_MINE')\n", None, ENVS_PATH, knobs=KNOBS[:1])
    assert found[1] == (
        "warning: knobs.toml: VLLM_MINE is registered for patch:mine and nothing reads it "
        "(read it or drop it)"
    )


def test_a_file_that_is_no_python() -> None:
    (first, *_) = messages(HEAD + USED + "def\n", knobs=())
    assert first == (
        "failure: vllm/v1/x.py:5: a changed file is not Python that can be read "
        "(mend the patch that changes it)"
    )


def export(name: str, exporter: str = "fast", line: int = 3) -> Export:
    return Export(name, exporter, Location(f"images/{exporter}.toml", line))


@pytest.mark.parametrize(
    ("exported", "expected"),
    [
        ([export("VLLM_STOCK"), export("CUDA_HOME"), export("KVARN_SINK_TOKENS")], []),
        (
            [export("VLLM_V2_OLD")],
            ["failure: images/fast.toml:3: VLLM_V2_OLD is exported and nothing reads it: envs.py "
             "does not know it (retired: upstream does it) (drop the export)"],
        ),
        (
            [export("KVARN_SINK_TOKEN")],
            ["failure: images/fast.toml:3: KVARN_SINK_TOKEN is exported and nothing reads it: "
             "envs.py does not know it (did you mean KVARN_SINK_TOKENS?)"],
        ),
        (
            [export("VLLM_MINE")],
            ["failure: images/fast.toml:3: VLLM_MINE is exported and nothing reads it: it is "
             "registered for patch:mine (drop the export)"],
        ),
        (
            [export("KVARN_SINK_TOKENS", "huge", 7)],
            ["failure: patches/knobs.toml:9: KVARN_SINK_TOKENS is declared as exported by fast, "
             "which does not (correct its exported_by)",
             "warning: images/huge.toml:7: huge exports KVARN_SINK_TOKENS, whose declaration does "
             "not say so (add 'huge' to its exported_by)"],
        ),
    ],
)  # fmt: skip
def test_exports(exported: list[Export], expected: list[str]) -> None:
    knobs = [KNOBS[0], KNOBS[1]._replace(exported_by=("fast",))]
    if not any(item.name == "KVARN_SINK_TOKENS" for item in exported):
        knobs[1] = KNOBS[1]
    read = HEAD + "envs.KVARN_SINK_TOKENS\n"
    if not any(item.name == "VLLM_MINE" for item in exported):
        knobs = knobs[1:]
    found = messages(
        read,
        knobs=tuple(knobs),
        exports=tuple(exported),
        retired={"VLLM_V2_OLD": "retired: upstream does it"},
        declared_at={"KVARN_SINK_TOKENS": Location("patches/knobs.toml", 9)},
    )
    assert found == expected


def test_a_launcher_that_is_none() -> None:
    knobs = (KNOBS[0]._replace(exported_by=("slow",)),)
    assert messages(HEAD + "envs.VLLM_MINE", knobs=knobs) == [
        "failure: knobs.toml: VLLM_MINE is declared as exported by slow, which is no launcher "
        "(correct its exported_by)"
    ]


def test_the_last_change_of_a_file_counts() -> None:
    first = facts(PATH, HEAD.encode(), (HEAD + "os.getenv('VLLM_X')\nos.getenv(n)\n").encode())
    touched = facts(
        PATH,
        (HEAD + "os.getenv('VLLM_X')\nos.getenv(n)\n").encode(),
        (HEAD + "\nos.getenv('VLLM_X')\n").encode(),
    )
    assert touched == [("raw", "VLLM_X", 1, 0)]
    # What the first added is still the fork's after the second has touched the file.
    assert merged([{PATH: first}, {PATH: touched}]) == {PATH: [("raw", "VLLM_X", 1, 1)]}
    assert merged([{PATH: first}, {PATH: []}]) == {PATH: []}


def test_one_error_for_all_failures() -> None:
    of = subject(HEAD + "os.getenv('VLLM_MINE')\nenvs.VLLM_OTHER\n", knobs=KNOBS[:1])
    error = refusal(audit(of))
    assert error is not None
    assert error.exit_code == 1
    assert error.render() == (
        "error: the audit of environment knobs found 2 faults\n"
        "  vllm/v1/x.py: envs.VLLM_OTHER is read and VLLM_OTHER is not registered "
        "(declare VLLM_OTHER in knobs.toml)\n"
        "  vllm/v1/x.py: raw read of the registered knob VLLM_MINE (read it as envs.VLLM_MINE)"
    )
    assert refusal(audit(subject(HEAD))) is None
