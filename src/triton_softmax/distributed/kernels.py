"""The kernel for the time after the message: it merges the summaries of all ranks."""

from __future__ import annotations

import triton
import triton.language as tl

from ..kernels.device.summaries import added


# --8<-- [start:merge]
@triton.jit(do_not_specialize=["world", "n_rows"])
def merge_ranks_kernel(
    in_ptrs,
    out_ptrs,
    world,
    rank_stride,
    n_rows,
    OP: tl.constexpr,
    PLAIN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Merge the summaries of the ranks, in their order.

    Args:
        in_ptrs: one tensor, for each rank the words of all rows: m, then the sums of the operation,
            then PLAIN numbers that are added up; (world, 1 + sums + PLAIN, n_rows).
        out_ptrs: one tensor, the same for all ranks together, (1 + sums + PLAIN, n_rows).
        world: number of ranks.
        rank_stride: words from one rank to the next.
        n_rows: number of rows.
        OP: the operation of the summaries.
        PLAIN: how many numbers are sums of nothing that is relative to m.
        BLOCK: rows of a program, a power of two.
    """
    SUMS: tl.constexpr = OP.sums
    words_ptr, out_ptr = in_ptrs[0], out_ptrs[0]
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
