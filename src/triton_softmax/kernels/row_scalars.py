"""The small kernels around a loss, which read or write a few scalars per row.

`targets_kernel` computes the row scalars of a cross-entropy. The forward pass writes the gradient
too, and a mean divides it by the number of rows that are not ignored, so counting comes first. If
targets are few, every program counts them all; otherwise `count_targets_kernel` has counted a part
in each program. Then each program gathers its target logits.

`scale_rows_kernel` multiplies each row by a factor, in place, and skips rows whose factor is 1. The
backward pass uses it to multiply the gradient by the incoming one, which is usually 1, but only the
device knows. So it always launches, reads the factor first, and exits if there is nothing to do:
no synchronisation, and no pass over memory.
"""

import triton
import triton.language as tl

from .device.registers import upcast
from .device.summaries import is_column


@triton.jit(do_not_specialize=["n_rows", "n_cols", "ignore_index"])
def count_targets_kernel(in_ptrs, out_ptrs, n_rows, n_cols, ignore_index, BLOCK: tl.constexpr):
    """Count the rows that are not ignored, and sum their factors, in BLOCK rows per program.

    Args:
        in_ptrs, n_rows, n_cols, ignore_index, BLOCK: as for `targets_kernel`.
        out_ptrs: one tensor: the counts of all programs, then their sums.
    """
    ACC: tl.constexpr = out_ptrs[0].dtype.element_ty
    program = tl.program_id(0)
    rows = program * BLOCK + tl.arange(0, BLOCK)
    _, kept, factor = target_and_factor(in_ptrs, rows, n_rows, n_cols, ignore_index, ACC)
    tl.store(out_ptrs[0] + program, tl.sum(kept.to(ACC), axis=0))
    tl.store(out_ptrs[0] + tl.num_programs(0) + program, tl.sum(factor, axis=0))


@triton.jit(debug=True, do_not_specialize=["n_rows", "n_cols", "here", "ignore_index"])
def targets_kernel(
    in_ptrs,
    out_ptrs,
    strides,
    n_rows,
    n_cols,
    n_inner,
    here,
    ignore_index,
    SMOOTHING: tl.constexpr,
    Z_LOSS: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the row scalars of a cross-entropy, BLOCK rows per program.

    Args:
        in_ptrs: the logits; the targets; the class weights, if any; and last the result of
            `count_targets_kernel`, if it ran.
        out_ptrs: the columns of targets, −1 for ignored rows, and beyond the columns here for those
            of other ranks; and five scalars, n_rows each: the target logit, 0 if not here, the
            factor of the loss, the factor of the squared log-sum-exp, and the shares of the factor
            for the target and for every class.
        strides: strides of the logits as (outer, classes, inner).
        n_rows, n_cols, n_inner: numbers of targets (outer · inner) and classes; the inner size.
        here: the first class of this rank, and how many it has.
        ignore_index: the target of ignored rows.
        SMOOTHING, Z_LOSS: label smoothing, and the factor of the squared log-sum-exp; constants, to
            keep all digits in float64.
        COUNT: where to count the divisors of a mean (rows that are not ignored, and their weight):
            "here", or beforehand in "parts"; "none" without a mean.
        BLOCK: a power of two.
    """
    marked_ptr, numbers_ptr = out_ptrs
    ACC: tl.constexpr = numbers_ptr.dtype.element_ty
    lane = tl.arange(0, BLOCK)
    rows = tl.program_id(0) * BLOCK + lane
    of_rows = in_ptrs
    if COUNT == "parts":
        of_rows = in_ptrs[:-1]
    target, kept, factor = target_and_factor(of_rows, rows, n_rows, n_cols, ignore_index, ACC)
    z_factor = kept.to(ACC) * Z_LOSS
    if COUNT != "none":
        counts = tl.zeros((BLOCK,), ACC)
        factors = tl.zeros((BLOCK,), ACC)
        if COUNT == "here":
            for start in range(0, n_rows, BLOCK):
                _, there, more = target_and_factor(
                    of_rows, start + lane, n_rows, n_cols, ignore_index, ACC
                )
                counts += there.to(ACC)
                factors += more
        else:
            parts = tl.num_programs(0)
            for start in range(0, parts, BLOCK):
                part = start + lane
                counts += tl.load(in_ptrs[-1] + part, mask=part < parts, other=0.0)
                factors += tl.load(in_ptrs[-1] + parts + part, mask=part < parts, other=0.0)
        z_factor = z_factor / tl.sum(counts, axis=0)
        factor = factor / tl.sum(factors, axis=0)
    right = is_column(target, 0, n_cols)
    tl.device_assert(right | (kept == 0), "a target is out of range")
    far = rows.to(tl.int64)
    column = target - here[0]
    column += tl.where(column < 0, n_cols, 0)
    right &= column < here[1]
    offsets = far // n_inner * strides[0] + column * strides[1] + far % n_inner * strides[2]
    picked = tl.load(in_ptrs[0] + offsets, mask=kept & right, other=0.0).to(ACC)

    inside = rows < n_rows
    tl.store(marked_ptr + rows, tl.where(kept, column, -1), mask=inside)
    tl.store(numbers_ptr + rows, picked, mask=inside)
    tl.store(numbers_ptr + n_rows + rows, factor, mask=inside)
    tl.store(numbers_ptr + 2 * n_rows + rows, z_factor, mask=inside)
    tl.store(numbers_ptr + 3 * n_rows + rows, factor * (1.0 - SMOOTHING), mask=inside)
    tl.store(numbers_ptr + 4 * n_rows + rows, factor * SMOOTHING / n_cols, mask=inside)


@triton.jit
def target_and_factor(in_ptrs, rows, n_rows, n_cols, ignore_index, ACC: tl.constexpr):
    """Load the targets of some rows, the mask of rows that are not ignored, and their weights."""
    target = tl.load(in_ptrs[1] + rows, mask=rows < n_rows, other=0).to(tl.int64)
    kept = (rows < n_rows) & (target != ignore_index)
    factor = kept.to(ACC)
    if len(in_ptrs) == 3:
        right = kept & is_column(target, 0, n_cols)
        factor = tl.load(in_ptrs[2] + target, mask=right, other=0.0).to(ACC)
    return target, kept, factor


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
    """Multiply contiguous x (n_outer, n_cols, n_inner) by factors (n_outer, n_inner), in place.

    A work item (`task`) is a chunk of an outer slice; program p runs items p, p + P, p + 2P, …

    Args:
        in_ptrs, out_ptrs: the factors, contiguous; and x.
        length, n_inner: elements of an outer slice, n_cols · n_inner; the last size.
        n_chunks, n_tasks: chunks of BLOCK elements per outer slice, and in all slices.
        FOR_ALL: there is a single factor, and n_outer is 1.
        ONE: each outer slice has a single factor.
        BLOCK: a power of two.
    """
    (x_ptr,) = out_ptrs
    (factor_ptr,) = in_ptrs
    ACC: tl.constexpr = upcast(x_ptr.dtype.element_ty)
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
