"""Softmax of several short rows per program: one read, one write, and enough bytes in flight
however short the row.

One program per row starves when rows are short: a program of 128 threads that moves 500 bytes
    spends its life waiting for them. Here a
program holds a tile of BLOCK_ROWS × BLOCK_COLS elements; with BLOCK_ROWS = 1 it is the single-block
kernel again.

The tile is read in 16-byte vectors only if the compiler can prove that every row starts and ends on
a vector. It cannot see the strides, so the kernel
states what the launcher has checked: `n // VECTOR * VECTOR` is n, and visibly a multiple of VECTOR.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .online import exp_shifted, hold


# --8<-- [start:forward]
@triton.jit(do_not_specialize=["n_rows", "n_cols", "x_row_stride", "y_row_stride"])
def softmax_forward_packed_rows_kernel(
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
    """Softmax (LOG: its logarithm) of BLOCK_ROWS rows per program.

    Args:
        x_ptr: input, n_rows rows of n_cols elements.
        y_ptr: output, likewise. x is rounded to its type before anything else.
        x_row_stride: elements from one row of x to the next.
        y_row_stride: elements from one row of y to the next.
        n_rows: number of rows.
        n_cols: number of columns.
        LOG: write log-softmax.
        VECTOR: divides n_cols and both strides; elements that one instruction moves.
        HOLD: keep 16-bit elements as they are between the steps, see `hold`.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: a power of two, at least n_cols.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols // VECTOR * VECTOR)

    raw = tl.load(
        x_ptr + (rows * (x_row_stride // VECTOR * VECTOR) + cols), mask=mask, other=float("-inf")
    )
    raw = hold(raw, HOLD)
    m = tl.max(raw.to(y_type).to(acc_type), axis=1)[:, None]
    raw = hold(raw, HOLD)
    x = raw.to(y_type).to(acc_type)
    e = exp_shifted(x, m)
    d = tl.sum(e, axis=1)[:, None]
    if HOLD:
        # Exponentiating twice costs less than keeping both x and e.
        raw = hold(raw, HOLD)
        x = raw.to(y_type).to(acc_type)
        e = exp_shifted(x, m)
    if LOG:
        # eq: log-softmax-definition
        y = (x - m) - tl.log(d)
    else:
        # One division per row and not per element; eq: softmax-safe
        y = e * (1.0 / d)
    tl.store(y_ptr + (rows * (y_row_stride // VECTOR * VECTOR) + cols), y.to(y_type), mask=mask)


# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit(
    do_not_specialize=["n_rows", "n_cols", "y_row_stride", "dy_row_stride", "dx_row_stride"]
)
def softmax_backward_packed_rows_kernel(
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
    """Vector-Jacobian product of softmax (LOG: of log-softmax) for BLOCK_ROWS rows per program.

    Args:
        y_ptr: output of the forward pass, n_rows rows of n_cols elements.
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        y_row_stride: elements from one row of y to the next.
        dy_row_stride: elements from one row of dy to the next; 0 for an expanded row.
        dx_row_stride: elements from one row of dx to the next.
        n_rows: number of rows.
        n_cols: number of columns.
        LOG: y is log-softmax.
        VECTOR: divides n_cols and the strides.
        HOLD: keep 16-bit elements as they are between the steps, see `hold`.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: a power of two, at least n_cols.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols // VECTOR * VECTOR)

    raw_y = tl.load(y_ptr + (rows * (y_row_stride // VECTOR * VECTOR) + cols), mask=mask, other=0.0)
    raw_dy = tl.load(
        dy_ptr + (rows * (dy_row_stride // VECTOR * VECTOR) + cols), mask=mask, other=0.0
    )
    raw_y, raw_dy = hold(raw_y, HOLD), hold(raw_dy, HOLD)
    y, dy = raw_y.to(acc_type), raw_dy.to(acc_type)
    if LOG:
        s = tl.sum(dy, axis=1)[:, None]
    else:
        s = tl.sum(y * dy, axis=1)[:, None]
    raw_y, raw_dy = hold(raw_y, HOLD), hold(raw_dy, HOLD)
    y, dy = raw_y.to(acc_type), raw_dy.to(acc_type)
    if LOG:
        # eq: log-softmax-vjp
        dx = dy - exp_shifted(y, 0.0) * s
    else:
        # eq: softmax-vjp
        dx = y * (dy - s)
    dx = dx.to(y_type).to(dx_ptr.dtype.element_ty)
    tl.store(dx_ptr + (rows * (dx_row_stride // VECTOR * VECTOR) + cols), dx, mask=mask)


# --8<-- [end:backward]
