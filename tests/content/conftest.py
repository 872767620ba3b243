"""Fixtures of the behaviour tests.

``HQ_CONTENT_PYTHON`` names the interpreter of an environment made from ``requirements.txt`` here;
without it these tests are skipped. The wheels come from ``HQ_TEST_WHEELS`` like those of others.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from . import trees

Observer = Callable[[Path, Sequence[str]], dict[str, Any]]
RUNNER = Path(__file__).parent / "run_behaviours.py"
TOPICS = tuple(sorted(path.stem for path in (RUNNER.parent / "behaviours").glob("*.py")))


def has_observation(topic: str) -> bool:
    """Whether a file of ``behaviours`` is a topic and not a part that topics share."""
    return "\ndef observe(" in (RUNNER.parent / "behaviours" / f"{topic}.py").read_text()


def observe(python: str, tree: Path, topics: Sequence[str]) -> dict[str, Any]:
    """What ``topics`` show of ``tree``, by the interpreter that has torch."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", ""),
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Triton's interpreter stands in for a GPU, and vLLM must not look for one.
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    done = subprocess.run(
        [python, str(RUNNER), *topics], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.fixture(scope="session")
def content_python() -> str:
    python = os.environ.get("HQ_CONTENT_PYTHON")
    if not python:
        pytest.skip("HQ_CONTENT_PYTHON names no interpreter with tests/content/requirements.txt")
    return python


@pytest.fixture(scope="session")
def stock_tree(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def tree(pin: str) -> Path:
        if pin not in made:
            folder = os.environ.get("HQ_TEST_WHEELS", "")
            wheels = sorted(Path(folder).glob(f"vllm-{pin}-*.whl")) if folder else []
            if not wheels:
                pytest.skip(f"no wheel of vllm {pin} in HQ_TEST_WHEELS")
            made[pin] = tmp_path_factory.mktemp("stock") / pin
            trees.unpack(wheels[0], made[pin])
        return made[pin]

    return tree


@pytest.fixture(scope="session")
def patched_tree(
    stock_tree: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def tree(pin: str) -> Path:
        if pin not in made:
            made[pin] = tmp_path_factory.mktemp("patched") / pin
            assert trees.patched(stock_tree(pin), made[pin], trees.series(pin)) == []
        return made[pin]

    return tree


@pytest.fixture(scope="session")
def observed(
    content_python: str,
    stock_tree: Callable[[str], Path],
    patched_tree: Callable[[str], Path],
) -> Callable[[str, str, str], Any]:
    """What a topic shows of a pin, ``stock`` or ``patched``; one process for each tree."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}

    def topic_of(pin: str, state: str, topic: str) -> Any:
        if (pin, state) not in seen:
            tree = stock_tree(pin) if state == "stock" else patched_tree(pin)
            topics = [name for name in TOPICS if has_observation(name)]
            seen[pin, state] = observe(content_python, tree, topics)
        found = seen[pin, state][topic]
        assert "error" not in found, found["error"]
        return found

    return topic_of
