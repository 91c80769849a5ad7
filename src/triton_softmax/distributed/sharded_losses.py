"""Cross-entropy and log-probabilities of tokens, of logits of which this rank has some classes.

Forward, a rank sends (m, d), the logit of the target if it is one of its own, and at most one more
sum: 12 to 20 bytes a row. Results are the same on all ranks. Backward nothing is sent: each rank
calls backward for its own copy of the loss, as if there were one, and writes the gradient of its
own logits. Classes, offsets and smoothing are those of the whole vocabulary.

From the sums of all ranks everything else follows by PyTorch's operators on a few numbers for each
row, and so does its gradient. A cross-entropy of classes on a GPU takes small kernels in their
place (`rank_kernels`): the host takes longer to launch operators than the device to run them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import arguments, composite, modes
from ..arguments import PLAIN, LossOptions, Modifiers
from ..operations import cross_entropy as of_loss
from ..operations.cross_entropy import CROSS_ENTROPY_SMOOTHED, DISTRIBUTION, GIVEN_GRADIENT
from ..operations.softmax import SOFTMAX
from ..operations.token_statistics import ENTROPY
from ..plan import Plan, key_of, plan_of
from ..plan import losses as plan_losses
from ..plan.launch import Launch, Memo, plans
from ..plan.layout import rows_along
from ..plan.losses import MAX_TARGETS
from . import rank_kernels as kernels
from .partials import BLOCK, PARTIAL, Sums, columns_here, partials, picked, plan_rows
from .process_group import UNSAID, Shard, agree, propose, received, send, tell
from .sharded_softmax import dtensors
from .whole_rows import part_of, ways, whole

checked = Memo()
"""Calls of a kind that has been checked."""

PARTS = 1024
"""Sums of programs that one reads at once."""


def _sends_weights(weight: Tensor | None, shard: Shard) -> bool:
    """Whether a rank sends the weights of targets: unless all ranks are known to have those of all
    classes. They cannot know where one rank may have all the classes."""
    return weight is not None and (len(weight) != shard.total or shard.widest == shard.total)


def same(classes: Tensor) -> tuple[int, ...]:
    """Return a number that ranks compare in place of classes, which all have to have; of those on a
    CPU, where a class that is out of range is an error on one rank otherwise."""
    if classes.device.type != "cpu":
        return ()
    flat = classes.detach().reshape(-1).long()
    return (int((flat * (flat + 3) * torch.arange(1, len(flat) + 1)).sum()),)


def _all_sums(sums: Tensor, shard: Shard, wrong: float = 0.0) -> Tensor:
    """The four sums of all rows, where other ranks have other rows; they come with a number that
    is not 0 if one of the targets was `wrong`.

    Raises:
        IndexError: it was one of the others; on a CPU.
    """
    sums = torch.cat([sums, sums.new_full((1,), wrong)])
    for group in shard.over_rows:
        shard = Shard(group, 0, 0)
        sums = received(*send((sums,), shard)).sum(0)
    if sums.device.type == "cpu" and not torch.compiler.is_compiling():
        if not wrong and sums[4].item():
            raise IndexError("a target is out of bounds, on a rank that has other rows")
    return sums[:4]


# By kernels.


def _plan_losses(
    x: Tensor, own_weight: bool, shard: Shard, options: LossOptions
) -> tuple[Callable[..., Any], Plan, Plan, Plan | None]:
    """What computes the partial results of x, writes the message, computes the losses, and reduces
    them, if they are reduced."""
    epsilon, ignore_index, z_loss = options.label_smoothing, options.ignore_index, options.z_loss
    op, of = (CROSS_ENTROPY_SMOOTHED,) * 2 if epsilon else (of_loss.CROSS_ENTROPY, SOFTMAX)
    (n_rows, n_cols), dtype = x.shape, composite.accumulator(x.dtype)
    n_words = (1 + op.sums + 1 + own_weight) * n_rows
    world = 1 if shard.group is None else shard.group.size()
    each, programs = options.reduction == "none", triton.cdiv(n_rows, BLOCK)
    outs: list[Any] = [((n_words,), dtype)]
    sizes: tuple[Any, ...] = (x.stride(), shard.start, n_rows, n_cols, shard.total, ignore_index)
    pack = plan_rows(kernels.pack_words_kernel, x, outs, sizes, WEIGHT=int(own_weight))
    outs = [((n_rows,), dtype), ((3, n_rows), dtype)]
    outs.append(((n_rows,), options.dtype) if each else ((4, programs), dtype))
    sizes = ((world, n_words), n_rows, shard.total, ignore_index)
    losses = plan_rows(
        kernels.losses_kernel, x, outs, sizes,
        OP=op, PLAIN=1 + own_weight, SMOOTHING=epsilon, Z_LOSS=z_loss, EACH=each,
    )  # fmt: skip
    of_part: Callable[..., Any] = lambda x: partials(of, (x,))  # noqa: E731 - of no classes
    if x.numel():
        of_part = plan_of(PARTIAL[of.name], (x,), 1, dtype)
    if each:
        return of_part, pack, losses, None
    parts = 1 if shard.over_rows else programs
    constants = {"MEAN": options.reduction == "mean", "Z_LOSS": z_loss}
    constants["BLOCK"] = min(PARTS, triton.next_power_of_2(parts))
    reduce = Launch(kernels.reduce_losses_kernel, 1, (parts,), constants, {})
    outs = [((), options.dtype), ((2,), dtype)]
    return of_part, pack, losses, Plan((reduce,), x.new_empty(0), outs)


def _plan_backward(x: Tensor, g: Tensor, shard: Shard, options: LossOptions) -> Plan:
    """What computes the numbers of each row that the gradient takes, in columns of targets and
    three more."""
    (n_rows, n_cols), dtype = x.shape, composite.accumulator(x.dtype)
    stride = g.stride(0) if g.dim() else 0
    sizes = (stride, shard.start, n_rows, n_cols, shard.total, options.ignore_index)
    _, op = of_loss.SMOOTHED if options.label_smoothing else of_loss.PLAIN
    constants = {"SMOOTHING": options.label_smoothing, "Z_LOSS": options.z_loss}
    outs = [((n_rows,), torch.int64), ((3, n_rows), dtype)]
    return plan_rows(kernels.losses_backward_kernel, x, outs, sizes, OP=op, **constants)


class _CrossEntropy(Function):
    """(loss, log-sum-exps) of the rows of a matrix and a class for each."""

    @staticmethod
    def forward(ctx, x, target, weight, shard: Shard, options: LossOptions, in_place):
        own = _sends_weights(weight, shard)
        inputs = (x, target) if weight is None else (x, target, weight)
        head = (_CrossEntropy, shard[:3], options, shard.over_rows)
        planned = plans.get(key := key_of(head, inputs))
        planned = planned or plans.keep(key, _plan_losses(x, own, shard, options))
        of_part, pack, losses, reduce = planned

        weights = (weight,) if own else ()
        message = pack(x, target, *weights, *of_part(x))
        lines, work = send((message,), shard)
        if work is not None:
            work.wait()
        weights = () if own or weight is None else (weight,)
        lse, numbers, result = losses(lines, target, *weights)
        factors = None
        if reduce is not None:
            if shard.over_rows:
                result = _all_sums(result.sum(1), shard).unsqueeze(1)
            result, factors = reduce(result)
        ctx.save_for_backward(x, target, numbers, factors)
        ctx.arguments = shard, options, in_place
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return result, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        others = (None,) * 5
        if g is None:
            return None, *others
        (g,) = modes.in_memory(incoming_gradient=g)
        x, target, numbers, factors = ctx.saved_tensors
        shard, options, in_place = ctx.arguments
        inputs = (g, target, numbers) if factors is None else (g, target, numbers, factors)
        head = (_CrossEntropy.backward, shard.start, shard.total, x.shape[1], options)
        kernel = plans.get(key := key_of(head, inputs))
        kernel = kernel or plans.keep(key, _plan_backward(x, g, shard, options))
        columns, found = kernel(*inputs)
        given = (numbers[0], columns, *found.unbind(0))
        dx = plan_losses.finish(GIVEN_GRADIENT, (x,), given, x.dtype, x if in_place else None)
        if in_place:
            torch.autograd.graph.increment_version(x)
        return dx, *others


_differentiable = modes.direct(_CrossEntropy)


# By PyTorch's operators.


def _by_operators(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    shard: Shard,
    options: LossOptions,
    in_place: bool,
) -> tuple[Tensor, Tensor]:
    """(loss, log-sum-exps) of the rows of a matrix; the target is a class for each row, or a
    distribution."""
    n_cols, total, given = x.shape[1], shard.total, target.is_floating_point()
    each, epsilon = options.reduction == "none", options.label_smoothing
    dtype, q = composite.accumulator(x.dtype), None
    of_rows = options._replace(dim=1, reduction="sum", z_loss=options.z_loss * each)
    own = weight
    if weight is not None and len(weight) == total:
        own = weight[shard.start : shard.start + n_cols]
    sent = _sends_weights(weight, shard) and not given
    classes = target.new_zeros(len(x), dtype=torch.int64) if given else target
    known = None if given or sent else weight
    scalars = composite.scalars_of_classes(classes, known, total, dtype, of_rows)
    kept, each_row = scalars.target != -1, (scalars.target != -1).to(dtype)
    columns = columns_here(scalars.target.unsqueeze(1), n_cols, shard.start)
    of_target = None
    if own is not None and sent:
        of_target = picked(own.to(dtype).expand(x.shape), columns).squeeze(0)
    if given or (weight is not None and epsilon):  # every class counts
        target = target if given else columns == torch.arange(n_cols, device=x.device)
        q, columns = composite.distribution_of(x, target.to(dtype), own, of_rows, total), None
        marked, zero = torch.where(kept, -2, -1), torch.zeros_like(each_row)
        scalars = scalars._replace(target=marked, at_target=zero, everywhere=each_row)
    op = DISTRIBUTION if q is not None else CROSS_ENTROPY_SMOOTHED if epsilon else SOFTMAX
    found = Sums.apply(x, q, columns, of_target, op, shard, in_place)
    # Whatever an ignored row holds, its gradient is 0.
    numbers, m, *sums = [torch.where(kept, each, 1.0) for each in found]
    if of_target is not None:
        scalars = scalars._replace(factor=numbers[-1] * each_row)
    losses, lse = composite.losses_of_sums(m, sums, m if columns is None else numbers[0], scalars)
    if each:
        return losses.to(options.dtype), lse
    sums = torch.stack([each.sum() for each in (losses, lse * lse, scalars.factor, each_row)])
    if shard.over_rows:
        with torch.no_grad():  # a gradient at the sums of all rows is one at those of these
            sums.copy_(_all_sums(sums, shard))
    loss, squares, weights, rows = sums.unbind()
    if options.reduction == "mean":
        loss, squares = loss / weights, squares / rows
    if options.z_loss:
        loss = loss + options.z_loss * squares
    return loss.to(options.dtype), lse


def cross_entropy(
    functions: tuple[Callable[..., Any], Callable[..., Any]],
    x: Any,
    target: Tensor,
    weight: Tensor | None,
    group: Any,
    start: int | None,
    total: int | None,
    options: LossOptions,
    in_place: bool,
    over_rows: tuple[Any, ...] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (loss, log-sum-exps), the same on all ranks; with the errors of `cross_entropy` of
    whole rows, and of `agree`.

    The functions are that of whole rows, and the loss of a part of them. The weight is that of all
    classes, or of those of this rank. The shard of a `DTensor` comes with `over_rows`, groups that
    have other rows, over which a mean is as well; its group may be None.
    """
    if group is None and over_rows is None:
        return dtensors().cross_entropy(functions, x, target, weight, options, in_place)
    traced = torch.compiler.is_compiling()
    try:
        if start is not None and total is None:
            raise ValueError("vocab_start takes vocab_size as well")
        if type(x) not in PLAIN:
            arguments.check_cut(x, group)
        if not (weight is None or type(weight) in PLAIN):
            arguments.check_dense(weight, "weight")
        x, target, weight = modes.in_memory(input=x, target=target, weight=weight)
        dim, weights = arguments.check_dim(options.dim, x.dim()), UNSAID
        given = target.is_floating_point() and target.shape == x.shape
        more = ("probabilities" if given else tuple(target.shape), target.dtype)
        more += (None if weight is None else "weights", *options[1:5], *options[6:])
        if weight is not None and weight.dim() == 1:
            weights = len(weight)
        kinds = (type(options.z_loss), type(options.scale), type(options.softcap))
        key = ("sharded losses", x.shape, x.dtype, x.device, target.device, total, more, kinds)
        if weight is not None:
            key += (weight.shape, weight.device)
        if traced or key not in checked:
            arguments.check_dtype(x.dtype, "the input")
            arguments.check_loss_of_part(x, target, weight, total, options)
            if not traced:
                checked.keep(key, True)
        if options.invariant:
            more += ways(x, target, weight)
        numbers = same(target) if not (given or traced) else ()
    except Exception as error:
        tell(group, error)
        raise
    shard = propose(
        group, "cross_entropy", x, dim, more, start, total, numbers, weights,
        whole=options.invariant,
    ).settle()  # fmt: skip
    shard = shard if over_rows is None else shard._replace(over_rows=over_rows)
    if target.device.type == "cpu" and not (given or traced):
        try:
            arguments.check_classes(target, shard.total, options.ignore_index)
        except IndexError:
            if options.reduction != "none":  # those with other rows wait for the sums of these
                _all_sums(torch.zeros(4, dtype=composite.accumulator(x.dtype)), shard, 1.0)
            raise
    distribution = given or (weight is not None and options.label_smoothing)
    if options.invariant:
        return _in_every_batch(
            functions, x, dim, target, weight, shard, distribution, options, in_place
        )
    if options.scale != 1.0 or options.softcap is not None:
        x = composite.modified_logits(x, target, options)
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    rows = x if x.dim() == 2 else rows_along(x, dim)
    in_place = in_place and modes.may_be_overwritten(x, rows)
    flat = rows_along(target, dim) if given else target.reshape(-1).contiguous()
    on_gpu = arguments.INTERPRETED or x.device.type != "cpu"
    if traced or distribution or not (on_gpu and len(rows)):
        apply = _by_operators
    else:
        apply = _differentiable if modes.is_plain_eager(x) else _CrossEntropy.apply
        weight = weight if weight is None else weight.contiguous()
    result, lse = apply(rows, flat, weight, shard, options, in_place)
    if len(shape) == 1:
        return result, lse
    return (result.view(shape) if options.reduction == "none" else result), lse.view(shape)


def _in_every_batch(
    functions: tuple[Callable[..., Any], Callable[..., Any]], x: Tensor, dim: int, target: Tensor,
    weight: Tensor | None, shard: Shard, distribution: Any, options: LossOptions, in_place: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute a batch-invariant call as one GPU: on this rank's part of the rows if they can be cut
    there, else on whole rows."""
    part, given = None, target.is_floating_point() and target.shape == x.shape
    if shard.group is not None:
        if weight is not None and len(weight) != shard.total:
            weight = whole(weight, 0, shard)
        by_operators = distribution or target.numel() > MAX_TARGETS
        part = None if by_operators else part_of(shard, x, target, weight)
        if part is None:
            target = whole(target, dim, shard) if given else target
            x = whole(x, dim, shard)
    of_whole_rows, of_part = functions
    if part is None:
        named = {**options._asdict(), "inplace_backward": in_place, "return_lse": True}
        named |= {"loss_dtype": named.pop("dtype"), "batch_invariant": named.pop("invariant")}
        del named["dim"], named["part"]
        return of_whole_rows(x, target, weight, **named)
    softcap = None if options.softcap is None else float(options.softcap)
    options = options._replace(dim=1, scale=float(options.scale), softcap=softcap, part=part)
    flat = target.reshape(-1)
    loss, lse = of_part(rows_along(x, dim), flat, weight, options, in_place)
    return loss.view(target.shape) if loss.dim() else loss, lse.view(target.shape)


def token_logprobs(
    functions: tuple[Callable[..., Any], Callable[..., Any]],
    x: Any,
    index: Tensor,
    group: Any,
    start: int | None,
    total: int | None,
    entropy: bool,
    in_place: bool,
    temperature: float | Tensor,
    invariant: bool,
    modifiers: Modifiers,
) -> tuple[Tensor, Tensor]:
    """Return (log-probabilities, entropies) of logits of which this rank has some classes, or of a
    `DTensor`; the index is the same on all ranks, and counts all classes.

    Raises:
        TypeError, ValueError, IndexError: as `token_logprobs` of whole rows, and as `agree`.
    """
    traced, by_rows = torch.compiler.is_compiling(), isinstance(temperature, Tensor)
    try:
        if start is not None and total is None:
            raise ValueError("vocab_start takes vocab_size as well")
        if type(x) not in PLAIN:
            arguments.check_cut(x, group)
        if type(index) not in PLAIN:
            arguments.check_dense(index, "index")
        if group is not None:
            x, index = modes.in_memory(input=x, index=index)
        scaling = float(modifiers.scale), modifiers.softcap  # pyright: ignore
        numbers = scaling if by_rows else (*scaling, float(temperature))
        if not invariant and (by_rows or temperature != 1.0 or scaling != (1.0, None)):
            x = composite.modified_elements(x, modifiers)
            x, temperature = composite.tempered(x, temperature), 1.0
        if group is not None:
            dim = arguments.check_dim(-1, x.dim())
            more = (tuple(index.shape), index.dtype, entropy, "by rows" if by_rows else "for all")
            key = ("sharded tokens", x.shape, x.dtype, x.device, index.device, more)
            if traced or key not in checked:
                arguments.check_index(x, index)
                if not traced:
                    checked.keep(key, True)
            if invariant:
                more += ("batch-invariant", *ways(x, index))
            numbers += () if traced else same(index)
    except Exception as error:
        tell(group, error)
        raise
    if group is None:
        function, scaling = functions[0], scaling if invariant else (1.0, None)
        if scaling != (1.0, None):
            function = partial(function, scale=scaling[0], softcap=scaling[1])
        return dtensors().token_logprobs(function, x, index, in_place, temperature, invariant)
    shard = agree(group, "token_logprobs", x, dim, more, start, total, numbers, whole=invariant)
    if index.device.type == "cpu" and not traced:
        arguments.check_classes(index, shard.total)
    if invariant:
        part = part_of(shard, x, index)
        x = whole(x, dim, shard) if part is None else x
        return functions[1](x, index, entropy, in_place, True, temperature, *scaling, part=part)
    rows, leading = x if x.dim() == 2 else rows_along(x, dim), x.shape[:-1]
    in_place = in_place and modes.may_be_overwritten(x, rows)
    flat = index.reshape(len(rows), 1 if index.shape == leading else index.shape[-1])
    columns = columns_here(flat, rows.shape[1], shard.start)
    op = ENTROPY if entropy else SOFTMAX
    at_tokens, m, d, *a = Sums.apply(rows, None, columns, None, op, shard, in_place)
    # eq: log-probability, entropy-from-summary
    log_d = d.log()
    entropies = log_d - a[0] / d if entropy else log_d.detach()
    found = (at_tokens - m) - log_d
    return found.T.reshape(index.shape), entropies.view(leading)
