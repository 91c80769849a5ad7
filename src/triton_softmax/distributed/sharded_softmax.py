"""`softmax`, `log_softmax` and `logsumexp` of rows of which this rank has a part.

Forward, a rank sends (m, d) of every row; backward of the first two, one sum. Log-sum-exp has the
same result on all ranks, and each calls backward for its own copy: what arrives is the gradient of
one loss, and nothing is sent.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import composite, operators, plan
from ..arguments import PLAIN, check_cut, check_dim, check_dtype, check_modifiers
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
    Sums,
    merged,
    partials,
)
from .process_group import HEADER, Shard, agree, received, send


class Normalization(NamedTuple):
    """Softmax, or its logarithm."""

    op: Operation
    vjp: Operation
    sums: Partials
    """What a rank sends backward."""
    empty: float
    """The result where nothing counts."""


NORMALIZATIONS = {
    "softmax": Normalization(SOFTMAX, SOFTMAX_VJP, PRODUCTS, 0.0),
    "log_softmax": Normalization(LOG_SOFTMAX, LOG_SOFTMAX_VJP, GRADIENTS, -math.inf),
}


def dtensors() -> Any:
    """Return the module of `DTensor`s, which is imported at the first of them:
    `torch.distributed.tensor` takes half a second, and most programs do not need it."""
    return importlib.import_module("..dtensor", __name__)


def rows_of(x: Tensor, dim: int) -> Tensor:
    """Return x as a matrix whose rows run along `dim`; a view where possible."""
    moved = x.movedim(dim, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


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
    one, first = len(shard.blocks) == 1, 0 if shard.headers is None else HEADER
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
            sent = block, rows, *send(torch.cat(words), shard)
        if waiting is not None:
            at, rows, lines, work = waiting
            lines = received(lines, work, shard)[:, first:]
            # eq: merge
            numbers = merged(kind, lines.unflatten(1, (-1, len(rows[0]))))
            out = None if y is None else y[at]
            found = finish(op, rows, numbers, x.dtype, out)
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
    function: Callable[..., Tensor],
    x: Any,
    group: Any,
    dim: int,
    dtype: torch.dtype | None,
    implementation: str | None,
    invariant: bool,
    modifiers: tuple[Any, ...] | None = None,
    out: Any = None,
) -> Any:
    """Return softmax or log-softmax: the part of it that this rank has, or a `DTensor`.

    Args:
        function: the public function.
        x, group, dim, dtype, implementation, out: its arguments.
        invariant: whether the call is batch-invariant.
        modifiers: its arguments of the names in `Modifiers`, in that order. PyTorch's operators
            apply them to this rank's part first.

    Raises:
        NotImplementedError: a modifier that all elements of a row share wants a gradient; and as
            `check_cut`.
    """
    if type(x) not in PLAIN or implementation is not None or modifiers is not None:
        check_cut(x, group, implementation, modifiers, out)
    if group is None:
        return dtensors().normalize(function, x, dim, dtype, implementation, invariant, modifiers)
    if dtype is None and x.device.type != "cpu" and torch.is_autocast_enabled(x.device.type):
        dtype = composite.accumulator(x.dtype)
    if dtype is not None:
        check_dtype(dtype, "the argument dtype")
        x = x.to(dtype)
    shape, kind, gone = x.shape, NORMALIZATIONS[function.__name__], None
    dim = check_dim(dim, x.dim())
    x = x if shape else x.reshape(1)
    if modifiers is not None:
        modifiers = given = check_modifiers(x, dim, *modifiers)
        for each in (given.scale, given.bias):
            if isinstance(each, Tensor) and each.requires_grad:
                if each.shape[dim - x.dim() :][:1] in ((), (1,)):
                    raise NotImplementedError(
                        "a gradient is not summed over ranks for scale and bias"
                    )
        dtype = x.dtype
        x = composite.modified_elements(x, given)
        gone = x == -torch.inf
        if given.where is not None:
            gone = gone | ~given.where
        x = torch.where(gone, -torch.inf, x)
    pushed = not torch.compiler.is_compiling() and group in symmetric_memory.buffers
    options = ("batch-invariant",) * invariant + ("words are pushed",) * pushed
    shard = agree(group, function.__name__, x, dim, options, where=pushed)
    rows = x if x.dim() == 2 and dim == 1 else rows_of(x, dim)
    y = _Normalized.apply(rows, shard, kind, invariant)
    if rows is not x:
        y = y.view(x.movedim(dim, -1).shape).movedim(-1, dim).contiguous().view(shape)
    if gone is None:
        return y
    return (torch.where(gone, kind.empty, y) if modifiers.safe else y).to(dtype)  # pyright: ignore


def logsumexp(
    function: Callable[..., Tensor],
    x: Any,
    group: Any,
    dim: int | tuple[int, ...] | list[int],
    keepdim: bool,
    invariant: bool,
) -> Any:
    """Return log-sum-exp of all parts, on every rank; the arguments are as for `normalize`."""
    if type(x) not in PLAIN:
        check_cut(x, group)
    if group is None:
        return dtensors().logsumexp(function, x, dim, keepdim, invariant)
    dims = [dim] if isinstance(dim, int) else list(dim)
    dims = [check_dim(each, x.dim()) for each in dims]
    if len(set(dims)) != len(dims) or not dims:
        raise ValueError(f"dim names a dimension twice, or none: {tuple(dims)}")
    shape, last = x.shape, dims[0]
    if len(dims) > 1:
        # A part of each row, as one dimension.
        kept = [size for i, size in enumerate(shape) if i not in dims]
        x = x.movedim(dims, list(range(-len(dims), 0)))
        x, last = x.reshape(*kept, math.prod(shape[i] for i in dims)), len(kept)
    x = x if x.dim() else x.reshape(1)
    shard = agree(group, "logsumexp", x, last, (f"dims {dims}",), where=False)
    rows = rows_of(x, last)
    m, d = Sums.apply(rows, None, None, None, SUMMARY_OF_INFINITIES, shard, invariant, False)
    # eq: lse-from-summary
    lse = (m + d.log()).to(x.dtype)
    if keepdim:
        return lse.view([1 if i in dims else size for i, size in enumerate(shape)])
    return lse.view([size for i, size in enumerate(shape) if i not in dims])
