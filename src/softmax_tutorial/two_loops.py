"""Softmax of rows of any length in two loops over tiles: online statistics, then the result.

The maximum and the denominator are found in one loop, since the (m, d) of a tile can be merged into
the (m, d) of the tiles before it. A row is read twice and written once.

Sources: Triton Puzzles 8 solved with the online recurrence, and the multi-block kernels of
"Learning Triton One Kernel at a Time: Softmax". They are the same kernel, so this file serves both.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from softmax_tutorial.matrices import check_rows, result_like
from triton_softmax.kernels.device.monoid import exp_shifted, merge


def tuning_space() -> list[triton.Config]:
    """What the tuner times for every new number of columns: every tile with every number of warps.

    >>> len(tuning_space())
    24
    """
    return [
        triton.Config({"BLOCK_COLS": block_cols}, num_warps=num_warps)
        for block_cols in (256, 512, 1024, 2048, 4096, 8192)
        for num_warps in (2, 4, 8, 16)
    ]


CONFIGS = (
    [triton.Config({"BLOCK_COLS": 1024}, num_warps=4)]
    if triton.knobs.runtime.interpret
    else tuning_space()
)
"""The tuning space, or a single choice for the interpreter, which has no device to time."""


# --8<-- [start:forward]
@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def softmax_forward_two_loops_kernel(
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
    """Softmax (LOG: its logarithm) of BLOCK_ROWS rows per program, in two loops over tiles of
    BLOCK_COLS columns.

    Args:
        x_ptr: input, n_rows rows of n_cols elements.
        y_ptr: output, likewise. x is rounded to its type before anything else.
        x_row_stride: elements from one row of x to the next.
        y_row_stride: elements from one row of y to the next.
        n_rows: number of rows.
        n_cols: number of columns; the tuner's key.
        LOG: write log-softmax.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: columns per tile, a power of two, chosen by the tuner.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    x_rows = x_ptr + rows[:, None] * x_row_stride
    y_rows = y_ptr + rows[:, None] * y_row_stride

    # eq: online-start, merge-identity
    m = tl.full((BLOCK_ROWS,), float("-inf"), acc_type)
    d = tl.zeros((BLOCK_ROWS,), acc_type)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = start + tl.arange(0, BLOCK_COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=mask, other=float("-inf")).to(y_type).to(acc_type)
        m_tile = tl.max(x, axis=1)
        d_tile = tl.sum(exp_shifted(x, m_tile[:, None]), axis=1)
        # eq: online-tile, merge
        m, d = merge(m, d, m_tile, d_tile)

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


# --8<-- [start:backward]
@triton.autotune(configs=CONFIGS, key=["n_cols"])
@triton.jit
def softmax_backward_two_loops_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    n_rows,
    n_cols,
    LOG: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Vector-Jacobian product of softmax (LOG: of log-softmax) for BLOCK_ROWS rows per program, in
    two loops over tiles.

    Args:
        y_ptr: output of the forward pass, n_rows rows of n_cols elements.
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        y_row_stride: elements from one row of y to the next.
        dy_row_stride: elements from one row of dy to the next; 0 for an expanded row.
        dx_row_stride: elements from one row of dx to the next.
        n_rows: number of rows.
        n_cols: number of columns; the tuner's key.
        LOG: y is log-softmax.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: columns per tile, a power of two, chosen by the tuner.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    y_rows = y_ptr + rows[:, None] * y_row_stride
    dy_rows = dy_ptr + rows[:, None] * dy_row_stride
    dx_rows = dx_ptr + rows[:, None] * dx_row_stride

    s = tl.zeros((BLOCK_ROWS,), acc_type)
    for start in range(0, n_cols, BLOCK_COLS):
        cols = start + tl.arange(0, BLOCK_COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_rows + cols[None, :], mask=mask, other=0.0).to(acc_type)
        if LOG:
            s += tl.sum(dy, axis=1)
        else:
            y = tl.load(y_rows + cols[None, :], mask=mask, other=0.0).to(acc_type)
            s += tl.sum(y * dy, axis=1)

    for start in range(0, n_cols, BLOCK_COLS):
        cols = start + tl.arange(0, BLOCK_COLS)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        y = tl.load(y_rows + cols[None, :], mask=mask, other=0.0).to(acc_type)
        dy = tl.load(dy_rows + cols[None, :], mask=mask, other=0.0).to(acc_type)
        if LOG:
            # eq: log-softmax-vjp
            dx = dy - exp_shifted(y, 0.0) * s[:, None]
        else:
            # eq: softmax-vjp
            dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols[None, :], dx.to(y_type).to(dx_ptr.dtype.element_ty), mask=mask)


# --8<-- [end:backward]


def _launch(kernel, grid, *arguments, log, block_rows, block_cols):
    """Let the tuner choose the tile, unless the caller did."""
    if block_cols is None:
        kernel[grid](*arguments, LOG=log, BLOCK_ROWS=block_rows)
    else:
        kernel.fn[grid](*arguments, LOG=log, BLOCK_ROWS=block_rows, BLOCK_COLS=block_cols)


def softmax_forward(
    x: torch.Tensor,
    *,
    log: bool = False,
    block_rows: int = 1,
    block_cols: int | None = None,
) -> torch.Tensor:
    """Softmax along the rows of a matrix, in two loops.

    Args:
        x: matrix (n_rows, n_cols), column stride 1, any row stride.
        log: return log-softmax.
        block_rows: rows per program, a power of two.
        block_cols: columns per tile, a power of two; None lets the tuner choose.

    Returns:
        A contiguous matrix of the same shape and dtype.

    Raises:
        ValueError: x is not such a matrix.
    """
    n_rows, n_cols = check_rows(x)
    y = result_like(x)
    grid = (triton.cdiv(n_rows, block_rows),)
    arguments = (x, y, x.stride(0), y.stride(0), n_rows, n_cols)
    _launch(
        softmax_forward_two_loops_kernel,
        grid,
        *arguments,
        log=log,
        block_rows=block_rows,
        block_cols=block_cols,
    )
    return y


def softmax_backward(
    y: torch.Tensor,
    dy: torch.Tensor,
    *,
    log: bool = False,
    block_rows: int = 1,
    block_cols: int | None = None,
) -> torch.Tensor:
    """Gradient at the input of a softmax along the rows of a matrix, in two loops.

    Args:
        y: output of the forward pass, matrix (n_rows, n_cols), column stride 1, any row stride.
        dy: gradient with respect to it, likewise.
        log: y is log-softmax.
        block_rows: rows per program, a power of two.
        block_cols: columns per tile, a power of two; None lets the tuner choose.

    Returns:
        A contiguous matrix of the same shape and dtype.

    Raises:
        ValueError: y or dy is not such a matrix, or their shapes differ.
    """
    n_rows, n_cols = check_rows(y, dy)
    dx = result_like(y)
    grid = (triton.cdiv(n_rows, block_rows),)
    arguments = (y, dy, dx, y.stride(0), dy.stride(0), dx.stride(0), n_rows, n_cols)
    _launch(
        softmax_backward_two_loops_kernel,
        grid,
        *arguments,
        log=log,
        block_rows=block_rows,
        block_cols=block_cols,
    )
    return dx
