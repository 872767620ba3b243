# SPDX-License-Identifier: Apache-2.0
"""The KVarN attention backend: vLLM's hooks around ``ops.kvarn``.

* The page of a layer is declared by ``customize_spec`` in bytes per token and head.
* The layout is LBHNC: heads outside tokens, so that a tile of one block and head
  is one run of bytes.  vLLM 0.29 asks ``supported_kv_cache_layouts``; vLLM 0.28 asks
  ``get_kv_cache_shape`` and ``get_kv_cache_stride_order``, which say the same.
* The metadata builder plans a step once for all layers of its group.  It runs
  outside captured graphs and leaves its results where the graphs expect them.
* A layer's pool is allocated with the weights, so that the memory profile
  counts it before the cache gets the rest.

The update happens inside ``forward``: it needs the step's plan, and the flush
must have read the tail's old tokens before the new ones are stored.
"""

import os
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from vllm import envs
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.config.cache import CacheDType
from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadata,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.attention.ops.kvarn import reference
from vllm.v1.attention.ops.kvarn.attention import (
    LayerPool,
    Settings,
    Step,
    attend,
    flash_in_torch,
    flushed_tiles,
    fold_tiles,
    gather_tile,
    slot_bytes,
    takes_long_way,
    update,
)
from vllm.v1.attention.ops.kvarn.config import (
    BACKEND,
    CACHE_DTYPE,
    TILE_TOKENS,
    KVarNConfig,
    PoolSize,
    is_kvarn,
    parse_quantiles,
    plan_pool,
    supports_head_dim,
)
from vllm.v1.attention.ops.kvarn.plan import TilePlanner
from vllm.v1.attention.ops.kvarn.rows import NewRows
from vllm.v1.kv_cache_interface import AttentionSpec

logger = init_logger(__name__)

DUMPED_TILES = 4
"""Tiles per layer that KVARN_DUMP_TILES saves."""


def settings_from_envs() -> Settings:
    """The knobs that act on a layer, as the environment has them."""
    split_k = envs.KVARN_SPLIT_K
    return Settings(
        sinkhorn_iters=envs.KVARN_SINKHORN_ITERS,
        fast_flush=bool(envs.KVARN_FAST_FLUSH),
        rtn_quantile=parse_quantiles(envs.KVARN_RTN_QUANTILE),
        fused_decode=bool(envs.KVARN_FUSED_DECODE),
        fused_verify=bool(envs.KVARN_FUSED_VERIFY),
        fused_verify_maxq=envs.KVARN_FUSED_VERIFY_MAXQ,
        fused_verify_min_blocks=envs.KVARN_FUSED_VERIFY_MIN_BLOCKS,
        shared_verify=bool(envs.KVARN_SHARED_VERIFY),
        num_kv_splits=envs.KVARN_NUM_KV_SPLITS,
        split_k=None if split_k is None else bool(split_k),
        fa_scratch_cap=envs.KVARN_FA_SCRATCH_CAP,
    )


class KVarNAttentionBackend(AttentionBackend):
    """Attention over KVarN tiles."""

    accept_output_buffer: bool = True
    forward_includes_kv_cache_update: bool = True

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[CacheDType]] = [CACHE_DTYPE]

    @staticmethod
    def get_name() -> str:
        return BACKEND

    @staticmethod
    def get_impl_cls() -> type["KVarNAttentionImpl"]:
        return KVarNAttentionImpl

    @staticmethod
    def get_builder_cls() -> type["KVarNMetadataBuilder"]:
        return KVarNMetadataBuilder

    @classmethod
    def customize_spec(cls, spec: AttentionSpec) -> AttentionSpec:
        """K and V of a token share one run of bytes per head."""
        if spec.state_content_bytes is not None or not spec.kv_quant_mode.is_kvarn:
            return spec
        config = KVarNConfig.from_cache_dtype(spec.kv_quant_mode.name.lower(), spec.head_size)
        content = config.token_bytes(pow2=bool(envs.KVARN_POW2_SLOT))
        return replace(spec, state_content_bytes=content)

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[Any, ...]:
        """Heads outside tokens; the only layout that ``fold_tiles`` takes."""
        from vllm.v1.kv_cache_layout import KVCacheLayout

        return (KVCacheLayout.LBHNC,)

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = CACHE_DTYPE,
    ) -> tuple[int, ...]:
        """vLLM 0.28: block, head, token, content."""
        name = cache_dtype_str if is_kvarn(cache_dtype_str) else CACHE_DTYPE
        config = KVarNConfig.from_cache_dtype(name, head_size)
        content = config.token_bytes(pow2=bool(envs.KVARN_POW2_SLOT))
        return (num_blocks, num_kv_heads, block_size, content)

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """vLLM 0.28: the physical order is the logical one."""
        if include_num_layers_dimension:
            raise NotImplementedError
        return (0, 1, 2, 3)

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int | MultipleOf]:
        return [TILE_TOKENS]

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return supports_head_dim(head_size)

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype: CacheDType | None) -> bool:
        return is_kvarn(kv_cache_dtype)

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return bool(envs.KVARN_QUANT_SLIDING)

    @classmethod
    def supports_kv_connector(cls) -> bool:
        """A page that left for another tier would come back without its fp16 tail."""
        return False

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        """Prefill is divided by the query lengths that the host knows."""
        return False

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return attn_type == AttentionType.DECODER


@dataclass
class KVarNMetadata(AttentionMetadata):
    """One step, planned; shared by the layers of a group."""

    step: Step


class KVarNMetadataBuilder(AttentionMetadataBuilder[KVarNMetadata]):
    """Plans each step on the device."""

    kv_cache_spec: AttentionSpec

    def __init__(
        self,
        kv_cache_spec: AttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        layers = vllm_config.compilation_config.static_forward_context
        pools = [layers[name].impl.ensure_pool(device) for name in layer_names]
        self.settings = settings_from_envs()
        self.num_spec = vllm_config.num_speculative_tokens
        self.planner = TilePlanner(
            pools[0].size,
            num_spec=self.num_spec,
            device=device,
            lookup_blocks=envs.KVARN_LOOKUP_BLOCKS,
        )
        self.new_rows = NewRows()
        # A capture may not copy from the host, so the rotation is there before it.
        reference.rotate(torch.zeros(1, kv_cache_spec.head_size, device=device))

    @classmethod
    def get_cudagraph_support(
        cls, vllm_config: VllmConfig, kv_cache_spec: AttentionSpec
    ) -> AttentionCGSupport:
        """Captured where no path of a decode waits for the device."""
        settings = settings_from_envs()
        looks_inside = envs.KVARN_DBG_LAYERS or envs.KVARN_DUMP_TILES
        if settings.torch_flush or looks_inside or not settings.fused_decode:
            return AttentionCGSupport.NEVER
        longest = 1 + vllm_config.num_speculative_tokens
        if settings.fused_verify and longest <= settings.fused_verify_maxq:
            return AttentionCGSupport.UNIFORM_BATCH
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def build_for_cudagraph_capture(
        self, common_attn_metadata: CommonAttentionMetadata
    ) -> KVarNMetadata:
        return self._build(common_attn_metadata, capturing=True)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> KVarNMetadata:
        return self._build(common_attn_metadata, capturing=False)

    def _build(self, common: CommonAttentionMetadata, capturing: bool) -> KVarNMetadata:
        rows = common.req_rows
        if rows is None:
            raise RuntimeError(
                f"KVarN got a batch without the runner's rows for {self.layer_names[0]}: its fp16 "
                "tails need the V2 model runner, and a drafter's full-attention layers must stay "
                "native (name them in --kv-cache-dtype-skip-layers)"
            )
        self.planner.forget(self.new_rows.take())
        plan = self.planner.step(
            rows=rows,
            seq_lens=common.seq_lens,
            query_start_loc=common.query_start_loc,
            block_table=common.block_table_tensor,
            slot_mapping=common.slot_mapping,
        )
        count = common.num_reqs
        starts = common.query_start_loc_cpu[: count + 1]
        lengths = (starts[1:] - starts[:-1]).tolist()
        bounds = common.seq_lens_cpu_upper_bound
        known = bounds[:count].tolist() if bounds is not None else [common.max_seq_len] * count
        step = Step(
            plan=plan,
            query_start_loc=common.query_start_loc,
            block_table=common.block_table_tensor,
            query_lens=tuple(lengths),
            context_bounds=tuple(
                max(total - new, 0) for total, new in zip(known, lengths, strict=False)
            ),
            prefilling=_prefilling(common, count),
            num_tokens=common.num_actual_tokens,
            max_seq_len=common.max_seq_len,
            num_spec=self.num_spec,
            capturing=capturing,
        )
        if envs.KVARN_SPEC_DEBUG and step.max_query_len > 1:
            long = sum(takes_long_way(step, self.settings))
            logger.info(
                "KVarN: %d requests, longest query %d, longest sequence %d: %d read in tiles, "
                "%d dequantized",
                count,
                step.max_query_len,
                step.max_seq_len,
                count - long,
                long,
            )
        return KVarNMetadata(step)


def _prefilling(common: CommonAttentionMetadata, count: int) -> tuple[bool, ...]:
    """Which requests are still in their prompt; all, where the runner does not say."""
    if common.is_prefilling is None:
        return (True,) * count
    told = common.is_prefilling[:count].tolist()
    return (*told, *((False,) * (count - len(told))))


class KVarNAttentionImpl(AttentionImpl[KVarNMetadata]):
    """One layer."""

    supports_quant_query_input: bool = False
    supports_dcp: bool = False

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = CACHE_DTYPE,
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        refused = {
            "ALiBi slopes": alibi_slopes is not None,
            "a soft cap of the logits": bool(logits_soft_cap),
            "attention sinks": kwargs.get("sinks") is not None,
            "sharing another layer's cache": kv_sharing_target_layer_name is not None,
        }
        for what, present in refused.items():
            if present:
                raise NotImplementedError(f"KVarN does not support {what}")
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.window = sliding_window or 0
        self.config = KVarNConfig.from_cache_dtype(kv_cache_dtype, head_size)
        self.settings = settings_from_envs()
        self.vllm_config = get_current_vllm_config()
        self.pool: LayerPool | None = None
        self.processors = 1
        self._dumped = 0

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        self.ensure_pool(torch.device(current_platform.device_type))

    def ensure_pool(self, device: torch.device) -> LayerPool:
        """This layer's pool, made on first use."""
        if self.pool is None:
            size = self._pool_size(device)
            self.pool = LayerPool.empty(size, self.num_kv_heads, self.config, device)
            if self.pool.k.device.type == "cuda":
                properties = torch.cuda.get_device_properties(self.pool.k.device)
                self.processors = properties.multi_processor_count
            logger.info_once(
                "KVarN: pools of %d fp16 tiles (%d requests, %d of them with a sink), "
                "%.1f MiB per layer",
                size.slots,
                size.rows,
                size.sink_rows,
                size.slots * slot_bytes(self.num_kv_heads, self.config) / 2**20,
            )
        return self.pool

    def _pool_size(self, device: torch.device) -> PoolSize:
        fraction = envs.KVARN_POOL_MEM_FRAC
        most = None
        if fraction is not None and device.type == "cuda":
            total = torch.cuda.get_device_properties(device).total_memory
            layers = self.vllm_config.compilation_config.static_forward_context.values()
            mine = sum(isinstance(getattr(x, "impl", None), KVarNAttentionImpl) for x in layers)
            per_slot = slot_bytes(self.num_kv_heads, self.config) * max(mine, 1)
            most = int(total * fraction) // per_slot
        return plan_pool(
            max_requests=self.vllm_config.scheduler_config.max_num_seqs,
            sink_tokens=envs.KVARN_SINK_TOKENS,
            slots=envs.KVARN_POOL_SLOTS,
            max_slots=most,
        )

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: KVarNMetadata | None,
        output: torch.Tensor | None = None,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Update the cache with key and value [tokens, heads, D], then attend."""
        if output is None or output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("KVarN writes an unquantized output into a given buffer")
        if attn_metadata is None:
            return output.zero_()
        step = attn_metadata.step
        count = step.num_tokens
        pool = self.ensure_pool(query.device)
        tiles = fold_tiles(kv_cache)
        q, k, v = query[:count], key[:count], value[:count]
        k_rotated, v_rotated = reference.rotate(k), reference.rotate(v)
        sources = self._sources(layer, k_rotated, v_rotated, pool, step)
        update(tiles, k_rotated, v_rotated, pool, step, self.config, self.settings)
        if sources:
            self._inspect(layer, tiles, sources, step)
        output[:count] = attend(
            q,
            k,
            v,
            tiles,
            pool,
            step,
            self.config,
            self.settings,
            scale=self.scale,
            flash=_flash if q.is_cuda else flash_in_torch,
            processors=self.processors,
            window=self.window,
        ).view_as(output[:count])
        return output

    def _sources(
        self, layer: Any, k: torch.Tensor, v: torch.Tensor, pool: LayerPool, step: Step
    ) -> list[tuple[int, int, torch.Tensor, torch.Tensor]]:
        """What this step is about to quantize, where a knob asks to look; waits for the device."""
        looks = _layer_index(layer) < envs.KVARN_DBG_LAYERS
        dumps = bool(envs.KVARN_DUMP_TILES) and self._dumped < DUMPED_TILES
        if step.capturing or not (looks or dumps):
            return []
        return [
            (
                req,
                tile,
                gather_tile(k, pool.k, step, req, tile, self.config),
                gather_tile(v, pool.v, step, req, tile, self.config),
            )
            for req, tile in flushed_tiles(step)[:DUMPED_TILES]
        ]

    def _inspect(
        self,
        layer: Any,
        tiles: torch.Tensor,
        sources: list[tuple[int, int, torch.Tensor, torch.Tensor]],
        step: Step,
    ) -> None:
        """Log how far the stored tiles are from their sources, and save some."""
        name = layer.layer_name
        for req, tile, k, v in sources:
            stored = tiles[int(step.block_table[req, tile]), :, : self.config.tile_bytes]
            got = reference.decode_tile(stored, self.config)
            if _layer_index(layer) < envs.KVARN_DBG_LAYERS:
                errors = [
                    float((new - old.float()).norm() / old.float().norm().clamp(min=1e-12))
                    for new, old in zip(got, (k, v), strict=True)
                ]
                logger.info("KVarN: %s tile %d: relative error K %.4f, V %.4f", name, tile, *errors)
            if envs.KVARN_DUMP_TILES and self._dumped < DUMPED_TILES:
                os.makedirs(envs.KVARN_DUMP_TILES, exist_ok=True)
                path = os.path.join(envs.KVARN_DUMP_TILES, f"{name}.{self._dumped}.pt")
                torch.save({"k": k.cpu(), "v": v.cpu(), "tile": stored.cpu()}, path)
                self._dumped += 1


def _layer_index(layer: Any) -> int:
    from vllm.model_executor.models.utils import extract_layer_index

    return extract_layer_index(layer.layer_name)


def _flash(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_len: torch.Tensor,
    k_len: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    window: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One request through FlashAttention, or in torch where vLLM has none."""
    from vllm.v1.attention.backends import fa_utils

    version = fa_utils.get_flash_attn_version(head_size=q.shape[-1])
    if not fa_utils.is_flash_attn_varlen_func_available() or version is None:
        return flash_in_torch(q, k, v, q_len, k_len, causal=causal, scale=scale, window=window)
    zero = torch.zeros_like(q_len)
    out, lse = fa_utils.flash_attn_varlen_func(
        q=q,
        k=k,
        v=v,
        max_seqlen_q=q.shape[0],
        cu_seqlens_q=torch.cat((zero, q_len)),
        max_seqlen_k=k.shape[0],
        cu_seqlens_k=torch.cat((zero, k_len)),
        softmax_scale=scale,
        causal=causal,
        window_size=[window - 1, 0] if window else None,
        return_softmax_lse=True,
        fa_version=version,
    )
    return out, lse
