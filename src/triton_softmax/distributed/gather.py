"""Whole rows of which ranks have parts, where no rank can leave its part where it is.

One message takes the elements to all ranks, each of which computes what one GPU would, and another
takes the gradient of an output that is cut.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from .. import modes
from .process_group import Shard, agreed_backward, received, send


def gathered(x: Tensor, dim: int, shard: Shard) -> Tensor:
    """Return the whole of a tensor of which this rank has a part along `dim`."""
    (x,) = modes.in_memory(input=x)
    parts, part = shard.parts, x.movedim(dim, -1)
    if parts:
        part = pad(part, (0, shard.widest - x.shape[dim]))
    if not part.numel():
        return x.new_empty(*x.shape[:dim], shard.total, *x.shape[dim + 1 :])
    lines = received(*send(part.reshape(-1), shard.group))
    of_ranks = [*lines.view(-1, *part.shape).unbind()]
    if parts:
        order = sorted(range(len(parts)), key=parts.__getitem__)
        of_ranks = [of_ranks[rank][..., : parts[rank][1]] for rank in order]
    return torch.cat(of_ranks, -1).movedim(-1, dim).contiguous()


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
        agreed_backward(ctx.where[1])
        return gathered(g, *ctx.where), None, None, None


def whole(x: Tensor, dim: int, shard: Shard) -> Tensor:
    """Return the whole rows, with a gradient for this rank's part of them."""
    if shard.group is None or shard.group.size() == 1:
        return x
    return _Whole.apply(x, dim, shard)  # pyright: ignore[reportReturnType]


def part_of_result(y: Tensor, dim: int, n_cols: int, shard: Shard) -> Any:
    """Return this rank's part of a result for whole rows, of so many columns."""
    if shard.group.size() == 1:
        return y
    return _Part.apply(y, dim, n_cols, shard)
