"""What capture_model says the graphs took, where the driver and the allocator disagree."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace
from typing import Any

import torch
from fakes import replaced
from vllm.v1.worker.gpu import model_runner

GIB = 1 << 30
# A boot seen in the field: the driver's free figure fell to nothing across a capture of 0.23 GiB.
FREE = (int(5.44 * GIB), 0)
RESERVED = (int(15.00 * GIB), int(15.23 * GIB))


def _runner(captured: list[bool]) -> Any:
    runner = SimpleNamespace(
        is_encoder_only=False,
        cudagraph_manager=SimpleNamespace(
            needs_capture=lambda: True, capture=lambda *a, **k: captured.append(True)
        ),
        model_state=SimpleNamespace(supports_mm_inputs=False),
        maybe_setup_dummy_loras=lambda config: contextlib.nullcontext(),
        lora_config=None,
        speculator=None,
        adaptive_verification=None,
        pcp_manager=None,
    )
    for name in [
        "input_buffers",
        "model",
        "intermediate_tensors",
        "block_tables",
        "attn_groups",
        "kv_cache_config",
        "use_aux_hidden_state_outputs",
    ]:
        setattr(runner, name, None)
    return runner


def _capture() -> int:
    captured: list[bool] = []
    with (
        replaced(
            torch.accelerator,
            empty_cache=lambda: None,
            get_memory_info=lambda *a: (FREE[len(captured)], 24 * GIB),
            memory_reserved=lambda *a: RESERVED[len(captured)],
        ),
        replaced(model_runner, create_lora_capture_hook=lambda *a: None),
    ):
        return int(model_runner.GPUModelRunner.capture_model(_runner(captured)))


def _samples() -> list[int] | None:
    """The samples that the estimate is extrapolated from; None where the pin has no estimate."""
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu import cudagraph_utils

    if not hasattr(cudagraph_utils, "profile_cudagraph_memory"):
        return None
    captured: list[bool] = []
    desc = cudagraph_utils.BatchExecutionDescriptor(CUDAGraphMode.FULL, 8, 1)
    manager = SimpleNamespace(
        device=None,
        _capture_descs={CUDAGraphMode.FULL: [desc]},
        _max_full_descs_to_capture=None,
        _capture_mem_samples=[],
        use_breakable_cg=False,
        graphs={},
        pool=object(),
    )

    def create_forward(desc: Any, warmup: bool) -> Any:
        return lambda mode: None if warmup else captured.append(True)

    offloader = SimpleNamespace(sync_prev_onload=lambda: None, join_after_forward=lambda: None)
    with (
        replaced(
            torch.accelerator,
            synchronize=lambda *a: None,
            get_memory_info=lambda *a: (FREE[len(captured)], 24 * GIB),
            memory_reserved=lambda *a: RESERVED[len(captured)],
        ),
        replaced(torch.cuda, CUDAGraph=object, graph=lambda *a, **k: contextlib.nullcontext()),
        replaced(
            cudagraph_utils,
            graph_capture=lambda device: contextlib.nullcontext(),
            is_global_first_rank=lambda: False,
            get_offloader=lambda: offloader,
            set_graph_pool_id=lambda pool: None,
            current_stream=lambda: None,
        ),
    ):
        cudagraph_utils.CudaGraphManager.capture(manager, create_forward)
    return manager._capture_mem_samples


def observe() -> dict[str, Any]:
    def gib(size: int) -> float:
        return round(size / GIB, 2)

    samples = _samples()
    seen = {
        "capture_model": gib(_capture()),
        "samples": None if samples is None else [gib(size) for size in samples],
    }
    os.environ["VLLM_CUDAGRAPH_MEM_FROM_DRIVER"] = "1"
    seen["by the driver"] = gib(_capture())
    del os.environ["VLLM_CUDAGRAPH_MEM_FROM_DRIVER"]
    return seen
