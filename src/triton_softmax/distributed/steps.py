"""The steps of a loss between its summary and its gradient, each for all rows at once.

On a GPU, and in Triton's interpreter, a step is one small kernel: the host takes longer to launch
them than the device to run them. On a CPU, and while a call is traced, PyTorch's operators do the
same; a compiler makes few kernels of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..choose.vectors import ceil_div, next_power_of_2
from ..launch import Launch, Memo, cuda_index, current_device
from ..maps import wide
from . import local, ranks
from .kernels import (
    losses_backward_kernel,
    losses_kernel,
    pack_words_kernel,
    reduce_losses_kernel,
    tokens_backward_kernel,
    tokens_kernel,
)
from .operations import SUMMARIES
from .ranks import Shard

BLOCK = 256
"""Rows of a program."""

PARTS = 1024
"""Sums of programs that one reads at once."""

NONE = -(1 << 62)
"""An index that is ignored where none is."""

_launches = Memo()


class Loss(NamedTuple):
    """What a cross-entropy is asked for, besides tensors."""

    ignore_index: int
    reduction: str
    label_smoothing: float
    z_loss: float
    in_place: bool
    implementation: str | None
    dtype: torch.dtype
    """Of the loss."""
    over_rows: tuple[Any, ...] = ()
    """Groups that have other rows: a mean is over theirs as well."""


def _run(
    kernel: Any,
    inputs: tuple[Tensor, ...],
    outs: tuple[Tensor, ...],
    programs: int,
    numbers: tuple,
    constants: dict[str, Any],
) -> None:
    """Launch a kernel; what is prepared for it is kept for calls of the same kind."""
    index = cuda_index(outs[0])
    if index >= 0 and index != current_device():
        with torch.cuda.device(index):
            return _run(kernel, inputs, outs, programs, numbers, constants)
    key = (kernel.__name__, programs, index, numbers, *constants.values())
    for each in inputs:
        key += (each.dtype, each.get_device(), each.data_ptr() & 15)
    key += tuple([each.dtype for each in outs])
    launch = _launches.of(key, lambda: Launch(kernel, programs, numbers, constants, {}))
    launch.run(inputs, outs)


def by_kernels(index: Tensor) -> bool:
    """Whether kernels do the steps. The same on all ranks, since the targets are."""
    return index.numel() > 0 and not torch.compiler.is_compiling() and local.by_kernels(index)


def _blocks(n_rows: int) -> tuple[int, int]:
    """(rows of a program, programs)."""
    block = min(BLOCK, next_power_of_2(n_rows))
    return block, ceil_div(n_rows, block)


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


class Messages(NamedTuple):
    """The messages of all ranks, in their order: a header, and then `k` words of each row."""

    lines: Tensor
    """(ranks, words)."""
    header: int
    """Words of a header."""
    k: int
    n_rows: int

    def words(self) -> Tensor:
        """(ranks, k, n_rows)."""
        return self.lines[:, self.header :].unflatten(1, (self.k, self.n_rows))


def sent(
    x: Tensor,
    summary: tuple[Tensor, ...],
    index: Tensor,
    weight: Tensor | None,
    shard: Shard,
    ignore_index: int = NONE,
) -> Messages:
    """Send what this rank knows of rows, in one message, and wait for those of the others.

    Args:
        x: logits, a matrix.
        summary: m and the sums of each row.
        index: (n_rows, tokens), among all classes.
        weight: of the classes here, if ranks have different ones.
        shard: of this rank.
        ignore_index: tokens that are none.

    Raises:
        RuntimeError: as `ranks.send`.
    """
    (n_rows, n_cols), n_tokens = x.shape, index.shape[1]
    header, weights = shard.header, () if weight is None else (weight.contiguous(),)
    first = 0 if header is None else header.shape[1]
    k = len(summary) + n_tokens + len(weights)
    if by_kernels(index):
        block, programs = _blocks(n_rows)
        message = summary[0].new_empty(first + k * n_rows)
        given = (x, index, *(() if header is None else (header,)), *weights, *summary)
        numbers = (x.stride(), shard.start, n_rows, n_cols, shard.total, n_tokens, ignore_index)
        constants = {"HEADER": first, "WEIGHT": len(weights), "BLOCK": block}
        _run(pack_words_kernel, given, (message,), programs * n_tokens, numbers, constants)
    else:
        columns = torch.where(index != ignore_index, here(index, n_cols, shard.start), -1)
        of_tokens = picked(x, columns).unbind(1)
        of_weights = [picked(each.expand(n_rows, -1), columns[:, 0]) for each in weights]
        message = torch.cat([*summary, *of_tokens, *of_weights])
        if header is not None:
            message = torch.cat([header[0].to(message.dtype), message])
    if not n_rows:
        return Messages(message[first:].unsqueeze(0), 0, k, n_rows)
    return Messages(ranks.gathered(message, first, shard), first, k, n_rows)


class Rows(NamedTuple):
    """What is known of the rows of a cross-entropy when the messages are there."""

    lse: Tensor
    """Log-sum-exps, 0 of ignored rows."""
    numbers: Tensor
    """(3, n_rows): m, d, and the weight of the target, 0 of ignored rows."""
    losses: Tensor
    """Of each row; or sums over the rows of each program, (4, programs): of the losses, the squared
    log-sum-exps, the weights, and the rows that are not ignored."""


def rows_of_loss(
    name: str, messages: Messages, target: Tensor, weight: Tensor | None, total: int, loss: Loss
) -> Rows:
    """The losses of rows, from the messages of all ranks.

    Args:
        name: of the summaries.
        messages: of all ranks.
        target: (n_rows, 1).
        weight: of all classes, if all ranks have it.
        total: how many classes there are.
        loss: the settings.
    """
    lines, header, k, n_rows = messages
    op, each = SUMMARIES[name], loss.reduction == "none"
    plain = k - op.row_results  # the logit, and the weight if it was sent
    if by_kernels(target):
        block, programs = _blocks(n_rows)
        lse, numbers = lines.new_empty(n_rows), lines.new_empty(3, n_rows)
        found = lse.new_empty(n_rows, dtype=loss.dtype) if each else lines.new_empty(4, programs)
        given = (lines, target, *(() if weight is None else (weight.contiguous(),)))
        sizes = ((*lines.shape, header), n_rows, total, loss.ignore_index)
        constants = {
            "OP": op,
            "PLAIN": plain,
            "SMOOTHING": loss.label_smoothing,
            "Z_LOSS": loss.z_loss,
            "EACH": each,
            "BLOCK": block,
        }
        _run(losses_kernel, given, (lse, numbers, found), programs, sizes, constants)
        return Rows(lse, numbers, found)
    words = local.merged(name, messages.words())
    m, d, x_target = words[0], words[1], words[op.row_results]
    target, epsilon = target[:, 0], loss.label_smoothing
    kept = target != loss.ignore_index
    factor = kept.to(m.dtype)
    if weight is not None:
        factor = factor * weight.to(m.dtype)[torch.where(kept, target, 0).long()]
    elif plain == 2:
        factor = words[-1]
    # eq: cross-entropy-from-summary
    log_d = d.log()
    losses = log_d + (1.0 - epsilon) * (m - x_target)
    if epsilon:
        # eq: cross-entropy-smoothed
        losses = losses + (epsilon * m - epsilon / total * words[2])
    losses = torch.where(kept, losses * factor, 0.0)
    lse = torch.where(kept, m + log_d, 0.0)
    numbers = torch.stack([m, d, factor])
    if each:
        return Rows(lse, numbers, (losses + loss.z_loss * (lse * lse)).to(loss.dtype))
    return Rows(lse, numbers, sums_of(losses, lse, factor, kept))


def sums_of(losses: Tensor, lse: Tensor, weights: Tensor, kept: Tensor) -> Tensor:
    """The sums over all rows, as those of one program."""
    n_kept = kept.to(lse.dtype).sum()
    return torch.stack([losses.sum(), (lse * lse).sum(), weights.sum(), n_kept]).unsqueeze(1)


def over_all_rows(sums: Tensor, groups: tuple[Any, ...]) -> Tensor:
    """The sums of the rows of all these groups' ranks, each added up in the order of the ranks."""
    for group in groups:
        sums = local.added_up(ranks.send([sums], Shard(group, 0, 0))())[0]
    return sums


def reduced(sums: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """(the loss, two factors in it: of the loss of a row and of its squared log-sum-exp).

    Args:
        sums: (4, programs), see `Rows`.
        loss: the settings; not without a reduction.

    Raises:
        IndexError: a rank that has other rows has seen a wrong target; on a CPU.
    """
    mean, z_loss = loss.reduction == "mean", loss.z_loss
    if loss.over_rows:
        right = sums.new_zeros(1)
        sums = over_all_rows(torch.cat([sums.sum(1), right]), loss.over_rows)
        if sums.device.type == "cpu" and not torch.compiler.is_compiling() and sums[4].item():
            raise IndexError("a target is out of bounds, on a rank that has other rows")
        sums = sums[:4].unsqueeze(1)
    if by_kernels(sums):
        result, factors = sums.new_empty((), dtype=loss.dtype), sums.new_empty(2)
        parts = sums.shape[1]
        block = min(PARTS, next_power_of_2(parts))
        constants = {"MEAN": mean, "Z_LOSS": z_loss, "BLOCK": block}
        _run(reduce_losses_kernel, (sums,), (result, factors), 1, (parts,), constants)
        return result, factors
    result, squares, weights, rows = sums.sum(1)
    one = torch.ones_like(result)
    factors = torch.stack([one, z_loss * one])
    if mean:
        result, factors = result / weights, factors / torch.stack([weights, rows])
    if z_loss:
        result = result + factors[1] * squares
    return result.to(loss.dtype), factors


def numbers_of_gradient(
    g: Tensor,
    target: Tensor,
    rows: Rows,
    factors: Tensor | None,
    n_cols: int,
    shard: Shard,
    loss: Loss,
) -> tuple[Tensor, ...]:
    """What "gradient" of `finishing.FINISHES` takes.

    Args:
        g: the gradient that arrives, of all losses together or of each.
        target: (n_rows, 1).
        rows: of the forward pass; their losses may be missing.
        factors: of `reduced`; None where losses are not reduced.
        n_cols: classes here.
        shard: of this rank.
        loss: the settings.
    """
    numbers, n_rows = rows.numbers, len(target)
    z_loss, epsilon = loss.z_loss, loss.label_smoothing
    if by_kernels(target):
        block, programs = _blocks(n_rows)
        columns = torch.empty(n_rows, dtype=torch.int64, device=numbers.device)
        found = torch.empty_like(numbers)
        given = (g, target, rows.lse, numbers, *(() if factors is None else (factors,)))
        stride = g.stride(0) if g.dim() else 0
        sizes = (stride, shard.start, n_rows, n_cols, shard.total, loss.ignore_index)
        constants = {
            "SMOOTHING": epsilon,
            "Z_LOSS": z_loss,
            "EACH": factors is None,
            "BLOCK": block,
        }
        _run(losses_backward_kernel, given, (columns, found), programs, sizes, constants)
        return numbers[0], columns, *found.unbind(0)
    (m, d, r), target, g = numbers.unbind(0), target[:, 0], g.to(numbers.dtype)
    kept = target != loss.ignore_index
    z = 2.0 * rows.lse * (z_loss if factors is None else factors[1])
    r = r if factors is None else r * factors[0]
    # eq: cross-entropy-gradient
    f = torch.where(kept, g * (r + z) / d, 0.0)
    r = torch.where(kept, g * r, 0.0)
    columns = torch.where(kept, here(target, n_cols, shard.start), -1)
    return m, columns, (1.0 - epsilon) * r, f, epsilon / shard.total * r


def tokens(name: str, messages: Messages, n_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """(log-probabilities, entropies, three numbers of each row: m, d and the mean of x − m), from
    the messages of all ranks. Without a sum for it the mean is 0, and the entropies are none."""
    lines, header, _, n_rows = messages
    op = SUMMARIES[name]
    if n_tokens and by_kernels(lines):
        block, programs = _blocks(n_rows)
        found, entropy = lines.new_empty(n_rows, n_tokens), lines.new_empty(n_rows)
        numbers = lines.new_empty(3, n_rows)
        sizes = ((*lines.shape, header), n_rows, n_tokens)
        constants = {"OP": op, "BLOCK": block}
        outs = (found, entropy, numbers)
        _run(tokens_kernel, (lines,), outs, programs * n_tokens, sizes, constants)
        return found, entropy, numbers
    words = local.merged(name, messages.words())
    m, d, of_tokens = words[0], words[1], words[op.row_results :]
    mean = words[2] / d if op.sums == 2 else torch.zeros_like(m)
    # eq: log-probability, entropy-from-summary
    log_d = d.log()
    return ((of_tokens - m) - log_d).T.contiguous(), log_d - mean, torch.stack([m, d, mean])


def numbers_of_tokens_gradient(
    g: Tensor, g_entropy: Tensor | None, index: Tensor, numbers: Tensor, n_cols: int, start: int
) -> tuple[Tensor, ...]:
    """What "tokens_gradient" of `finishing.FINISHES` takes, or "gradient" without a gradient of the
    entropies. Several tokens of a row have no column here.

    Args:
        g, g_entropy: the gradients that arrive.
        index: (n_rows, tokens).
        numbers: of `tokens`.
        n_cols, start: columns here, and the class of the first.
    """
    n_rows, n_tokens = index.shape
    if by_kernels(index):
        block, programs = _blocks(n_rows)
        columns = torch.empty(n_rows, dtype=torch.int64, device=numbers.device)
        found = torch.empty_like(numbers)
        more = () if g_entropy is None else (g_entropy,)
        stride = 0 if g_entropy is None else g_entropy.stride(0)
        sizes = (g.stride(), stride, start, n_rows, n_cols, n_tokens)
        constants = {"ENTROPY": g_entropy is not None, "BLOCK": block}
        given, outs = (g, index, numbers, *more), (columns, found)
        _run(tokens_backward_kernel, given, outs, programs, sizes, constants)
        return numbers[0], columns, *found.unbind(0)
    m, d, mean = numbers.unbind(0)
    columns = here(index[:, 0], n_cols, start) if n_tokens == 1 else torch.full_like(m, -1).long()
    at_token = g.sum(1)
    # eq: entropy-gradient, log-probability-gradient
    f = -at_token / d
    if g_entropy is None:
        return m, columns, -at_token, f, torch.zeros_like(m)
    h = g_entropy / d
    return m, columns, at_token, f + h * mean, h
