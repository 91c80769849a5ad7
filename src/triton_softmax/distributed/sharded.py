"""The public functions on rows of which this rank has a part: what of a call the ranks compare, and
what is theirs of a loss.

Every rank has the same loss, log-sum-exps and log-probabilities, and calls backward for its own
copy of them, as if there were one. Classes, offsets and smoothing are those of all classes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import arguments, composite, modes
from ..arguments import DTYPES, PLAIN, LossOptions
from ..composite import RowScalars
from ..plan.layout import rows_along
from ..plan.losses import MAX_TARGETS
from .gather import whole
from .process_group import UNSAID, Proposal, Shard, agreements, received, send
from .ranks import of_rows, rows_of


def normalize(
    x: Tensor, function: Callable[..., Tensor], dim: Any, dtype: torch.dtype | None,
    invariant: bool, modifiers: tuple[Any, ...] | None = None, out: Any = None,
) -> Proposal:  # fmt: skip
    """Propose softmax or log-softmax, of which each rank returns its part."""
    given, numbers, name = None, (), function.__name__
    if modifiers is not None or out is not None:
        arguments.check_sharded(modifiers, out)
    (x,) = modes.in_memory(input=x)
    of_gpus = x.device.type != "cpu" and name != "logsumexp"
    if dtype is None and of_gpus and arguments.autocasts(x):
        dtype = composite.accumulator(x.dtype)
    if dtype is not None:
        x = arguments.cast(x, dtype)
        if torch.float64 in (x.dtype, dtype):
            x, dtype = x.to(dtype), None
    if x.dtype not in DTYPES:
        arguments.check_dtype(x.dtype, "the input")
    if not x.dim():
        asked = normalize(x.reshape(1), function, dim, dtype, invariant, modifiers)
        return asked._replace(run=lambda shard: asked.run(shard).view(()))
    if type(dim) is not int or not -x.dim() <= dim < x.dim():
        dim = arguments.check_dim(arguments.check_int(dim), x.dim())
    dim, options = dim % x.dim(), (dtype,)
    if modifiers is not None:
        given = arguments.check_modifiers_of_part(x, dim, modifiers)
        tensors = {k: t for k, t in given._asdict().items() if isinstance(t, Tensor)}
        options += tuple([f"{key} of {t.dtype}" for key, t in tensors.items()])
        numbers = tuple([each for each in given if not isinstance(each, Tensor)])
        given = given._replace(**dict(zip(tensors, modes.in_memory(**tensors))))
    run = partial(of_rows, function, x, dim, dtype or x.dtype, invariant, given)
    check = partial(arguments.check_input, x)
    return Proposal(name, x, dim, run, check, (), options, numbers, invariant)


def logsumexp(
    x: Tensor, function: Callable[..., Tensor], dim: Any, keepdim: bool, invariant: bool
) -> Proposal:
    """Propose log-sum-exp, which every rank returns."""
    asked = normalize(x, function, dim, None, invariant)
    if keepdim and x.dim():
        return asked._replace(run=lambda shard: asked.run(shard).unsqueeze(asked.dim))
    return asked


# --- losses


def same(classes: Tensor) -> tuple[int, ...]:
    """Return a number that ranks compare in place of classes, which all have to have; of those on a
    CPU, where a class that is out of range is an error on one rank otherwise."""
    if classes.device.type != "cpu" or torch.compiler.is_compiling():
        return ()
    flat = classes.detach().reshape(-1).long()
    return (int((flat * (flat + 3) * torch.arange(1, len(flat) + 1)).sum()),)


def _of_all_rows(sums: Tensor, over_rows: tuple[Any, ...], wrong: float = 0.0) -> Tensor:
    """Return sums over all rows, where other ranks have other rows. They come with a number that is
    not 0 if one of the targets was `wrong`.

    Raises:
        IndexError: it was one of the others; on a CPU.
    """
    sums = torch.cat([sums, sums.new_full((1,), wrong)])
    for group in over_rows:
        sums = received(*send(sums, group)).sum(0)
    if sums.device.type == "cpu" and not torch.compiler.is_compiling():
        if not wrong and sums[-1].item():
            raise IndexError("a target is out of bounds, on a rank that has other rows")
    return sums[:-1]


def _weight_of_all(weight: Tensor, n_cols: int, shard: Shard) -> Tensor:
    """Return the weights of all classes, from those of all classes or of this rank's. If one rank
    may have all classes, it cannot know whether the others have a weight for them."""
    if len(weight) == shard.total > shard.widest or shard.group is None or shard.group.size() == 1:
        return weight
    end = shard.start + n_cols
    own = weight[shard.start : end] if len(weight) == shard.total else weight
    of_all = weight.new_zeros(shard.total)
    of_all[shard.start : end] = own
    return received(*send(of_all, shard.group)).sum(0).to(weight.dtype)


def _scalars(
    x: Tensor, target: Tensor, weight: Tensor | None, options: LossOptions, shard: Shard,
    over_rows: tuple[Any, ...],
) -> RowScalars:  # fmt: skip
    """Return the scalars of rows, whose mean is over those of all ranks."""
    part, classes = options.part, not target.is_floating_point()
    here = slice(shard.start, shard.start + x.shape[1])
    if not (weight is None or part is None or classes):
        weight = weight[here]
    of_all = partial(_of_all_rows, over_rows=over_rows)
    marked, b, z, c, q = composite.scalars(x, target, weight, options, of_all)
    if part is not None and classes:
        # A target of an earlier rank: move it past this part, so that no column equals it.
        column = marked - part.start
        column = torch.where(column < 0, column + part.total, column)
        marked, q = torch.where(marked < 0, marked, column), None if q is None else q[:, here]
    return RowScalars(marked, b, z, c, q)


def cross_entropy(
    x: Tensor, functions: tuple[Callable[..., Any], Callable[..., Any]], target: Tensor,
    weight: Tensor | None, options: LossOptions, in_place: bool, start: int | None,
    total: int | None, over_rows: tuple[Any, ...] = (),
) -> Proposal:  # fmt: skip
    """Propose a cross-entropy, of which every rank returns (loss, log-sum-exps).

    The functions are that of whole rows, and the loss of a part of them. The weight is that of all
    classes, or of those of this rank. The shard of a `DTensor` comes with `over_rows`, groups that
    have other rows, over which a mean is as well.
    """
    if not (weight is None or type(weight) in PLAIN):
        arguments.check_dense(weight, "weight")
    x, target, weight = modes.in_memory(input=x, target=target, weight=weight)
    dim, weights = arguments.check_dim(options.dim, x.dim()), UNSAID
    given = target.is_floating_point() and target.shape == x.shape
    differentiated = torch.is_grad_enabled() and (
        target.requires_grad or (weight is not None and weight.requires_grad)
    )
    words = ("probabilities" if given else tuple(target.shape), target.dtype, differentiated)
    words += (None if weight is None else f"weights of {weight.dtype}", *options[1:8])
    read = (target.device,)
    if weight is not None:
        read += (weight.shape, weight.device)
        weights = len(weight) if weight.dim() == 1 else UNSAID
    run = partial(_loss, functions, x, target, weight, options, in_place, differentiated, over_rows)
    return Proposal(
        "cross_entropy", x, dim, run,
        check=partial(arguments.check_loss_of_part, x, target, weight, total, options),
        read=read, options=words, numbers=() if given else same(target),
        invariant=options.invariant, of_classes=True, start=start, total=total, weights=weights,
    )  # fmt: skip


def _loss(
    functions: tuple[Callable[..., Any], Callable[..., Any]], x: Tensor, target: Tensor,
    weight: Tensor | None, options: LossOptions, in_place: bool, differentiated: bool,
    over_rows: tuple[Any, ...], shard: Shard,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (loss, log-sum-exps) of a checked call."""
    dim, traced, given = options.dim, torch.compiler.is_compiling(), target.is_floating_point()
    of_all = over_rows if options.reduction != "none" else ()
    if of_all and shard.call:  # messages of other groups, before which this one agrees
        agreements[shard.group].settle()
    if target.device.type == "cpu" and not (given or traced):
        try:
            arguments.check_classes(target, shard.total, options.ignore_index)
        except IndexError:
            if of_all:  # those with other rows wait for the sums of these
                n = 2 if options.reduction == "mean" else 1
                sums = torch.zeros(n, dtype=composite.accumulator(x.dtype))
                _of_all_rows(sums, of_all, 1.0)
            raise
    by_operators = given or (weight is not None and options.label_smoothing)
    part = shard.part
    if differentiated or (options.invariant and (by_operators or target.numel() > MAX_TARGETS)):
        part = None
    if weight is not None:
        weight = _weight_of_all(weight, x.shape[dim], shard)
    if part is None:
        target = whole(target, dim, shard) if given else target
        x = whole(x, dim, shard)
        if not of_all:
            named = {**options._asdict(), "inplace_backward": in_place, "return_lse": True}
            named |= {"loss_dtype": named.pop("dtype"), "batch_invariant": named.pop("invariant")}
            del named["dim"], named["part"]
            return functions[0](x, target, weight, **named)
    shape, rows = x.shape[:dim] + x.shape[dim + 1 :], rows_of(x, dim)
    in_place = in_place and modes.may_be_overwritten(x, rows)
    options = options._replace(dim=1, part=part)
    if traced and (options.scale != 1.0 or options.softcap is not None):
        rows = rows_of(composite.modified_logits(x, target, options._replace(dim=dim)), dim)
        options = options._replace(scale=1.0, softcap=None)
    flat = rows_along(target, dim) if given else target.reshape(-1).contiguous()
    scalars: Any = None
    smoothed = options.invariant and options.label_smoothing  # see `LossPlan`
    if traced or by_operators or smoothed or over_rows or len(flat) > MAX_TARGETS:
        scalars = _scalars(rows, flat, weight, options, shard, over_rows)
    if part is None and (differentiated or not arguments.by_kernels(rows)):
        losses, lse = composite.row_losses(rows, scalars, options)
        loss = losses.sum().to(options.dtype)
    else:
        loss, lse = functions[1](rows, flat, weight, options, in_place, scalars)
    if of_all:
        with torch.no_grad():
            total = _of_all_rows(loss.detach().to(lse.dtype).unsqueeze(0), of_all)[0]
        loss = loss + (total - loss.detach()).to(loss.dtype)
    if len(shape) == 1:
        return loss, lse
    return (loss.view(shape) if loss.dim() else loss), lse.view(shape)


def token_logprobs(
    x: Tensor, functions: tuple[Callable[..., Any], Callable[..., Any]], index: Tensor,
    entropy: bool, in_place: bool, temperature: float | Tensor, invariant: bool, scale: float,
    softcap: float | None, start: int | None, total: int | None,
) -> Proposal:  # fmt: skip
    """Propose log-probabilities of tokens and entropies, of which every rank returns both; the
    index is the same on all ranks, and counts all classes."""
    if type(index) not in PLAIN:
        arguments.check_dense(index, "index")
    x, index = modes.in_memory(input=x, index=index)
    numbers, kind = (scale, softcap), "by rows"
    if isinstance(temperature, Tensor):
        (temperature,) = modes.in_memory(temperature=temperature)
    else:
        numbers, kind = (*numbers, float(temperature)), "for all"
    dim = arguments.check_dim(-1, x.dim())
    given = entropy, in_place, invariant, temperature, scale, softcap

    def run(shard: Shard) -> tuple[Tensor, Tensor]:
        # A token's own logit, which one rank knows, is capped by PyTorch's tanh.
        part = None if invariant and softcap is not None else shard.part
        logits = whole(x, dim, shard) if part is None else x
        return functions[1](logits, index, *given, part=part)

    return Proposal(
        "token_logprobs", x, dim, run, check=partial(arguments.check_index, x, index),
        read=(index.device,), options=(tuple(index.shape), index.dtype, entropy, kind),
        numbers=(*numbers, *same(index)), invariant=invariant, of_classes=True, start=start,
        total=total,
    )  # fmt: skip
