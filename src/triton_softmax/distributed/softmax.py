"""`softmax`, `log_softmax` and `logsumexp` of rows of which this rank has a part.

Forward, a rank sends (m, d) of every row; backward of the first two, one sum. Log-sum-exp has the
same result on all ranks, and each calls backward for its own copy: what arrives is the gradient of
one loss, and nothing is sent.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import maps, ways
from ..checks import BATCH_INVARIANT, check_dim, check_dtype
from ..finishing import finish
from . import local, pushed
from .ranks import Shard, agree, blocks_of, check_group, in_turn, send

ALONE = Shard(None, 0, 0)
"""What is not divided."""


def rows_of(x: Tensor, dim: int) -> Tensor:
    """x as a matrix whose rows run along `dim`; a view where possible."""
    moved = x.movedim(dim, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


def from_rows(y: Tensor, like: Tensor, dim: int) -> Tensor:
    """The contiguous tensor of which y has the rows, in the shape of `like`."""
    return y.view(like.movedim(dim, -1).shape).movedim(-1, dim).contiguous()


def described(name: str, x: Tensor, dim: int, *more: object) -> str:
    """A call in words that are the same on all ranks, if they call the same thing."""
    shape = ", ".join("*" if i == dim else str(size) for i, size in enumerate(x.shape))
    gradient = "with" if x.requires_grad and torch.is_grad_enabled() else "without"
    said = f"{name} of {str(x.dtype)[6:]} ({shape}) along {dim}, {gradient} a gradient"
    return "; ".join([said, *[str(each) for each in more]])


def prepared(x: Tensor, dim: int, group: Any) -> tuple[Tensor, int]:
    """x and the dimension, counted from the front, after the checks that need no other rank.

    Raises:
        TypeError: `group` is no process group, or x has another dtype.
        IndexError: there is no such dimension.
    """
    if group is not None:
        check_group(group)
    if not isinstance(x, Tensor):
        raise TypeError(f"the input must be a torch.Tensor, not {type(x).__name__}")
    check_dtype(x.dtype, "the input")
    dim = check_dim(dim, x.dim())
    return (x if x.dim() else x.reshape(1)), dim


def shard_of(x: Tensor, dim: int, group: Any, name: str, *more: object) -> Shard:
    """Where x lies among the parts of the ranks. While a call is traced nobody is asked."""
    if torch.compiler.is_compiling():
        return Shard(group, 0, x.shape[dim] * group.size())
    pushes = pushed.pushes(group)
    call = described(name, x, dim, *more, *(["words are pushed"] if pushes else []))
    return agree(group, call, x.shape[dim], x.device, where=pushes)


def row_bytes(x: Tensor, shard: Shard) -> int:
    """Bytes of a row's part, if all parts were equal."""
    world = 1 if shard.group is None else shard.group.size()
    return shard.total * x.element_size() // world


# --8<-- [start:softmax]
class _Normalized(Function):
    """Softmax or log-softmax of the rows of a matrix."""

    @staticmethod
    def forward(ctx, x, shard: Shard, name: str, implementation: str | None):
        x = x.detach()
        ctx.arguments = shard, name, implementation
        if implementation is None and pushed.takes(shard.group, x.dtype, shard.widest, len(x)):
            y = pushed.run(name, (x,), x.dtype, shard)
            ctx.save_for_backward(y)
            return y
        blocks = blocks_of(len(x), row_bytes(x, shard))
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device) if len(blocks) > 1 else None

        def begin(block):
            words = local.summary("rank_summary", x[block], implementation=implementation)
            return send(words, shard, wait=len(blocks) == 1)

        def end(block, words):
            nonlocal y
            # eq: merge
            numbers = tuple(local.merged("rank_summary", words))
            if y is None:
                y = finish(name, (x,), numbers, x.dtype)
            else:
                finish(name, (x[block],), numbers, x.dtype, y[block])

        in_turn(blocks, begin, end)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        shard, name, implementation = ctx.arguments
        if implementation is None and pushed.takes(shard.group, y.dtype, shard.widest, len(y)):
            return pushed.run(f"{name}_backward", (y, dy), y.dtype, shard), None, None, None
        blocks = blocks_of(len(y), row_bytes(y, shard))
        dx = torch.empty(y.shape, dtype=y.dtype, device=y.device) if len(blocks) > 1 else None

        def begin(block):
            sums = "rank_products" if name == "softmax" else "rank_gradients"
            words = local.summary(sums, y[block], dy[block], implementation=implementation)
            return send(words, shard, backward=True, wait=len(blocks) == 1)

        def end(block, words):
            nonlocal dx
            s = local.added_up(words)[0]
            operation = f"{name}_backward"
            if dx is None:
                dx = finish(operation, (y, dy), (s,), y.dtype)
            else:
                finish(operation, (y[block], dy[block]), (s,), y.dtype, dx[block])

        in_turn(blocks, begin, end)
        return dx, None, None, None


# --8<-- [end:softmax]


def normalized(
    name: str,
    x: Tensor,
    dim: int,
    dtype: torch.dtype | None,
    group: Any,
    implementation: str | None,
) -> Tensor:
    """The part that this rank has of `softmax` or `log_softmax`, whichever is named, of the part of
    the input."""
    if implementation not in (None, BATCH_INVARIANT):
        raise ValueError("implementation= names a kernel for whole rows; a group has parts of them")
    if dtype is None and x.device.type != "cpu" and torch.is_autocast_enabled(x.device.type):
        dtype = local.accumulator(x.dtype)
    shape = x.shape
    if dtype is not None:
        check_dtype(dtype, "the argument dtype")
        x = x.to(dtype)
    x, dim = prepared(x, dim, group)
    shard = shard_of(x, dim, group, name, *([implementation] if implementation else []))
    y = _Normalized.apply(rows_of(x, dim), shard, name, implementation)
    return from_rows(y, x, dim).view(shape)


def with_maps(
    name: str,
    x: Tensor,
    dim: int,
    dtype: torch.dtype | None,
    group: Any,
    implementation: str | None,
    arguments: tuple[Any, ...],
) -> Tensor:
    """Softmax or log-softmax with maps, which PyTorch's operators apply to this rank's part first.

    Args:
        arguments: scale, softcap, where, bias, causal, safe and sink, as for `ways.check_way`; the
            last but one alone of the last three.

    Raises:
        NotImplementedError: a tensor that all elements of a row share wants a gradient.
    """
    x = x if dtype is None else x.to(dtype)
    prepared(x, dim, group)
    dim = check_dim(dim, x.dim())
    way = ways.check_way(x, dim, *arguments)
    for each in (way.scale, way.bias):
        if not isinstance(each, Tensor) or not each.requires_grad:
            continue
        if each.shape[dim - x.dim() :][:1] in ((), (1,)):
            raise NotImplementedError("a gradient is not summed over ranks for scale and bias")
    z = maps.mapped_elements(x, way)
    gone = z == -torch.inf
    if way.where is not None:
        gone = gone | ~way.where
    z = torch.where(gone, -torch.inf, z)
    y = normalized(name, z, dim, None, group, implementation)
    if way.safe:
        y = torch.where(gone, -torch.inf if name == "log_softmax" else 0.0, y)
    return y.to(x.dtype)


class _Logsumexp(Function):
    """Log-sum-exp of the rows of a matrix, the same number on all ranks."""

    @staticmethod
    def forward(ctx, x, shard: Shard, implementation: str | None):
        name = "rank_summary_of_infinities"
        words = local.summary(name, x.detach(), implementation=implementation)
        m, d = local.merged(name, send(words, shard)())
        ctx.save_for_backward(x, m, d)
        # eq: lse-from-summary
        # An infinite m is itself the result, unless a NaN in the row has made d one.
        return torch.where(m.isinf() & (d == d), m, m + d.log()).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, m, d = ctx.saved_tensors
        zero = torch.zeros_like(m)
        nowhere = torch.full_like(m, -1, dtype=torch.int64)
        # Beside +inf, which has the whole gradient and no number for it, all others have 0.
        numbers = (m, nowhere, zero, g.to(m.dtype) / d, zero)
        return finish("gradient", (x,), numbers, x.dtype), None, None


def logsumexp(
    x: Tensor,
    dim: int | tuple[int, ...] | list[int],
    keepdim: bool,
    group: Any,
    implementation: str | None = None,
) -> Tensor:
    """`functional.logsumexp` of all parts, on every rank."""
    check_group(group)
    dims = [dim] if isinstance(dim, int) else list(dim)
    dims = [check_dim(each, x.dim()) for each in dims]
    if len(set(dims)) != len(dims) or not dims:
        raise ValueError(f"dim names a dimension twice, or none: {tuple(dims)}")
    shape = x.shape
    if len(dims) > 1:
        # A part of each row, as one dimension.
        kept = [size for i, size in enumerate(shape) if i not in dims]
        x = x.movedim(dims, list(range(-len(dims), 0)))
        x = x.reshape(*kept, math.prod(shape[i] for i in dims))
    x, last = prepared(x, dims[0] if len(dims) == 1 else -1, group)
    shard = shard_of(x, last, group, "logsumexp", f"dims {dims}")
    lse = _Logsumexp.apply(rows_of(x, last), shard, implementation)
    if keepdim:
        return lse.view([1 if i in dims else size for i, size in enumerate(shape)])
    return lse.view([size for i, size in enumerate(shape) if i not in dims])
