"""Rows of which each rank has a part: a rank is a chunk of a row, or some chunks.

A rank plans as one GPU that cuts its rows into chunks, with two launches: the first publishes a few
words of each chunk, and the second writes the result from the words of all chunks of a row. Here
the words pass in a message between the two. So there are no kernels for several ranks, and whether
sums depend on their order, or give a row the bits that it has on one GPU, is up to the operation.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import arguments, modes, operators
from ..arguments import Modifiers, Part
from ..config import splitting
from ..operations.operation import Operation
from ..plan import layout
from ..plan.modified import plan_of_part
from .process_group import Shard, agree_backward, propose_backward, received, send


def part_of(shard: Shard, x: Tensor, dim: int, invariant: bool) -> Part | None:
    """Return what is here of the rows of x; None where whole rows are: on one rank, or after every
    rank has gathered them.

    That is what ranks do if no kernels compute, if there are no elements, or if a row must have the
    bits that it has on one GPU, and that cuts it into chunks where no rank's part ends. It depends
    on nothing but what ranks have agreed on.
    """
    group, traced = shard.group, torch.compiler.is_compiling()
    if group is None or group.size() == 1:
        return None
    n_ranks = group.size()
    if not (arguments.INTERPRETED or x.device.type != "cpu"):
        return None
    if traced:
        return None if invariant else Part(shard.start, shard.total, 0, n_ranks, group, send)
    if not shard.total or 0 in x.shape[:dim] + x.shape[dim + 1 :]:
        return None
    if invariant:
        long = shard.total > splitting.MAX_SPLIT_COLS or x.dtype == torch.float64
        parts = 1 if long else splitting.parts_of(shard.total)
        if parts == 1 or parts % n_ranks or shard.parts:
            return None
    return Part(shard.start, shard.total, shard.widest, n_ranks, group, send)


def rows_of(x: Tensor, dim: int) -> Tensor:
    """Return x as a matrix whose rows run along `dim` and have adjacent elements."""
    rows = x if x.dim() == 2 and dim == 1 else layout.rows_along(x, dim)
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


def over_ranks(
    op: Operation, inputs: tuple[Tensor, ...], dtype: torch.dtype, shard: Shard, part: Part,
    invariant: bool,
) -> Tensor:  # fmt: skip
    """Return the result of an operation on matrices. Of many rows, the message of a block travels
    while the next block is read."""
    plain = not torch.compiler.is_compiling()
    if not plain:
        lines = operators.lines_of(op, inputs, (), dtype, part)
        return operators.from_lines(op, inputs, (), dtype, part, lines)[0]
    if len(shard.blocks) < 2:
        return plan_of_part(op, inputs, dtype, part, invariant)(*inputs)
    if invariant:
        inputs = tuple(map(layout.on_vectors, inputs))
    x, waiting = inputs[0], None
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    for block in (*shard.blocks, None):
        last, waiting = waiting, None
        if block is not None:
            # A multiple of 8 rows begins where the tensor does, modulo a vector.
            first, end = block[0] // 8 * 8, block[1]
            at = slice(first, end if end == len(x) else end // 8 * 8)
            rows = tuple([each[at] for each in inputs])
            plan: Any = plan_of_part(op, rows, dtype, part, invariant)
            waiting = plan, send(plan.publish(*rows), part.group), rows, y[at]
        if last is not None:
            plan, message, rows, out = last
            plan.write(received(*message), *rows, out=out)
    return y


class _Normalized(Function):
    """This rank's part of softmax or log-softmax of the rows of a matrix."""

    @staticmethod
    def forward(ctx, x, op: operators.Normalization, dtype: Any, *where):
        y = over_ranks(op.operation, (x,), dtype, *where)
        ctx.save_for_backward(y)
        ctx.arguments = op.vjp, x.dtype, where
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        vjp, dtype, where = ctx.arguments
        (dy,) = modes.in_memory(incoming_gradient=dy)
        inputs = y, rows_of(dy, 1)
        dx = propose_backward(where[0]).run(
            lambda _: over_ranks(vjp.operation, inputs, dtype, *where)
        )
        return dx, *(None,) * 5


def normalize(
    op: operators.Normalization, x: Tensor, dim: int, dtype: torch.dtype,
    modifiers: Modifiers | None, shard: Shard, part: Part, invariant: bool,
) -> Tensor:  # fmt: skip
    """Return this rank's part of softmax or log-softmax of a tensor."""
    rows, shape = rows_of(x, dim), x.movedim(dim, -1).shape
    if modifiers is None:
        y: Any = _Normalized.apply(rows, op, dtype, shard, part, invariant)
    else:
        given = modifiers._asdict()
        for name in ("scale", "bias", "where"):
            if isinstance(t := given[name], Tensor):
                size = 1 if name == "scale" else x.shape[dim]
                t = layout.rows_along(t.expand(*x.shape[:dim], size, *x.shape[dim + 1 :]), dim)
                given[name] = t if t.stride(1) <= 1 else t.contiguous()
        some = Modifiers(**given)
        options = (True, some, op is operators.log_softmax, 1, dtype, invariant, part, None)
        y = operators.differentiable_modified(rows, some.scale, some.bias, None, options)[0]

        def arrives(dy: Tensor) -> Tensor:
            agree_backward(shard)
            return modes.in_memory(incoming_gradient=dy)[0]

        if y.requires_grad:
            y.register_hook(arrives)
    return y if y.shape == x.shape and dim == 1 else y.view(shape).movedim(-1, dim).contiguous()


class _LogSumExp(Function):
    """Log-sum-exp of the rows of a matrix, on every rank. Its gradient follows from the words of
    the forward pass, and takes no message, unless the bits of one GPU are asked for."""

    @staticmethod
    def forward(ctx, x, shard: Shard, part: Part, invariant: bool):
        op, lines = operators.logsumexp.operation, None
        if invariant:
            lse = plan_of_part(op, (x,), x.dtype, part, True)(x)
        else:
            lines = operators.lines_of(op, (x,), (), x.dtype, part)
            (lse,) = operators.from_lines(op, (x,), (), x.dtype, part, lines)
        ctx.save_for_backward(x, lines)
        ctx.arguments = shard, part
        return lse.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, dlse):
        x, lines = ctx.saved_tensors
        shard, part = ctx.arguments
        (dlse,) = modes.in_memory(incoming_gradient=dlse)
        op = operators.logsumexp_backward.operation
        if lines is None:
            agree_backward(shard)
            dx = plan_of_part(op, (x, dlse), x.dtype, part, True)(x, dlse)
        else:
            (dx,) = operators.from_lines(op, (x,), (dlse,), x.dtype, part, lines)
        return dx, None, None, None


def logsumexp(x: Tensor, dim: int, shard: Shard, part: Part, invariant: bool) -> Tensor:
    """Return log-sum-exp of a tensor along `dim`, on every rank."""
    lse: Any = _LogSumExp.apply(rows_of(x, dim), shard, part, invariant)
    return lse.view(x.shape[:dim] + x.shape[dim + 1 :])
