"""Strands too long for registers, walked along twice by as many programs as are useful.

The tensor is seen as (n_outer, n_cols, n_inner), as in `strided`. A program takes block_inner
strands side by side and walks along them with the online recurrence, then again to write. A tensor
with very long strands has few of them, too few for all multiprocessors, so they are cut into
chunks. The first launch leaves the summaries of all chunks in memory, the second merges those of
its strands and writes. With a single chunk one launch does both.

`split_strided` reads once, and waits. Here nobody waits for anybody, so this runs on every device,
and in float64 too. Rows may be walked like this as well, with n_inner = 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device.names import with_operation
from .device.registers import in_registers, weighted
from .device.vectors import multiple_of
from .strided import offsets_in_slice, slice_of


# --8<-- [start:walk]
@triton.jit
def load_tile(in_ptrs, in_strides, cols, end, inner, n_inner, OP: tl.constexpr, HOW: tl.constexpr):
    """The elements of a tile, a block of each input, as they lie in memory."""
    mask = (cols < end) & (inner < multiple_of(n_inner, HOW.vector))
    raw = ()
    for i in tl.static_range(len(in_ptrs) - OP.weighted):
        offsets = offsets_in_slice(in_strides[i], cols, inner, HOW.vector)
        raw = raw + (tl.load(in_ptrs[i] + offsets, mask=mask, other=OP.padding),)
    return raw, mask


@triton.jit
def summary_offsets(group, chunks, n_chunks, WHICH: tl.constexpr, BLOCK_INNER: tl.constexpr):
    """Where one of the two numbers of the summaries of a group's strands lies, for some chunks."""
    line = (group * n_chunks + chunks) * 2 + WHICH
    return line * BLOCK_INNER + tl.arange(0, BLOCK_INNER)[None, :]


# --8<-- [end:walk]


# --8<-- [start:kernel]
@triton.jit(
    repr=with_operation("strided_loops"), do_not_specialize=["n_cols", "n_chunks", "chunk_cols"]
)
def strided_loops_kernel(
    in_ptrs,
    out_ptr,
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
    """An operation along the middle dimension, a program for each chunk of block_inner strands.

    Args:
        in_ptrs, out_ptr, in_strides, out_strides, n_cols, n_inner: as for `strided_kernel`.
        words_ptr: workspace of 2 · block_inner int64 words per program; not looked at if one launch
            does both.
        n_chunks: chunks of a strand; 1 if one launch does both.
        chunk_cols: length of a chunk.
        OP: what is computed, an `Operation`.
        HOW: a `StridedLoops`: block_cols and block_inner, powers of two; vector and wide_index as
            for `strided_kernel`; publish, write: what this launch does.
    """
    OUT: tl.constexpr = out_ptr.dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    ACC: tl.constexpr = tl.float64 if INNER == tl.float64 else tl.float32
    INDEX: tl.constexpr = tl.int64 if HOW.wide_index else tl.int32
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    BLOCK_INNER: tl.constexpr = HOW.block_inner
    # Programs that read neighbouring memory start together.
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
    slices = ()
    for i in tl.static_range(len(in_ptrs)):
        vector = HOW.vector if i < OP.inputs else 1
        slices = slices + (slice_of(in_ptrs[i], in_strides[i], outer, vector),)
    out_ptr = slice_of(out_ptr, out_strides, outer, 1 if OP.reduces else HOW.vector)
    summaries_ptr = words_ptr.to(tl.pointer_type(ACC))

    m = tl.full((1, BLOCK_INNER), float("-inf") if OP.shifted else 0.0, ACC)
    total = tl.zeros((1, BLOCK_INNER), ACC)
    # Where nothing is relative to a maximum, each element of the tile has a sum of its own, so that
    # a step needs no exchange between threads.
    sums = tl.zeros((BLOCK_COLS, BLOCK_INNER), ACC)
    if HOW.publish:
        for start in range(begin, end, BLOCK_COLS):
            cols = (start + tile).to(INDEX)
            raw, mask = load_tile(slices, in_strides, cols, end, inner, n_inner, OP, HOW)
            values = in_registers(raw, INNER)
            if OP.shifted:
                # eq: online-m, online-d
                m_new = tl.maximum(m, tl.max(values[0], axis=0)[None, :])
                terms = OP.terms(values, m_new, False)
                total = OP.rescale(total, m, m_new) + tl.sum(terms, axis=0)[None, :]
                m = m_new
            else:
                sums += OP.terms(values, 0.0, False)
    else:
        parts = n_chunks
        if OP.reduces:
            # One program writes the strands' numbers.
            parts = tl.where(chunk == 0, n_chunks, 0)
        for start in range(0, parts, BLOCK_COLS):
            there = start + tile < parts
            offsets = summary_offsets(group, start + tile, n_chunks, 1, BLOCK_INNER)
            totals = tl.load(summaries_ptr + offsets, mask=there, other=0.0)
            if OP.shifted:
                offsets = summary_offsets(group, start + tile, n_chunks, 0, BLOCK_INNER)
                m_parts = tl.load(summaries_ptr + offsets, mask=there, other=float("-inf"))
                # eq: merge
                m_new = tl.maximum(m, tl.max(m_parts, axis=0)[None, :])
                totals = OP.rescale(totals, m_parts, m_new)
                total = OP.rescale(total, m, m_new) + tl.sum(totals, axis=0)[None, :]
                m = m_new
            else:
                sums += totals
    if not OP.shifted:
        total = tl.sum(sums, axis=0)[None, :]

    if not HOW.write:
        tl.store(summaries_ptr + summary_offsets(group, chunk, n_chunks, 0, BLOCK_INNER), m)
        tl.store(summaries_ptr + summary_offsets(group, chunk, n_chunks, 1, BLOCK_INNER), total)
    elif OP.reduces:
        result = OP.finish_row(m, total).to(OUT)
        mask = (inner < n_inner) & (chunk == 0)
        tl.store(out_ptr + inner * out_strides[2], result, mask=mask)
    else:
        total = weighted(total, slices, inner * in_strides[-1][2], inner < n_inner, OP)
        for start in range(begin, end, BLOCK_COLS):
            cols = (start + tile).to(INDEX)
            raw, mask = load_tile(slices, in_strides, cols, end, inner, n_inner, OP, HOW)
            values = in_registers(raw, INNER)
            result = OP.finish(values, OP.terms(values, m, False), m, total)
            offsets = offsets_in_slice(out_strides, cols, inner, HOW.vector)
            tl.store(out_ptr + offsets, result.to(INNER).to(OUT), mask=mask)


# --8<-- [end:kernel]
