"""Softmax along a dimension whose elements lie apart, without a transposing copy.

The tensor is seen as (n_outer, n_cols, n_inner) with free strides: softmax runs along the middle,
and neighbours in memory are, as a rule, neighbours along n_inner. So a program takes BLOCK_INNER
columns of the matrix side by side, reads whole cache lines across them, and reduces down the tile's
first axis. The tile holds the whole dimension. One that is too long for that is the business of
`split_strided`, and a very long one that of `strided_loops`.

Triton specialises an argument that is 1, and so sees which axis is contiguous. That the lines of a
tile start on vectors it sees only if the other strides are multiples of 16, and those of images of
14 × 14 pixels are not. So the kernels state what the launcher has checked: VECTOR divides them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .online import exp_shifted, hold


# --8<-- [start:tile]
@triton.jit
def in_vectors(n, VECTOR: tl.constexpr):
    """n, a multiple of VECTOR, visibly so."""
    return n // VECTOR * VECTOR


@triton.jit
def tile_position(n_inner, INDEX: tl.constexpr, BLOCK_INNER: tl.constexpr):
    """(outer, inner) of this program: an int64 scalar, and 1 × BLOCK_INNER positions along n_inner
    as INDEX (int32 or int64)."""
    blocks = tl.cdiv(n_inner, BLOCK_INNER)
    program = tl.program_id(0)
    inner = (program % blocks).to(INDEX) * BLOCK_INNER + tl.arange(0, BLOCK_INNER)[None, :]
    return (program // blocks).to(tl.int64), inner


# --8<-- [end:tile]


# --8<-- [start:forward]
@triton.jit
def softmax_forward_strided_kernel(
    x_ptr,
    y_ptr,
    x_outer_stride,
    x_col_stride,
    x_inner_stride,
    y_outer_stride,
    y_col_stride,
    y_inner_stride,
    n_cols,
    n_inner,
    LOG: tl.constexpr,
    HOLD: tl.constexpr,
    VECTOR: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
):
    """Softmax (LOG: its logarithm) along the middle dimension, BLOCK_INNER of them per program.

    Args:
        x_ptr: input (n_outer, n_cols, n_inner).
        y_ptr: output, likewise. x is rounded to its type before anything else.
        x_outer_stride, x_col_stride, x_inner_stride: elements from one to the next along each
            dimension of x; any, 0 included.
        y_outer_stride, y_col_stride, y_inner_stride: likewise for y.
        n_cols: length of the softmax dimension.
        n_inner: length of the last dimension.
        LOG: write log-softmax.
        HOLD: see `hold`.
        VECTOR: divides n_inner and all strides but the inner ones.
        INDEX: integer type in which offsets within one outer slice are computed.
        BLOCK_COLS: a power of two, at least n_cols.
        BLOCK_INNER: elements of the last dimension per tile, a power of two.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    outer, inner = tile_position(n_inner, INDEX, BLOCK_INNER)
    x_ptr += outer * in_vectors(x_outer_stride, VECTOR)
    y_ptr += outer * in_vectors(y_outer_stride, VECTOR)
    cols = tl.arange(0, BLOCK_COLS).to(INDEX)[:, None]

    mask = (cols < n_cols) & (inner < in_vectors(n_inner, VECTOR))
    x = tl.load(
        x_ptr + (cols * in_vectors(x_col_stride, VECTOR) + inner * x_inner_stride),
        mask=mask,
        other=float("-inf"),
    )
    x = hold(x, HOLD)
    m = tl.max(x.to(y_type).to(acc_type), axis=0)[None, :]
    x = hold(x, HOLD)
    e = exp_shifted(x.to(y_type).to(acc_type), m)
    d = tl.sum(e, axis=0)[None, :]
    x = hold(x, HOLD)
    if LOG:
        # eq: log-softmax-definition
        y = (x.to(y_type).to(acc_type) - m) - tl.log(d)
    else:
        if HOLD:
            e = exp_shifted(x.to(y_type).to(acc_type), m)
        # eq: softmax-safe
        y = e * (1.0 / d)
    tl.store(
        y_ptr + (cols * in_vectors(y_col_stride, VECTOR) + inner * y_inner_stride),
        y.to(y_type),
        mask=mask,
    )


# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit
def softmax_backward_strided_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
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
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
):
    """Vector-Jacobian product of softmax (LOG: of log-softmax) along the middle dimension.

    Args:
        y_ptr: output of the forward pass (n_outer, n_cols, n_inner).
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        y_outer_stride, y_col_stride, y_inner_stride: elements from one to the next along each
            dimension of y; any, 0 included.
        dy_outer_stride, dy_col_stride, dy_inner_stride: likewise for dy.
        dx_outer_stride, dx_col_stride, dx_inner_stride: likewise for dx.
        n_cols: length of the softmax dimension.
        n_inner: length of the last dimension.
        LOG: y is log-softmax.
        VECTOR: divides n_inner and all strides but the inner ones.
        INDEX: integer type in which offsets within one outer slice are computed.
        BLOCK_COLS: a power of two, at least n_cols.
        BLOCK_INNER: elements of the last dimension per tile, a power of two.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    dx_type: tl.constexpr = dx_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    outer, inner = tile_position(n_inner, INDEX, BLOCK_INNER)
    y_ptr += outer * in_vectors(y_outer_stride, VECTOR)
    dy_ptr += outer * in_vectors(dy_outer_stride, VECTOR)
    dx_ptr += outer * in_vectors(dx_outer_stride, VECTOR)
    cols = tl.arange(0, BLOCK_COLS).to(INDEX)[:, None]

    mask = (cols < n_cols) & (inner < in_vectors(n_inner, VECTOR))
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
    if LOG:
        # eq: log-softmax-vjp
        dx = dy - exp_shifted(y, 0.0) * tl.sum(dy, axis=0)[None, :]
    else:
        # eq: softmax-vjp
        dx = y * (dy - tl.sum(y * dy, axis=0)[None, :])
    tl.store(
        dx_ptr + (cols * in_vectors(dx_col_stride, VECTOR) + inner * dx_inner_stride),
        dx.to(y_type).to(dx_type),
        mask=mask,
    )


# --8<-- [end:backward]
