"""In what order a worker runs the profile and opens the measured window."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from fakes import replaced
from vllm.config import CUDAGraphMode
from vllm.v1.worker import gpu_worker

GIB = 1 << 30


class _Profile:
    total_consumed = 2 * GIB
    non_kv_cache_memory = 3 * GIB
    transient_peak_headroom = 1 * GIB
    after_profile = SimpleNamespace(free_memory=10 * GIB)


def _worker(events: list[str]) -> SimpleNamespace:
    runner = SimpleNamespace(profile_run=lambda: events.append("run"), model_memory_usage=GIB)
    return SimpleNamespace(
        model_runner=runner,
        cache_config=SimpleNamespace(kv_cache_memory_bytes=None, gpu_memory_utilization=0.9),
        init_snapshot=SimpleNamespace(free_memory=12 * GIB, total_memory=12 * GIB),
        requested_memory=11 * GIB,
        model_config=SimpleNamespace(multimodal_config=None),
        parallel_config=SimpleNamespace(),
        vllm_config=SimpleNamespace(
            compilation_config=SimpleNamespace(cudagraph_mode=CUDAGraphMode.NONE)
        ),
    )


def _events() -> list[str]:
    events: list[str] = []

    @contextlib.contextmanager
    def window(*args: Any, **kwargs: Any) -> Iterator[_Profile]:
        events.append("open")
        yield _Profile()
        events.append("close")

    with (
        replaced(
            gpu_worker,
            memory_profiling=window,
            maybe_apply_startup_plan=lambda worker: None,
            maybe_rocm_profiling_fallback=lambda profile: None,
            reserve_mm_ipc_gpu_memory=lambda size, *args: size,
        ),
        replaced(
            torch.accelerator,
            synchronize=lambda *args: events.append("synchronize"),
            empty_cache=lambda: events.append("empty_cache"),
        ),
    ):
        gpu_worker.Worker.determine_available_memory(_worker(events))
    return events


def observe() -> dict[str, Any]:
    import os

    os.environ.pop("VLLM_MEMORY_PROFILE_WARMUP_RUNS", None)
    default = _events()
    os.environ["VLLM_MEMORY_PROFILE_WARMUP_RUNS"] = "0"
    off = _events()
    del os.environ["VLLM_MEMORY_PROFILE_WARMUP_RUNS"]
    return {"default": default, "off": off}
