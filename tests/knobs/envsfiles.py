"""``envs.py`` files for the tests: a small one of vLLM's shape, and those of real wheels."""

from __future__ import annotations

import os
import sys
import types
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SMALL = '''\
import functools
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    VLLM_PORT: int | None = None
    VLLM_QUIET: bool = False
    """A string stands here."""

logger = logging.getLogger(__name__)


def env_with_choices(
    env_name: str, default: str | None, choices: list[str]
) -> Callable[[], str | None]:
    def _get() -> str | None:
        value = os.getenv(env_name, default)
        if value is not None and value not in choices:
            raise ValueError(f"Invalid value '{value}' for {env_name}.")
        return value

    return _get


environment_variables: dict[str, Callable[[], Any]] = {
    # A port.
    "VLLM_PORT": lambda: int(os.getenv("VLLM_PORT", "0")) or None,
    "VLLM_QUIET": (
        lambda: bool(int(os.getenv("VLLM_QUIET", "0")))  # } not the end
    ),
}


def __getattr__(name: str):
    if name in environment_variables:
        return environment_variables[name]()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enable_envs_cache() -> None:
    global __getattr__
    __getattr__ = functools.cache(__getattr__)
    for key in environment_variables:
        __getattr__(key)


def is_set(name: str):
    if name in environment_variables:
        return name in os.environ
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def validate_environ(hard_fail: bool) -> None:
    for env in os.environ:
        if env.startswith("VLLM_") and env not in environment_variables:
            if hard_fail:
                raise ValueError(f"Unknown vLLM environment variable detected: {env}")
            else:
                logger.warning("Unknown vLLM environment variable detected: %s", env)


def compile_factors() -> dict[str, object]:
    ignored_factors: set[str] = {
        "VLLM_PORT",
        "VLLM_GONE",
    }

    from vllm.config.utils import normalize_value

    return {
        name: normalize_value(getter())
        for name, getter in environment_variables.items()
        if name not in ignored_factors
    }
'''

PINS = ("0.28.0", "0.29.0", "0.30.0")


@cache
def real(version: str) -> bytes:
    """``vllm/envs.py`` of the wheel of ``version`` in the folder ``HQ_TEST_WHEELS``."""
    folder = os.environ.get("HQ_TEST_WHEELS", "")
    if not folder:
        pytest.skip("HQ_TEST_WHEELS names no folder with vLLM wheels")
    wheels = sorted(Path(folder).glob(f"vllm-{version}-*.whl"))
    if not wheels:
        pytest.skip(f"no wheel of vLLM {version} in HQ_TEST_WHEELS")
    with zipfile.ZipFile(wheels[0]) as archive:
        return archive.read("vllm/envs.py")


def load(source: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, run here, with a stand-in for ``vllm.config.utils.normalize_value``.

    The stand-in takes what the real one takes first: ``None``, bool, int, float and text, and
    containers of them.
    """

    def normalize_value(value: object) -> object:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        assert isinstance(value, (list, set, tuple, dict)), value
        return repr(value)

    stand_ins: dict[str, dict[str, object]] = {
        "vllm": {},
        "vllm.config": {},
        "vllm.config.utils": {"normalize_value": normalize_value},
        "vllm.utils": {},
        "torch": {"version": types.SimpleNamespace(hip=None)},
        "vllm.utils.torch_utils": {"is_torch_equal_or_newer": lambda _: True},
    }
    for name, members in stand_ins.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    loaded = types.ModuleType("vllm.envs")
    loaded.__file__ = "envs.py"
    monkeypatch.setitem(sys.modules, "vllm.envs", loaded)
    exec(compile(source, "envs.py", "exec"), loaded.__dict__)
    return loaded
