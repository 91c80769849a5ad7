"""What the compiler makes of odd rows: the packed kernel element by element, the aligned kernel in
whole vectors."""

from __future__ import annotations

import re

import triton

from softmax_bench.compilation import Compilation, Request, compile_many, geometry_request
from triton_softmax.choose.constants import RowTile

BLOCK_COLS = 4096
NUM_WARPS = 4
KERNELS = (("packed_rows", 1), ("aligned_rows", 8))


def request(name: str, vector: int) -> Request:
    """Softmax of one bfloat16 row per program, sm_90; nothing is promised about strides or
    length."""
    how = RowTile(block_rows=1, block_cols=BLOCK_COLS, vector=vector, barrier=False)
    return geometry_request(name, "softmax", "bf16", how, num_warps=NUM_WARPS)


def first_of_each(result: Compilation) -> list[str]:
    """The first instruction of every kind that loads from global memory or stores to it, as the
    compiler wrote it."""
    lines: dict[str, str] = {}
    for line in result.ptx.splitlines():
        access = re.search(r"\b(?:ld|st)\.(?:volatile\.)?global[\w.:]*", line)
        if access:
            lines.setdefault(access[0], line.strip())
    return list(lines.values())


def generate() -> dict[str, str]:
    """A table of instructions by kernel, and one instruction of each kind."""
    table = ["| kernel | loads | stores |", "| --- | --- | --- |"]
    excerpt = []
    for (name, vector), result in zip(
        KERNELS, compile_many([request(*kernel) for kernel in KERNELS]), strict=True
    ):
        cells = [
            ", ".join(f"{count} × `{access}`" for access, count in counts.items())
            for counts in (result.global_loads, result.global_stores)
        ]
        table.append("| " + " | ".join([f"`{name}`, vector {vector}", *cells]) + " |")
        excerpt += [f"// {name}, vector {vector}", *first_of_each(result), ""]
    table += [
        "",
        f"Per thread, for a block of {BLOCK_COLS:,} bfloat16 elements on {NUM_WARPS} warps, "
        "any row stride; compiled for sm_90 by "
        f"Triton {triton.__version__}.",
        "",
    ]
    return {
        "docs/_computed/aligned-ptx.md": "\n".join(table),
        "docs/_computed/aligned-ptx.txt": "\n".join(excerpt).rstrip("\n") + "\n",
    }
