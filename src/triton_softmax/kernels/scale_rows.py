"""A matrix times a number for each row, in place, and without touching rows whose number is 1.

A gradient that the forward pass has written is multiplied by what arrives in the backward pass. As
a rule that is 1, but only the device knows. So the kernel is launched in any case, looks at the
number first, and ends where there is nothing to do: no wait, and no pass over memory.
"""

from __future__ import annotations

import triton
import triton.language as tl


# --8<-- [start:kernel]
@triton.jit(do_not_specialize=["n_chunks", "n_tasks"])
def scale_rows_kernel(
    in_ptrs,
    out_ptrs,
    length,
    n_inner,
    n_chunks,
    n_tasks,
    FOR_ALL: tl.constexpr,
    ONE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply x, contiguous (n_outer, n_cols, n_inner), along its middle dimension.

    A task is a chunk of an outer slice; program p does the tasks p, p + P, p + 2P, …

    Args:
        in_ptrs: a number for each (outer, inner), contiguous.
        out_ptrs: the tensor.
        length: of an outer slice, n_cols · n_inner.
        n_inner: length of the last dimension.
        n_chunks: chunks of an outer slice.
        n_tasks: n_outer · n_chunks.
        FOR_ALL: there is one number for all, and n_outer is 1.
        ONE: all elements of an outer slice have the same number.
        BLOCK: elements of a chunk, a power of two.
    """
    (x_ptr,) = out_ptrs
    (factor_ptr,) = in_ptrs
    ACC: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    lane = tl.arange(0, BLOCK)
    if FOR_ALL:
        n_tasks = tl.where(tl.load(factor_ptr) == 1.0, 0, n_tasks)
    for task in range(tl.program_id(0), n_tasks, tl.num_programs(0)):
        outer = (task // n_chunks).to(tl.int64)
        at = (task % n_chunks).to(tl.int64) * BLOCK + lane
        inside = at < length
        factors = factor_ptr + outer * n_inner
        if ONE:
            factor = tl.load(factors)
            needed = factor != 1.0
        else:
            factor = tl.load(factors + at % n_inner, mask=inside, other=1.0)
            needed = tl.max((factor != 1.0).to(tl.int32), axis=0) > 0
        if needed:
            pointers = x_ptr + outer * length + at
            x = tl.load(pointers, mask=inside)
            tl.store(pointers, (x.to(ACC) * factor.to(ACC)).to(x.dtype), mask=inside)


# --8<-- [end:kernel]
