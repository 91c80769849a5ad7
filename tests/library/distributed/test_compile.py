"""What several GPUs run, through the compiler for one that is not there: nothing spills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import known
from softmax_bench.compilation import Request
from triton_softmax.choose import Choice, Device, choose_rows
from triton_softmax.distributed import kernels, operations
from triton_softmax.finishing import FINISHES
from triton_softmax.plan import traits_of

HERE = "triton_softmax.distributed"
OPERATIONS = "triton_softmax.operations"
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

NVIDIA = Device(132, nvidia=True)
SHAPES = ((8192, 4096), (8192, 65_536))
"""Of a rank's part: rows that are one program's each, and rows that are split."""

SPILLS = ("SUMMARY_AND_SUM", (8192, 65_536))
"""What is chosen for this spills 856 bytes a thread: two sums on one warp. Until
something else is chosen it is compiled with eight warps and all their registers."""


def choice_of(op: Any, n_rows: int, n_cols: int) -> Choice:
    """What the library launches for a summary of bfloat16 rows."""
    return choose_rows(
        n_rows,
        n_cols,
        2,
        traits=traits_of(op),
        addresses=(0,) * op.inputs,
        strides=(n_cols,) * op.inputs,
        device=NVIDIA,
    )


def summary_request(name: str, n_rows: int, n_cols: int) -> Request:
    op = getattr(operations, name)
    choice = choice_of(op, n_rows, n_cols)
    if (name, (n_rows, n_cols)) == SPILLS:
        how = choice.how._replace(block=8192)
        choice = choice._replace(how=how, num_warps=8, max_registers=None)
    results = op.row_results
    signature: dict[str, Any] = {
        "in_ptrs": ("*bf16",) * op.inputs,
        "out_ptrs": ("*fp32",) * results,
    }
    if choice.kernel == "split_rows":
        signature |= {"words_ptr": "*i64", "n_chunks": "i32", "chunk_cols": "i32"}
        signature["max_polls"] = "i32"
    signature |= {"in_strides": ("i32",) * op.inputs, "out_strides": (1,) * results}
    return Request(
        f"triton_softmax.kernels.{choice.kernel}:{choice.kernel}_kernel",
        signature | {"n_rows": "i32", "n_cols": "i32"},
        {"OP": f"{HERE}.operations:{name}", "HOW": choice.launches[0]},
        num_warps=choice.num_warps,
        aligned=("in_strides", "n_cols"),
        max_registers=choice.max_registers,
    )


def around(kernel: str, given: tuple, outs: int, sizes: tuple, **constants: Any) -> Request:
    """A request for a kernel of `distributed.kernels`."""
    pointers = {"in_ptrs": given, "out_ptrs": ("*i64", *("*fp32",) * outs)[-outs:]}
    if kernel.endswith("backward_kernel"):
        pointers["out_ptrs"] = ("*i64", "*fp32")
    tuples = {"strides": ("i32", 1), "g_strides": ("i32", 1), "lines": ("i32", "i32", "i32")}
    integers = {name: tuples.get(name, "i32") for name in sizes}
    return Request(f"{HERE}.kernels:{kernel}", pointers | integers, constants)


def around_the_message() -> list[Request]:
    """The kernels between a summary and a gradient, in the forms that take most."""
    f, i = "*fp32", "*i64"
    smoothed = {"SMOOTHING": 0.1, "Z_LOSS": 1e-3, "BLOCK": 256}
    sent = ("lines", "n_rows")
    found = [
        around(
            "pack_words_kernel",
            ("*bf16", i, i, f, *(f,) * 3),
            1,
            ("strides", "start", "n_rows", "n_cols", "n_total", "n_tokens", "ignore_index"),
            HEADER=2,
            WEIGHT=1,
            BLOCK=256,
        ),
        around("reduce_losses_kernel", (f,), 2, ("n_parts",), MEAN=True, Z_LOSS=1e-3, BLOCK=1024),
        around(
            "losses_backward_kernel",
            (f, i, f, f, f),
            2,
            ("g_stride", "start", "n_rows", "n_cols", "n_total", "ignore_index"),
            **smoothed,
            EACH=False,
        ),
        around(
            "tokens_backward_kernel",
            (f, i, f, f),
            2,
            ("g_strides", "entropy_stride", "start", "n_rows", "n_cols", "n_tokens"),
            ENTROPY=True,
            BLOCK=256,
        ),
    ]
    for each in (False, True):
        more = {"OP": f"{HERE}.operations:SUMMARY_AND_SUM", "PLAIN": 1, "EACH": each}
        sizes = (*sent, "n_total", "ignore_index")
        found.append(around("losses_kernel", (f, i, f), 3, sizes, **more, **smoothed))
    more = {"OP": f"{HERE}.operations:SUMMARY_AND_ENTROPY", "BLOCK": 256}
    found.append(around("tokens_kernel", (f,), 3, (*sent, "n_tokens"), **more))
    sizes = ("world", "rank_stride", "n_rows")
    for name in SUMMARIES[:4]:
        more = {"OP": f"{HERE}.operations:{name}", "PLAIN": 2, "BLOCK": 256}
        found.append(around("merge_ranks_kernel", (f,), 1, sizes, **more))
    return found


def requests() -> list[Request]:
    found = [summary_request(name, *shape) for name in SUMMARIES for shape in SHAPES]
    found += around_the_message()
    for op, (inputs, numbers) in AFTERWARDS.items():
        found.append(
            Request(
                "triton_softmax.kernels.finish_rows:finish_rows_kernel",
                {
                    "in_ptrs": ("*bf16",) * inputs,
                    "number_ptrs": numbers,
                    "out_ptr": "*bf16",
                    "in_strides": ("i32",) * inputs,
                    "n_rows": "i32",
                    "n_cols": "i32",
                    "n_chunks": "i32",
                },
                {"OP": op, "BLOCK_ROWS": 1, "BLOCK_COLS": 4096},
                num_warps=8,
                aligned=("in_strides", "n_cols"),
            )
        )
    return found


def test_all_operations_and_kernels_are_here():
    assert len(AFTERWARDS) == len(FINISHES) and len(SUMMARIES) == len(operations.SUMMARIES)
    asked = {each.kernel.rpartition(":")[2] for each in requests()}
    assert {name for name in vars(kernels) if name.endswith("_kernel")} <= asked
    assert {"packed_rows_kernel", "split_rows_kernel"} <= asked


def test_everything_compiles_without_spills(monkeypatch):
    """What has changed is compiled, and each day a tenth of the rest; see `tests/known.py`."""
    monkeypatch.setattr(known, "PATH", Path(__file__).parent / "known.json")
    found, wrong = known.answers({known.key(request): request for request in requests()})
    assert not wrong
    for request in requests():
        compiled = found[known.key(request)]
        assert not isinstance(compiled, Exception), compiled
        assert compiled.spill_bytes == 0, (request.kernel, request.constants)
        if "finish" in request.kernel:
            assert "ld.global.v4" in compiled.assembly and "st.global.v4" in compiled.assembly
