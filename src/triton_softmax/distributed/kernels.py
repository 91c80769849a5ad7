"""Two kernels for the time after the message: one merges the summaries of all ranks, one writes
elements from a summary that is given. Neither knows an equation."""

from __future__ import annotations

import triton
import triton.language as tl

from ..kernels.device.summaries import added


# --8<-- [start:merge]
@triton.jit(do_not_specialize=["world", "n_rows"])
def merge_ranks_kernel(
    words_ptr,
    out_ptr,
    world,
    rank_stride,
    n_rows,
    OP: tl.constexpr,
    PLAIN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Merge the summaries of the ranks, in their order.

    Args:
        words_ptr: for each rank the words of all rows: m, then the sums of the operation, then
            PLAIN numbers that are added up; (world, 1 + sums + PLAIN, n_rows).
        out_ptr: the same for all ranks together, (1 + sums + PLAIN, n_rows).
        world: number of ranks.
        rank_stride: words from one rank to the next.
        n_rows: number of rows.
        OP: the operation of the summaries.
        PLAIN: how many numbers are sums of nothing that is relative to m.
        BLOCK: rows of a program, a power of two.
    """
    SUMS: tl.constexpr = OP.sums
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < n_rows
    m = tl.load(words_ptr + rows, mask=inside, other=0.0)
    totals = ()
    for k in tl.static_range(SUMS + PLAIN):
        totals = totals + (tl.load(words_ptr + (1 + k) * n_rows + rows, mask=inside, other=0.0),)
    for rank in range(1, world):
        words = words_ptr + rank * rank_stride
        m_rank = tl.load(words + rows, mask=inside, other=0.0)
        of_rank = ()
        for k in tl.static_range(SUMS + PLAIN):
            of_rank = of_rank + (tl.load(words + (1 + k) * n_rows + rows, mask=inside, other=0.0),)
        m_both = tl.maximum(m, m_rank)
        # eq: merge
        both = added(OP.rescale(totals, m, m_both), OP.rescale(of_rank, m_rank, m_both))
        for k in tl.static_range(PLAIN):
            both = both + (totals[SUMS + k] + of_rank[SUMS + k],)
        m = m_both
        totals = both
    tl.store(out_ptr + rows, m, mask=inside)
    for k in tl.static_range(SUMS + PLAIN):
        tl.store(out_ptr + (1 + k) * n_rows + rows, totals[k], mask=inside)


# --8<-- [end:merge]


# --8<-- [start:finish]
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


# --8<-- [end:finish]
