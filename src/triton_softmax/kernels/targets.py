"""What a cross-entropy has to know of its targets before it reads a row: one small launch.

The factor of a mean is one over the number of rows that are not ignored, and the gradient that is
written with the loss holds it already. So that number comes first. Few targets every program counts
itself; of many, a launch before has counted a part each. Then a program looks up the logits of its
targets.
"""

from __future__ import annotations

import triton
import triton.language as tl


# --8<-- [start:kernel]
@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def count_targets_kernel(in_ptrs, out_ptrs, n_rows, ignore_index, BLOCK: tl.constexpr):
    """How many of BLOCK rows are not ignored, and the sum of their factors, for each program.

    Args:
        in_ptrs, n_rows, ignore_index, BLOCK: as below.
        out_ptrs: one tensor, the counts of all programs and then the sums of all.
    """
    ACC: tl.constexpr = out_ptrs[0].dtype.element_ty
    program = tl.program_id(0)
    rows = program * BLOCK + tl.arange(0, BLOCK)
    _, kept, factor = target_and_factor(in_ptrs, rows, n_rows, ignore_index, ACC)
    tl.store(out_ptrs[0] + program, tl.sum(kept.to(ACC), axis=0))
    tl.store(out_ptrs[0] + tl.num_programs(0) + program, tl.sum(factor, axis=0))


@triton.jit(debug=True, do_not_specialize=["n_rows", "n_cols", "ignore_index"])
def targets_kernel(
    in_ptrs,
    out_ptrs,
    strides,
    n_rows,
    n_cols,
    n_inner,
    ignore_index,
    SMOOTHING: tl.constexpr,
    Z_LOSS: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The numbers of BLOCK rows per program.

    Args:
        in_ptrs: logits; targets; a weight for each class, if there is one; and last what
            `count_targets_kernel` has counted, if it has.
        out_ptrs: the targets, −1 where a row is ignored; and five numbers, n_rows each: the logit
            of the target, the factor of the loss, that of the squared log-sum-exp, and of the
            factor the shares of the target and of every class.
        strides: of the logits as (outer, classes, inner).
        n_rows: number of targets, outer · inner.
        n_cols: number of classes.
        n_inner: length of the inner dimension.
        ignore_index: targets that are ignored.
        SMOOTHING: label smoothing; like the next a constant, so that float64 gets all its digits.
        Z_LOSS: factor of the squared log-sum-exp.
        COUNT: what a mean divides by, the number or the weight of all rows that are not ignored: to
            be counted "here", or counted in "parts"; "none" if it is no mean.
        BLOCK: a power of two.
    """
    marked_ptr, numbers_ptr = out_ptrs
    ACC: tl.constexpr = numbers_ptr.dtype.element_ty
    lane = tl.arange(0, BLOCK)
    rows = tl.program_id(0) * BLOCK + lane
    of_rows = in_ptrs
    if COUNT == "parts":
        of_rows = in_ptrs[:-1]
    target, kept, factor = target_and_factor(of_rows, rows, n_rows, ignore_index, ACC)
    z_factor = kept.to(ACC) * Z_LOSS
    if COUNT != "none":
        counts = tl.zeros((BLOCK,), ACC)
        factors = tl.zeros((BLOCK,), ACC)
        if COUNT == "here":
            for start in range(0, n_rows, BLOCK):
                _, there, more = target_and_factor(of_rows, start + lane, n_rows, ignore_index, ACC)
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
    right = (target >= 0) & (target < n_cols)
    tl.device_assert(right | (kept == 0), "a target is out of range")
    far = rows.to(tl.int64)
    offsets = far // n_inner * strides[0] + target * strides[1] + far % n_inner * strides[2]
    picked = tl.load(in_ptrs[0] + offsets, mask=kept & right, other=0.0).to(ACC)

    inside = rows < n_rows
    tl.store(marked_ptr + rows, tl.where(kept, target, -1), mask=inside)
    tl.store(numbers_ptr + rows, picked, mask=inside)
    tl.store(numbers_ptr + n_rows + rows, factor, mask=inside)
    tl.store(numbers_ptr + 2 * n_rows + rows, z_factor, mask=inside)
    tl.store(numbers_ptr + 3 * n_rows + rows, factor * (1.0 - SMOOTHING), mask=inside)
    tl.store(numbers_ptr + 4 * n_rows + rows, factor * SMOOTHING / n_cols, mask=inside)


@triton.jit
def target_and_factor(in_ptrs, rows, n_rows, ignore_index, ACC: tl.constexpr):
    """The targets of some rows, which of them are not ignored, and their weights."""
    target = tl.load(in_ptrs[1] + rows, mask=rows < n_rows, other=0).to(tl.int64)
    kept = (rows < n_rows) & (target != ignore_index)
    factor = kept.to(ACC)
    if len(in_ptrs) == 3:
        factor = tl.load(in_ptrs[2] + target, mask=kept & (target >= 0), other=0.0).to(ACC)
    return target, kept, factor


# --8<-- [end:kernel]
