"""Rows of which each rank has a part: a rank is a chunk of a row, or some chunks.

A rank plans as one GPU that cuts its rows into chunks, with two launches: the first publishes a few
words of each chunk, and the second writes the result from the words of all chunks of a row. Here
the words pass in a message between the two. So there are no kernels for several ranks, and whether
sums depend on their order, or give a row the bits that it has on one GPU, is up to the operation.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import composite, modes, operators
from ..arguments import Modifiers
from ..operations.operation import Operation
from ..plan import layout
from ..plan.modified import plan_of_part
from .gather import part_of_result, whole
from .process_group import Shard, agreed_backward, received, send


def rows_of(x: Tensor, dim: int) -> Tensor:
    """Return x as a matrix whose rows run along `dim` and have adjacent elements."""
    rows = x if x.dim() == 2 and dim == 1 else layout.rows_along(x, dim)
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


def over_ranks(
    op: Operation, inputs: tuple[Tensor, ...], dtype: torch.dtype, invariant: bool,
    lines: Tensor | None, shard: Shard,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return the result of an operation on matrices, and the messages from which it follows, which
    an earlier call may have received. Of many rows of elements, the message of a block travels
    while the next block is read."""
    if len(shard.blocks) < 2 or op.reduces or op.numbers:
        (y,), lines = operators.of_parts(op, inputs, dtype, shard.part, invariant, lines)
        return y, lines
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
            plan = plan_of_part(op, rows, dtype, shard.part, invariant)  # pyright: ignore
            waiting = plan, send(plan.publish(*rows), shard.group), rows, y[at]
        if last is not None:
            plan, message, rows, out = last
            plan.write(received(*message), *rows, out=out)
    return y, None


class _OfParts(Function):
    """Softmax, log-softmax or log-sum-exp of the rows of a matrix, of which this rank has a part.

    The gradient of log-sum-exp follows from the words of the forward pass, and takes no message,
    unless the bits of one GPU are asked for.
    """

    @staticmethod
    def forward(ctx, x, op: operators.Normalization, dtype: Any, invariant: bool, shard: Shard):
        y, lines = over_ranks(op.operation, (x,), dtype, invariant, None, shard)
        reduces = op.operation.reduces
        ctx.save_for_backward(x if reduces else y, lines if reduces and not invariant else None)
        ctx.arguments = op.vjp, x.dtype, invariant, shard
        return y if y.dtype == dtype else y.to(dtype)  # torch 2.11 compiles aliases to 0 gradients

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        saved, lines = ctx.saved_tensors
        vjp, dtype, invariant, shard = ctx.arguments
        (dy,) = modes.in_memory(incoming_gradient=dy)
        inputs = saved, dy if dy.dim() == 1 else rows_of(dy, 1)
        compute = partial(over_ranks, vjp.operation, inputs, dtype, invariant, lines)
        dx, _ = compute(shard) if lines is not None else agreed_backward(shard, compute)
        return dx, *(None,) * 4


def of_rows(
    function: Callable[..., Tensor], x: Tensor, dim: int, dtype: torch.dtype, invariant: bool,
    modifiers: Modifiers | None, shard: Shard,
) -> Any:  # fmt: skip
    """Return the part that this rank has of softmax or log-softmax along `dim`, or log-sum-exp."""
    op, traced = getattr(operators, function.__name__), torch.compiler.is_compiling()
    if shard.part is None:
        return _of_whole_rows(function, x, dim, dtype, invariant, modifiers, shard)
    if modifiers is not None and not traced:
        y = _modified(op, x, dim, dtype, invariant, modifiers, shard)
    else:
        z = x
        if modifiers is not None:  # PyTorch's operators, which the compiler fuses
            z = composite.masked_elements(x.to(dtype), modifiers.where, modifiers)
        rows = z if z.dim() == 2 and dim == 1 and z.stride(1) == 1 else rows_of(z, dim)
        differentiated = rows.requires_grad and torch.is_grad_enabled()
        wide = dtype if modifiers is None else z.dtype
        if differentiated or traced or len(shard.blocks) > 1:
            y = _OfParts.apply(rows, op, wide, invariant, shard)
        else:
            (y,), _ = operators.of_parts(op.operation, (rows,), wide, shard.part, invariant)
        if modifiers is not None and modifiers.safe:
            empty = -torch.inf if op is operators.log_softmax else 0.0
            y = y.masked_fill(rows == -torch.inf, empty)
        y = y if y.dtype == dtype else y.to(dtype)
    if y.dim() == 1:
        return y.view(x.shape[:dim] + x.shape[dim + 1 :])
    if x.dim() == 2 and dim == 1:
        return y
    return y.view(x.movedim(dim, -1).shape).movedim(-1, dim).contiguous()


def _modified(
    op: operators.Normalization, x: Tensor, dim: int, dtype: torch.dtype, invariant: bool,
    modifiers: Modifiers, shard: Shard,
) -> Tensor:  # fmt: skip
    """Return softmax or log-softmax of rows with score modifiers, as a matrix."""
    given = modifiers._asdict()
    for name in ("scale", "bias", "where"):
        if isinstance(t := given[name], Tensor):
            size = 1 if name == "scale" else x.shape[dim]
            t = layout.rows_along(t.expand(*x.shape[:dim], size, *x.shape[dim + 1 :]), dim)
            given[name] = t if t.stride(1) <= 1 else t.contiguous()
    rows, some = rows_of(x, dim), Modifiers(**given)
    options = (True, some, op is operators.log_softmax, 1, dtype, invariant, shard.part, None)
    y = operators.differentiable_modified(rows, some.scale, some.bias, None, options)[0]

    def arrives(dy: Tensor) -> Tensor:
        agreed_backward(shard)
        return modes.in_memory(incoming_gradient=dy)[0]

    if y.requires_grad:
        y.register_hook(arrives)
    return y


def _of_whole_rows(
    function: Callable[..., Tensor], x: Tensor, dim: int, dtype: torch.dtype, invariant: bool,
    modifiers: Modifiers | None, shard: Shard,
) -> Any:  # fmt: skip
    """Return the same of rows that every rank gathers."""
    rows, more = whole(x, dim, shard), {} if modifiers is None else modifiers._asdict()
    if function.__name__ == "logsumexp":
        return function(rows, dim, batch_invariant=invariant)
    for name in ("bias", "where"):
        t = more.get(name)
        if t is not None:  # one that is broadcast may have other sizes on other ranks
            mask = t.dtype == torch.bool
            of_all = whole((t.to(torch.uint8) if mask else t).expand(x.shape), dim, shard)
            more[name] = of_all != 0 if mask else of_all
    y = function(rows, dim, dtype, batch_invariant=invariant, **more)
    return part_of_result(y, dim, x.shape[dim], shard)
