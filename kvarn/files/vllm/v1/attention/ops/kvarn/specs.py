# SPDX-License-Identifier: Apache-2.0
"""Block and page sizes of native sliding-window layers beside KVarN's.

Every layer of one block pool has the same page size in bytes.  A drafter's
sliding-window layer keeps its native dtype, so a token of it costs several
times what KVarN's does.  Its block is therefore made as long as still fits the
primary page, but only a divisor of the primary block (prefix-cache hits end on
multiples of both), and its page is padded to the primary one.
"""

from dataclasses import replace
from typing import Any

KERNEL_BLOCK = 16
"""Native attention kernels take blocks of any multiple of this."""


def native_block_size(primary_block: int, primary_page: int, bytes_per_token: int) -> int | None:
    """The longest block, in tokens, that divides the primary block and fits its page.

    None when not even the smallest kernel block fits.
    """
    most = primary_page // bytes_per_token
    fitting = (
        size
        for size in range(KERNEL_BLOCK, min(most, primary_block) + 1, KERNEL_BLOCK)
        if primary_block % size == 0
    )
    return max(fitting, default=None)


def align_native_sliding(specs: dict[str, Any]) -> dict[str, Any]:
    """Pad native sliding-window specs to the page of the quantized layers.

    ``specs`` maps layer names to vLLM's KV cache specs.  Specs that already have
    a padded page, and models without a quantized layer, are left as they are.
    """
    primary = [
        spec
        for spec in specs.values()
        if getattr(getattr(spec, "kv_quant_mode", None), "is_kvarn", False)
        and getattr(spec, "sliding_window", None) is None
    ]
    if not primary:
        return specs
    block = primary[0].block_size
    page = primary[0].page_size_bytes
    return {name: _aligned(spec, block, page) for name, spec in specs.items()}


def _aligned(spec: Any, block: int, page: int) -> Any:
    if getattr(spec, "sliding_window", None) is None or spec.kv_quant_mode.is_kvarn:
        return spec
    if spec.page_size_padded is not None:
        return spec
    per_token = spec.unpadded_page_size_bytes // spec.block_size
    size = native_block_size(block, page, per_token)
    if size is None:
        return spec
    return replace(spec, block_size=size, page_size_padded=page)
