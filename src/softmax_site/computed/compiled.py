"""What the compiler makes of a kernel: how wide its loads and stores are, and what it spills."""

from __future__ import annotations

import triton

from softmax_bench.compilation import Compilation, compiled
from softmax_tutorial.single_block import num_warps_for_block

BLOCKS = (16_384, 32_768, 65_536, 131_072)
BLOCK_COLS, NUM_WARPS = 4096, 4
ODD_ROWS = (("packed_rows", 1), ("aligned_rows", 8))  # kernels, and the length of their vectors


def single_block(size: int, num_warps: int = 4, aligned: bool = False) -> Compilation:
    """The forward kernel of the tutorial; strides and length multiples of 16, or anything."""
    n_cols = size if aligned else size - 1
    (found,) = compiled(f"""
from softmax_tutorial.single_block import softmax_forward_single_block_kernel as kernel
x = torch.empty(8, {n_cols})
kernel[(8,)](x, x, {n_cols}, {n_cols}, {n_cols}, False, {size}, num_warps={num_warps})
""")
    return found


def odd_row(name: str, vector: int) -> Compilation:
    """Softmax of one bfloat16 row per program; nothing is promised about strides or length."""
    (found,) = compiled(f"""
from triton_softmax.config.space import Choice, RowTile
how = RowTile(1, {BLOCK_COLS}, {vector}, barrier=False, edges={name == "aligned_rows"})
with choosing(lambda *_: Choice("{name}", how, {NUM_WARPS})):
    softmax(torch.empty(8, 4001, dtype=torch.bfloat16), 1)
""")
    return found


def widths(what: str, kernels: dict[str, Compilation], under: str) -> str:
    """A table of instructions: how each kernel loads and stores."""
    lines = [f"| {what} | loads | stores |", "| --- | --- | --- |"]
    for name, result in kernels.items():
        cells = [
            ", ".join(f"{count} × `{access}`" for access, count in counts.items())
            for counts in (result.global_loads, result.global_stores)
        ]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    under = f"Per thread, for {under} Triton {triton.__version__}."
    return "\n".join([*lines, "", under, ""])


def spills(results: list[Compilation]) -> str:
    """A table of blocks: elements per thread, registers, bytes spilled, loads in the code."""
    lines = [
        "| longest row, columns | elements per thread | registers per thread "
        "| bytes spilled per thread | load instructions per thread |",
        "|---:|---:|---:|---:|---:|",
    ]
    for size, result in zip(BLOCKS, results, strict=True):
        loads = sum(result.global_loads.values())
        lines.append(
            f"| {size:,} | {size // 1024} | {result.registers} | {result.spill_bytes} | {loads} |"
        )
    under = f"Float32, 32 warps, compiled for sm_90 by Triton {triton.__version__}."
    return "\n".join([*lines, "", under, ""])


def generate() -> dict[str, str]:
    """The tables."""
    assert num_warps_for_block(BLOCKS[-1]) == 32
    aligned, anything = single_block(1024, aligned=True), single_block(1024)
    odd = {f"`{name}`, vector {vector}": odd_row(name, vector) for name, vector in ODD_ROWS}
    of_odd = (
        f"a block of {BLOCK_COLS:,} bfloat16 elements on {NUM_WARPS} warps, any row stride; "
        "compiled for sm_90 by"
    )
    return {
        "docs/_computed/single-block-width.md": widths(
            "row stride and length",
            {"multiples of 16": aligned, "anything": anything},
            "1,024 float32 elements on 4 warps, compiled for sm_90 by",
        ),
        "docs/_computed/aligned-ptx.md": widths("kernel", odd, of_odd),
        "docs/_computed/spills.md": spills([single_block(size, num_warps=32) for size in BLOCKS]),
    }
