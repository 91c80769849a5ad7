"""Hold whole rows in one program's registers: one read, one write, and several short rows at once.

One program per row is slow for short rows: 128 threads that move 500 bytes mostly wait. So a
program holds a tile of block_rows × block_cols elements. A longer row may take several adjacent
tiles, because tiles have power-of-two sides and row lengths seldom are powers of two.

Accesses are 16-byte vectors only if every row starts and ends on a vector, and the compiler can see
it (packed rows). Rows of 50,257 elements mostly start within a vector. For them (aligned rows,
`HOW.edges`) the body, from the first whole vector of a row to the last, is read and written at full
width. The rest, fewer elements than a vector at each end, fits in one small masked tile, the edge,
which joins the row's summary like any other part. The launcher checks that all pointers are
aligned, and that rows of the same index start equally far from a vector in every tensor.
"""

import triton
import triton.language as tl

from .device.names import with_operation
from .device.registers import in_registers
from .device.summaries import (
    adjusted,
    is_column,
    larger,
    load_numbers,
    max_of,
    placed,
    spread,
    store_numbers,
)
from .device.sums import sums_of
from .device.tiles import barrier_of_tiles, max_of_tiles, terms_of_tiles
from .device.vectors import edge_of_row, multiple_of, round_up


@triton.jit
def start_of_body(rows, stride, HOW: tl.constexpr):
    """The offset of each row's first whole vector, provably a multiple of one."""
    if HOW.edges:
        return round_up(rows * stride, HOW.vector)
    else:
        return rows * multiple_of(stride, HOW.vector)


@triton.jit(
    repr=with_operation("tile"), do_not_specialize=["in_strides", "out_strides", "n_rows", "n_cols"]
)
def tile_kernel(
    in_ptrs, out_ptrs, in_strides, out_strides, n_rows, n_cols, OP: tl.constexpr, HOW: tl.constexpr
):
    """Run an operation on block_rows rows per program.

    Args:
        in_ptrs: the inputs, a tuple: tensors of n_rows rows of n_cols elements, then row scalars.
        out_ptrs: the results, likewise: elements unless the operation reduces, then row scalars.
        in_strides: row stride of each input, in elements.
        out_strides: row stride of each result. With edges all strides of elements are equal modulo
            vector, and all pointers are aligned.
        n_rows: number of rows.
        n_cols: number of columns.
        OP: the `Operation`.
        HOW: a `RowTile`, whose vector divides n_cols and the strides unless it has edges.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    TILES: tl.constexpr = HOW.tiles
    rows = tl.program_id(0).to(tl.int64) * HOW.block_rows + tl.arange(0, HOW.block_rows)[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    length = multiple_of(n_cols, HOW.vector)

    if HOW.edges:
        begin = rows * in_strides[0]
        length = (begin + n_cols) // HOW.vector * HOW.vector - round_up(begin, HOW.vector)
        edge, edge_mask = edge_of_row(begin, n_cols, HOW.vector)
        edge_mask = edge_mask & (rows < n_rows)

    raw = ()
    places = ()
    for t in tl.static_range(TILES):
        mask = (rows < n_rows) & (t * BLOCK_COLS + cols < length)
        tile = ()
        for i in tl.static_range(len(in_ptrs) - OP.numbers):
            offsets = start_of_body(rows, in_strides[i], HOW) + (t * BLOCK_COLS + cols)
            tile = tile + (tl.load(in_ptrs[i] + offsets, mask=mask, other=OP.padding),)
        raw = raw + (tile,)
        places = places + (tl.where(mask, 0, -1),)

    if HOW.edges:
        raw_edge = ()
        for i in tl.static_range(len(in_ptrs) - OP.numbers):
            in_edge = in_ptrs[i] + rows * in_strides[i] + edge
            raw_edge = raw_edge + (tl.load(in_edge, mask=edge_mask, other=OP.padding),)
        place_edge = tl.where(edge_mask, 0, -1)
        values_edge = placed(in_registers(raw_edge, INNER), place_edge, OP)

    numbers = load_numbers(in_ptrs, in_strides, rows, rows < n_rows, OP)
    m = 0.0
    if OP.shifted:
        raw = barrier_of_tiles(raw, HOW.barrier)
        m = max_of_tiles(raw, INNER, 1, OP)
        if HOW.edges:
            m = larger(m, max_of(values_edge[0], 1, OP)[:, None], OP)
    raw = barrier_of_tiles(raw, HOW.barrier)
    terms = terms_of_tiles(raw, places, m, INNER, OP)
    parts = (terms,)
    if HOW.edges:
        terms_edge = OP.terms(values_edge, m, False)
        parts = (terms, (terms_edge,))
    totals = spread(sums_of(parts, m, 1, OP), 1)

    if OP.row_results:
        results = OP.finish_row(m, totals, numbers)
        store_numbers(out_ptrs, out_strides, rows, rows < n_rows, results, OP)
    if not OP.reduces:
        totals = adjusted(m, totals, numbers, OP)
        if HOW.barrier:
            # Recomputing both costs less than the registers that would hold them.
            raw = barrier_of_tiles(raw, HOW.barrier)
            terms = terms_of_tiles(raw, places, m, INNER, OP)
        for t in tl.static_range(TILES):
            mask = (rows < n_rows) & (t * BLOCK_COLS + cols < length)
            offsets = start_of_body(rows, out_strides[0], HOW) + (t * BLOCK_COLS + cols)
            values = placed(in_registers(raw[t], INNER), places[t], OP)
            result = OP.finish(values, terms[t], m, totals)
            tl.store(out_ptrs[0] + offsets, result.to(INNER).to(OUT), mask=mask)

        begin = rows * out_strides[0]
        if HOW.edges:
            result = OP.finish(values_edge, terms_edge, m, totals).to(INNER).to(OUT)
            tl.store(out_ptrs[0] + begin + edge, result, mask=edge_mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(m, totals, numbers)
            mask = (rows < n_rows) & is_column(col, 0, n_cols)
            tl.debug_barrier()
            tl.store(out_ptrs[0] + begin + col, result.to(INNER).to(OUT), mask=mask)
