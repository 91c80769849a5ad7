"""A dimension whose elements lie apart, without a transposing copy.

The tensor is seen as (n_outer, n_cols, n_inner) with free strides. A strand is what one softmax is
taken of: n_cols elements along the middle dimension. Neighbours in memory are, as a rule,
neighbours along n_inner and belong to different strands. So a program takes block_inner strands
side by side, reads whole cache lines across them, and reduces along them, over the tile's first
axis. Its tiles have room for whole strands. Longer ones are the business of `split_strided`, and
very long ones that of `strided_loops`. In names, `cols` counts along a strand and `inner` across.

Triton specialises an argument that is 1, and so sees which axis is contiguous. That the lines of a
tile start on vectors it sees only if the other strides are multiples of 16, and those of images of
14 × 14 pixels are not. So the kernel states what the launcher has checked: vector divides them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device.names import with_operation
from .device.registers import in_registers, weighted
from .device.sums import sum_of
from .device.tiles import barrier_of_tiles, max_of_tiles, terms_of_tiles
from .device.vectors import multiple_of


# --8<-- [start:tile]
@triton.jit
def slice_of(ptr, strides, outer, VECTOR: tl.constexpr):
    """Where an outer slice of a tensor with strides (outer, along, across) begins."""
    return ptr + outer * multiple_of(strides[0], VECTOR)


@triton.jit
def offsets_in_slice(strides, cols, inner, VECTOR: tl.constexpr):
    """Offsets of a tile within an outer slice: cols along the strands, inner across them."""
    return cols * multiple_of(strides[1], VECTOR) + inner * strides[2]


# --8<-- [end:tile]


# --8<-- [start:kernel]
@triton.jit(repr=with_operation("strided"))
def strided_kernel(
    in_ptrs, out_ptr, in_strides, out_strides, n_cols, n_inner, OP: tl.constexpr, HOW: tl.constexpr
):
    """An operation along the middle dimension, block_inner strands per program.

    Args:
        in_ptrs: the inputs, a tuple; (n_outer, n_cols, n_inner) each, and (n_outer, 1, n_inner) if
            the operation is weighted.
        out_ptr: the result, likewise, or (n_outer, 1, n_inner) if the operation reduces.
        in_strides: elements from one to the next along each dimension, a triple for each input;
            any, 0 included.
        out_strides: the same of the result.
        n_cols: length of a strand.
        n_inner: strands of an outer slice.
        OP: what is computed, an `Operation`.
        HOW: a `StridedTile`: block_cols and block_inner, powers of two; tiles, as many as hold
            n_cols; vector, which divides n_inner and all strides but the inner ones; barrier, see
            `optimization_barrier`; wide_index, whether offsets in a slice need 64 bits.
    """
    OUT: tl.constexpr = out_ptr.dtype.element_ty
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

    raw = ()
    for t in tl.static_range(TILES):
        mask = (t * BLOCK_COLS + cols < n_cols) & across
        tile = ()
        for i in tl.static_range(len(in_ptrs) - OP.weighted):
            ptr = slice_of(in_ptrs[i], in_strides[i], outer, VECTOR)
            offsets = offsets_in_slice(in_strides[i], t * BLOCK_COLS + cols, inner, VECTOR)
            tile = tile + (tl.load(ptr + offsets, mask=mask, other=OP.padding),)
        raw = raw + (tile,)

    m = 0.0
    if OP.shifted:
        raw = barrier_of_tiles(raw, HOW.barrier)
        m = max_of_tiles(raw, INNER, 0)
    raw = barrier_of_tiles(raw, HOW.barrier)
    terms = terms_of_tiles(raw, m, INNER, OP)
    total = sum_of((terms,), 0, OP)[None, :]

    offsets = outer * in_strides[-1][0] + inner * in_strides[-1][2]
    total = weighted(total, in_ptrs, offsets, across, OP)
    out_ptr = slice_of(out_ptr, out_strides, outer, 1 if OP.reduces else VECTOR)
    if OP.reduces:
        result = OP.finish_row(m, total)
        tl.store(out_ptr + inner * out_strides[2], result.to(OUT), mask=across)
    else:
        if HOW.barrier:
            raw = barrier_of_tiles(raw, HOW.barrier)
            terms = terms_of_tiles(raw, m, INNER, OP)
        for t in tl.static_range(TILES):
            mask = (t * BLOCK_COLS + cols < n_cols) & across
            offsets = offsets_in_slice(out_strides, t * BLOCK_COLS + cols, inner, VECTOR)
            result = OP.finish(in_registers(raw[t], INNER), terms[t], m, total)
            tl.store(out_ptr + offsets, result.to(INNER).to(OUT), mask=mask)


# --8<-- [end:kernel]
