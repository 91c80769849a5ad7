"""A matrix times a number for each row, in place, and without touching rows whose number is 1.

A gradient that the forward pass has written is multiplied by what arrives in the backward pass. As
a rule that is 1, but only the device knows. So the kernel is launched in any case, looks at the
number first, and ends where there is nothing to do: no wait, and no pass over memory.
"""

from __future__ import annotations

import triton
import triton.language as tl


# --8<-- [start:kernel]
@triton.jit
def scale_rows_kernel(
    x_ptr,
    factor_ptr,
    n_cols,
    n_inner,
    outer_stride,
    inner_stride,
    ONE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply x, contiguous (n_outer, n_cols, n_inner), along its middle dimension.

    Programs stand for (n_outer, chunks of a slice of n_cols · n_inner elements).

    Args:
        x_ptr: the tensor.
        factor_ptr: a number for each (outer, inner).
        n_cols: length of the middle dimension.
        n_inner: length of the last dimension.
        outer_stride, inner_stride: from one number to the next; 0 if there is one for all.
        ONE: all elements of a program have the same number, that of (outer, 0).
        BLOCK: elements per program, a power of two.
    """
    outer = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n_cols.to(tl.int64) * n_inner
    factor_ptr += outer * outer_stride
    if ONE:
        factor = tl.load(factor_ptr)
        needed = factor != 1.0
    else:
        factor = tl.load(factor_ptr + at % n_inner * inner_stride, mask=inside, other=1.0)
        needed = tl.max((factor != 1.0).to(tl.int32), axis=0) > 0
    if needed:
        x_ptr += outer * n_cols * n_inner
        x = tl.load(x_ptr + at, mask=inside)
        ACC: tl.constexpr = tl.float64 if x.dtype == tl.float64 else tl.float32
        result = x.to(ACC) * factor.to(ACC)
        tl.store(x_ptr + at, result.to(x.dtype), mask=inside)


# --8<-- [end:kernel]
