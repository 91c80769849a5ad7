"""The gradient of log-sum-exp: one multiple of softmax for each row, element by element.

There is nothing to summarise, since log-sum-exp itself is known, and so it is no operation: each
program takes one block of one row. The forward pass is one, see `operations.logsumexp`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device.monoid import LOG2E


# --8<-- [start:backward]
@triton.jit(do_not_specialize=["n_chunks"])
def logsumexp_backward_kernel(
    in_ptrs,
    dx_ptr,
    x_row_stride,
    x_col_stride,
    n_cols,
    n_chunks,
    BLOCK_SIZE: tl.constexpr,
):
    """Gradient of log-sum-exp for one block of one row per program: dlse · softmax(x).

    Args:
        in_ptrs: x, rows of n_cols elements; the result lse, one number per row; and the gradient
            with respect to it, dlse, likewise.
        dx_ptr: gradient with respect to the input, contiguous rows; written.
        x_row_stride: elements from one row to the next.
        x_col_stride: elements from one column to the next.
        n_cols: number of columns.
        n_chunks: blocks per row.
        BLOCK_SIZE: columns per program, a power of two.
    """
    x_ptr, lse_ptr, dlse_ptr = in_ptrs[0], in_ptrs[1], in_ptrs[2]
    acc_type: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    program = tl.program_id(0)
    row = (program // n_chunks).to(tl.int64)
    cols = (program % n_chunks).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    dlse = tl.load(dlse_ptr + row).to(acc_type)
    lse = tl.load(lse_ptr + row).to(acc_type)
    x = tl.load(
        x_ptr + row * x_row_stride + cols * x_col_stride, mask=mask, other=float("-inf")
    ).to(acc_type)
    # eq: logsumexp-gradient
    dx = dlse * tl.exp2((x - lse) * LOG2E)
    tl.store(dx_ptr + row * n_cols + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


# --8<-- [end:backward]
