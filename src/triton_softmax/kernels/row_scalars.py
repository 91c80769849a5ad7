"""Small kernels around a loss that read or write a few numbers for each row.

`targets_kernel` prepares what a cross-entropy has to know of its targets before it reads a row. The
factor of a mean is one over the number of rows that are not ignored, and the gradient that is
written with the loss holds it already, so that number comes first. Few targets every program counts
itself; of many, `count_targets_kernel` has counted a part each. Then a program looks up the logits
of its targets.

`scale_rows_kernel` multiplies a matrix by a number for each row, in place, and does not touch rows
whose number is 1. A gradient that the forward pass has written is multiplied by what arrives in the
backward pass. As a rule that is 1, but only the device knows. So the kernel is launched in any
case, looks at the number first, and ends where there is nothing to do: no wait, and no pass over
memory.

`finish_rows_kernel` writes the elements of a result whose summaries are known: kept from the
forward pass, or come from other GPUs. Nothing is reduced, and no program waits for another. So a
row may be of any length, and its chunks are as independent as the elements of a copy.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .device.registers import upcast
from .device.summaries import is_column


@triton.jit(do_not_specialize=["n_rows", "n_cols", "ignore_index"])
def count_targets_kernel(in_ptrs, out_ptrs, n_rows, n_cols, ignore_index, BLOCK: tl.constexpr):
    """How many of BLOCK rows are not ignored, and the sum of their factors, for each program.

    Args:
        in_ptrs, n_rows, n_cols, ignore_index, BLOCK: as for `targets_kernel`.
        out_ptrs: one tensor, the counts of all programs and then the sums of all.
    """
    ACC: tl.constexpr = out_ptrs[0].dtype.element_ty
    program = tl.program_id(0)
    rows = program * BLOCK + tl.arange(0, BLOCK)
    _, kept, factor = target_and_factor(in_ptrs, rows, n_rows, n_cols, ignore_index, ACC)
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
def target_and_factor(in_ptrs, rows, n_rows, n_cols, ignore_index, ACC: tl.constexpr):
    """The targets of some rows, which of them are not ignored, and their weights."""
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


@triton.jit(do_not_specialize=["n_rows", "n_chunks"])
def finish_rows_kernel(
    in_ptrs,
    out_ptrs,
    in_strides,
    n_rows,
    n_cols,
    n_chunks,
    OP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Write the elements of the result from a summary that is given.

    Args:
        in_ptrs: tensors of n_rows rows of n_cols adjacent elements, as many as the operation has
            inputs; then a number for each row: m, if the operation is relative to it, and the
            totals.
        out_ptrs: one tensor, the result, contiguous.
        in_strides: elements from one row to the next, for each input.
        n_rows, n_cols: sizes.
        n_chunks: chunks of BLOCK_COLS in a row. A program has one of them in BLOCK_ROWS rows.
        OP: the operation.
        WIDE: whether the columns of the last chunk, which reaches beyond the row, need 64 bits.
    """
    ACC: tl.constexpr = upcast(in_ptrs[0].dtype.element_ty)
    block = (tl.program_id(0) // n_chunks).to(tl.int64)
    rows = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    chunk = tl.program_id(0) % n_chunks
    if WIDE:
        chunk = chunk.to(tl.int64)
    cols = chunk * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    values = ()
    INPUTS: tl.constexpr = OP.inputs
    for i in tl.static_range(INPUTS):
        pointers = in_ptrs[i] + rows * in_strides[i] + cols
        values = values + (tl.load(pointers, mask=mask, other=OP.padding).to(ACC),)
    m = 0.0
    FIRST: tl.constexpr = INPUTS + 1 if OP.shifted else INPUTS
    if OP.shifted:
        m = tl.load(in_ptrs[INPUTS] + rows, mask=rows < n_rows, other=0.0)
    totals = ()
    for k in tl.static_range(FIRST, len(in_ptrs)):
        totals = totals + (tl.load(in_ptrs[k] + rows, mask=rows < n_rows, other=1),)
    terms = OP.terms(values, m, False)
    if OP.placed:
        values = values + (cols,)
    result = OP.finish(values, terms, m, totals)
    out = out_ptrs[0] + rows * n_cols + cols
    tl.store(out, result.to(out.dtype.element_ty), mask=mask)
