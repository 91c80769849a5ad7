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
from .device.registers import in_registers
from .device.summaries import adjusted, load_numbers, placed, spread, store_numbers
from .device.sums import sums_of
from .device.tiles import barrier_of_tiles, max_of_tiles, terms_of_tiles
from .device.vectors import edge_of_row, round_up


# --8<-- [start:kernel]
@triton.jit(
    repr=with_operation("aligned_rows"),
    do_not_specialize=["in_strides", "out_strides", "n_rows", "n_cols"],
)
def aligned_rows_kernel(
    in_ptrs, out_ptrs, in_strides, out_strides, n_rows, n_cols, OP: tl.constexpr, HOW: tl.constexpr
):
    """An operation on block_rows rows per program, wherever they start.

    Args:
        in_ptrs: the inputs, a tuple; n_rows rows of n_cols elements each, on a vector, then those
            that have a number for each row.
        out_ptrs: the results, likewise: the elements unless the operation reduces, then numbers.
        in_strides: elements from one row to the next, for each input.
        out_strides: elements from one row to the next, for each result. All strides of elements are
            equal modulo vector.
        n_rows: number of rows.
        n_cols: number of columns.
        OP: what is computed, an `Operation`.
        HOW: a `RowTile`: block_rows and block_cols, powers of two; tiles, as many as hold a body,
            n_cols // vector * vector columns; vector, the elements that one access moves; barrier,
            see `optimization_barrier`.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    VECTOR: tl.constexpr = HOW.vector
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    TILES: tl.constexpr = HOW.tiles
    rows = tl.program_id(0).to(tl.int64) * HOW.block_rows + tl.arange(0, HOW.block_rows)[:, None]
    body = tl.arange(0, BLOCK_COLS)[None, :]
    begin = rows * in_strides[0]
    length = (begin + n_cols) // VECTOR * VECTOR - round_up(begin, VECTOR)
    first = (round_up(begin, VECTOR) - begin).to(tl.int32)
    edge, edge_mask = edge_of_row(begin, n_cols, VECTOR)
    edge_mask = edge_mask & (rows < n_rows)

    raw = ()
    places = ()
    for t in tl.static_range(TILES):
        mask = (rows < n_rows) & (t * BLOCK_COLS + body < length)
        tile = ()
        for i in tl.static_range(len(in_ptrs) - OP.numbers):
            offsets = round_up(rows * in_strides[i], VECTOR) + (t * BLOCK_COLS + body)
            tile = tile + (tl.load(in_ptrs[i] + offsets, mask=mask, other=OP.padding),)
        raw = raw + (tile,)
        places = places + (tl.where(mask, first + t * BLOCK_COLS + body, -1),)
    raw_edge = ()
    for i in tl.static_range(len(in_ptrs) - OP.numbers):
        in_edge = in_ptrs[i] + rows * in_strides[i] + edge
        raw_edge = raw_edge + (tl.load(in_edge, mask=edge_mask, other=OP.padding),)
    numbers = load_numbers(in_ptrs, in_strides, rows, rows < n_rows, OP)

    place_edge = tl.where(edge_mask, edge, -1).to(tl.int32)
    values_edge = placed(in_registers(raw_edge, INNER), place_edge, OP)
    m = 0.0
    if OP.shifted:
        raw = barrier_of_tiles(raw, HOW.barrier)
        m = tl.maximum(max_of_tiles(raw, INNER, 1), tl.max(values_edge[0], axis=1)[:, None])
    raw = barrier_of_tiles(raw, HOW.barrier)
    terms = terms_of_tiles(raw, places, m, INNER, OP)
    terms_edge = OP.terms(values_edge, m, False)
    totals = spread(sums_of((terms, (terms_edge,)), 1, OP), 1)

    if OP.row_results:
        results = OP.finish_row(m, totals, numbers)
        store_numbers(out_ptrs, out_strides, rows, rows < n_rows, results, OP)
    if not OP.reduces:
        totals = adjusted(m, totals, numbers, OP)
        if HOW.barrier:
            raw = barrier_of_tiles(raw, HOW.barrier)
            terms = terms_of_tiles(raw, places, m, INNER, OP)
        begin = rows * out_strides[0]
        for t in tl.static_range(TILES):
            mask = (rows < n_rows) & (t * BLOCK_COLS + body < length)
            offsets = round_up(begin, VECTOR) + (t * BLOCK_COLS + body)
            values = placed(in_registers(raw[t], INNER), places[t], OP)
            result = OP.finish(values, terms[t], m, totals)
            tl.store(out_ptrs[0] + offsets, result.to(INNER).to(OUT), mask=mask)
        result = OP.finish(values_edge, terms_edge, m, totals).to(INNER).to(OUT)
        tl.store(out_ptrs[0] + begin + edge, result, mask=edge_mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(m, totals, numbers)
            mask = (rows < n_rows) & (col >= 0)
            tl.debug_barrier()
            tl.store(out_ptrs[0] + begin + col, result.to(INNER).to(OUT), mask=mask)


# --8<-- [end:kernel]
