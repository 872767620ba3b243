"""The drafter's block and what a request can hold, with a cache whose page it does not divide."""

from __future__ import annotations

import os
from typing import Any

import hybrid_model


def observe() -> dict[str, Any]:
    # The rule that chooses the group size is another patch's, and is kept out of this.
    os.environ["VLLM_HYBRID_KV_MAX_GROUPS"] = "0"
    layers = hybrid_model.specs("int8")
    seen: dict[str, Any] = {"int8": hybrid_model.plan(layers, "dflash")}
    os.environ["VLLM_HYBRID_SW_BLOCK_PROMOTE"] = "0"
    seen["off"] = hybrid_model.plan(layers, "dflash")
    del os.environ["VLLM_HYBRID_SW_BLOCK_PROMOTE"], os.environ["VLLM_HYBRID_KV_MAX_GROUPS"]
    return seen
