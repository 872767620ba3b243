"""The kernels compile for the GPUs that they are meant for; no GPU is needed for that.

The interpreter takes programs that the compiler does not, and knows no limit of shared memory.
"""

import os
import subprocess
import sys

import pytest

# Shared memory that one program may have: 99 KiB on consumer Ampere and Ada cards.
SHARED = 99 * 1024

PROGRAM = """
import sys
from kvarnload import load
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton

arch, dim = int(sys.argv[1]), int(sys.argv[2])
config, kernels = load("config"), load("kernels")
tile = config.KVarNConfig.from_cache_dtype("kvarn_k4v2_g128", dim)
launch = kernels.decode_launch(dim)
common = {"SINKS": 1, "HEADS": 4, "G": 128, "D": dim, **kernels._parts(tile)}
cases = {
    "_flush_kernel": ({"K_BITS": 4, "V_BITS": 2}, kernels.flush_warps(dim)),
    "_store_kernel": ({"CHUNK": 16}, 4),
    "_decode_kernel": (
        {"GROUP": 6, "QUERIES": 1, "BLOCK_M": 16, "BLOCK_N": launch.block_n, "WINDOW": 512},
        launch.num_warps,
    ),
    "_combine_kernel": ({}, 4),
    "_dequantize_kernel": ({}, 8),
}
types = dict.fromkeys("k v k_pool v_pool q k_out v_out".split(), "*fp16")
types |= dict.fromkeys("out lse part".split(), "*fp32") | {"tiles": "*u8"}
for name, (constants, warps) in cases.items():
    kernel = getattr(kernels, name)
    constants = common | constants
    signature, values = {}, {}
    for place, parameter in enumerate(kernel.params):
        text = parameter.name
        if parameter.is_constexpr:
            signature[text] = "constexpr"
            values[place,] = constants[text]
        elif text.endswith("_ptr"):
            signature[text] = types.get(text.removesuffix("_ptr"), "*i32")
        else:
            signature[text] = "fp32" if text == "scale" else "i32"
    source = ASTSource(fn=kernel, signature=signature, constexprs=values)
    made = triton.compile(
        source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps}
    )
    print(name, made.metadata.shared)
"""


@pytest.mark.parametrize(("arch", "dim"), [(80, 128), (86, 256), (90, 256)])
def test_every_kernel_compiles_within_the_shared_memory(arch: int, dim: int) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(arch), str(dim)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shared = dict(line.split() for line in done.stdout.splitlines())
    assert len(shared) == 5
    assert all(int(size) <= SHARED for size in shared.values()), shared
