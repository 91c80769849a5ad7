"""What there is one of for a row: its sums, the numbers that go in with it and that come out.

In all functions totals, numbers and results are tuples. Most operations have one sum, and no number
of the row; then nothing of this is left in what is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def added(totals, more):
    """The sums of two parts that are relative to the same maximum."""
    both = ()
    for k in tl.static_range(len(totals)):
        both = both + (totals[k] + more[k],)
    return both


@triton.jit
def summed(terms, AXIS: tl.constexpr):
    """The sums of blocks of terms along an axis."""
    totals = ()
    for k in tl.static_range(len(terms)):
        totals = totals + (tl.sum(terms[k], axis=AXIS),)
    return totals


@triton.jit
def spread(totals, AXIS: tl.constexpr):
    """The sums as blocks that have the axis they were summed along, with size 1."""
    blocks = ()
    for k in tl.static_range(len(totals)):
        blocks = blocks + (totals[k][None, :] if AXIS == 0 else totals[k][:, None],)
    return blocks


# --8<-- [start:numbers]
@triton.jit
def load_numbers(in_ptrs, in_strides, rows, mask, OP: tl.constexpr):
    """The numbers of rows: what the operation's further inputs hold for them."""
    numbers = ()
    for i in tl.static_range(len(in_ptrs) - OP.numbers, len(in_ptrs)):
        numbers = numbers + (tl.load(in_ptrs[i] + rows * in_strides[i], mask=mask, other=1),)
    return numbers


@triton.jit
def store_numbers(out_ptrs, out_strides, rows, mask, results, OP: tl.constexpr):
    """Write what comes out for rows, each number behind the elements of the result if there are
    any."""
    ROW_RESULTS: tl.constexpr = OP.row_results
    FIRST: tl.constexpr = len(out_ptrs) - OP.row_results
    for k in tl.static_range(ROW_RESULTS):
        ptr = out_ptrs[FIRST + k]
        result = results[k].to(ptr.dtype.element_ty)
        tl.store(ptr + rows * out_strides[FIRST + k], result, mask=mask)


@triton.jit
def adjusted(m, totals, numbers, OP: tl.constexpr):
    """What the elements of the result are computed with, in place of the sums."""
    if OP.adjust is None:
        return totals
    else:
        return OP.adjust(m, totals, numbers)


@triton.jit
def placed(values, places, OP: tl.constexpr):
    """The values of a block, with the columns that its elements lie in if the operation asks."""
    if OP.placed:
        return values + (places,)
    else:
        return values


# --8<-- [end:numbers]
