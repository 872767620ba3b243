"""Which layers get int8 activations when Marlin is asked for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm.model_executor.layers.quantization.utils.marlin_utils import get_marlin_input_dtype

LAYERS = (
    "model.layers.0.mlp.gate_up_proj",
    "model.layers.0.self_attn.qkv_proj",
    "lm_head",
    "language_model.lm_head",
    "mtp.layers.0.mlp.down_proj",
    "model.layers.3.mtp_gate",
    None,
)


@contextmanager
def _exported(**values: str) -> Iterator[None]:
    os.environ.update(values)
    yield
    for name in values:
        del os.environ[name]


def _selected() -> list[str | None]:
    return [name for name in LAYERS if get_marlin_input_dtype(name) is not None]


def observe() -> dict[str, Any]:
    os.environ["VLLM_MARLIN_INPUT_DTYPE"] = "int8"
    seen: dict[str, Any] = {"default": _selected()}
    with _exported(VLLM_MARLIN_INT8_EXCLUDE=""):
        seen["nothing excluded"] = _selected()
    with _exported(VLLM_MARLIN_INT8_INCLUDE=r"\.mlp\."):
        seen["only the mlp"] = _selected()
    with _exported(VLLM_MARLIN_INT8_INCLUDE="("):
        try:
            seen["bad pattern"] = _selected()
        except ValueError as error:
            seen["bad pattern"] = str(error)
    os.environ["VLLM_MARLIN_INPUT_DTYPE"] = "int8"
    del os.environ["VLLM_MARLIN_INPUT_DTYPE"]
    seen["not asked for"] = _selected()
    return seen
