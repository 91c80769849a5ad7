"""Split long columns over several programs, and still read them only once.

A tile of whole long columns would be too narrow, or too large for the registers. So columns are cut
into chunks of block_cols elements, and a program takes one chunk of block_inner columns side by
side. It publishes a status word for each of its columns, polls until all words of these columns are
there, merges them, and writes its tile from registers.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .device.exchange import poll, prefetch, publish, publish_missing, unpack_summaries
from .device.names import with_operation
from .device.registers import in_registers, optimization_barrier
from .device.summaries import (
    adjusted,
    is_column,
    load_numbers,
    max_of,
    placed,
    spread,
    store_numbers,
    summed,
)
from .device.sums import sums_of
from .device.vectors import multiple_of
from .strided import inner_strides, offsets_in_slice, pointers_of_tile, slices_of


class Columns(NamedTuple):
    """The columns of one program, and how they are cut into chunks."""

    in_ptrs: Any  # the outer slice of each input
    in_strides: Any
    out_ptrs: Any  # likewise of each result
    out_strides: Any
    first: Any  # the first column, along n_inner
    n_cols: Any
    n_inner: Any
    n_chunks: Any
    words_ptr: Any  # n_chunks lines of block_inner words
    apart: Any  # words from one sum to the next


@triton.jit
def pointers_of_chunk(ptr, strides, chunk, columns, HOW: tl.constexpr, AGAIN: tl.constexpr):
    """Pointers and mask of a chunk's tile; AGAIN: recomputed, not kept in registers."""
    INDEX: tl.constexpr = tl.int64 if HOW.wide_index else tl.int32
    cols = optimization_barrier((tl.arange(0, HOW.block_cols),), AGAIN)[0][:, None]
    inner = columns.first + tl.arange(0, HOW.block_inner)[None, :]
    start = (chunk * HOW.block_cols).to(INDEX)
    pointers = pointers_of_tile(ptr, strides, start, cols.to(INDEX), inner.to(INDEX), HOW.vector)
    across = inner < multiple_of(columns.n_inner, HOW.vector)
    return pointers, (cols < columns.n_cols - start) & across


@triton.jit
def places_of_tile(chunk, columns, HOW: tl.constexpr):
    """0 for each element of a chunk's tile; −1 outside."""
    cols = chunk * HOW.block_cols + tl.arange(0, HOW.block_cols)[:, None]
    inner = columns.first + tl.arange(0, HOW.block_inner)[None, :]
    return tl.where((cols < columns.n_cols) & (inner < columns.n_inner), 0, -1)


@triton.jit
def load_tile(chunk, columns, OP: tl.constexpr, HOW: tl.constexpr, AGAIN: tl.constexpr):
    """Load a chunk: a raw tile of each input."""
    raw = ()
    for i in tl.static_range(len(columns.in_ptrs) - OP.numbers):
        ptr, strides = columns.in_ptrs[i], columns.in_strides[i]
        pointers, mask = pointers_of_chunk(ptr, strides, chunk, columns, HOW, AGAIN)
        raw = raw + (tl.load(pointers, mask=mask, other=OP.padding),)
    return raw


@triton.jit
def summarise(raw, chunk, columns, INNER: tl.constexpr, OP: tl.constexpr, HOW: tl.constexpr):
    """The summary (m, totals) of each column of a tile."""
    m = 0.0
    m_cols = m
    if OP.shifted:
        raw = optimization_barrier(raw, HOW.barrier)
        m = max_of(in_registers(raw, INNER)[0], 0, OP)
        m_cols = m[None, :]
    raw = optimization_barrier(raw, HOW.barrier)
    values = placed(in_registers(raw, INNER), places_of_tile(chunk, columns, HOW), OP)
    return m, sums_of(((OP.terms(values, m_cols, HOW.wait),),), m_cols, 0, OP)


@triton.jit
def write_tile(
    chunk, raw, m, totals, columns, OP: tl.constexpr, HOW: tl.constexpr, AGAIN: tl.constexpr
):
    """Write a chunk's tile from its elements and its columns' summaries. The last chunk also writes
    the column scalars."""
    out_ptrs, out_strides = columns.out_ptrs, columns.out_strides
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else columns.in_ptrs[0].dtype.element_ty
    inner = columns.first + tl.arange(0, HOW.block_inner)
    across = inner < columns.n_inner
    far = inner.to(tl.int64)
    numbers = load_numbers(columns.in_ptrs, inner_strides(columns.in_strides), far, across, OP)
    if OP.row_results:
        results = OP.finish_row(m, totals, numbers)
        mask = across & (chunk == columns.n_chunks - 1)
        store_numbers(out_ptrs, inner_strides(out_strides), far, mask, results, OP)
    if not OP.reduces:
        largest = m
        adjusted_totals = adjusted(m, totals, numbers, OP)
        totals = spread(adjusted_totals, 0)
        pointers, mask = pointers_of_chunk(out_ptrs[0], out_strides[0], chunk, columns, HOW, AGAIN)
        values = in_registers(optimization_barrier(raw, HOW.barrier), INNER)
        values = placed(values, places_of_tile(chunk, columns, HOW), OP)
        if OP.shifted:
            m = m[None, :]
        result = OP.finish(values, OP.terms(values, m, False), m, totals)
        tl.store(pointers, result.to(INNER).to(OUT), mask=mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(largest, adjusted_totals, numbers)
            offsets = offsets_in_slice(out_strides[0], col, far, 1)
            mine = is_column(col, 0, columns.n_cols) & (col // HOW.block_cols == chunk)
            tl.debug_barrier()
            tl.store(out_ptrs[0] + offsets, result.to(INNER).to(OUT), mask=across & mine)


@triton.jit
def missing_words(columns, max_polls, OP: tl.constexpr, HOW: tl.constexpr):
    """1 where a status word of the columns is missing, a vector of chunks · block_inner.

    Not a tile chunks × block_inner, because the compiler might give it the layout of the data tile,
    where several threads would poll the same word.
    """
    SUMS: tl.constexpr = OP.sums
    lane = tl.arange(0, HOW.chunks * HOW.block_inner)
    inner = columns.first + lane % HOW.block_inner
    wanted = (lane // HOW.block_inner < columns.n_chunks) & (inner < columns.n_inner)
    absent = poll(columns.words_ptr + lane, wanted, max_polls, HOW.wait, 0, HOW.polls) == 0
    for k in tl.static_range(1, SUMS):
        pointers = columns.words_ptr + k * columns.apart + lane
        absent = absent | (poll(pointers, wanted, max_polls, HOW.wait, 0, HOW.polls) == 0)
    return absent.to(tl.int32)


@triton.jit
def merge_columns(columns, OP: tl.constexpr, HOW: tl.constexpr):
    """(m, totals) of the columns, from status words of which none is missing.

    The words form a tile with columns first, so that after the reduction the compiler converts a
    vector to the data tile's layout. With columns last it would convert the tile.
    """
    SUMS: tl.constexpr = OP.sums
    inner = tl.arange(0, HOW.block_inner)[:, None]
    chunks = tl.arange(0, HOW.chunks)[None, :]
    live = (chunks < columns.n_chunks) & (columns.first + inner < columns.n_inner)
    pointers = columns.words_ptr + chunks * HOW.block_inner + inner
    words = ()
    for k in tl.static_range(SUMS):
        words = words + (tl.load(pointers + k * columns.apart, mask=live, other=1, volatile=True),)
    m, totals = unpack_summaries(words, live, 1, OP)
    return m, summed(totals, 1)


@triton.jit(
    repr=with_operation("split_strided"), do_not_specialize=["n_cols", "n_chunks", "max_polls"]
)
def split_strided_kernel(
    in_ptrs,
    out_ptrs,
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
    """Run an operation along the middle dimension, one program per chunk of block_inner columns.

    Args:
        in_ptrs, out_ptrs, in_strides, out_strides, n_cols, n_inner: as for `strided_kernel`.
        words_ptr: workspace of block_inner int64 status words per program, zero at the start; as
            many again for each further sum.
        n_chunks: chunks per column.
        max_polls: polls for missing status words before the recompute fallback.
        OP: the `Operation`.
        HOW: a `SplitStrided`.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    # Chunks of the same columns have adjacent program ids, so that programs that wait for each
    # other start together.
    task = tl.program_id(0)
    chunk = task % n_chunks
    group = task // n_chunks
    blocks = tl.cdiv(n_inner, HOW.block_inner)
    outer = (group // blocks).to(tl.int64)
    first = group % blocks * HOW.block_inner
    in_slices = slices_of(in_ptrs, in_strides, outer, OP.inputs, HOW.vector)
    out_slices = slices_of(out_ptrs, out_strides, outer, len(out_ptrs) - OP.row_results, HOW.vector)
    apart = tl.num_programs(0).to(tl.int64) * HOW.block_inner
    words_ptr += group.to(tl.int64) * n_chunks * HOW.block_inner
    columns = Columns(
        in_slices, in_strides, out_slices, out_strides, first, n_cols, n_inner, n_chunks,
        words_ptr, apart,
    )  # fmt: skip
    lane = tl.arange(0, HOW.block_inner)
    live = first + lane < n_inner

    prefetch(words_ptr + chunk * HOW.block_inner + lane, HOW.wait)
    raw = load_tile(chunk, columns, OP, HOW, False)
    m, totals = summarise(raw, chunk, columns, INNER, OP, HOW)
    publish(words_ptr + chunk * HOW.block_inner + lane, apart, m, totals, live, OP, True)
    mine = chunk >= 0
    if OP.reduces:
        # One program writes the column scalars: the last to start, which waits least.
        mine = chunk == n_chunks - 1
    if mine:
        missing = tl.sum(missing_words(columns, max_polls, OP, HOW), axis=0)
        if missing == 0:
            m, totals = merge_columns(columns, OP, HOW)
            write_tile(chunk, raw, m, totals, columns, OP, HOW, False)
        else:
            # Recompute fallback: some partner is not running.
            missed = missing_words(columns, max_polls, OP, HOW)
            of_chunk = tl.arange(0, HOW.chunks * HOW.block_inner) // HOW.block_inner
            for step in range(n_chunks):
                other = (chunk + step) % n_chunks
                if tl.sum(tl.where(of_chunk == other, missed, 0), axis=0) > 0:
                    raw = load_tile(other, columns, OP, HOW, HOW.wait)
                    m, totals = summarise(raw, other, columns, INNER, OP, HOW)
                    pointers = words_ptr + other * HOW.block_inner + lane
                    publish_missing(pointers, apart, m, totals, OP)
            while tl.sum(missing_words(columns, max_polls, OP, HOW), axis=0) > 0:
                missing += 1
            m, totals = merge_columns(columns, OP, HOW)
            raw = load_tile(chunk, columns, OP, HOW, HOW.wait)
            write_tile(chunk, raw, m, totals, columns, OP, HOW, HOW.wait)
