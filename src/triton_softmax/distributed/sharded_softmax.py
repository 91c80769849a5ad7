"""`softmax`, `log_softmax` and `logsumexp` of rows of which this rank has a part.

Forward, a rank sends (m, d) of every row; backward of the first two, one sum. Log-sum-exp has the
same result on all ranks, and each calls backward for its own copy: what arrives is the gradient of
one loss, and nothing is sent.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import composite, operators, plan
from ..arguments import check_dim, check_dtype, check_modifiers
from ..launch import Memo
from ..operations.gradients import GRADIENT
from ..operations.log_softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP
from ..operations.operation import Operation
from ..operations.softmax import SOFTMAX, SOFTMAX_VJP
from . import symmetric_memory
from .partials import (
    GRADIENTS,
    PRODUCTS,
    SUMMARY,
    SUMMARY_OF_INFINITIES,
    Partials,
    merged,
    partials,
)
from .process_group import HEADER, Shard, agree, check_group, check_headers, send


class Normalization(NamedTuple):
    """Softmax, or its logarithm."""

    name: str
    op: Operation
    vjp: Operation
    sums: Partials
    """What a rank sends backward."""
    empty: float
    """The result where nothing counts."""


NORMALIZATIONS = {
    SOFTMAX: Normalization("softmax", SOFTMAX, SOFTMAX_VJP, PRODUCTS, 0.0),
    LOG_SOFTMAX: Normalization("log_softmax", LOG_SOFTMAX, LOG_SOFTMAX_VJP, GRADIENTS, -math.inf),
}


_dimensions = Memo()
"""Dimensions, counted from the front, of calls that have been checked."""


def rows_of(x: Tensor, dim: int) -> Tensor:
    """Return x as a matrix whose rows run along `dim`; a view where possible."""
    moved = x.movedim(dim, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


def check_input(x: Tensor, dim: int, group: Any) -> int:
    """Return the dimension, counted from the front, after the checks that need no other rank.

    Raises:
        TypeError: `group` is not a process group, or x has another dtype.
        IndexError: there is no such dimension.
    """
    if group is not None:
        check_group(group)
    check_dtype(x.dtype, "the input")
    return check_dim(dim, x.dim())


def of_all_ranks(kind: Partials, words: tuple[Tensor, ...], shard: Shard) -> tuple[Tensor, ...]:
    """Send numbers of rows in one message forward, and return those of all ranks as one."""
    if not len(words[0]):
        return words
    header = () if shard.headers is None else (shard.headers[0],)
    lines, _ = send(torch.cat((*header, *words)), shard)
    return merged(kind, lines[:, HEADER * len(header) :].unflatten(1, (len(words), -1)))


# --8<-- [start:softmax]
def _over_ranks(
    inputs: tuple[Tensor, ...],
    kind: Partials,
    op: Operation,
    shard: Shard,
    backward: bool,
    invariant: bool,
) -> Tensor:
    """Return the elements of an operation, for matrices of which other ranks have other columns.

    Each block of rows is summarised and its message sent; it is finished while that of the next is
    on its way.
    """
    x = inputs[0]
    compiling = torch.compiler.is_compiling()
    if not (compiling or invariant) and shard.group in symmetric_memory.buffers:
        if symmetric_memory.takes(shard, x):
            return symmetric_memory.run(op, inputs, shard)
    if not len(x):
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    one = len(shard.blocks) == 1
    y = None if one else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    finish = operators.finish if compiling else plan.finish
    sent = None
    for block in (*shard.blocks, None):
        waiting, sent = sent, None
        if block is not None:
            rows = inputs if one else tuple([each[block] for each in inputs])
            words = partials(kind, rows, invariant)
            if shard.headers is not None:
                words = (shard.headers[int(backward)], *words)
            lines, work = send(torch.cat(words), shard, wait=one)
            sent = block, rows, lines, work
        if waiting is not None:
            at, rows, lines, work = waiting
            if work is not None:
                work.wait()
                if lines.device.type == "cpu":
                    check_headers(lines)
            lines = lines if shard.headers is None else lines[:, HEADER:]
            # eq: merge
            numbers = merged(kind, lines.unflatten(1, (-1, len(rows[0]))))
            found = finish(op, rows, numbers, x.dtype, None if y is None else y[at])
    return found if y is None else y


class _Normalized(Function):
    """Softmax or log-softmax of the rows of a matrix."""

    @staticmethod
    def forward(ctx, x, shard: Shard, kind: Normalization, invariant: bool):
        y = _over_ranks((x.detach(),), SUMMARY, kind.op, shard, False, invariant)
        ctx.save_for_backward(y)
        ctx.arguments = shard, kind, invariant
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        shard, kind, invariant = ctx.arguments
        dx = _over_ranks((y, dy), kind.sums, kind.vjp, shard, True, invariant)
        return dx, None, None, None


# --8<-- [end:softmax]


def normalize(
    op: Operation,
    x: Tensor,
    group: Any,
    dim: int,
    dtype: torch.dtype | None,
    invariant: bool,
    modifiers: tuple[Any, ...] | None = None,
) -> Tensor:
    """Return the part that this rank has of softmax or log-softmax, whichever the operation is.

    Args:
        op: the operation.
        x: the part of the input.
        group: of the ranks that have the other parts.
        dim, dtype: as for `softmax`.
        invariant: give a row the same bits in every batch.
        modifiers: the fields of `Modifiers`, which PyTorch's operators apply to this rank's part
            first; no causal mask, and no sink.

    Raises:
        NotImplementedError: a modifier that all elements of a row share wants a gradient.
    """
    if dtype is None and x.device.type != "cpu" and torch.is_autocast_enabled(x.device.type):
        dtype = composite.accumulator(x.dtype)
    if dtype is not None:
        check_dtype(dtype, "the argument dtype")
        x = x.to(dtype)
    shape, kind, gone = x.shape, NORMALIZATIONS[op], None
    key, traced = (x.dim(), x.dtype, dim, type(group)), torch.compiler.is_compiling()
    known = None if traced else _dimensions.get(key)
    dim = check_input(x, dim, group) if known is None else known
    if known is None and not traced:
        _dimensions.keep(key, dim)
    if not shape:
        x = x.reshape(1)
    if modifiers is not None:
        modifiers = check_modifiers(x, dim, *modifiers)
        for each in (modifiers.scale, modifiers.bias):
            if isinstance(each, Tensor) and each.requires_grad:
                if each.shape[dim - x.dim() :][:1] in ((), (1,)):
                    raise NotImplementedError(
                        "a gradient is not summed over ranks for scale and bias"
                    )
        dtype = x.dtype
        x = composite.modified_elements(x, modifiers)
        gone = x == -torch.inf
        if modifiers.where is not None:
            gone = gone | ~modifiers.where
        x = torch.where(gone, -torch.inf, x)
    pushed = not traced and group in symmetric_memory.buffers
    options = ("batch-invariant",) * invariant + ("words are pushed",) * pushed
    shard = agree(group, kind.name, x, dim, options, where=pushed)
    if x.dim() == 2 and dim == 1:
        y = _Normalized.apply(x, shard, kind, invariant)
    else:
        y = _Normalized.apply(rows_of(x, dim), shard, kind, invariant)
        y = y.view(x.movedim(dim, -1).shape).movedim(-1, dim).contiguous().view(shape)
    if modifiers is None:
        return y
    return (torch.where(gone, kind.empty, y) if modifiers.safe else y).to(dtype)  # pyright: ignore


class _Logsumexp(Function):
    """Log-sum-exp of the rows of a matrix, the same number on all ranks."""

    @staticmethod
    def forward(ctx, x, shard: Shard, invariant: bool):
        kind = SUMMARY_OF_INFINITIES
        m, d = of_all_ranks(kind, partials(kind, (x.detach(),), invariant), shard)
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
        return operators.finish(GRADIENT, (x,), numbers, x.dtype), None, None


def logsumexp(
    x: Tensor,
    dim: int | tuple[int, ...] | list[int],
    keepdim: bool,
    group: Any,
    invariant: bool,
) -> Tensor:
    """Return log-sum-exp of all parts, on every rank."""
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
    last = check_input(x, dims[0] if len(dims) == 1 else -1, group)
    x = x if x.dim() else x.reshape(1)
    shard = agree(group, "logsumexp", x, last, (f"dims {dims}",), where=False)
    lse = _Logsumexp.apply(rows_of(x, last), shard, invariant)
    if keepdim:
        return lse.view([1 if i in dims else size for i, size in enumerate(shape)])
    return lse.view([size for i, size in enumerate(shape) if i not in dims])
