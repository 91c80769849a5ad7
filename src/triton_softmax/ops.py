"""Registration with PyTorch: what makes the kernels citizens of autograd, `torch.func`, autocast
and `torch.compile`.

Six operators live in the namespace `triton_softmax`, reachable as
`torch.ops.triton_softmax.<name>`:

=======================
==================================================================================== `softmax`
         `(x, dim, dtype=None, implementation=None) -> y` `softmax_backward`       `(grad_output,
         output, dim, input_dtype, implementation=None) -> dx`
`log_softmax`            as `softmax`
`log_softmax_backward`   as `softmax_backward`
`logsumexp`              `(x, dim) -> lse`, without the dimension `dim`
`logsumexp_backward`     `(grad_output, x, output, dim) -> dx`
=======================
====================================================================================

Each has a kernel (the functions `run_*`: checks, corner shapes, then `dispatch`), a shape rule for
tracing, a differentiation rule in both modes, a batching rule, and the autocast rule of PyTorch's
operator of the same name. The derivative of a backward operator is made of these operators and of
PyTorch's own, so derivatives of any order exist.

`functional` calls the operators when somebody is watching (a transform, a mode, a tracer, autocast,
a tensor subclass) and calls `run_*` directly when nobody is.
"""

from __future__ import annotations

import contextlib
import math

import torch
import torch.autograd.forward_ad as forward_ad
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function

from . import IMPLEMENTATIONS, dispatch

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The dtypes the kernels read and write."""

INTERPRETED = not isinstance(tl.sum, triton.JITFunction)
"""Whether Triton was imported with TRITON_INTERPRET=1, so that kernels run on CPU tensors."""


# --8<-- [start:checks]
def check_dim(dim: int, ndim: int) -> int:
    """Return `dim` counted from the front; a 0-d tensor has one dimension here, as everywhere in
    PyTorch.

    >>> check_dim(-1, 3), check_dim(0, 0)
    (2, 0)
    """
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n


def check_dtype(dtype: torch.dtype, what: str) -> None:
    """Refuse what is not one of the four floating-point dtypes of `DTYPES`."""
    if dtype not in DTYPES:
        names = ", ".join(str(known).removeprefix("torch.") for known in DTYPES)
        raise TypeError(
            f"{what} has dtype {str(dtype).removeprefix('torch.')}; expected one of {names}"
        )


def check_implementation(implementation: str | None) -> None:
    """Refuse a name that is not in `IMPLEMENTATIONS`; None means that the library chooses."""
    if implementation is not None and implementation not in IMPLEMENTATIONS:
        raise ValueError(
            f"unknown implementation {implementation!r}; expected None or one of {list(IMPLEMENTATIONS)}"
        )


def check_device(device: torch.device) -> None:
    """Refuse a device whose memory a Triton kernel cannot read."""
    if device.type in ("cuda", "xpu") or (device.type == "cpu" and INTERPRETED):
        return
    if device.type == "cpu":
        raise RuntimeError(
            "a CPU tensor needs Triton's interpreter: set TRITON_INTERPRET=1 before importing triton, "
            "or move the tensor to a GPU"
        )
    raise RuntimeError(
        f"Triton has no kernels for device {str(device)!r}; expected cuda, xpu, or cpu (interpreted)"
    )


# --8<-- [end:checks]


def _check(
    x: Tensor, dim: int, dtype: torch.dtype | None = None, implementation: str | None = None
) -> int:
    """Check what an operator received, and return `dim` counted from the front."""
    if x.dtype not in DTYPES:
        check_dtype(x.dtype, "the input")
    if dtype is not None and dtype not in DTYPES:
        check_dtype(dtype, "the argument dtype")
    if implementation is not None:
        check_implementation(implementation)
    if (
        not x.is_cuda and implementation != "naive"
    ):  # "naive" is made of PyTorch's operators, which run anywhere
        check_device(x.device)
    ndim = x.dim()
    if 0 <= dim < ndim:
        return dim
    return dim + ndim if -ndim <= dim < 0 else check_dim(dim, ndim)


_VIEW_TRACKING = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)


def _owned(result: Tensor) -> Tensor:
    """`result` without the mark of a view of some buffer, which would forbid the caller to change
    it in place."""
    if result._is_view():
        with torch._C._ExcludeDispatchKeyGuard(_VIEW_TRACKING):
            return result.view(result.shape)
    return result


# --8<-- [start:run]
def run_softmax(
    x: Tensor, dim: int, dtype: torch.dtype | None, implementation: str | None, log: bool
) -> Tensor:
    """Compute softmax or log-softmax of a plain tensor, outside autograd."""
    if x.is_cuda:  # a call like an earlier one has passed the checks below
        y = dispatch.replay_forward(x, dim, log, dtype, implementation)
        if y is not None:
            return y
    _check(x, dim, dtype, implementation)
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)
    if x.dim() == 0:
        return _owned(run_softmax(x.view(1), 0, dtype, implementation, log).view(()))
    return _owned(
        dispatch.softmax_forward(x, dim, log=log, out_dtype=dtype, implementation=implementation)
    )


def run_softmax_backward(
    dy: Tensor, y: Tensor, dim: int, in_dtype: torch.dtype, implementation: str | None, log: bool
) -> Tensor:
    """Compute the vector-Jacobian product of `run_softmax` from its output, outside autograd."""
    dim = _check(y, dim, in_dtype, implementation)
    if y.numel() == 0:
        return torch.empty(y.shape, dtype=in_dtype, device=y.device)
    if y.dim() == 0:
        return _owned(
            run_softmax_backward(dy.view(1), y.view(1), 0, in_dtype, implementation, log).view(())
        )
    return _owned(
        dispatch.softmax_backward(
            y, dy, dim, log=log, in_dtype=in_dtype, implementation=implementation
        )
    )


def run_logsumexp(x: Tensor, dim: int) -> Tensor:
    """Compute log(sum(exp(x))) along `dim` of a plain tensor, outside autograd."""
    dim = _check(x, dim)
    if x.numel() == 0:
        # The sum over nothing is 0, and its logarithm is -inf.
        return torch.full(_without(x.shape, dim), -math.inf, dtype=x.dtype, device=x.device)
    if x.dim() == 0:
        return run_logsumexp(x.view(1), 0)
    return _owned(dispatch.logsumexp_forward(x, dim))


def run_logsumexp_backward(dlse: Tensor, x: Tensor, lse: Tensor, dim: int) -> Tensor:
    """Compute the vector-Jacobian product of `run_logsumexp`, outside autograd."""
    dim = _check(x, dim)
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.dim() == 0:
        return _owned(run_logsumexp_backward(dlse, x.view(1), lse, 0).view(()))
    return _owned(dispatch.logsumexp_backward(dlse, x, lse, dim))


# --8<-- [end:run]


def _without(shape: torch.Size, dim: int) -> list[int]:
    return [*shape[:dim], *shape[dim + 1 :]]


# The operators and their kernels. CompositeExplicitAutograd: one kernel for every backend; run_*
# refuses the others.
_library = torch.library.Library("triton_softmax", "DEF")
_library.define(
    "softmax(Tensor x, int dim, ScalarType? dtype=None, str? implementation=None) -> Tensor"
)
_library.define(
    "log_softmax(Tensor x, int dim, ScalarType? dtype=None, str? implementation=None) -> Tensor"
)
_library.define("logsumexp(Tensor x, int dim) -> Tensor")
_BACKWARD = (
    "Tensor grad_output, Tensor output, int dim, ScalarType input_dtype, str? implementation=None"
)
_library.define(f"softmax_backward({_BACKWARD}) -> Tensor")
_library.define(f"log_softmax_backward({_BACKWARD}) -> Tensor")
_library.define(
    "logsumexp_backward(Tensor grad_output, Tensor x, Tensor output, int dim) -> Tensor"
)

_ops = torch.ops.triton_softmax
softmax = _ops.softmax.default
log_softmax = _ops.log_softmax.default
logsumexp = _ops.logsumexp.default
softmax_backward = _ops.softmax_backward.default
log_softmax_backward = _ops.log_softmax_backward.default
logsumexp_backward = _ops.logsumexp_backward.default


def _forward_op(log: bool):
    return log_softmax if log else softmax


def _backward_op(log: bool):
    return log_softmax_backward if log else softmax_backward


def _softmax_kernel(log: bool):
    return lambda x, dim, dtype=None, implementation=None: run_softmax(
        x, dim, dtype, implementation, log
    )


def _softmax_backward_kernel(log: bool):
    def kernel(grad_output, output, dim, input_dtype, implementation=None):
        return run_softmax_backward(grad_output, output, dim, input_dtype, implementation, log)

    return kernel


def _softmax_shape(x, dim, dtype=None, implementation=None):
    _check_traced(x, dim, dtype, implementation)
    return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)


def _softmax_backward_shape(grad_output, output, dim, input_dtype, implementation=None):
    _check_traced(output, dim, input_dtype, implementation)
    return torch.empty(output.shape, dtype=input_dtype, device=output.device)


def _check_traced(x, dim, dtype=None, implementation=None) -> int:
    """The checks that need no data: a traced tensor may stand for a device that this machine does
    not have."""
    check_dtype(x.dtype, "the input")
    if dtype is not None:
        check_dtype(dtype, "the argument dtype")
    check_implementation(implementation)
    return check_dim(dim, x.dim())


def _logsumexp_shape(x, dim):
    dim = _check_traced(x, dim)
    return torch.empty(_without(x.shape, dim), dtype=x.dtype, device=x.device)


def _logsumexp_backward_shape(grad_output, x, output, dim):
    _check_traced(x, dim)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


for _log in (False, True):
    _library.impl(_forward_op(_log), _softmax_kernel(_log), "CompositeExplicitAutograd")
    _library.impl(_backward_op(_log), _softmax_backward_kernel(_log), "CompositeExplicitAutograd")
    torch.library.register_fake(_forward_op(_log), _softmax_shape, lib=_library)
    torch.library.register_fake(_backward_op(_log), _softmax_backward_shape, lib=_library)
_library.impl(logsumexp, run_logsumexp, "CompositeExplicitAutograd")
_library.impl(logsumexp_backward, run_logsumexp_backward, "CompositeExplicitAutograd")
torch.library.register_fake(logsumexp, _logsumexp_shape, lib=_library)
torch.library.register_fake(logsumexp_backward, _logsumexp_backward_shape, lib=_library)


# Differentiation. PyTorch's `register_autograd` covers reverse mode only: under `torch.func.jvp`
# such an operator returns a tangent of zero, in silence, and under `torch.func.grad` it raises. The
# `Function`s below have both modes and are bound to the dispatcher's Autograd key, below the
# transforms of `torch.func`, where they nest to any depth.


@contextlib.contextmanager
def _inner_modes():
    """Leave gradients of the *other* levels of a nested transform recorded while a rule of this
    level runs.

    PyTorch turns both modes off inside a `Function`, which is right for its own level and cuts the
    levels below it.
    """
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        yield


def _below_autograd(op, *args):
    """Call `op` for the next level: the kernel, or the level below this one in a nested
    transform."""
    with _inner_modes(), torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def _primals(ctx) -> tuple[Tensor, ...]:
    """The tensors that a rule saved, without their tangents of this level."""
    return tuple(torch.ops.aten._fw_primal.default(saved, 0) for saved in ctx.saved_tensors)


def _save(ctx, *tensors: Tensor) -> None:
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)
    ctx.set_materialize_grads(False)


def _sum_of(*terms: Tensor | None) -> Tensor | None:
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None


def _wide(t: Tensor) -> Tensor:
    """16-bit numbers are multiplied and summed in float32, as in the kernels."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


# --8<-- [start:formulas]
def softmax_vjp_wrt_output(v: Tensor, dy: Tensor, y: Tensor, dim: int) -> Tensor:
    """Differentiate `<v, y * (dy - <y, dy>)>` in `y`: the part of a second derivative that no
    kernel computes."""
    v, dy, y = _wide(v), _wide(dy), _wide(y)
    # eq: softmax-backward-wrt-output
    return v * (dy - (y * dy).sum(dim, keepdim=True)) - dy * (y * v).sum(dim, keepdim=True)


def softmax_vjp_along_output(ty: Tensor, dy: Tensor, y: Tensor, dim: int) -> Tensor:
    """Differentiate `y * (dy - <y, dy>)` along the direction `ty` of `y`."""
    ty, dy, y = _wide(ty), _wide(dy), _wide(y)
    # eq: softmax-backward-along-output
    return ty * (dy - (y * dy).sum(dim, keepdim=True)) - y * (ty * dy).sum(dim, keepdim=True)


def log_softmax_jvp(t: Tensor, y: Tensor, dim: int) -> Tensor:
    """Push the tangent `t` through log-softmax, whose output is `y`: also the derivative of its
    backward in `dy`."""
    t, y = _wide(t), _wide(y)
    # eq: log-softmax-jvp
    return t - (y.exp() * t).sum(dim, keepdim=True)


def log_softmax_vjp_wrt_output(v: Tensor, dy: Tensor, y: Tensor, dim: int) -> Tensor:
    """Differentiate `<v, dy - exp(y) * sum(dy)>` in `y`, or, with a tangent as `v`, that product
    along it."""
    v, dy, y = _wide(v), _wide(dy), _wide(y)
    # eq: log-softmax-backward-wrt-output
    return -v * y.exp() * dy.sum(dim, keepdim=True)


# --8<-- [end:formulas]


# --8<-- [start:softmax-function]
class SoftmaxFunction(Function):
    """Softmax (`log=False`) or log-softmax, which keep only their output for the backward pass."""

    @staticmethod
    def forward(x, dim, dtype, implementation, log):
        return _below_autograd(_forward_op(log), x, dim, dtype, implementation)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.dim, _, ctx.implementation, ctx.log = inputs
        ctx.in_dtype = x.dtype
        _save(ctx, output)

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return None, None, None, None, None
        (y,) = ctx.saved_tensors
        dx = _backward_op(ctx.log)(dy, y, ctx.dim, ctx.in_dtype, ctx.implementation)
        return dx, None, None, None, None

    @staticmethod
    def jvp(ctx, tx, *_):
        (y,) = ctx.saved_tensors
        with _inner_modes():
            if ctx.log:
                return log_softmax_jvp(tx.to(y.dtype), y, ctx.dim).to(y.dtype)
            # eq: softmax-jvp
            return softmax_backward(tx.to(y.dtype), y, ctx.dim, y.dtype, ctx.implementation)


# --8<-- [end:softmax-function]


# --8<-- [start:softmax-backward-function]
class SoftmaxBackwardFunction(Function):
    """The vector-Jacobian product of softmax or log-softmax, itself differentiable in `dy` and in
    `y`."""

    @staticmethod
    def forward(dy, y, dim, in_dtype, implementation, log):
        return _below_autograd(_backward_op(log), dy, y, dim, in_dtype, implementation)

    @staticmethod
    def setup_context(ctx, inputs, output):
        dy, y, ctx.dim, ctx.in_dtype, ctx.implementation, ctx.log = inputs
        _save(ctx, dy, y)

    @staticmethod
    def backward(ctx, v):
        if v is None:
            return None, None, None, None, None, None
        dy, y = ctx.saved_tensors
        grad_dy = grad_y = None
        if ctx.needs_input_grad[0]:
            if ctx.log:
                grad_dy = log_softmax_jvp(v, y, ctx.dim).to(dy.dtype)
            else:
                # eq: softmax-backward-wrt-grad
                grad_dy = softmax_backward(v.to(y.dtype), y, ctx.dim, dy.dtype, ctx.implementation)
        if ctx.needs_input_grad[1]:
            wrt_output = log_softmax_vjp_wrt_output if ctx.log else softmax_vjp_wrt_output
            grad_y = wrt_output(v, dy, y, ctx.dim).to(y.dtype)
        return grad_dy, grad_y, None, None, None, None

    @staticmethod
    def jvp(ctx, tdy, ty, *_):
        with _inner_modes():
            dy, y = _primals(ctx)
            along_dy = along_y = None
            if tdy is not None:
                along_dy = _backward_op(ctx.log)(tdy, y, ctx.dim, ctx.in_dtype, ctx.implementation)
            if ty is not None:
                along_output = log_softmax_vjp_wrt_output if ctx.log else softmax_vjp_along_output
                along_y = along_output(ty, dy, y, ctx.dim).to(ctx.in_dtype)
            return _sum_of(along_dy, along_y)


# --8<-- [end:softmax-backward-function]


# --8<-- [start:logsumexp-functions]
def _probabilities(x: Tensor, lse: Tensor, dim: int) -> Tensor:
    return (
        (_wide(x) - _wide(lse).unsqueeze(dim)).exp() if x.dim() else (_wide(x) - _wide(lse)).exp()
    )


def _sum(t: Tensor, dim: int) -> Tensor:
    return t.sum(dim) if t.dim() else t


def _spread(t: Tensor, x: Tensor, dim: int) -> Tensor:
    return _wide(t).unsqueeze(dim) if x.dim() else _wide(t)


class LogsumexpFunction(Function):
    """log(sum(exp(x))) along one dimension."""

    @staticmethod
    def forward(x, dim):
        return _below_autograd(logsumexp, x, dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dim = inputs
        ctx.dim = check_dim(dim, x.dim())
        _save(ctx, x, output)

    @staticmethod
    def backward(ctx, dlse):
        if dlse is None:
            return None, None
        x, lse = ctx.saved_tensors
        return logsumexp_backward(dlse, x, lse, ctx.dim), None

    @staticmethod
    def jvp(ctx, tx, _):
        with _inner_modes():
            x, lse = ctx.saved_tensors
            x = torch.ops.aten._fw_primal.default(x, 0)
            # eq: logsumexp-jvp
            return _sum(_probabilities(x, lse, ctx.dim) * _wide(tx), ctx.dim).to(x.dtype)


class LogsumexpBackwardFunction(Function):
    """The vector-Jacobian product of logsumexp, differentiable in its three arguments."""

    @staticmethod
    def forward(dlse, x, lse, dim):
        return _below_autograd(logsumexp_backward, dlse, x, lse, dim)

    @staticmethod
    def setup_context(ctx, inputs, output):
        dlse, x, lse, dim = inputs
        ctx.dim = check_dim(dim, x.dim())
        _save(ctx, dlse, x, lse)

    @staticmethod
    def backward(ctx, v):
        if v is None:
            return None, None, None, None
        dlse, x, lse = ctx.saved_tensors
        vp = _wide(v) * _probabilities(x, lse, ctx.dim)
        # eq: logsumexp-backward-wrt-inputs
        grad_dlse = _sum(vp, ctx.dim)
        grad_x = _spread(dlse, x, ctx.dim) * vp
        grad_lse = -_wide(dlse) * grad_dlse
        return grad_dlse.to(dlse.dtype), grad_x.to(x.dtype), grad_lse.to(lse.dtype), None

    @staticmethod
    def jvp(ctx, tdlse, tx, tlse, _):
        with _inner_modes():
            dlse, x, lse = _primals(ctx)
            p = _probabilities(x, lse, ctx.dim)
            terms = [
                None if tdlse is None else _spread(tdlse, x, ctx.dim) * p,
                None if tx is None else _spread(dlse, x, ctx.dim) * p * _wide(tx),
                None if tlse is None else -_spread(dlse * tlse, x, ctx.dim) * p,
            ]
            return _sum_of(*terms).to(x.dtype)


# --8<-- [end:logsumexp-functions]


# --8<-- [start:autograd-key]
def _differentiably(op, function: type[Function], defaults: tuple, *constants):
    """The kernel of `op` for the Autograd key: `function` when a derivative may be asked for, `op`
    itself if not."""
    apply = torch._C._FunctionBase.__dict__["apply"].__get__(None, function)

    def kernel(*args):
        args += defaults[len(args) :]
        if torch._C._are_functorch_transforms_active():
            # We are inside one level of `torch.func`; to this level the function is an ordinary
            # autograd operator.
            with torch._functorch.utils.enable_single_level_autograd_function():
                return apply(*args, *constants)
        if forward_ad._current_level >= 0 or (
            torch.is_grad_enabled() and torch._C._any_requires_grad(*args)
        ):
            return apply(*args, *constants)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return kernel


# --8<-- [end:autograd-key]

for _log in (False, True):
    _library.impl(
        _forward_op(_log),
        _differentiably(_forward_op(_log), SoftmaxFunction, (None, None, None, None), _log),
        "Autograd",
    )
    _library.impl(
        _backward_op(_log),
        _differentiably(
            _backward_op(_log), SoftmaxBackwardFunction, (None, None, None, None, None), _log
        ),
        "Autograd",
    )
_library.impl(logsumexp, _differentiably(logsumexp, LogsumexpFunction, ()), "Autograd")
_library.impl(
    logsumexp_backward,
    _differentiably(logsumexp_backward, LogsumexpBackwardFunction, ()),
    "Autograd",
)


# Batching (`torch.vmap`): the mapped dimension goes to the front, and `dim` counts one more from
# there.


def _to_front(info, in_dims, *tensors: Tensor) -> list[Tensor]:
    return [
        t.expand(info.batch_size, *t.shape) if in_dim is None else t.movedim(in_dim, 0)
        for t, in_dim in zip(tensors, in_dims)
    ]


def _softmax_batching(op):
    def rule(info, in_dims, x, dim, dtype=None, implementation=None):
        (x,) = _to_front(info, in_dims, x)
        dim = check_dim(dim, x.dim() - 1)
        if x.dim() == 1:  # each element of the batch is 0-d
            return op(x.unsqueeze(1), 1, dtype, implementation).squeeze(1), 0
        return op(x, dim + 1, dtype, implementation), 0

    return rule


def _softmax_backward_batching(op):
    def rule(info, in_dims, grad_output, output, dim, input_dtype, implementation=None):
        dy, y = _to_front(info, in_dims, grad_output, output)
        dim = check_dim(dim, y.dim() - 1)
        if y.dim() == 1:
            return op(dy.unsqueeze(1), y.unsqueeze(1), 1, input_dtype, implementation).squeeze(1), 0
        return op(dy, y, dim + 1, input_dtype, implementation), 0

    return rule


for _log in (False, True):
    torch.library.register_vmap(
        _forward_op(_log), _softmax_batching(_forward_op(_log)), lib=_library
    )
    torch.library.register_vmap(
        _backward_op(_log), _softmax_backward_batching(_backward_op(_log)), lib=_library
    )


def _logsumexp_batched(info, in_dims, x, dim):
    (x,) = _to_front(info, in_dims, x)
    dim = check_dim(dim, x.dim() - 1)
    return logsumexp(x.unsqueeze(1) if x.dim() == 1 else x, dim + 1), 0


def _logsumexp_backward_batched(info, in_dims, grad_output, x, output, dim):
    dlse, x, lse = _to_front(info, in_dims, grad_output, x, output)
    dim = check_dim(dim, x.dim() - 1)
    if x.dim() == 1:
        return logsumexp_backward(dlse, x.unsqueeze(1), lse, 1).squeeze(1), 0
    return logsumexp_backward(dlse, x, lse, dim + 1), 0


torch.library.register_vmap(logsumexp, _logsumexp_batched, lib=_library)
torch.library.register_vmap(logsumexp_backward, _logsumexp_backward_batched, lib=_library)


# Autocast. PyTorch's lists, as of torch 2.13: on GPUs softmax and log_softmax get dtype=float32
# unless the caller names a dtype, and logsumexp gets its input in float32; float64 is left alone.
# On CPU none of the three is listed.


# --8<-- [start:autocast]
def _register_autocast(device_type: str, key: torch._C.DispatchKey) -> None:
    below = torch._C.DispatchKeySet(key)

    def eligible(x: Tensor) -> bool:
        return x.device.type == device_type and x.dtype != torch.float64

    def autocast_softmax(op):
        def kernel(x, dim, dtype=None, implementation=None):
            with torch._C._ExcludeDispatchKeyGuard(below):
                return op(
                    x,
                    dim,
                    torch.float32 if dtype is None and eligible(x) else dtype,
                    implementation,
                )

        return kernel

    def autocast_logsumexp(x, dim):
        with torch._C._ExcludeDispatchKeyGuard(below):
            return logsumexp(x.float() if eligible(x) else x, dim)

    _library.impl(softmax, autocast_softmax(softmax), key.name)
    _library.impl(log_softmax, autocast_softmax(log_softmax), key.name)
    _library.impl(logsumexp, autocast_logsumexp, key.name)


# --8<-- [end:autocast]
_register_autocast("cuda", torch._C.DispatchKey.AutocastCUDA)
_register_autocast("xpu", torch._C.DispatchKey.AutocastXPU)
