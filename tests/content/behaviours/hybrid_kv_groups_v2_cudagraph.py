"""How the layers of a hybrid model with a drafter are grouped, and what that holds."""

from __future__ import annotations

import os
from typing import Any

import hybrid_model


def observe() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for kv in ("bf16", "int8"):
        seen[kv] = hybrid_model.plan(hybrid_model.specs(kv), "dflash")
    os.environ["VLLM_HYBRID_SW_BLOCK_PROMOTE"] = "0"
    seen["int8, small drafter blocks"] = hybrid_model.plan(hybrid_model.specs("int8"), "dflash")
    del os.environ["VLLM_HYBRID_SW_BLOCK_PROMOTE"]
    seen["no drafter"] = hybrid_model.plan(hybrid_model.specs("bf16", draft_layers=0), None)
    for limit in (0, 9, 12, 40):
        os.environ["VLLM_HYBRID_KV_MAX_GROUPS"] = str(limit)
        plan = hybrid_model.plan(hybrid_model.specs("bf16"), "dflash")
        seen[f"at most {limit}"] = [plan["groups"], plan["width"]]
    del os.environ["VLLM_HYBRID_KV_MAX_GROUPS"]
    return seen
