"""log(sum(exp(x))) along the rows, and its gradient: one read, and nothing to write but a number
per row.

Nothing is written from the row, so nothing needs to stay in registers: a program walks any length
    in tiles with the online recurrence. Few rows leave
most of the device idle, so each is given to several programs, and a second kernel merges their
summaries.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .device.monoid import LOG2E, exp_shifted


# --8<-- [start:finish]
@triton.jit
def logsumexp_value(m, d):
    """m + log(d); the infinities that m itself can be are the result, unless a NaN in the row has
    made d one."""
    # eq: lse-from-summary
    return tl.where(((m == float("-inf")) | (m == float("inf"))) & (d == d), m, m + tl.log(d))


# --8<-- [end:finish]


# --8<-- [start:forward]
@triton.jit(do_not_specialize=["n_rows", "n_chunks", "chunk_cols"])
def logsumexp_forward_kernel(
    x_ptr,
    m_ptr,
    d_ptr,
    x_row_stride,
    x_col_stride,
    n_rows,
    n_cols,
    n_chunks,
    chunk_cols,
    FINISH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
):
    """Summaries of one chunk of BLOCK_ROWS rows per program, or (FINISH, n_chunks = 1) their
    log-sum-exp.

    Args:
        x_ptr: input, n_rows rows of n_cols elements.
        m_ptr: output, n_chunks numbers per row: maxima, or (FINISH) the result.
        d_ptr: output, likewise: sums of exponentials; not touched if FINISH.
        x_row_stride: elements from one row to the next.
        x_col_stride: elements from one column to the next.
        n_rows: number of rows.
        n_cols: number of columns.
        n_chunks: chunks per row.
        chunk_cols: columns of a chunk.
        FINISH: one program has the whole row.
        BLOCK_ROWS: rows per program, a power of two.
        BLOCK_COLS: columns per tile, a power of two.
    """
    acc_type: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    program = tl.program_id(0)
    rows = (program // n_chunks).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    begin = (program % n_chunks).to(tl.int64) * chunk_cols
    end = tl.minimum(begin + chunk_cols, n_cols)
    m = tl.full((BLOCK_ROWS,), float("-inf"), acc_type)
    d = tl.zeros((BLOCK_ROWS,), acc_type)
    for start in range(0, chunk_cols, BLOCK_COLS):
        cols = begin + start + tl.arange(0, BLOCK_COLS)[None, :]
        mask = (rows[:, None] < n_rows) & (cols < end)
        x = tl.load(
            x_ptr + rows[:, None] * x_row_stride + cols * x_col_stride,
            mask=mask,
            other=float("-inf"),
        ).to(acc_type)
        # eq: online-m, online-d
        m_new = tl.maximum(m, tl.max(x, axis=1))
        # An infinite maximum would turn the finite rest of the sum into NaN, where log-sum-exp is
        # +inf; a NaN stays one.
        shift = tl.where(m_new == float("inf"), 0.0, m_new)
        d = d * exp_shifted(m, shift) + tl.sum(exp_shifted(x, shift[:, None]), axis=1)
        m = m_new
    if FINISH:
        tl.store(m_ptr + rows, logsumexp_value(m, d).to(m_ptr.dtype.element_ty), mask=rows < n_rows)
    else:
        chunk = rows * n_chunks + program % n_chunks
        tl.store(m_ptr + chunk, m, mask=rows < n_rows)
        tl.store(d_ptr + chunk, d, mask=rows < n_rows)


@triton.jit(do_not_specialize=["n_chunks"])
def logsumexp_merge_kernel(m_ptr, d_ptr, lse_ptr, n_chunks, BLOCK_SIZE: tl.constexpr):
    """log-sum-exp of one row per program from the summaries of its chunks.

    Args:
        m_ptr: n_chunks maxima per row.
        d_ptr: n_chunks sums per row.
        lse_ptr: output, one number per row.
        n_chunks: chunks per row.
        BLOCK_SIZE: a power of two, at least n_chunks.
    """
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE)
    m = tl.load(m_ptr + row * n_chunks + lanes, mask=lanes < n_chunks, other=float("-inf"))
    d = tl.load(d_ptr + row * n_chunks + lanes, mask=lanes < n_chunks, other=0.0)
    m_all = tl.max(m, axis=0)
    m_finite = tl.where(m_all == float("inf"), 0.0, m_all)
    # eq: merge
    d_all = tl.sum(d * exp_shifted(tl.where(m == float("inf"), m_finite, m), m_finite), axis=0)
    tl.store(lse_ptr + row, logsumexp_value(m_all, d_all).to(lse_ptr.dtype.element_ty))


# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit(do_not_specialize=["n_chunks"])
def logsumexp_backward_kernel(
    dlse_ptr,
    x_ptr,
    lse_ptr,
    dx_ptr,
    x_row_stride,
    x_col_stride,
    n_cols,
    n_chunks,
    BLOCK_SIZE: tl.constexpr,
):
    """Gradient of log-sum-exp for one block of one row per program: dlse · softmax(x).

    Args:
        dlse_ptr: gradient with respect to the result, one number per row.
        x_ptr: input, rows of n_cols elements.
        lse_ptr: the result, one number per row.
        dx_ptr: gradient with respect to the input, contiguous rows; written.
        x_row_stride: elements from one row to the next.
        x_col_stride: elements from one column to the next.
        n_cols: number of columns.
        n_chunks: blocks per row.
        BLOCK_SIZE: columns per program, a power of two.
    """
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


# --8<-- [start:launch]
def logsumexp_forward(x: torch.Tensor, multiprocessors: int = 132) -> torch.Tensor:
    """log(sum(exp(x))) along the rows of a matrix.

    Args:
        x: non-empty matrix (n_rows, n_cols), any strides.
        multiprocessors: of the device; rows fewer than these are shared by several programs.

    Returns:
        A vector (n_rows,) of the dtype of x. 16-bit inputs are summed in float32.
    """
    n_rows, n_cols = x.shape
    block_cols = min(8192, triton.next_power_of_2(n_cols))
    n_chunks = min(triton.cdiv(n_cols, block_cols), 1024, max(1, 4 * multiprocessors // n_rows))
    chunk_cols = triton.cdiv(triton.cdiv(n_cols, n_chunks), 16) * 16
    n_chunks = triton.cdiv(n_cols, chunk_cols)
    # Several short rows per program, unless there would be too few programs.
    block_rows = max(
        1, min(4096 // block_cols, triton.next_power_of_2(n_rows // (2 * multiprocessors)))
    )
    options = {
        "BLOCK_ROWS": block_rows,
        "BLOCK_COLS": block_cols,
        "num_warps": 8 if block_cols == 8192 else 4,
    }
    grid = (triton.cdiv(n_rows, block_rows) * n_chunks,)
    strides = (x.stride(0), x.stride(1))
    lse = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    if n_chunks == 1:
        logsumexp_forward_kernel[grid](
            x, lse, lse, *strides, n_rows, n_cols, 1, n_cols, FINISH=True, **options
        )
        return lse
    acc_type = torch.float64 if x.dtype == torch.float64 else torch.float32
    m, d = torch.empty(2, n_rows, n_chunks, dtype=acc_type, device=x.device)
    logsumexp_forward_kernel[grid](
        x, m, d, *strides, n_rows, n_cols, n_chunks, chunk_cols, FINISH=False, **options
    )
    logsumexp_merge_kernel[(n_rows,)](
        m, d, lse, n_chunks, BLOCK_SIZE=triton.next_power_of_2(n_chunks)
    )
    return lse


def logsumexp_backward(dlse: torch.Tensor, x: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Gradient of `logsumexp_forward` at x.

    Args:
        dlse: gradient with respect to the result, vector (n_rows,).
        x: the input, matrix (n_rows, n_cols), any strides.
        lse: the result, vector (n_rows,).

    Returns:
        A contiguous matrix of the shape and dtype of x.
    """
    n_rows, n_cols = x.shape
    block_size = min(4096, triton.next_power_of_2(n_cols))
    n_chunks = triton.cdiv(n_cols, block_size)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    logsumexp_backward_kernel[(n_rows * n_chunks,)](
        dlse.contiguous(),
        x,
        lse.contiguous(),
        dx,
        x.stride(0),
        x.stride(1),
        n_cols,
        n_chunks,
        BLOCK_SIZE=block_size,
    )
    return dx


# --8<-- [end:launch]
