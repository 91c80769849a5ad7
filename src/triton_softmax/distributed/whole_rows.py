"""Batch-invariant calls: every rank gathers whole rows, and computes what one GPU would.

A row then has the bits that it has on one GPU, however it is cut, because nothing of it is summed
anywhere else. One message takes the elements to all ranks, and another takes the gradient of an
output that is cut. That is far more than the sums that other calls send.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from ..arguments import check_modifiers_of_part
from .process_group import Shard, received, send


def gathered(x: Tensor, dim: int, shard: Shard) -> Tensor:
    """Return the whole of a tensor of which this rank has a part along `dim`."""
    parts, part = shard.parts, x.movedim(dim, -1)
    if parts:
        part = pad(part, (0, max(size for _, size in parts) - x.shape[dim]))
    shard = shard._replace(headers=None)  # they are float32, and what is sent may not be
    if not part.numel():
        return x.new_empty(*x.shape[:dim], shard.total, *x.shape[dim + 1 :])
    lines = received(*send((part.reshape(-1),), shard), shard)
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
        return gathered(g, *ctx.where), None, None, None


def whole(x: Tensor, dim: int, shard: Shard) -> Tensor:
    """Return the whole rows, with a gradient for this rank's part of them."""
    return _Whole.apply(x, dim, shard)  # pyright: ignore[reportReturnType]


def normalize(
    function: Callable[..., Tensor],
    x: Tensor,
    dim: int,
    dtype: torch.dtype | None,
    modifiers: tuple[Any, ...] | None,
    shard: Shard,
) -> Tensor:
    """Return this rank's part of softmax or log-softmax of whole rows. A bias and a mask are cut as
    x is, unless they are broadcast along rows; each takes a message of its own."""
    given: dict[str, Any] = {}
    if modifiers is not None:
        given = check_modifiers_of_part(x, dim, modifiers)._asdict()
        for name in ("bias", "where"):
            t = given[name]
            at = dim - x.dim()
            if t is not None and t.dim() >= -at and t.shape[at] == x.shape[dim]:
                of_bytes = t.to(torch.uint8) if name == "where" else t
                of_all = whole(of_bytes, t.dim() + at, shard)
                given[name] = of_all != 0 if name == "where" else of_all
    y = function(whole(x, dim, shard), dim, dtype, batch_invariant=True, **given)
    return _Part.apply(y, dim, x.shape[dim], shard)  # pyright: ignore[reportReturnType]
