"""The generated ``envs.py``, run: it must do what the declarations say, and change nothing else."""

from __future__ import annotations

import ast
import difflib
import logging
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from hq.knobs.envsfile import read_envs
from hq.knobs.generate import generate
from hq.knobs.registry import Knob, Registry
from hq.model.errors import BuildError

from .envsfiles import PINS, SMALL, load, real
from .strategies import KNOBS

ALL = Registry.of(
    [
        Knob("VLLM_ZZ_BOOL", "bool", "1", "a switch", "patch:p", compile_key=True),
        Knob("VLLM_ZZ_CHOICE", "choice", "a", "one of two", "patch:p", True, (), ("", "a")),
        Knob("KVARN_INT", "int", "-3", "a number", "overlay:kvarn", compile_key=False),
        Knob("KVARN_FLOAT", "float", "0.5", "a ratio", "overlay:kvarn", compile_key=False),
        Knob("KVARN_NONE", "float", None, "a ratio, or none", "overlay:kvarn", compile_key=True),
        Knob("KVARN_TEXT", "str", 'a "b" \\ é', "a text", "overlay:kvarn", compile_key=True),
        Knob("KVARN_TEXT_OR_NONE", "str", None, "a text", "overlay:kvarn", compile_key=False),
        Knob("KVARN_PATH", "path", "~/x", "a path", "overlay:kvarn", compile_key=False),
        Knob(
            "KVARN_SOME_RATHER_LONG_NAME_OF_A_KNOB", "int", "8",
            "a meaning so long that it does not fit on one line of eighty-eight columns, so it "
            "takes two", "overlay:kvarn", compile_key=False,
        ),
    ],
    ["KVARN_"],
)  # fmt: skip
FILE = "vllm/envs.py"
ONCE = "a knob is declared once: in knobs.toml, or by vLLM itself, and not by a patch"


def made(source: str | bytes = SMALL, registry: Registry = ALL) -> bytes:
    data = source.encode() if isinstance(source, str) else source
    return generate(data, registry, FILE)


def refusal(source: str, registry: Registry = ALL) -> str:
    with pytest.raises(BuildError) as caught:
        made(source, registry)
    return caught.value.render()


def test_the_whole_difference_for_a_small_file() -> None:
    diff = difflib.unified_diff(SMALL.splitlines(), made().decode().splitlines(), lineterm="", n=1)
    assert (
        "\n".join(line.rstrip() for line in diff)
        == '''\
---
+++
@@ -10,2 +10,11 @@
     """A string stands here."""
+    KVARN_FLOAT: float = 0.5
+    KVARN_INT: int = -3
+    KVARN_NONE: float | None = None
+    KVARN_PATH: str = os.path.expanduser("~/x")
+    KVARN_SOME_RATHER_LONG_NAME_OF_A_KNOB: int = 8
+    KVARN_TEXT: str = "a \\"b\\" \\\\ é"
+    KVARN_TEXT_OR_NONE: str | None = None
+    VLLM_ZZ_BOOL: bool = True
+    VLLM_ZZ_CHOICE: Literal["", "a"] = "a"

@@ -26,2 +35,20 @@

+def env_parsed(env_name: str, parse: Callable[[str], Any], default: str | None) -> Any:
+    """
+    Return the parsed value of an environment variable, None where neither it
+    nor a default is set. A value that does not parse is an error that names the
+    variable.
+    """
+    value = os.getenv(env_name, default)
+    if value is None:
+        return None
+    try:
+        return bool(int(value)) if parse is bool else parse(value)
+    except ValueError:
+        expected = {bool: "0 or 1", int: "an integer", float: "a number"}[parse]
+        raise ValueError(
+            f"Invalid value '{value}' for {env_name}. Expected {expected}."
+        ) from None
+
+
 environment_variables: dict[str, Callable[[], Any]] = {
@@ -32,2 +59,23 @@
     ),
+    # a ratio
+    "KVARN_FLOAT": lambda: env_parsed("KVARN_FLOAT", float, "0.5"),
+    # a number
+    "KVARN_INT": lambda: env_parsed("KVARN_INT", int, "-3"),
+    # a ratio, or none
+    "KVARN_NONE": lambda: env_parsed("KVARN_NONE", float, None),
+    # a path
+    "KVARN_PATH": lambda: env_parsed("KVARN_PATH", os.path.expanduser, "~/x"),
+    # a meaning so long that it does not fit on one line of eighty-eight columns, so it
+    # takes two
+    "KVARN_SOME_RATHER_LONG_NAME_OF_A_KNOB": lambda: env_parsed(
+        "KVARN_SOME_RATHER_LONG_NAME_OF_A_KNOB", int, "8"
+    ),
+    # a text
+    "KVARN_TEXT": lambda: os.getenv("KVARN_TEXT", "a \\"b\\" \\\\ é"),
+    # a text
+    "KVARN_TEXT_OR_NONE": lambda: os.getenv("KVARN_TEXT_OR_NONE"),
+    # a switch
+    "VLLM_ZZ_BOOL": lambda: env_parsed("VLLM_ZZ_BOOL", bool, "1"),
+    # one of two
+    "VLLM_ZZ_CHOICE": env_with_choices("VLLM_ZZ_CHOICE", "a", ["", "a"]),
 }
@@ -56,3 +104,3 @@
     for env in os.environ:
-        if env.startswith("VLLM_") and env not in environment_variables:
+        if env.startswith(("VLLM_", "KVARN_")) and env not in environment_variables:
             if hard_fail:
@@ -67,2 +115,7 @@
         "VLLM_GONE",
+        "KVARN_FLOAT",
+        "KVARN_INT",
+        "KVARN_PATH",
+        "KVARN_SOME_RATHER_LONG_NAME_OF_A_KNOB",
+        "KVARN_TEXT_OR_NONE",
     }'''
    )


def converted(knob: Knob, text: str | None) -> Any:
    """What the reader of ``knob`` must see when ``text`` is exported."""
    if text is None:
        return None
    return {
        "bool": lambda: bool(int(text)),
        "int": lambda: int(text),
        "float": lambda: float(text),
        "path": lambda: os.path.expanduser(text),
    }.get(knob.type, lambda: text)()


def check_module(module: Any, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults, values, presence, the compile key and the cache, for every knob."""
    factors = module.compile_factors()
    for knob in registry.knobs:
        default = converted(knob, knob.default)
        assert getattr(module, knob.name) == default
        assert type(getattr(module, knob.name)) is type(default)
        assert module.is_set(knob.name) is False
        assert (knob.name in factors) is knob.compile_key
        exported = (
            knob.choices[-1] if knob.choices else {"str": "é", "path": "~"}.get(knob.type, "0")
        )
        with monkeypatch.context() as patch:
            patch.setenv(knob.name, exported)
            assert getattr(module, knob.name) == converted(knob, exported)
            assert module.is_set(knob.name) is True
            if knob.type in ("bool", "int", "float"):
                expected = {"bool": "0 or 1", "int": "an integer", "float": "a number"}[knob.type]
                patch.setenv(knob.name, "x y")
                with pytest.raises(ValueError, match=r"\AInvalid value") as caught:
                    module.enable_envs_cache()
                assert str(caught.value) == (
                    f"Invalid value 'x y' for {knob.name}. Expected {expected}."
                )
                module.__getattr__ = module.__getattr__.__wrapped__
    module.enable_envs_cache()
    for knob in registry.knobs:
        monkeypatch.setenv(knob.name, "1")
        assert getattr(module, knob.name) == converted(knob, knob.default)


def unknown_names(
    module: Any, names: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> list[str]:
    for name in names:
        monkeypatch.setenv(name, "1")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        module.validate_environ(False)
    return sorted(record.getMessage() for record in caplog.records)


@pytest.fixture(autouse=True)
def _no_knob_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("VLLM_", "KVARN_")):
            monkeypatch.delenv(name)


def test_the_small_file_does_what_is_declared(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = load(made(), monkeypatch)
    warned = unknown_names(module, ["VLLM_ZZ_BOL", "KVARN_ITN", "OTHER"], monkeypatch, caplog)
    assert warned == [
        "Unknown vLLM environment variable detected: KVARN_ITN",
        "Unknown vLLM environment variable detected: VLLM_ZZ_BOL",
    ]
    check_module(module, ALL, monkeypatch)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(KNOBS)
def test_any_registry_does_what_is_declared(
    monkeypatch: pytest.MonkeyPatch, knobs: list[Knob]
) -> None:
    registry = Registry.of(knobs, ["KVARN_"])
    source = made(registry=registry)
    tree = ast.parse(source)
    keys = next(
        [ast.literal_eval(key) for key in node.value.keys if key is not None]
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)
    )
    assert sorted(keys) == sorted({"VLLM_PORT", "VLLM_QUIET"} | registry.names())
    # Taking the added lines out again gives the file as it was.
    kept = [
        line[2:]
        for line in difflib.ndiff(SMALL.split("\n"), source.decode().split("\n"))
        if line[:2] in ("  ", "- ")
    ]
    assert kept == SMALL.split("\n")
    with monkeypatch.context() as patch:
        check_module(load(source, patch), registry, patch)


def test_nothing_registered_changes_nothing() -> None:
    assert made(registry=Registry.of([])) == SMALL.encode()


def test_a_prefix_alone_widens_the_warning() -> None:
    widened = made(registry=Registry.of([], ["KVARN_", "ABC_"]))
    old = b'env.startswith("VLLM_")'
    new = b'env.startswith(("VLLM_", "ABC_", "KVARN_"))'
    assert widened == SMALL.encode().replace(old, new)
    # A release that checks several prefixes already keeps its own.
    again = made(widened, Registry.of([], ["KVARN_", "ZZZ_"]))
    assert again == SMALL.encode().replace(old, new.replace(b'_"))', b'_", "ZZZ_"))'))


def test_line_ends_and_a_byte_order_mark_stay() -> None:
    crlf = b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode()
    assert made(crlf) == b"\xef\xbb\xbf" + made().replace(b"\n", b"\r\n")


def test_a_missing_comma_is_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = SMALL.replace('"VLLM_GONE",', '"VLLM_GONE"  # gone,').replace(
        "    ),\n}", "    )  # last,\n\n}"
    )
    source = made(bare)
    assert b'"VLLM_GONE",  # gone,\n        "KVARN_FLOAT",' in source
    assert b"    ),  # last,\n\n    # a ratio\n" in source
    check_module(load(source, monkeypatch), ALL, monkeypatch)


def test_a_knob_outside_the_compile_key_may_stand_in_the_ignored_set_already() -> None:
    gone = Knob("VLLM_GONE", "bool", "0", "back again", "patch:p", compile_key=False)
    assert made(registry=Registry.of([gone])).count(b'"VLLM_GONE",\n') == 1


def test_generating_twice_is_refused() -> None:
    assert refusal(made().decode()) == (
        "error: knob KVARN_FLOAT is already declared in environment_variables\n"
        "  at: vllm/envs.py:61\n"
        "  registered by: overlay:kvarn\n"
        f"  help: {ONCE}"
    )


@pytest.mark.parametrize(
    ("old", "new", "knob", "expected"),
    [
        (
            "",
            "",
            Knob("VLLM_PORT", "int", "0", "a port", "patch:p", compile_key=False),
            (
                "error: knob VLLM_PORT is already declared in environment_variables\n"
                "  at: vllm/envs.py:29\n"
                "  registered by: patch:p\n"
                f"  help: {ONCE}"
            ),
        ),
        (
            "VLLM_QUIET: bool",
            "VLLM_ZZ: bool",
            Knob("VLLM_ZZ", "int", "0", "a port", "patch:p", compile_key=False),
            (
                "error: knob VLLM_ZZ is already declared in the TYPE_CHECKING block\n"
                "  at: vllm/envs.py:9\n"
                "  registered by: patch:p\n"
                f"  help: {ONCE}"
            ),
        ),
        (
            "",
            "",
            Knob("VLLM_GONE", "int", "0", "a port", "patch:p", compile_key=True),
            (
                "error: knob VLLM_GONE belongs to the compile key and stands in ignored_factors\n"
                "  at: vllm/envs.py:67\n"
                "  help: take it out of ignored_factors, or declare compile_key = false"
            ),
        ),
    ],
)
def test_names_that_the_file_knows_are_refused(
    old: str, new: str, knob: Knob, expected: str
) -> None:
    assert refusal(SMALL.replace(old, new, 1), Registry.of([knob])) == expected


SHAPE = "\n  help: this release lays envs.py out in another way; teach hq.knobs.envsfile its shape"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "environment_variables: dict[str, Callable[[], Any]] = {",
            "env_vars: dict[str, Callable[[], Any]] = {",
            (
                "error: cannot register knobs: no environment_variables at module level\n"
                "  at: vllm/envs.py\n"
                "  expected: environment_variables: dict[str, Callable[[], Any]] = {…}"
            ),
        ),
        (
            "environment_variables: dict[str, Callable[[], Any]] = {",
            "environment_variables: Any = dict(x=1)\ny = {",
            (
                "error: cannot register knobs: environment_variables is not a dict literal\n"
                "  at: vllm/envs.py:27\n"
                "  expected: environment_variables: … = {…}"
            ),
        ),
        (
            "if TYPE_CHECKING:",
            "if True:",
            (
                "error: cannot register knobs: no annotations under TYPE_CHECKING\n"
                "  at: vllm/envs.py\n"
                "  expected: if TYPE_CHECKING: with NAME: type = default"
            ),
        ),
        (
            "def compile_factors",
            "def factors",
            (
                "error: cannot register knobs: no function compile_factors\n"
                "  at: vllm/envs.py\n"
                "  expected: def compile_factors(…) at module level"
            ),
        ),
        (
            "ignored_factors: set[str]",
            "ignored: set[str]",
            (
                "error: cannot register knobs: no ignored_factors in compile_factors\n"
                "  at: vllm/envs.py:64\n"
                "  expected: ignored_factors: set[str] = {…}"
            ),
        ),
        (
            "ignored_factors: set[str] = {",
            "ignored_factors: set[str] = set()\n    x = {",
            (
                "error: cannot register knobs: ignored_factors is not a set literal\n"
                "  at: vllm/envs.py:65\n"
                "  expected: ignored_factors: set[str] = {…}"
            ),
        ),
        (
            'env.startswith("VLLM_")',
            'env[:5] == "VLLM_"',
            (
                "error: cannot register knobs: 0 tests of a prefix in validate_environ\n"
                "  at: vllm/envs.py:55\n"
                '  expected: one env.startswith("VLLM_") or env.startswith(("VLLM_", …))'
            ),
        ),
        (
            '        "VLLM_GONE",\n    }',
            '        "VLLM_GONE"}',
            (
                "error: cannot register knobs: a literal does not close on a line of its own\n"
                "  at: vllm/envs.py:67\n"
                "  expected: one element a line, then the closing brace"
            ),
        ),
        (
            "def env_with_choices(",
            "def env_choice(",
            (
                "error: cannot register knobs: no function env_with_choices\n"
                "  at: vllm/envs.py\n"
                "  expected: def env_with_choices(…) at module level"
            ),
        ),
        (
            "def is_set(",
            "def env_parsed(",
            (
                "error: cannot register knobs: env_parsed is defined already\n"
                "  at: vllm/envs.py\n"
                "  expected: no attribute env_parsed"
            ),
        ),
    ],
)
def test_another_shape_is_refused(old: str, new: str, expected: str) -> None:
    assert old in SMALL
    assert refusal(SMALL.replace(old, new, 1)) == expected + SHAPE


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(BuildError) as caught:
        made(b"x = 1\ny = '\xff'\n")
    assert caught.value.render() == (
        "error: vllm/envs.py is not Python: not UTF-8\n  at: vllm/envs.py:2"
    )
    with pytest.raises(BuildError) as caught:
        made(b"# coding: latin-1\nx = 1\n")
    assert caught.value.render() == (
        "error: vllm/envs.py is not Python: declared as latin-1, and only UTF-8 is read\n"
        "  at: vllm/envs.py:1"
    )
    with pytest.raises(BuildError) as caught:
        made(b"x = 1\n)\n")
    assert caught.value.where is not None
    assert caught.value.where.line == 2


@pytest.mark.wheel
@pytest.mark.parametrize("version", PINS)
def test_real_releases(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stock = real(version)
    source = made(stock)
    envs = read_envs(source, FILE)
    assert set(envs.variables) == set(read_envs(stock, FILE).variables) | ALL.names()
    # The oracle for positions and names is the ast module.
    tree = ast.parse(source)
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.value, ast.Dict)
        and ast.unparse(node.target) == "environment_variables"
    )
    names = [ast.literal_eval(key) for key in table.keys if key is not None]
    assert len(names) == len(set(names))
    assert set(names) == set(envs.variables)
    module = load(source, monkeypatch)
    warned = unknown_names(module, ["VLLM_ZZ_BOL", "KVARN_ITN"], monkeypatch, caplog)
    assert warned == [
        "Unknown vLLM environment variable detected: KVARN_ITN",
        "Unknown vLLM environment variable detected: VLLM_ZZ_BOL",
    ]
    with pytest.raises(ValueError, match=r"Unknown vLLM environment variable detected: "):
        module.validate_environ(True)
    monkeypatch.delenv("VLLM_ZZ_BOL")
    monkeypatch.delenv("KVARN_ITN")
    stock_factors = load(stock, monkeypatch).compile_factors()
    added = {knob.name for knob in ALL.knobs if knob.compile_key}
    assert set(module.compile_factors()) == set(stock_factors) | added
    check_module(module, ALL, monkeypatch)
