"""Softmax of a long row by several programs at once: still one read and one write, at any length.

A row that does not fit into the registers of one multiprocessor fits into those of several. Each program takes a chunk of the row, keeps it in
registers, and publishes the chunk's summary: one (m, d) pair, packed into one 64-bit word. It waits until all words of its row are there, merges them,
and writes its chunk from registers. The input is read once.

The word is the whole message. A word that is zero has not been published (the workspace starts as zeros, and no summary is zero: d is at least 1, or
m is -inf, or one of them is NaN), and a 64-bit word arrives whole. So no fence is needed: nobody who has read the word needs anything else from its sender.

Waiting is a courtesy, not a condition. A program that has waited long enough summarises the missing chunks itself, publishes them, and goes on. A summary is
a function of the input alone, so it does not matter who computes it or if several do. Hence every program finishes whatever the others do: none of them
needs another one to be running, and a row may have more chunks than the device has room for. The kernel even runs in the interpreter, one program
after another.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .aligned_rows import edge_of_row, round_up
from .online import exp_shifted, hold, merge


# --8<-- [start:word]
@triton.jit
def pack_word(m, d):
    """A summary as one 64-bit word: the bits of m (float32) in the high half, those of d (float32) in the low half."""
    high = m.to(tl.int32, bitcast=True).to(tl.int64) << 32
    return high | (d.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def unpack_word(word):
    """(m, d) from a word of `pack_word`."""
    m = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    d = word.to(tl.int32).to(tl.float32, bitcast=True)
    return m, d
# --8<-- [end:word]


# --8<-- [start:wait]
@triton.jit
def wait_for_words(words_ptr, n_chunks, max_polls, WORDS: tl.constexpr):
    """Poll the words of a row until all are there or `max_polls` polls have passed.

    Args:
        words_ptr: the row's n_chunks words (int64), zero where nothing is published.
        n_chunks: number of words.
        max_polls: polls after the first one.
        WORDS: a power of two, at least n_chunks, and at least 64 per warp: then each lane belongs to one thread, the count of missing
            words crosses all warps, and all threads of the program agree on it.

    Returns:
        (words, missing): the words, 1 in lanes beyond n_chunks, and how many of them are zero.
    """
    lane = tl.arange(0, WORDS)
    words = tl.where(lane < n_chunks, 0, 1).to(tl.int64)
    missing = n_chunks
    polls = 0
    while (missing > 0) & (polls <= max_polls):
        # Lanes that have their word do not ask again: hundreds of programs poll the same few cache lines.
        words = tl.load(words_ptr + lane, mask=words == 0, other=words, volatile=True)
        missing = tl.sum((words == 0).to(tl.int32), axis=0)
        polls += 1
    return words, missing
# --8<-- [end:wait]


# --8<-- [start:chunk]
@triton.jit
def chunk_offsets(begin, n_cols, chunk, chunk_cols, VECTOR: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Offsets and mask of a chunk of the row's body, in units of WIDTH elements (2 to move pairs of 16-bit elements as one number).

    The body starts on a vector and chunk_cols is a multiple of VECTOR, so every chunk starts on one.
    """
    chunk_cols = chunk_cols // VECTOR * VECTOR
    start = round_up(begin, VECTOR) + chunk * chunk_cols
    end = tl.minimum(start + chunk_cols, (begin + n_cols) // VECTOR * VECTOR)
    # Dividing by VECTOR and multiplying by VECTOR // WIDTH keeps the alignment in sight of the compiler.
    offsets = start // VECTOR * (VECTOR // WIDTH) + tl.arange(0, BLOCK // WIDTH)
    return offsets, offsets < end // VECTOR * (VECTOR // WIDTH)


@triton.jit
def load_chunk(ptr, offsets, mask, OTHER: tl.constexpr, PAIRS: tl.constexpr):
    """The chunk as it lies in memory: elements, or (PAIRS) 32-bit numbers of two 16-bit elements each, `other` being OTHER twice.

    A pair takes one register where two converted elements would take two, and a program spends its wait with the chunk in registers.
    """
    if PAIRS:
        element: tl.constexpr = ptr.dtype.element_ty
        other = tl.full((1,), OTHER, tl.float32).to(element).to(tl.int16, bitcast=True).to(tl.int32)
        other = (other & 0xFFFF) | (other << 16)
        return tl.load(ptr.to(tl.pointer_type(tl.int32)) + offsets, mask=mask, other=other)
    else:
        return tl.load(ptr + offsets, mask=mask, other=OTHER)


@triton.jit
def chunk_values(raw, ELEMENT: tl.constexpr, PAIRS: tl.constexpr):
    """The elements of a loaded chunk as float32, in memory order."""
    if PAIRS:
        if ELEMENT == tl.bfloat16:
            # bfloat16 is the upper half of a float32
            low = (raw << 16).to(tl.float32, bitcast=True)
            high = (raw & -65536).to(tl.float32, bitcast=True)
        else:
            low = raw.to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
            high = (raw >> 16).to(tl.int16).to(ELEMENT, bitcast=True).to(tl.float32)
        return tl.interleave(low, high)
    else:
        return raw.to(tl.float32)
# --8<-- [end:chunk]


# --8<-- [start:forward-summary]
@triton.jit
def summarise_chunk(
    x_ptr,
    begin,
    n_cols,
    chunk,
    chunk_cols,
    Y_TYPE: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    EXP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(kept, m, d): a chunk's summary, and what to keep of it until the row's summary is known.

    That is the chunk as loaded, or (EXP) its exponentials exp(x - m), of which one multiplication by exp(m - m_row) / d_row makes the result. The row's
    edge, if it has one, counts as part of chunk 0.
    """
    offsets, mask = chunk_offsets(begin, n_cols, chunk, chunk_cols, VECTOR, BLOCK, 2 if PAIRS else 1)
    raw = hold(load_chunk(x_ptr, offsets, mask, float("-inf"), PAIRS), HOLD)
    m = tl.max(chunk_values(raw, x_ptr.dtype.element_ty, PAIRS).to(Y_TYPE).to(tl.float32), axis=0)
    if EDGES:
        edge, edge_mask = edge_of_row(begin, n_cols, VECTOR)
        x_edge = tl.load(x_ptr + begin + edge, mask=edge_mask & (chunk == 0), other=float("-inf")).to(Y_TYPE).to(tl.float32)
        m = tl.maximum(m, tl.max(x_edge, axis=0))
    raw = hold(raw, HOLD)
    e = exp_shifted(chunk_values(raw, x_ptr.dtype.element_ty, PAIRS).to(Y_TYPE).to(tl.float32), m)
    d = tl.sum(e, axis=0)
    if EDGES:
        d += tl.sum(exp_shifted(x_edge, m), axis=0)
    if EXP:
        kept = e
    else:
        kept = raw
    return kept, m, d
# --8<-- [end:forward-summary]


# --8<-- [start:forward]
@triton.jit
def softmax_value(x, m, d, LOG: tl.constexpr):
    """Softmax (LOG: its logarithm) of elements x of a row whose summary is (m, d)."""
    if LOG:
        # eq: log-softmax-definition
        return (x - m) - tl.log(d)
    else:
        # eq: softmax-safe
        return exp_shifted(x, m) * (1.0 / d)


@triton.jit(do_not_specialize=["x_row_stride", "y_row_stride", "n_cols", "n_chunks", "chunk_cols", "max_polls"])
def softmax_forward_split_rows_kernel(
    x_ptr,
    y_ptr,
    words_ptr,
    x_row_stride,
    y_row_stride,
    n_cols,
    n_chunks,
    chunk_cols,
    max_polls,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    EXP: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Softmax (LOG: its logarithm) of one chunk of a row per program; n_chunks consecutive programs share a row.

    Args:
        x_ptr: input, rows of n_cols elements; a multiple of VECTOR elements.
        y_ptr: output, likewise. x is rounded to its type before anything else.
        words_ptr: workspace of n_chunks int64 words per row, zero at the start of the launch.
        x_row_stride: elements from one row of x to the next.
        y_row_stride: elements from one row of y to the next, equal to x_row_stride modulo VECTOR.
        n_cols: number of columns.
        n_chunks: chunks per row.
        chunk_cols: columns of a chunk, a multiple of VECTOR, at most BLOCK.
        max_polls: how often to look for missing words before computing them here.
        LOG: write log-softmax.
        VECTOR: elements that one instruction moves, a power of two.
        EDGES: rows do not all start and end on a vector.
        PAIRS: hold 16-bit elements as pairs, see `load_chunk`.
        HOLD: see `hold`.
        EXP: keep exponentials and not elements, see `summarise_chunk`; not with LOG.
        WRITE: go on after publishing. Two launches, the first without, never wait, and read the input twice.
        BLOCK: a power of two.
        WORDS: lanes that poll, see `wait_for_words`.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    program = tl.program_id(0)
    row = (program // n_chunks).to(tl.int64)
    chunk = program % n_chunks
    x_begin = row * x_row_stride
    y_begin = row * y_row_stride
    row_words = words_ptr + row * n_chunks

    kept, m_own, d = summarise_chunk(x_ptr, x_begin, n_cols, chunk, chunk_cols, y_type, VECTOR, EDGES, PAIRS, HOLD, EXP, BLOCK)
    tl.atomic_xchg(row_words + chunk, pack_word(m_own, d), sem="relaxed")
    if not WRITE:
        return
    words, missing = wait_for_words(row_words, n_chunks, max_polls, WORDS)

    if missing > 0:
        # Start after the own chunk, so that programs that help the same row share the work.
        for step in range(1, n_chunks):
            other = (chunk + step) % n_chunks
            if tl.atomic_add(row_words + other, 0, sem="relaxed") == 0:
                _, m, d = summarise_chunk(
                    x_ptr, x_begin, n_cols, other, chunk_cols, y_type, VECTOR, EDGES, PAIRS, HOLD, EXP, BLOCK
                )
                tl.atomic_xchg(row_words + other, pack_word(m, d), sem="relaxed")
        # Every word is now on its way. Reading the chunk again means that it need not be kept during all this.
        while missing > 0:
            words, missing = wait_for_words(row_words, n_chunks, 0, WORDS)
        kept, m_own, d = summarise_chunk(
            x_ptr, x_begin, n_cols, chunk, chunk_cols, y_type, VECTOR, EDGES, PAIRS, HOLD, EXP, BLOCK
        )

    # eq: merge
    m_chunks, d_chunks = unpack_word(words)
    beyond = tl.arange(0, WORDS) >= n_chunks
    m, d = tl.reduce((tl.where(beyond, float("-inf"), m_chunks), tl.where(beyond, 0.0, d_chunks)), 0, merge)

    offsets, mask = chunk_offsets(y_begin, n_cols, chunk, chunk_cols, VECTOR, BLOCK, 1)
    if EXP:
        y = kept * (exp_shifted(m_own, m) * (1.0 / d))
    else:
        x = chunk_values(hold(kept, HOLD), x_ptr.dtype.element_ty, PAIRS).to(y_type).to(tl.float32)
        y = softmax_value(x, m, d, LOG)
    tl.store(y_ptr + offsets, y.to(y_type), mask=mask)
    if EDGES:
        edge, edge_mask = edge_of_row(x_begin, n_cols, VECTOR)
        edge_mask = edge_mask & (chunk == 0)
        x = tl.load(x_ptr + x_begin + edge, mask=edge_mask, other=0.0).to(y_type).to(tl.float32)
        tl.store(y_ptr + y_begin + edge, softmax_value(x, m, d, LOG).to(y_type), mask=edge_mask)
# --8<-- [end:forward]


# --8<-- [start:backward-summary]
@triton.jit
def summarise_gradient(
    y_ptr,
    dy_ptr,
    y_begin,
    dy_begin,
    n_cols,
    chunk,
    chunk_cols,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(raw_y, raw_dy, s): a chunk of y and of dy as loaded, and the chunk's share of the row's sum of y·dy (LOG: of dy)."""
    width: tl.constexpr = 2 if PAIRS else 1
    offsets, mask = chunk_offsets(y_begin, n_cols, chunk, chunk_cols, VECTOR, BLOCK, width)
    raw_y = hold(load_chunk(y_ptr, offsets, mask, 0.0, PAIRS), HOLD)
    offsets, mask = chunk_offsets(dy_begin, n_cols, chunk, chunk_cols, VECTOR, BLOCK, width)
    raw_dy = hold(load_chunk(dy_ptr, offsets, mask, 0.0, PAIRS), HOLD)
    terms = chunk_values(raw_dy, dy_ptr.dtype.element_ty, PAIRS)
    if not LOG:
        terms = terms * chunk_values(raw_y, y_ptr.dtype.element_ty, PAIRS)
    s = tl.sum(terms, axis=0)
    if EDGES:
        edge, edge_mask = edge_of_row(y_begin, n_cols, VECTOR)
        terms = tl.load(dy_ptr + dy_begin + edge, mask=edge_mask & (chunk == 0), other=0.0).to(tl.float32)
        if not LOG:
            terms = terms * tl.load(y_ptr + y_begin + edge, mask=edge_mask & (chunk == 0), other=0.0).to(tl.float32)
        s += tl.sum(terms, axis=0)
    return raw_y, raw_dy, s


@triton.jit
def pack_sum(s):
    """A partial sum as a word that is never zero: 1.0 where a summary has its m."""
    return pack_word(tl.full((), 1.0, tl.float32), s)
# --8<-- [end:backward-summary]


# --8<-- [start:backward]
@triton.jit
def softmax_gradient(y, dy, s, LOG: tl.constexpr):
    """dx from elements of y and dy and the row's sum s."""
    if LOG:
        # eq: log-softmax-vjp
        return dy - exp_shifted(y, 0.0) * s
    else:
        # eq: softmax-vjp
        return y * (dy - s)


@triton.jit(
    do_not_specialize=["y_row_stride", "dy_row_stride", "dx_row_stride", "n_cols", "n_chunks", "chunk_cols", "max_polls"]
)
def softmax_backward_split_rows_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    words_ptr,
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    n_cols,
    n_chunks,
    chunk_cols,
    max_polls,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    EDGES: tl.constexpr,
    PAIRS: tl.constexpr,
    HOLD: tl.constexpr,
    WRITE: tl.constexpr,
    BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Vector-Jacobian product of softmax (LOG: of log-softmax) for one chunk of a row per program.

    Args:
        y_ptr: output of the forward pass, rows of n_cols elements; a multiple of VECTOR elements.
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        words_ptr: workspace of n_chunks int64 words per row, zero at the start of the launch.
        y_row_stride: elements from one row of y to the next.
        dy_row_stride: elements from one row of dy to the next, equal to y_row_stride modulo VECTOR.
        dx_row_stride: elements from one row of dx to the next, likewise.
        n_cols: number of columns.
        n_chunks: chunks per row.
        chunk_cols: columns of a chunk, a multiple of VECTOR, at most BLOCK.
        max_polls: how often to look for missing words before computing them here.
        LOG: y is log-softmax.
        VECTOR: elements that one instruction moves, a power of two.
        EDGES: rows do not all start and end on a vector.
        PAIRS: hold 16-bit elements as pairs, see `load_chunk`.
        HOLD: see `hold`.
        WRITE: go on after publishing, as in the forward kernel.
        BLOCK: a power of two.
        WORDS: lanes that poll, see `wait_for_words`.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    dx_type: tl.constexpr = dx_ptr.dtype.element_ty
    program = tl.program_id(0)
    row = (program // n_chunks).to(tl.int64)
    chunk = program % n_chunks
    y_begin = row * y_row_stride
    dy_begin = row * dy_row_stride
    dx_begin = row * dx_row_stride
    row_words = words_ptr + row * n_chunks

    raw_y, raw_dy, s = summarise_gradient(
        y_ptr, dy_ptr, y_begin, dy_begin, n_cols, chunk, chunk_cols, LOG, VECTOR, EDGES, PAIRS, HOLD, BLOCK
    )
    tl.atomic_xchg(row_words + chunk, pack_sum(s), sem="relaxed")
    if not WRITE:
        return
    words, missing = wait_for_words(row_words, n_chunks, max_polls, WORDS)

    if missing > 0:
        for step in range(1, n_chunks):
            other = (chunk + step) % n_chunks
            if tl.atomic_add(row_words + other, 0, sem="relaxed") == 0:
                _, _, s = summarise_gradient(
                    y_ptr, dy_ptr, y_begin, dy_begin, n_cols, other, chunk_cols, LOG, VECTOR, EDGES, PAIRS, HOLD, BLOCK
                )
                tl.atomic_xchg(row_words + other, pack_sum(s), sem="relaxed")
        while missing > 0:
            words, missing = wait_for_words(row_words, n_chunks, 0, WORDS)
        raw_y, raw_dy, s = summarise_gradient(
            y_ptr, dy_ptr, y_begin, dy_begin, n_cols, chunk, chunk_cols, LOG, VECTOR, EDGES, PAIRS, HOLD, BLOCK
        )

    _, s_chunks = unpack_word(words)
    s = tl.sum(tl.where(tl.arange(0, WORDS) < n_chunks, s_chunks, 0.0), axis=0)

    offsets, mask = chunk_offsets(dx_begin, n_cols, chunk, chunk_cols, VECTOR, BLOCK, 1)
    y = chunk_values(hold(raw_y, HOLD), y_type, PAIRS)
    dy = chunk_values(hold(raw_dy, HOLD), dy_ptr.dtype.element_ty, PAIRS)
    tl.store(dx_ptr + offsets, softmax_gradient(y, dy, s, LOG).to(y_type).to(dx_type), mask=mask)
    if EDGES:
        edge, edge_mask = edge_of_row(y_begin, n_cols, VECTOR)
        edge_mask = edge_mask & (chunk == 0)
        y = tl.load(y_ptr + y_begin + edge, mask=edge_mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + dy_begin + edge, mask=edge_mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + dx_begin + edge, softmax_gradient(y, dy, s, LOG).to(y_type).to(dx_type), mask=edge_mask)
# --8<-- [end:backward]
