"""Several short rows per program: one read, one write, and enough bytes in flight for any length.

One program per row starves when rows are short: a program of 128 threads that moves 500 bytes
spends its life waiting for them. Here a program holds a tile of block_rows × block_cols elements;
with one row it is the single block again.

A longer row lies in several tiles side by side, since a tile's sides are powers of two and a row's
length seldom is.

A tile is read in vectors of 16 bytes only if every row starts and ends on one, and the compiler can
see it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device.names import with_operation
from .device.registers import in_registers
from .device.summaries import adjusted, load_numbers, placed, spread, store_numbers
from .device.sums import sums_of
from .device.tiles import barrier_of_tiles, max_of_tiles, terms_of_tiles
from .device.vectors import multiple_of


# --8<-- [start:kernel]
@triton.jit(
    repr=with_operation("packed_rows"),
    do_not_specialize=["in_strides", "out_strides", "n_rows", "n_cols"],
)
def packed_rows_kernel(
    in_ptrs, out_ptrs, in_strides, out_strides, n_rows, n_cols, OP: tl.constexpr, HOW: tl.constexpr
):
    """An operation on block_rows rows per program.

    Args:
        in_ptrs: the inputs, a tuple; n_rows rows of n_cols elements each, then those that have a
            number for each row.
        out_ptrs: the results, likewise: the elements unless the operation reduces, then numbers.
        in_strides: elements from one row to the next, for each input.
        out_strides: elements from one row to the next, for each result.
        n_rows: number of rows.
        n_cols: number of columns.
        OP: what is computed, an `Operation`.
        HOW: a `RowTile`: block_rows and block_cols, powers of two; tiles, as many as hold n_cols;
            vector, which divides n_cols and the strides; barrier, see `optimization_barrier`.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    TILES: tl.constexpr = HOW.tiles
    rows = tl.program_id(0).to(tl.int64) * HOW.block_rows + tl.arange(0, HOW.block_rows)[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    end = multiple_of(n_cols, HOW.vector)

    raw = ()
    places = ()
    for t in tl.static_range(TILES):
        mask = (rows < n_rows) & (t * BLOCK_COLS + cols < end)
        tile = ()
        for i in tl.static_range(len(in_ptrs) - OP.numbers):
            offsets = rows * multiple_of(in_strides[i], HOW.vector) + (t * BLOCK_COLS + cols)
            tile = tile + (tl.load(in_ptrs[i] + offsets, mask=mask, other=OP.padding),)
        raw = raw + (tile,)
        places = places + (tl.where(mask, t * BLOCK_COLS + cols, -1),)
    numbers = load_numbers(in_ptrs, in_strides, rows, rows < n_rows, OP)

    m = 0.0
    if OP.shifted:
        raw = barrier_of_tiles(raw, HOW.barrier)
        m = max_of_tiles(raw, INNER, 1)
    raw = barrier_of_tiles(raw, HOW.barrier)
    terms = terms_of_tiles(raw, places, m, INNER, OP)
    totals = spread(sums_of((terms,), 1, OP), 1)

    if OP.row_results:
        results = OP.finish_row(m, totals, numbers)
        store_numbers(out_ptrs, out_strides, rows, rows < n_rows, results, OP)
    if not OP.reduces:
        totals = adjusted(m, totals, numbers, OP)
        if HOW.barrier:
            # Computing both again costs less than the registers that would keep them.
            raw = barrier_of_tiles(raw, HOW.barrier)
            terms = terms_of_tiles(raw, places, m, INNER, OP)
        for t in tl.static_range(TILES):
            mask = (rows < n_rows) & (t * BLOCK_COLS + cols < end)
            offsets = rows * multiple_of(out_strides[0], HOW.vector) + (t * BLOCK_COLS + cols)
            values = placed(in_registers(raw[t], INNER), places[t], OP)
            result = OP.finish(values, terms[t], m, totals)
            tl.store(out_ptrs[0] + offsets, result.to(INNER).to(OUT), mask=mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(m, totals, numbers)
            mask = (rows < n_rows) & (col >= 0)
            tl.debug_barrier()
            tl.store(out_ptrs[0] + rows * out_strides[0] + col, result.to(INNER).to(OUT), mask=mask)


# --8<-- [end:kernel]
