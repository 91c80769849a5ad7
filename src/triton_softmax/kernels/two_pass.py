"""Read columns too long for registers twice, in loops: once to summarise, once to write.

The tensor is viewed as (n_outer, n_cols, n_inner), as in `strided`. A program loops over
block_inner columns side by side with the online recurrence, then again to write. Very long columns
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
    zeros_for,
)
from .device.vectors import multiple_of
from .strided import inner_strides, load_tile, offsets_in_slice, slices_of


@triton.jit
def summary_offsets(
    group, chunks, n_chunks, WHICH: tl.constexpr, OP: tl.constexpr, BLOCK_INNER: tl.constexpr
):
    """Offsets of one field of the partials of a group's columns, for some chunks: m (WHICH = 0), or
    a sum."""
    line = (group * n_chunks + chunks) * (1 + OP.sums) + WHICH
    return line * BLOCK_INNER + tl.arange(0, BLOCK_INNER)[None, :]


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
    # Programs that read adjacent memory start together.
    blocks = tl.cdiv(n_inner, BLOCK_INNER)
    block = tl.program_id(0) % blocks
    chunk = tl.program_id(0) // blocks % n_chunks
    outer = tl.program_id(0) // blocks // n_chunks
    group = (outer * blocks + block).to(tl.int64)
    outer = outer.to(tl.int64)
    inner = block.to(INDEX) * BLOCK_INNER + tl.arange(0, BLOCK_INNER)[None, :]
    tile = tl.arange(0, BLOCK_COLS)[:, None]
    begin = chunk.to(INDEX) * chunk_cols
    end = tl.minimum(begin + chunk_cols, n_cols)
    in_slices = slices_of(in_ptrs, in_strides, outer, OP.inputs, HOW.vector)
    out_slices = slices_of(out_ptrs, out_strides, outer, len(out_ptrs) - OP.row_results, HOW.vector)
    summaries_ptr = words_ptr.to(tl.pointer_type(ACC))

    m = tl.full((1, BLOCK_INNER), float("-inf") if OP.shifted else 0.0, ACC)
    totals = zeros_for((1, BLOCK_INNER), ACC, OP)
    # Without a maximum, each element of the tile keeps a sum of its own, so that a step needs no
    # exchange between threads.
    sums = zeros_for((BLOCK_COLS, BLOCK_INNER), ACC, OP)
    if HOW.publish:
        for start in range(begin, end, BLOCK_COLS):
            cols = (start + tile).to(INDEX)
            mask = (cols < end) & (inner < multiple_of(n_inner, HOW.vector))
            raw = load_tile(in_slices, in_strides, cols, inner, mask, OP, HOW)
            values = placed(in_registers(raw, INNER), tl.where(mask, cols, -1), OP)
            if OP.shifted:
                # eq: online-m, online-d
                m_new = tl.maximum(m, tl.max(values[0], axis=0)[None, :])
                terms = OP.terms(values, m_new, False)
                totals = added(OP.rescale(totals, m, m_new), spread(summed(terms, 0), 0))
                m = m_new
            else:
                sums = added(sums, OP.terms(values, 0.0, False))
    else:
        parts = n_chunks
        if OP.reduces:
            # One program writes the column scalars.
            parts = tl.where(chunk == 0, n_chunks, 0)
        for start in range(0, parts, BLOCK_COLS):
            there = start + tile < parts
            of_parts = ()
            for k in tl.static_range(SUMS):
                offsets = summary_offsets(group, start + tile, n_chunks, 1 + k, OP, BLOCK_INNER)
                of_parts = of_parts + (tl.load(summaries_ptr + offsets, mask=there, other=0.0),)
            if OP.shifted:
                offsets = summary_offsets(group, start + tile, n_chunks, 0, OP, BLOCK_INNER)
                m_parts = tl.load(summaries_ptr + offsets, mask=there, other=float("-inf"))
                m, totals = merged(m, totals, m_parts, of_parts, 0, OP)
            else:
                sums = added(sums, of_parts)
    if not OP.shifted:
        totals = spread(summed(sums, 0), 0)

    if not HOW.write:
        tl.store(summaries_ptr + summary_offsets(group, chunk, n_chunks, 0, OP, BLOCK_INNER), m)
        for k in tl.static_range(SUMS):
            offsets = summary_offsets(group, chunk, n_chunks, 1 + k, OP, BLOCK_INNER)
            tl.store(summaries_ptr + offsets, totals[k])
    else:
        numbers = load_numbers(in_slices, inner_strides(in_strides), inner, inner < n_inner, OP)
        if OP.row_results:
            results = OP.finish_row(m, totals, numbers)
            writes = (inner < n_inner) & (chunk == 0)
            store_numbers(out_slices, inner_strides(out_strides), inner, writes, results, OP)
    if HOW.write and not OP.reduces:
        totals = adjusted(m, totals, numbers, OP)
        for start in range(begin, end, BLOCK_COLS):
            cols = (start + tile).to(INDEX)
            mask = (cols < end) & (inner < multiple_of(n_inner, HOW.vector))
            raw = load_tile(in_slices, in_strides, cols, inner, mask, OP, HOW)
            values = placed(in_registers(raw, INNER), tl.where(mask, cols, -1), OP)
            result = OP.finish(values, OP.terms(values, m, False), m, totals)
            offsets = offsets_in_slice(out_strides[0], cols, inner, HOW.vector)
            tl.store(out_slices[0] + offsets, result.to(INNER).to(OUT), mask=mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(m, totals, numbers)
            offsets = offsets_in_slice(out_strides[0], col, inner, 1)
            mine = (inner < n_inner) & is_column(col, begin, end)
            tl.debug_barrier()
            tl.store(out_slices[0] + offsets, result.to(INNER).to(OUT), mask=mine)
