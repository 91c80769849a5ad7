"""The public functions on rows of which this rank has a part: their arguments, and what is theirs.

Every rank has the same loss, log-sum-exps and log-probabilities, and calls backward for its own
copy of them, as if there were one. Classes, offsets and smoothing are those of all classes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import arguments, composite, modes, operators
from ..arguments import (
    DTYPES,
    PLAIN,
    LossOptions,
    Modifiers,
    Part,
    cast,
    check_cut,
    check_dim,
    check_dtype,
    check_int,
    check_modifiers_of_part,
)
from ..composite import RowScalars
from ..plan.launch import Memo
from ..plan.layout import rows_along
from ..plan.losses import MAX_TARGETS
from . import ranks
from .gather import part_of_result, whole
from .process_group import UNSAID, Shard, propose, received, send, tell
from .ranks import part_of, rows_of

checked = Memo()
"""Kinds of calls that have been checked."""


def dtensors() -> Any:
    """Return the module of `DTensor`s, which is imported at the first of them:
    `torch.distributed.tensor` takes half a second, and most programs do not need it."""
    from . import dtensor  # a statement, which `torch.compile` follows

    return dtensor


def normalize(
    function: Callable[..., Tensor],
    x: Any,
    group: Any,
    dim: int,
    dtype: torch.dtype | None,
    invariant: bool,
    modifiers: tuple[Any, ...] | None = None,
    out: Any = None,
) -> Any:
    """Return softmax or log-softmax: the part of it that this rank has, or a `DTensor`. See
    `check_cut` and `check_modifiers_of_part` for the errors."""
    if group is None:
        check_cut(x, group, modifiers, out)
        return dtensors().normalize(function, x, dim, dtype, invariant, modifiers)
    try:
        if type(x) not in PLAIN or modifiers is not None:
            check_cut(x, group, modifiers, out)
        (x,) = modes.in_memory(input=x)
        if dtype is None and x.device.type != "cpu" and torch.is_autocast_enabled(x.device.type):
            dtype = composite.accumulator(x.dtype)
        if dtype is not None:
            x = cast(x, dtype)
            if torch.float64 in (x.dtype, dtype):
                x, dtype = x.to(dtype), None
        if x.dtype not in DTYPES:
            check_dtype(x.dtype, "the input")
        shape, name = x.shape, function.__name__
        dim = check_dim(dim if type(dim) is int else check_int(dim), x.dim())
        x = x if shape else x.reshape(1)
        given, numbers, options = None, (), (dtype, "batch-invariant") if invariant else (dtype,)
        if modifiers is not None:
            given = check_modifiers_of_part(x, dim, modifiers)
            options, numbers = _options_of(given, options)
            tensors = {k: t for k, t in given._asdict().items() if isinstance(t, Tensor)}
            given = given._replace(**dict(zip(tensors, modes.in_memory(**tensors))))
    except Exception as error:
        tell(group, error)
        raise

    def call(shard: Shard) -> Tensor:
        part = part_of(shard, x, dim, invariant)
        if part is not None:
            op = operators.log_softmax if name == "log_softmax" else operators.softmax
            of_result = dtype or x.dtype
            if given is None or not torch.compiler.is_compiling():
                return ranks.normalize(op, x, dim, of_result, given, shard, part, invariant).view(
                    shape
                )
            # A compiler fuses PyTorch's operators.
            z = composite.modified_elements(x.to(of_result), given)
            z = z if given.where is None else z.masked_fill(~given.where, -torch.inf)
            y = ranks.normalize(op, z, dim, z.dtype, None, shard, part, invariant)
            if given.safe:
                y = y.masked_fill(z == -torch.inf, -torch.inf if name == "log_softmax" else 0.0)
            return y.to(of_result).view(shape)
        more = {} if given is None else given._asdict()
        for cut in ("bias", "where"):
            t = more.get(cut)
            if t is not None:  # one that is broadcast may have other sizes on other ranks
                of_all = whole(
                    (t.to(torch.uint8) if cut == "where" else t).expand(x.shape), dim, shard
                )
                more[cut] = of_all != 0 if cut == "where" else of_all
        y = function(whole(x, dim, shard), dim, dtype, batch_invariant=invariant, **more)
        return part_of_result(y, dim, x.shape[dim], shard).view(shape)

    return propose(group, name, x, dim, options, numbers=numbers, where=False, whole=invariant).run(
        call
    )


def _options_of(
    modifiers: Modifiers, options: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what has to be the same on all ranks: options, among them which modifiers are tensors,
    and numbers."""
    numbers = ()
    for name, each in modifiers._asdict().items():
        if isinstance(each, Tensor):
            options += (f"{name} of {each.dtype}",)
        else:
            numbers += (each,)
    return options, numbers


def logsumexp(
    function: Callable[..., Tensor], x: Any, group: Any, dim: Any, keepdim: bool, invariant: bool
) -> Any:
    """Return log-sum-exp of all parts, on every rank; the arguments are as for `normalize`."""
    if group is None:
        return dtensors().logsumexp(function, x, dim, keepdim, invariant)
    try:
        if type(x) not in PLAIN:
            check_cut(x, group)
        (x,) = modes.in_memory(input=x)
        check_dtype(x.dtype, "the input")
        dim, shape = check_dim(dim if type(dim) is int else check_int(dim), x.dim()), x.shape
        x = x if shape else x.reshape(1)
    except Exception as error:
        tell(group, error)
        raise

    def call(shard: Shard) -> Tensor:
        part, kept = part_of(shard, x, dim, invariant), keepdim and bool(shape)
        if part is None:
            lse = function(whole(x, dim, shard), dim, kept, batch_invariant=invariant)
            return lse if shape else lse.view(())
        lse = ranks.logsumexp(x, dim, shard, part, invariant).view(shape[:dim] + shape[dim + 1 :])
        return lse.unsqueeze(dim) if kept else lse

    options = ("batch-invariant",) if invariant else ()
    return propose(group, "logsumexp", x, dim, options, where=False, whole=invariant).run(call)


# --- losses


def same(classes: Tensor) -> tuple[int, ...]:
    """Return a number that ranks compare in place of classes, which all have to have; of those on a
    CPU, where a class that is out of range is an error on one rank otherwise."""
    if classes.device.type != "cpu":
        return ()
    flat = classes.detach().reshape(-1).long()
    return (int((flat * (flat + 3) * torch.arange(1, len(flat) + 1)).sum()),)


def _of_all_rows(sums: Tensor, shard: Shard, wrong: float = 0.0) -> Tensor:
    """Return sums over all rows, where other ranks have other rows. They come with a number that is
    not 0 if one of the targets was `wrong`.

    Raises:
        IndexError: it was one of the others; on a CPU.
    """
    sums = torch.cat([sums, sums.new_full((1,), wrong)])
    for group in shard.over_rows:
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
    part: Part | None,
) -> RowScalars:  # fmt: skip
    """Return the scalars of rows, whose mean is over those of all ranks."""
    total, here = shard.total, slice(shard.start, shard.start + x.shape[1])
    summed, dtype = options._replace(reduction="sum"), composite.accumulator(x.dtype)
    if target.is_floating_point():
        if options.label_smoothing:
            epsilon = options.label_smoothing
            target = target.to(dtype) * (1.0 - epsilon) + epsilon / total
        own = weight if weight is None or part is None else weight[here]
        scalars = composite.scalars(x, target, own, summed._replace(label_smoothing=0.0))
        kept = torch.ones_like(scalars.factor)
        weights = kept
    else:
        scalars = composite.scalars_of_classes(target, weight, total, dtype, summed)
        kept, weights = (scalars.target != -1).to(dtype), scalars.factor
        if part is not None:
            column, q = scalars.target - part.start, scalars.distribution
            # A target of an earlier rank: move it past this part, so that no column equals it.
            column = torch.where(column < 0, column + total, column)
            column = torch.where(scalars.target < 0, scalars.target, column)
            scalars = scalars._replace(
                target=column, distribution=None if q is None else q[:, here]
            )
    if options.reduction != "mean":
        return scalars
    rows, weights = _of_all_rows(torch.stack([kept.sum(), weights.sum()]), shard).unbind()
    marked, r, z, b, c, q = scalars
    b, c = (None if b is None else b / weights), (None if c is None else c / weights)
    return RowScalars(marked, r / weights, z / rows, b, c, q)


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
        differentiated = torch.is_grad_enabled() and (
            target.requires_grad or (weight is not None and weight.requires_grad)
        )
        more = ("probabilities" if given else tuple(target.shape), target.dtype, differentiated)
        more += (None if weight is None else f"weights of {weight.dtype}", *options[1:])
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
        numbers = same(target) if not (given or traced) else ()
    except Exception as error:
        tell(group, error)
        raise
    proposal = propose(
        group, "cross_entropy", x, dim, more, start, total, numbers, weights,
        whole=options.invariant,
    )  # fmt: skip
    call = partial(_loss, functions, x, target, weight, dim, options, in_place, differentiated)
    if over_rows:  # whose messages are not those of the group
        return call(proposal.settle()._replace(over_rows=over_rows))
    return proposal.run(call)


def _loss(
    functions: tuple[Callable[..., Any], Callable[..., Any]], x: Tensor, target: Tensor,
    weight: Tensor | None, dim: int, options: LossOptions, in_place: bool, differentiated: bool,
    shard: Shard,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (loss, log-sum-exps) of a checked call."""
    reduced = options.reduction != "none"
    given = target.is_floating_point() and target.shape == x.shape
    traced = torch.compiler.is_compiling()
    if target.device.type == "cpu" and not (given or traced):
        try:
            arguments.check_classes(target, shard.total, options.ignore_index)
        except IndexError:
            if reduced and shard.over_rows:  # those with other rows wait for the sums of these
                n = 2 if options.reduction == "mean" else 1
                _of_all_rows(torch.zeros(n, dtype=composite.accumulator(x.dtype)), shard, 1.0)
            raise
    by_operators = given or (weight is not None and options.label_smoothing)
    part = part_of(shard, x, dim, options.invariant)
    if differentiated or (options.invariant and (by_operators or target.numel() > MAX_TARGETS)):
        part = None
    if weight is not None:
        weight = _weight_of_all(weight, x.shape[dim], shard)
    if part is None:
        target = whole(target, dim, shard) if given else target
        x = whole(x, dim, shard)
        if not (reduced and shard.over_rows):
            named = {**options._asdict(), "inplace_backward": in_place, "return_lse": True}
            named |= {"loss_dtype": named.pop("dtype"), "batch_invariant": named.pop("invariant")}
            del named["dim"], named["part"]
            return functions[0](x, target, weight, **named)
    softcap = None if options.softcap is None else float(options.softcap)
    options = options._replace(dim=1, scale=float(options.scale), softcap=softcap, part=part)
    shape = x.shape[:dim] + x.shape[dim + 1 :]
    if traced and (options.scale != 1.0 or options.softcap is not None):
        x = composite.modified_logits(x, target, options._replace(dim=dim))
        options = options._replace(scale=1.0, softcap=None)
    rows = rows_of(x, dim)
    in_place = in_place and modes.may_be_overwritten(x, rows)
    flat = rows_along(target, dim) if given else target.reshape(-1).contiguous()
    scalars = None
    if traced or by_operators or shard.over_rows or len(flat) > MAX_TARGETS:
        scalars = _scalars(rows, flat, weight, options, shard, part)
    if scalars is not None and (differentiated or not arguments.by_kernels(rows)) and part is None:
        loss, lse = composite.row_losses(rows, scalars, options)
        loss = (loss.sum() if reduced else loss).to(options.dtype)
    else:
        loss, lse = functions[1](rows, flat, weight, options, in_place, scalars)
    if reduced and shard.over_rows:
        with torch.no_grad():
            of_all = _of_all_rows(loss.detach().to(lse.dtype).unsqueeze(0), shard)[0]
        loss = loss + (of_all - loss.detach()).to(loss.dtype)
    if len(shape) == 1:
        return loss, lse
    return (loss if reduced else loss.view(shape)), lse.view(shape)


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
    scaling = float(modifiers.scale), modifiers.softcap  # pyright: ignore
    try:
        if start is not None and total is None:
            raise ValueError("vocab_start takes vocab_size as well")
        if type(x) not in PLAIN:
            arguments.check_cut(x, group)
        if type(index) not in PLAIN:
            arguments.check_dense(index, "index")
        if group is None:
            function = partial(functions[0], scale=scaling[0], softcap=scaling[1])
            return dtensors().token_logprobs(function, x, index, in_place, temperature, invariant)
        x, index = modes.in_memory(input=x, index=index)
        if isinstance(temperature, Tensor):
            (temperature,) = modes.in_memory(temperature=temperature)
        numbers = scaling if by_rows else (*scaling, float(temperature))
        dim = arguments.check_dim(-1, x.dim())
        more = (tuple(index.shape), index.dtype, entropy, "by rows" if by_rows else "for all")
        key = ("sharded tokens", x.shape, x.dtype, x.device, index.device, more)
        if traced or key not in checked:
            arguments.check_index(x, index)
            if not traced:
                checked.keep(key, True)
        if invariant:
            more += ("batch-invariant",)
        numbers += () if traced else same(index)
    except Exception as error:
        tell(group, error)
        raise

    def call(shard: Shard) -> tuple[Tensor, Tensor]:
        part = part_of(shard, x, dim, invariant)
        logits = whole(x, dim, shard) if part is None else x
        options = entropy, in_place, invariant, temperature, *scaling
        return functions[1](logits, index, *options, part=part)

    return propose(
        group, "token_logprobs", x, dim, more, start, total, numbers, whole=invariant
    ).run(call)
