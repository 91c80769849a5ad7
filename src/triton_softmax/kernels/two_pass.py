"""Read columns too long for registers twice, in loops: once to summarise, once to write.

The tensor is viewed as (n_outer, n_cols, n_inner), as in `strided`. A program loops over
block_inner columns side by side with the online recurrence, then again to write. A step takes
several small tiles, all of which are on their way at once. Very long columns
are often too few to fill all multiprocessors, so they are cut into chunks: a first launch stores
the chunks' partials, a second merges them and writes. With a single chunk one launch does both.

`split_strided` reads once, but waits. Here no program waits for another, so this runs on every
device, and in float64. With n_inner = 1 it takes rows as well.
"""

import triton
import triton.language as tl

from .device.names import with_operation
from .device.registers import in_registers, upcast
from .device.summaries import (
    added,
    adjusted,
    is_column,
    load_numbers,
    merged,
    placed,
    spread,
    store_numbers,
    summed,
    to_common_maximum,
    zeros_for,
)
from .device.tiles import terms_of_tiles
from .device.vectors import multiple_of
from .strided import inner_strides, load_tile, offsets_in_slice, pointers_of_tile, slices_of


@triton.jit
def place_of_tile(start, T: tl.constexpr, end, across, HOW: tl.constexpr):
    """(first, cols, mask) of a tile of the step that begins at `start`: its elements lie at
    first + cols along the columns."""
    INDEX: tl.constexpr = tl.int64 if HOW.wide_index else tl.int32
    first = start + T * HOW.block_cols
    cols = tl.arange(0, HOW.block_cols)[:, None].to(INDEX)
    return first, cols, (cols < end - first) & across


@triton.jit
def load_step(slices, strides, start, end, inner, across, OP: tl.constexpr, HOW: tl.constexpr):
    """Load the tiles of a step, and where their elements lie along the columns; −1 outside."""
    TILES: tl.constexpr = HOW.tiles
    raw = ()
    places = ()
    for t in tl.static_range(TILES):
        first, cols, mask = place_of_tile(start, t, end, across, HOW)
        raw = raw + (load_tile(slices, strides, first, cols, inner, mask, OP, HOW),)
        places = places + (tl.where(mask, first + cols, -1),)
    return raw, places


@triton.jit
def merged_along(m, totals, AXIS: tl.constexpr, OP: tl.constexpr):
    """The summaries of a line of columns, from several of each along an axis."""
    if OP.shifted:
        m, totals = to_common_maximum(m, totals, AXIS, OP)
        m = m[None, :]
    else:
        m = 0.0
    return m, spread(summed(totals, AXIS), 0)


@triton.jit(repr=with_operation("two_pass"), do_not_specialize=["n_cols", "n_chunks", "chunk_cols"])
def two_pass_kernel(
    in_ptrs,
    out_ptrs,
    words_ptr,
    in_strides,
    out_strides,
    n_cols,
    n_inner,
    n_chunks,
    chunk_cols,
    OP: tl.constexpr,
    HOW: tl.constexpr,
):
    """Run an operation along the middle dimension, one program per chunk of block_inner columns.

    Args:
        in_ptrs, out_ptrs, in_strides, out_strides, n_cols, n_inner: as for `strided_kernel`.
        words_ptr: workspace of block_inner int64 words per program for m and for each sum; unused
            with one launch.
        n_chunks: chunks per column; 1 with one launch.
        chunk_cols: length of a chunk.
        OP: the `Operation`.
        HOW: a `TwoPass`, which also says whether this launch publishes, writes or both.
    """
    SUMS: tl.constexpr = OP.sums
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    ACC: tl.constexpr = upcast(INNER)
    INDEX: tl.constexpr = tl.int64 if HOW.wide_index else tl.int32
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    BLOCK_INNER: tl.constexpr = HOW.block_inner
    TILES: tl.constexpr = HOW.tiles
    STEP: tl.constexpr = HOW.tiles * HOW.block_cols
    PARTS: tl.constexpr = 4096 // HOW.block_inner  # chunks whose partials are read at once
    # Programs that read adjacent memory start together.
    blocks = tl.cdiv(n_inner, BLOCK_INNER)
    block = tl.program_id(0) % blocks
    chunk = tl.program_id(0) // blocks % n_chunks
    outer = tl.program_id(0) // blocks // n_chunks
    group = (outer * blocks + block).to(tl.int64)
    outer = outer.to(tl.int64)
    inner = block.to(INDEX) * BLOCK_INNER + tl.arange(0, BLOCK_INNER)[None, :]
    across = inner < multiple_of(n_inner, HOW.vector)
    begin = chunk.to(INDEX) * chunk_cols
    end = tl.minimum(begin + chunk_cols, n_cols)
    in_slices = slices_of(in_ptrs, in_strides, outer, OP.inputs, HOW.vector)
    out_slices = slices_of(out_ptrs, out_strides, outer, len(out_ptrs) - OP.row_results, HOW.vector)
    summaries_ptr = words_ptr.to(tl.pointer_type(ACC))

    if HOW.publish:
        # Each lane keeps a summary of its own, so that a step needs no exchange between threads.
        m = tl.full((BLOCK_COLS, BLOCK_INNER), float("-inf") if OP.shifted else 0.0, ACC)
        totals = zeros_for((BLOCK_COLS, BLOCK_INNER), ACC, OP)
        for start in range(begin, end, STEP):
            raw, places = load_step(in_slices, in_strides, start, end, inner, across, OP, HOW)
            if OP.shifted:
                # eq: online-m, online-d
                m_new = m
                for t in tl.static_range(TILES):
                    m_new = tl.maximum(m_new, in_registers(raw[t], INNER)[0])
                totals = OP.rescale(totals, m, m_new)
                m = m_new
            terms = terms_of_tiles(raw, places, m, INNER, OP)
            for t in tl.static_range(TILES):
                totals = added(totals, terms[t])
        m, totals = merged_along(m, totals, 0, OP)
    else:
        # Columns first, so that what is merged is a vector to the compiler, which it converts to
        # the data tile's layout once. With columns last it would convert a tile in every step.
        columns = tl.arange(0, BLOCK_INNER)[:, None]
        m = tl.full((BLOCK_INNER, PARTS), float("-inf") if OP.shifted else 0.0, ACC)
        totals = zeros_for((BLOCK_INNER, PARTS), ACC, OP)
        parts = n_chunks
        if OP.reduces:
            # One program writes the column scalars.
            parts = tl.where(chunk == 0, n_chunks, 0)
        for start in range(0, parts, PARTS):
            chunks = start + tl.arange(0, PARTS)[None, :]
            there = chunks < parts
            line = (group * n_chunks + chunks) * (1 + SUMS)
            of_parts = ()
            for k in tl.static_range(SUMS):
                pointers = summaries_ptr + (line + 1 + k) * BLOCK_INNER + columns
                of_parts = of_parts + (tl.load(pointers, mask=there, other=0.0),)
            m_parts = m
            if OP.shifted:
                pointers = summaries_ptr + line * BLOCK_INNER + columns
                m_parts = tl.load(pointers, mask=there, other=float("-inf"))
            m, totals = merged(m, totals, m_parts, of_parts, None, OP)
        m, totals = merged_along(m, totals, 1, OP)

    if not HOW.write:
        line = (group * n_chunks + chunk) * (1 + SUMS) * BLOCK_INNER
        lanes = line + tl.arange(0, BLOCK_INNER)[None, :]
        if OP.shifted:
            tl.store(summaries_ptr + lanes, m)
        for k in tl.static_range(SUMS):
            tl.store(summaries_ptr + lanes + (1 + k) * BLOCK_INNER, totals[k])
    else:
        numbers = load_numbers(in_slices, inner_strides(in_strides), inner, inner < n_inner, OP)
        if OP.row_results:
            results = OP.finish_row(m, totals, numbers)
            writes = (inner < n_inner) & (chunk == 0)
            store_numbers(out_slices, inner_strides(out_strides), inner, writes, results, OP)
    if HOW.write and not OP.reduces:
        totals = adjusted(m, totals, numbers, OP)
        for start in range(begin, end, STEP):
            raw, places = load_step(in_slices, in_strides, start, end, inner, across, OP, HOW)
            for t in tl.static_range(TILES):
                first, cols, mask = place_of_tile(start, t, end, across, HOW)
                values = placed(in_registers(raw[t], INNER), places[t], OP)
                result = OP.finish(values, OP.terms(values, m, False), m, totals)
                pointers = pointers_of_tile(
                    out_slices[0], out_strides[0], first, cols, inner, HOW.vector
                )
                tl.store(pointers, result.to(INNER).to(OUT), mask=mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(m, totals, numbers)
            offsets = offsets_in_slice(out_strides[0], col, inner, 1)
            mine = (inner < n_inner) & is_column(col, begin, end)
            tl.debug_barrier()
            tl.store(out_slices[0] + offsets, result.to(INNER).to(OUT), mask=mine)
