"""What counts as reading a variable, with a plain walk over ``ast`` as the oracle."""

from __future__ import annotations

import ast
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hq.knobs.reads import FileReads, Read, facts, may_read, reads

HEAD = "import os\nimport vllm.envs as envs\n"


def found(source: str, path: str = "vllm/v1/core/x.py") -> list[tuple[str, str, int]]:
    result = reads(path, source.encode())
    assert not result.unreadable
    return [(kind, name, line) for kind, name, line in result.reads]


@pytest.mark.parametrize(
    "expression",
    [
        'os.environ["X"]',
        'os.environ.get("X")',
        'os.environ.get("X", "1")',
        'os.environ.pop("X", None)',
        'os.environ.setdefault("X", "1")',
        '"X" in os.environ',
        '"X" not in os.environ',
        'os.getenv("X")',
        'os.getenv(key="X")',
        'os.environb[b"X"]',
        'os.getenvb(b"X")',
        'os.environ.copy()["X"]',
        'dict(os.environ)["X"]',
        'getattr(os, "environ")["X"]',
        'getattr(os, "getenv")("X")',
        'os.environ.__getitem__("X")',
        'f(lambda: [os.environ["X"] for _ in y])',
        'f"{os.environ["X"]}"'.replace('["X"]', "['X']"),
        'os.environ[\n  "X"\n]',
    ],
)
def test_raw_reads(expression: str) -> None:
    (read,) = found(f"{HEAD}y = ({expression})\n")
    assert read[:2] == ("raw", "X")
    assert 3 <= read[2] <= 4


@pytest.mark.parametrize(
    "source",
    [
        "from os import environ\nenviron['X']",
        "from os import environ as e\ndef f():\n  return e.get('X')",
        "from os import getenv as g\ng('X')",
        "from os import *\nenviron['X']",
        "from os import *\ngetenv('X')",
        "import os as o\no.environ['X']",
        "import os\ne = os.environ\ndef f():\n  if e:\n    return e['X']",
        "import os\ng = os.getenv\ng('X')",
        "import os\nmine = os.environ.copy()\nmine['A'] = '1'\nmine['X']",
        "import os\nmine = dict(os.environ)\n'X' in mine",
        "import os\nif (e := os.environ):\n  e['X']",
        "import os\na = os.environ\nb = a\nc = b\nc['X']",
        "import os\nNAME = 'X'\ndef f():\n  return os.getenv(NAME)",
        "def f():\n  import os\n  class C:\n    x = os.environ['X']",
    ],
)
def test_raw_reads_under_other_names(source: str) -> None:
    assert [read[:2] for read in found(source)] == [("raw", "X")]


@pytest.mark.parametrize(
    "expression",
    [
        "envs.X",
        "envs.X.lower()",
        'getattr(envs, "X")',
        'getattr(envs, "X", None)',
        'hasattr(envs, "X")',
        'envs.is_set("X")',
        'envs.environment_variables["X"]()',
        'envs.environment_variables.get("X")',
        '"X" in envs.environment_variables',
    ],
)
def test_reads_through_envs(expression: str) -> None:
    lines = found(f"{HEAD}y = {expression}\n")
    assert ("envs", "X", 3) in lines
    assert {name for _, name, _ in lines} <= {"X", "is_set", "environment_variables"}


@pytest.mark.parametrize(
    "source",
    [
        "from vllm import envs\nenvs.X",
        "from vllm import envs as e\nf(e.X)",
        "import vllm.envs\nvllm.envs.X",
        "import vllm.envs as e\ne.X",
        "from vllm.envs import X",
        "from vllm.envs import X as y",
        "from ... import envs\nenvs.X",
        "from ...envs import X",
        "from vllm.envs import environment_variables as t\nt['X']",
        "from vllm import envs\ne = envs\ndef f():\n  return e.X",
        "from vllm import envs\nt = envs.environment_variables\nt['X']",
    ],
)
def test_reads_through_envs_under_other_names(source: str) -> None:
    names = {read[:2] for read in found(source)}
    assert ("envs", "X") in names
    assert names <= {("envs", "X"), ("envs", "environment_variables")}


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['X'] = '1'",
        "import os\ndel os.environ['X']",
        "import os\nos.environ.update(X='1')",
        "import os\nfor k in os.environ: pass",
        "import os\ne = os.environ.copy()\ne['X'] = '1'",
        "from .. import envs\nenvs.X",  # another package's envs
        "environ['X']",  # nobody's environ
        "request.environ['X']",
        "envs.X",
        "import os\n# os.environ['X']\n'os.environ[\"X\"]'",
        "from vllm.envs import *",
        "import vllm.envs as envs\nenvs.X = 1",
        "num_envs = 3",
        "",
    ],
)
def test_what_is_no_read(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("os.environ[name]", "name"),
        ("os.getenv(f'A_{n}')", "f'A_{n}'"),
        ("os.environ.get(\n  cls.var,\n)", "cls.var"),
        ("name in os.environ", "name"),
        ("os.getenv('A' +\n   b)", "'A' + b"),
    ],
)
def test_computed_names(expression: str, name: str) -> None:
    assert [read[:2] for read in found(f"{HEAD}y = ({expression})\n")] == [("dynamic", name)]


def test_a_constant_that_changes_is_computed() -> None:
    assert found("import os\nN = 'A'\nN = 'B'\nos.getenv(N)") == [("dynamic", "N", 4)]


def test_lines_are_those_of_the_file() -> None:
    source = b"\xef\xbb\xbfimport os\r\n\r\nx = '''\r\n'''\r\rtext = os.getenv('X')\r\n"
    assert reads("a.py", source).reads == (Read("raw", "X", 6),)
    source = "# é\nimport os\nx = 'é', os.getenv(y)\n".encode()
    assert reads("a.py", source).reads == (Read("dynamic", "y", 3),)


def test_what_cannot_be_parsed_says_so() -> None:
    broken = reads("a.py", b"import os\nos.environ[\n")
    assert (broken.path, broken.reads) == ("a.py", ())
    assert broken.unreadable
    assert reads("a.py", b"# environ\nx = \xff").unreadable == "not UTF-8"
    assert reads("a.py", b"environ = \0").unreadable
    assert reads("a.py", b"environ" + b"(" * 5000).unreadable
    assert facts("a.py", None, b"environ[") == [("unreadable", "", 1, 1)]
    # Without a word that matters, nothing is parsed.
    assert reads("a.py", b"this is no python") == FileReads("a.py")


def test_stray_backslashes_make_no_noise(recwarn: pytest.WarningsRecorder) -> None:
    assert found("import os\nos.getenv('X'); '\\d'") == [("raw", "X", 2)]
    assert not recwarn.list


def test_facts_compare_with_the_file_before() -> None:
    before = b"import os\nos.getenv('A')\nos.getenv('B')\nos.getenv(c)\n"
    after = (
        b"import os\n\n\nos.getenv('A')\nos.getenv('A')\nos.getenv(c)\nfrom vllm.envs import D\n"
    )
    rows = [("dynamic", "c", 1, 0), ("envs", "D", 1, 1), ("raw", "A", 2, 1)]
    assert facts("vllm/x.py", before, after) == rows
    # Moving every read changes nothing.
    assert facts("vllm/x.py", before, b"# moved\n" + after) == rows
    assert facts("vllm/x.py", None, after) == [
        (kind, name, count, count) for kind, name, count, _ in rows
    ]
    assert facts("vllm/x.py", before, None) == []
    assert facts("vllm/x.txt", None, after) == []


WORDS = ["os", "environ", "getenv", "envs", "vllm", "get", "X", "e", "'X'", "dict", "copy", "f"]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.sampled_from([
            *WORDS, ".", "[", "]", "(", ")", "=", " in ", "\n", "\n ", "import ", "from ", ",",
            "def f():", "lambda:", "if e:",
        ]),
        max_size=25,
    )
)  # fmt: skip
def test_any_text_is_read_or_refused(parts: list[str]) -> None:
    source = "".join(parts)
    result = reads("vllm/a.py", source.encode())
    if not result.unreadable and may_read(source.encode()):
        lines = source.count("\n") + 1
        assert all(1 <= read.line <= lines for read in result.reads)
        assert list(result.reads) == sorted(result.reads)


def _oracle(source: bytes) -> set[tuple[str, int]]:
    """Direct raw reads and direct reads of ``envs.NAME``, by a full walk."""
    reads_found: set[tuple[str, int]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            of, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.args
            and node.func.attr in ("get", "getenv", "setdefault", "pop")
        ):
            of = node.func if node.func.attr == "getenv" else node.func.value
            key = node.args[0]
        else:
            continue
        if ast.unparse(of) in ("os.environ", "os.getenv") and isinstance(key, ast.Constant):
            reads_found.add((key.value, node.lineno if of is not node else key.lineno))
    return reads_found


@pytest.mark.wheel
@pytest.mark.slow
def test_a_real_wheel_by_a_full_walk() -> None:
    folder = os.environ.get("HQ_TEST_WHEELS", "")
    wheels = sorted(Path(folder).glob("vllm-0.29.0-*.whl")) if folder else []
    if not wheels:
        pytest.skip("HQ_TEST_WHEELS names no folder with vLLM wheels")
    checked = 0
    with zipfile.ZipFile(wheels[0]) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".py"):
                continue
            source = archive.read(name)
            result = reads(name, source)
            assert not result.unreadable
            if not may_read(source):
                assert b"os.environ" not in source
                assert b"getenv" not in source
                continue
            expected = {text for text, _ in _oracle(source)}
            names = {read.name for read in result.reads if read.kind == "raw"}
            assert expected <= names, name
            checked += len(expected)
    assert checked > 100
