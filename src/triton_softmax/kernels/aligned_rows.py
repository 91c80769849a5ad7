"""Softmax of rows that start anywhere, with wide accesses: a head, a body that starts on a vector,
a tail.

A row of 50,257 elements starts, in most cases, between two 16-byte vectors, and a compiler that
cannot prove alignment reads it element by element. But some element near its start does lie on a
vector. From there to the last whole vector runs the body, read and written at full width; what is
left, fewer than VECTOR elements on each side, fits in one small masked tile, the edge. Its
statistics are two more numbers to merge.

The compiler believes it because it can see it: (begin + VECTOR - 1) // VECTOR * VECTOR is a
    multiple of VECTOR whatever begin is.
The launcher checks the rest: all pointers lie on a vector, and every row of y starts as far from
    one as the row of x.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .online import exp_shifted, hold


# --8<-- [start:geometry]
@triton.jit
def round_up(begin, VECTOR: tl.constexpr):
    """The first multiple of VECTOR at or after `begin`, provably so."""
    return (begin + (VECTOR - 1)) // VECTOR * VECTOR


@triton.jit
def edge_of_row(begin, n_cols, VECTOR: tl.constexpr):
    """Columns of the head (the first VECTOR lanes) and the tail (the others) of a row, and which of
    the lanes hold one.

    Args:
        begin: offset of the row's first element from an address that is a multiple of VECTOR
            elements; any shape (..., 1) or scalar.
        n_cols: number of columns.

    Returns:
        (cols, mask), broadcast over 2·VECTOR lanes. A row shorter than its head has no tail.
    """
    lane = tl.arange(0, 2 * VECTOR)
    head = tl.minimum(round_up(begin, VECTOR) - begin, n_cols)
    tail = tl.maximum((begin + n_cols) // VECTOR * VECTOR - begin, head)
    cols = tl.where(lane < VECTOR, lane, tail + lane - VECTOR)
    return cols, tl.where(lane < VECTOR, cols < head, cols < n_cols)


# --8<-- [end:geometry]


# --8<-- [start:forward]
@triton.jit(do_not_specialize=["n_rows", "n_cols", "x_row_stride", "y_row_stride"])
def softmax_forward_aligned_rows_kernel(
    x_ptr,
    y_ptr,
    x_row_stride,
    y_row_stride,
    n_rows,
    n_cols,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    HOLD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Softmax (LOG: its logarithm) of BLOCK_ROWS rows per program, wherever they start.

    Args:
        x_ptr: input, n_rows rows of n_cols elements; a multiple of VECTOR elements.
        y_ptr: output, likewise. x is rounded to its type before anything else.
        x_row_stride: elements from one row of x to the next.
        y_row_stride: elements from one row of y to the next, equal to x_row_stride modulo VECTOR.
        n_rows: number of rows.
        n_cols: number of columns.
        LOG: write log-softmax.
        VECTOR: elements that one instruction moves, a power of two.
        HOLD: keep 16-bit elements as they are between the steps, see `hold`.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: a power of two, at least the length of a body, n_cols // VECTOR * VECTOR.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    x_begin = rows * x_row_stride
    y_begin = rows * y_row_stride
    body = tl.arange(0, BLOCK_COLS)[None, :]
    x_body = round_up(x_begin, VECTOR) + body
    body_mask = (rows < n_rows) & (x_body < (x_begin + n_cols) // VECTOR * VECTOR)
    edge, edge_mask = edge_of_row(x_begin, n_cols, VECTOR)
    edge_mask = edge_mask & (rows < n_rows)

    raw = tl.load(x_ptr + x_body, mask=body_mask, other=float("-inf"))
    x_edge = (
        tl.load(x_ptr + x_begin + edge, mask=edge_mask, other=float("-inf")).to(y_type).to(acc_type)
    )
    raw = hold(raw, HOLD)
    m = tl.maximum(tl.max(raw.to(y_type).to(acc_type), axis=1), tl.max(x_edge, axis=1))[:, None]
    raw = hold(raw, HOLD)
    x = raw.to(y_type).to(acc_type)
    e = exp_shifted(x, m)
    e_edge = exp_shifted(x_edge, m)
    d = (tl.sum(e, axis=1) + tl.sum(e_edge, axis=1))[:, None]
    if HOLD:
        raw = hold(raw, HOLD)
        x = raw.to(y_type).to(acc_type)
        e = exp_shifted(x, m)
    if LOG:
        # eq: log-softmax-definition
        y = (x - m) - tl.log(d)
        y_edge = (x_edge - m) - tl.log(d)
    else:
        # eq: softmax-safe
        y = e * (1.0 / d)
        y_edge = e_edge * (1.0 / d)
    tl.store(y_ptr + (round_up(y_begin, VECTOR) + body), y.to(y_type), mask=body_mask)
    tl.store(y_ptr + y_begin + edge, y_edge.to(y_type), mask=edge_mask)


# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit(
    do_not_specialize=["n_rows", "n_cols", "y_row_stride", "dy_row_stride", "dx_row_stride"]
)
def softmax_backward_aligned_rows_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    n_rows,
    n_cols,
    LOG: tl.constexpr,
    VECTOR: tl.constexpr,
    HOLD: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Vector-Jacobian product of softmax (LOG: of log-softmax) for BLOCK_ROWS rows per program,
    wherever they start.

    Args:
        y_ptr: output of the forward pass, n_rows rows of n_cols elements; a multiple of VECTOR
            elements.
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        y_row_stride: elements from one row of y to the next.
        dy_row_stride: elements from one row of dy to the next, equal to y_row_stride modulo VECTOR.
        dx_row_stride: elements from one row of dx to the next, likewise.
        n_rows: number of rows.
        n_cols: number of columns.
        LOG: y is log-softmax.
        VECTOR: elements that one instruction moves, a power of two.
        HOLD: keep 16-bit elements as they are between the steps, see `hold`.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: a power of two, at least n_cols // VECTOR * VECTOR.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    y_begin = rows * y_row_stride
    dy_begin = rows * dy_row_stride
    dx_begin = rows * dx_row_stride
    body = tl.arange(0, BLOCK_COLS)[None, :]
    y_body = round_up(y_begin, VECTOR) + body
    body_mask = (rows < n_rows) & (y_body < (y_begin + n_cols) // VECTOR * VECTOR)
    edge, edge_mask = edge_of_row(y_begin, n_cols, VECTOR)
    edge_mask = edge_mask & (rows < n_rows)

    raw_y = tl.load(y_ptr + y_body, mask=body_mask, other=0.0)
    raw_dy = tl.load(dy_ptr + (round_up(dy_begin, VECTOR) + body), mask=body_mask, other=0.0)
    y_edge = tl.load(y_ptr + y_begin + edge, mask=edge_mask, other=0.0).to(acc_type)
    dy_edge = tl.load(dy_ptr + dy_begin + edge, mask=edge_mask, other=0.0).to(acc_type)
    raw_y, raw_dy = hold(raw_y, HOLD), hold(raw_dy, HOLD)
    y, dy = raw_y.to(acc_type), raw_dy.to(acc_type)
    if LOG:
        s = (tl.sum(dy, axis=1) + tl.sum(dy_edge, axis=1))[:, None]
    else:
        s = (tl.sum(y * dy, axis=1) + tl.sum(y_edge * dy_edge, axis=1))[:, None]
    raw_y, raw_dy = hold(raw_y, HOLD), hold(raw_dy, HOLD)
    y, dy = raw_y.to(acc_type), raw_dy.to(acc_type)
    if LOG:
        # eq: log-softmax-vjp
        dx = dy - exp_shifted(y, 0.0) * s
        dx_edge = dy_edge - exp_shifted(y_edge, 0.0) * s
    else:
        # eq: softmax-vjp
        dx = y * (dy - s)
        dx_edge = y_edge * (dy_edge - s)
    dx_type: tl.constexpr = dx_ptr.dtype.element_ty
    tl.store(
        dx_ptr + (round_up(dx_begin, VECTOR) + body), dx.to(y_type).to(dx_type), mask=body_mask
    )
    tl.store(dx_ptr + dx_begin + edge, dx_edge.to(y_type).to(dx_type), mask=edge_mask)


# --8<-- [end:backward]
