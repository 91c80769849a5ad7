"""Read columns of any length twice, in loops: once to summarise, once to write.

The tensor is viewed as (n_outer, n_cols, n_inner), as in `strided`. A program loops over
block_inner columns side by side with the online recurrence, then again to write. A step takes
several small tiles, all of which are on their way at once. Very long columns are often too few to
fill all multiprocessors, so they are cut into chunks: a first launch stores the chunks' partials, a
second merges them, and a third writes. If each program that writes merged them itself, it would
read those of all chunks, and reads would grow with the square of their number.

A line of n_inner elements that is no multiple of 16 bytes can be moved only in narrow accesses. If
lines follow each other without a gap, HOW.fold of them count as one, which whole vectors move: the
tensor is read as (n_outer, n_cols / fold, fold · n_inner). Elements n_inner apart in such a line
belong to the same column, and the partials of its fold places are merged like those of chunks.

A single launch does it all if a program sees whole columns: if there is one chunk, and lines are
not folded or fit a tile. Slices that are small enough come from the cache the second time.

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
from .strided import (
    inner_strides,
    load_tile,
    offsets_in_slice,
    pointers_of_tile,
    slices_of,
)


@triton.jit
def place_in_line(inner, n_inner, FOLD: tl.constexpr):
    """Which of the FOLD lines that count as one elements lie in, and in which column."""
    if FOLD == 1:
        return 0, inner
    else:
        return inner // (n_inner // FOLD), inner % (n_inner // FOLD)


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
    """Load the tiles of a step, and 0 for each element inside the columns; −1 outside."""
    TILES: tl.constexpr = HOW.tiles
    raw = ()
    places = ()
    for t in tl.static_range(TILES):
        first, cols, mask = place_of_tile(start, t, end, across, HOW)
        raw = raw + (load_tile(slices, strides, first, cols, inner, mask, OP, HOW),)
        places = places + (tl.where(mask, 0, -1),)
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


@triton.jit
def words_of(words_ptr, outer, chunk, n_chunks, n_inner, ACC: tl.constexpr, OP: tl.constexpr):
    """Pointer to the summaries of a chunk: a line of n_inner numbers for m, and for each sum."""
    line = (outer * n_chunks + chunk) * (1 + OP.sums)
    return words_ptr.to(tl.pointer_type(ACC)) + line * n_inner


@triton.jit
def store_summaries(words, lanes, n_inner, mask, m, totals, OP: tl.constexpr):
    """Store the summaries of lanes of a chunk."""
    if OP.shifted:
        tl.store(words + lanes, m, mask=mask)
    for k in tl.static_range(len(totals)):
        tl.store(words + (1 + k) * n_inner + lanes, totals[k], mask=mask)


@triton.jit
def load_summaries(words, lanes, n_inner, mask, ACC: tl.constexpr, OP: tl.constexpr):
    """Load the summaries of lanes of a chunk; what is masked adds nothing."""
    SUMS: tl.constexpr = OP.sums
    m = 0.0
    if OP.shifted:
        m = tl.load(words + lanes, mask=mask, other=float("-inf"))
    totals = ()
    for k in tl.static_range(SUMS):
        totals = totals + (tl.load(words + (1 + k) * n_inner + lanes, mask=mask, other=0.0),)
    return m, totals


@triton.jit
def merge_partials(
    words_ptr, outer, columns, n_chunks, n_inner,
    PARTS: tl.constexpr, ACC: tl.constexpr, OP: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    """The summaries of some columns, from those of all chunks, PARTS at once."""
    # Columns first, so that what is merged is a vector to the compiler, which it converts to the
    # data tile's layout once. With columns last it would convert a tile.
    FOLD: tl.constexpr = HOW.fold
    SIDE: tl.constexpr = columns.shape[0]
    n_columns = n_inner // FOLD
    m = tl.full((SIDE, PARTS), float("-inf") if OP.shifted else 0.0, ACC)
    totals = zeros_for((SIDE, PARTS), ACC, OP)
    for start in range(0, n_chunks * FOLD, PARTS):
        part = start + tl.arange(0, PARTS)[None, :]
        mask = (part < n_chunks * FOLD) & (columns < n_columns)[:, None]
        words = words_of(words_ptr, outer, part // FOLD, n_chunks, n_inner, ACC, OP)
        lanes = part % FOLD * n_columns + columns[:, None]
        m_parts, of_parts = load_summaries(words, lanes, n_inner, mask, ACC, OP)
        m, totals = merged(m, totals, m_parts, of_parts, None, OP)
    return merged_along(m, totals, 1, OP)


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
        in_ptrs, out_ptrs, in_strides, out_strides, n_cols, n_inner: as for `strided_kernel`, with
            HOW.fold lines as one: n_cols counts such lines, and n_inner their elements.
        words_ptr: workspace of n_inner int64 words for m and for each sum, per outer slice and
            chunk; unused by a single launch without folding.
        n_chunks: chunks per column; 1 with one launch.
        chunk_cols: length of a chunk, in lines.
        OP: the `Operation`.
        HOW: a `TwoPass`, which also says whether this launch publishes, writes or both.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    ACC: tl.constexpr = upcast(INNER)
    INDEX: tl.constexpr = tl.int64 if HOW.wide_index else tl.int32
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    BLOCK_INNER: tl.constexpr = HOW.block_inner
    TILES: tl.constexpr = HOW.tiles
    STEP: tl.constexpr = HOW.tiles * HOW.block_cols
    FOLD: tl.constexpr = HOW.fold
    # Programs that read adjacent memory start together.
    blocks = tl.cdiv(n_inner, BLOCK_INNER)
    block = tl.program_id(0) % blocks
    chunk = tl.program_id(0) // blocks % n_chunks
    outer = (tl.program_id(0) // blocks // n_chunks).to(tl.int64)
    inner = block.to(INDEX) * BLOCK_INNER + tl.arange(0, BLOCK_INNER)[None, :]
    across = inner < multiple_of(n_inner, HOW.vector)
    folded, column = place_in_line(inner, n_inner, FOLD)
    begin = chunk.to(INDEX) * chunk_cols
    end = tl.minimum(begin + chunk_cols, n_cols)
    in_slices = slices_of(in_ptrs, in_strides, outer, OP.inputs, HOW.vector)
    out_slices = slices_of(out_ptrs, out_strides, outer, len(out_ptrs) - OP.row_results, HOW.vector)

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
        if FOLD > 1 or not HOW.write:
            words = words_of(words_ptr, outer, chunk, n_chunks, n_inner, ACC, OP)
            store_summaries(words, inner, n_inner, across, m, totals, OP)
    if HOW.write and FOLD > 1 and HOW.publish:
        tl.debug_barrier()  # all lanes are there
        columns = tl.arange(0, BLOCK_INNER)
        columns = tl.where(columns < n_inner, columns % (n_inner // FOLD), n_inner)
        m, totals = merge_partials(words_ptr, outer, columns, n_chunks, n_inner, FOLD, ACC, OP, HOW)
    if HOW.write and not HOW.publish:
        words = words_of(words_ptr, outer, 0, n_chunks, n_inner, ACC, OP)
        m, totals = load_summaries(words, column, n_inner, across, ACC, OP)

    if HOW.write:
        numbers = load_numbers(in_slices, inner_strides(in_strides), column, inner < n_inner, OP)
        if OP.row_results and HOW.publish:
            results = OP.finish_row(m, totals, numbers)
            writes = inner < n_inner // FOLD
            store_numbers(out_slices, inner_strides(out_strides), column, writes, results, OP)
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
            offsets = offsets_in_slice(out_strides[0], col // FOLD, inner, 1)
            mine = (inner < n_inner) & is_column(col // FOLD, begin, end) & (col % FOLD == folded)
            tl.debug_barrier()
            tl.store(out_slices[0] + offsets, result.to(INNER).to(OUT), mask=mine)


@triton.jit(
    repr=with_operation("merge_chunks"), do_not_specialize=["n_cols", "n_chunks", "chunk_cols"]
)
def merge_chunks_kernel(
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
    """Merge what chunks published, for `HOW.merged` columns per program: into the words of the
    first chunk. Column scalars are written here.

    Args:
        in_ptrs, out_ptrs, words_ptr, in_strides, out_strides, n_cols, n_inner, n_chunks,
            chunk_cols, OP, HOW: as for `two_pass_kernel`.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    ACC: tl.constexpr = upcast(OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty)
    n_columns = n_inner // HOW.fold
    blocks = tl.cdiv(n_columns, HOW.merged)
    outer = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks).to(tl.int64) * HOW.merged + tl.arange(0, HOW.merged)
    m, totals = merge_partials(
        words_ptr, outer, columns, n_chunks, n_inner, HOW.at_once, ACC, OP, HOW
    )
    column = columns[None, :]
    mask = column < n_columns
    if OP.row_results:
        in_slices = slices_of(in_ptrs, in_strides, outer, 0, 1)
        out_slices = slices_of(out_ptrs, out_strides, outer, 0, 1)
        numbers = load_numbers(in_slices, inner_strides(in_strides), column, mask, OP)
        results = OP.finish_row(m, totals, numbers)
        store_numbers(out_slices, inner_strides(out_strides), column, mask, results, OP)
    if not OP.reduces:
        words = words_of(words_ptr, outer, 0, n_chunks, n_inner, ACC, OP)
        store_summaries(words, column, n_inner, mask, m, totals, OP)
