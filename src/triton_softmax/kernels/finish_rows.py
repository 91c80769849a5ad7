"""Elements of a result from summaries that are known before: nothing is reduced, and nobody waits.

A program reads some elements and the numbers of their row, and writes. So a row may be of any
length, and its chunks are as independent as the elements of a copy.
"""

from __future__ import annotations

import triton
import triton.language as tl


# --8<-- [start:kernel]
@triton.jit(do_not_specialize=["n_rows", "n_chunks"])
def finish_rows_kernel(
    in_ptrs,
    number_ptrs,
    out_ptr,
    in_strides,
    n_rows,
    n_cols,
    n_chunks,
    OP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Write the elements of the result from a summary that is given.

    Args:
        in_ptrs: tensors of n_rows rows of n_cols adjacent elements.
        number_ptrs: m, if the operation is relative to it, and the totals; a number for each row.
        out_ptr: the result, contiguous.
        in_strides: elements from one row to the next, for each input.
        n_rows, n_cols: sizes.
        n_chunks: chunks of BLOCK_COLS in a row. A program has one of them in BLOCK_ROWS rows.
        OP: the operation.
    """
    ACC: tl.constexpr = tl.float64 if in_ptrs[0].dtype.element_ty == tl.float64 else tl.float32
    block = (tl.program_id(0) // n_chunks).to(tl.int64)
    rows = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    cols = tl.program_id(0) % n_chunks * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    values = ()
    for i in tl.static_range(len(in_ptrs)):
        pointers = in_ptrs[i] + rows * in_strides[i] + cols
        values = values + (tl.load(pointers, mask=mask, other=OP.padding).to(ACC),)
    m = 0.0
    FIRST: tl.constexpr = 1 if OP.shifted else 0
    if OP.shifted:
        m = tl.load(number_ptrs[0] + rows, mask=rows < n_rows, other=0.0)
    totals = ()
    for k in tl.static_range(FIRST, len(number_ptrs)):
        totals = totals + (tl.load(number_ptrs[k] + rows, mask=rows < n_rows, other=1),)
    terms = OP.terms(values, m, False)
    if OP.placed:
        values = values + (cols,)
    result = OP.finish(values, terms, m, totals)
    tl.store(out_ptr + rows * n_cols + cols, result.to(out_ptr.dtype.element_ty), mask=mask)


# --8<-- [end:kernel]
