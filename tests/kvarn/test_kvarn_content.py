"""KVarN where torch is: the method and kernels by themselves, then inside patched trees of vLLM.

``HQ_CONTENT_PYTHON`` names an interpreter with ``tests/content/requirements.txt``. The checks under
``under_torch`` run in it under its own pytest; ``under_vllm`` prints what it sees of a tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from content import trees
from hq.app.knobsfile import load_registry
from hq.knobs.generate import generate

pytestmark = [pytest.mark.content]

HERE = Path(__file__).parent
KVARN = HERE.parents[1] / "kvarn"
PINS = ("0.29.0", "0.28.0")
CHECKS = sorted(path.name for path in (HERE / "under_torch").glob("check_*.py"))
REFUSED = "KVarN needs a KV cache whose heads are outside its tokens (LBHNC)"


def _environment(path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", ""),
        "PYTHONPATH": str(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Triton's interpreter stands in for a GPU, and vLLM must not look for one.
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }


@pytest.fixture(scope="session")
def torch_python() -> str:
    python = os.environ.get("HQ_CONTENT_PYTHON")
    if not python:
        pytest.skip("HQ_CONTENT_PYTHON names no interpreter with tests/content/requirements.txt")
    return python


@pytest.mark.parametrize("name", CHECKS)
def test_without_vllm(torch_python: str, name: str) -> None:
    command = [
        *(torch_python, "-m", "pytest", "-q", "-c", os.devnull, "--noconftest", "-W", "error"),
        *("-p", "no:cacheprovider", str(HERE / "under_torch" / name)),
    ]
    done = subprocess.run(
        command, env=_environment(HERE), cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def _stock(pin: str, tree: Path) -> Path:
    folder = os.environ.get("HQ_TEST_WHEELS", "")
    wheels = sorted(Path(folder).glob(f"vllm-{pin}-*.whl")) if folder else []
    if not wheels:
        pytest.skip(f"no wheel of vllm {pin} in HQ_TEST_WHEELS")
    trees.unpack(wheels[0], tree)
    return tree


def _series(pin: str) -> list[Path]:
    lines = (KVARN / "patches" / f"series-{pin}").read_text().splitlines()
    return [KVARN / "patches" / line for line in lines if line and line[0] != "#"]


def _with_kvarn(stock: Path, pin: str, tree: Path, patches: list[Path]) -> Path:
    """The series, the overlay's files and ``patches``, and the knobs of both."""
    shutil.copytree(stock, tree)
    series = trees.series(pin)
    assert all(trees.apply(patch, tree) for patch in series)
    shutil.copytree(KVARN / "files", tree, dirs_exist_ok=True)
    assert all(trees.apply(patch, tree) for patch in patches)
    registry = load_registry("knobs.toml", (trees.PATCHES / "knobs.toml").read_bytes())
    owners = {"overlay:kvarn", *(f"patch:{patch.stem}" for patch in series)}
    envs = tree / "vllm" / "envs.py"
    envs.write_bytes(generate(envs.read_bytes(), registry.owned_by(owners), "vllm/envs.py"))
    return tree


@pytest.fixture(scope="session")
def seen(
    torch_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], dict[str, Any]]:
    """What a tree of a pin shows: ``stock``, ``built``, or ``registered``: no runner patch."""
    found: dict[tuple[str, str], dict[str, Any]] = {}

    def look(pin: str, state: str) -> dict[str, Any]:
        if (pin, state) not in found:
            folder = tmp_path_factory.mktemp(f"kvarn-{state}")
            tree = _stock(pin, folder / "stock")
            if state != "stock":
                patches = _series(pin)[: 1 if state == "registered" else 2]
                tree = _with_kvarn(tree, pin, folder / "built", patches)
            done = subprocess.run(
                [torch_python, str(HERE / "under_vllm" / "observe_kvarn.py")],
                env=_environment(tree),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-4000:]
            found[pin, state] = json.loads(done.stdout.splitlines()[-1])
        return found[pin, state]

    return look


Seen = Callable[[str, str], dict[str, Any]]


@pytest.mark.parametrize("pin", PINS)
def test_the_parser_takes_the_dtype_that_stock_refuses(seen: Seen, pin: str) -> None:
    stock, built = seen(pin, "stock")["parser"], seen(pin, "built")["parser"]
    assert stock["kvarn_k4v2_g128"] == 2
    assert built["kvarn_k4v2_g128"] == "kvarn_k4v2_g128"
    assert built["kvarn_k4v2_g64"] == stock["kvarn_k4v2_g64"] == 2
    assert built["fp8"] == stock["fp8"] == "fp8"


@pytest.mark.parametrize("pin", PINS)
def test_the_dtype_has_a_backend_and_nothing_else_changes(seen: Seen, pin: str) -> None:
    assert "KVARN" not in str(seen(pin, "stock")["registration"].get("backend"))
    built = seen(pin, "built")["registration"]
    assert built["backend"] == "KVARN"
    assert built["mode"] == "KVARN_K4V2_G128"
    assert built["torch"] == "torch.uint8"
    assert built["takes"] == [True, False, False, False]
    assert built["others"] == [False, False, False]
    assert built["preferred block"] == 128
    assert built["blocks"] == [False, True, True]
    assert built["heads"] == [True, False, True, True]


@pytest.mark.parametrize("pin", PINS)
def test_pages_have_the_bytes_of_the_formula(seen: Seen, pin: str) -> None:
    assert seen(pin, "built")["page"] == {
        "a tile": 26_880,
        "a block": 17 * 4 * 26_880,
        "a token": 4 * 210,
        "another dtype": None,
    }


def test_the_declared_layout_folds_and_a_wrong_one_is_refused(seen: Seen) -> None:
    built = seen("0.29.0", "built")
    assert built["registration"]["layouts"] == ["LBHNC"]
    folds = [3, 2, 26_880, True]
    assert built["layouts"] == {
        "LBHNC": folds,
        "LBNHC": REFUSED,
        "LHBNC": folds,
        "BLHNC": folds,
        "BLNHC": REFUSED,
        "BHLNC": folds,
    }


def test_shape_and_stride_order_say_the_same_at_0_28(seen: Seen) -> None:
    built = seen("0.28.0", "built")
    assert built["registration"]["shape"] == [6, 2, 128, 210]
    assert built["registration"]["order"] == [0, 1, 2, 3]
    assert built["layouts"] == {"shape and stride order": [6, 2, 26_880, True]}


@pytest.mark.parametrize("pin", PINS)
def test_a_layer_prefills_and_decodes_through_the_backend(seen: Seen, pin: str) -> None:
    layer = seen(pin, "built")["layer"]
    refusal = layer.pop("without rows")
    assert refusal.startswith("KVarN got a batch without the runner's rows for a: ")
    assert layer == {
        "prefill is exact": True,
        "decode in fp16": True,
        "flushed": [2],
        "pages written": [True, True, False, False],
        "decode from tiles": True,
    }


@pytest.mark.parametrize("pin", PINS)
def test_a_drafters_layers_share_the_page(seen: Seen, pin: str) -> None:
    """The runner asks for the longest block that fits, whether or not the core would promote it."""
    assert seen(pin, "registered")["sliding"]["asked"] == 16
    built = seen(pin, "built")["sliding"]
    assert built["asked"] == 272
    assert built["pages"] == [1_827_840, 1_827_840]
    assert built["blocks"] == [2176, 272]
    assert 2176 % built["blocks"][1] == 0
    assert built["blocks"][1] <= built["tokens of a page"]


@pytest.mark.parametrize("pin", PINS)
def test_builders_get_rows_and_hear_of_new_requests(seen: Seen, pin: str) -> None:
    built, registered = seen(pin, "built"), seen(pin, "registered")
    assert built["rows_of_a_batch"] == [7]
    assert built["new_rows"] == [0, 2]
    assert "req_rows" in registered["rows_of_a_batch"]["error"]
    assert registered["new_rows"] == []


@pytest.mark.parametrize("pin", PINS)
def test_mamba_uses_its_own_block(seen: Seen, pin: str) -> None:
    assert seen(pin, "stock")["mamba_row"] == 1
    assert seen(pin, "registered")["mamba_row"] == 1
    assert seen(pin, "built")["mamba_row"] == 3


@pytest.mark.parametrize("pin", PINS)
def test_the_selector_stays_inside_its_tables(seen: Seen, pin: str) -> None:
    stock, built = seen(pin, "stock")["selector"], seen(pin, "built")["selector"]
    assert built["numbers"] == stock["numbers"] == [[1, 5]]
    assert stock["one is NaN"] == [[2, 6]]
    assert built["one is NaN"] == [[1, 5]]
    assert (stock["written outside"], built["written outside"]) == (True, False)
    assert (stock["NaN cached"], built["NaN cached"]) == (True, False)
