"""The registers and the spills of the single-block kernel as its block grows past what fits."""

import triton

from softmax_bench.compilation import Request, compile_many
from triton_softmax.kernels.single_block import num_warps_for_block

KERNEL = "triton_softmax.kernels.single_block:softmax_forward_single_block_kernel"
SIGNATURE = {
    "x_ptr": "*fp32",
    "y_ptr": "*fp32",
    "x_row_stride": "i32",
    "y_row_stride": "i32",
    "n_cols": "i32",
}
BLOCKS = (16_384, 32_768, 65_536, 131_072)


def requests() -> list[Request]:
    """A compilation for each block."""
    return [
        Request(KERNEL, SIGNATURE, {"LOG": False, "BLOCK_SIZE": size}, "sm_90", num_warps=32)
        for size in BLOCKS
    ]


def generate() -> dict[str, str]:
    """A table of blocks: elements per thread, registers, bytes spilled, loads in the code."""
    assert num_warps_for_block(BLOCKS[-1]) == 32
    lines = [
        "| columns, up to | elements per thread | registers per thread | bytes spilled per thread "
        "| loads in the code |",
        "|---:|---:|---:|---:|---:|",
    ]
    for size, result in zip(BLOCKS, compile_many(requests()), strict=True):
        loads = sum(result.global_loads.values())
        lines.append(
            f"| {size:,} | {size // 1024} | {result.registers} | {result.spill_bytes} | {loads} |"
        )
    lines += ["", f"Compiled with Triton {triton.__version__}."]
    return {"docs/_computed/spills.md": "\n".join(lines) + "\n"}
