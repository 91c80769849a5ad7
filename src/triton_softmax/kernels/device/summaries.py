"""Merge the sums of a row, and load and store its row scalars.

In all functions totals, numbers (row scalars) and results are tuples. Most operations have one sum
and no row scalars; then these functions compile to almost nothing.
"""

import triton
import triton.language as tl

COMPILED = tl.constexpr(isinstance(tl.sum, getattr(triton, "JITFunction", ())))
"""Whether kernels are compiled: an interpreter would call a function that combines for each single
element."""


@triton.jit
def zeros_for(shape: tl.constexpr, TYPE: tl.constexpr, OP: tl.constexpr):
    """Initial zeros for each sum."""
    SUMS: tl.constexpr = OP.sums
    totals = ()
    for _ in tl.static_range(SUMS):
        totals = totals + (tl.zeros(shape, TYPE),)
    return totals


@triton.jit
def added(totals, more):
    """Add the sums of two parts that are relative to the same maximum."""
    both = ()
    for k in tl.static_range(len(totals)):
        both = both + (totals[k] + more[k],)
    return both


@triton.jit
def summed(terms, AXIS: tl.constexpr):
    """Sum blocks of terms along an axis."""
    totals = ()
    for k in tl.static_range(len(terms)):
        totals = totals + (tl.sum(terms[k], axis=AXIS),)
    return totals


@triton.jit
def spread(totals, AXIS: tl.constexpr):
    """Restore the axis that was summed along, with size 1."""
    blocks = ()
    for k in tl.static_range(len(totals)):
        blocks = blocks + (totals[k][None, :] if AXIS == 0 else totals[k][:, None],)
    return blocks


@triton.jit
def larger_or_nan(a, b):
    """The larger of two numbers, or NaN if either is: also a combine function."""
    if COMPILED.value:
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    else:
        return tl.where((a >= b) | (a != a), a, b)


@triton.jit
def larger(a, b, OP: tl.constexpr):
    """The larger of two numbers; with `any_order` NaN if either is, so that m tells if a term
    is."""
    if OP.any_order:
        return larger_or_nan(a, b)
    else:
        return tl.maximum(a, b)


@triton.jit
def max_or_nan(block, AXIS: tl.constexpr):
    """The largest element along an axis, or NaN if any is."""
    if COMPILED.value:
        return tl.reduce(block, AXIS, larger_or_nan)
    else:
        nans = tl.sum((block != block).to(tl.int32), axis=AXIS)
        return tl.where(nans > 0, float("nan"), tl.max(block, axis=AXIS))


@triton.jit
def max_of(block, AXIS: tl.constexpr, OP: tl.constexpr):
    """The largest element along an axis, as `larger` takes it."""
    if OP.any_order:
        return max_or_nan(block, AXIS)
    else:
        return tl.max(block, axis=AXIS)


@triton.jit
def merged(m, totals, m_parts, parts, AXIS: tl.constexpr, OP: tl.constexpr):
    """Merge partials of a row into a summary, one, or several along an axis: the largest m, and all
    sums relative to it."""
    # eq: merge
    if AXIS is None:
        m_all = tl.maximum(m, m_parts)
        return m_all, added(OP.rescale(totals, m, m_all), OP.rescale(parts, m_parts, m_all))
    else:
        m_all = tl.maximum(m, across(tl.max(m_parts, axis=AXIS), m_parts, AXIS))
        more = spread(summed(OP.rescale(parts, m_parts, m_all), AXIS), AXIS)
        return m_all, added(OP.rescale(totals, m, m_all), more)


@triton.jit
def to_common_maximum(m_parts, parts, AXIS: tl.constexpr, OP: tl.constexpr):
    """The largest m of partials along an axis, and their sums rescaled to it, not yet added up."""
    # eq: merge
    m = tl.max(m_parts, axis=AXIS)
    return m, OP.rescale(parts, m_parts, across(m, m_parts, AXIS))


@triton.jit
def across(reduced, block, AXIS: tl.constexpr):
    """Make the result of a reduction along AXIS broadcast against the block that was reduced."""
    if len(block.shape) > 1:
        return tl.expand_dims(reduced, AXIS)
    else:
        return reduced


@triton.jit
def load_numbers(in_ptrs, in_strides, rows, mask, OP: tl.constexpr):
    """Load the row scalars from the operation's last inputs."""
    numbers = ()
    for i in tl.static_range(len(in_ptrs) - OP.numbers, len(in_ptrs)):
        numbers = numbers + (tl.load(in_ptrs[i] + rows * in_strides[i], mask=mask, other=1),)
    return numbers


@triton.jit
def store_numbers(out_ptrs, out_strides, rows, mask, results, OP: tl.constexpr):
    """Store row scalars to the last results, which follow the elements, if there are any."""
    ROW_RESULTS: tl.constexpr = OP.row_results
    FIRST: tl.constexpr = len(out_ptrs) - OP.row_results
    for k in tl.static_range(ROW_RESULTS):
        ptr = out_ptrs[FIRST + k]
        result = results[k].to(ptr.dtype.element_ty)
        tl.store(ptr + rows * out_strides[FIRST + k], result, mask=mask)


@triton.jit
def adjusted(m, totals, numbers, OP: tl.constexpr):
    """The totals as `finish` takes them: adjusted, if the operation asks for it."""
    if OP.adjust is None:
        return totals
    else:
        return OP.adjust(m, totals, numbers)


@triton.jit
def is_column(col, first, end):
    """Whether a target column is in [first, end). No other may be read or written."""
    return (col >= first) & (col < end)


@triton.jit
def placed(values, places, OP: tl.constexpr):
    """The values of a block, plus where its elements lie if the operation needs that."""
    if OP.placed:
        return values + (places,)
    else:
        return values
