"""What all tests share: real wheels on demand, and skips that count as failures where they must.

``HQ_TEST_WHEELS`` names a folder with vLLM wheels. Unset, the wheels are fetched once, through the
user's own pip configuration, when a selected test needs one.
``HQ_TEST_NO_SKIP=1`` (continuous integration) turns every skip into a failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
WHEEL_VERSIONS = ("0.28.0", "0.29.0", "0.30.0")

settings.register_profile(
    "hq", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("hq")

# A shell starts what it runs in the background with Ctrl-C ignored, and so would every program that
# a test starts and interrupts: the tests must not depend on how they were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fetches the wheels if a test that needs one was selected."""
    if os.environ.get("HQ_TEST_WHEELS"):
        return
    if any(
        item.get_closest_marker("wheel") or item.get_closest_marker("content") for item in items
    ):
        folder = ROOT / ".hq" / "test-wheels"
        missing = [v for v in WHEEL_VERSIONS if not list(folder.glob(f"vllm-{v}-*.whl"))]
        if all(_download(version, folder) for version in missing):
            os.environ["HQ_TEST_WHEELS"] = str(folder)


def _download(version: str, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)),
        *("--only-binary", ":all:", "--python-version", "3.13"),
        *("--platform", "manylinux_2_31_x86_64", "--platform", "manylinux_2_28_x86_64"),
        f"vllm=={version}",
    ]
    return subprocess.run(command, check=False, stdout=sys.stderr).returncode == 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Makes a skip a failure under ``HQ_TEST_NO_SKIP``."""
    report: pytest.TestReport = yield  # type: ignore[assignment,misc]
    if report.skipped and os.environ.get("HQ_TEST_NO_SKIP") == "1":
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"a skip counts as a failure here: {reason}"
    return report  # type: ignore[return-value]  # what the hook expects


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HQ_STORE", "SOURCE_DATE_EPOCH", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
