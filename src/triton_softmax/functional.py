"""`softmax`, `log_softmax` and `logsumexp`: PyTorch's meaning for every input, and two ways down to
the kernels.

Most calls come from eager code with nothing else going on. They skip PyTorch's dispatcher and go
straight to `dispatch`, through the smallest `torch.autograd.Function` if a gradient will be wanted.
Every other call (a `torch.func` transform, a dispatch mode, tracing, autocast, a tensor subclass)
goes through the operators of `ops`, which have a rule for each.
"""

from __future__ import annotations

import math
import operator

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch._C import (
    _are_functorch_transforms_active,
    _get_tracing_state,
    _has_storage,
    _is_any_autocast_enabled,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

from . import ops


# --8<-- [start:nobody-watches]
def _nobody_watches(x: Tensor) -> bool:
    """Whether a call on `x` is plain eager PyTorch, so that skipping the dispatcher changes
    nothing."""
    return not (
        is_dynamo_compiling()
        or (type(x) is not Tensor and type(x) is not Parameter)
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack()
        or _len_torch_function_stack()
        or _is_any_autocast_enabled()
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
        or not _has_storage(
            x
        )  # a wrapper, such as `torch.autograd.grad(..., is_grads_batched=True)` sends backward
        or x.is_meta
        or x.is_neg()  # the sign of such a view (the imaginary part of a conjugate) is not in its memory
    )


# --8<-- [end:nobody-watches]


# --8<-- [start:eager-softmax]
class _EagerSoftmax(Function):
    """Autograd for plain eager calls; `arguments` is one object so that `apply` has two to look at,
    not five."""

    @staticmethod
    def forward(ctx, x, arguments):
        dim, dtype, implementation, log = arguments
        y = ops.run_softmax(x, dim, dtype, implementation, log)
        ctx.save_for_backward(y)
        ctx.arguments = dim, x.dtype, implementation, log
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return None, None
        (y,) = ctx.saved_tensors
        dim, in_dtype, implementation, log = ctx.arguments
        if torch.is_grad_enabled() or not _nobody_watches(
            dy
        ):  # a second derivative, a batched gradient, ...
            backward = ops.log_softmax_backward if log else ops.softmax_backward
            return backward(dy, y, dim, in_dtype, implementation), None
        return ops.run_softmax_backward(dy, y, dim, in_dtype, implementation, log), None


# --8<-- [end:eager-softmax]


class _EagerLogsumexp(Function):
    @staticmethod
    def forward(ctx, x, dim):
        lse = ops.run_logsumexp(x, dim)
        ctx.save_for_backward(x, lse)
        ctx.dim = dim
        ctx.set_materialize_grads(False)
        return lse

    @staticmethod
    def backward(ctx, dlse):
        if dlse is None:
            return None, None
        x, lse = ctx.saved_tensors
        if torch.is_grad_enabled() or not _nobody_watches(dlse):
            return ops.logsumexp_backward(dlse, x, lse, ctx.dim), None
        return ops.run_logsumexp_backward(dlse, x, lse, ctx.dim), None


# `Function.apply` is Python code that looks for transforms, which `_nobody_watches` has done, and
# then calls this.
_apply = torch._C._FunctionBase.__dict__["apply"]
_eager_softmax = _apply.__get__(None, _EagerSoftmax)
_eager_logsumexp = _apply.__get__(None, _EagerLogsumexp)


# --8<-- [start:normalize]
def _normalize(
    x: Tensor, dim: int, dtype: torch.dtype | None, implementation: str | None, log: bool
) -> Tensor:
    if type(dim) is int and dtype is None and _nobody_watches(x):
        if x.requires_grad and torch.is_grad_enabled():
            return _eager_softmax(x, (dim, None, implementation, log))
        return ops.run_softmax(x, dim, None, implementation, log)
    return _normalize_carefully(x, dim, dtype, implementation, log)


# --8<-- [end:normalize]


def _normalize_carefully(x, dim, dtype, implementation, log):
    """What `_normalize` does, for arguments of any kind."""
    _check_tensor(x)
    dim = _check_int(dim)
    if dtype is not None:
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"dtype must be a torch.dtype or None, not {type(dtype).__name__}")
        ops.check_dtype(dtype, "the argument dtype")
        if x.dtype not in ops.DTYPES:
            x = x.to(
                dtype
            )  # integers, bools, complex numbers and narrow floats are cast first, as PyTorch does
        if type(dim) is int and _nobody_watches(x):
            if x.requires_grad and torch.is_grad_enabled():
                return _eager_softmax(x, (dim, dtype, implementation, log))
            return ops.run_softmax(x, dim, dtype, implementation, log)
    return (ops.log_softmax if log else ops.softmax)(x, dim, dtype, implementation)


def _check_tensor(x: object) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"the input must be a torch.Tensor, not {type(x).__name__}")


def _check_int(dim: object) -> int:
    if isinstance(dim, (int, torch.SymInt)) and not isinstance(dim, bool):
        return dim
    try:
        if isinstance(dim, bool):
            raise TypeError
        return operator.index(dim)
    except TypeError:
        raise TypeError(f"dim must be an int, not {type(dim).__name__}") from None


def softmax(
    x: Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, implementation: str | None = None
) -> Tensor:
    """Return exp(x) / sum(exp(x)) along `dim`, as `torch.softmax`.

    Args:
        x: A tensor of any shape (0-d and empty included) and any strides, of dtype float16,
            bfloat16, float32 or float64. Any other dtype needs `dtype=`.
        dim: The dimension to normalize over; negative values count from the end.
        dtype: If given, `x` is cast to it first; one of the four dtypes above.
        implementation: A name from `triton_softmax.IMPLEMENTATIONS`, to compare the rungs of the
            ladder; by default the library chooses by shape, strides, dtype and device.

    Returns:
        A contiguous tensor of the shape of `x`. A row that holds NaN or +inf, or only -inf, is NaN.

    Raises:
        TypeError: `x` is not a tensor, its dtype (or `dtype`) is not one of the four, or `dim` is
            not an integer.
        IndexError: `dim` is out of range.
        ValueError: `implementation` is unknown, or cannot take this shape.
        RuntimeError: `x` is on the CPU and Triton was imported without TRITON_INTERPRET=1, or on a
            device that Triton does not know.

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
        >>> softmax(torch.tensor([1, 2]))
        Traceback (most recent call last):
        ...
        TypeError: the input has dtype int64; expected one of float16, bfloat16, float32, float64
    """
    return _normalize(x, dim, dtype, implementation, False)


def log_softmax(
    x: Tensor, dim: int = -1, dtype: torch.dtype | None = None, *, implementation: str | None = None
) -> Tensor:
    """Return x - log(sum(exp(x))) along `dim`, as `torch.log_softmax`.

    Arguments, result and errors are those of `softmax`.

    Examples:
        >>> import torch
        >>> from triton_softmax import log_softmax
        >>> log_softmax(torch.tensor([0.0, -1000.0]))
        tensor([    0., -1000.])
        >>> log_softmax(torch.tensor([3.0, float("-inf")]))
        tensor([0., -inf])
    """
    return _normalize(x, dim, dtype, implementation, True)


def logsumexp(x: Tensor, dim: int | tuple[int, ...] = -1, keepdim: bool = False) -> Tensor:
    """Return log(sum(exp(x))) along `dim`, as `torch.logsumexp`.

    Args:
        x: A tensor of any shape and strides, of dtype float16, bfloat16, float32 or float64.
            (`torch.logsumexp` also takes integers, which it casts to the default dtype, and complex
            numbers; here they are a TypeError.)
        dim: The dimension to reduce, or several.
        keepdim: Whether the reduced dimensions stay, with size 1.

    Returns:
        A contiguous tensor with the dtype of `x`. The value over nothing, or over -inf only, is
        -inf.

    Raises:
        TypeError: `x` is not a tensor, its dtype is not one of the four, or `dim` is neither an
            integer nor a tuple.
        IndexError: `dim` is out of range.
        ValueError: `dim` names a dimension twice, or is an empty tuple.
        RuntimeError: as for `softmax`.

    Examples:
        >>> import torch
        >>> from triton_softmax import logsumexp
        >>> x = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]], dtype=torch.float64)
        >>> logsumexp(x)
        tensor([3.4076, 5.1429], dtype=torch.float64)
        >>> logsumexp(x, dim=(0, 1), keepdim=True)
        tensor([[5.3053]], dtype=torch.float64)
        >>> logsumexp(torch.empty(2, 0))
        tensor([-inf, -inf])
    """
    if type(dim) is int and _nobody_watches(x):
        if x.requires_grad and torch.is_grad_enabled():
            lse = _eager_logsumexp(x, dim)
        else:
            lse = ops.run_logsumexp(x, dim)
        return lse.unsqueeze(dim) if keepdim and x.dim() else lse
    _check_tensor(x)
    if isinstance(dim, (tuple, list, torch.Size)):
        return _logsumexp_of_dims(
            x, [ops.check_dim(_check_int(each), x.dim()) for each in dim], keepdim
        )
    dim = _check_int(dim)
    lse = ops.logsumexp(x, dim)
    return lse.unsqueeze(dim) if keepdim and x.dim() else lse


def _logsumexp_of_dims(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    """Reduce several dimensions as one: they move to the end and are flattened there."""
    if len(set(dims)) < len(dims):
        raise ValueError(f"dim names a dimension twice: {tuple(dims)}")
    if x.dim() == 0:
        return logsumexp(x, 0)
    if not dims:
        raise ValueError("dim is an empty tuple; name at least one dimension")
    kept = [size for i, size in enumerate(x.shape) if i not in dims]
    rows = x.movedim(dims, list(range(-len(dims), 0))).reshape(
        *kept, math.prod([x.shape[i] for i in dims])
    )
    lse = logsumexp(rows, -1)
    return (
        lse.reshape([1 if i in dims else size for i, size in enumerate(x.shape)])
        if keepdim
        else lse
    )
