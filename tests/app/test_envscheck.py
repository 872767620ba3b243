"""``hq envs check`` and ``hq envs table`` as a library, the bogus-name control included."""

from __future__ import annotations

import pytest

from hq.app.envs import ChangedFile, Control, bogus_control, check, table_rows, table_text
from hq.knobs.generate import generate
from hq.knobs.registry import Knob, Registry
from hq.model.errors import BuildError, Location
from knobs.envsfiles import PINS, SMALL, real

KVARN = "overlay:kvarn"
REGISTRY = Registry.of(
    [
        Knob("KVARN_RATIO", "float", None, "a ratio", KVARN, compile_key=False),
        Knob("VLLM_MODE", "choice", "", "a mode", "patch:mode", True, ("fast",), ("", "int8")),
    ],
    ["KVARN_"],
)
PLAIN = REGISTRY._replace(knobs=tuple(knob._replace(exported_by=()) for knob in REGISTRY.knobs))
FILE = "vllm/envs.py"
USER = b"from vllm import envs\nenvs.KVARN_RATIO\nenvs.VLLM_MODE\n"


def test_a_tree_that_is_right() -> None:
    envs_py = generate(SMALL.encode(), PLAIN, FILE)
    files = [
        ChangedFile(FILE, SMALL.encode(), envs_py),
        ChangedFile("vllm/kvarn.py", None, USER),
        ChangedFile("vllm/data.json", None, b"os.environ"),
    ]
    report = check(envs_py, PLAIN, files)
    assert report.ok
    assert report.to_text() == (
        "control: VLLM_HQ_MADE_UP_NAME is warned about once\n"
        "control: KVARN_HQ_MADE_UP_NAME is warned about once\n"
        "2 knobs, 2 changed files: ok"
    )
    warning = "Unknown vLLM environment variable detected: "
    assert report.to_json() == {
        "schema": "hq.envs/1",
        "ok": True,
        "knobs": 2,
        "files": 2,
        "findings": [],
        "controls": [
            {"name": name, "ok": True, "lines": [warning + name]}
            for name in ("VLLM_HQ_MADE_UP_NAME", "KVARN_HQ_MADE_UP_NAME")
        ],
    }


def test_a_tree_that_is_wrong() -> None:
    """One raw read, one knob that nothing reads, and a warning that was never widened."""
    files = [ChangedFile("vllm/kvarn.py", None, b"import os\n\nos.getenv('KVARN_RATIO')\n")]
    report = check(
        SMALL.encode(), PLAIN, files, declared_at={"VLLM_MODE": Location("patches/knobs.toml", 4)}
    )
    assert not report.ok
    assert report.to_text() == (
        "failure: vllm/kvarn.py:3: raw read of the registered knob KVARN_RATIO "
        "(read it as envs.KVARN_RATIO)\n"
        "warning: patches/knobs.toml:4: VLLM_MODE is registered for patch:mode and nothing reads "
        "it (read it or drop it)\n"
        "control: VLLM_HQ_MADE_UP_NAME is warned about once\n"
        "failure: with KVARN_HQ_MADE_UP_NAME exported, expected one line that names it, found 0\n"
        "2 knobs, 1 changed file: failed"
    )
    assert report.to_json()["findings"][0] == {
        "level": "failure",
        "file": "vllm/kvarn.py",
        "line": 3,
        "message": "raw read of the registered knob KVARN_RATIO",
        "hint": "read it as envs.KVARN_RATIO",
    }
    assert check(SMALL.encode(), Registry.of([]), [], control=False).controls == ()


def test_a_control_wants_one_line_and_no_other() -> None:
    assert Control("VLLM_X", ("about VLLM_X",)).ok
    assert not Control("VLLM_X", ()).ok
    assert not Control("VLLM_X", ("about VLLM_X", "about VLLM_X")).ok
    assert not Control("VLLM_X", ("about VLLM_X", "noise")).ok
    assert not Control("VLLM_X", ("noise",)).ok


def test_an_envs_py_that_does_not_run() -> None:
    with pytest.raises(BuildError) as caught:
        bogus_control(b"raise SystemExit('broken')\n", "VLLM_")
    assert caught.value.render() == (
        "error: envs.py does not run by itself\n"
        "  at: vllm/envs.py\n"
        "  broken\n"
        "  help: it must load with the standard library alone; look at the last line above"
    )


def test_the_control_sees_nothing_of_the_users_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ANOTHER_MADE_UP_NAME", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    assert bogus_control(SMALL.encode(), "VLLM_").ok


def test_the_table() -> None:
    assert table_text(REGISTRY) == (
        "name         type     default  compile key  owner          exported by  meaning\n"
        "KVARN_RATIO  float    (unset)  no           overlay:kvarn               a ratio\n"
        'VLLM_MODE    ""|int8  ""       yes          patch:mode     fast         a mode'
    )
    assert table_rows(Registry.of([])) == []


@pytest.mark.wheel
@pytest.mark.parametrize("version", PINS)
def test_real_releases(version: str) -> None:
    stock = real(version)
    envs_py = generate(stock, PLAIN, FILE)
    files = [ChangedFile(FILE, stock, envs_py), ChangedFile("vllm/kvarn.py", None, USER)]
    report = check(envs_py, PLAIN, files)
    assert report.ok, report.to_text()
    assert not report.findings
    # Without generation a misspelt name of the fork's is silent: the control goes red.
    assert not check(stock, PLAIN, []).ok
