"""A dimension whose elements lie apart, without a transposing copy.

The tensor is seen as (n_outer, n_cols, n_inner) with free strides: the operation runs along the
middle, and neighbours in memory are, as a rule, neighbours along n_inner. So a program takes
block_inner columns side by side, reads whole cache lines across them, and reduces down the tile's
first axis. The tile holds the whole dimension. One that is too long for that is the business of
`split_strided`, and a very long one that of `strided_loops`.

Triton specialises an argument that is 1, and so sees which axis is contiguous. That the lines of a
tile start on vectors it sees only if the other strides are multiples of 16, and those of images of
14 × 14 pixels are not. So the kernel states what the launcher has checked: vector divides them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device.names import with_operation
from .device.registers import in_registers, optimization_barrier
from .device.summaries import adjusted, load_numbers, placed, spread, store_numbers, summed
from .device.vectors import multiple_of


# --8<-- [start:tile]
@triton.jit
def slice_of(ptr, strides, outer, VECTOR: tl.constexpr):
    """Where an outer slice of a tensor with strides (outer, column, inner) begins."""
    return ptr + outer * multiple_of(strides[0], VECTOR)


@triton.jit
def slices_of(ptrs, strides, outer, ELEMENTS: tl.constexpr, VECTOR: tl.constexpr):
    """The same of several tensors, of which the first ELEMENTS are accessed by vectors."""
    slices = ()
    for i in tl.static_range(len(ptrs)):
        slices = slices + (slice_of(ptrs[i], strides[i], outer, VECTOR if i < ELEMENTS else 1),)
    return slices


@triton.jit
def inner_strides(strides):
    """From one column to the next, of several tensors."""
    inner = ()
    for i in tl.static_range(len(strides)):
        inner = inner + (strides[i][2],)
    return inner


@triton.jit
def offsets_in_slice(strides, cols, inner, VECTOR: tl.constexpr):
    """Offsets of a tile within an outer slice: cols down, inner across."""
    return cols * multiple_of(strides[1], VECTOR) + inner * strides[2]


# --8<-- [end:tile]


# --8<-- [start:kernel]
@triton.jit(repr=with_operation("strided"))
def strided_kernel(
    in_ptrs, out_ptrs, in_strides, out_strides, n_cols, n_inner, OP: tl.constexpr, HOW: tl.constexpr
):
    """An operation along the middle dimension, block_inner columns per program.

    Args:
        in_ptrs: the inputs, a tuple; (n_outer, n_cols, n_inner) each, then those that have a number
            for each column, (n_outer, 1, n_inner).
        out_ptrs: the results, likewise: the elements unless the operation reduces, then numbers.
        in_strides: elements from one to the next along each dimension, a triple for each input;
            any, 0 included.
        out_strides: the same of the results.
        n_cols: length of the middle dimension.
        n_inner: length of the last dimension.
        OP: what is computed, an `Operation`.
        HOW: a `StridedTile`: block_cols, a power of two, at least n_cols; block_inner, a power of
            two; vector, which divides n_inner and all strides but the inner ones; barrier, see
            `optimization_barrier`; wide_index, whether offsets in a slice need 64 bits.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    INDEX: tl.constexpr = tl.int64 if HOW.wide_index else tl.int32
    VECTOR: tl.constexpr = HOW.vector
    blocks = tl.cdiv(n_inner, HOW.block_inner)
    program = tl.program_id(0)
    outer = (program // blocks).to(tl.int64)
    inner = (program % blocks).to(INDEX) * HOW.block_inner
    inner += tl.arange(0, HOW.block_inner)[None, :]
    cols = tl.arange(0, HOW.block_cols).to(INDEX)[:, None]
    across = inner < multiple_of(n_inner, VECTOR)
    mask = (cols < n_cols) & across

    in_slices = slices_of(in_ptrs, in_strides, outer, OP.inputs, VECTOR)
    raw = ()
    for i in tl.static_range(len(in_ptrs) - OP.numbers):
        offsets = offsets_in_slice(in_strides[i], cols, inner, VECTOR)
        raw = raw + (tl.load(in_slices[i] + offsets, mask=mask, other=OP.padding),)

    m = 0.0
    if OP.shifted:
        raw = optimization_barrier(raw, HOW.barrier)
        m = tl.max(in_registers(raw, INNER)[0], axis=0)[None, :]
    raw = optimization_barrier(raw, HOW.barrier)
    places = tl.where(mask, cols, -1)
    values = placed(in_registers(raw, INNER), places, OP)
    terms = OP.terms(values, m, False)
    totals = spread(summed(terms, 0), 0)

    out_slices = slices_of(out_ptrs, out_strides, outer, len(out_ptrs) - OP.row_results, VECTOR)
    numbers = load_numbers(in_slices, inner_strides(in_strides), inner, across, OP)
    if OP.row_results:
        results = OP.finish_row(m, totals, numbers)
        store_numbers(out_slices, inner_strides(out_strides), inner, across, results, OP)
    if not OP.reduces:
        totals = adjusted(m, totals, numbers, OP)
        if HOW.barrier:
            raw = optimization_barrier(raw, HOW.barrier)
            values = placed(in_registers(raw, INNER), places, OP)
            terms = OP.terms(values, m, False)
        result = OP.finish(values, terms, m, totals).to(INNER).to(OUT)
        offsets = offsets_in_slice(out_strides[0], cols, inner, VECTOR)
        tl.store(out_slices[0] + offsets, result, mask=mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(m, totals, numbers)
            offsets = offsets_in_slice(out_strides[0], col, inner, 1)
            mask = across & (col >= 0)
            tl.debug_barrier()
            tl.store(out_slices[0] + offsets, result.to(INNER).to(OUT), mask=mask)


# --8<-- [end:kernel]
