"""Long strands: the tile of `strided`, the words of `split_rows`.

A tile of whole strands would be too narrow if they are long, or too large for the registers. So
strands are cut into chunks of block_cols elements, and a program takes one chunk of block_inner
strands side by side. It publishes a word for each of its strands, polls until all words of its
strands are there, merges them, and writes its tile from registers. The input is read once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .device.exchange import poll, prefetch, publish, to_common_maximum
from .device.names import with_operation
from .device.registers import in_registers, optimization_barrier, weighted
from .device.sums import sum_of
from .device.vectors import multiple_of
from .strided import offsets_in_slice, slice_of


# --8<-- [start:columns]
class Columns(NamedTuple):
    """The strands of one program, as the functions below pass them on."""

    in_ptrs: Any  # of the outer slice
    in_strides: Any
    first: Any  # of the columns
    n_cols: Any
    n_inner: Any
    n_chunks: Any
    words_ptr: Any  # n_chunks lines of block_inner words


@triton.jit
def tile_offsets(strides, chunk, columns, HOW: tl.constexpr, AGAIN: tl.constexpr):
    """Offsets and mask of a chunk's tile, block_cols × block_inner.

    AGAIN: computed anew, and not kept in registers from before.
    """
    INDEX: tl.constexpr = tl.int64 if HOW.wide_index else tl.int32
    cols = optimization_barrier((tl.arange(0, HOW.block_cols),), AGAIN)[0][:, None]
    cols += chunk * HOW.block_cols
    inner = columns.first + tl.arange(0, HOW.block_inner)[None, :]
    offsets = offsets_in_slice(strides, cols.to(INDEX), inner.to(INDEX), HOW.vector)
    return offsets, (cols < columns.n_cols) & (inner < multiple_of(columns.n_inner, HOW.vector))


@triton.jit
def load_tile(chunk, columns, OP: tl.constexpr, HOW: tl.constexpr, AGAIN: tl.constexpr):
    """The elements of a chunk, a tile of each input, as they lie in memory."""
    raw = ()
    for i in tl.static_range(len(columns.in_ptrs) - OP.weighted):
        offsets, mask = tile_offsets(columns.in_strides[i], chunk, columns, HOW, AGAIN)
        raw = raw + (tl.load(columns.in_ptrs[i] + offsets, mask=mask, other=OP.padding),)
    return raw


@triton.jit
def summarise(raw, INNER: tl.constexpr, OP: tl.constexpr, HOW: tl.constexpr):
    """(m, total) of each strand of a tile."""
    m = 0.0
    m_cols = m
    if OP.shifted:
        raw = optimization_barrier(raw, HOW.barrier)
        m = tl.max(in_registers(raw, INNER)[0], axis=0)
        m_cols = m[None, :]
    raw = optimization_barrier(raw, HOW.barrier)
    terms = OP.terms(in_registers(raw, INNER), m_cols, HOW.wait)
    return m, sum_of(((terms,),), 0, OP)


@triton.jit
def write_tile(
    out_ptr,
    out_strides,
    chunk,
    raw,
    m,
    total,
    columns,
    OP: tl.constexpr,
    HOW: tl.constexpr,
    AGAIN: tl.constexpr,
):
    """Write a chunk's tile from its elements and the summaries of its strands."""
    OUT: tl.constexpr = out_ptr.dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else columns.in_ptrs[0].dtype.element_ty
    inner = columns.first + tl.arange(0, HOW.block_inner)
    across = inner < columns.n_inner
    offsets = inner.to(tl.int64) * columns.in_strides[-1][2]
    total = weighted(total, columns.in_ptrs, offsets, across, OP)
    if OP.reduces:
        result = OP.finish_row(m, total).to(OUT)
        tl.store(out_ptr + inner.to(tl.int64) * out_strides[2], result, mask=across)
    else:
        offsets, mask = tile_offsets(out_strides, chunk, columns, HOW, AGAIN)
        values = in_registers(optimization_barrier(raw, HOW.barrier), INNER)
        if OP.shifted:
            m = m[None, :]
        result = OP.finish(values, OP.terms(values, m, False), m, total[None, :])
        tl.store(out_ptr + offsets, result.to(INNER).to(OUT), mask=mask)


# --8<-- [end:columns]


# --8<-- [start:words]
@triton.jit
def missing_words(columns, max_polls, HOW: tl.constexpr):
    """1 where a word of the strands is missing, a vector of chunks · block_inner.

    A vector and not chunks × block_inner, like what the words are loaded into: the compiler may lay
    that out as it lays out the tile, and then several threads would poll for the same word.
    """
    lane = tl.arange(0, HOW.chunks * HOW.block_inner)
    inner = columns.first + lane % HOW.block_inner
    wanted = (lane // HOW.block_inner < columns.n_chunks) & (inner < columns.n_inner)
    words = poll(columns.words_ptr + lane, wanted, max_polls, HOW.wait, 0, HOW.polls)
    return (words == 0).to(tl.int32)


@triton.jit
def merge_columns(columns, OP: tl.constexpr, HOW: tl.constexpr):
    """(m, total) of the strands from their words, none of which is missing.

    Across the tile, not along it: what comes out of a reduction is then moved to the layout of the
    tile as a vector. Along it, the compiler moves the tile.
    """
    inner = tl.arange(0, HOW.block_inner)[:, None]
    chunks = tl.arange(0, HOW.chunks)[None, :]
    live = (chunks < columns.n_chunks) & (columns.first + inner < columns.n_inner)
    pointers = columns.words_ptr + chunks * HOW.block_inner + inner
    words = tl.load(pointers, mask=live, other=1, volatile=True)
    m, totals = to_common_maximum(words, live, 1, OP)
    return m, tl.sum(totals, axis=1)


# --8<-- [end:words]


# --8<-- [start:kernel]
@triton.jit(
    repr=with_operation("split_strided"), do_not_specialize=["n_cols", "n_chunks", "max_polls"]
)
def split_strided_kernel(
    in_ptrs,
    out_ptr,
    words_ptr,
    in_strides,
    out_strides,
    n_cols,
    n_inner,
    n_chunks,
    max_polls,
    OP: tl.constexpr,
    HOW: tl.constexpr,
):
    """An operation along the middle dimension, a program for each chunk of block_inner strands.

    Args:
        in_ptrs, out_ptr, in_strides, out_strides, n_cols, n_inner: as for `strided_kernel`.
        words_ptr: workspace of block_inner int64 words per program, zero at the start.
        n_chunks: chunks of a strand.
        max_polls: how often to poll again for missing words before going on without partners.
        OP: what is computed, an `Operation`.
        HOW: a `SplitStrided`.
    """
    OUT: tl.constexpr = out_ptr.dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    # Chunks of the same strands are neighbours among the programs, so that those who wait for each
    # other start together.
    task = tl.program_id(0)
    chunk = task % n_chunks
    group = task // n_chunks
    blocks = tl.cdiv(n_inner, HOW.block_inner)
    outer = (group // blocks).to(tl.int64)
    first = group % blocks * HOW.block_inner
    slices = ()
    for i in tl.static_range(len(in_ptrs)):
        vector = HOW.vector if i < OP.inputs else 1
        slices = slices + (slice_of(in_ptrs[i], in_strides[i], outer, vector),)
    out_ptr = slice_of(out_ptr, out_strides, outer, 1 if OP.reduces else HOW.vector)
    words_ptr += group.to(tl.int64) * n_chunks * HOW.block_inner
    columns = Columns(slices, in_strides, first, n_cols, n_inner, n_chunks, words_ptr)
    lane = tl.arange(0, HOW.block_inner)
    live = first + lane < n_inner

    prefetch(words_ptr + chunk * HOW.block_inner + lane, HOW.wait)
    raw = load_tile(chunk, columns, OP, HOW, False)
    m, total = summarise(raw, INNER, OP, HOW)
    publish(words_ptr + chunk * HOW.block_inner + lane, m, total, live, OP, True)
    mine = chunk >= 0
    if OP.reduces:
        # One program writes the strands' numbers: the last to start, which waits least.
        mine = chunk == n_chunks - 1
    if mine:
        missing = tl.sum(missing_words(columns, max_polls, HOW), axis=0)
        if missing == 0:
            m, total = merge_columns(columns, OP, HOW)
            write_tile(out_ptr, out_strides, chunk, raw, m, total, columns, OP, HOW, False)
        else:
            # Some partner is not running: whatever is missing is computed here.
            missed = missing_words(columns, max_polls, HOW)
            of_chunk = tl.arange(0, HOW.chunks * HOW.block_inner) // HOW.block_inner
            for step in range(n_chunks):
                other = (chunk + step) % n_chunks
                if tl.sum(tl.where(of_chunk == other, missed, 0), axis=0) > 0:
                    raw = load_tile(other, columns, OP, HOW, HOW.wait)
                    m, total = summarise(raw, INNER, OP, HOW)
                    publish(words_ptr + other * HOW.block_inner + lane, m, total, live, OP, True)
            while tl.sum(missing_words(columns, max_polls, HOW), axis=0) > 0:
                missing += 1
            m, total = merge_columns(columns, OP, HOW)
            raw = load_tile(chunk, columns, OP, HOW, HOW.wait)
            write_tile(out_ptr, out_strides, chunk, raw, m, total, columns, OP, HOW, HOW.wait)


# --8<-- [end:kernel]
