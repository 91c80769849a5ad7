"""Softmax of rows of any length in three loops over tiles: maximum, denominator, result.

A program keeps one tile at a time, so a row may be of any length. It is read three times and
written once.

Source: Triton Puzzles 8 ("long softmax"). The puzzle's solutions start the running maximum at 0,
which turns a row of very negative numbers into 0/0; here it starts at -inf.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from softmax_tutorial.matrices import check_rows, result_like
from softmax_tutorial.two_loops import (
    softmax_backward as softmax_backward,
)  # the backward pass has no maximum to find: two loops are all it has
from triton_softmax.kernels.device.monoid import exp_shifted


# --8<-- [start:forward]
@triton.jit
def softmax_forward_three_loops_kernel(
    x_ptr,
    y_ptr,
    x_row_stride,
    y_row_stride,
    n_rows,
    n_cols,
    LOG: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Softmax (LOG: its logarithm) of BLOCK_ROWS rows per program, in three loops over tiles of
    BLOCK_COLS columns.

    Args:
        x_ptr: input, n_rows rows of n_cols elements.
        y_ptr: output, likewise. x is rounded to its type before anything else.
        x_row_stride: elements from one row of x to the next.
        y_row_stride: elements from one row of y to the next.
        n_rows: number of rows.
        n_cols: number of columns.
        LOG: write log-softmax.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: columns per tile, a power of two.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    x_rows = x_ptr + rows[:, None] * x_row_stride
    y_rows = y_ptr + rows[:, None] * y_row_stride

    m_lanes = tl.full((BLOCK_ROWS, BLOCK_COLS), float("-inf"), acc_type)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = start + tl.arange(0, BLOCK_COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=mask, other=float("-inf")).to(y_type).to(acc_type)
        m_lanes = tl.maximum(m_lanes, x)
    m = tl.max(m_lanes, axis=1)

    d_lanes = tl.zeros((BLOCK_ROWS, BLOCK_COLS), acc_type)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = start + tl.arange(0, BLOCK_COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=mask, other=float("-inf")).to(y_type).to(acc_type)
        d_lanes += exp_shifted(x, m[:, None])
    d = tl.sum(d_lanes, axis=1)

    for start in range(0, n_cols, BLOCK_COLS):
        cols = start + tl.arange(0, BLOCK_COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=mask, other=float("-inf")).to(y_type).to(acc_type)
        if LOG:
            # eq: log-softmax-definition
            y = (x - m[:, None]) - tl.log(d)[:, None]
        else:
            # eq: softmax-safe
            y = exp_shifted(x, m[:, None]) / d[:, None]
        tl.store(y_rows + cols[None, :], y.to(y_type), mask=mask)


# --8<-- [end:forward]


def softmax_forward(
    x: torch.Tensor,
    *,
    log: bool = False,
    block_rows: int = 1,
    block_cols: int = 4096,
) -> torch.Tensor:
    """Softmax along the rows of a matrix, in three loops.

    Args:
        x: matrix (n_rows, n_cols), column stride 1, any row stride.
        log: return log-softmax.
        block_rows: rows per program, a power of two.
        block_cols: columns per tile, a power of two.

    Returns:
        A contiguous matrix of the same shape and dtype.

    Raises:
        ValueError: x is not such a matrix.
    """
    n_rows, n_cols = check_rows(x)
    y = result_like(x)
    grid = (triton.cdiv(n_rows, block_rows),)
    block_cols = min(block_cols, triton.next_power_of_2(n_cols))
    softmax_forward_three_loops_kernel[grid](
        x,
        y,
        x.stride(0),
        y.stride(0),
        n_rows,
        n_cols,
        LOG=log,
        BLOCK_ROWS=block_rows,
        BLOCK_COLS=block_cols,
        num_warps=8,
    )
    return y
