"""Cross-entropy and log-probabilities of tokens, of logits of which this rank has some classes.

Forward, a rank sends (m, d), the logit of the target if it is one of its own, and at most one more
sum: 12 to 20 bytes a row. Results are the same on all ranks. Backward nothing is sent: each rank
calls backward for its own copy of the loss, as if there were one, and writes the gradient of its
own logits. Classes, offsets and smoothing are those of the whole vocabulary.

From the sums of all ranks everything else follows by PyTorch's operators on a few numbers for each
row, and so does its gradient. A cross-entropy of classes on a GPU takes small kernels in their
place (`rank_kernels`): the host takes longer to launch operators than the device to run them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import arguments, composite, operators, plan
from ..arguments import (
    LossOptions,
    Modifiers,
    check_classes,
    check_index,
    check_loss,
)
from ..composite import RowScalars, losses_of_sums, upcast
from ..launch import Launch, Memo, plans
from ..operations.cross_entropy import (
    CROSS_ENTROPY,
    CROSS_ENTROPY_GRADIENT,
    CROSS_ENTROPY_SMOOTHED,
    CROSS_ENTROPY_SMOOTHED_GRADIENT,
)
from ..operations.gradients import GRADIENT, TOKENS_GRADIENT
from ..plan import Plan, key_of, plan_of
from .partials import (
    SUMMARY,
    SUMMARY_AND_DISTRIBUTION,
    SUMMARY_AND_ENTROPY,
    SUMMARY_AND_SUM,
    Partials,
    partials,
)
from .process_group import HEADER, Shard, agree, send
from .rank_kernels import (
    losses_backward_kernel,
    losses_kernel,
    pack_words_kernel,
    reduce_losses_kernel,
)
from .sharded_softmax import check_input, of_all_ranks, rows_of

BLOCK = 256
"""Rows of a program."""

PARTS = 1024
"""Sums of programs that one reads at once."""

_checked = Memo()
"""What has been checked, but for the values of targets."""


def _shard_of(
    x: Tensor, dim: int, group: Any, name: str, start: int | None, total: int | None, *more: object
) -> Shard:
    """Where the classes of x lie; the ranks are not asked where the caller says so in a traced
    call."""
    if (start is None) != (total is None):
        raise ValueError("vocab_start and vocab_size belong together")
    if group is None:
        return Shard(None, 0, x.shape[dim])
    if start is None and torch.compiler.is_compiling():
        raise ValueError(
            "under torch.compile the ranks cannot ask each other where their classes lie: give "
            "vocab_start and vocab_size"
        )
    return agree(group, name, x, dim, (*more, f"vocab_size {total}"), start, total)


def _may_be_overwritten(x: Tensor, rows: Tensor) -> bool:
    """Whether the gradient may take the place of the logits, which `rows` has as a matrix."""
    mine = x.requires_grad and not x.is_leaf and torch.is_grad_enabled()
    return mine and rows.is_contiguous() and not torch.compiler.is_compiling()


class _OfAllRanks(Function):
    """A total of all ranks, of which this one has a part: a gradient at one is one at the other."""

    @staticmethod
    def forward(ctx, part, total):
        return total.clone()

    @staticmethod
    def backward(ctx, g):
        return g, None


def _here(index: Tensor, n_cols: int, start: int) -> Tensor:
    """The columns of classes on this rank; −1 of those on others."""
    column = index.long() - start
    return torch.where((column >= 0) & (column < n_cols), column, -1)


def _picked(x: Tensor, columns: Tensor) -> Tensor:
    """The elements of the columns (n_rows, k), as (k, n_rows); 0 for a column of −1."""
    if not x.shape[1]:
        return x.new_zeros(columns.shape).T
    return torch.where(columns >= 0, x.gather(1, columns.clamp(min=0)), 0.0).T


# --8<-- [start:sums]
class _Sums(Function):
    """The sums of all ranks over their parts of the rows of a matrix; what follows from them is a
    few numbers for each row, and PyTorch's operators compute it and its gradient.

    Takes logits x, a distribution q or None, classes `index` (n_rows, k), and further numbers of
    rows. Returns m, the sums, the elements of the classes, and the further numbers, one tensor for
    each; (n_rows,).
    """

    @staticmethod
    def forward(ctx, x, q, index, more, kind: Partials, shard: Shard, invariant, in_place):
        inputs = (x.detach(),) if q is None else (x.detach(), q.detach())
        words = partials(kind, inputs, invariant)
        if index.shape[1]:
            columns = _here(index, x.shape[1], shard.start)
            words = (*words, *_picked(inputs[0], columns).to(words[0].dtype).unbind(0))
        words = of_all_ranks(kind, words if more is None else (*words, more), shard)
        ctx.save_for_backward(x, q, index, words[0])
        ctx.arguments = kind, shard.start, in_place
        ctx.mark_non_differentiable(words[0])
        return words

    @staticmethod
    @once_differentiable
    def backward(ctx, _, *g):
        x, q, index, m = ctx.saved_tensors
        kind, start, in_place = ctx.arguments
        n, (n_cols, k) = kind.op.sums, (x.shape[1], index.shape[1])
        others, zero = (None,) * 6, torch.zeros_like(m)
        if q is not None:  # eq: cross-entropy-distribution-gradient
            g_d, g_w, g_a = [each.unsqueeze(1) for each in g[:n]]
            distance = upcast(x) - torch.where(m == -torch.inf, 0.0, m).unsqueeze(1)
            dx = composite.weighted(g_d, distance.exp()) + torch.where(g_a == 0.0, 0.0, g_a * q)
            dq = (g_w + composite.weighted(g_a, distance)).to(q.dtype)
        op, given = GRADIENT, (g[0], -g[1] if kind is SUMMARY_AND_SUM else zero)
        if kind is SUMMARY_AND_ENTROPY:
            op, given = TOKENS_GRADIENT, (g[0] + g[1], -g[1])
        columns = _here(index, n_cols, start)
        at_target = g[n] if op is TOKENS_GRADIENT else -g[n] if k else zero
        in_finish = q is None and (k <= 1 or not n_cols)
        if q is None:
            column = columns[:, 0] if in_finish and k else torch.full_like(m, -1).long()
            out = x if in_place and in_finish else None
            dtype = x.dtype if in_finish else m.dtype
            dx = operators.finish(op, (x,), (m, column, at_target, *given), dtype, out)
        if not in_finish and k and n_cols:
            gained = torch.where(columns >= 0, torch.stack(g[n : n + k], 1), 0.0)
            dx = dx.scatter_add(1, columns.clamp(min=0), gained)
        if in_place:
            dx = dx if in_finish else x.detach().copy_(dx)
            torch.autograd.graph.increment_version(x)
        return dx.to(x.dtype), None if q is None else dq, *others


# --8<-- [end:sums]


# By kernels.


def _planned(
    kernel: Any,
    like: Tensor,
    outs: list[tuple[Any, torch.dtype]],
    programs: int,
    numbers: tuple[Any, ...],
    **constants: Any,
) -> Plan:
    """The plan of a small kernel whose inputs are on the device of a tensor."""
    launch = Launch(kernel, programs, numbers, constants, {})
    return Plan((launch,), like.new_empty(0), outs)


def _blocks(n_rows: int) -> tuple[int, int]:
    """(rows of a program, programs)."""
    block = min(BLOCK, triton.next_power_of_2(n_rows))
    return block, triton.cdiv(n_rows, block)


def _plan_losses(
    x: Tensor, own_weight: bool, shard: Shard, options: LossOptions, over_rows: bool
) -> tuple[Callable[..., Any], Plan, Plan, Plan | None]:
    """What computes the partial results of x, writes the message, computes the losses, and reduces
    them, if they are reduced."""
    epsilon, ignore_index = options.label_smoothing, options.ignore_index
    kind, op = (SUMMARY_AND_SUM, CROSS_ENTROPY_SMOOTHED) if epsilon else (SUMMARY, CROSS_ENTROPY)
    (n_rows, n_cols), dtype = x.shape, torch.promote_types(x.dtype, torch.float32)
    block, programs = _blocks(n_rows)
    each, parts = options.reduction == "none", 1 if over_rows else programs
    header = 0 if shard.headers is None else HEADER
    n_words = header + (kind.op.row_results + 1 + own_weight) * n_rows
    world = 1 if shard.group is None else shard.group.size()
    of_losses = ((n_rows,), options.dtype) if each else ((4, programs), dtype)
    pack = _planned(
        pack_words_kernel, x, [((n_words,), dtype)], programs,
        (x.stride(), shard.start, n_rows, n_cols, shard.total, ignore_index),
        HEADER=header, WEIGHT=int(own_weight), BLOCK=block,
    )  # fmt: skip
    losses = _planned(
        losses_kernel, x, [((n_rows,), dtype), ((3, n_rows), dtype), of_losses], programs,
        ((world, n_words, header), n_rows, shard.total, ignore_index),
        OP=op, PLAIN=1 + own_weight, SMOOTHING=epsilon, Z_LOSS=options.z_loss, EACH=each,
        BLOCK=block,
    )  # fmt: skip
    reduce = _planned(
        reduce_losses_kernel, x, [((), options.dtype), ((2,), dtype)], 1, (parts,),
        MEAN=options.reduction == "mean", Z_LOSS=options.z_loss,
        BLOCK=min(PARTS, triton.next_power_of_2(parts)),
    )  # fmt: skip
    of_part: Callable[..., Any] = lambda x: partials(kind, (x,))  # noqa: E731 - of no classes
    if x.numel():
        of_part = plan_of(kind.op, (x,), 1, dtype, None, options.invariant)
    return of_part, pack, losses, None if each else reduce


def _over_all_rows(sums: Tensor, groups: tuple[Any, ...]) -> Tensor:
    """The sums of all rows on the ranks of these groups."""
    for group in groups:
        sums = send(sums, Shard(group, 0, 0))[0].sum(0)
    return sums


def _all_sums(sums: Tensor, over_rows: tuple[Any, ...]) -> Tensor:
    """The four sums of all rows, where other ranks have other rows; these say whether one of their
    targets was wrong.

    Raises:
        IndexError: it was; on a CPU.
    """
    sums = _over_all_rows(torch.cat([sums, sums.new_zeros(1)]), over_rows)
    if sums.device.type == "cpu" and not torch.compiler.is_compiling() and sums[4].item():
        raise IndexError("a target is out of bounds, on a rank that has other rows")
    return sums[:4]


# --8<-- [start:cross-entropy]
class _CrossEntropy(Function):
    """(loss, log-sum-exps) of the rows of a matrix and a class for each."""

    @staticmethod
    def forward(ctx, x, target, weight, shard: Shard, options: LossOptions, over_rows, in_place):
        own = weight is not None and len(weight) != shard.total
        inputs = (x, target) if weight is None else (x, target, weight)
        head = (losses_kernel, shard[:3], shard.headers is None, options, over_rows)
        kernels = plans.get(key := key_of(head, inputs))
        if kernels is None:
            kernels = plans.keep(key, _plan_losses(x, own, shard, options, bool(over_rows)))
        of_part, pack, losses, reduce = kernels

        weights = (weight,) if own else ()
        headers = () if shard.headers is None else (shard.headers,)
        message = pack(x, target, *headers, *weights, *of_part(x))
        lines, _ = send(message, shard)
        weights = () if own or weight is None else (weight,)
        lse, numbers, result = losses(lines, target, *weights)
        factors = None
        if reduce is not None:
            if over_rows:
                result = _all_sums(result.sum(1), over_rows).unsqueeze(1)
            result, factors = reduce(result)
        ctx.save_for_backward(x, target, numbers, factors)
        ctx.arguments = shard, options, in_place
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return result, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        others = (None,) * 6
        if g is None:
            return None, *others
        x, target, numbers, factors = ctx.saved_tensors
        shard, options, in_place = ctx.arguments
        inputs = (g, target, numbers) if factors is None else (g, target, numbers, factors)
        head = (losses_backward_kernel, shard.start, shard.total, x.shape[1], options)
        kernel = plans.get(key := key_of(head, inputs))
        if kernel is None:
            (n_rows, n_cols), smoothed = x.shape, options.label_smoothing > 0.0
            block, programs = _blocks(n_rows)
            stride = g.stride(0) if g.dim() else 0
            sizes = (stride, shard.start, n_rows, n_cols, shard.total, options.ignore_index)
            made = _planned(
                losses_backward_kernel, x,
                [((n_rows,), torch.int64), ((3, n_rows), numbers.dtype)], programs, sizes,
                OP=CROSS_ENTROPY_SMOOTHED_GRADIENT if smoothed else CROSS_ENTROPY_GRADIENT,
                SMOOTHING=options.label_smoothing, Z_LOSS=options.z_loss, BLOCK=block,
            )  # fmt: skip
            kernel = plans.keep(key, made)
        columns, found = kernel(*inputs)
        given = (numbers[0], columns, *found.unbind(0))
        dx = plan.finish(GRADIENT, (x,), given, x.dtype, x if in_place else None)
        if in_place:
            torch.autograd.graph.increment_version(x)
        return dx, *others


# --8<-- [end:cross-entropy]

_differentiable = operators.direct(_CrossEntropy)


def _by_operators(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    shard: Shard,
    options: LossOptions,
    over_rows: tuple[Any, ...],
    in_place: bool,
) -> tuple[Tensor, Tensor]:
    """(loss, log-sum-exps) of the rows of a matrix; the target is a class for each row, (n_rows,
    1), or a distribution."""
    (n_rows, n_cols), epsilon = x.shape, options.label_smoothing
    dtype = composite.accumulator(x.dtype)
    own = weight = weight if weight is None else weight.to(dtype)
    whole = weight is None or len(weight) == shard.total
    if own is not None and whole:
        own = own[shard.start : shard.start + n_cols]
    kind, q, more = SUMMARY_AND_SUM if epsilon else SUMMARY, None, None
    given = target.is_floating_point()
    classes = torch.full((n_rows,), -2, device=x.device) if given else target[:, 0].long()
    kept = classes != options.ignore_index
    classes = torch.where(kept, classes, -1)
    each_row = factor = kept.to(dtype)
    if given:
        q = target.to(dtype)
        q = q * (1.0 - epsilon) + epsilon / shard.total if epsilon else q
        q = q if own is None else q * own
    elif own is not None:
        columns = _here(classes, n_cols, shard.start).unsqueeze(1)
        of_target = _picked(own.expand(x.shape), columns)[0]
        if whole:
            factor = factor * weight[classes.clamp(min=0)]  # pyright: ignore
        else:
            more = of_target
        if epsilon:  # every class counts, and the target more
            q = (own * (epsilon / shard.total)).repeat(n_rows, 1)
            if n_cols:
                share = ((1.0 - epsilon) * of_target).unsqueeze(1)
                q = q.scatter_add(1, columns.clamp(min=0), share)
            classes = torch.where(kept, -2, -1)
    kind = kind if q is None else SUMMARY_AND_DISTRIBUTION
    index = classes.unsqueeze(1) if q is None else classes.new_empty(n_rows, 0)
    words = _Sums.apply(x, q, index, more, kind, shard, options.invariant, in_place)
    # Whatever an ignored row holds, its gradient is 0.
    m, *words = [torch.where(kept, each, 1.0) for each in words]
    factor = factor if more is None else words.pop() * each_row
    sums, at_target = tuple(words[: kind.op.sums]), words[-1] if q is None else m
    b = c = None
    if q is not None:
        b, c = torch.zeros_like(m), each_row
    elif epsilon:
        b, c = factor * (1.0 - epsilon), factor * (epsilon / shard.total)
    each = options.reduction == "none"
    z = each_row * options.z_loss if each else torch.zeros_like(each_row)
    losses, lse = losses_of_sums(m, sums, at_target, RowScalars(classes, factor, z, b, c))
    if each:
        return losses.to(options.dtype), lse
    parts = torch.stack([losses.sum(), (lse * lse).sum(), factor.sum(), each_row.sum()])
    if over_rows:
        parts = _OfAllRanks.apply(parts, _all_sums(parts.detach(), over_rows))
    loss, squares, weights, rows = parts.unbind(0)
    if options.reduction == "mean":
        loss, squares = loss / weights, squares / rows
    if options.z_loss:
        loss = loss + options.z_loss * squares
    return loss.to(options.dtype), lse


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    group: Any,
    start: int | None,
    total: int | None,
    options: LossOptions,
    in_place: bool,
    over_rows: tuple[Any, ...] = (),
) -> tuple[Tensor, Tensor]:
    """Return (loss, log-sum-exps) of logits of which this rank has some classes.

    Args:
        x: (C of this rank,), (N, C of this rank) or (N, C of this rank, d1, …).
        target: classes of the whole vocabulary, the same on all ranks; or probabilities of the
            classes of this rank.
        weight: of all classes, or of those of this rank.
        group: of the ranks that have the other classes; None if there are none.
        start: the class of the whole vocabulary that is the first one here.
        total: how many there are.
        options: what is asked for.
        in_place: write the gradient over the logits, if they may be overwritten.
        over_rows: groups that have other rows: a mean is over theirs as well.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `cross_entropy` of whole rows, and as
            `agree`.
    """
    dim, traced = options.dim, torch.compiler.is_compiling()
    checked = (type(x), x.dtype, x.dim(), type(group))
    if traced or checked not in _checked:
        check_input(x, dim, group)
        if not traced:
            _checked.keep(checked, True)
    given = target.is_floating_point() and target.shape == x.shape
    more = ("probabilities" if given else tuple(target.shape), target.dtype)
    more += (None if weight is None else "weights", *options[1:5], *options[6:8])
    shard = _shard_of(x, dim, group, "cross_entropy", start, total, *more)
    kinds = (type(options.z_loss), type(options.scale), type(options.softcap))
    key = (x.shape, x.device, target.device, shard.total, more, kinds)
    if weight is not None:
        key += (weight.shape, weight.device)
    if traced or key not in _checked:
        _check(x, target, weight, given, shard.total, options)
        if not traced:
            _checked.keep(key, True)
    if target.device.type == "cpu" and not (given or traced):
        try:
            message = "Target {} is out of bounds."
            check_classes(target, shard.total, message, options.ignore_index)
        except IndexError:
            if options.reduction != "none":  # those with other rows wait for the sums of these
                dtype = composite.accumulator(x.dtype)
                _over_all_rows(torch.tensor([0.0] * 4 + [1.0], dtype=dtype), over_rows)
            raise
    if options.scale != 1.0 or options.softcap is not None:
        x = composite.modified_elements(x, Modifiers(options.scale, options.softcap))
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    rows = x if x.dim() == 2 else rows_of(x, dim)
    in_place = in_place and _may_be_overwritten(x, rows)
    flat = rows_of(target, dim) if given else target.reshape(-1, 1).contiguous()
    on_gpu = arguments.INTERPRETED or x.device.type != "cpu"
    distribution = given or (weight is not None and options.label_smoothing)
    if traced or distribution or not (on_gpu and len(rows)):
        result, lse = _by_operators(rows, flat, weight, shard, options, over_rows, in_place)
        lse = lse.detach()
    else:
        apply = _differentiable if operators.nobody_watches(x) else _CrossEntropy.apply
        weight = weight if weight is None else weight.contiguous()
        result, lse = apply(rows, flat, weight, shard, options, over_rows, in_place)
    if len(shape) == 1:
        return result, lse
    return (result.view(shape) if options.reduction == "none" else result), lse.view(shape)


def _check(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    given: bool,
    total: int,
    options: LossOptions,
) -> None:
    """Check the logits of all ranks: tensors of their shape, which have no memory."""
    dim, ignore_index, reduction, smoothing, z_loss, _, scale, softcap, _ = options
    shape = [total if i == dim else size for i, size in enumerate(x.shape)]
    like = x.detach().new_empty(()).expand(shape)
    if given:
        target = target.detach().new_empty(()).expand(shape)
    if weight is not None and weight.shape == (x.shape[dim],):
        weight = weight.detach().new_empty(()).expand(total)
    check_loss(like, target, weight, reduction, smoothing, z_loss, softcap, scale, ignore_index)


def token_logprobs(
    logits: Tensor,
    index: Tensor,
    group: Any,
    start: int | None,
    total: int | None,
    entropy: bool,
    in_place: bool,
    invariant: bool,
) -> tuple[Tensor, Tensor]:
    """Return (log-probabilities, entropies) of logits of which this rank has some classes; the
    index is the same on all ranks, and counts all classes.

    Raises:
        TypeError, ValueError, IndexError: as `token_logprobs` of whole rows, and as `agree`.
    """
    x, dim, traced = logits, logits.dim() - 1, torch.compiler.is_compiling()
    checked = (type(x), x.dtype, x.dim(), type(group))
    if traced or checked not in _checked:
        check_input(x, -1, group)
        if not traced:
            _checked.keep(checked, True)
    more = (tuple(index.shape), index.dtype, entropy)
    shard = _shard_of(x, dim, group, "token_logprobs", start, total, *more)
    key = (x.shape, x.device, index.device, more)
    if traced or key not in _checked:
        check_index(logits, index)
        if not traced:
            _checked.keep(key, True)
    if index.device.type == "cpu" and not traced:
        check_classes(index, shard.total, "index {} is out of bounds", None)
    rows = x if x.dim() == 2 else rows_of(x, dim)
    in_place = in_place and _may_be_overwritten(x, rows)
    leading = x.shape[:-1]
    flat = index.reshape(len(rows), 1 if index.shape == leading else index.shape[-1]).contiguous()
    kind = SUMMARY_AND_ENTROPY if entropy else SUMMARY
    m, *words = _Sums.apply(rows, None, flat, None, kind, shard, invariant, in_place)
    # eq: log-probability, entropy-from-summary
    log_d = words[0].log()
    entropies = log_d - words[1] / words[0] if entropy else log_d.detach()
    if flat.shape[1] == 1:
        found = (words[-1] - m) - log_d
    elif flat.shape[1]:
        found = (torch.stack(words[kind.op.sums :], 1) - m.unsqueeze(1)) - log_d.unsqueeze(1)
    else:
        found = m.new_empty(index.shape)
    return found.view(index.shape), entropies.view(leading)
