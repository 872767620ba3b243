"""Who may import whom, what a quick answer may load, and what must not stand in the repository."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.project import SampleProject

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "graph" / "hq"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Loaded by the answer of a build in which nothing changed; beside them only what any Python loads.
FAST = {"hq", "hq.__main__", "hq.app", "hq.app.noop", "hq.app.commit"}
SLOW = {
    *("argparse", "asyncio", "concurrent.futures", "dataclasses", "datetime", "difflib", "email"),
    *("hq.app.config", "hq.app.declaration", "hq.app.validate", "inspect", "logging", "networkx"),
    *("pathlib", "pydantic", "rich", "shutil", "socket", "subprocess", "tempfile", "tomlkit"),
    *("tomllib", "traceback", "unittest", "urllib.request", "zipfile", "ast", "csv"),
}
PROGRAM = """
import sys
before = set(sys.modules)
import atexit
sys.argv = ["hq", *{arguments!r}]
from hq.__main__ import main
code = main()
print("\\n".join(sorted(set(sys.modules) - before)), file=sys.stderr)
print("END", file=sys.stderr)
sys.exit(code)
"""


def loaded(project: SampleProject, *arguments: str) -> set[str]:
    """The modules that a command loads, beyond those of a Python that does nothing."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _with_path(project, arguments)],
        cwd=project.root,
        env=project.environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    lines = done.stderr.splitlines()
    assert lines[-1] == "END"
    return {line for line in lines[:-1] if " " not in line}


def _with_path(project: SampleProject, arguments: tuple[str, ...]) -> str:
    place = project.environment()["PYTHONPATH"]
    return f"import sys; sys.path.insert(0, {place!r})\n" + PROGRAM.format(arguments=arguments)


def test_the_import_contracts_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run(
        [program, "--no-cache"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "graph"), "PATH": "/usr/bin:/bin", "NO_COLOR": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_build_without_changes_loads_next_to_nothing(tmp_path: Path) -> None:
    project = SampleProject(tmp_path)
    project.supply()
    project.build()
    found = loaded(project, "build", "--json")
    assert {name for name in found if name.startswith("hq")} == FAST
    assert not found & {"json", "re", "typing", "hashlib", "enum", "threading", *SLOW}


@pytest.mark.parametrize("path", ["patches/first.patch", "over/files/vllm/extra/__init__.py"])
def test_a_small_rebuild_loads_nothing_slow(tmp_path: Path, path: str) -> None:
    project = SampleProject(tmp_path)
    project.supply()
    project.build()
    project.write(path, project.read(path).replace("+line ten", "+line TEN") + "# more\n")
    if path.endswith(".patch"):
        project.write(path, project.read(path).removesuffix("# more\n"))
    found = loaded(project, "build", "--json")
    # An overlay's facts are checked in parsed modules.
    allowed = {"ast"} if path.startswith("over/") else set()
    assert not found & (SLOW - allowed)
    assert "hq.app.build" in found


def imports_of(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Every module that is imported somewhere in a file, with the line and whether at its top."""
    tree = ast.parse(path.read_bytes())
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in top
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno, id(node) in top


def offenders(names: set[str], allowed: set[str]) -> list[str]:
    return [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in MODULES
        for name, line, _ in imports_of(path)
        if name.partition(".")[0] in names and str(path.relative_to(PACKAGE)) not in allowed
    ]


def test_networkx_is_known_to_one_module() -> None:
    assert offenders({"networkx"}, {"plan/graph.py"}) == []


def test_pydantic_reads_what_people_write_and_nothing_else() -> None:
    found = offenders({"pydantic", "pydantic_core"}, set())
    assert found
    assert all(row.startswith("app/") for row in found), found


def test_heavy_packages_load_where_they_are_used() -> None:
    # In these packages; the others are not on the way of a small rebuild.
    quick = {"execute", "knobs", "model", "oci", "patchwork", "plan", "provenance", "rules"}
    quick |= {"store", "wheels"}
    heavy = {"networkx", "rich", "docker", "zstandard", "isal", "deflate", "blake3"}
    assert [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in MODULES
        for name, line, at_top in imports_of(path)
        if at_top and name.partition(".")[0] in heavy and path.parent.name in quick
    ] == []


def test_every_module_says_what_it_is() -> None:
    assert [
        str(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_bytes()))
    ] == []


def test_functions_are_short() -> None:
    lengths = [
        ((node.end_lineno or 0) - node.lineno + 1, f"{path.relative_to(PACKAGE)}:{node.name}")
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    assert [row for row in lengths if row[0] > 77] == []
    assert 4 <= sorted(lengths)[len(lengths) // 2][0] <= 10


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    names = done.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_nothing_names_an_index_or_a_place_on_one_machine() -> None:
    # Put together here, so that this file does not name them.
    words = [
        *("py" + "pi.org", "python" + "hosted.org"),
        *(
            "/root" + "/.pyenv",
            "/tmp" + "/w/",
            "/tmp" + "/pv/",
            "/work" + "/main",
            "/work" + "/shared",
        ),
    ]
    found = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in words if word in text]
    assert found == []


def test_every_test_folder_is_a_package_or_has_names_of_its_own() -> None:
    seen: dict[str, Path] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if (path.parent / "__init__.py").exists():
            continue
        assert path.name not in seen, (path, seen.get(path.name))
        seen[path.name] = path
