"""The single block with the operation taken out of it: the step from one kernel to two halves."""

from __future__ import annotations

import triton
import triton.language as tl


# --8<-- [start:kernel]
@triton.jit
def one_row_kernel(in_ptrs, out_ptr, n_cols, OP: tl.constexpr, BLOCK: tl.constexpr):
    """An operation on a contiguous float32 matrix, one row per program.

    Args:
        in_ptrs: the inputs, a tuple of matrices.
        out_ptr: the result, a matrix of the same shape.
        n_cols: number of columns.
        OP: what is computed, an `Operation`.
        BLOCK: lanes of the tile, a power of two, at least n_cols.
    """
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    values = ()
    for i in tl.static_range(OP.inputs):
        x = tl.load(in_ptrs[i] + row * n_cols + cols, mask=mask, other=OP.padding)
        values = values + (x,)
    m = 0.0
    if OP.shifted:
        m = tl.max(values[0], axis=0)  # pyright: ignore
    terms = OP.terms(values, m, False)
    totals = (tl.sum(terms[0], axis=0),)
    result = OP.finish(values, terms, m, totals)
    tl.store(out_ptr + row * n_cols + cols, result, mask=mask)


# --8<-- [end:kernel]
