"""`softmax`, `log_softmax` and `logsumexp` of rows of which this rank has a part.

Forward, a rank sends (m, d) of every row; backward of the first two, one sum. Log-sum-exp has the
same result on all ranks, and each calls backward for its own copy: what arrives is the gradient of
one loss, and nothing is sent.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import composite, modes, operators
from ..arguments import (
    DTYPES,
    PLAIN,
    Modifiers,
    cast,
    check_cut,
    check_dim,
    check_dtype,
    check_int,
    check_modifiers_of_part,
)
from ..operations.logsumexp import LOGSUMEXP
from ..operations.operation import Operation
from ..operations.softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP, SOFTMAX, SOFTMAX_VJP
from ..plan import losses as plan_losses
from ..plan.layout import rows_along
from .partials import Sums, merged, partials
from .process_group import Shard, agree, agree_backward, propose, send, tell
from .whole_rows import logsumexp_part, part_of, ways, whole
from .whole_rows import normalize as normalize_whole


def dtensors() -> Any:
    """Return the module of `DTensor`s, which is imported at the first of them:
    `torch.distributed.tensor` takes half a second, and most programs do not need it."""
    from . import dtensor  # a statement, which `torch.compile` follows

    return dtensor


def _over_ranks(inputs: tuple[Tensor, ...], op: Operation, shard: Shard) -> Tensor:
    """Return the elements of an operation, for matrices of which other ranks have other columns.

    Each block of rows is summarised and its message sent; it is finished while that of the next is
    on its way.
    """
    x = inputs[0]
    compiling = torch.compiler.is_compiling()
    if not len(x):
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    one = len(shard.blocks) == 1
    y = None if one else torch.empty(x.shape, dtype=x.dtype, device=x.device)
    finish = operators.finish if compiling else plan_losses.finish
    of, sent = SOFTMAX if op is LOG_SOFTMAX else op, None
    for block in (*shard.blocks, None):
        waiting, sent = sent, None
        if block is not None:
            at = slice(*block)
            rows = inputs if one else tuple([each[at] for each in inputs])
            sent = at, rows, send(partials(of, rows), shard)
        if waiting is not None:
            at, rows, message = waiting
            # eq: merge
            numbers, _ = merged(of, len(rows[0]), message)
            out = None if y is None else y[at]
            found = finish(op, rows, numbers, x.dtype, out)
    return found if y is None else y


class _Normalized(Function):
    """Softmax or log-softmax of the rows of a matrix."""

    @staticmethod
    def forward(ctx, x, shard: Shard, log: bool):
        op = LOG_SOFTMAX if log else SOFTMAX
        y = _over_ranks((x.detach(),), op, shard)
        ctx.save_for_backward(y)
        ctx.arguments = shard, log
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        shard, log = ctx.arguments
        op = LOG_SOFTMAX_VJP if log else SOFTMAX_VJP
        (dy,) = modes.in_memory(incoming_gradient=dy)
        agree_backward(shard)
        return _over_ranks((y, dy), op, shard), None, None


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
    """Return softmax or log-softmax: the part of it that this rank has, or a `DTensor`. PyTorch's
    operators apply the modifiers, in the order of `Modifiers`, to this rank's part first. See
    `check_cut` and `check_modifiers_of_part` for the errors."""
    if group is None:
        check_cut(x, group, modifiers, out)
        return dtensors().normalize(function, x, dim, dtype, invariant, modifiers)
    try:
        if type(x) not in PLAIN or modifiers is not None:
            check_cut(x, group, modifiers, out)
        (x,) = modes.in_memory(input=x)
        if not invariant and dtype is None and x.device.type != "cpu":
            if torch.is_autocast_enabled(x.device.type):
                dtype = composite.accumulator(x.dtype)
        if dtype is not None:
            x = cast(x, dtype) if invariant else cast(x, dtype).to(dtype)
        if x.dtype not in DTYPES:
            check_dtype(x.dtype, "the input")
        shape, name, gone = x.shape, function.__name__, None
        dim = check_dim(dim if type(dim) is int else check_int(dim), x.dim())
        x = x if shape else x.reshape(1)
        given, options, numbers = None, (), ()
        if modifiers is not None:
            given = check_modifiers_of_part(x, dim, modifiers)
            options, numbers = _options_of(given)
    except Exception as error:
        tell(group, error)
        raise
    if invariant:
        options += ("batch-invariant", dtype, *ways(x, *(given or ())))
        shard = agree(group, name, x, dim, options, numbers=numbers, whole=True)
        return normalize_whole(function, x, dim, dtype, given, shard).view(shape)
    if given is not None:
        dtype = x.dtype
        x = composite.modified_elements(x, given)
        if given.where is not None:
            x = torch.where(given.where, x, -torch.inf)
        gone = x == -torch.inf if given.safe else None
    shard = propose(group, name, x, dim, options, numbers=numbers, where=False).settle()
    rows = x if x.dim() == 2 and dim == 1 else rows_along(x, dim)
    y = _Normalized.apply(rows, shard, name == "log_softmax")
    if rows is not x:
        y = y.view(x.movedim(dim, -1).shape).movedim(-1, dim).contiguous().view(shape)
    if gone is not None:
        y = torch.where(gone, -math.inf if name == "log_softmax" else 0.0, y)
    return y if modifiers is None else y.to(dtype)  # pyright: ignore[reportArgumentType]


def _options_of(modifiers: Modifiers) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what has to be the same of modifiers on all ranks: which are tensors, and whether they
    are cut as x is; and numbers."""
    options, numbers = (), ()
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
    options = ("batch-invariant", *ways(x)) if invariant else ()
    shard = agree(group, "logsumexp", x, dim, options, where=invariant, whole=invariant)
    part = part_of(shard, x) if invariant else None
    if part is not None:
        lse = logsumexp_part(rows_along(x, dim), shard, part)
        lse = lse.view(shape[:dim] + shape[dim + 1 :])
        return lse.unsqueeze(dim) if keepdim and shape else lse
    if invariant:
        return function(whole(x, dim, shard), dim, keepdim and bool(shape), batch_invariant=True)
    _, m, d = Sums.apply(rows_along(x, dim), None, None, None, LOGSUMEXP, shard, False)
    # eq: lse-from-summary
    lse = (m + d.log()).to(x.dtype).view(shape[:dim] + shape[dim + 1 :])
    return lse.unsqueeze(dim) if keepdim and shape else lse
