"""Run any operation on rows with score modifiers: scale, soft cap, bias, masks and a sink.

The modifiers transform each element before the operation sees it, so operations
need not know of them. A sink is the summary that a row starts from. A gradient that the operation
writes passes back through the modifiers.

Masks, biases, scales and sinks broadcast without copies: rows are counted over all other
dimensions, and every tensor has a stride for each, 0 if it is broadcast there. So a mask of
queries × keys is never copied for batch and heads, and every tensor may have any strides.

Rows that fit one tile, or three, are read once. Longer rows are read twice with the online
recurrence, backwards the second time, to hit the cache. If they are few, several programs share a
row: a first launch stores the chunks' partials, a second merges them and writes. No program waits
for another, so this runs on every device and in float64.
"""

# pyright: reportGeneralTypeIssues=false
# (kernels extend tuples)
from typing import NamedTuple

import triton
import triton.language as tl

from .device.exchange import sum_over_ranks
from .device.monoid import exp_shifted
from .device.names import with_operation
from .device.registers import upcast
from .device.softcap import softcap_derivative, softcapped
from .device.summaries import added, adjusted, larger, max_of, merged, placed, spread, zeros_for
from .device.sums import sum_of_any_terms, sums_of
from .device.vectors import multiple_of

NO_SCALE, ONE_SCALE, SCALES = 0, 1, 2  # `ModifierFlags.scaled`: not at all, by one number, per row


class ModifierFlags(NamedTuple):
    """The score modifiers of a call, in the order in which they apply before the operation, or back
    through which its gradient passes: a kernel's compile-time constant `MODIFIERS`."""

    before: bool = True  # map the operation's first input; else take it as it is
    after: bool = False  # from a gradient at modified elements to one at x
    scaled: int = NO_SCALE
    softcap: float = 0.0  # the cap; 0 is none
    bias: bool = False
    where: bool = False
    causal: bool = False
    sink: bool = False
    safe: bool = False
    empty: float = 0.0  # the result at masked elements

    x: bool = False  # the unmodified elements are a separate input
    of_modified: bool = False  # also return the gradient at the modified elements,
    of_scale: bool = False  # the gradient at each row's scale, as one partial per chunk,
    # and what the sink's gradient needs: the sink's share (forward) or the row sum (backward).
    of_sink: bool = False


@triton.jit
def starts_of_rows(
    ptrs, strides, rows, sizes, LEADING: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
    HOW: tl.constexpr,
):  # fmt: skip
    """Pointers to the starts of rows, in several tensors.

    Args:
        ptrs, strides: the tensors; and for each, its stride along a row, then those along `sizes`.
        rows, sizes: row indices, counted over all other dimensions; their sizes, innermost first.
        LEADING, FIRST, LAST: tensors 0 to LEADING − 1 and FIRST to LAST − 1 have elements along a
            row; the others hold row scalars.
        HOW: a `ModifiedRows`.
    """
    starts = ()
    for i in tl.static_range(len(ptrs)):
        rest = rows
        offsets = (rows * 0).to(tl.int64)
        for g in tl.static_range(len(sizes)):
            step = strides[i][1 + g]
            if (i < LEADING) | ((i >= FIRST) & (i < LAST)):
                step = multiple_of(step, HOW.vector)
            if g + 1 < len(sizes):
                offsets += (rest % sizes[g]).to(tl.int64) * step
                rest = rest // sizes[g]
            else:
                offsets += rest.to(tl.int64) * step
        starts = starts + (ptrs[i] + offsets,)
    return starts


@triton.jit
def scaled(x, scale, MODIFIERS: tl.constexpr):
    """Apply the scale."""
    if MODIFIERS.scaled:
        return x * scale
    else:
        return x


@triton.jit
def modified(x, scale, bias, MODIFIERS: tl.constexpr):
    """Apply scale, soft cap and bias: the operation's argument, before masks."""
    # eq: modifiers-definition
    z = scaled(x, scale, MODIFIERS)
    if MODIFIERS.softcap > 0.0:
        z = softcapped(z, MODIFIERS.softcap)
    if MODIFIERS.bias:
        z += bias.to(z.dtype)
    return z


@triton.jit
def start_of_sink(sink):
    """The initial summary (m, d) of a row with a sink: (sink, 1), or the identity for a sink of −∞.
    The largest finite number replaces a sink of +∞: it also takes everything, and subtracting it is
    no NaN."""
    # eq: modifiers-sink
    LARGEST: tl.constexpr = 1.7976931348623157e308 if sink.dtype == tl.float64 else 3.4028234e38
    m = tl.where(sink == float("inf"), LARGEST, sink).to(sink.dtype)
    return m, tl.where(m == float("-inf"), 0.0, 1.0).to(sink.dtype)


@triton.jit
def load_tile(starts, strides, cols, inside, query, OP: tl.constexpr, MODIFIERS: tl.constexpr,
    HOW: tl.constexpr,
):  # fmt: skip
    """Load a tile: the operation's elements, then x and the bias, if they are inputs; and the mask
    of kept elements.

    Above the diagonal only the rest of a vector is read: a per-element bound would break up vector
    loads. Elements outside a row need no mask of their own: they are above the diagonal, and a mask
    reads as 0 there.
    """
    INPUTS: tl.constexpr = OP.inputs
    FURTHER: tl.constexpr = OP.inputs + OP.numbers
    LAST: tl.constexpr = FURTHER + MODIFIERS.x + MODIFIERS.bias
    VECTOR: tl.constexpr = HOW.vector
    kept = inside
    if MODIFIERS.causal:
        kept = cols <= query
        inside = inside & (cols < (query // HOW.vector + 1) * HOW.vector)
    if HOW.wide_index:
        cols = cols.to(tl.int64)
    if MODIFIERS.where:
        places = starts[LAST] + cols * strides[LAST][0]
        if isinstance(strides[LAST][0], int):  # a stride of 1: no wider than the loads of x
            places = tl.max_contiguous(places, (1, VECTOR))
        where = tl.load(places, mask=inside, other=0) != 0
        if MODIFIERS.causal:
            kept = kept & where
        else:
            kept = where
    raw = ()
    for i in tl.static_range(INPUTS):
        raw = raw + (tl.load(starts[i] + cols * strides[i][0], mask=inside, other=0.0),)
    for i in tl.static_range(FURTHER, LAST):
        raw = raw + (tl.load(starts[i] + cols * strides[i][0], mask=inside, other=0.0),)
    return raw, kept


@triton.jit
def values_of(
    raw, kept, cols, scale, OP: tl.constexpr, MODIFIERS: tl.constexpr, INNER: tl.constexpr
):
    """The operation's values of a tile, modified and masked, and the mask of kept elements."""
    ACC: tl.constexpr = upcast(INNER)
    INPUTS: tl.constexpr = OP.inputs
    BIAS: tl.constexpr = OP.inputs + MODIFIERS.x if MODIFIERS.bias else 0
    first = raw[0].to(INNER).to(ACC)
    if MODIFIERS.before:
        first = modified(first, scale, raw[BIAS], MODIFIERS)
    if MODIFIERS.safe and not MODIFIERS.before:
        kept = kept & (first != MODIFIERS.empty)  # forward, the element was −∞: no gradient
    # eq: modifiers-masked
    values = (tl.where(kept, first, OP.padding).to(ACC),)
    for i in tl.static_range(1, INPUTS):
        values = values + (tl.where(kept, raw[i].to(ACC), 0.0),)
    return placed(values, tl.where(kept, cols, -1), OP), kept


@triton.jit
def with_tiles(m, totals, tiles, OP: tl.constexpr):
    """Merge the values of several tiles into a running summary."""
    TILES: tl.constexpr = len(tiles)
    m_new = m
    if OP.shifted:
        largest = tiles[0][0]
        for t in tl.static_range(1, TILES):
            largest = larger(largest, tiles[t][0], OP)
        # eq: online-m, online-d
        m_new = larger(m, max_of(largest, 1, OP)[:, None], OP)
    terms = ()
    for t in tl.static_range(TILES):
        terms = terms + (OP.terms(tiles[t], m_new, False),)
    totals = added(OP.rescale(totals, m, m_new), spread(sums_of((terms,), m_new, 1, OP), 1))
    return m_new, totals


@triton.jit
def sum_of_tile(products, OP: tl.constexpr):
    """The sum of a tile along its rows, independent of order if the operation's sums are."""
    if OP.any_order:
        total = sum_of_any_terms((((products,),),), 0, 1)
    else:
        total = tl.sum(products, axis=1)
    return total[:, None]


@triton.jit
def finish_tile(
    ends, strides, raw, kept, cols, inside, m, given, last, blank, scale,
    OP: tl.constexpr, MODIFIERS: tl.constexpr, INNER: tl.constexpr,
    HOW: tl.constexpr,
):  # fmt: skip
    """Write a tile of the result; return its part of the gradient at the scale, 0 if not requested.

    Args:
        ends, strides: pointers to the starts of rows in the results, and their strides.
        raw, kept: as `load_tile` returns them.
        cols, inside: the columns, and the mask of those that exist.
        m, given: the row summary, as `finish` takes it.
        last: the column and element of `finish_at`, if the operation has one.
        blank: the result at masked elements; None leaves them alone.
        scale: the scale of the rows.
    """
    OUT: tl.constexpr = ends[0].dtype.element_ty
    values, kept = values_of(raw, kept, cols, scale, OP, MODIFIERS, INNER)
    result = OP.finish(values, OP.terms(values, m, False), m, given)
    if OP.finish_at is not None:
        result = tl.where(cols == last[0], last[1], result)
    if HOW.wide_index:
        cols = cols.to(tl.int64)
    of_scale = m * 0.0
    if MODIFIERS.after:
        result = tl.where(kept, result, 0.0)
        if MODIFIERS.of_modified:
            AT: tl.constexpr = 1 + OP.row_results
            of_modified = result.to(ends[AT].dtype.element_ty)
            tl.store(ends[AT] + cols * strides[AT][0], of_modified, mask=inside)
        X: tl.constexpr = OP.inputs if MODIFIERS.x else 0
        x = raw[X].to(OUT).to(result.dtype)
        if MODIFIERS.softcap > 0.0:
            slope = softcap_derivative(scaled(x, scale, MODIFIERS), MODIFIERS.softcap)
            result = tl.where(result == 0.0, 0.0, result * slope)  # 0 stays 0 for any x
        if MODIFIERS.of_scale:
            # eq: modifiers-scale-gradient
            of_scale = sum_of_tile(tl.where(result == 0.0, 0.0, result * x), OP)
        result = scaled(result, scale, MODIFIERS)
    elif blank is not None:
        result = tl.where(kept, result, blank)
        if OP.shifted and MODIFIERS.safe:
            # A maximum drops NaN on a GPU; the sum of a row has it, and is 0 if nothing is left.
            result = tl.where(given[0] == 0.0, MODIFIERS.empty, result)
    tl.store(ends[0] + cols * strides[0][0], result.to(INNER).to(OUT), mask=inside)
    return of_scale


@triton.jit
def words_of(words_ptr, program, WHICH: tl.constexpr, OP: tl.constexpr, BLOCK_ROWS: tl.constexpr):
    """Pointers to one field of a program's summaries: m (WHICH = 0), or a sum."""
    line = program.to(tl.int64) * (1 + OP.sums) + WHICH
    return words_ptr + line * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]


@triton.jit
def load_summary(words_ptr, program, OP: tl.constexpr, BLOCK_ROWS: tl.constexpr):
    """Load the partials (m, totals) of a chunk."""
    SUMS: tl.constexpr = OP.sums
    totals = ()
    for k in tl.static_range(SUMS):
        totals = totals + (tl.load(words_of(words_ptr, program, 1 + k, OP, BLOCK_ROWS)),)
    return tl.load(words_of(words_ptr, program, 0, OP, BLOCK_ROWS)), totals


@triton.jit
def store_summary(words_ptr, program, m, totals, OP: tl.constexpr, BLOCK_ROWS: tl.constexpr):
    """Store the partials (m, totals) of a chunk for the second launch."""
    SUMS: tl.constexpr = OP.sums
    tl.store(words_of(words_ptr, program, 0, OP, BLOCK_ROWS), m)
    for k in tl.static_range(SUMS):
        tl.store(words_of(words_ptr, program, 1 + k, OP, BLOCK_ROWS), totals[k])


@triton.jit(repr=with_operation("modified_rows"), do_not_specialize=["chunks"])
def modified_rows_kernel(
    in_ptrs,
    out_ptrs,
    words_ptr,
    scale,
    in_strides,
    out_strides,
    sizes,
    shape,
    chunks,
    OP: tl.constexpr,
    MODIFIERS: tl.constexpr,
    HOW: tl.constexpr,
):
    """Run an operation with score modifiers on a chunk of block_rows rows per program.

    Args:
        in_ptrs: the operation's inputs: elements, then row scalars; then those that MODIFIERS has
            of x, bias, mask, and per row scale and sink.
        out_ptrs: the operation's results: elements unless it reduces, then row scalars; then those
            that MODIFIERS has of the gradient at the modified elements, the gradient at the scale,
            and what the sink's needs.
        words_ptr: workspace for the partials of chunks; unused with one launch.
        scale: the scale, if it is one number.
        in_strides: for each input, its stride along a row (0 if broadcast), then its strides along
            `sizes`.
        out_strides: likewise for each result; the gradient at the scale has chunks as columns.
        sizes: the sizes of the other dimensions, innermost first.
        shape: the numbers of rows, of columns, and of queries (for a causal mask).
        chunks: the number of chunks, their columns, a multiple of vector, and the number again; on
            several ranks the numbers from the line of summaries of one to the next.
        OP: the `Operation`.
        MODIFIERS: the `ModifierFlags`.
        HOW: a `ModifiedRows`.
    """
    NUMBERS: tl.constexpr = OP.numbers
    ROW_RESULTS: tl.constexpr = OP.row_results
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    ACC: tl.constexpr = upcast(INNER)
    BLOCK_ROWS: tl.constexpr = HOW.block_rows
    BLOCK_COLS: tl.constexpr = HOW.block_cols
    TILES: tl.constexpr = HOW.tiles
    VECTORS: tl.constexpr = HOW.vector * in_ptrs[0].dtype.element_ty.primitive_bitwidth >= 128
    FURTHER: tl.constexpr = OP.inputs + OP.numbers
    OF_ROWS: tl.constexpr = FURTHER + MODIFIERS.x + MODIFIERS.bias + MODIFIERS.where
    AFTER: tl.constexpr = OP.row_results if OP.reduces else OP.row_results + 1
    n_chunks, chunk_cols, n_parts = chunks
    program = tl.program_id(0)
    if not HOW.publish:  # backwards, to hit what the first launch left in the cache
        program = tl.num_programs(0) - 1 - program
    block, chunk = program // n_chunks, program % n_chunks
    if HOW.wide_index:
        block = block.to(tl.int64)  # else 32 bits, whose division takes a fifth of the time
        if not HOW.whole:
            chunk = chunk.to(tl.int64)
    rows = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    there = rows < shape[0]
    query = (rows % shape[2]).to(tl.int32)
    tile = tl.arange(0, BLOCK_COLS)[None, :]
    begin = chunk * multiple_of(chunk_cols, HOW.vector)
    end = multiple_of(shape[1], HOW.vector)
    if not HOW.whole:
        end = tl.minimum(begin + multiple_of(chunk_cols, HOW.vector), end)
    starts = starts_of_rows(in_ptrs, in_strides, rows, sizes, OP.inputs, FURTHER, OF_ROWS, HOW)
    ends = starts_of_rows(
        out_ptrs, out_strides, rows, sizes,
        AFTER - OP.row_results, AFTER, AFTER + MODIFIERS.of_modified, HOW,
    )  # fmt: skip
    if MODIFIERS.scaled == 2:
        scale = tl.load(starts[OF_ROWS], mask=there, other=1.0).to(ACC)

    m = tl.full((BLOCK_ROWS, 1), float("-inf") if OP.shifted else 0.0, ACC)
    totals = zeros_for((BLOCK_ROWS, 1), ACC, OP)
    if MODIFIERS.sink:
        SINK: tl.constexpr = OF_ROWS + 1 if MODIFIERS.scaled == 2 else OF_ROWS
        sink = tl.load(starts[SINK], mask=there, other=0.0).to(ACC)
        if HOW.write:
            m, d = start_of_sink(sink)
            totals = (d,)
    if HOW.whole:
        raws = ()
        keeps = ()
        tiles = ()
        for t in tl.static_range(TILES):
            cols = t * BLOCK_COLS + tile
            inside = there & (cols < end)
            raw, kept = load_tile(starts, in_strides, cols, inside, query, OP, MODIFIERS, HOW)
            raws = raws + (raw,)
            keeps = keeps + (kept,)
        for t in tl.static_range(TILES):
            cols = t * BLOCK_COLS + tile
            values, kept = values_of(raws[t], keeps[t], cols, scale, OP, MODIFIERS, INNER)
            tiles = tiles + (values,)
        m, totals = with_tiles(m, totals, tiles, OP)
    elif HOW.publish:
        reach = end
        if MODIFIERS.causal:  # the last column that any row of this program attends to
            reach = tl.minimum(end, tl.max(tl.max(query, axis=1), axis=0) + 1)
        for start in tl.range(begin, reach, BLOCK_COLS, num_stages=HOW.stages):
            cols = start + tile
            inside = there & (cols < end)
            raw, kept = load_tile(starts, in_strides, cols, inside, query, OP, MODIFIERS, HOW)
            values, kept = values_of(raw, kept, cols, scale, OP, MODIFIERS, INNER)
            m, totals = with_tiles(m, totals, (values,), OP)
    else:
        summaries = words_ptr.to(tl.pointer_type(ACC))
        if HOW.ranks > 1:  # each has as many chunks, and a line of summaries
            RANKS: tl.constexpr = HOW.ranks
            for _ in tl.static_range(RANKS):
                for part in range(0, n_chunks):
                    m_part, more = load_summary(summaries, block * n_chunks + part, OP, BLOCK_ROWS)
                    m, totals = merged(m, totals, m_part, more, None, OP)
                summaries += n_parts
        else:
            for part in range(0, n_parts):
                m_part, more = load_summary(summaries, block * n_parts + part, OP, BLOCK_ROWS)
                m, totals = merged(m, totals, m_part, more, None, OP)

    if not HOW.write:
        summaries = words_ptr.to(tl.pointer_type(ACC))
        store_summary(summaries, program, m, totals, OP, BLOCK_ROWS)
    else:
        numbers = ()
        for i in tl.static_range(NUMBERS):
            numbers = numbers + (tl.load(starts[OP.inputs + i], mask=there, other=1),)
        if HOW.ranks > 1 and OP.numbers > 1:  # the target logit, known to one of the ranks
            known = words_ptr.to(tl.pointer_type(ACC))
            known += (1 + OP.sums) * BLOCK_ROWS * tl.num_programs(0) + rows
            known = sum_over_ranks(known, there, n_parts, HOW.ranks)
            numbers = (numbers[0], known) + numbers[2:]
        if MODIFIERS.before and OP.numbers > 1:
            # The second scalar is the target logit, which the modifiers apply to as well.
            picked = modified(numbers[1].to(ACC), scale, 0.0, MODIFIERS)
            numbers = (numbers[0], picked) + numbers[2:]
        writes = there & (chunk == 0)
        if OP.row_results:
            results = OP.finish_row(m, totals, numbers)
            for k in tl.static_range(ROW_RESULTS):
                to = ends[AFTER - ROW_RESULTS + k]
                tl.store(to, results[k].to(to.dtype.element_ty), mask=writes)
        if MODIFIERS.of_sink:
            LAST: tl.constexpr = AFTER + MODIFIERS.of_modified + MODIFIERS.of_scale
            of_sink = totals[0]
            if MODIFIERS.before:
                # eq: modifiers-sink-share
                of_sink = exp_shifted(start_of_sink(sink)[0], m) / totals[0]
                if MODIFIERS.safe:
                    of_sink = tl.where(totals[0] == 0.0, 0.0, of_sink)
            tl.store(ends[LAST], of_sink.to(ends[LAST].dtype.element_ty), mask=writes)
        if MODIFIERS.sink:
            m = tl.where(sink == float("inf"), sink, m)
    if HOW.write and not OP.reduces:
        given = adjusted(m, totals, numbers, OP)
        last = (query, m)
        if OP.finish_at is not None:
            last = OP.finish_at(m, given, numbers)
        MASKED: tl.constexpr = MODIFIERS.where or MODIFIERS.causal or MODIFIERS.safe
        # Keep a mask that is loaded element by element: the compiler would wait for each reload.
        AGAIN: tl.constexpr = HOW.whole and (VECTORS or not MODIFIERS.where)
        of_scale = tl.zeros((BLOCK_ROWS, 1), ACC)
        blank = None
        walked = not HOW.whole
        if MASKED and not MODIFIERS.after:
            blank = tl.full((BLOCK_ROWS, 1), MODIFIERS.empty, ACC)
            if OP.shifted and not MODIFIERS.safe:  # 0/0 in a fully masked row
                blank = tl.where(totals[0] == 0.0, float("nan"), blank)
            if AGAIN:
                # If the row has a sum, padding yields the right result at masked elements. A row
                # without one is reread: keeping its mask would cost several instructions each.
                walked = tl.max((totals[0] > 0.0).to(tl.int32) ^ 1) > 0
        if HOW.whole:
            if not walked:
                for t in tl.static_range(TILES):
                    cols = t * BLOCK_COLS + tile
                    inside = there & (cols < end)
                    of_scale += finish_tile(
                        ends, out_strides, raws[t], keeps[t], cols, inside, m, given, last,
                        None if AGAIN else blank, scale, OP, MODIFIERS, INNER, HOW,
                    )  # fmt: skip
        if walked:
            last_tile = begin + (end - 1 - begin) // BLOCK_COLS * BLOCK_COLS
            for start in tl.range(begin, end, BLOCK_COLS, num_stages=HOW.stages):
                cols = last_tile - (start - begin) + tile
                inside = there & (cols < end)
                raw, kept = load_tile(starts, in_strides, cols, inside, query, OP, MODIFIERS, HOW)
                of_scale += finish_tile(
                    ends, out_strides, raw, kept, cols, inside, m, given, last, blank, scale,
                    OP, MODIFIERS, INNER, HOW,
                )  # fmt: skip
        if MODIFIERS.of_scale:
            AT_SCALE: tl.constexpr = AFTER + MODIFIERS.of_modified
            there_too = ends[AT_SCALE] + chunk * out_strides[AT_SCALE][0]
            tl.store(there_too, of_scale.to(there_too.dtype.element_ty), mask=there)
