"""A paged 16-bit cache, attention over it in torch, and a layer of the FlashAttention backend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from fakes import replaced
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends import flash_attn

PAGE = 16


class Batch(NamedTuple):
    """Requests with ``contexts`` cached tokens and ``queries`` new ones each."""

    query: torch.Tensor
    cache: torch.Tensor  # [blocks, kv_heads, PAGE, 2 * size]
    table: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor
    expected: torch.Tensor


def batch(contexts: list[int], queries: list[int], heads: int, kv_heads: int, size: int) -> Batch:
    torch.manual_seed(len(contexts) + size + sum(queries))
    lengths = [c + q for c, q in zip(contexts, queries, strict=True)]
    pages = [-(-n // PAGE) for n in lengths]
    cache = torch.full((1 + sum(pages), kv_heads, PAGE, 2 * size), float("nan")).half()
    table = torch.zeros(len(contexts), max(pages), dtype=torch.int32)
    order = torch.randperm(sum(pages)) + 1
    query = torch.randn(sum(queries), heads, size).half()
    out, page, token = [], 0, 0
    for i, length in enumerate(lengths):
        kv = torch.randn(length, kv_heads, 2 * size).half()
        table[i, : pages[i]] = order[page : page + pages[i]].int()
        for position in range(length):
            cache[table[i, position // PAGE], :, position % PAGE] = kv[position]
        page += pages[i]
        q = query[token : token + queries[i]].float().transpose(0, 1)
        token += queries[i]
        k, v = (
            part.repeat_interleave(heads // kv_heads, 1).transpose(0, 1)
            for part in kv.float().split(size, -1)
        )
        mask = torch.arange(length) <= (contexts[i] + torch.arange(queries[i]))[:, None]
        score = (q @ k.transpose(1, 2) * size**-0.5).masked_fill(~mask, float("-inf"))
        out.append((score.softmax(-1) @ v).transpose(0, 1))
    starts = torch.tensor([0, *torch.tensor(queries).cumsum(0).tolist()], dtype=torch.int32)
    return Batch(
        query, cache, table, starts, torch.tensor(lengths, dtype=torch.int32), torch.cat(out)
    )


class Flash:
    """Stands for the compiled FlashAttention: answers with a constant, and is counted."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *, out: torch.Tensor, **kwargs: Any) -> None:
        self.calls += 1
        out.fill_(-7.0)


def forward(case: Batch, **changes: Any) -> tuple[str, torch.Tensor]:
    """Run the backend's forward: who answered, and with what."""
    size = case.query.shape[-1]
    impl = SimpleNamespace(
        head_size=size,
        num_kv_heads=case.cache.shape[1],
        num_heads=case.query.shape[1],
        scale=size**-0.5,
        alibi_slopes=None,
        sinks=None,
        logits_soft_cap=0,
        sliding_window=(-1, -1),
        attn_type=AttentionType.DECODER,
        kv_cache_dtype="auto",
        kv_sharing_target_layer_name=None,
        supports_quant_query_input=False,
        vllm_flash_attn_version=2,
        dcp_world_size=1,
        fa4_hd256=False,
        batch_invariant_enabled=False,
    )
    queries = case.starts.diff()
    metadata = SimpleNamespace(
        num_actual_tokens=case.query.shape[0],
        max_query_len=int(queries.max()),
        query_start_loc=case.starts,
        seq_lens=case.lengths,
        max_seq_len=int(case.lengths.max()),
        block_table=case.table,
        use_cascade=False,
        scheduler_metadata=None,
        max_num_splits=0,
        causal=True,
        mm_prefix_query_range_tensor=None,
        rswa_prefix_lens=None,
    )
    for name, value in changes.items():
        setattr(metadata if hasattr(metadata, name) else impl, name, value)
    one = torch.ones(1)
    layer = SimpleNamespace(_q_scale=one, _k_scale=one, _v_scale=one)
    out = torch.zeros_like(case.query)
    flash = Flash()
    with replaced(flash_attn, flash_attn_varlen_func=flash):
        flash_attn.FlashAttentionImpl.forward(
            impl, layer, case.query, case.query, case.query, case.cache, metadata, output=out
        )
    return ("flash" if flash.calls else "own"), out
