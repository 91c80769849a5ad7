"""Split a long row over several programs, and still read it only once.

A row too long for the registers of one multiprocessor fits into those of several, so it is cut into
chunks. A program keeps its chunk in registers and publishes the chunk's summary as one status word
(`device.exchange`); it polls for the other status words of its row, merges the partials, and writes
its chunk from registers.

A work item (`task`) is one chunk of one row; of P programs, program p runs items p, p + P, p + 2P,
… Memory should stay busy while a program waits. With pipeline depth 0 each item has a program, and
others on the same multiprocessor load meanwhile. With depth 1 a program loads its next chunk before
it waits; with depth 2 it also publishes that chunk first, and writes one item later.

After enough polls a program falls back: it recomputes the missing summaries of its rows itself. So
the kernel runs even in the interpreter, one program after another. A row with more chunks than the
device can hold takes two launches: the first only publishes, the second rereads and writes.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .device.exchange import (
    poll,
    prefetch,
    publish,
    publish_missing,
    sum_over_ranks,
    unpack_summaries,
)
from .device.names import with_operation
from .device.registers import (
    in_registers,
    load_pairs,
    max_of_pairs,
    optimization_barrier,
    rounded,
    unpack_pairs,
)
from .device.summaries import (
    adjusted,
    is_column,
    larger,
    load_numbers,
    max_of,
    placed,
    store_numbers,
)
from .device.sums import add_both, sum_of_partials, sums_of
from .device.vectors import edge_of_row, round_up


class Rows(NamedTuple):
    """The rows of all inputs and results, and how they are cut into chunks."""

    in_ptrs: Any
    in_strides: Any
    out_ptrs: Any
    out_strides: Any
    n_tasks: Any
    n_cols: Any
    n_chunks: Any
    chunk_cols: Any
    parts: Any


@triton.jit
def columns_of_chunk(n_cols, chunk, rows):
    """The first column and the column count of a chunk with edges of its own."""
    chunks, cols, _ = rows.parts
    first = chunk % chunks * rows.chunk_cols
    count = tl.minimum(tl.maximum(cols - first, 0), rows.chunk_cols)
    return chunk // chunks * cols + first, tl.where(n_cols > 0, count, 0)


@triton.jit
def body_of_chunk(
    begin, n_cols, chunk, rows, WIDTH: tl.constexpr, OP: tl.constexpr, HOW: tl.constexpr
):
    """(first, offsets, mask) of a chunk of a row's body, in units of WIDTH elements (2 for pairs):
    a lane's unit lies at first + its offset from where the tensor begins.

    The body is aligned and chunk_cols is a multiple of VECTOR, so every chunk is aligned. If sums
    must not depend on alignment (`any_order`), a chunk has the same columns wherever the row
    starts, and so a body and an edge of its own.
    """
    VECTOR: tl.constexpr = HOW.vector
    if OP.any_order:
        first, count = columns_of_chunk(n_cols, chunk, rows)
        start = round_up(begin + first, VECTOR)
        end = (begin + first + count) // VECTOR * VECTOR
    else:
        chunk_cols = rows.chunk_cols // VECTOR * VECTOR
        start = round_up(begin, VECTOR) + chunk * chunk_cols
        end = tl.minimum(start + chunk_cols, (begin + n_cols) // VECTOR * VECTOR)
    # Dividing by VECTOR and multiplying by VECTOR // WIDTH shows the compiler the alignment.
    first = start // VECTOR * (VECTOR // WIDTH)
    if VECTOR == (8 if HOW.pairs else 4):
        offsets = first + tl.arange(0, HOW.block // WIDTH)
        return 0, offsets, offsets < end // VECTOR * (VECTOR // WIDTH)
    else:
        # Accesses of less than 16 bytes are many, and would spill their addresses unless these
        # differ by constants.
        offsets = tl.arange(0, HOW.block // WIDTH)
        count = end // VECTOR * (VECTOR // WIDTH) - first
        return first, offsets, offsets < count.to(tl.int32)


@triton.jit
def edge_of_chunk(begin, n_cols, chunk, rows, OP: tl.constexpr, HOW: tl.constexpr):
    """Columns and mask of a chunk's edge: its own, or the row's edge for chunk 0."""
    if OP.any_order:
        first, count = columns_of_chunk(n_cols, chunk, rows)
        cols, mask = edge_of_row(begin + first, count, HOW.vector)
        return first + cols, mask
    else:
        return edge_of_row(begin, tl.where(chunk == 0, n_cols, 0), HOW.vector)


@triton.jit
def load_chunk(rows, task, OP: tl.constexpr, HOW: tl.constexpr):
    """Load (body, edge) of a work item, a raw block per input; nothing past the last item."""
    row = (task // rows.n_chunks).to(tl.int64)
    chunk = task % rows.n_chunks
    n_cols = tl.where(task < rows.n_tasks, rows.n_cols, 0)
    body = ()
    edge = ()
    for i in tl.static_range(len(rows.in_ptrs) - OP.numbers):
        ptr = rows.in_ptrs[i]
        begin = row * rows.in_strides[i]
        if HOW.pairs:
            first, offsets, mask = body_of_chunk(begin, n_cols, chunk, rows, 2, OP, HOW)
            body = body + (load_pairs(ptr, first, offsets, mask, OP.padding),)
        else:
            first, offsets, mask = body_of_chunk(begin, n_cols, chunk, rows, 1, OP, HOW)
            body = body + (tl.load(ptr + first + offsets, mask=mask, other=OP.padding),)
        if HOW.edges:
            cols, mask = edge_of_chunk(begin, n_cols, chunk, rows, OP, HOW)
            edge = edge + (tl.load(ptr + begin + cols, mask=mask, other=OP.padding),)
        else:
            blank = tl.full((2 * HOW.vector,), OP.padding, tl.float32)
            edge = edge + (blank.to(ptr.dtype.element_ty),)
    return body, edge


@triton.jit
def places_of_chunk(rows, task, OP: tl.constexpr, HOW: tl.constexpr):
    """0 for each element of a work item's body and edge; −1 outside."""
    begin = (task // rows.n_chunks).to(tl.int64) * rows.in_strides[0]
    chunk = task % rows.n_chunks
    _, _, mask = body_of_chunk(begin, rows.n_cols, chunk, rows, 1, OP, HOW)
    _, edge_mask = edge_of_chunk(begin, rows.n_cols, chunk, rows, OP, HOW)
    return tl.where(mask, 0, -1), tl.where(edge_mask, 0, -1)


@triton.jit
def chunk_of_column(col, begin, rows, OP: tl.constexpr, HOW: tl.constexpr):
    """The chunk that holds a column, as `body_of_chunk` and `edge_of_chunk` cut the row: the first,
    if the column is in the row's edge; −1 if the row has no such column.

    Checking that here costs no register; next to the comparison of chunks it made the gradient of a
    loss spill 68 bytes on Triton 3.6 and take 2.3 times as long.
    """
    VECTOR: tl.constexpr = HOW.vector
    if OP.any_order:
        chunks, cols, _ = rows.parts
        chunk = col // cols * chunks + col % cols // rows.chunk_cols
    else:
        first = round_up(begin, VECTOR) - begin
        end = (begin + rows.n_cols) // VECTOR * VECTOR - begin
        chunk_cols = rows.chunk_cols // VECTOR * VECTOR
        chunk = tl.where((col < first) | (col >= end), 0, (col - first) // chunk_cols)
    return tl.where(is_column(col, 0, rows.n_cols), chunk, -1)


@triton.jit
def elements(body, rows, INNER: tl.constexpr, PAIRS: tl.constexpr):
    """Upcast a loaded body, like `in_registers`."""
    if PAIRS:
        values = ()
        for i in tl.static_range(len(body)):
            value = unpack_pairs(body[i], rows.in_ptrs[i].dtype.element_ty)
            if i == 0:
                value = rounded(value, rows.in_ptrs[i].dtype.element_ty, INNER)
            values = values + (value,)
        return values
    else:
        return in_registers(body, INNER)


@triton.jit
def largest(body, rows, INNER: tl.constexpr, OP: tl.constexpr, HOW: tl.constexpr):
    """The largest element of the first input."""
    ELEMENT: tl.constexpr = rows.in_ptrs[0].dtype.element_ty
    if HOW.pairs and HOW.barrier:
        # Rounding is monotonic, so it may follow the maximum.
        return rounded(max_of_pairs(body[0], ELEMENT, OP.any_order), ELEMENT, INNER)
    else:
        return max_of(elements(body, rows, INNER, HOW.pairs)[0], 0, OP)


@triton.jit
def blank_like(blocks):
    """Zeros in the shapes and types of a tuple of blocks."""
    blank = ()
    for i in tl.static_range(len(blocks)):
        blank = blank + (tl.zeros(blocks[i].shape, tl.float32).to(blocks[i].dtype),)
    return blank


@triton.jit
def summarise(body, edge, task, rows, INNER: tl.constexpr, OP: tl.constexpr, HOW: tl.constexpr):
    """(m, totals, terms): the summary of a chunk with its edge, and the terms of its body."""
    place, place_edge = places_of_chunk(rows, task, OP, HOW)
    values_edge = placed(in_registers(edge, INNER), place_edge, OP)
    m = 0.0
    if OP.shifted:
        body = optimization_barrier(body, HOW.barrier)
        m = largest(body, rows, INNER, OP, HOW)
        if HOW.edges:
            m = larger(m, max_of(values_edge[0], 0, OP), OP)
    body = optimization_barrier(body, HOW.barrier)
    # The recompute fallback must get the same bits, so HOW.wait asks for exact terms.
    values = placed(elements(body, rows, INNER, HOW.pairs), place, OP)
    terms = OP.terms(values, m, HOW.wait)
    if HOW.edges:
        totals = sums_of(((terms,), (OP.terms(values_edge, m, HOW.wait),)), m, 0, OP)
    else:
        totals = sums_of(((terms,),), m, 0, OP)
    return m, totals, terms


@triton.jit
def numbers_of_row(words_ptr, rows, task, OP: tl.constexpr, HOW: tl.constexpr):
    """Load the row scalars of a work item's row. On several ranks the second, the target logit,
    stands behind the words of the rank that has the target."""
    row = (task // rows.n_chunks).to(tl.int64)
    numbers = load_numbers(rows.in_ptrs, rows.in_strides, row, True, OP)
    if HOW.ranks > 1 and OP.numbers > 1:
        known = (words_ptr + OP.sums * rows.n_tasks).to(tl.pointer_type(tl.float32)) + row
        numbers = (numbers[0], sum_over_ranks(known, True, 2 * rows.parts[2], HOW.ranks)) + numbers[
            2:
        ]
    return numbers


@triton.jit
def merge_row(words_ptr, task, rows, max_polls, OP: tl.constexpr, HOW: tl.constexpr):
    """(m, totals, missing) of an item's row, from its status words; valid if none is missing."""
    SUMS: tl.constexpr = OP.sums
    lane = tl.arange(0, HOW.words)
    n_words = rows.n_chunks
    apart = rows.n_tasks
    if HOW.ranks > 1:  # each has as many chunks, and a line of words
        n_words = rows.n_chunks * HOW.ranks
        live = lane < n_words
        line = (lane // rows.n_chunks).to(tl.int64) * rows.parts[2]
        pointers = words_ptr + line + (task // rows.n_chunks * rows.n_chunks + lane % rows.n_chunks)
    else:
        if OP.any_order:
            n_words = rows.parts[2]
            apart = rows.n_tasks // rows.n_chunks * n_words
        live = lane < n_words
        pointers = words_ptr + task // rows.n_chunks * n_words + lane
    words = (poll(pointers, live, max_polls, HOW.wait, HOW.backoff, HOW.polls),)
    absent = words[0] == 0
    for k in tl.static_range(1, SUMS):
        # Published with the first word, so most likely there.
        word = poll(pointers + k * apart, live, max_polls, HOW.wait, 0, HOW.polls)
        words = words + (word,)
        absent = absent | (word == 0)
    m, parts = unpack_summaries(words, live, 0, OP)
    absent = absent.to(tl.int32)
    if OP.any_order:
        total, missing = sum_of_partials(parts[0], absent, 0, OP)
    else:
        total, missing = tl.reduce((parts[0], absent), 0, add_both)
    totals = (total,)
    for k in tl.static_range(1, SUMS):
        if OP.any_order:
            totals = totals + (sum_of_partials(parts[k], absent, k, OP)[0],)
        else:
            totals = totals + (tl.sum(parts[k], axis=0),)
    return m, totals, missing


@triton.jit
def write_chunk(
    task, kept, edge, m_own, m, totals, numbers, rows, OP: tl.constexpr, HOW: tl.constexpr
):
    """Write a work item's chunk from what was kept: its body, or its terms relative to m_own. The
    last chunk of a row also writes the row scalars."""
    OUT: tl.constexpr = rows.out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else rows.in_ptrs[0].dtype.element_ty
    row = (task // rows.n_chunks).to(tl.int64)
    chunk = task % rows.n_chunks
    if OP.row_results:
        results = OP.finish_row(m, totals, numbers)
        last = chunk == rows.n_chunks - 1
        store_numbers(rows.out_ptrs, rows.out_strides, row, last, results, OP)
    if not OP.reduces:
        out_ptr, begin = rows.out_ptrs[0], row * rows.out_strides[0]
        totals = adjusted(m, totals, numbers, OP)
        place, place_edge = places_of_chunk(rows, task, OP, HOW)
        first, offsets, mask = body_of_chunk(begin, rows.n_cols, chunk, rows, 1, OP, HOW)
        if HOW.keep_terms:
            result = OP.finish_terms(kept, m_own, m, totals)
        else:
            kept = optimization_barrier(kept, HOW.barrier)
            values = placed(elements(kept, rows, INNER, HOW.pairs), place, OP)
            result = OP.finish(values, OP.terms(values, m, False), m, totals)
        tl.store(out_ptr + first + offsets, result.to(INNER).to(OUT), mask=mask)
        if HOW.edges:
            in_begin = row * rows.in_strides[0]
            cols, mask = edge_of_chunk(in_begin, rows.n_cols, chunk, rows, OP, HOW)
            values = placed(in_registers(edge, INNER), place_edge, OP)
            result = OP.finish(values, OP.terms(values, m, False), m, totals)
            tl.store(out_ptr + begin + cols, result.to(INNER).to(OUT), mask=mask)
        if OP.finish_at is not None:
            col, result = OP.finish_at(m, totals, numbers)
            mine = chunk_of_column(col, begin, rows, OP, HOW) == chunk
            tl.debug_barrier()
            tl.store(out_ptr + begin + col, result.to(INNER).to(OUT), mask=mine)


@triton.jit(
    repr=with_operation("split_rows"),
    do_not_specialize=[
        "in_strides",
        "out_strides",
        "n_rows",
        "n_cols",
        "n_chunks",
        "chunk_cols",
        "part_chunks",
        "part_cols",
        "row_chunks",
        "max_polls",
    ],
)
def split_rows_kernel(
    in_ptrs,
    out_ptrs,
    words_ptr,
    in_strides,
    out_strides,
    n_rows,
    n_cols,
    n_chunks,
    chunk_cols,
    part_chunks,
    part_cols,
    row_chunks,
    max_polls,
    OP: tl.constexpr,
    HOW: tl.constexpr,
):
    """Run an operation on rows cut into chunks, one work item each.

    Args:
        in_ptrs, out_ptrs, in_strides, n_cols: as for `tile_kernel`.
        words_ptr: workspace of n_chunks int64 status words per row, zero at the start of a single
            launch; as many again for each further sum.
        out_strides: row stride of each result. All strides of elements are equal modulo vector.
        n_rows: number of rows. The number of work items, n_rows · n_chunks, plus twice the number
            of programs must fit 31 bits.
        n_chunks: chunks per row. As an element of a tuple, Triton would specialize on it.
        chunk_cols: columns of a chunk, a multiple of vector, at most block.
        part_chunks, part_cols: for `any_order`, chunks and columns of each of the equal parts that
            a row is cut into first.
        row_chunks: the row's words; on several ranks those from the line of one to the next.
        max_polls: polls for missing status words before the recompute fallback.
        OP: the `Operation`.
        HOW: a `SplitRows`.
    """
    OUT: tl.constexpr = out_ptrs[0].dtype.element_ty
    INNER: tl.constexpr = OUT if OP.inputs == 1 else in_ptrs[0].dtype.element_ty
    n_tasks = n_rows * n_chunks
    parts = part_chunks, part_cols, row_chunks
    rows = Rows(
        in_ptrs, in_strides, out_ptrs, out_strides, n_tasks, n_cols, n_chunks, chunk_cols, parts
    )  # fmt: skip
    programs = tl.num_programs(0)
    task = tl.program_id(0)
    end = n_tasks
    if HOW.depth == 2:
        end += programs

    prefetch(words_ptr + tl.minimum(task, n_tasks - 1), HOW.wait)
    body, edge = load_chunk(rows, task, OP, HOW)
    last_body, last_edge = blank_like(body), blank_like(edge)
    missing = 0
    while (task < end) & (missing == 0):
        kept, kept_edge, m_own = body, edge, 0.0
        if HOW.publish:
            m_own, totals, terms = summarise(body, edge, task, rows, INNER, OP, HOW)
            publish(words_ptr + task, n_tasks, m_own, totals, task < n_tasks, OP, HOW.write)
            if HOW.keep_terms:
                kept = terms
        elif HOW.keep_terms:
            m_own, _, kept = summarise(body, edge, task, rows, INNER, OP, HOW)
        if HOW.depth >= 1:
            # From here on the next chunk is in flight.
            prefetch(words_ptr + tl.minimum(task + programs, n_tasks - 1), HOW.wait)
            body, edge = load_chunk(rows, task + programs, OP, HOW)
        ready = task
        if HOW.depth == 2:
            ready = task - programs
            kept, kept_edge, last_body, last_edge = last_body, last_edge, kept, kept_edge
        mine = ready >= 0
        if OP.reduces:
            # One program writes the row scalars: the last to start, which waits least.
            mine = mine & (ready % n_chunks == n_chunks - 1)
        if HOW.write and mine:
            numbers = numbers_of_row(
                words_ptr, rows, ready, OP, HOW
            )  # in flight while this program waits
            m, totals, missing = merge_row(words_ptr, ready, rows, max_polls, OP, HOW)
            if missing == 0:
                write_chunk(ready, kept, kept_edge, m_own, m, totals, numbers, rows, OP, HOW)
        task += programs

    if missing > 0:
        # Recompute fallback: some partner is not running. Finish without partners.
        task -= programs
        if HOW.depth == 2:
            task -= programs
        while task < n_tasks:
            for step in range(n_chunks):
                # Start with its own chunk, so that programs on the same row share the work.
                other = task // n_chunks * n_chunks + (task + step) % n_chunks
                # The compiler makes this a relaxed load; one that is out of date does no harm.
                if tl.atomic_add(words_ptr + other, 0, sem="relaxed") == 0:
                    body, edge = load_chunk(rows, other, OP, HOW)
                    m, totals, terms = summarise(body, edge, other, rows, INNER, OP, HOW)
                    publish_missing(words_ptr + other, n_tasks, m, totals, OP)
            m, totals, missing = merge_row(words_ptr, task, rows, max_polls, OP, HOW)
            while missing > 0:
                m, totals, missing = merge_row(words_ptr, task, rows, max_polls, OP, HOW)
            kept, edge = load_chunk(rows, task, OP, HOW)
            m_own = 0.0
            if HOW.keep_terms:
                m_own, _, terms = summarise(kept, edge, task, rows, INNER, OP, HOW)
                kept = terms
            numbers = numbers_of_row(words_ptr, rows, task, OP, HOW)
            write_chunk(task, kept, edge, m_own, m, totals, numbers, rows, OP, HOW)
            task += programs
