"""Batch-invariant calls: a row has the bits that it has on one GPU, however it is cut.

One GPU cuts a long row into eight parts if it can, and these into chunks, whose sums it adds up in
integers. So ranks that have whole parts each run the call of one GPU on their own, and send each
other the words of their chunks, 8 bytes for each sum of one, in one message forward and one
backward.

In all other calls every rank gathers whole rows, and computes what one GPU would. One message takes
the elements to all ranks, and another takes the gradient of an output that is cut.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from .. import arguments, modes, operators
from ..arguments import Modifiers, Part
from ..config import splitting
from ..modes import is_plain_eager
from ..plan import plan_of
from ..plan.layout import rows_along
from .process_group import Shard, agree_backward, received, send


def ways(x: Tensor, *more: Any) -> tuple[str, ...]:
    """Return what ranks have to know of each other before one leaves its part where it is: that
    kernels compute it. `more` is what else comes with the call."""
    given = [x, *[each for each in more if isinstance(each, Tensor)]]
    on_device = arguments.INTERPRETED or x.device.type != "cpu"  # a part may have no elements
    return ("by kernels",) * (on_device and is_plain_eager(*given))


def part_of(shard: Shard, x: Tensor, *more: Tensor | None) -> Part | None:
    """Return what is here of the rows of a call; None if every rank has to gather them: rows that
    one GPU does not cut into parts, of which a rank has no whole ones, or that no kernels compute.
    `more` are the other tensors of the call."""
    world = 1 if shard.group is None else shard.group.size()
    ours = x.numel() and ways(x, *more)
    split = shard.total <= splitting.MAX_SPLIT_COLS and x.dtype != torch.float64
    parts = splitting.parts_of(shard.total) if split else 1
    if not (ours and parts > 1 < world and parts % world == 0 and not shard.parts):
        return None
    return shard.part


def gathered(x: Tensor, dim: int, shard: Shard) -> Tensor:
    """Return the whole of a tensor of which this rank has a part along `dim`."""
    (x,) = modes.in_memory(input=x)
    parts, part = shard.parts, x.movedim(dim, -1)
    if parts:
        part = pad(part, (0, max(size for _, size in parts) - x.shape[dim]))
    if not part.numel():
        return x.new_empty(*x.shape[:dim], shard.total, *x.shape[dim + 1 :])
    lines = received(*send((part.reshape(-1),), shard))
    whole = lines.view(len(lines), *part.shape)
    if parts:
        order = sorted(range(len(parts)), key=parts.__getitem__)
        whole = torch.cat([whole[rank][..., : parts[rank][1]] for rank in order], -1)
    else:
        whole = torch.cat(whole.unbind(), -1)
    return whole.movedim(-1, dim).contiguous()


def own(whole: Tensor, dim: int, n_cols: int, shard: Shard) -> Tensor:
    """Return this rank's part of the whole."""
    return whole.narrow(dim, shard.start, n_cols).clone(memory_format=torch.contiguous_format)


class _Whole(Function):
    """The whole of a tensor. Its gradient is the same on all ranks."""

    @staticmethod
    def forward(ctx, x, dim: int, shard: Shard):
        ctx.where = dim, x.shape[dim], shard
        return gathered(x.detach(), dim, shard)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return own(g, *ctx.where), None, None


class _Part(Function):
    """This rank's part of a result. Each rank has its part of the gradient."""

    @staticmethod
    def forward(ctx, y, dim: int, n_cols: int, shard: Shard):
        ctx.where = dim, shard
        return own(y, dim, n_cols, shard)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        agree_backward(ctx.where[1])
        return gathered(g, *ctx.where), None, None, None


def whole(x: Tensor, dim: int, shard: Shard) -> Tensor:
    """Return the whole rows, with a gradient for this rank's part of them."""
    return _Whole.apply(x, dim, shard)  # pyright: ignore[reportReturnType]


class _OfPart(Function):
    """Softmax, log-softmax or log-sum-exp of the rows of a matrix of which other ranks have other
    columns, as one GPU computes them."""

    @staticmethod
    def forward(ctx, x, op: operators.Normalization, dtype: Any, shard: Shard, part: Part):
        y = plan_of(op.operation, (x,), 1, dtype, True, part)(x)
        ctx.save_for_backward(x if op is operators.logsumexp else y)
        ctx.arguments = op, x.dtype, shard, part
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensors
        op, dtype, shard, part = ctx.arguments
        (dy,) = modes.in_memory(incoming_gradient=dy)
        agree_backward(shard)
        vjp = plan_of(op.vjp.operation, (saved, dy), 1, dtype, True, part)
        return vjp(saved, dy), *(None,) * 4


def logsumexp_part(x: Tensor, shard: Shard, part: Part) -> Tensor:
    """Return log-sum-exp of the rows of a matrix, on every rank."""
    return _OfPart.apply(x, operators.logsumexp, None, shard, part)  # pyright: ignore


def normalize_part(
    name: str, x: Tensor, dtype: Any, modifiers: Modifiers | None, shard: Shard, part: Part
) -> Tensor:
    """Return this rank's part of softmax or log-softmax of the rows of a matrix."""
    log = name == "log_softmax"
    op = operators.log_softmax if log else operators.softmax
    if modifiers is None:
        return _OfPart.apply(x, op, dtype, shard, part)  # pyright: ignore
    dtype = dtype or x.dtype
    inputs = x, modifiers.scale, modifiers.bias
    if torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in inputs):
        options = (True, modifiers, log, 1, dtype, True, part, None)
        y = operators.differentiable_modified(*inputs, None, options)[0]
        y.register_hook(lambda _: agree_backward(shard))
        return y
    given = op.operation, (x,), (), modifiers, 1, dtype
    return operators.run_modified(*given, invariant=True, part=part)[0]


def normalize(
    function: Callable[..., Tensor],
    x: Tensor,
    dim: int,
    dtype: torch.dtype | None,
    modifiers: Modifiers | None,
    shard: Shard,
) -> Tensor:
    """Return this rank's part of softmax or log-softmax of whole rows. A bias and a mask are cut as
    x is; each takes a message of its own."""
    given: dict[str, Any] = {} if modifiers is None else modifiers._asdict()
    part = part_of(shard, x, *[each for each in given.values() if isinstance(each, Tensor)])
    if part is not None and dtype != torch.float64:
        for name in ("scale", "bias", "where"):
            if isinstance(t := given.get(name), Tensor):
                size = 1 if name == "scale" else x.shape[dim]
                shape = x.movedim(dim, -1)[..., :size].movedim(-1, dim).shape
                given[name] = rows_along(t.expand(shape), dim)
        some = None if modifiers is None else Modifiers(**given)
        y = normalize_part(function.__name__, rows_along(x, dim), dtype, some, shard, part)
        return y.view(x.movedim(dim, -1).shape).movedim(-1, dim).contiguous()
    if modifiers is not None:
        for name in ("bias", "where"):
            t: Any = given[name]
            if t is not None:  # one that is broadcast may have other sizes on other ranks
                of_bytes = t.to(torch.uint8) if name == "where" else t
                of_all = whole(of_bytes.expand(x.shape), dim, shard)
                given[name] = of_all != 0 if name == "where" else of_all
    y = function(whole(x, dim, shard), dim, dtype, batch_invariant=True, **given)
    return _Part.apply(y, dim, x.shape[dim], shard)  # pyright: ignore[reportReturnType]
