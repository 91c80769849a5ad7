"""What the compiler makes of a kernel: how wide its loads and stores are, what it spills, and the
machine code of its lines."""

from __future__ import annotations

import linecache
from collections import Counter

import triton

from softmax_bench.compilation import Compilation, compiled, machine_code
from softmax_tutorial.single_block import num_warps_for_block

BLOCKS = (16_384, 32_768, 65_536, 131_072)
KERNELS = {
    "aligned": "softmax(torch.empty(171853, 781, dtype=torch.bfloat16), 1)",
    "split": "softmax(torch.empty(1024, 131072, dtype=torch.bfloat16), 1)",
}
LEAST = 1 / 80
"""The share of a kernel's instructions that are of one line and kind, for the line to be shown."""


def single_block(size: int, num_warps: int = 4, aligned: bool = False) -> Compilation:
    """The forward kernel of the tutorial; strides and length multiples of 16, or anything."""
    n_cols = size if aligned else size - 1
    (found,) = compiled(f"""
from softmax_tutorial.single_block import softmax_forward_single_block_kernel as kernel
x = torch.empty(8, {n_cols})
kernel[(8,)](x, x, {n_cols}, {n_cols}, {n_cols}, False, {size}, num_warps={num_warps})
""")
    return found


def lines_of(name: str) -> str:
    """A table of the lines of a kernel, with the instructions that most of each became."""
    *_, counted = machine_code(KERNELS[name])
    total = sum(map(Counter.total, counted.values()))
    least, rest = total * LEAST, 0
    lines = ["| Triton | instructions of a thread |", "| --- | --- |"]
    for (path, line), counts in counted.items():
        if max(counts.values()) < least:
            rest += counts.total()
            continue
        most = [(n, kind) for kind, n in counts.most_common(4) if n > least / 3]
        shown = ", ".join(f"{n} × `{kind}`" for n, kind in most)
        lines.append(f"| `{linecache.getline(path, line).strip()}` | {shown} |")
    lines.append(f"| all other lines | {rest:,} of {total:,} |")
    under = f"Compiled for sm_90 by Triton {triton.__version__}."
    return "\n".join([*lines, "", under, ""])


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
    return {
        "docs/_computed/single-block-width.md": widths(
            "row stride and length",
            {"multiples of 16": aligned, "anything": anything},
            "1,024 float32 elements on 4 warps, compiled for sm_90 by",
        ),
        "docs/_computed/spills.md": spills([single_block(size, num_warps=32) for size in BLOCKS]),
        "docs/_computed/sass-aligned.md": lines_of("aligned"),
        "docs/_computed/sass-split.md": lines_of("split"),
    }
