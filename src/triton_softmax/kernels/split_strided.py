"""Softmax along a long dimension whose elements lie apart: the tile of `strided`, the words of
`split_rows`.

The tensor is seen as (n_outer, n_cols, n_inner), as in `strided`. A tile that holds the whole of a
long dimension would be too narrow, or too large for the registers. So the dimension is cut into
chunks of BLOCK_COLS, and a program takes one chunk of BLOCK_INNER columns side by side. It
publishes a word for each of its columns, waits until all words of its columns are there, merges
them, and writes its tile from registers. The input is read once.

Everything that [split rows][triton_softmax.kernels.split_rows] says of words and of waiting holds
here: a program whose partners do not run computes what is missing itself.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .online import exp_shifted, hold
from .split_rows import (
    look_assembly,
    look_constraints,
    pack_word,
    product,
    softmax_gradient,
    softmax_value,
    unpack_word,
)
from .strided import in_vectors


# --8<-- [start:place]
@triton.jit
def place_of_task(task, n_inner, n_chunks, BLOCK_INNER: tl.constexpr):
    """(outer, inner, group): where the tile of a task lies, and the number of its columns' words in
    units of n_chunks · BLOCK_INNER.

    The chunks of the same columns are neighbours among the tasks, so that those that wait for each
    other start together.
    """
    blocks = tl.cdiv(n_inner, BLOCK_INNER)
    group = task // n_chunks
    return (group // blocks).to(tl.int64), group % blocks * BLOCK_INNER, group


@triton.jit
def tile_pointers(
    ptr,
    chunk,
    inner,
    col_stride,
    inner_stride,
    n_cols,
    n_inner,
    VECTOR: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    AGAIN: tl.constexpr = False,
):
    """(pointers, mask) of a tile of an outer slice, BLOCK_COLS × BLOCK_INNER. AGAIN: computed anew,
    and not kept in registers from before, see `hold`."""
    cols = hold(tl.arange(0, BLOCK_COLS), AGAIN)[:, None] + chunk * BLOCK_COLS
    inner += tl.arange(0, BLOCK_INNER)[None, :]
    offsets = cols.to(INDEX) * in_vectors(col_stride, VECTOR) + inner.to(INDEX) * inner_stride
    return ptr + offsets, (cols < n_cols) & (inner < in_vectors(n_inner, VECTOR))


# --8<-- [end:place]


# --8<-- [start:words]
@triton.jit
def ask_for_columns(words_ptr, chunk, WAIT: tl.constexpr, BLOCK_INNER: tl.constexpr):
    """Bring the words of a chunk's columns into the L2 cache, see
    [`ask_for_word`][triton_softmax.kernels.split_rows.ask_for_word]."""
    if WAIT:
        address = (words_ptr + chunk * BLOCK_INNER + tl.arange(0, BLOCK_INNER)).to(tl.int64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
            "=r,l",
            [address],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def publish_columns(words_ptr, chunk, words, live, BLOCK_INNER: tl.constexpr):
    """Write the words of a chunk's columns."""
    tl.atomic_xchg(
        words_ptr + chunk * BLOCK_INNER + tl.arange(0, BLOCK_INNER), words, mask=live, sem="relaxed"
    )


@triton.jit
def look_for_words(
    words_ptr,
    inner,
    n_inner,
    n_chunks,
    max_polls,
    WAIT: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """1 where a word of a tile's columns is missing, a vector of CHUNKS · BLOCK_INNER; what to do
    depends on it, so all threads have to agree on it.

    Therefore it is a vector and not CHUNKS × BLOCK_INNER, like what the words are loaded into: the
    compiler may lay that out as it lays out the tile. Then several threads would look for the same
    word, and some could find it and others not.

    Args:
        words_ptr: n_chunks rows of BLOCK_INNER words.
        inner: the first of the columns.
        n_inner: length of the last dimension.
        n_chunks: chunks of the softmax dimension.
        max_polls, WAIT: as in `kernels.split_rows.row_words`.
        CHUNKS: a power of two, at least n_chunks, and at least the number of threads over
            BLOCK_INNER.
        LOOKS: words that a thread asks for at once.
    """
    lane = tl.arange(0, CHUNKS * BLOCK_INNER)
    wanted = (lane // BLOCK_INNER < n_chunks) & (inner + lane % BLOCK_INNER < n_inner)
    if WAIT:
        words = tl.inline_asm_elementwise(
            look_assembly(LOOKS, 0),
            look_constraints(LOOKS),
            [tl.where(wanted, (words_ptr + lane).to(tl.int64), 0), tl.zeros_like(lane) + max_polls],
            dtype=tl.int64,
            is_pure=False,
            pack=LOOKS,
        )
    else:
        words = tl.load(words_ptr + lane, mask=wanted, other=1, volatile=True)
    return (words == 0).to(tl.int32)


@triton.jit
def load_words(
    words_ptr, inner, n_inner, n_chunks, CHUNKS: tl.constexpr, BLOCK_INNER: tl.constexpr
):
    """(first, second, there): the two float32 numbers of each word of a tile's columns, BLOCK_INNER
    × CHUNKS, and which of them exist.

    Across the tile, not along it: what comes out of a reduction is then moved to the layout of the
        tile as a vector. Along it, the compiler moves the tile.
    """
    columns = tl.arange(0, BLOCK_INNER)[:, None]
    chunks = tl.arange(0, CHUNKS)[None, :]
    there = (chunks < n_chunks) & (inner + columns < n_inner)
    first, second = unpack_word(
        tl.load(words_ptr + chunks * BLOCK_INNER + columns, mask=there, other=1, volatile=True)
    )
    return first, second, there


@triton.jit
def merge_columns(
    words_ptr, inner, n_inner, n_chunks, CHUNKS: tl.constexpr, BLOCK_INNER: tl.constexpr
):
    """(m, d): the summaries of a tile's columns from their words, none of which is missing."""
    m_chunks, d_chunks, there = load_words(words_ptr, inner, n_inner, n_chunks, CHUNKS, BLOCK_INNER)
    m_chunks = tl.where(there, m_chunks, float("-inf"))
    # eq: merge
    m = tl.max(m_chunks, axis=1)
    return m, tl.sum(tl.where(there, d_chunks, 0.0) * exp_shifted(m_chunks, m[:, None]), axis=1)


@triton.jit
def add_columns(
    words_ptr, inner, n_inner, n_chunks, CHUNKS: tl.constexpr, BLOCK_INNER: tl.constexpr
):
    """The sums of a tile's columns from their words, none of which is missing."""
    _, s_chunks, there = load_words(words_ptr, inner, n_inner, n_chunks, CHUNKS, BLOCK_INNER)
    return tl.sum(tl.where(there, s_chunks, 0.0), axis=1)


# --8<-- [end:words]


# --8<-- [start:summary]
@triton.jit
def summarise_columns(x, Y_TYPE: tl.constexpr, HOLD: tl.constexpr):
    """(m, d): the summaries of a tile's columns."""
    x = hold(x, HOLD)
    m = tl.max(x.to(Y_TYPE).to(tl.float32), axis=0)
    x = hold(x, HOLD)
    e = exp_shifted(x.to(Y_TYPE).to(tl.float32), m[None, :])
    return m, tl.sum(e, axis=0)


@triton.jit
def write_columns(pointers, mask, x, m, d, LOG: tl.constexpr, HOLD: tl.constexpr):
    """Write a tile from its elements and the summaries of its columns."""
    y_type: tl.constexpr = pointers.dtype.element_ty
    y = softmax_value(hold(x, HOLD).to(y_type).to(tl.float32), m[None, :], d[None, :], LOG)
    tl.store(pointers, y.to(y_type), mask=mask)


# --8<-- [end:summary]


# --8<-- [start:forward]
@triton.jit(do_not_specialize=["n_cols", "n_chunks", "max_polls"])
def softmax_forward_split_strided_kernel(
    x_ptr,
    y_ptr,
    words_ptr,
    x_outer_stride,
    x_col_stride,
    x_inner_stride,
    y_outer_stride,
    y_col_stride,
    y_inner_stride,
    n_cols,
    n_inner,
    n_chunks,
    max_polls,
    LOG: tl.constexpr,
    HOLD: tl.constexpr,
    WAIT: tl.constexpr,
    VECTOR: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    CHUNKS: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """Softmax (LOG: its logarithm) along the middle dimension, a program for each chunk of
    BLOCK_INNER columns.

    Args:
        x_ptr: input (n_outer, n_cols, n_inner).
        y_ptr: output, likewise. x is rounded to its type before anything else.
        words_ptr: workspace of BLOCK_INNER int64 words per program, zero at the start.
        x_outer_stride, x_col_stride, x_inner_stride: elements from one to the next along each
            dimension of x; any, 0 included.
        y_outer_stride, y_col_stride, y_inner_stride: likewise for y.
        n_cols: length of the softmax dimension.
        n_inner: length of the last dimension.
        n_chunks: chunks of the softmax dimension.
        max_polls: how often to look again for missing words before doing without the others.
        LOG: write log-softmax.
        HOLD: see `hold`.
        WAIT: look again for missing words; NVIDIA only.
        VECTOR: divides n_inner and all strides but the inner ones.
        INDEX: integer type in which offsets within one outer slice are computed.
        BLOCK_COLS: elements of the softmax dimension per tile, a power of two.
        BLOCK_INNER: elements of the last dimension per tile, a power of two.
        CHUNKS, LOOKS: see `look_for_words`.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    task = tl.program_id(0)
    outer, inner, group = place_of_task(task, n_inner, n_chunks, BLOCK_INNER)
    x_ptr += outer * in_vectors(x_outer_stride, VECTOR)
    y_ptr += outer * in_vectors(y_outer_stride, VECTOR)
    words_ptr += group.to(tl.int64) * n_chunks * BLOCK_INNER
    live = inner + tl.arange(0, BLOCK_INNER) < n_inner
    chunk = task % n_chunks

    ask_for_columns(words_ptr, chunk, WAIT, BLOCK_INNER)
    x_pointers, mask = tile_pointers(
        x_ptr,
        chunk,
        inner,
        x_col_stride,
        x_inner_stride,
        n_cols,
        n_inner,
        VECTOR,
        INDEX,
        BLOCK_COLS,
        BLOCK_INNER,
    )
    x = tl.load(x_pointers, mask=mask, other=float("-inf"))
    m, d = summarise_columns(x, y_type, HOLD)
    publish_columns(words_ptr, chunk, pack_word(m, d), live, BLOCK_INNER)
    missing = tl.sum(
        look_for_words(
            words_ptr, inner, n_inner, n_chunks, max_polls, WAIT, CHUNKS, BLOCK_INNER, LOOKS
        ),
        axis=0,
    )
    if missing == 0:
        m, d = merge_columns(words_ptr, inner, n_inner, n_chunks, CHUNKS, BLOCK_INNER)
        y_pointers, mask = tile_pointers(
            y_ptr,
            chunk,
            inner,
            y_col_stride,
            y_inner_stride,
            n_cols,
            n_inner,
            VECTOR,
            INDEX,
            BLOCK_COLS,
            BLOCK_INNER,
        )
        write_columns(y_pointers, mask, x, m, d, LOG, HOLD)
    else:
        # Some partner is not running: whatever is missing is computed here.
        missed = look_for_words(
            words_ptr, inner, n_inner, n_chunks, max_polls, WAIT, CHUNKS, BLOCK_INNER, LOOKS
        )
        of_chunk = tl.arange(0, CHUNKS * BLOCK_INNER) // BLOCK_INNER
        for step in range(n_chunks):
            other = (chunk + step) % n_chunks
            if tl.sum(tl.where(of_chunk == other, missed, 0), axis=0) > 0:
                x_pointers, mask = tile_pointers(
                    x_ptr,
                    other,
                    inner,
                    x_col_stride,
                    x_inner_stride,
                    n_cols,
                    n_inner,
                    VECTOR,
                    INDEX,
                    BLOCK_COLS,
                    BLOCK_INNER,
                    WAIT,
                )
                x = tl.load(x_pointers, mask=mask, other=float("-inf"))
                m, d = summarise_columns(x, y_type, HOLD)
                publish_columns(words_ptr, other, pack_word(m, d), live, BLOCK_INNER)
        while (
            tl.sum(
                look_for_words(
                    words_ptr, inner, n_inner, n_chunks, max_polls, WAIT, CHUNKS, BLOCK_INNER, LOOKS
                ),
                axis=0,
            )
            > 0
        ):
            missing += 1
        m, d = merge_columns(words_ptr, inner, n_inner, n_chunks, CHUNKS, BLOCK_INNER)
        x_pointers, mask = tile_pointers(
            x_ptr,
            chunk,
            inner,
            x_col_stride,
            x_inner_stride,
            n_cols,
            n_inner,
            VECTOR,
            INDEX,
            BLOCK_COLS,
            BLOCK_INNER,
            WAIT,
        )
        x = tl.load(x_pointers, mask=mask, other=float("-inf"))
        y_pointers, mask = tile_pointers(
            y_ptr,
            chunk,
            inner,
            y_col_stride,
            y_inner_stride,
            n_cols,
            n_inner,
            VECTOR,
            INDEX,
            BLOCK_COLS,
            BLOCK_INNER,
            WAIT,
        )
        write_columns(y_pointers, mask, x, m, d, LOG, HOLD)


# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit
def sum_columns(y, dy, LOG: tl.constexpr, HOLD: tl.constexpr, WAIT: tl.constexpr):
    """A tile's share of its columns' sums of y·dy (LOG: of dy)."""
    terms = hold(dy, HOLD).to(tl.float32)
    if not LOG:
        terms = product(terms, hold(y, HOLD).to(tl.float32), WAIT)
    return tl.sum(terms, axis=0)


@triton.jit
def write_gradient_columns(pointers, mask, y, dy, s, LOG: tl.constexpr, HOLD: tl.constexpr):
    """Write a tile of dx from y and dy as loaded, and the sums of its columns."""
    dx = softmax_gradient(
        hold(y, HOLD).to(tl.float32), hold(dy, HOLD).to(tl.float32), s[None, :], LOG
    )
    tl.store(pointers, dx.to(y.dtype).to(pointers.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n_cols", "n_chunks", "max_polls"])
def softmax_backward_split_strided_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    words_ptr,
    y_outer_stride,
    y_col_stride,
    y_inner_stride,
    dy_outer_stride,
    dy_col_stride,
    dy_inner_stride,
    dx_outer_stride,
    dx_col_stride,
    dx_inner_stride,
    n_cols,
    n_inner,
    n_chunks,
    max_polls,
    LOG: tl.constexpr,
    HOLD: tl.constexpr,
    WAIT: tl.constexpr,
    VECTOR: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    CHUNKS: tl.constexpr,
    LOOKS: tl.constexpr,
):
    """Vector-Jacobian product of softmax (LOG: of log-softmax) along the middle dimension, a
    program for each chunk of BLOCK_INNER columns.

    Args:
        y_ptr: output of the forward pass (n_outer, n_cols, n_inner).
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        words_ptr: workspace of BLOCK_INNER int64 words per program, zero at the start.
        y_outer_stride, y_col_stride, y_inner_stride: elements from one to the next along each
            dimension of y; any, 0 included.
        dy_outer_stride, dy_col_stride, dy_inner_stride: likewise for dy.
        dx_outer_stride, dx_col_stride, dx_inner_stride: likewise for dx.
        n_cols: length of the softmax dimension.
        n_inner: length of the last dimension.
        n_chunks: chunks of the softmax dimension.
        max_polls: how often to look again for missing words before doing without the others.
        LOG: y is log-softmax.
        HOLD: see `hold`.
        WAIT, VECTOR, INDEX, BLOCK_COLS, BLOCK_INNER, CHUNKS, LOOKS: as in the forward kernel.
    """
    task = tl.program_id(0)
    outer, inner, group = place_of_task(task, n_inner, n_chunks, BLOCK_INNER)
    y_ptr += outer * in_vectors(y_outer_stride, VECTOR)
    dy_ptr += outer * in_vectors(dy_outer_stride, VECTOR)
    dx_ptr += outer * in_vectors(dx_outer_stride, VECTOR)
    words_ptr += group.to(tl.int64) * n_chunks * BLOCK_INNER
    live = inner + tl.arange(0, BLOCK_INNER) < n_inner
    chunk = task % n_chunks

    ask_for_columns(words_ptr, chunk, WAIT, BLOCK_INNER)
    y_pointers, mask = tile_pointers(
        y_ptr,
        chunk,
        inner,
        y_col_stride,
        y_inner_stride,
        n_cols,
        n_inner,
        VECTOR,
        INDEX,
        BLOCK_COLS,
        BLOCK_INNER,
    )
    dy_pointers, mask = tile_pointers(
        dy_ptr,
        chunk,
        inner,
        dy_col_stride,
        dy_inner_stride,
        n_cols,
        n_inner,
        VECTOR,
        INDEX,
        BLOCK_COLS,
        BLOCK_INNER,
    )
    y = tl.load(y_pointers, mask=mask, other=0.0)
    dy = tl.load(dy_pointers, mask=mask, other=0.0)
    s = sum_columns(y, dy, LOG, HOLD, WAIT)
    word = pack_word(tl.full((BLOCK_INNER,), 1.0, tl.float32), s)
    publish_columns(words_ptr, chunk, word, live, BLOCK_INNER)
    missing = tl.sum(
        look_for_words(
            words_ptr, inner, n_inner, n_chunks, max_polls, WAIT, CHUNKS, BLOCK_INNER, LOOKS
        ),
        axis=0,
    )
    if missing == 0:
        s = add_columns(words_ptr, inner, n_inner, n_chunks, CHUNKS, BLOCK_INNER)
        dx_pointers, mask = tile_pointers(
            dx_ptr,
            chunk,
            inner,
            dx_col_stride,
            dx_inner_stride,
            n_cols,
            n_inner,
            VECTOR,
            INDEX,
            BLOCK_COLS,
            BLOCK_INNER,
        )
        write_gradient_columns(dx_pointers, mask, y, dy, s, LOG, HOLD)
    else:
        # As in the forward kernel.
        missed = look_for_words(
            words_ptr, inner, n_inner, n_chunks, max_polls, WAIT, CHUNKS, BLOCK_INNER, LOOKS
        )
        of_chunk = tl.arange(0, CHUNKS * BLOCK_INNER) // BLOCK_INNER
        for step in range(n_chunks):
            other = (chunk + step) % n_chunks
            if tl.sum(tl.where(of_chunk == other, missed, 0), axis=0) > 0:
                y_pointers, mask = tile_pointers(
                    y_ptr,
                    other,
                    inner,
                    y_col_stride,
                    y_inner_stride,
                    n_cols,
                    n_inner,
                    VECTOR,
                    INDEX,
                    BLOCK_COLS,
                    BLOCK_INNER,
                    WAIT,
                )
                dy_pointers, mask = tile_pointers(
                    dy_ptr,
                    other,
                    inner,
                    dy_col_stride,
                    dy_inner_stride,
                    n_cols,
                    n_inner,
                    VECTOR,
                    INDEX,
                    BLOCK_COLS,
                    BLOCK_INNER,
                    WAIT,
                )
                y = tl.load(y_pointers, mask=mask, other=0.0)
                dy = tl.load(dy_pointers, mask=mask, other=0.0)
                word = pack_word(
                    tl.full((BLOCK_INNER,), 1.0, tl.float32), sum_columns(y, dy, LOG, HOLD, WAIT)
                )
                publish_columns(words_ptr, other, word, live, BLOCK_INNER)
        while (
            tl.sum(
                look_for_words(
                    words_ptr, inner, n_inner, n_chunks, max_polls, WAIT, CHUNKS, BLOCK_INNER, LOOKS
                ),
                axis=0,
            )
            > 0
        ):
            missing += 1
        s = add_columns(words_ptr, inner, n_inner, n_chunks, CHUNKS, BLOCK_INNER)
        y_pointers, mask = tile_pointers(
            y_ptr,
            chunk,
            inner,
            y_col_stride,
            y_inner_stride,
            n_cols,
            n_inner,
            VECTOR,
            INDEX,
            BLOCK_COLS,
            BLOCK_INNER,
            WAIT,
        )
        dy_pointers, mask = tile_pointers(
            dy_ptr,
            chunk,
            inner,
            dy_col_stride,
            dy_inner_stride,
            n_cols,
            n_inner,
            VECTOR,
            INDEX,
            BLOCK_COLS,
            BLOCK_INNER,
            WAIT,
        )
        y = tl.load(y_pointers, mask=mask, other=0.0)
        dy = tl.load(dy_pointers, mask=mask, other=0.0)
        dx_pointers, mask = tile_pointers(
            dx_ptr,
            chunk,
            inner,
            dx_col_stride,
            dx_inner_stride,
            n_cols,
            n_inner,
            VECTOR,
            INDEX,
            BLOCK_COLS,
            BLOCK_INNER,
            WAIT,
        )
        write_gradient_columns(dx_pointers, mask, y, dy, s, LOG, HOLD)


# --8<-- [end:backward]
