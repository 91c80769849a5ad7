"""Cross-entropy and log-probabilities of tokens, of logits of which this rank has some classes.

Forward, a rank sends (m, d), the logit of the target if it is one of its own, and one sum: 16 bytes
a row. Results are the same on all ranks. Backward nothing is sent: each rank calls backward for its
own copy of the loss, as if there were one, and writes the gradient of its own logits.

Classes, offsets and smoothing are those of the whole vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..eager import direct, nobody_watches
from ..finishing import finish
from ..launch import Memo
from ..losses import _check
from ..mapped import Way
from ..maps import mapped_elements, wide
from . import local, steps
from .ranks import Shard, agree, send
from .softmax import described, prepared, rows_of
from .steps import Loss, here, picked

_calls = Memo()
"""Calls in words, by what these follow from: making them takes longer than looking."""

_passed = Memo()
"""What has been checked, but for the targets."""


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
    if torch.compiler.is_compiling():
        if start is None or total is None:
            raise ValueError(
                "under torch.compile the ranks cannot ask each other where their classes lie: give "
                "vocab_start and vocab_size"
            )
        return Shard(group, start, total)
    gradient = x.requires_grad and torch.is_grad_enabled()
    # 1, 1.0 and True are equal, and other words.
    key = (name, x.shape, x.dtype, dim, gradient, total, *more, *map(type, more))
    call = _calls.of(key, lambda: described(name, x, dim, *more, f"vocab_size {total}"))
    return agree(group, call, x.shape[dim], x.device, start, total)


def rows_along(x: Tensor, dim: int) -> Tensor:
    """As `rows_of`, without a look at what is a matrix of rows."""
    return x if x.dim() == 2 and dim == 1 else rows_of(x, dim)


def may_be_overwritten(x: Tensor, rows: Tensor) -> bool:
    """Whether the gradient may take the place of the logits, which `rows` has as a matrix."""
    mine = x.requires_grad and not x.is_leaf and torch.is_grad_enabled()
    return mine and rows.is_contiguous() and not torch.compiler.is_compiling()


# --8<-- [start:cross-entropy]
class _CrossEntropy(Function):
    """(loss, log-sum-exps) of the rows of a matrix and a class for each."""

    @staticmethod
    def forward(ctx, x, target, weight, shard: Shard, loss: Loss):
        whole = weight is None or len(weight) == shard.total
        of_all, of_ours = (weight, None) if whole else (None, weight)
        name = "rank_summary_and_sum" if loss.label_smoothing else "rank_summary"

        summary = local.summary(name, x, implementation=loss.implementation)
        messages = steps.sent(x, summary, target, of_ours, shard, loss.ignore_index)
        rows = steps.rows_of_loss(name, messages, target, of_all, shard.total, loss)
        result, factors = rows.losses, None
        if loss.reduction != "none":
            result, factors = steps.reduced(result, loss)
        ctx.save_for_backward(x, target, rows.lse, rows.numbers, factors)
        ctx.shard, ctx.loss = shard, loss
        ctx.mark_non_differentiable(rows.lse)
        ctx.set_materialize_grads(False)
        return result, rows.lse

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        if g is None:
            return None, None, None, None, None
        x, target, lse, numbers, factors = ctx.saved_tensors
        rows = steps.Rows(lse, numbers, g)
        given = steps.numbers_of_gradient(g, target, rows, factors, x.shape[1], ctx.shard, ctx.loss)
        dx = finish("gradient", (x,), given, x.dtype, x if ctx.loss.in_place else None)
        if ctx.loss.in_place:
            torch.autograd.graph.increment_version(x)
        return dx, None, None, None, None


# --8<-- [end:cross-entropy]

_differentiable = direct(_CrossEntropy)


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
        if loss.reduction == "none":
            factors = m.new_tensor((1.0, loss.z_loss))
            result = (each + factors[1] * lse * lse).to(loss.dtype)
        else:
            result, factors = steps.reduced(steps.sums_of(each, lse, share, kept), loss)
        share, z = factors.unbind(0)
        ctx.save_for_backward(x, p, m, d, mass, kept, share, 2.0 * z * lse)
        ctx.mark_non_differentiable(lse)
        return result, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        x, p, m, d, mass, kept, share, z = ctx.saved_tensors
        r = (g.to(m.dtype) * share).expand_as(m).unsqueeze(1)
        dx = dp = None
        kept = kept.unsqueeze(1)
        if ctx.needs_input_grad[0]:
            f = (g * (share * mass + z) / d).unsqueeze(1)
            e = (wide(x) - m.unsqueeze(1)).exp()
            dx = torch.where(kept, e * f - p * r, 0.0).to(x.dtype)
        if ctx.needs_input_grad[1]:
            y = (wide(x) - m.unsqueeze(1)) - d.log().unsqueeze(1)
            dp = torch.where(kept, -y * r, 0.0)
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
    more = ("probabilities" if given else tuple(target.shape), target.dtype)
    more += (None if weight is None else "weights", *loss[:4], scale, softcap)
    shard = shard_of_classes(x, dim, group, "cross_entropy", vocab_start, vocab_size, *more)

    def check() -> bool:
        _check_all(x, target, weight, given, dim, shard.total, loss, softcap, scale)
        return True

    try:
        if x.device.type == "cpu" or torch.compiler.is_compiling():
            check()  # of targets as well
        else:
            sizes = (x.shape, x.dtype, shard.total, None if weight is None else weight.shape)
            _passed.of((*sizes, *more), check)
    except IndexError:
        if loss.reduction != "none":  # those with other rows wait for the sums of these
            sums = torch.tensor([0.0] * 4 + [1.0], dtype=local.accumulator(x.dtype))
            steps.over_all_rows(sums, loss.over_rows)
        raise
    if scale != 1.0 or softcap is not None:
        x = mapped_elements(x, Way(scale, softcap))
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    rows = rows_along(x, dim)
    if loss.in_place and not may_be_overwritten(x, rows):
        loss = loss._replace(in_place=False)
    if given or (weight is not None and loss.label_smoothing):
        result, lse = _of_distribution(rows, target, weight, given, dim, shard, loss)
    else:
        apply = _differentiable if nobody_watches(x) else _CrossEntropy.apply
        result, lse = apply(rows, target.reshape(-1, 1).contiguous(), weight, shard, loss)
    if len(shape) == 1:
        return result, lse
    return (result.view(shape) if loss.reduction == "none" else result), lse.view(shape)


def _of_distribution(
    rows: Tensor,
    target: Tensor,
    weight: Tensor | None,
    given: bool,
    dim: int,
    shard: Shard,
    loss: Loss,
) -> tuple[Tensor, Tensor]:
    """The same for rows whose targets, smoothed and weighted, are a distribution."""
    (n_rows, n_cols), epsilon = rows.shape, loss.label_smoothing
    dtype = local.accumulator(rows.dtype)
    own, whole = None, weight is None or len(weight) == shard.total
    if weight is not None:
        weight = weight.to(dtype)
        own = weight[shard.start : shard.start + n_cols] if whole else weight
    if given or weight is None or own is None:
        p = rows_of(target, dim).to(dtype)
        if epsilon:
            p = p * (1.0 - epsilon) + epsilon / shard.total
        if own is not None:
            p = p * own
        share = torch.ones(n_rows, dtype=dtype, device=rows.device)
        return _OfDistribution.apply(rows, p, share > 0, share, True, shard, loss)
    flat = target.reshape(-1).long()
    kept = flat != loss.ignore_index
    columns = torch.where(kept, here(flat, n_cols, shard.start), -1)
    factor = picked(own.expand(n_rows, -1), columns)
    share = torch.where(kept, weight[torch.where(kept, flat, 0)], 0.0) if whole else factor
    p = (own * (epsilon / shard.total)).repeat(n_rows, 1)
    if n_cols:
        there = columns.clamp(min=0).unsqueeze(1)
        p = p.scatter_add(1, there, (1.0 - epsilon) * factor.unsqueeze(1))
    return _OfDistribution.apply(rows, p, kept, share, whole, shard, loss)


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
        name = "rank_summary_and_entropy" if entropy else "rank_summary"
        summary = local.summary(name, x, implementation=implementation)
        messages = steps.sent(x, summary, index, None, shard)
        found, entropies, numbers = steps.tokens(name, messages, index.shape[1])
        ctx.save_for_backward(x, index, numbers)
        ctx.arguments = in_place, shard.start
        ctx.set_materialize_grads(False)
        if not entropy:
            ctx.mark_non_differentiable(entropies)
        return found, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx, g, g_entropy):
        x, index, numbers = ctx.saved_tensors
        in_place, start = ctx.arguments
        if g is None:
            g = torch.zeros(index.shape, dtype=numbers.dtype, device=x.device)
        given = steps.numbers_of_tokens_gradient(g, g_entropy, index, numbers, x.shape[1], start)
        kind = "gradient" if g_entropy is None else "tokens_gradient"
        if index.shape[1] <= 1 or not x.shape[1]:
            dx = finish(kind, (x,), given, x.dtype, x if in_place else None)
            if in_place:
                torch.autograd.graph.increment_version(x)
        else:  # several tokens of a row, by PyTorch's operators
            dx = finish(kind, (x,), given, numbers.dtype)
            columns = here(index, x.shape[1], start)
            gained = torch.where(columns >= 0, g, 0.0)
            dx = dx.scatter_add(1, columns.clamp(min=0), gained).to(x.dtype)
        return dx, *(None,) * 5


_tokens = direct(_Tokens)


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
    rows = rows_along(x, dim)
    in_place = inplace_backward and may_be_overwritten(x, rows)
    k = 1 if index.shape == leading else index.shape[-1]
    flat = index.reshape(len(rows), k).contiguous()
    apply = _tokens if nobody_watches(x) else _Tokens.apply
    found, entropy = apply(rows, flat, return_entropy, in_place, shard, implementation)
    return found.view(index.shape), entropy.view(leading)
