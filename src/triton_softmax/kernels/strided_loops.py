"""Softmax along a dimension too long to hold whose elements lie apart: walked twice, tile by tile,
by as many programs as the device can use.

The tensor is seen as (n_outer, n_cols, n_inner), as in `strided`. A program takes BLOCK_INNER
columns side by side and walks down them with the online recurrence, then again to write. A long
dimension has few columns for its size, too few for all multiprocessors, so it is cut into segments.
The first launch (PUBLISH) leaves the summaries of all segments in memory, the second (WRITE) merges
those of its columns and writes. With a single segment one launch does both.

`split_strided` reads once, and waits. Here nobody waits for anybody, so this runs on every device,
and in float64 too.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .online import exp_shifted
from .split_rows import softmax_gradient, softmax_value
from .strided import in_vectors


# --8<-- [start:place]
@triton.jit
def place_of_segment(n_inner, n_segments, INDEX: tl.constexpr, BLOCK_INNER: tl.constexpr):
    """(outer, inner, segment, group): where this program works, and the number of its columns'
    summaries in units of n_segments · BLOCK_INNER.

    `inner` is 1 × BLOCK_INNER positions as INDEX (int32 or int64). Programs that read neighbouring
    memory start together.
    """
    blocks = tl.cdiv(n_inner, BLOCK_INNER)
    block = tl.program_id(0) % blocks
    rest = tl.program_id(0) // blocks
    outer = rest // n_segments
    inner = block.to(INDEX) * BLOCK_INNER + tl.arange(0, BLOCK_INNER)[None, :]
    return outer.to(tl.int64), inner, rest % n_segments, (outer * blocks + block).to(tl.int64)


@triton.jit
def summary_pointers(summaries_ptr, group, segments, n_segments, which, BLOCK_INNER: tl.constexpr):
    """Where one of the two numbers (`which`) of the summaries of a group's columns lies, for some
    of its segments."""
    return (
        summaries_ptr
        + ((group * n_segments + segments) * 2 + which) * BLOCK_INNER
        + tl.arange(0, BLOCK_INNER)[None, :]
    )


# --8<-- [end:place]


# --8<-- [start:forward]
@triton.jit(do_not_specialize=["n_cols", "n_segments", "segment_cols"])
def softmax_forward_strided_loops_kernel(
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
    n_segments,
    segment_cols,
    LOG: tl.constexpr,
    PUBLISH: tl.constexpr,
    WRITE: tl.constexpr,
    VECTOR: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
):
    """Softmax (LOG: its logarithm) along the middle dimension, a program for each segment of
    BLOCK_INNER columns.

    Args:
        x_ptr: input (n_outer, n_cols, n_inner).
        y_ptr: output, likewise. x is rounded to its type before anything else.
        words_ptr: workspace of 2 · BLOCK_INNER int64 words per program, not looked at if one launch
            does both.
        x_outer_stride, x_col_stride, x_inner_stride: elements from one to the next along each
            dimension of x; any, 0 included.
        y_outer_stride, y_col_stride, y_inner_stride: likewise for y.
        n_cols: length of the softmax dimension.
        n_inner: length of the last dimension.
        n_segments: segments of the softmax dimension; 1 if PUBLISH and WRITE.
        segment_cols: length of a segment.
        LOG: write log-softmax.
        PUBLISH, WRITE: what this launch does.
        VECTOR: divides n_inner and all strides but the inner ones.
        INDEX: integer type in which offsets within one outer slice are computed.
        BLOCK_COLS: elements of the softmax dimension per tile, a power of two.
        BLOCK_INNER: elements of the last dimension per tile, a power of two.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    outer, inner, segment, group = place_of_segment(n_inner, n_segments, INDEX, BLOCK_INNER)
    x_ptr += outer * in_vectors(x_outer_stride, VECTOR)
    y_ptr += outer * in_vectors(y_outer_stride, VECTOR)
    summaries_ptr = words_ptr.to(tl.pointer_type(acc_type))
    begin = segment * segment_cols
    end = tl.minimum(begin + segment_cols, n_cols)
    tile = tl.arange(0, BLOCK_COLS)[:, None]

    m = tl.full((1, BLOCK_INNER), float("-inf"), acc_type)
    d = tl.zeros((1, BLOCK_INNER), acc_type)
    if PUBLISH:
        for start in range(begin, end, BLOCK_COLS):
            cols = (start + tile).to(INDEX)
            mask = (cols < end) & (inner < in_vectors(n_inner, VECTOR))
            x = (
                tl.load(
                    x_ptr + (cols * in_vectors(x_col_stride, VECTOR) + inner * x_inner_stride),
                    mask=mask,
                    other=float("-inf"),
                )
                .to(y_type)
                .to(acc_type)
            )
            # eq: online-m, online-d
            m_new = tl.maximum(m, tl.max(x, axis=0)[None, :])
            d = d * exp_shifted(m, m_new) + tl.sum(exp_shifted(x, m_new), axis=0)[None, :]
            m = m_new
    else:
        for start in range(0, n_segments, BLOCK_COLS):
            there = start + tile < n_segments
            m_tile = tl.load(
                summary_pointers(summaries_ptr, group, start + tile, n_segments, 0, BLOCK_INNER),
                mask=there,
                other=float("-inf"),
            )
            d_tile = tl.load(
                summary_pointers(summaries_ptr, group, start + tile, n_segments, 1, BLOCK_INNER),
                mask=there,
                other=0.0,
            )
            # eq: merge
            m_new = tl.maximum(m, tl.max(m_tile, axis=0)[None, :])
            d = (
                d * exp_shifted(m, m_new)
                + tl.sum(d_tile * exp_shifted(m_tile, m_new), axis=0)[None, :]
            )
            m = m_new
    if not WRITE:
        tl.store(summary_pointers(summaries_ptr, group, segment, n_segments, 0, BLOCK_INNER), m)
        tl.store(summary_pointers(summaries_ptr, group, segment, n_segments, 1, BLOCK_INNER), d)
    else:
        for start in range(begin, end, BLOCK_COLS):
            cols = (start + tile).to(INDEX)
            mask = (cols < end) & (inner < in_vectors(n_inner, VECTOR))
            x = (
                tl.load(
                    x_ptr + (cols * in_vectors(x_col_stride, VECTOR) + inner * x_inner_stride),
                    mask=mask,
                    other=float("-inf"),
                )
                .to(y_type)
                .to(acc_type)
            )
            tl.store(
                y_ptr + (cols * in_vectors(y_col_stride, VECTOR) + inner * y_inner_stride),
                softmax_value(x, m, d, LOG).to(y_type),
                mask=mask,
            )


# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit(do_not_specialize=["n_cols", "n_segments", "segment_cols"])
def softmax_backward_strided_loops_kernel(
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
    n_segments,
    segment_cols,
    LOG: tl.constexpr,
    PUBLISH: tl.constexpr,
    WRITE: tl.constexpr,
    VECTOR: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
):
    """Vector-Jacobian product of softmax (LOG: of log-softmax) along the middle dimension, a
    program for each segment of BLOCK_INNER columns.

    Args:
        y_ptr: output of the forward pass (n_outer, n_cols, n_inner).
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        words_ptr: workspace of 2 · BLOCK_INNER int64 words per program, not looked at if one launch
            does both.
        y_outer_stride, y_col_stride, y_inner_stride: elements from one to the next along each
            dimension of y; any, 0 included.
        dy_outer_stride, dy_col_stride, dy_inner_stride: likewise for dy.
        dx_outer_stride, dx_col_stride, dx_inner_stride: likewise for dx.
        n_cols: length of the softmax dimension.
        n_inner: length of the last dimension.
        n_segments: segments of the softmax dimension; 1 if PUBLISH and WRITE.
        segment_cols: length of a segment.
        LOG: y is log-softmax.
        PUBLISH, WRITE, VECTOR, INDEX, BLOCK_COLS, BLOCK_INNER: as in the forward kernel.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    dx_type: tl.constexpr = dx_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    outer, inner, segment, group = place_of_segment(n_inner, n_segments, INDEX, BLOCK_INNER)
    y_ptr += outer * in_vectors(y_outer_stride, VECTOR)
    dy_ptr += outer * in_vectors(dy_outer_stride, VECTOR)
    dx_ptr += outer * in_vectors(dx_outer_stride, VECTOR)
    summaries_ptr = words_ptr.to(tl.pointer_type(acc_type))
    begin = segment * segment_cols
    end = tl.minimum(begin + segment_cols, n_cols)
    tile = tl.arange(0, BLOCK_COLS)[:, None]

    # Each element of the tile has a sum of its own, so that a step needs no exchange between
    # threads.
    sums = tl.zeros((BLOCK_COLS, BLOCK_INNER), acc_type)
    if PUBLISH:
        for start in range(begin, end, BLOCK_COLS):
            cols = (start + tile).to(INDEX)
            mask = (cols < end) & (inner < in_vectors(n_inner, VECTOR))
            terms = tl.load(
                dy_ptr + (cols * in_vectors(dy_col_stride, VECTOR) + inner * dy_inner_stride),
                mask=mask,
                other=0.0,
            ).to(acc_type)
            if not LOG:
                terms *= tl.load(
                    y_ptr + (cols * in_vectors(y_col_stride, VECTOR) + inner * y_inner_stride),
                    mask=mask,
                    other=0.0,
                ).to(acc_type)
            sums += terms
    else:
        for start in range(0, n_segments, BLOCK_COLS):
            there = start + tile < n_segments
            sums += tl.load(
                summary_pointers(summaries_ptr, group, start + tile, n_segments, 0, BLOCK_INNER),
                mask=there,
                other=0.0,
            )
    s = tl.sum(sums, axis=0)[None, :]
    if not WRITE:
        tl.store(summary_pointers(summaries_ptr, group, segment, n_segments, 0, BLOCK_INNER), s)
    else:
        for start in range(begin, end, BLOCK_COLS):
            cols = (start + tile).to(INDEX)
            mask = (cols < end) & (inner < in_vectors(n_inner, VECTOR))
            y = tl.load(
                y_ptr + (cols * in_vectors(y_col_stride, VECTOR) + inner * y_inner_stride),
                mask=mask,
                other=0.0,
            ).to(acc_type)
            dy = tl.load(
                dy_ptr + (cols * in_vectors(dy_col_stride, VECTOR) + inner * dy_inner_stride),
                mask=mask,
                other=0.0,
            ).to(acc_type)
            dx = softmax_gradient(y, dy, s, LOG).to(y_type).to(dx_type)
            tl.store(
                dx_ptr + (cols * in_vectors(dx_col_stride, VECTOR) + inner * dx_inner_stride),
                dx,
                mask=mask,
            )


# --8<-- [end:backward]
