"""The short cut past PyTorch's dispatcher, for plain eager calls.

Most calls come from eager code with nothing else going on. They go straight to `dispatch`, through
the smallest `torch.autograd.Function` if a gradient will be wanted. Whether nobody would miss them
takes private names of PyTorch; without one of these there is no short cut, and every call goes
through the operators, some microseconds slower.
"""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

from . import registration
from .dispatch import plan_of

try:
    from torch._C import (
        _are_functorch_transforms_active,
        _get_tracing_state,
        _has_storage,
        _is_any_autocast_enabled,
        _len_torch_dispatch_stack,
        _len_torch_function_stack,
    )

    forward_ad._current_level  # noqa: B018
    AVAILABLE = True
except (ImportError, AttributeError):
    AVAILABLE = False


# --8<-- [start:nobody-watches]
def nobody_watches(x: Tensor) -> bool:
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
        # A wrapper, such as `torch.autograd.grad(..., is_grads_batched=True)` sends backward.
        or not _has_storage(x)
        or x.is_meta
        # The sign of such a view (the imaginary part of a conjugate) is not in its memory.
        or x.is_neg()
    )


# --8<-- [end:nobody-watches]


def transformed() -> bool:
    """Whether somebody asks for more than the plain first derivative: a transform of `torch.func`,
    or forward mode."""
    if is_dynamo_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def keeps_graph() -> bool:
    """Whether the backward pass that runs may be repeated; True where there is no telling."""
    try:
        return torch._C._autograd._get_current_graph_task_keep_graph()  # pyright: ignore
    except AttributeError:
        return True


def short(op, kernel):
    """An operator without a derivative, called past the dispatcher where nobody would miss it.

    Args:
        op: the operator.
        kernel: the function that it is.
    """

    def call(x, *arguments):
        return (kernel if nobody_watches(x) else op)(x, *arguments)

    return call


def direct(function):
    """What a `torch.autograd.Function` applies. `Function.apply` is Python code that looks for
    transforms, which `nobody_watches` has done, and then calls this."""
    return super(Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]


# --8<-- [start:eager-softmax]
_BACKWARD = {"softmax": "softmax_backward", "log_softmax": "log_softmax_backward"}


class _Softmax(Function):
    """Autograd for plain eager calls.

    `arguments` is one object so that `apply` has two to look at, not five: the operation, dim,
    dtype, implementation, and the dtype of x.
    """

    @staticmethod
    def forward(ctx, x, arguments):
        operation, dim, dtype, implementation, _ = arguments
        y = plan_of(operation, (x,), dim, dtype, implementation)(x)
        ctx.save_for_backward(y)
        ctx.arguments = arguments
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return None, None
        (y,) = ctx.saved_tensors
        operation, dim, _, implementation, in_dtype = ctx.arguments
        operation = _BACKWARD[operation]
        if torch.is_grad_enabled() or not nobody_watches(dy):
            # A second derivative, a batched gradient, ...
            return getattr(registration, operation)(dy, y, dim, in_dtype, implementation), None
        return plan_of(operation, (y, dy), dim, in_dtype, implementation)(y, dy), None


# --8<-- [end:eager-softmax]


class _Logsumexp(Function):
    """Autograd for plain eager calls; `arguments` are dim and implementation."""

    @staticmethod
    def forward(ctx, x, arguments):
        dim, implementation = arguments
        lse = plan_of("logsumexp", (x,), dim, None, implementation)(x)
        ctx.save_for_backward(x)
        ctx.arguments = arguments
        ctx.set_materialize_grads(False)
        return lse

    @staticmethod
    def backward(ctx, dlse):
        if dlse is None:
            return None, None
        (x,) = ctx.saved_tensors
        dim, implementation = ctx.arguments
        if torch.is_grad_enabled() or not nobody_watches(dlse):
            return registration.logsumexp_backward(dlse, x, dim, implementation), None
        plan = plan_of("logsumexp_backward", (x, dlse), dim, None, implementation)
        return plan(x, dlse), None


differentiable_softmax = direct(_Softmax)
differentiable_logsumexp = direct(_Logsumexp)

if not AVAILABLE:

    def nobody_watches(x: Tensor) -> bool:
        """There is no telling."""
        return False
