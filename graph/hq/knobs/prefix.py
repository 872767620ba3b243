"""vLLM's own prefix, by itself: who needs no more should not load the registry's rules."""

from __future__ import annotations

from typing import Final

STOCK_PREFIX: Final = "VLLM_"
"""vLLM's own prefix: registered always, and its own variables are not the fork's."""
