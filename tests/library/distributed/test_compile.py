"""What several GPUs run, through the compiler for one that is not there: nothing spills."""

from __future__ import annotations

from pathlib import Path

import known
from softmax_bench.compilation import Request
from triton_softmax.choose.constants import RowTile, SplitRows
from triton_softmax.finishing import FINISHES

HERE = "triton_softmax.distributed"
OPERATIONS = "triton_softmax.operations"
SUMMARIES = {
    f"{HERE}.operations:SUMMARY": (1, 2),
    f"{HERE}.operations:SUMMARY_OF_INFINITIES": (1, 2),
    f"{HERE}.operations:SUMMARY_AND_SUM": (1, 3),
    f"{HERE}.operations:SUMMARY_AND_ENTROPY": (1, 3),
    f"{HERE}.operations:PRODUCTS": (2, 1),
    f"{HERE}.operations:GRADIENTS": (2, 1),
}
"""How many inputs and results each has."""

AFTERWARDS = {
    f"{OPERATIONS}.softmax:SOFTMAX": (1, ("*fp32",) * 2),
    f"{OPERATIONS}.log_softmax:LOG_SOFTMAX": (1, ("*fp32",) * 2),
    f"{OPERATIONS}.softmax:SOFTMAX_VJP": (2, ("*fp32",)),
    f"{OPERATIONS}.log_softmax:LOG_SOFTMAX_VJP": (2, ("*fp32",)),
    f"{OPERATIONS}.gradients:GRADIENT": (1, ("*fp32", "*i64", "*fp32", "*fp32", "*fp32")),
    f"{OPERATIONS}.gradients:TOKENS_GRADIENT": (1, ("*fp32", "*i64", "*fp32", "*fp32", "*fp32")),
}
"""How many inputs each has, and its numbers."""

TILE = RowTile(block_rows=1, block_cols=4096, vector=8, barrier=True)
CHUNKS = SplitRows(
    block=8192,
    vector=8,
    edges=False,
    pairs=True,
    barrier=True,
    keep_terms=False,
    depth=0,
    wait=True,
    backoff=0,
    publish=True,
    write=True,
    words=16,
    polls=1,
)


def requests() -> list[Request]:
    found = []
    for op, (inputs, results) in SUMMARIES.items():
        strides = {"in_strides": ("i32",) * inputs, "out_strides": (1,) * results}
        pointers = {"in_ptrs": ("*bf16",) * inputs, "out_ptrs": ("*fp32",) * results}
        sizes = {"n_rows": "i32", "n_cols": "i32"}
        kernels = "triton_softmax.kernels"
        packed = f"{kernels}.packed_rows:packed_rows_kernel"
        found.append(Request(packed, {**pointers, **strides, **sizes}, {"OP": op, "HOW": TILE}))
        split = f"{kernels}.split_rows:split_rows_kernel"
        more = {"words_ptr": "*i64", "n_chunks": "i32", "chunk_cols": "i32", "max_polls": "i32"}
        signature = {**pointers, **more, **strides, **sizes}
        found.append(Request(split, signature, {"OP": op, "HOW": CHUNKS}, num_warps=8))
        if inputs == 1:
            found.append(
                Request(
                    f"{HERE}.kernels:merge_ranks_kernel",
                    {"in_ptrs": ("*fp32",), "out_ptrs": ("*fp32",), "world": "i32", "n_rows": "i32"}
                    | {"rank_stride": "i32"},
                    {"OP": op, "PLAIN": 2, "BLOCK": 256},
                )
            )
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


def test_all_operations_are_here():
    assert len(AFTERWARDS) == len(FINISHES)


def test_everything_compiles_without_spills(monkeypatch):
    """What has changed is compiled, and each day a tenth of the rest; see `tests/known.py`."""
    monkeypatch.setattr(known, "PATH", Path(__file__).parent / "known.json")
    found, wrong = known.answers({known.key(request): request for request in requests()})
    assert not wrong
    for request in requests():
        compiled = found[known.key(request)]
        assert not isinstance(compiled, Exception), compiled
        assert compiled.spill_bytes == 0, (request.kernel, request.constants["OP"])
        if "finish" in request.kernel:
            assert "ld.global.v4" in compiled.assembly and "st.global.v4" in compiled.assembly
