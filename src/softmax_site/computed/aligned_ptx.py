"""What the compiler makes of odd rows: the packed kernel element by element, the aligned kernel in
whole vectors."""

from __future__ import annotations

import re

import triton

from softmax_bench.compilation import Compilation, Request, compile_many

BLOCK_COLS = 4096
NUM_WARPS = 4
INTEGERS = ("x_row_stride", "y_row_stride", "n_rows", "n_cols")
KERNELS = (("packed_rows", 1), ("aligned_rows", 8))


def request(name: str, vector: int) -> Request:
    """The forward kernel for one bfloat16 row per program, sm_90; nothing is promised about strides
    or length."""
    return Request(
        f"triton_softmax.kernels.{name}:softmax_forward_{name}_kernel",
        {"x_ptr": "*bf16", "y_ptr": "*bf16", **dict.fromkeys(INTEGERS, "i32")},
        {"LOG": False, "VECTOR": vector, "HOLD": False, "BLOCK_ROWS": 1, "BLOCK_COLS": BLOCK_COLS},
        "sm_90",
        num_warps=NUM_WARPS,
    )


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
        table.append("| " + " | ".join([f"`{name}`, `VECTOR={vector}`", *cells]) + " |")
        excerpt += [f"// {name}, VECTOR={vector}", *first_of_each(result), ""]
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
