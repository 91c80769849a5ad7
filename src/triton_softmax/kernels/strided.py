"""Non-inner reductions, without a transposing copy.

The tensor is viewed as (n_outer, n_cols, n_inner) with any strides. One softmax reduces a column:
n_cols elements along the middle dimension. Adjacent elements in memory usually lie along n_inner,
in different columns. So a program takes block_inner columns side by side, reads whole cache lines
across them, and reduces over the tile's first axis. Its tiles hold whole columns; `split_strided`
takes longer ones, and `two_pass` very long ones and small slices in narrow lines. In names, `cols`
counts along a column and `inner` across.

Triton specialises arguments equal to 1, so it sees which axis is contiguous. It sees aligned tile
lines only if the other strides are multiples of 16, unlike those of 14 × 14 images. So the kernel
states what the launcher has checked: vector divides them.
"""

import triton
import triton.language as tl

from .device.names import with_operation
from .device.registers import in_registers
from .device.summaries import adjusted, is_column, load_numbers, placed, spread, store_numbers
from .device.sums import sums_of
from .device.tiles import barrier_of_tiles, max_of_tiles, terms_of_tiles
from .device.vectors import multiple_of


@triton.jit
def slices_of(ptrs, strides, outer, ELEMENTS: tl.constexpr, VECTOR: tl.constexpr):
    """The starts of an outer slice in several tensors of strides (outer, along, across), the first
    ELEMENTS accessed by vectors."""
    slices = ()
    for i in tl.static_range(len(ptrs)):
        begin = outer * multiple_of(strides[i][0], VECTOR if i < ELEMENTS else 1)
        slices = slices + (ptrs[i] + begin,)
    return slices


@triton.jit
def inner_strides(strides):
    """The strides from column to column, of several tensors."""
    inner = ()
    for i in tl.static_range(len(strides)):
        inner = inner + (strides[i][2],)
    return inner


@triton.jit
def offsets_in_slice(strides, cols, inner, VECTOR: tl.constexpr):
    """Offsets of a tile within an outer slice: cols along the columns, inner across them."""
    return cols * multiple_of(strides[1], VECTOR) + inner * strides[2]


@triton.jit
def pointers_of_tile(ptr, strides, first, cols, inner, VECTOR: tl.constexpr):
    """Pointers to a tile within an outer slice: first + cols along the columns, inner across them.

    `first` is one number for all threads, so that an address takes few instructions.
    """
    begin = ptr + first * multiple_of(strides[1], VECTOR)
    return begin + offsets_in_slice(strides, cols, inner, VECTOR)


@triton.jit
def load_tile(in_slices, in_strides, first, cols, inner, mask, OP: tl.constexpr, HOW: tl.constexpr):
    """Load a tile: a raw block of each input."""
    raw = ()
    for i in tl.static_range(len(in_slices) - OP.numbers):
        pointers = pointers_of_tile(in_slices[i], in_strides[i], first, cols, inner, HOW.vector)
        raw = raw + (tl.load(pointers, mask=mask, other=OP.padding),)
    return raw


@triton.jit(repr=with_operation("strided"))
def strided_kernel(
    in_ptrs, out_ptrs, in_strides, out_strides, n_cols, n_inner, OP: tl.constexpr, HOW: tl.constexpr
):
    """Run an operation along the middle dimension, on block_inner columns per program.

    Args:
        in_ptrs: the inputs, a tuple: tensors (n_outer, n_cols, n_inner), then column scalars
            (n_outer, 1, n_inner).
        out_ptrs: the results, likewise: elements unless the operation reduces, then scalars.
        in_strides: a triple of strides for each input, in elements; any number, including 0.
        out_strides: a triple of strides for each result.
        n_cols: length of a column.
        n_inner: columns per outer slice.
        OP: the `Operation`.
        HOW: a `StridedTile`, whose vector divides n_inner and all strides but the inner ones.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    INDEX: tl.constexpr = tl.int64 if HOW.wide_index else tl.int32
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    TILES: tl.constexpr = HOW.tiles
    VECTOR: tl.constexpr = HOW.vector
    blocks = tl.cdiv(n_inner, HOW.block_inner)
    program = tl.program_id(0)
    outer = (program // blocks).to(tl.int64)
    inner = (program % blocks).to(INDEX) * HOW.block_inner
    inner += tl.arange(0, HOW.block_inner)[None, :]
    cols = tl.arange(0, BLOCK_COLS).to(INDEX)[:, None]
    across = inner < multiple_of(n_inner, VECTOR)

    in_slices = slices_of(in_ptrs, in_strides, outer, OP.inputs, VECTOR)
    raw = ()
    places = ()
    for t in tl.static_range(TILES):
        start = tl.cast(t * BLOCK_COLS, INDEX)
        mask = (start + cols < n_cols) & across
        tile = load_tile(in_slices, in_strides, start, cols, inner, mask, OP, HOW)
        raw = raw + (tile,)
        places = places + (tl.where(mask, 0, -1),)
    numbers = load_numbers(in_slices, inner_strides(in_strides), inner, across, OP)

    m = 0.0
    if OP.shifted:
        raw = barrier_of_tiles(raw, HOW.barrier)
        m = max_of_tiles(raw, INNER, 0, OP)
    raw = barrier_of_tiles(raw, HOW.barrier)
    terms = terms_of_tiles(raw, places, m, INNER, OP)
    totals = spread(sums_of((terms,), m, 0, OP), 0)

    out_slices = slices_of(out_ptrs, out_strides, outer, len(out_ptrs) - OP.row_results, VECTOR)
    if OP.row_results:
        results = OP.finish_row(m, totals, numbers)
        store_numbers(out_slices, inner_strides(out_strides), inner, across, results, OP)
    if not OP.reduces:
        totals = adjusted(m, totals, numbers, OP)
        if HOW.barrier:
            raw = barrier_of_tiles(raw, HOW.barrier)
            terms = terms_of_tiles(raw, places, m, INNER, OP)
        for t in tl.static_range(TILES):
            start = tl.cast(t * BLOCK_COLS, INDEX)
            mask = (start + cols < n_cols) & across
            pointers = pointers_of_tile(out_slices[0], out_strides[0], start, cols, inner, VECTOR)
            values = placed(in_registers(raw[t], INNER), places[t], OP)
            result = OP.finish(values, terms[t], m, totals)
            tl.store(pointers, result.to(INNER).to(OUT), mask=mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(m, totals, numbers)
            offsets = offsets_in_slice(out_strides[0], col, inner, 1)
            mask = across & is_column(col, 0, n_cols)
            tl.debug_barrier()
            tl.store(out_slices[0] + offsets, result.to(INNER).to(OUT), mask=mask)
