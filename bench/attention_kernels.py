"""The attention kernels of the series on a GPU: against torch, and timed beside torch's own.

``python bench/attention_kernels.py [OUT.md]`` needs torch and triton, and no vLLM: it takes the
kernel modules out of the patches that add them. Each row gives the largest error against float32
attention, in units of the largest output, and the time as a ratio to torch's scaled dot product
attention on the same keys laid out contiguously, measured in the same run.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn.attention.bias import causal_lower_right

PATCHES = Path(__file__).resolve().parent.parent / "patches"
PAGE = 16


def added_file(patch: Path, path: str) -> str:
    """The text of the file that ``patch`` creates at ``path``."""
    lines = patch.read_text().splitlines()
    start = lines.index(f"+++ b/{path}") + 2
    text = []
    for line in lines[start:]:
        if not line.startswith("+"):
            break
        text.append(line[1:])
    return "\n".join(text) + "\n"


def kernel_module(name: str, knobs: dict[str, Any]) -> Any:
    """A kernel module, with stand-ins for the two modules of vLLM that it imports."""
    envs = types.ModuleType("vllm.envs")
    vars(envs).update(knobs)
    vllm, tools = types.ModuleType("vllm"), types.ModuleType("vllm.triton_utils")
    vars(vllm)["envs"] = envs
    vars(tools).update(tl=tl, triton=triton)
    sys.modules.update({"vllm": vllm, "vllm.envs": envs, "vllm.triton_utils": tools})
    module = name.replace("-", "_")
    text = added_file(PATCHES / f"{name}.patch", f"vllm/v1/attention/ops/{module}.py")
    file = Path(tempfile.mkdtemp()) / f"{module}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(module, file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class Case:
    """Requests of one length over a shuffled paged cache."""

    def __init__(
        self, seqs: int, length: int, query: int, heads: int, kv_heads: int, size: int
    ) -> None:
        torch.manual_seed(1)
        self.scale, self.query_len = size**-0.5, query
        pages = length // PAGE
        shape = (seqs * pages, PAGE, kv_heads, size)
        self.key = torch.randn(shape, dtype=torch.bfloat16, device="cuda")
        self.value = torch.randn_like(self.key)
        order = torch.randperm(seqs * pages, device="cuda").view(seqs, pages)
        self.table = order.int()
        self.query = torch.randn(seqs * query, heads, size, dtype=torch.bfloat16, device="cuda")
        self.starts = torch.arange(seqs + 1, dtype=torch.int32, device="cuda") * query
        self.lengths = torch.full((seqs,), length, dtype=torch.int32, device="cuda")
        flat = (seqs, length, kv_heads, size)
        self.dense_key = self.key[order].view(flat).transpose(1, 2).contiguous()
        self.dense_value = self.value[order].view(flat).transpose(1, 2).contiguous()
        self.dense_query = self.query.view(seqs, query, heads, size).transpose(1, 2).contiguous()
        self.bias = causal_lower_right(query, length)

    def torch_attention(self) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            self.dense_query, self.dense_key, self.dense_value, attn_mask=self.bias, enable_gqa=True
        )

    def expected(self, seq: int, head: int, rows: slice) -> torch.Tensor:
        """Float32 attention of some rows of one head."""
        group = self.dense_query.shape[1] // self.dense_key.shape[1]
        query = self.dense_query[seq, head, rows].float()
        key = self.dense_key[seq, head // group].float()
        value = self.dense_value[seq, head // group].float()
        length = key.shape[0]
        token = torch.arange(self.query_len, device="cuda")[rows]
        visible = torch.arange(length, device="cuda") <= (length - self.query_len + token)[:, None]
        score = (query @ key.T * self.scale).masked_fill(~visible, float("-inf"))
        return score.softmax(-1) @ value

    def error(self, out: torch.Tensor) -> float:
        seqs, heads, query, size = self.dense_query.shape
        result = out.view(seqs, query, heads, size)
        worst = largest = 0.0
        for seq, head in {(0, 0), (seqs - 1, heads - 1), (0, heads // 2)}:
            for rows in (slice(0, 64), slice(max(0, query - 64), query)):
                wanted = self.expected(seq, head, rows)
                worst = max(worst, float((result[seq, rows, head].float() - wanted).abs().max()))
                largest = max(largest, float(wanted.abs().max()))
        return worst / largest


def milliseconds(call: Any) -> float:
    return float(triton.testing.do_bench(call, warmup=50, rep=200, return_mode="median"))


def row(label: str, case: Case, call: Any, extra: Any = None) -> str:
    out = torch.empty_like(case.query)
    call(out)
    error = case.error(out)
    own, peer = milliseconds(lambda: call(out)), milliseconds(case.torch_attention)
    more = f" {milliseconds(lambda: extra(out)) / own:.2f} |" if extra is not None else ""
    return f"| {label} | {error:.4f} | {own:.3f} | {peer / own:.2f} |{more}"


def spec_rows() -> list[str]:
    knobs = {"VLLM_SPEC_ATTN_BLOCK_M": 0}
    attend = kernel_module("spec-decode-attn", knobs).spec_decode_attention
    rows = []
    for size, heads, kv_heads in ((128, 32, 8), (256, 24, 4)):
        for seqs, length, query in ((1, 4096, 8), (1, 32768, 8), (1, 131072, 8), (1, 131072, 16),
                                    (4, 32768, 4)):  # fmt: skip
            case = Case(seqs, length, query, heads, kv_heads, size)

            def call(out: torch.Tensor, case: Case = case, splits: int | None = None) -> None:
                attend(
                    case.query, case.key, case.value, out, case.starts, case.lengths,
                    case.table, case.query_len, case.scale, splits,
                )  # fmt: skip

            def whole(out: torch.Tensor, call: Any = call) -> None:
                call(out, splits=1)

            label = f"{size} | {seqs} | {length} | {query}"
            rows.append(row(label, case, call, whole))
    return rows


def prefill_rows() -> list[str]:
    attend = kernel_module("prefill-attn-int8", {}).prefill_attention_int8
    rows = []
    for length, query in ((2048, 2048), (32768, 2048), (131072, 2048), (8192, 8192)):
        case = Case(1, length, query, 24, 4, 256)

        def call(out: torch.Tensor, case: Case = case) -> None:
            attend(
                case.query, case.key, case.value, out, case.starts, case.lengths,
                case.table, case.query_len, case.scale,
            )  # fmt: skip

        rows.append(row(f"256 | 1 | {length} | {query}", case, call))
    return rows


def main() -> None:
    head = "| head size | requests | context | query | error | ms | torch / own |"
    lines = [
        f"# Attention kernels on {torch.cuda.get_device_name()}",
        "",
        f"torch {torch.__version__}, triton {triton.__version__}, bfloat16, pages of {PAGE}.",
        "",
        "## spec-decode-attn",
        "",
        head + " one slice / own |",
        "|" + "---|" * 8,
        *spec_rows(),
        "",
        "## prefill-attn-int8",
        "",
        head,
        "|" + "---|" * 7,
        *prefill_rows(),
    ]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
