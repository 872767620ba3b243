"""Observe what KVarN does to one tree of vLLM; run with that tree on the path.

``python observe_kvarn.py`` prints one JSON object on its last line: topic to what was seen, or
``{"error": TEXT}``.
"""

from __future__ import annotations

import contextlib
import io
import json
import traceback
from types import SimpleNamespace
from typing import Any

import torch

DTYPE = "kvarn_k4v2_g128"


def parser() -> Any:
    """The exit status of the argument parser for each cache dtype."""
    from vllm.engine.arg_utils import EngineArgs

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser

    made = EngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=True))
    seen = {}
    for name in (DTYPE, "kvarn_k4v2_g64", "fp8"):
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                seen[name] = made.parse_args(["--kv-cache-dtype", name]).kv_cache_dtype
            except SystemExit as left:
                seen[name] = left.code
    return seen


def registration() -> Any:
    from vllm.utils.torch_utils import STR_DTYPE_TO_TORCH_DTYPE
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.kv_cache_interface import get_kv_quant_mode

    backend = AttentionBackendEnum["KVARN"].get_class()
    mode = get_kv_quant_mode(DTYPE)
    seen = {
        "backend": backend.get_name(),
        "torch": str(STR_DTYPE_TO_TORCH_DTYPE[DTYPE]),
        "mode": mode.name,
        "is kvarn": mode.is_kvarn,
        "others": [get_kv_quant_mode(name).is_kvarn for name in ("fp8", "nvfp4", "auto")],
        "takes": [backend.supports_kv_cache_dtype(name) for name in (DTYPE, "fp8", "auto", None)],
        "preferred block": backend.get_preferred_block_size(16),
        "blocks": [backend.supports_block_size(size) for size in (16, 128, 2176)],
        "heads": [backend.supports_head_size(size) for size in (64, 96, 128, 256)],
    }
    if hasattr(backend, "indexes_kv_by_block_stride"):
        seen["shape"] = backend.get_kv_cache_shape(6, 128, 2, 256, DTYPE)
        seen["order"] = backend.get_kv_cache_stride_order()
    else:
        seen["layouts"] = [layout.name for layout in backend.supported_kv_cache_layouts()]
    return seen


def _spec(block: int, heads: int, head_size: int, mode: str = DTYPE) -> Any:
    from vllm.v1.attention.backends.kvarn_attn import KVarNAttentionBackend
    from vllm.v1.kv_cache_interface import FullAttentionSpec, get_kv_quant_mode

    spec = FullAttentionSpec(
        block_size=block,
        num_kv_heads=heads,
        head_size=head_size,
        dtype=torch.uint8,
        kv_quant_mode=get_kv_quant_mode(mode),
    )
    return KVarNAttentionBackend.customize_spec(spec)


def page() -> Any:
    """Bytes of the pages that the runner and the platform ask for."""
    return {
        "a tile": _spec(128, 1, 256).page_size_bytes,
        "a block": _spec(2176, 4, 256).page_size_bytes,
        "a token": _spec(1, 4, 256).page_size_bytes,
        "another dtype": _spec(128, 1, 256, "fp8").state_content_bytes,
    }


def _folded(view: torch.Tensor) -> Any:
    from vllm.v1.attention.ops.kvarn.attention import fold_tiles

    try:
        folded = fold_tiles(view)
    except RuntimeError as error:
        return str(error).split(";")[0]
    return [*folded.shape, folded.data_ptr() == view.data_ptr()]


def layouts() -> Any:
    """The fold of the runner's own view, in every layout that it can make."""
    spec = _spec(128, 2, 256)
    blocks = 3
    size = blocks * spec.page_size_bytes
    try:
        from vllm.v1.kv_cache_interface import (
            KVCacheTensor,
            compute_layout_strides,
            create_kv_cache_views,
        )
        from vllm.v1.kv_cache_layout import KVCacheLayout
    except ImportError:
        return {"shape and stride order": _folded(_view_of_028(_spec(256, 2, 256), blocks))}
    seen = {}
    for layout in KVCacheLayout:
        strides = compute_layout_strides(spec, blocks, 1, layout)
        tensor = KVCacheTensor(
            size=size, layers=["a"], layer_stride=strides[0], block_stride=strides[1]
        )
        raw = torch.zeros(size, dtype=torch.int8)
        view = create_kv_cache_views(raw, spec, blocks, layout, tensor)[0]
        seen[layout.name] = _folded(view)
    return seen


def _view_of_028(spec: Any, blocks: int) -> torch.Tensor:
    from vllm.v1.attention.backends.kvarn_attn import KVarNAttentionBackend as Backend
    from vllm.v1.worker.gpu.attn_utils import _reshape_attention_kv_cache

    ratio = spec.block_size // 128
    shape = Backend.get_kv_cache_shape(blocks * ratio, 128, 2, 256, DTYPE)
    raw = torch.zeros(blocks * spec.page_size_bytes, dtype=torch.int8)
    order = Backend.get_kv_cache_stride_order()
    return _reshape_attention_kv_cache(raw, spec, shape, order, blocks * ratio, None)


def sliding() -> Any:
    """A drafter's native sliding-window layers beside a quantized primary."""
    from vllm.v1.core.kv_cache_utils import unify_kv_cache_spec_page_size
    from vllm.v1.kv_cache_interface import SlidingWindowSpec
    from vllm.v1.worker.gpu import attn_utils

    primary = _spec(2176, 4, 256)
    drafter = SlidingWindowSpec(
        block_size=16, num_kv_heads=8, head_size=128, dtype=torch.bfloat16, sliding_window=2048
    )
    layers = {
        name: SimpleNamespace(
            kv_sharing_target_layer_name=None,
            get_kv_cache_spec=lambda config, spec=spec: spec,
            get_attn_backend=lambda: SimpleNamespace(
                customize_spec=lambda same: same, indexes_kv_by_block_stride=lambda: False
            ),
        )
        for name, spec in (("target", primary), ("draft", drafter))
    }
    old = attn_utils.get_layers_from_vllm_config
    attn_utils.get_layers_from_vllm_config = lambda *a: layers
    if hasattr(attn_utils, "set_current_vllm_config"):
        attn_utils.set_current_vllm_config = lambda config: contextlib.nullcontext()
    try:
        specs = attn_utils.get_kv_cache_spec(None)
    finally:
        attn_utils.get_layers_from_vllm_config = old
    try:
        unified = unify_kv_cache_spec_page_size(specs)
    except NotImplementedError as error:
        return {"asked": specs["draft"].block_size, "refused": str(error)}
    return {
        "asked": specs["draft"].block_size,
        "blocks": [unified[name].block_size for name in ("target", "draft")],
        "pages": [unified[name].page_size_bytes for name in ("target", "draft")],
        "tokens of a page": unified["draft"].page_size_bytes // 4096,
    }


def mamba_row() -> Any:
    """The running Mamba state of a resumed request, where its block is not the attention block."""
    from vllm.v1.worker.gpu.model_states.mamba_hybrid import MambaHybridModelState

    state = object.__new__(MambaHybridModelState)
    state.rope_state = None
    state.prompt_embeds_state = None
    state.num_accepted_tokens_gpu = torch.zeros(4, dtype=torch.int32)
    state._align_mode = True
    state._mamba_state_idx_gpu = torch.zeros(4, dtype=torch.int32)
    state.cache_config = SimpleNamespace(block_size=2176, mamba_block_size=1088)
    state.add_request(1, SimpleNamespace(num_computed_tokens=4352))
    return int(state._mamba_state_idx_gpu[1])


def new_rows() -> Any:
    """What a builder hears when the runner adds requests."""
    from vllm.v1.attention.ops.kvarn.rows import NewRows
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner

    class Anything:
        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: None

    heard = NewRows()
    rows = {"a": 2, "b": 0}
    runner = SimpleNamespace(
        _remove_request=lambda name: None,
        req_states=SimpleNamespace(
            add_request=lambda **kwargs: None,
            req_id_to_index=rows,
            apply_staged_writes=lambda: None,
        ),
        adaptive_verification=None,
        pooling_runner=None,
        encoder_cache=None,
        model_state=Anything(),
        block_tables=Anything(),
        lora_state=Anything(),
        is_last_pp_rank=False,
        sampler=None,
    )
    requests = [
        SimpleNamespace(
            req_id=name,
            prompt_len=4,
            prompt_token_ids=[1, 2, 3, 4],
            prefill_token_ids=[1, 2, 3, 4],
            sampling_params=None,
            num_computed_tokens=0,
            block_ids=([1],),
            lora_request=None,
            mm_features=[],
        )
        for name in rows
    ]
    GPUModelRunner.add_requests(runner, SimpleNamespace(scheduled_new_reqs=requests))
    return heard.take()


class _Builder:
    def build(self, common_prefix_len: int, common_attn_metadata: Any, **extra: Any) -> Any:
        return common_attn_metadata


def rows_of_a_batch() -> Any:
    """The runner's rows as a metadata builder gets them."""
    from vllm.v1.worker.gpu.attn_utils import build_attn_metadata

    group = SimpleNamespace(get_metadata_builder=lambda i: _Builder(), layer_names=["a"])
    start = torch.tensor([0, 1], dtype=torch.int32)
    made = build_attn_metadata(
        attn_groups=[[group]],
        num_reqs=1,
        num_tokens=1,
        query_start_loc_gpu=start,
        query_start_loc_cpu=start,
        max_query_len=1,
        seq_lens=torch.tensor([1]),
        max_seq_len=1,
        block_tables=[torch.zeros(1, 1, dtype=torch.int32)],
        slot_mappings=torch.zeros(1, 1, dtype=torch.int64),
        kv_cache_config=SimpleNamespace(kv_cache_groups=[None]),
        req_rows=torch.tensor([7]),
    )
    return made["a"].req_rows.tolist()


def selector() -> Any:
    """The drafter's selector with scores that are no numbers and ids outside the vocabulary."""
    from vllm.v1.worker.gpu.spec_decode.dflash2 import speculator

    steps, top_k, vocabulary, spare = 2, 4, 16, 8
    scores = torch.tensor([1.0, 3.0, 2.0, 0.0]).repeat(1, steps, top_k, 1).contiguous()
    ids = torch.arange(steps * top_k).reshape(1, steps, top_k)
    buffer = torch.full((1, steps, vocabulary + spare), 5.0)
    this = SimpleNamespace(
        selector_top_k=top_k,
        sample_pos=torch.ones(steps, dtype=torch.int64),
        sample_idx_mapping=torch.zeros(steps, dtype=torch.int32),
        temperature=torch.zeros(1),
        seeds=torch.zeros(1, dtype=torch.int64),
        draft_tokens=torch.full((1, steps), -1),
        draft_logits=buffer[:, :, :vocabulary],
        _selector_scores=torch.zeros(1, steps, top_k),
        _cached_candidate_ids=torch.zeros(1, steps, top_k, dtype=torch.int64),
        num_speculative_steps=steps,
        use_fp64_gumbel=False,
    )
    walk = speculator.DFlash2Speculator._sample_path
    seen: dict[str, Any] = {}
    walk(this, ids, scores, 1)
    seen["numbers"] = this.draft_tokens.tolist()
    odd = scores.clone()
    odd[..., 2] = float("nan")
    walk(this, ids, odd, 1)
    seen["one is NaN"] = this.draft_tokens.tolist()
    this._selector_scores.copy_(torch.tensor([1.0, 2.0, float("nan"), 4.0]))
    outside = ids.clone()
    outside[..., 3] = vocabulary + 2
    speculator.DFlash2Speculator._cache_draft_logits(this, outside, steps)
    seen["written outside"] = bool((buffer[:, :, vocabulary:] != 5.0).any())
    seen["NaN cached"] = bool(buffer.isnan().any())
    return seen


def layer() -> Any:
    """A prefill, then decode, through the backend's own builder and layer."""
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.attention.backends import kvarn_attn
    from vllm.v1.attention.ops.kvarn.attention import flash_in_torch

    dim, heads, group = 64, 2, 2
    context: dict[str, Any] = {}
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context=context),
        scheduler_config=SimpleNamespace(max_num_seqs=2),
        num_speculative_tokens=0,
        speculative_config=None,
    )
    kvarn_attn.get_current_vllm_config = lambda: config
    made = kvarn_attn.KVarNAttentionImpl(heads * group, dim, dim**-0.5, heads, kv_cache_dtype=DTYPE)
    context["a"] = SimpleNamespace(impl=made, layer_name="model.layers.0.attn")
    spec = _spec(128, heads, dim)
    device = torch.device("cpu")
    builder = kvarn_attn.KVarNMetadataBuilder(spec, ["a"], config, device)
    cache = torch.zeros(8, heads, 128, spec.state_content_bytes, dtype=torch.uint8)
    random = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 400, heads, dim, generator=random)
    table = torch.tensor([[3, 5, 1, 6]], dtype=torch.int32)

    def step(old: int, new: int, rows: torch.Tensor | None) -> tuple[Any, Any, Any]:
        start = torch.tensor([0, new], dtype=torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=start,
            query_start_loc_cpu=start,
            seq_lens=torch.tensor([old + new], dtype=torch.int32),
            seq_lens_cpu_upper_bound=torch.tensor([old + new], dtype=torch.int32),
            num_reqs=1,
            num_actual_tokens=new,
            max_query_len=new,
            max_seq_len=old + new,
            block_table_tensor=table,
            slot_mapping=torch.arange(new),
            is_prefilling=torch.tensor([new > 1]),
            req_rows=rows,
        )
        metadata = builder.build(0, common)
        q = torch.randn(new, heads * group, dim, generator=random)
        span = slice(old, old + new)
        out = torch.empty(new, heads * group, dim)
        made.forward(context["a"], q, keys[span], values[span], cache, metadata, out)
        lengths = (torch.tensor([new]), torch.tensor([old + new]))
        want, _ = flash_in_torch(
            q, keys[: old + new], values[: old + new], *lengths,
            causal=True, scale=dim**-0.5, window=0,
        )  # fmt: skip
        return metadata.step.plan, out, want

    rows = torch.tensor([1])
    _, out, want = step(0, 120, rows)
    seen: dict[str, Any] = {"prefill is exact": bool(torch.equal(out, want))}
    plan, out, want = step(120, 1, rows)
    seen["decode in fp16"] = float((out - want).abs().max()) < 0.01
    step(121, 200, rows)
    plan, out, want = step(321, 1, rows)
    seen["flushed"] = plan.flushed.tolist()
    seen["pages written"] = [bool(cache[block].any()) for block in (3, 5, 1, 6)]
    seen["decode from tiles"] = float((out - want).norm() / want.norm()) < 0.5
    try:
        step(322, 1, None)
    except RuntimeError as error:
        seen["without rows"] = str(error)
    return seen


TOPICS = (
    parser,
    registration,
    page,
    layouts,
    sliding,
    mamba_row,
    new_rows,
    rows_of_a_batch,
    selector,
    layer,
)


def main() -> None:
    seen: dict[str, Any] = {}
    for topic in TOPICS:
        try:
            seen[topic.__name__] = topic()
        except Exception:  # noqa: BLE001  # the report of one topic must not cost the others
            seen[topic.__name__] = {"error": traceback.format_exc()}
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
