"""The derivatives of softmax, log-softmax and log-sum-exp, of any order and in both modes.

A backward pass is an operator with a derivative of its own, made of these operators and of
PyTorch's. The `Function`s call the operators by name; `registration` defines them and binds each
`Function` to its operator.
"""

from __future__ import annotations

import contextlib

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.autograd import Function

from .checks import check_dim

_ops = torch.ops.triton_softmax


def _forward_op(log: bool):
    return _ops.log_softmax.default if log else _ops.softmax.default


def _backward_op(log: bool):
    return _ops.log_softmax_backward.default if log else _ops.softmax_backward.default


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


def _primal(saved: Tensor) -> Tensor:
    """A tensor that a rule saved, without its tangent of this level."""
    return torch.ops.aten._fw_primal.default(saved, 0)


def _primals(ctx) -> list[Tensor]:
    return [_primal(saved) for saved in ctx.saved_tensors]


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
            return _backward_op(False)(tx.to(y.dtype), y, ctx.dim, y.dtype, ctx.implementation)


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
                grad_dy = _backward_op(False)(
                    v.to(y.dtype), y, ctx.dim, dy.dtype, ctx.implementation
                )
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


def _softmax_jvp(t: Tensor, y: Tensor, ctx) -> Tensor:
    return _backward_op(False)(t, y, ctx.dim, y.dtype, ctx.implementation)


def _probabilities(x: Tensor, ctx) -> Tensor:
    """softmax(x), and not exp(x − lse): that takes over what rounding has cost a large lse."""
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else None
    return _ops.softmax.default(x, ctx.dim, dtype, ctx.implementation)


def _sum(t: Tensor, dim: int) -> Tensor:
    return t.sum(dim) if t.dim() else t


def _spread(t: Tensor, x: Tensor, dim: int) -> Tensor:
    return _wide(t).unsqueeze(dim) if x.dim() else _wide(t)


class LogsumexpFunction(Function):
    """log(sum(exp(x))) along one dimension."""

    @staticmethod
    def forward(x, dim, implementation):
        return _below_autograd(_ops.logsumexp.default, x, dim, implementation)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, dim, ctx.implementation = inputs
        ctx.dim = check_dim(dim, x.dim())
        _save(ctx, x)

    @staticmethod
    def backward(ctx, dlse):
        if dlse is None:
            return None, None, None
        (x,) = ctx.saved_tensors
        dx = _ops.logsumexp_backward.default(dlse, x, ctx.dim, ctx.implementation)
        return dx, None, None

    @staticmethod
    def jvp(ctx, tx, *_):
        with _inner_modes():
            (x,) = _primals(ctx)
            # eq: logsumexp-jvp
            return _sum(_probabilities(x, ctx) * _wide(tx), ctx.dim).to(x.dtype)


class LogsumexpBackwardFunction(Function):
    """The vector-Jacobian product of logsumexp, itself differentiable in `dlse` and in `x`."""

    @staticmethod
    def forward(dlse, x, dim, implementation):
        return _below_autograd(_ops.logsumexp_backward.default, dlse, x, dim, implementation)

    @staticmethod
    def setup_context(ctx, inputs, output):
        dlse, x, dim, ctx.implementation = inputs
        ctx.dim = check_dim(dim, x.dim())
        _save(ctx, dlse, x)

    @staticmethod
    def backward(ctx, v):
        if v is None:
            return None, None, None, None
        dlse, x = ctx.saved_tensors
        p = _probabilities(x, ctx)
        # eq: logsumexp-backward-wrt-inputs
        grad_dlse = _sum(_wide(v) * p, ctx.dim)
        grad_x = _softmax_jvp(_spread(dlse, x, ctx.dim) * _wide(v), p, ctx)
        return grad_dlse.to(dlse.dtype), grad_x.to(x.dtype), None, None

    @staticmethod
    def jvp(ctx, tdlse, tx, *_):
        with _inner_modes():
            dlse, x = _primals(ctx)
            along_dlse = along_x = None
            if tdlse is not None:
                along_dlse = _ops.logsumexp_backward.default(tdlse, x, ctx.dim, ctx.implementation)
            if tx is not None:
                p = _probabilities(x, ctx)
                along_x = _softmax_jvp(_spread(dlse, x, ctx.dim) * _wide(tx), p, ctx)
                along_x = along_x.to(x.dtype)
            return _sum_of(along_dlse, along_x)
