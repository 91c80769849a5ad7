"""Packed rows in some twenty lines, to be read before `tile_kernel` and called by nobody else.

The single block with a second axis: a tile holds several short rows, one below another, and every
reduction runs along a row. The last program may have fewer rows than lanes for them, so the mask
now has two sides.

What the library's kernel has besides: any operation, vectors of 16 bytes, rows in several tiles,
and elements that stay in registers in 16 bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from triton_softmax.kernels.device.monoid import exp_shifted


# --8<-- [start:kernel]
@triton.jit
def packed_rows_simple_kernel(
    x_ptr, y_ptr, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    """Softmax of contiguous rows, BLOCK_ROWS of them per program.

    Args:
        x_ptr: input, n_rows rows of n_cols elements, one after another.
        y_ptr: output, likewise.
        n_rows: number of rows.
        n_cols: number of columns.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: a power of two, at least n_cols.
    """
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    cols = tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)

    x = tl.load(x_ptr + rows * n_cols + cols, mask=mask, other=float("-inf")).to(tl.float32)

    m = tl.max(x, axis=1)[:, None]
    e = exp_shifted(x, m)
    d = tl.sum(e, axis=1)[:, None]

    # eq: softmax-safe
    y = e / d
    tl.store(y_ptr + rows * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


# --8<-- [end:kernel]


def softmax_forward(x: torch.Tensor, *, block_rows: int | None = None) -> torch.Tensor:
    """Softmax along the rows of a contiguous matrix, several rows per program.

    Args:
        x: contiguous matrix (n_rows, n_cols) of float16, bfloat16 or float32.
        block_rows: rows per program, a power of two; by default enough for 512 lanes.

    Raises:
        ValueError: x is not contiguous, or of float64.
    """
    if not x.is_contiguous() or x.dtype == torch.float64:
        raise ValueError("packed_rows_simple takes a contiguous matrix, and not of float64")
    n_rows, n_cols = x.shape
    block_cols = triton.next_power_of_2(n_cols)
    block_rows = block_rows or max(1, 512 // block_cols)
    y = torch.empty_like(x)
    packed_rows_simple_kernel[(triton.cdiv(n_rows, block_rows),)](
        x, y, n_rows, n_cols, BLOCK_ROWS=block_rows, BLOCK_COLS=block_cols
    )
    return y
