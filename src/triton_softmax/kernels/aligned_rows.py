"""Rows that start anywhere, with wide accesses: a head, a body that starts on a vector, a tail.

A row of 50,257 elements starts, in most cases, between two vectors of 16 bytes, and a compiler that
cannot prove alignment reads it element by element. But some element near its start does lie on a
vector. From there to the last whole vector runs the body, read and written at full width; what is
left, fewer elements than a vector on each side, fits in one small masked tile, the edge. It
contributes to the row's summary like any other part.

The launcher checks that all pointers lie on a vector, and that rows with the same number start
equally far from one in every tensor.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device.names import with_operation
from .device.registers import in_registers, weighted
from .device.sums import sum_of
from .device.tiles import barrier_of_tiles, max_of_tiles, terms_of_tiles
from .device.vectors import edge_of_row, round_up


# --8<-- [start:kernel]
@triton.jit(
    repr=with_operation("aligned_rows"),
    do_not_specialize=["in_strides", "out_stride", "n_rows", "n_cols"],
)
def aligned_rows_kernel(
    in_ptrs, out_ptr, in_strides, out_stride, n_rows, n_cols, OP: tl.constexpr, HOW: tl.constexpr
):
    """An operation on block_rows rows per program, wherever they start.

    Args:
        in_ptrs: the inputs, a tuple; n_rows rows of n_cols elements each, on a vector, and a number
            for each row if the operation is weighted.
        out_ptr: the result, likewise, or one number per row if the operation reduces.
        in_strides: elements from one row to the next, for each input; equal modulo vector.
        out_stride: elements from one row of the result to the next; equal to those modulo vector
            unless the operation reduces.
        n_rows: number of rows.
        n_cols: number of columns.
        OP: what is computed, an `Operation`.
        HOW: a `RowTile`: block_rows and block_cols, powers of two; tiles, as many as hold a body,
            n_cols // vector * vector columns; vector, the elements that one access moves; barrier,
            see `optimization_barrier`.
    """
    OUT: tl.constexpr = out_ptr.dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    VECTOR: tl.constexpr = HOW.vector
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    TILES: tl.constexpr = HOW.tiles
    rows = tl.program_id(0).to(tl.int64) * HOW.block_rows + tl.arange(0, HOW.block_rows)[:, None]
    body = tl.arange(0, BLOCK_COLS)[None, :]
    begin = rows * in_strides[0]
    length = (begin + n_cols) // VECTOR * VECTOR - round_up(begin, VECTOR)
    edge, edge_mask = edge_of_row(begin, n_cols, VECTOR)
    edge_mask = edge_mask & (rows < n_rows)

    raw = ()
    for t in tl.static_range(TILES):
        mask = (rows < n_rows) & (t * BLOCK_COLS + body < length)
        tile = ()
        for i in tl.static_range(len(in_ptrs) - OP.weighted):
            offsets = round_up(rows * in_strides[i], VECTOR) + (t * BLOCK_COLS + body)
            tile = tile + (tl.load(in_ptrs[i] + offsets, mask=mask, other=OP.padding),)
        raw = raw + (tile,)
    raw_edge = ()
    for i in tl.static_range(len(in_ptrs) - OP.weighted):
        in_edge = in_ptrs[i] + rows * in_strides[i] + edge
        raw_edge = raw_edge + (tl.load(in_edge, mask=edge_mask, other=OP.padding),)

    values_edge = in_registers(raw_edge, INNER)
    m = 0.0
    if OP.shifted:
        raw = barrier_of_tiles(raw, HOW.barrier)
        m = tl.maximum(max_of_tiles(raw, INNER, 1), tl.max(values_edge[0], axis=1)[:, None])
    raw = barrier_of_tiles(raw, HOW.barrier)
    terms = terms_of_tiles(raw, m, INNER, OP)
    terms_edge = OP.terms(values_edge, m, False)
    total = sum_of((terms, (terms_edge,)), 1, OP)[:, None]
    total = weighted(total, in_ptrs, rows * in_strides[-1], rows < n_rows, OP)

    if OP.reduces:
        result = OP.finish_row(m, total)
        tl.store(out_ptr + rows * out_stride, result.to(OUT), mask=rows < n_rows)
    else:
        if HOW.barrier:
            raw = barrier_of_tiles(raw, HOW.barrier)
            terms = terms_of_tiles(raw, m, INNER, OP)
        begin = rows * out_stride
        for t in tl.static_range(TILES):
            mask = (rows < n_rows) & (t * BLOCK_COLS + body < length)
            offsets = round_up(begin, VECTOR) + (t * BLOCK_COLS + body)
            result = OP.finish(in_registers(raw[t], INNER), terms[t], m, total)
            tl.store(out_ptr + offsets, result.to(INNER).to(OUT), mask=mask)
        result = OP.finish(values_edge, terms_edge, m, total).to(INNER).to(OUT)
        tl.store(out_ptr + begin + edge, result, mask=edge_mask)


# --8<-- [end:kernel]
