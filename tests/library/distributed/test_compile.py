"""What several GPUs run, through the compiler for one that is not there: nothing spills."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from softmax_bench.compilation import H200, Request, compiled, launch_requests
from triton_softmax.composite import FINISH_OF
from triton_softmax.config import choose_rows
from triton_softmax.distributed import partials, rank_kernels
from triton_softmax.plan import traits_of

HERE = "triton_softmax.distributed"
OPERATIONS = "triton_softmax.operations"
KERNELS = "triton_softmax.kernels.row_scalars"
SUMMARIES = (
    "SUMMARY",
    "SUMMARY_OF_INFINITIES",
    "SUMMARY_AND_SUM",
    "SUMMARY_AND_ENTROPY",
    "PRODUCTS",
    "GRADIENTS",
)

AFTERWARDS = {
    f"{OPERATIONS}.softmax:SOFTMAX": (1, ("*fp32",) * 2),
    f"{OPERATIONS}.log_softmax:LOG_SOFTMAX": (1, ("*fp32",) * 2),
    f"{OPERATIONS}.softmax:SOFTMAX_VJP": (2, ("*fp32",)),
    f"{OPERATIONS}.log_softmax:LOG_SOFTMAX_VJP": (2, ("*fp32",)),
    f"{OPERATIONS}.gradients:GRADIENT": (1, ("*fp32", "*i64", "*fp32", "*fp32", "*fp32")),
    f"{OPERATIONS}.gradients:TOKENS_GRADIENT": (1, ("*fp32", "*i64", "*fp32", "*fp32", "*fp32")),
}
"""How many inputs each has, and its numbers."""

SHAPES = ((8192, 4096), (8192, 65_536))
"""Of a rank's part: rows that are one program's each, and rows that are split."""


def summary_request(name: str, n_rows: int, n_cols: int) -> Request:
    """What the library launches for a summary of bfloat16 rows."""
    op = getattr(partials, name)
    tensors = {"addresses": (0,) * op.inputs, "strides": (n_cols,) * op.inputs}
    choice = choose_rows(n_rows, n_cols, 2, traits=traits_of(op), device=H200, **tensors)
    request = launch_requests(choice, "softmax_backward" if op.inputs == 2 else "softmax", "bf16")[
        0
    ]
    results = {"out_ptrs": ("*fp32",) * op.row_results, "out_strides": (1,) * op.row_results}
    return dataclasses.replace(
        request,
        signature=request.signature | results,
        constants=request.constants | {"OP": f"{HERE}.partials:{name}"},
        aligned=("in_strides", "n_cols"),
    )


def around(kernel: str, given: tuple, outs: int, sizes: tuple, **constants: Any) -> Request:
    """A request for a kernel of `distributed.rank_kernels`."""
    pointers = {"in_ptrs": given, "out_ptrs": ("*i64", *("*fp32",) * outs)[-outs:]}
    if kernel.endswith("backward_kernel"):
        pointers["out_ptrs"] = ("*i64", "*fp32")
    tuples = {"strides": ("i32", 1), "lines": ("i32", "i32", "i32")}
    integers = {name: tuples.get(name, "i32") for name in sizes}
    return Request(f"{HERE}.rank_kernels:{kernel}", pointers | integers, constants)


def around_the_message() -> list[Request]:
    """The kernels between a summary and a gradient, in the forms that take most."""
    f, i = "*fp32", "*i64"
    smoothed = {"SMOOTHING": 0.1, "Z_LOSS": 1e-3, "BLOCK": 256}
    loss = f"{OPERATIONS}.cross_entropy:CROSS_ENTROPY"
    gradient = {"OP": f"{loss}_SMOOTHED_GRADIENT", **smoothed}
    given = ("*bf16", i, f, f, *(f,) * 3)
    sizes = ("start", "n_rows", "n_cols", "n_total", "ignore_index")
    found = [
        around("pack_words_kernel", given, 1, ("strides", *sizes), HEADER=2, WEIGHT=1, BLOCK=256),
        around("reduce_losses_kernel", (f,), 2, ("n_parts",), MEAN=True, Z_LOSS=1e-3, BLOCK=1024),
        around("losses_backward_kernel", (f, i, f, f), 2, ("g_stride", *sizes), **gradient),
    ]
    sizes = ("lines", "n_rows", "n_total", "ignore_index")
    for each in (False, True):
        more = {"OP": f"{loss}_SMOOTHED", "PLAIN": 1, "EACH": each}
        found.append(around("losses_kernel", (f, i, f), 3, sizes, **more, **smoothed))
    sizes = ("world", "rank_stride", "n_rows")
    for name in (*SUMMARIES[:4], "SUMMARY_AND_DISTRIBUTION"):
        more = {"OP": f"{HERE}.partials:{name}", "PLAIN": 2, "BLOCK": 256}
        found.append(around("merge_ranks_kernel", (f,), 1, sizes, **more))
    return found


def requests() -> list[Request]:
    found = [summary_request(name, *SHAPES[i % 2]) for i, name in enumerate(SUMMARIES)]
    found += around_the_message()
    for op, (inputs, numbers) in AFTERWARDS.items():
        signature = {
            "in_ptrs": ("*bf16",) * inputs + numbers,
            "out_ptrs": ("*bf16",),
            "in_strides": ("i32",) * inputs,
            **dict.fromkeys(("n_rows", "n_cols", "n_chunks"), "i32"),
        }
        constants = {"OP": op, "BLOCK_ROWS": 1, "BLOCK_COLS": 4096, "WIDE": False}
        kernel, aligned = f"{KERNELS}:finish_rows_kernel", ("in_strides", "n_cols")
        found.append(Request(kernel, signature, constants, num_warps=8, aligned=aligned))
    return found


def test_all_operations_and_kernels_are_here():
    assert len(AFTERWARDS) == len(FINISH_OF) and len(SUMMARIES) == len(partials.ALL) - 1
    asked = {each.kernel.rpartition(":")[2] for each in requests()}
    assert {name for name in vars(rank_kernels) if name.endswith("_kernel")} <= asked
    assert {"tile_kernel", "split_rows_kernel"} <= asked


@pytest.mark.slow
@pytest.mark.parametrize("request_", requests(), ids=lambda each: each.kernel.rpartition(":")[2])
def test_compiles_without_spills(request_):
    result = compiled(request_)
    assert result.spill_bytes == 0
    if "finish" in request_.kernel:
        assert "ld.global.v4" in result.assembly and "st.global.v4" in result.assembly
