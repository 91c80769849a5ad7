"""The kernels around the message: numbers of rows, merged from the words of all ranks.

The message of a rank holds m of all rows, each sum of the operation of all rows, and PLAIN numbers
that are relative to no maximum and are added up. Those of all ranks lie behind each other.

A program has BLOCK rows, a power of two. There are n_rows of them, with n_cols columns here and
n_total on all ranks; the first one here is the class `start`. Rows whose target is `ignore_index`
have no loss. Label smoothing and the factor of squared log-sum-exps are constants, so that float64
gets all their digits.
"""

import triton
import triton.language as tl

from ..kernels.device.summaries import is_column, merged
from ..kernels.row_scalars import target_and_factor


@triton.jit
def words_of(ptr, rows, inside, n_rows, COUNT: tl.constexpr):
    """So many words of rows, from the message of a rank."""
    words = ()
    for k in tl.static_range(COUNT):
        words = words + (tl.load(ptr + k * n_rows + rows, mask=inside, other=0.0),)
    return words


@triton.jit
def merged_ranks(ptr, rows, inside, lines, n_rows, OP: tl.constexpr, PLAIN: tl.constexpr):
    """The words of all ranks as one, merged in the order of the ranks: (m, the sums and then PLAIN
    plain numbers)."""
    SUMS: tl.constexpr = OP.sums
    world, rank_stride = lines
    words = words_of(ptr, rows, inside, n_rows, 1 + SUMS + PLAIN)
    for _ in range(1, world):
        ptr += rank_stride
        more = words_of(ptr, rows, inside, n_rows, 1 + SUMS + PLAIN)
        m, both = merged(words[0], words[1:], more[0], more[1:], None, OP)
        for k in tl.static_range(PLAIN):
            both = both + (words[1 + SUMS + k] + more[1 + SUMS + k],)
        words = (m,) + both
    return words[0], words[1:]


@triton.jit(do_not_specialize=["world", "n_rows"])
def merge_ranks_kernel(
    in_ptrs,
    out_ptrs,
    world,
    rank_stride,
    n_rows,
    OP: tl.constexpr,
    PLAIN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Merge the summaries of the ranks, in their order.

    Args:
        in_ptrs: one tensor, the words of all ranks.
        out_ptrs: one tensor, the same for all ranks together, (1 + sums + PLAIN, n_rows).
        world: number of ranks.
        rank_stride: words from one rank to the next.
        OP: the operation of the summaries.
    """
    SUMS: tl.constexpr = OP.sums
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < n_rows
    m, totals = merged_ranks(in_ptrs[0], rows, inside, (world, rank_stride), n_rows, OP, PLAIN)
    tl.store(out_ptrs[0] + rows, m, mask=inside)
    for k in tl.static_range(SUMS + PLAIN):
        tl.store(out_ptrs[0] + (1 + k) * n_rows + rows, totals[k], mask=inside)


@triton.jit(debug=True, do_not_specialize=["start", "n_rows", "n_cols", "n_total", "ignore_index"])
def pack_words_kernel(
    in_ptrs,
    out_ptrs,
    strides,
    start,
    n_rows,
    n_cols,
    n_total,
    ignore_index,
    WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the message of this rank: what it knows of BLOCK rows and their targets.

    Args:
        in_ptrs: logits; targets; a weight for each class here, if the ranks have different ones; m
            and the sums of the rows.
        out_ptrs: one tensor, the message.
        strides: of the logits, for rows and columns.
        WEIGHT: whether weights are given.
    """
    message_ptr = out_ptrs[0]
    ACC: tl.constexpr = message_ptr.dtype.element_ty
    FIRST: tl.constexpr = 2 + WEIGHT
    WORDS: tl.constexpr = len(in_ptrs) - FIRST
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < n_rows
    for k in tl.static_range(WORDS):
        word = tl.load(in_ptrs[FIRST + k] + rows, mask=inside)
        tl.store(message_ptr + k * n_rows + rows, word, mask=inside)
    target, kept, _ = target_and_factor(in_ptrs[:2], rows, n_rows, n_total, ignore_index, ACC)
    tl.device_assert(is_column(target, 0, n_total) | (kept == 0), "a target is out of range")
    column = target - start
    here = kept & (column >= 0) & (column < n_cols)
    place = message_ptr + WORDS * n_rows + rows
    offsets = rows * strides[0] + column * strides[1]
    tl.store(place, tl.load(in_ptrs[0] + offsets, mask=here, other=0.0).to(ACC), mask=inside)
    if WEIGHT:
        weight = tl.load(in_ptrs[FIRST - 1] + column, mask=here, other=0.0).to(ACC)
        tl.store(place + n_rows, weight, mask=inside)


@triton.jit(do_not_specialize=["n_rows", "n_total", "ignore_index"])
def losses_kernel(
    in_ptrs,
    out_ptrs,
    lines,
    n_rows,
    n_total,
    ignore_index,
    OP: tl.constexpr,
    PLAIN: tl.constexpr,
    SMOOTHING: tl.constexpr,
    Z_LOSS: tl.constexpr,
    EACH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The losses of BLOCK rows, from the messages of all ranks.

    Args:
        in_ptrs: the messages; targets; a weight for each class of all ranks, if these have it.
        out_ptrs: log-sum-exps; three numbers of each row that its gradient takes: m, d and the
            weight of its class, 0 of an ignored row; and the losses, or if they are reduced their
            sums for each program: of losses, squared log-sum-exps, weights and rows, (4, programs).
        lines: number of ranks, and words from one message to the next.
        OP: the cross-entropy.
        PLAIN: 2 where a rank sends the weight of the target as well.
        EACH: whether losses are not reduced. Then they contain the squared log-sum-exps.
    """
    lse_ptr, numbers_ptr, loss_ptr = out_ptrs
    ACC: tl.constexpr = in_ptrs[0].dtype.element_ty
    SUMS: tl.constexpr = OP.sums
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < n_rows
    m, totals = merged_ranks(in_ptrs[0], rows, inside, lines, n_rows, OP, PLAIN)
    target, kept, factor = target_and_factor(in_ptrs, rows, n_rows, n_total, ignore_index, ACC)
    if PLAIN == 2:
        factor = totals[SUMS + 1]
    z = kept.to(ACC) * (Z_LOSS if EACH else 0.0)
    numbers = scalars(target, kept, totals[SUMS], factor, z, SMOOTHING, n_total)
    loss, lse = OP.finish_row(m, totals, numbers)
    tl.store(lse_ptr + rows, lse, mask=inside)
    tl.store(numbers_ptr + rows, m, mask=inside)
    tl.store(numbers_ptr + n_rows + rows, totals[0], mask=inside)
    tl.store(numbers_ptr + 2 * n_rows + rows, factor, mask=inside)
    if EACH:
        tl.store(loss_ptr + rows, loss, mask=inside)
    else:
        sums_ptr, programs = loss_ptr + tl.program_id(0), tl.num_programs(0)
        tl.store(sums_ptr, tl.sum(loss, axis=0))
        tl.store(sums_ptr + programs, tl.sum(lse * lse, axis=0))
        tl.store(sums_ptr + 2 * programs, tl.sum(factor, axis=0))
        tl.store(sums_ptr + 3 * programs, tl.sum(kept.to(ACC), axis=0))


@triton.jit
def scalars(target, kept, picked, factor, z, SMOOTHING: tl.constexpr, n_total):
    """The numbers of the row that a cross-entropy takes: its target, −1 where the row is ignored;
    the logit of the target; the factor of the loss; that of the squared log-sum-exp; and with label
    smoothing the shares of the target and of every class in the factor."""
    numbers = (tl.where(kept, target, -1), picked, factor, z)
    if SMOOTHING > 0.0:
        numbers = numbers + ((1.0 - SMOOTHING) * factor, factor * SMOOTHING / n_total)
    return numbers


@triton.jit(do_not_specialize=["n_parts"])
def reduce_losses_kernel(
    in_ptrs, out_ptrs, n_parts, MEAN: tl.constexpr, Z_LOSS: tl.constexpr, BLOCK: tl.constexpr
):
    """The loss of all rows, and what that of a row is multiplied by in it. One program adds up, in
    a fixed order.

    Args:
        in_ptrs: the sums of `losses_kernel`, of n_parts programs.
        out_ptrs: the loss; and two factors, of the loss of a row and of its squared log-sum-exp.
        n_parts: how many parts there are of each sum.
        MEAN: whether the sums are divided, by the weights and by the number of rows.
        BLOCK: how many one reads at once.
    """
    sums_ptr = in_ptrs[0]
    loss = sum_of_parts(sums_ptr, n_parts, BLOCK)
    share = tl.full((), 1.0, sums_ptr.dtype.element_ty)
    z_share = share * Z_LOSS
    if MEAN:
        weights = sum_of_parts(sums_ptr + 2 * n_parts, n_parts, BLOCK)
        loss, share = loss / weights, share / weights
        z_share = z_share / sum_of_parts(sums_ptr + 3 * n_parts, n_parts, BLOCK)
    if Z_LOSS != 0.0:
        loss += sum_of_parts(sums_ptr + n_parts, n_parts, BLOCK) * z_share
    tl.store(out_ptrs[0], loss)
    tl.store(out_ptrs[1], share)
    tl.store(out_ptrs[1] + 1, z_share)


@triton.jit
def sum_of_parts(ptr, n_parts, BLOCK: tl.constexpr):
    """The sum of n_parts numbers, BLOCK at a time."""
    total = tl.zeros((BLOCK,), ptr.dtype.element_ty)
    for start in range(0, n_parts, BLOCK):
        part = start + tl.arange(0, BLOCK)
        total += tl.load(ptr + part, mask=part < n_parts, other=0.0)
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=["start", "n_rows", "n_cols", "n_total", "ignore_index"])
def losses_backward_kernel(
    in_ptrs,
    out_ptrs,
    g_stride,
    start,
    n_rows,
    n_cols,
    n_total,
    ignore_index,
    OP: tl.constexpr,
    SMOOTHING: tl.constexpr,
    Z_LOSS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What the gradient of BLOCK rows takes besides their logits and m.

    Args:
        in_ptrs: the gradient that arrives; targets; the three numbers of `losses_kernel`; the two
            factors of `reduce_losses_kernel`, if losses are reduced.
        out_ptrs: the column of the target here, −1 if it has none; and three numbers: what the
            target loses, a factor of exp(x − m), and what every element loses.
        g_stride: elements from a row to the next of what arrives; 0 if it is one number.
        OP: the gradient of the cross-entropy.
    """
    g_ptr, _, numbers_ptr = in_ptrs[:3]
    column_ptr, out_ptr = out_ptrs
    ACC: tl.constexpr = numbers_ptr.dtype.element_ty
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < n_rows
    target, kept, _ = target_and_factor(in_ptrs[:2], rows, n_rows, n_total, ignore_index, ACC)
    g = tl.load(g_ptr + rows * g_stride, mask=inside, other=0.0).to(ACC)
    m = tl.load(numbers_ptr + rows, mask=inside, other=0.0)
    d = tl.load(numbers_ptr + n_rows + rows, mask=inside, other=1.0)
    r = tl.load(numbers_ptr + 2 * n_rows + rows, mask=inside, other=0.0)
    z = kept.to(ACC) * Z_LOSS
    if len(in_ptrs) == 4:
        r = r * tl.load(in_ptrs[3])
        z = kept.to(ACC) * tl.load(in_ptrs[3] + 1)
    numbers = scalars(target, kept, r, r, z, SMOOTHING, n_total)
    found = OP.adjust(m, (d, d), numbers)
    column = target - start
    here = kept & (column >= 0) & (column < n_cols)
    r = tl.where(kept, g * r, 0.0)
    tl.store(column_ptr + rows, tl.where(here, column, -1), mask=inside)
    tl.store(out_ptr + rows, (1.0 - SMOOTHING) * r, mask=inside)
    tl.store(out_ptr + n_rows + rows, tl.where(kept, g * found[0], 0.0), mask=inside)
    tl.store(out_ptr + 2 * n_rows + rows, r * SMOOTHING / n_total, mask=inside)
