"""The public `softmax`, `log_softmax` and `logsumexp`, with the semantics of PyTorch's functions.

A plain eager call goes straight to a plan. Any other call (a `torch.func` transform, a dispatch
mode, tracing, autocast, a tensor subclass) goes through an operator, which has a rule for each. An
input that is not a tensor but has `__torch_function__`, such as a `torch.fx` proxy, handles the
call itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import arguments, distributed, operators
from .arguments import (
    PLAIN,
    cast,
    check_axis,
    check_dense,
    check_dim,
    check_int,
    check_invariant,
    pass_on,
)
from .operators import Normalization, differentiable, nobody_watches
from .plan import plan_of
from .score_modifiers import normalize_modified

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def _normalize(
    function: Callable[..., Tensor],
    op: Normalization,
    x: Tensor,
    dim: int,
    dtype: torch.dtype | None,
    implementation: str | None,
    invariant: bool,
) -> Tensor:
    if type(dim) is int and nobody_watches(x):
        if dtype is not None:
            x = cast(x, dtype)
        if x.requires_grad and torch.is_grad_enabled():
            return differentiable(x, (op, True, dim, dtype, implementation, invariant))
        return plan_of(op.operation, (x,), dim, dtype, implementation, invariant)(x)
    if not isinstance(x, Tensor):
        given = {"input": x, "dim": dim, "dtype": dtype, "implementation": implementation}
        return pass_on(function, (x,), given | {"batch_invariant": invariant})
    check_dense(x, "the input")
    dim = check_int(dim)
    if dtype is not None:
        x = cast(x, dtype)
    return op.overload(x, dim, dtype, implementation, invariant)


def softmax(
    input: Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    axis: int | None = None,
    implementation: str | None = None,
    batch_invariant: bool = False,
    scale: float | Tensor | None = None,
    softcap: float | None = None,
    where: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    safe: bool = False,
    sink: float | Tensor | None = None,
    out: Tensor | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Return exp(x) / sum(exp(x)) of the input x along `dim`, as `torch.softmax`.

    On a GPU this runs a Triton kernel. A CPU tensor uses PyTorch's own operators, unless Triton was
    imported with TRITON_INTERPRET=1: then its interpreter runs the kernel.

    Differentiable any number of times, in reverse and forward mode. The backward pass saves only
    the result.

    Args:
        input: A tensor of any shape (0-d and empty included) and any strides, of dtype float16,
            bfloat16, float32 or float64. Any other dtype needs `dtype=`.
        dim: The dimension to normalize over; negative values count from the end.
        dtype: If given, the input is cast to it first; one of the four dtypes above. The gradient
            has the dtype of the input.
        axis: An alias of `dim`.
        implementation: A name from `triton_softmax.IMPLEMENTATIONS`, to compare kernels; by default
            the library chooses by shape, strides, dtype and device.
        batch_invariant: Give a row the same bits for any number of rows and any position among
            them, forward and backward; see also the context manager of that name.
        group: If given, the input is this rank's shard of a tensor that is sharded along `dim` over
            the ranks of this group, in order; shards may have any size, including 0. A `DTensor`
            needs no group.
        scale: Multiplies x, after the cast to `dtype`: a number; a 0-d tensor; or one number per
            row, a tensor with the shape of the input and size 1 along `dim`. Tensors get a
            gradient. A temperature is 1 / scale.
        softcap: A positive number c: x becomes c·tanh(x / c) after the scale.
        where: A bool tensor that broadcasts to the input. Where it is False the result is 0 (-inf
            for log-softmax), whatever x holds, and incoming gradients are ignored. A fully masked
            row is NaN, as in PyTorch, unless `safe`.
        bias: A floating-point tensor that broadcasts to the input, added after the soft cap. Gets a
            gradient.
        causal: Mask the elements above the diagonal of the last two dimensions, which must have
            equal sizes, with `dim` the last. They are not read.
        safe: A row that is fully masked, or holds only -inf, gives 0 (-inf for log-softmax) and has
            no gradient. A row with an unmasked NaN or +inf stays NaN.
        sink: An extra element of each row that takes its share but is not in the result: a number,
            or a floating-point tensor that broadcasts to the input with size 1 along `dim`; for 4-d
            scores also one number per head (dimension 1). Gets a gradient. +inf takes everything,
            -inf nothing.
        out: Write the result to this tensor and return it: a tensor with the shape and dtype of the
            result and any strides, or the input itself. Not with gradients.

    The score modifiers `scale`, `softcap`, `bias`, `where` and `causal`, `sink`, `safe` apply in
    this order, in one kernel, which reads a row of up to 8,192 elements once and a longer one
    twice. Tensors broadcast without copies.

    Returns:
        A contiguous tensor with the shape of the input, and its dtype or `dtype`. A row that holds
        a NaN or +inf, or only -inf, is NaN.

    Raises:
        TypeError: The input is not a tensor, its dtype (or `dtype`) is not one of the four, or
            `dim` is not an integer; `where` is not bool, or `bias`, `scale` or `sink` not
            floating-point.
        IndexError: `dim` is out of range.
        ValueError: `implementation` is unknown, does not support this shape, or is given to a
            batch-invariant call or one with score modifiers; `scale` is not finite, `softcap` not
            positive; a tensor does not broadcast; `causal` gets other shapes; `out` has another
            shape or dtype, or overlaps itself; a call with a group is batch-invariant; the ranks of
            a group make different calls; or a `DTensor` comes with a group.
        RuntimeError: Triton does not support the input's device; or it is the CPU, `implementation`
            names a kernel, and Triton was imported without TRITON_INTERPRET=1; tensors are on two
            devices; `out` is given although an argument requires a gradient.

    Examples:
        >>> import torch
        >>> from triton_softmax import softmax
        >>> x = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], dtype=torch.float64)
        >>> softmax(x)
        tensor([[0.0900, 0.2447, 0.6652],
                [0.0159, 0.1173, 0.8668]], dtype=torch.float64)
        >>> softmax(x, dim=0)
        tensor([[0.5000, 0.2689, 0.1192],
                [0.5000, 0.7311, 0.8808]], dtype=torch.float64)
        >>> softmax(torch.tensor([1, 2]), dtype=torch.float32)
        tensor([0.2689, 0.7311])
        >>> softmax(x, scale=0.5, where=torch.tensor([True, True, False]), sink=0.0)
        tensor([[0.3072, 0.5065, 0.0000],
                [0.2312, 0.6285, 0.0000]], dtype=torch.float64)
        >>> softmax(torch.tensor([1, 2]))
        Traceback (most recent call last):
        ...
        TypeError: the input has dtype int64; expected one of float16, bfloat16, float32, float64
    """
    if axis is not None:
        dim = check_axis(dim, axis)
    if batch_invariant or arguments.contexts:
        batch_invariant = check_invariant(implementation)
    options, modifiers = (dim, dtype, implementation, batch_invariant), None
    if not (scale is softcap is bias is where is sink is out is None) or causal or safe:
        modifiers = (scale, softcap, bias, where, causal, sink, safe)
    if group is not None or (type(input) not in PLAIN and distributed.on_mesh(input)):
        return distributed.normalize(softmax, input, group, *options, modifiers, out)
    if modifiers is not None:
        return normalize_modified(softmax, operators.softmax, input, *options, modifiers, out)
    return _normalize(softmax, operators.softmax, input, *options)


def log_softmax(
    input: Tensor,
    dim: int = -1,
    dtype: torch.dtype | None = None,
    *,
    axis: int | None = None,
    implementation: str | None = None,
    batch_invariant: bool = False,
    scale: float | Tensor | None = None,
    softcap: float | None = None,
    where: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    safe: bool = False,
    sink: float | Tensor | None = None,
    out: Tensor | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Return x - log(sum(exp(x))) of the input x along `dim`, as `torch.log_softmax`.

    Arguments, score modifiers, shapes, dtypes and errors are those of `softmax`. The result comes
    from x, not from the logarithm of softmax, which would be -inf where softmax rounds to zero.

    Examples:
        >>> import torch
        >>> from triton_softmax import log_softmax
        >>> log_softmax(torch.tensor([0.0, -1000.0]))
        tensor([    0., -1000.])
        >>> log_softmax(torch.tensor([3.0, float("-inf")]))
        tensor([0., -inf])
    """
    if axis is not None:
        dim = check_axis(dim, axis)
    if batch_invariant or arguments.contexts:
        batch_invariant = check_invariant(implementation)
    options, modifiers = (dim, dtype, implementation, batch_invariant), None
    if not (scale is softcap is bias is where is sink is out is None) or causal or safe:
        modifiers = (scale, softcap, bias, where, causal, sink, safe)
    if group is not None or (type(input) not in PLAIN and distributed.on_mesh(input)):
        return distributed.normalize(log_softmax, input, group, *options, modifiers, out)
    if modifiers is not None:
        return normalize_modified(
            log_softmax, operators.log_softmax, input, *options, modifiers, out
        )
    return _normalize(log_softmax, operators.log_softmax, input, *options)


def logsumexp(
    input: Tensor,
    dim: int | Sequence[int] = -1,
    keepdim: bool = False,
    *,
    axis: int | Sequence[int] | None = None,
    batch_invariant: bool = False,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Return log(sum(exp(x))) of the input x along `dim`, as `torch.logsumexp`.

    Differentiable any number of times. The backward pass saves only x, and computes the gradient,
    softmax(x), from it, so it loses no digits if the result is large. CPU tensors are handled as in
    `softmax`.

    Args:
        input: A tensor of any shape and strides, of dtype float16, bfloat16, float32 or float64.
            Integers and booleans are cast to the default dtype.
        dim: The dimension to reduce, or several; for a 0-d tensor also none.
        keepdim: Whether to keep the reduced dimensions, with size 1.
        axis: An alias of `dim`.
        batch_invariant: As for `softmax`.
        group: As for `softmax`; every rank returns the result over all shards.

    Returns:
        A contiguous tensor with the dtype of the input and its shape without `dim`, or with size 1
        there. An empty row, or a row of only -inf, gives -inf.

    Raises:
        TypeError: The input is not a tensor, its dtype is not supported (such as complex), or `dim`
            is neither an integer nor a sequence of integers.
        IndexError: `dim` is out of range.
        ValueError: `dim` names a dimension twice, or is an empty tuple.
        RuntimeError: Triton does not support the input's device.

    Examples:
        >>> import torch
        >>> from triton_softmax import logsumexp
        >>> x = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], dtype=torch.float64)
        >>> logsumexp(x)
        tensor([3.4076, 5.1429], dtype=torch.float64)
        >>> logsumexp(x, dim=(0, 1), keepdim=True)
        tensor([[5.3053]], dtype=torch.float64)
        >>> logsumexp(torch.tensor([0, 0]), axis=0)
        tensor(0.6931)
        >>> logsumexp(torch.empty(2, 0))
        tensor([-inf, -inf])
    """
    if axis is not None:
        dim = check_axis(dim, axis)
    x, invariant = input, bool(batch_invariant or arguments.contexts)
    if type(dim) is int and group is None and nobody_watches(x):
        if not x.is_floating_point():
            x = _promoted(x)
        if x.requires_grad and torch.is_grad_enabled():
            lse = differentiable(x, (operators.logsumexp, True, dim, None, None, invariant))
        else:
            lse = plan_of(operators.LOGSUMEXP, (x,), dim, None, None, invariant)(x)
        return lse.unsqueeze(dim) if keepdim and x.dim() else lse  # pyright: ignore
    placed = type(x) not in PLAIN and distributed.on_mesh(x)
    several = isinstance(dim, (tuple, list)) and isinstance(x, Tensor)
    if several and (group is not None or not placed):
        return _logsumexp_of_dims(x, dim, keepdim, invariant, group)
    if group is not None or placed:
        return distributed.logsumexp(logsumexp, x, group, dim, keepdim, invariant)
    if not isinstance(x, Tensor):
        given = {"input": x, "dim": dim, "keepdim": keepdim, "batch_invariant": invariant}
        return pass_on(logsumexp, (x,), given)
    check_dense(x, "the input")
    x, dim = _promoted(x), check_int(dim)
    lse = operators.logsumexp.overload(x, dim, None, None, invariant)
    return lse.unsqueeze(dim) if keepdim and x.dim() else lse


def _promoted(x: Tensor) -> Tensor:
    """Cast integers and booleans to the default dtype, as PyTorch's function does."""
    if x.is_floating_point() or x.is_complex():
        return x
    check_dense(x, "the input")
    return x.to(torch.get_default_dtype())


def _logsumexp_of_dims(x: Tensor, dim: Any, keepdim: bool, invariant: bool, group: Any) -> Tensor:
    """Reduce several dimensions as one: move them to the end and flatten them."""
    check_dense(x, "the input")
    dims = [check_dim(check_int(each), x.dim()) for each in dim]
    if len(set(dims)) < len(dims):
        raise ValueError(f"dim names a dimension twice: {tuple(dims)}")
    if x.dim() == 0:
        return logsumexp(x, 0, batch_invariant=invariant, group=group)
    if not dims:
        raise ValueError("dim is an empty tuple; name at least one dimension")
    rows = x.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
    lse = logsumexp(rows, -1, batch_invariant=invariant, group=group)
    if keepdim:
        return lse.reshape([1 if i in dims else size for i, size in enumerate(x.shape)])
    return lse
