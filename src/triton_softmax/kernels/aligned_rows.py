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
from .device.registers import in_registers, optimization_barrier, weighted
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
        HOW: a `RowTile`: block_rows and block_cols, powers of two, block_cols at least the length
            of a body, n_cols // vector * vector; vector, the elements that one access moves;
            barrier, see `optimization_barrier`.
    """
    OUT: tl.constexpr = out_ptr.dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    VECTOR: tl.constexpr = HOW.vector
    rows = tl.program_id(0).to(tl.int64) * HOW.block_rows + tl.arange(0, HOW.block_rows)[:, None]
    body = tl.arange(0, HOW.block_cols)[None, :]
    begin = rows * in_strides[0]
    body_mask = (rows < n_rows) & (
        round_up(begin, VECTOR) + body < (begin + n_cols) // VECTOR * VECTOR
    )
    edge, edge_mask = edge_of_row(begin, n_cols, VECTOR)
    edge_mask = edge_mask & (rows < n_rows)

    raw = ()
    raw_edge = ()
    for i in tl.static_range(len(in_ptrs) - OP.weighted):
        begin = rows * in_strides[i]
        in_body = in_ptrs[i] + (round_up(begin, VECTOR) + body)
        in_edge = in_ptrs[i] + begin + edge
        raw = raw + (tl.load(in_body, mask=body_mask, other=OP.padding),)
        raw_edge = raw_edge + (tl.load(in_edge, mask=edge_mask, other=OP.padding),)

    values_edge = in_registers(raw_edge, INNER)
    m = 0.0
    if OP.shifted:
        raw = optimization_barrier(raw, HOW.barrier)
        m = tl.max(in_registers(raw, INNER)[0], axis=1)
        m = tl.maximum(m, tl.max(values_edge[0], axis=1))[:, None]
    raw = optimization_barrier(raw, HOW.barrier)
    values = in_registers(raw, INNER)
    terms = OP.terms(values, m, False)
    terms_edge = OP.terms(values_edge, m, False)
    total = (tl.sum(terms, axis=1) + tl.sum(terms_edge, axis=1))[:, None]

    total = weighted(total, in_ptrs, rows * in_strides[-1], rows < n_rows, OP)
    if OP.reduces:
        result = OP.finish_row(m, total)
        tl.store(out_ptr + rows * out_stride, result.to(OUT), mask=rows < n_rows)
    else:
        if HOW.barrier:
            raw = optimization_barrier(raw, HOW.barrier)
            values = in_registers(raw, INNER)
            terms = OP.terms(values, m, False)
        out_begin = rows * out_stride
        out_body = out_ptr + (round_up(out_begin, VECTOR) + body)
        out_edge = out_ptr + out_begin + edge
        result = OP.finish(values, terms, m, total).to(INNER).to(OUT)
        result_edge = OP.finish(values_edge, terms_edge, m, total).to(INNER).to(OUT)
        tl.store(out_body, result, mask=body_mask)
        tl.store(out_edge, result_edge, mask=edge_mask)


# --8<-- [end:kernel]
