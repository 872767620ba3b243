"""Each patch: the stock tree shows the fault, and the patched tree does not.

What a topic observes is in ``behaviours/``; what it must observe is here, for the stock and for the
patched tree, pin by pin where they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import trees
from .conftest import observe

pytestmark = [pytest.mark.content]

Observed = Callable[[str, str, str], Any]
PINS = tuple(trees.PINS)


@pytest.mark.parametrize("pin", PINS)
def test_a_run_precedes_the_measured_window(observed: Observed, pin: str) -> None:
    """memory-profile-after-warmup."""
    stock = observed(pin, "stock", "memory_profile_after_warmup")
    patched = observed(pin, "patched", "memory_profile_after_warmup")
    assert stock["default"] == ["open", "run", "close"]
    assert patched["default"] == ["run", "synchronize", "empty_cache", "open", "run", "close"]
    assert patched["off"] == stock["default"]


@pytest.mark.parametrize("pin", PINS)
def test_the_allocator_says_what_graphs_took(observed: Observed, pin: str) -> None:
    """cudagraph-memory-from-allocator: the driver's figure fell by 5.44 GiB for a pool of 0.23."""
    has_estimate = pin != "0.28.0"
    stock = observed(pin, "stock", "cudagraph_memory_from_allocator")
    assert stock["capture_model"] == 5.44
    assert stock["samples"] == ([5.44] if has_estimate else None)
    patched = observed(pin, "patched", "cudagraph_memory_from_allocator")
    assert patched["capture_model"] == 0.23
    assert patched["samples"] == ([0.23] if has_estimate else None)
    assert patched["by the driver"] == 5.44


@pytest.mark.parametrize("pin", PINS)
def test_states_before_a_gap_are_freed(observed: Observed, pin: str) -> None:
    """mamba-align-retire-null-gaps."""
    stock = observed(pin, "stock", "mamba_align_retire_null_gaps")
    assert stock["gaps"] == {"freed": 0, "left": "s..s.s"}
    assert stock["long prefill"] == 12
    patched = observed(pin, "patched", "mamba_align_retire_null_gaps")
    assert patched["gaps"] == {"freed": 2, "left": ".....s"}
    assert patched["long prefill"] == 1
    assert patched["no gaps"] == stock["no gaps"] == {"freed": 5, "left": ".....s"}
    # The real manager with one step in flight: 1,000 tokens in chunks of four blocks.
    assert stock["conversation"] == {"states": 16, "free": 199}
    assert patched["conversation"] == {"states": 3, "free": 199}
    assert patched["looks"], "the walk must not grow with the square of the request"
    assert patched["released"] == [31, 31, 31], "a later request must start at block 0 again"


@pytest.mark.parametrize("pin", PINS)
def test_the_newest_snapshots_outlive_pressure(observed: Observed, pin: str) -> None:
    """mamba-align-checkpoint-order."""
    stock = observed(pin, "stock", "mamba_align_checkpoint_order")
    assert stock["under pressure"] == "xxxxx"
    assert stock["evicted in order"] == [0, 1, 2, 3, 4, 100, 101]
    patched = observed(pin, "patched", "mamba_align_checkpoint_order")
    assert patched["under pressure"] == "xxsss"
    assert patched["evicted in order"] == [0, 1, 100, 101, 4, 3, 2]
    assert patched["soft"] == [12, 2, 14], "the hold must be given up on demand, but for a hit"
    assert patched["make room"] == [True, True, False, True, False]
    assert patched["off"] == "xxxxx"
    # Hit tokens of a second turn of 600 after a request of another 400, 760, ... tokens.
    assert list(stock["second turn"].values()) == [576, 0, 0, 0, 0]
    assert list(patched["second turn"].values()) == [576, 448, 384, 0, 0]
    assert patched["full pool"] == stock["full pool"] == [0, 576], "nobody waits for a held block"


@pytest.mark.parametrize("pin", PINS)
def test_a_drafters_block_grows_before_its_page_is_padded(observed: Observed, pin: str) -> None:
    """hybrid-sw-block-promote: what a request can hold more than quintuples."""
    small = {"capacity": 23744, "groups": 15, "width": 5, "draft block": 16, "primary block": 1696}
    stock = observed(pin, "stock", "hybrid_sw_block_promote")
    assert stock["int8"] == small
    patched = observed(pin, "patched", "hybrid_sw_block_promote")
    assert patched["int8"] == small | {"capacity": 130592, "draft block": 848}
    assert 1696 % patched["int8"]["draft block"] == 0
    assert patched["off"] == small


@pytest.mark.parametrize("pin", PINS)
def test_the_group_size_is_the_cheapest(observed: Observed, pin: str) -> None:
    """hybrid-kv-groups-v2-cudagraph."""
    stock = observed(pin, "stock", "hybrid_kv_groups_v2_cudagraph")
    assert [stock["bf16"][key] for key in ("capacity", "groups", "width")] == [65664, 15, 5]
    patched = observed(pin, "patched", "hybrid_kv_groups_v2_cudagraph")
    assert [patched["bf16"][key] for key in ("capacity", "groups", "width")] == [82080, 9, 8]
    assert [patched["int8"][key] for key in ("capacity", "groups", "width")] == [161120, 9, 8]
    assert patched["no drafter"] == stock["no drafter"]
    limits = {limit: patched[f"at most {limit}"] for limit in (0, 9, 12, 40)}
    assert limits == {0: [15, 5], 9: [9, 8], 12: [9, 8], 40: [35, 2]}
    # A fixed size of 8 would cost a cache whose drafter keeps small blocks; the rule must not.
    before = stock["int8, small drafter blocks"]["capacity"]
    assert patched["int8, small drafter blocks"]["capacity"] >= before


@pytest.mark.parametrize("pin", PINS)
def test_dflash_counts_its_own_groups_only(observed: Observed, pin: str) -> None:
    """offload-dflash-eagle-groups."""
    stock = observed(pin, "stock", "offload_dflash_eagle_groups")
    patched = observed(pin, "patched", "offload_dflash_eagle_groups")
    assert stock["dflash"] == [True, True, True]
    assert patched["dflash"] == [False, False, True]
    for same in ("dflash without a window", "eagle", "none"):
        assert patched[same] == stock[same]


@pytest.mark.parametrize("pin", PINS)
def test_stored_hits_are_served_under_mtp(observed: Observed, pin: str) -> None:
    """offload-mtp-serve."""
    stock = observed(pin, "stock", "offload_mtp_serve")
    patched = observed(pin, "patched", "offload_mtp_serve")
    assert (stock["states apart"], patched["states apart"]) == (0, 7 * 16)
    for same in ("a state at the end only", "no state", "without a drafter"):
        assert patched[same] == stock[same]
    # The last sampled token has no KV, so a chunk that ends on it is not whole.
    for cut in ("ends on a boundary", "stopped in a draft"):
        assert (stock[cut], patched[cut]) == ([0, 1, 2, 3], [0, 1, 2])
    assert patched["ends past a boundary"] == [0, 1, 2, 3]


@pytest.mark.parametrize("pin", PINS)
def test_int8_layers_are_chosen_by_name(observed: Observed, pin: str) -> None:
    """marlin-int8-layer-select."""
    stock = observed(pin, "stock", "marlin_int8_layer_select")
    patched = observed(pin, "patched", "marlin_int8_layer_select")
    left_out = {"lm_head", "language_model.lm_head", "mtp.layers.0.mlp.down_proj"}
    assert left_out < set(stock["default"])
    assert patched["default"] == [name for name in stock["default"] if name not in left_out]
    assert patched["nothing excluded"] == stock["default"]
    assert patched["only the mlp"] == ["model.layers.0.mlp.gate_up_proj"]
    assert patched["bad pattern"] == (
        "VLLM_MARLIN_INT8_INCLUDE='(' is not a regular expression: "
        "missing ), unterminated subpattern at position 0"
    )
    assert patched["not asked for"] == []


@pytest.mark.parametrize("pin", PINS)
def test_negative_scales_survive_the_int8_path(observed: Observed, pin: str) -> None:
    """marlin-int8-negative-scales: errors in steps of the largest scale."""
    stock = observed(pin, "stock", "marlin_int8_negative_scales")
    patched = observed(pin, "patched", "marlin_int8_negative_scales")
    assert stock["mixed"] == stock["mixed, transposed"] == 7.0
    assert patched["mixed"] == patched["mixed, transposed"] == 0.0
    assert patched["mixed, with the code 0"] == 1.0, "-8 has no counterpart: one step"
    for same in ("positive", "negative", "mixed, 16 bits"):
        assert patched[same] == stock[same] == 0.0


@pytest.mark.parametrize("pin", PINS)
def test_each_block_size_is_launched_at_boot(observed: Observed, pin: str) -> None:
    """dflash2-prewarm."""
    stock = observed(pin, "stock", "dflash2_prewarm")
    patched = observed(pin, "patched", "dflash2_prewarm")
    assert stock["2048 tokens"]["boot"] == [16]
    assert patched["2048 tokens"]["boot"] == [32, 64, 128, 256, 16]
    assert patched["24 tokens"]["boot"] == [32, 16]
    assert patched["2048 tokens"]["after"] == stock["2048 tokens"]["after"] == [16, 128]


@pytest.mark.parametrize("pin", PINS)
def test_a_first_chunk_takes_no_foreign_state(observed: Observed, pin: str) -> None:
    """mamba-chunked-prefill-align."""
    stock = observed(pin, "stock", "mamba_chunked_prefill_align")
    patched = observed(pin, "patched", "mamba_chunked_prefill_align")
    fresh = {"source": -1, "offset": 0, "state": 2, "accepted": 1}
    assert stock["fresh, slot used before"] == fresh | {"source": 3, "offset": 3}
    assert patched["fresh, slot used before"] == fresh
    for same in ("fresh, clean slot", "second chunk", "decode within a block", "gentle decay"):
        assert patched[same] == stock[same]
    assert (stock["steep decay"], patched["steep decay"]) == ([0.0, True], [0.0, False])


@pytest.mark.parametrize("pin", PINS)
def test_the_int4_cache_is_read_without_a_mask(observed: Observed, pin: str) -> None:
    """int4-kv-per-token-head: errors against torch on what the cache gives back."""
    stock = observed(pin, "stock", "int4_kv_per_token_head")
    patched = observed(pin, "patched", "int4_kv_per_token_head")
    refusal = "INT4_PER_TOKEN_HEAD only supports causal attention"
    new = ("non-causal", "non-causal, window", "per sequence", "per sequence, window")
    assert [stock[case] for case in new] == [refusal] * 4
    assert [patched[case] for case in new] == [0.0] * 4
    for same in ("causal", "causal, window"):
        assert patched[same] == stock[same] == 0.0


@pytest.mark.parametrize("pin", PINS)
def test_a_few_query_tokens_split_the_context(observed: Observed, pin: str) -> None:
    """spec-decode-attn: errors against torch in float32, of outputs near 1."""
    stock = observed(pin, "stock", "spec_decode_attn")
    patched = observed(pin, "patched", "spec_decode_attn")
    for case in ("head size 64", "head size 128", "head size 256"):
        assert (stock[case], patched[case]) == (["flash", None], ["own", 0.0])
    assert set(patched["left to flash"].values()) == {"flash"}
    assert patched["off"] == "flash"
    assert patched["splits"] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("pin", PINS)
def test_long_queries_take_their_product_in_eight_bits(observed: Observed, pin: str) -> None:
    """prefill-attn-int8."""
    stock = observed(pin, "stock", "prefill_attn_int8")
    patched = observed(pin, "patched", "prefill_attn_int8")
    assert (stock["mixed batch"], patched["mixed batch"]) == ("flash", "own")
    assert patched["close"]
    assert patched["not the 16-bit product"]
    assert set(patched["left to flash"].values()) == {"flash"}
    assert patched["off"] == "flash"


@pytest.mark.slow
@pytest.mark.parametrize("name", [patch.stem for patch in trees.series("0.29.0")])
def test_without_its_patch_a_topic_shows_the_fault(
    name: str,
    observed: Observed,
    content_python: str,
    stock_tree: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    rest = [patch for patch in trees.series("0.29.0") if patch.stem != name]
    trees.patched(stock_tree("0.29.0"), tmp_path / "tree", rest)
    topic = name.replace("-", "_")
    seen = observe(content_python, tmp_path / "tree", [topic])[topic]
    assert "error" not in seen, seen["error"]
    assert seen != observed("0.29.0", "patched", topic)
