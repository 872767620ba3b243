"""``knobs.toml``: what it means, and every mistake with its line; and the project's own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hq.app.knobsfile import load_registry, load_registry_with_places
from hq.knobs.registry import Knob, Registry, Retired
from hq.model.errors import Location, UsageError

GOOD = """\
schema = "hq.knobs/1"
prefixes = ["KVARN_"]

[[knob]]
name = "VLLM_MODE"
type = "choice"
choices = ["", "int8"]
default = ""
meaning = "a mode"
owner = "patch:mode"
compile-key = true
exported-by = ["huge", "fast"]

[[knob]]
name = "KVARN_SPLIT_K"
type = "bool"
absent = "none"
meaning = "force it"
owner = "overlay:kvarn"
compile-key = false

[[knob]]
name = "KVARN_RATIO"
type = "float"
default = "0.50"
meaning = "a ratio"
owner = "overlay:kvarn"
compile-key = false

[[retired]]
name = "VLLM_OLD_ONE"
reason = "upstream does it"

[[planned]]
name = "VLLM_NEW_ONE"
reason = "its kernel is not written"
"""


def message(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_registry("patches/knobs.toml", text.encode())
    return caught.value.render()


def test_a_good_file() -> None:
    loaded = load_registry_with_places("patches/knobs.toml", GOOD.encode())
    kvarn = "overlay:kvarn"
    assert loaded.registry == Registry(
        (
            Knob("KVARN_RATIO", "float", "0.50", "a ratio", kvarn, compile_key=False),
            Knob("KVARN_SPLIT_K", "bool", None, "force it", kvarn, compile_key=False),
            Knob(
                "VLLM_MODE", "choice", "", "a mode", "patch:mode", True,
                ("fast", "huge"), ("", "int8"),
            ),
        ),
        ("KVARN_",),
        (
            Retired("VLLM_NEW_ONE", "planned: its kernel is not written"),
            Retired("VLLM_OLD_ONE", "retired: upstream does it"),
        ),
    )  # fmt: skip
    assert loaded.declared_at == {
        "VLLM_MODE": Location("patches/knobs.toml", 4),
        "KVARN_SPLIT_K": Location("patches/knobs.toml", 14),
        "KVARN_RATIO": Location("patches/knobs.toml", 22),
    }


def test_shapes_are_checked_first() -> None:
    bad = GOOD.replace('type = "bool"', 'type = "boolean"').replace(
        "compile-key = t", "compile_key = t"
    )
    assert message(bad) == (
        "error: patches/knobs.toml has 3 mistakes\n"
        "  patches/knobs.toml:4: knob[0].compile-key: missing\n"
        "  patches/knobs.toml:11: knob[0].compile_key: unknown key (did you mean 'compile-key'?)\n"
        "  patches/knobs.toml:16: knob[1].type: expected 'bool', 'int', 'float', 'str', 'choice' "
        "or 'path', found \"boolean\" (did you mean 'bool'?)"
    )


def test_then_every_rule_at_once() -> None:
    bad = (
        GOOD.replace('default = ""', "default = 1")
        .replace('absent = "none"', 'absent = "none"\ndefault = true')
        .replace('default = "0.50"', "default = 0.5")
        .replace('"VLLM_OLD_ONE"', '"VLLM_MODE"')
        .replace('"VLLM_NEW_ONE"', '"new"')
        .replace('name = "KVARN_SPLIT_K"', 'name = "SPLIT_K"')
        + '[[knob]]\nname = "VLLM_A_B"\ntype = "int"\nmeaning = "x"\nowner = "x"\n'
        + "compile-key = true\n"
        + '[[knob]]\nname = "VLLM_A_C"\ntype = "bool"\ndefault = 1\nmeaning = "x"\n'
        + 'owner = "patch:x"\ncompile-key = true\n'
        + '[[knob]]\nname = "VLLM_A_D"\ntype = "int"\ndefault = true\nmeaning = "x"\n'
        + 'owner = "patch:x"\ncompile-key = true\n'
    )
    assert message(bad) == (
        "error: patches/knobs.toml has 10 mistakes\n"
        "  patches/knobs.toml:8: knob[0].default: expected a text, found 1\n"
        "  patches/knobs.toml:15: knob[1].name: SPLIT_K begins with none of the prefixes VLLM_, "
        "KVARN_\n"
        "  patches/knobs.toml:18: knob[1].default: an unset variable is None here "
        '(absent = "none"), so there is no default\n'
        '  patches/knobs.toml:26: knob[2].default: expected a text, such as "0.5": a float is '
        "written as it is exported\n"
        "  patches/knobs.toml:32: retired[0].name: VLLM_MODE is already declared as knob[0]\n"
        "  patches/knobs.toml:36: planned[0].name: expected a name such as 'VLLM_SOME_KNOB', found "
        "'new'\n"
        '  patches/knobs.toml:38: knob[3].default: missing; say absent = "none" if an unset '
        "variable means None\n"
        "  patches/knobs.toml:42: knob[3].owner: expected 'patch:NAME' or 'overlay:NAME', found "
        "'x'\n"
        "  patches/knobs.toml:47: knob[4].default: expected true or false, found 1\n"
        "  patches/knobs.toml:54: knob[5].default: expected an integer, found true"
    )


def test_the_registry_of_this_project() -> None:
    root = Path(__file__).parents[2]
    loaded = load_registry("patches/knobs.toml", (root / "patches/knobs.toml").read_bytes())
    assert len(loaded.knobs) >= 8
    assert loaded.prefixes == ("KVARN_",)
    # Every owner is a patch file or the overlay.
    patches = {f"patch:{path.stem}" for path in (root / "patches").rglob("*.patch")}
    assert {knob.owner for knob in loaded.knobs} <= patches | {"overlay:kvarn"}
