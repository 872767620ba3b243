"""The wrapper at the root of a checkout makes its environment, wherever the checkout is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

# An interpreter that writes down what it is asked for, one argument a line. As ``-m venv`` it puts
# itself into the environment, so the command at the end is asked of it, too.
STUB = """\
#!/bin/sh
last=
for argument in "$@"; do last=$argument; done
printf '%s\\n' run "$@" >>"$0.log"
case "$*" in
    "-m venv --clear --without-pip"*) mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
    "-m venv"*) [ -z "$HQ_STUB_NO_PIP" ] && mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
esac
"""
OPTIONS = [
    *("install", "--quiet", "--disable-pip-version-check", "--no-input"),
    *("--require-hashes", "--only-binary", ":all:"),
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose path has blanks, a star and a quote, with an interpreter beside it."""
    root = tmp_path / "my  hq * it's"
    (root / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "hq", root)
    shutil.copy(ROOT / "tools/make-environment.sh", root / "tools")
    (root / "requirements.txt").write_text("")
    (root / "more.txt").write_text("")
    (root / "a python").write_text(STUB)
    (root / "a python").chmod(0o755)
    return root


def run(root: Path, *command: str, no_pip: str = "") -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "HQ_PYTHON": str(root / "a python"),
        "HQ_STUB_NO_PIP": no_pip,
    }
    return subprocess.run(
        [str(root / "hq"), *command] if command[:1] != ("sh",) else command,
        env=environment,
        cwd="/",
        check=False,
        capture_output=True,
        text=True,
    )


def calls(log: Path) -> list[list[str]]:
    """The commands that an interpreter was given, without its questions for the version."""
    found: list[list[str]] = []
    for line in log.read_text().splitlines():
        if line == "run":
            found.append([])
        else:
            found[-1].append(line)
    return [call for call in found if call[0] != "-c"]


def test_blanks_in_the_path_of_the_checkout(checkout: Path) -> None:
    done = run(checkout, "build", "--output", "a folder")
    environment = checkout / ".hq/environment"
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"hq: making its environment in {environment} (once)\n"
    assert calls(checkout / "a python.log") == [["-m", "venv", "--clear", str(environment)]]
    install, start = calls(environment / "bin/python.log")
    assert install == ["-m", "pip", *OPTIONS, "--requirement", f"{checkout}/requirements.txt"]
    main = f"{checkout}/graph/hq/__main__.py"
    assert start == ["-I", "-S", "-X", "utf8", main, "build", "--output", "a folder"]


def test_a_second_start_makes_nothing(checkout: Path) -> None:
    run(checkout, "build")
    done = run(checkout, "build")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(calls(checkout / "a python.log")) == 1


def test_several_files_and_an_interpreter_without_pip(checkout: Path) -> None:
    files = [f"{checkout}/requirements.txt", f"{checkout}/more.txt"]
    environment = f"{checkout}/an environment"
    script = f"{checkout}/tools/make-environment.sh"
    done = run(checkout, "sh", script, environment, *files, no_pip="1")
    assert (done.returncode, done.stdout) == (0, "")
    install = calls(checkout / "a python.log")[-1]
    assert install == [
        *("-m", "pip", "--python", f"{environment}/bin/python"),
        *(*OPTIONS, "--requirement", files[0], "--requirement", files[1]),
    ]


def test_a_failed_install_names_its_log(checkout: Path) -> None:
    failing = '#!/bin/sh\ncase "$*" in "-m pip"*) echo "no index"; exit 1 ;; esac\n'
    (checkout / "a python").write_text(failing + STUB.removeprefix("#!/bin/sh\n"))
    done = run(checkout, "build")
    environment = checkout / ".hq/environment"
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"hq: making its environment in {environment} (once)\n"
        "no index\n"
        "error: hq's own packages could not be installed\n"
        "  help: pip must reach a package index; see 'pip config list' and "
        f"{environment}.log\n"
    )


@pytest.mark.slow
def test_a_true_environment_below_a_path_with_blanks(tmp_path: Path) -> None:
    root = tmp_path / "my hq"
    for name in ("hq", "requirements.txt"):
        root.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "tools", root / "tools")
    shutil.copytree(ROOT / "graph", root / "graph", ignore=shutil.ignore_patterns("__pycache__"))
    command = [str(root / "hq"), "--version"]
    environment = {**os.environ, "HQ_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:3]) == (0, "hq "), done.stderr
