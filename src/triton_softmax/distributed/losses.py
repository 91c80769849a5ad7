"""Cross-entropy and log-probabilities of tokens, of logits of which this rank has some classes.

Forward, a rank sends (m, d), the logit of the target if it is one of its own, and one sum: 16 bytes
a row. Results are the same on all ranks. Backward nothing is sent: each rank calls backward for its
own copy of the loss, as if there were one, and writes the gradient of its own logits.

Classes, offsets and smoothing are those of the whole vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..finishing import finish
from ..losses import _check
from ..mapped import Way
from ..maps import mapped_elements, wide
from . import local
from .ranks import Shard, agree, send
from .softmax import described, prepared, rows_of


class Loss(NamedTuple):
    """What a cross-entropy is asked for, besides tensors."""

    ignore_index: int
    reduction: str
    label_smoothing: float
    z_loss: float
    in_place: bool
    implementation: str | None
    over_rows: tuple[Any, ...] = ()
    """Groups that have other rows: a mean is over theirs as well."""


def shard_of_classes(
    x: Tensor,
    dim: int,
    group: Any,
    name: str,
    start: int | None,
    total: int | None,
    *more: object,
) -> Shard:
    """Where the classes of x lie; without an exchange for one who says so while traced."""
    if (start is None) != (total is None):
        raise ValueError("vocab_start and vocab_size belong together")
    if group is None:
        return Shard(None, 0, x.shape[dim])
    call = described(name, x, dim, *more, f"vocab_size {total}")
    if torch.compiler.is_compiling():
        if start is None or total is None:
            raise ValueError(
                "under torch.compile the ranks cannot ask each other where their classes lie: give "
                "vocab_start and vocab_size"
            )
        return Shard(group, start, total)
    return agree(group, call, x.shape[dim], x.device, start, total)


def here(target: Tensor, n_cols: int, start: int) -> Tensor:
    """The columns of targets on this rank; −1 of those on others."""
    column = target - start
    return torch.where((column >= 0) & (column < n_cols), column, -1)


def picked(x: Tensor, columns: Tensor) -> Tensor:
    """The elements of the columns (n_rows,) or (n_rows, k), in the accumulator's type; 0 for a
    column of −1."""
    flat = columns if columns.dim() == 2 else columns.unsqueeze(1)
    if x.shape[1]:
        found = torch.where(flat >= 0, wide(x.gather(1, flat.clamp(min=0))), 0.0)
    else:
        found = torch.zeros(flat.shape, dtype=local.accumulator(x.dtype), device=x.device)
    return found if columns.dim() == 2 else found.squeeze(1)


def may_be_overwritten(x: Tensor, rows: Tensor) -> bool:
    """Whether the gradient may take the place of the logits, which `rows` has as a matrix."""
    mine = x.requires_grad and not x.is_leaf and torch.is_grad_enabled()
    return mine and rows.is_contiguous() and not torch.compiler.is_compiling()


def over_all_rows(sums: Tensor, groups: tuple[Any, ...]) -> Tensor:
    """The sums of the rows of all these groups' ranks, each added up in the order of the ranks."""
    for group in groups:
        sums = local.added_up(send([sums], Shard(group, 0, 0))())[0]
    return sums


class _Losses(NamedTuple):
    """The losses of rows before they are reduced."""

    each: Tensor
    """Without the z-loss."""
    lse: Tensor
    """0 in ignored rows."""
    kept: Tensor
    """1 of a row that is not ignored, else 0."""
    share: Tensor
    """What a mean divides by, of each row."""


def _reduced(losses: _Losses, loss: Loss) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, share of a row in it, share of its squared log-sum-exp)."""
    squared = losses.kept * losses.lse * losses.lse
    if loss.reduction == "none":
        one = torch.ones_like(losses.each)
        return losses.each + loss.z_loss * squared, one, loss.z_loss * losses.kept
    numbers = (losses.each, squared, losses.share, losses.kept)
    right = losses.each.new_zeros(())
    sums = torch.stack([*[each.sum() for each in numbers], right])
    total, z_total, divisor, n_kept, wrong = over_all_rows(sums, loss.over_rows)
    if loss.over_rows and wrong.device.type == "cpu" and not torch.compiler.is_compiling():
        if wrong.item():
            raise IndexError("a target is out of bounds, on a rank that has other rows")
    if loss.reduction == "sum":
        divisor = n_kept = torch.ones_like(divisor)
    result = total / divisor
    if loss.z_loss:
        result = result + loss.z_loss * z_total / n_kept
    ones = torch.ones_like(losses.each)
    return result, ones / divisor, loss.z_loss * losses.kept / n_kept


# --8<-- [start:cross-entropy]
class _CrossEntropy(Function):
    """(loss, log-sum-exps) of the rows of a matrix and a class for each."""

    @staticmethod
    def forward(ctx, x, target, weight, shard: Shard, loss: Loss):
        x = x.detach()
        kept = target != loss.ignore_index
        target = torch.where(kept, target, 0).long()
        epsilon, n_cols = loss.label_smoothing, x.shape[1]
        columns = torch.where(kept, here(target, n_cols, shard.start), -1)
        weight_is_whole = weight is None or len(weight) == shard.total
        name = "rank_summary_and_sum" if epsilon else "rank_summary"

        words = local.summary(name, x, implementation=loss.implementation)
        words += (picked(x, columns),)
        if weight is not None and not weight_is_whole:
            words += (picked(weight.expand(len(x), -1), columns),)
        m, d, *more = local.merged(name, send(words, shard)())
        x_sum = more.pop(0) if epsilon else torch.zeros_like(m)
        x_target, *of_weight = more
        # eq: cross-entropy-from-summary
        log_d = d.log()
        each = log_d + (1.0 - epsilon) * (m - x_target)
        if epsilon:
            # eq: cross-entropy-smoothed
            each = each + (epsilon * m - epsilon / shard.total * x_sum)
        factor = kept.to(m.dtype)
        if weight is not None:
            factor = factor * (of_weight[0] if of_weight else weight.to(m.dtype)[target])
        each = torch.where(kept, each * factor, 0.0)
        lse = torch.where(kept, m + log_d, 0.0)
        losses = _Losses(each, lse, kept.to(m.dtype), factor)
        result, share, z_share = _reduced(losses, loss)
        ctx.save_for_backward(x, m, d, columns, kept, factor * share, 2.0 * z_share * lse)
        ctx.epsilon, ctx.total, ctx.in_place = epsilon, shard.total, loss.in_place
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return result, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        if g is None:
            return None, None, None, None, None
        x, m, d, columns, kept, r, z = ctx.saved_tensors
        g = g.to(m.dtype)
        # eq: cross-entropy-gradient
        f = torch.where(kept, g * (r + z) / d, 0.0)
        r = torch.where(kept, g * r, 0.0)
        numbers = (m, columns, (1.0 - ctx.epsilon) * r, f, ctx.epsilon / ctx.total * r)
        dx = finish("gradient", (x,), numbers, x.dtype, x if ctx.in_place else None)
        if ctx.in_place:
            torch.autograd.graph.increment_version(x)
        return dx, None, None, None, None


# --8<-- [end:cross-entropy]


class _OfDistribution(Function):
    """The same for a distribution p as target, smoothed and weighted already: class probabilities,
    or class weights together with label smoothing. PyTorch's operators take the sums with p, and
    write the gradient: no kernel does."""

    @staticmethod
    def forward(ctx, x, p, kept, share, share_is_whole: bool, shard: Shard, loss: Loss):
        dtype = local.accumulator(x.dtype)
        x, p = x.detach(), p.detach().to(dtype)

        m, d = local.summary("rank_summary", x, implementation=loss.implementation)
        distance = wide(x) - torch.where(m == -torch.inf, 0.0, m).unsqueeze(1)
        mass, crossed = p.sum(1), (p * distance).sum(1)
        more = () if share_is_whole else (share,)
        words = send((m, d, crossed, mass, *more), shard)()
        m_rank, of_rank, mass_rank = words[:, 0], words[:, 2], words[:, 3]
        m, d, _, mass, *of_weight = local.merged("rank_summary", words)
        # Relative to the maximum of all: Σ p·(x − m).
        moved = torch.where(mass_rank == 0.0, 0.0, mass_rank * (m_rank - m))
        crossed = local.added_up(of_rank + moved)
        log_d = d.log()
        each = torch.where(kept, mass * log_d - crossed, 0.0)
        lse = torch.where(kept, m + log_d, 0.0)
        share = of_weight[0] if of_weight else share
        result, share, z_share = _reduced(_Losses(each, lse, kept.to(m.dtype), share), loss)
        ctx.save_for_backward(x, p, m, d, mass, kept, share, 2.0 * z_share * lse)
        ctx.mark_non_differentiable(lse)
        return result, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        x, p, m, d, mass, kept, share, z = ctx.saved_tensors
        g = g.to(m.dtype)
        dx = dp = None
        kept = kept.unsqueeze(1)
        if ctx.needs_input_grad[0]:
            f = (g * (share * mass + z) / d).unsqueeze(1)
            e = (wide(x) - m.unsqueeze(1)).exp()
            dx = torch.where(kept, e * f - p * (g * share).unsqueeze(1), 0.0).to(x.dtype)
        if ctx.needs_input_grad[1]:
            y = (wide(x) - m.unsqueeze(1)) - d.log().unsqueeze(1)
            dp = torch.where(kept, -y * (g * share).unsqueeze(1), 0.0)
        return dx, dp, *(None,) * 5


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    loss: Loss,
    group: Any,
    *,
    softcap: float | None = None,
    scale: float = 1.0,
    vocab_start: int | None = None,
    vocab_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(loss, log-sum-exps) of `losses.cross_entropy`, of logits of which this rank has some
    classes.

    Args:
        x: (C of this rank,), (N, C of this rank) or (N, C of this rank, d1, …).
        target: classes of the whole vocabulary, the same on all ranks; or probabilities of the
            classes of this rank.
        weight: of all classes, or of those of this rank.
        loss: the settings.
        group: of the ranks that have the other classes.
        softcap, scale: as there.
        vocab_start: the class of the whole vocabulary that is the first one here.
        vocab_size: how many there are.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as there, and as `ranks.agree`.
    """
    dim = 0 if x.dim() == 1 else 1
    x, dim = prepared(x, dim, group)
    given = target.is_floating_point() and target.shape == x.shape
    more = [tuple(target.shape) if not given else "probabilities", target.dtype]
    more += [None if weight is None else "weights", *loss[:4], scale, softcap]
    n_cols = x.shape[dim]
    shard = shard_of_classes(x, dim, group, "cross_entropy", vocab_start, vocab_size, *more)
    try:
        _check_all(x, target, weight, given, dim, shard.total, loss, softcap, scale)
    except IndexError:
        if loss.reduction != "none":  # those with other rows wait for the sums of these
            sums = torch.tensor([0.0] * 4 + [1.0], dtype=local.accumulator(x.dtype))
            over_all_rows(sums, loss.over_rows)
        raise
    if scale != 1.0 or softcap is not None:
        x = mapped_elements(x, Way(scale, softcap))
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    rows = rows_of(x, dim)
    loss = loss._replace(in_place=loss.in_place and may_be_overwritten(x, rows))
    dtype, epsilon = local.accumulator(x.dtype), loss.label_smoothing
    own = None
    if weight is not None:
        weight = weight.to(dtype)
        own = weight if len(weight) != shard.total else weight[shard.start : shard.start + n_cols]
    if given:
        p = rows_of(target, dim).to(dtype)
        if epsilon:
            p = p * (1.0 - epsilon) + epsilon / shard.total
        if own is not None:
            p = p * own
        share = torch.ones(len(rows), dtype=dtype, device=x.device)
        result, lse = _OfDistribution.apply(rows, p, share > 0, share, True, shard, loss)
    elif weight is not None and own is not None and epsilon:
        flat = target.reshape(-1).long()
        kept = flat != loss.ignore_index
        columns = torch.where(kept, here(flat, n_cols, shard.start), -1)
        factor = picked(own.expand(len(rows), -1), columns)
        share, whole = factor, len(weight) == shard.total
        if whole:
            share = torch.where(kept, weight[torch.where(kept, flat, 0)], 0.0)
        p = (own * (epsilon / shard.total)).repeat(len(rows), 1)
        there = columns.clamp(min=0).unsqueeze(1)
        if n_cols:
            p = p.scatter_add(1, there, (1.0 - epsilon) * factor.unsqueeze(1))
        result, lse = _OfDistribution.apply(rows, p, kept, share, whole, shard, loss)
    else:
        result, lse = _CrossEntropy.apply(rows, target.reshape(-1), weight, shard, loss)
    if loss.reduction == "none":
        result = result.view(shape)
    return result, lse.view(shape)


def _check_all(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    given: bool,
    dim: int,
    total: int,
    loss: Loss,
    softcap: float | None,
    scale: float,
) -> None:
    """What `losses.cross_entropy` refuses, of the logits of all ranks: tensors of their shape,
    which have no memory."""
    shape = [total if i == dim else size for i, size in enumerate(x.shape)]
    like = x.detach().new_empty(()).expand(shape)
    if given:
        target = target.detach().new_empty(()).expand(shape)
    if weight is not None and weight.shape == (x.shape[dim],):
        weight = weight.detach().new_empty(()).expand(total)
    _check(
        like,
        target,
        weight,
        loss.reduction,
        loss.label_smoothing,
        loss.z_loss,
        softcap,
        scale,
        loss.ignore_index,
    )


class _Tokens(Function):
    """Log-probabilities (n_rows, k) and entropies of the rows of a matrix, for k tokens each."""

    @staticmethod
    def forward(ctx, x, index, entropy: bool, in_place: bool, shard: Shard, implementation):
        x = x.detach()
        columns = here(index, x.shape[1], shard.start)
        name = "rank_summary_and_entropy" if entropy else "rank_summary"

        words = local.summary(name, x, implementation=implementation)
        words += tuple(picked(x, columns).unbind(1))
        m, d, *more = local.merged(name, send(words, shard)())
        mean = more.pop(0) / d if entropy else torch.zeros_like(m)
        x_index = torch.stack(more, 1) if more else m.new_empty(len(m), 0)
        log_d = d.log()
        ctx.save_for_backward(x, m, d, mean, columns)
        ctx.arguments = entropy, in_place
        # eq: log-probability, entropy-from-summary
        return (x_index - m.unsqueeze(1)) - log_d.unsqueeze(1), log_d - mean

    @staticmethod
    @once_differentiable
    def backward(ctx, g, g_entropy):
        x, m, d, mean, columns = ctx.saved_tensors
        entropy, in_place = ctx.arguments
        g = g.to(m.dtype)
        h = g_entropy.to(m.dtype) / d if entropy else torch.zeros_like(m)
        f = h * mean - g.sum(1) / d
        one = columns.shape[1] == 1
        target = columns[:, 0] if one else torch.full_like(m, -1, dtype=torch.int64)
        at_target = g[:, 0] if one else torch.zeros_like(m)
        # eq: entropy-gradient, log-probability-gradient
        numbers = (m, target, at_target, f, h)
        if one or not columns.shape[1] or not x.shape[1]:
            out = x if in_place else None
            dx = finish("tokens_gradient", (x,), numbers, x.dtype, out)
        else:  # several tokens of a row, by PyTorch's operators
            dx = finish("tokens_gradient", (x,), numbers, m.dtype)
            gained = torch.where(columns >= 0, g, 0.0)
            dx = dx.scatter_add(1, columns.clamp(min=0), gained).to(x.dtype)
            in_place = False
        if in_place:
            torch.autograd.graph.increment_version(x)
        return dx, *(None,) * 5


def token_logprobs(
    logits: Tensor,
    index: Tensor,
    return_entropy: bool,
    inplace_backward: bool,
    implementation: str | None,
    group: Any,
    *,
    vocab_start: int | None = None,
    vocab_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(log-probabilities, entropies) of `tokens.token_logprobs`, of logits of which this rank has
    some classes; the index is the same on all ranks, and counts all classes.

    Raises:
        TypeError, ValueError, IndexError: as there, and as `ranks.agree`.
    """
    x, dim = prepared(logits, -1, group)
    more = (tuple(index.shape), index.dtype, return_entropy)
    shard = shard_of_classes(x, dim, group, "token_logprobs", vocab_start, vocab_size, *more)
    if index.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"index must hold int64 or int32, not {index.dtype}")
    leading = x.shape[:-1]
    if index.shape != leading and index.shape[:-1] != leading:
        raise ValueError(
            f"index of shape {tuple(index.shape)} does not go with logits of shape {tuple(x.shape)}"
        )
    if index.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = (index < 0) | (index >= shard.total)
        if wrong.any():
            raise IndexError(f"index {index[wrong][0].item()} is out of bounds")
    rows = rows_of(x, dim)
    in_place = inplace_backward and may_be_overwritten(x, rows)
    k = 1 if index.shape == leading else index.shape[-1]
    flat = index.reshape(len(rows), k).long()
    found, entropy = _Tokens.apply(rows, flat, return_entropy, in_place, shard, implementation)
    return found.view(index.shape), entropy.view(leading)
