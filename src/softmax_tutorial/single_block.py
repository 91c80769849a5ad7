"""Softmax of a row that one program holds whole, in registers: one read, one write.

With the row in registers nothing has to be read twice, and the statistics need no recurrence. The
block is the smallest power of two that is at least the number of columns, which is also what limits
it: a block that does not fit the registers spills to memory.

Source: "Learning Triton One Kernel at a Time: Softmax", whose launch heuristic and cache modifiers
are kept.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from softmax_tutorial.matrices import check_rows, result_like
from triton_softmax.kernels.device.monoid import exp_shifted

MAX_COLS = 1 << 20
"""The longest row: Triton has no larger block. Registers run out long before."""


# --8<-- [start:heuristic]
def num_warps_for_block(block_size: int) -> int:
    """Warps for a block: 4, 8 from 2,048 elements, 16 from 8,192, and 32 from 32,768.

    More elements need more threads so that each holds few enough to keep in its registers; with 32
    warps, the most a program can have, each thread holds BLOCK_SIZE / 1,024 of them.

    Args:
        block_size: elements per program, a power of two.

    Source: Unsloth's kernels, by way of Liger's and of "Learning Triton One Kernel at a Time:
    Softmax".

    >>> [num_warps_for_block(size) for size in (1024, 2048, 4096, 8192, 16384, 32768, 65536)]
    [4, 8, 8, 16, 16, 32, 32]
    """
    if block_size >= 32768:
        return 32
    if block_size >= 8192:
        return 16
    if block_size >= 2048:
        return 8
    return 4


# --8<-- [end:heuristic]


# --8<-- [start:forward]
@triton.jit
def softmax_forward_single_block_kernel(
    x_ptr, y_ptr, x_row_stride, y_row_stride, n_cols, LOG: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    """Softmax (LOG: its logarithm) of one row per program.

    Args:
        x_ptr: input, one row of n_cols elements per program.
        y_ptr: output, likewise. x is rounded to its type before anything else.
        x_row_stride: elements from one row of x to the next.
        y_row_stride: elements from one row of y to the next.
        n_cols: number of columns.
        LOG: write log-softmax.
        BLOCK_SIZE: a power of two, at least n_cols.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols

    x = (
        tl.load(
            x_ptr + row * x_row_stride + cols, mask=mask, other=float("-inf"), cache_modifier=".ca"
        )
        .to(y_type)
        .to(acc_type)
    )

    m = tl.max(x, axis=0)
    e = exp_shifted(x, m)
    d = tl.sum(e, axis=0)

    if LOG:
        # eq: log-softmax-definition
        y = (x - m) - tl.log(d)
    else:
        # eq: softmax-safe
        y = e / d
    tl.store(y_ptr + row * y_row_stride + cols, y.to(y_type), mask=mask, cache_modifier=".cs")


# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit
def softmax_backward_single_block_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    y_row_stride,
    dy_row_stride,
    dx_row_stride,
    n_cols,
    LOG: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    """Vector-Jacobian product of softmax (LOG: of log-softmax) for one row per program.

    Args:
        y_ptr: output of the forward pass, one row of n_cols elements per program.
        dy_ptr: gradient with respect to it, likewise.
        dx_ptr: gradient with respect to its input, likewise; written.
        y_row_stride: elements from one row of y to the next.
        dy_row_stride: elements from one row of dy to the next; 0 for an expanded row.
        dx_row_stride: elements from one row of dx to the next.
        n_cols: number of columns.
        LOG: y is log-softmax.
        BLOCK_SIZE: a power of two, at least n_cols.
    """
    y_type: tl.constexpr = y_ptr.dtype.element_ty
    acc_type: tl.constexpr = tl.float64 if y_type == tl.float64 else tl.float32
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols

    y = tl.load(y_ptr + row * y_row_stride + cols, mask=mask, other=0.0, cache_modifier=".ca").to(
        acc_type
    )
    dy = tl.load(
        dy_ptr + row * dy_row_stride + cols, mask=mask, other=0.0, cache_modifier=".ca"
    ).to(acc_type)

    if LOG:
        # eq: log-softmax-vjp
        dx = dy - exp_shifted(y, 0.0) * tl.sum(dy, axis=0)
    else:
        # eq: softmax-vjp
        dx = y * (dy - tl.sum(y * dy, axis=0))
    dx = dx.to(y_type).to(dx_ptr.dtype.element_ty)
    tl.store(dx_ptr + row * dx_row_stride + cols, dx, mask=mask, cache_modifier=".wb")


# --8<-- [end:backward]


def _block_for(n_cols: int) -> int:
    if n_cols > MAX_COLS:
        raise ValueError(
            f"single_block holds a row of at most {MAX_COLS:,} columns, not {n_cols:,}: "
            "Triton has no larger block"
        )
    return triton.next_power_of_2(n_cols)


def softmax_forward(x: torch.Tensor, *, log: bool = False) -> torch.Tensor:
    """Softmax along the rows of a matrix, one program per row.

    Args:
        x: matrix (n_rows, n_cols), column stride 1, any row stride.
        log: return log-softmax.

    Returns:
        A contiguous matrix of the same shape and dtype.

    Raises:
        ValueError: x is not such a matrix, or has more than `MAX_COLS` columns.
    """
    n_rows, n_cols = check_rows(x)
    block_size = _block_for(n_cols)
    y = result_like(x)
    softmax_forward_single_block_kernel[(n_rows,)](
        x,
        y,
        x.stride(0),
        y.stride(0),
        n_cols,
        LOG=log,
        BLOCK_SIZE=block_size,
        num_warps=num_warps_for_block(block_size),
    )
    return y


def softmax_backward(y: torch.Tensor, dy: torch.Tensor, *, log: bool = False) -> torch.Tensor:
    """Gradient at the input of a softmax along the rows of a matrix, one program per row.

    Args:
        y: output of the forward pass, matrix (n_rows, n_cols), column stride 1, any row stride.
        dy: gradient with respect to it, likewise.
        log: y is log-softmax.

    Returns:
        A contiguous matrix of the same shape and dtype.

    Raises:
        ValueError: y or dy is not such a matrix, their shapes differ, or they have more than
            `MAX_COLS` columns.
    """
    n_rows, n_cols = check_rows(y, dy)
    block_size = _block_for(n_cols)
    dx = result_like(y)
    softmax_backward_single_block_kernel[(n_rows,)](
        y,
        dy,
        dx,
        y.stride(0),
        dy.stride(0),
        dx.stride(0),
        n_cols,
        LOG=log,
        BLOCK_SIZE=block_size,
        num_warps=num_warps_for_block(block_size),
    )
    return dx
