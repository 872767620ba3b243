"""With which block sizes a boot launches the kernel that prepares the drafter's inputs."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
from fakes import replaced
from vllm.v1.worker.gpu.spec_decode.dflash import speculator

STEPS = 7


class _Kernel:
    def __init__(self) -> None:
        self.launches: list[tuple[tuple[int, int], int]] = []

    def __getitem__(self, grid: tuple[int, int]) -> Any:
        return lambda *args, BLOCK_SIZE, **kwargs: self.launches.append((grid, BLOCK_SIZE))


class _Anything:
    """Stands for tensors that no launch looks into."""

    def __getattr__(self, name: str) -> Any:
        return _Anything()

    def __getitem__(self, index: Any) -> Any:
        return _Anything()

    def stride(self, dim: int) -> int:
        return 1


class _Prepared(Exception):
    pass


def _speculator(max_num_tokens: int) -> Any:
    def done(*args: Any) -> None:
        raise _Prepared

    anything = dict.fromkeys(
        [
            "input_buffers",
            "context_positions",
            "_context_slot_mappings",
            "sample_indices",
            "sample_pos",
            "sample_idx_mapping",
            "temperature",
            "seeds",
        ],
        _Anything(),
    )
    return SimpleNamespace(
        **anything,
        model=SimpleNamespace(precompute_and_store_context_kv=done),
        block_tables=SimpleNamespace(
            slot_mappings=_Anything(),
            input_block_tables=_Anything(),
            kernel_block_sizes=[16],
            cp_rank=0,
            cp_size=1,
            cp_interleave=1,
        ),
        hidden_states=torch.zeros(max_num_tokens, 2),
        draft_kv_cache_group_id=0,
        draft_kv_cache_group_ids=[0],
        _layer_group_idx=None,
        _input_kernel_prewarmed=False,
        num_query_per_req=1 + STEPS,
        num_speculative_steps=STEPS,
        max_num_reqs=4,
        max_num_tokens=max_num_tokens,
        max_model_len=4096,
        parallel_drafting_token_id=0,
        sample_from_anchor=False,
    )


def _propose(drafter: Any, num_tokens: int, dummy_run: bool) -> None:
    batch = SimpleNamespace(
        num_reqs=1,
        num_tokens=num_tokens,
        seq_lens_cpu_upper_bound=torch.tensor([num_tokens]),
        num_scheduled_tokens=torch.tensor([num_tokens]),
        positions=_Anything(),
        query_start_loc=_Anything(),
        idx_mapping=_Anything(),
    )
    with contextlib.suppress(_Prepared):
        speculator.DFlashSpeculator.propose(
            drafter, batch, {}, {}, torch.zeros(num_tokens, 2), None,
            *[_Anything()] * 6, dummy_run=dummy_run,
        )  # fmt: skip


def _launched(max_num_tokens: int) -> dict[str, Any]:
    kernel = _Kernel()
    drafter = _speculator(max_num_tokens)
    with replaced(speculator, _prepare_dflash_inputs_kernel=kernel):
        _propose(drafter, 1 + STEPS, dummy_run=True)
        boot = list(kernel.launches)
        _propose(drafter, 1 + STEPS, dummy_run=True)
        _propose(drafter, min(100, max_num_tokens), dummy_run=False)
    grids = {size: grid for grid, size in boot}
    return {
        "boot": [size for _, size in boot],
        "grids": [list(grids[size]) for size in sorted(grids)],
        "after": [size for _, size in kernel.launches[len(boot) :]],
    }


def observe() -> dict[str, Any]:
    return {"2048 tokens": _launched(2048), "24 tokens": _launched(24)}
