"""The operators `torch.ops.triton_softmax.*`: a table with one row each, and the short cut past it.

An operator carries what PyTorch wants to know of a function: its kernel, the shape of its result
(for tracing), its derivative, and its rules for `vmap`, autocast and Inductor. Kernels compute
values and first derivatives. For everything else, that is transforms of `torch.func`, forward mode
and derivatives of derivatives, the same function in PyTorch's operators (`composite`) is
differentiated.

Most calls come from plain eager code. They take a short cut past PyTorch's dispatcher
(`nobody_watches`), through one small `torch.autograd.Function` if a gradient is wanted. Whether a
call is plain takes private names of PyTorch; without one of these there is no short cut, and every
call goes through the operators, some microseconds slower.
"""

# pyright: reportCallIssue=false
from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, float32, promote_types
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

from . import arguments, composite, plan
from .arguments import Modifiers, check_arguments, check_dim
from .composite import accumulator
from .operations.cross_entropy import (
    CROSS_ENTROPY,
    CROSS_ENTROPY_GRADIENT,
    CROSS_ENTROPY_SMOOTHED,
    CROSS_ENTROPY_SMOOTHED_GRADIENT,
)
from .operations.distribution import DISTRIBUTION, DISTRIBUTION_GRADIENT
from .operations.log_softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP
from .operations.logsumexp import LOGSUMEXP, LOGSUMEXP_VJP
from .operations.operation import Operation
from .operations.softmax import SOFTMAX, SOFTMAX_VJP
from .operations.token_statistics import ENTROPY, SELECTED_VJP, STATISTICS, TOKENS_VJP
from .plan import plan_of, run, run_modified

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
def nobody_watches(x: Tensor, *others: Tensor) -> bool:
    """Return whether a call on these tensors is plain eager PyTorch, so that skipping the
    dispatcher changes nothing."""
    if (
        not AVAILABLE
        or is_dynamo_compiling()
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack()
        or _len_torch_function_stack()
        or _is_any_autocast_enabled()
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
    ):
        return False
    for t in (x, *others):
        if (
            (type(t) is not Tensor and type(t) is not Parameter)
            # A wrapper, such as `torch.autograd.grad(..., is_grads_batched=True)` sends backward.
            or not _has_storage(t)
            or t.is_meta
            or t.is_nested
            # The sign of such a view (the imaginary part of a conjugate) is not in its memory.
            or t.is_neg()
        ):
            return False
    return True


# --8<-- [end:nobody-watches]


def transformed() -> bool:
    """Return whether a call must be one of PyTorch's operators, which have every derivative: in a
    transform of `torch.func`, in forward mode, and where a program with derivatives to be taken
    later is exported or traced."""
    if torch.compiler.is_exporting():
        return True
    if is_dynamo_compiling():
        return False
    return (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    )


def readable(t: Tensor) -> bool:
    """Return whether a tensor has values that can be looked at: it is neither traced nor fake."""
    if torch.compiler.is_compiling() or transformed() or t.is_meta:
        return False
    fake = getattr(t, "fake_mode", None) is not None
    return not fake and not torch._C._len_torch_dispatch_stack()


def keeps_graph() -> bool:
    """Return whether the backward pass that runs may be repeated; True if that is unknown."""
    try:
        return torch._C._autograd._get_current_graph_task_keep_graph()  # pyright: ignore
    except AttributeError:
        return True


def direct(function):
    """Return what a `torch.autograd.Function` applies. `Function.apply` is Python code that looks
    for transforms, which `nobody_watches` has done, and then calls this."""
    return super(Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(eq=False)
class Operator:
    """A row of the table.

    Attributes:
        name: in the namespace `triton_softmax`.
        signature: the rest of its schema.
        kernel: what it does with plain tensors, on every backend; refuses what is wrong.
        shape: what it does with tensors that are traced: results without data.
        operation: of a softmax, log-softmax, log-sum-exp or the backward pass of one. Only these
            have the following attributes.
        composite: the same function in PyTorch's operators, with a dimension that counts from the
            front.
        vjp: the operator of the backward pass; None if this is one.
        alone: the name of the same kernel without a rule for autograd.
        autograd: of an operator whose derivative is another operator: what to save, and the
            backward pass.
        overload: the operator itself.
        kernel_alone: the operator `alone`.
    """

    name: str
    signature: str
    kernel: Callable[..., Any]
    shape: Callable[..., Any]
    operation: Operation | None = None
    composite: Callable[..., Tensor] | None = None
    vjp: Operator | None = None
    alone: str | None = None
    autograd: tuple[Callable[..., None], Callable[..., Any]] | None = None
    overload: Any = field(init=False, default=None)
    kernel_alone: Any = field(init=False, default=None)


# Softmax, log-softmax and log-sum-exp, forward and backward.


def _forward(
    name: str, alone: str, operation: Operation, by_operators: Callable[..., Tensor], vjp: Operator
) -> Operator:
    def kernel(x, dim, dtype=None, implementation=None, batch_invariant=False):
        return run(operation, (x,), dim, dtype, implementation, batch_invariant)

    def shape(x, dim, dtype=None, implementation=None, batch_invariant=False):
        enter_in_inductor()
        dim = check_arguments(x, dim, dtype, implementation)
        shape = [*x.shape[:dim], *x.shape[dim + 1 :]] if operation.reduces else x.shape
        return torch.empty(shape, dtype=dtype or x.dtype, device=x.device)

    def in_torch(x, dim, dtype=None, implementation=None, batch_invariant=False):
        dim = check_arguments(x, dim, dtype, implementation)
        return by_operators(x, dim, dtype or x.dtype)

    return Operator(name, _FORWARD, kernel, shape, operation, in_torch, vjp, alone)


def _backward(
    name: str, alone: str, operation: Operation, by_operators: Callable[..., Tensor]
) -> Operator:
    def kernel(dy, saved, dim, input_dtype=None, implementation=None, batch_invariant=False):
        return run(operation, (saved, dy), dim, input_dtype, implementation, batch_invariant)

    def shape(dy, saved, dim, input_dtype=None, implementation=None, batch_invariant=False):
        enter_in_inductor()
        check_arguments(saved, dim, input_dtype, implementation)
        return torch.empty(saved.shape, dtype=input_dtype or saved.dtype, device=saved.device)

    def in_torch(dy, saved, dim, input_dtype=None, implementation=None, batch_invariant=False):
        dim = check_arguments(saved, dim, input_dtype, implementation)
        return by_operators(saved, dy, dim, input_dtype or saved.dtype)

    return Operator(name, _BACKWARD, kernel, shape, operation, in_torch, None, alone)


_OPTIONS = "str? implementation=None, bool batch_invariant=False"
_FORWARD = f"(Tensor x, int dim, ScalarType? dtype=None, {_OPTIONS}) -> Tensor"
_BACKWARD = (
    f"(Tensor grad_output, Tensor saved, int dim, ScalarType? input_dtype=None, {_OPTIONS})"
    " -> Tensor"
)
softmax_backward = _backward(
    "softmax_backward", "_softmax_backward", SOFTMAX_VJP, composite.softmax_backward
)
log_softmax_backward = _backward(
    "log_softmax_backward", "_log_softmax_backward", LOG_SOFTMAX_VJP, composite.log_softmax_backward
)
logsumexp_backward = _backward(
    "logsumexp_backward", "_logsumexp_backward", LOGSUMEXP_VJP, composite.logsumexp_backward
)
softmax = _forward("softmax", "_softmax", SOFTMAX, composite.softmax, softmax_backward)
log_softmax = _forward(
    "log_softmax", "_log_softmax", LOG_SOFTMAX, composite.log_softmax, log_softmax_backward
)
logsumexp = _forward("logsumexp", "_logsumexp", LOGSUMEXP, composite.logsumexp, logsumexp_backward)


# --8<-- [start:first-derivative]
class FirstDerivative(Function):
    """The derivative of softmax, log-softmax and log-sum-exp by kernels.

    Log-sum-exp saves its input, the others save their output. `arguments` is one object, so that
    `apply` has two to look at: the operator, whether the call is plain, and its other arguments.
    """

    @staticmethod
    def forward(ctx, x, arguments):
        op, plain, *rest = arguments
        if plain:
            y = plan_of(op.operation, (x,), *rest)(x)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                y = op.overload(x, *rest)
        ctx.save_for_backward(x if op is logsumexp else y)
        ctx.arguments = arguments
        ctx.in_dtype = x.dtype
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return None, None
        (saved,) = ctx.saved_tensors
        op, _, dim, _, *rest = ctx.arguments
        vjp = op.vjp
        if torch.is_grad_enabled() or not nobody_watches(dy):
            # A second derivative, a batched gradient, ...
            return vjp.overload(dy, saved, dim, ctx.in_dtype, *rest), None
        return plan_of(vjp.operation, (saved, dy), dim, ctx.in_dtype, *rest)(saved, dy), None


differentiable = direct(FirstDerivative)
# --8<-- [end:first-derivative]


# --8<-- [start:autograd-key]
def _differentiably(op: Operator):
    """Return what `op` does where a derivative may be asked for: the kernel of the Autograd key.

    PyTorch's `register_autograd` covers reverse mode only: under `torch.func.jvp` such an operator
    returns a tangent of zero, in silence, and under `torch.func.grad` it raises. A composite has
    every derivative, at every level of a nested transform.
    """

    def kernel(x, *rest):
        if transformed():
            return op.composite(x, *rest)  # pyright: ignore[reportOptionalCall]
        if torch.is_grad_enabled() and torch._C._any_requires_grad(x, *rest):
            if op.vjp is None:
                return op.composite(x, *rest)  # pyright: ignore[reportOptionalCall]
            dim, dtype, implementation, invariant = rest + _DEFAULTS[len(rest) :]
            return differentiable(x, (op, False, dim, dtype, implementation, invariant))
        with torch._C._AutoDispatchBelowAutograd():
            return op.overload(x, *rest)

    return kernel


_DEFAULTS = (None, None, None, False)
# --8<-- [end:autograd-key]


def _batched(op: Operator):
    """Return the rule of `torch.vmap`: the mapped dimension goes to the front, and `dim` counts one
    more from there. 0-d examples get a dimension for the time of the call."""
    n_tensors = 2 if op.vjp is None else 1

    def rule(info, in_dims, *args):
        *others, x = [
            t.expand(info.batch_size, *t.shape) if in_dim is None else t.movedim(in_dim, 0)
            for t, in_dim in zip(args[:n_tensors], in_dims)
        ]
        dim, *rest = args[n_tensors:]
        dim = check_dim(dim, x.dim() - 1)
        if x.dim() > 1:
            return op.overload(*others, x, dim + 1, *rest), 0
        if not op.operation.reduces and op.operation is not LOGSUMEXP_VJP:  # pyright: ignore
            others = [each.unsqueeze(1) for each in others]
        y = op.overload(*others, x.unsqueeze(1), 1, *rest)
        return y.reshape(info.batch_size), 0

    return rule


# --8<-- [start:autocast]
def _autocast(op: Operator, device_type: str):
    """Return the rule of autocast, that of PyTorch's operator of the same name: on a GPU, float32
    unless the caller names a dtype; float64 is left alone. On a CPU there is none."""

    def kernel(x, dim, dtype=None, implementation=None, batch_invariant=False):
        narrow = x.is_floating_point() and x.dtype != torch.float64
        if dtype is None and narrow and x.device.type == device_type:
            dtype = torch.float32
        torch.set_autocast_enabled(device_type, False)
        try:
            return op.overload(x, dim, dtype, implementation, batch_invariant)
        finally:
            torch.set_autocast_enabled(device_type, True)

    return kernel


# --8<-- [end:autocast]


# Softmax and log-softmax with score modifiers, in the order of `Modifiers`. A scale is a tensor or
# a factor.

_MODIFIERS = (
    "Tensor? scale, float factor, float? softcap, Tensor? bias, Tensor? where, bool causal, "
    "Tensor? sink, bool safe, bool log, int dim"
)
_MASKED = 8
"""How many of these are modifiers."""


def _modifiers(scale, factor, *others) -> Modifiers:
    return Modifiers(factor if scale is None else scale, *others)


def _of_rows(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return a traced tensor of one number for each row."""
    shape = [*x.shape[:dim], *x.shape[dim + 1 :]]
    return torch.empty(shape, dtype=dtype or accumulator(x.dtype), device=x.device)


def _nothing(*_):
    return None


def modified_forward(
    log: bool,
    x: Tensor,
    dim: int,
    dtype: torch.dtype,
    modifiers: Modifiers,
    invariant: bool,
    of_sink: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Launch the kernel; return (y,), or (y, the sink's share)."""
    return run_modified(
        LOG_SOFTMAX if log else SOFTMAX, (x,), (), modifiers, dim, dtype,
        empty=-math.inf if log else 0.0, of_sink=of_sink, invariant=invariant, out=out,
    )  # fmt: skip


def _modified_kernel(x, *args):
    modifiers, (log, dim, dtype, invariant) = _modifiers(*args[:_MASKED]), args[_MASKED:]
    share = modifiers.sink is not None
    results = modified_forward(log, x, dim, dtype, modifiers, invariant, share)
    return results if share else (*results, x.new_empty(0, dtype=accumulator(dtype)))


def _modified_shape(x, *args):
    sink, (_, dim, dtype, _) = args[_MASKED - 2], args[_MASKED:]
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    if sink is None:
        return y, torch.empty([0], dtype=accumulator(dtype), device=x.device)
    return y, _of_rows(x, dim, accumulator(dtype))


def _modified_out_kernel(x, *args):
    modifiers, (log, dim, invariant, out) = _modifiers(*args[:_MASKED]), args[_MASKED:]
    if x.numel() == 0:
        return
    if x.device.type == "cpu" and not arguments.INTERPRETED:
        out.copy_(composite.modified_softmax(log, x, dim, out.dtype, modifiers))
        return
    memory = out.untyped_storage().data_ptr()
    tensors = [each for each in (x, *modifiers) if isinstance(each, Tensor)]
    shared = [each for each in tensors if each.untyped_storage().data_ptr() == memory]
    same = (x.data_ptr(), x.stride(), x.dtype) == (out.data_ptr(), out.stride(), out.dtype)
    if not shared or (same and all(each is x for each in shared)):
        modified_forward(log, x, dim, out.dtype, modifiers, invariant, out=out)
    else:  # a row would be read after others have been written over it
        out.copy_(modified_forward(log, x, dim, out.dtype, modifiers, invariant)[0])


def _modified_in_place_kernel(x, *args):
    _modified_out_kernel(x, *args, x)


def _modified_backward_kernel(dy, y, x, *args):
    """Return the gradients at x, at the modified elements and at the scale, and the row's sum from
    which that at the sink follows; what is not wanted is empty."""
    log, dim, input_dtype, of_modified, of_scale, of_sink, invariant = args[_MASKED:]
    found = list(
        run_modified(
            LOG_SOFTMAX_VJP if log else SOFTMAX_VJP, (y, dy), (), _modifiers(*args[:_MASKED]), dim,
            input_dtype, before=False, after=True, empty=-math.inf if log else 0.0, x=x,
            of_mapped=of_modified, of_scale=of_scale, of_sink=of_sink, invariant=invariant,
        )
    )  # fmt: skip
    dx, dtype = found.pop(0), accumulator(y.dtype)
    return (
        dx,
        dx.new_empty(0) if of_modified is None else found.pop(0),
        found.pop(0) if of_scale else dx.new_empty(0, dtype=dtype),
        found.pop(0) if of_sink else dx.new_empty(0, dtype=dtype),
    )


def _modified_backward_shape(dy, y, x, *args):
    _, dim, input_dtype, of_modified, of_scale, of_sink, _ = args[_MASKED:]

    def like(wanted, shape, dtype):
        return torch.empty(shape if wanted else [0], dtype=dtype, device=y.device)

    of_rows = _of_rows(y, dim)
    return (
        like(True, y.shape, input_dtype),
        like(of_modified is not None, y.shape, of_modified or input_dtype),
        like(of_scale, of_rows.unsqueeze(dim).shape, of_rows.dtype),
        like(of_sink, of_rows.shape, of_rows.dtype),
    )


# --8<-- [start:gradient]
def _save_modified(ctx, inputs, output):
    x, scale, factor, softcap, bias, where, causal, sink, safe, *ctx.rest = inputs
    y, share = output
    needs = ctx.needs_input_grad
    ctx.needs = needs[1], needs[4], needs[7]  # scale, bias, sink
    with_x = softcap is not None or needs[1]
    ctx.save_for_backward(y, x if with_x else None, scale, where, share if needs[7] else None)
    ctx.options = factor, softcap, None, causal, None, safe
    ctx.in_dtype = x.dtype
    ctx.like = (
        None if scale is None else (scale.shape, scale.dtype),
        None if bias is None else (bias.shape, bias.dtype),
        None if sink is None else (sink.shape, sink.dtype),
    )
    if share is not None:
        ctx.mark_non_differentiable(share)
    ctx.set_materialize_grads(False)


def _modified_backward(ctx, dy, _):
    if dy is None:
        return (None,) * 13
    y, x, scale, where, share = ctx.saved_tensors
    factor, softcap, bias, causal, sink, safe = ctx.options
    log, dim, _, invariant = ctx.rest
    given = (scale, factor, softcap, bias, where, causal, sink, safe)
    of_scale, of_bias, of_sink = ctx.needs
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        # A derivative of this is wanted as well, and composites have one.
        dx, dz, dscale, total = composite.modified_softmax_backward(
            log, dy, y, x, dim, _modifiers(*given)
        )
        if of_sink:
            p = composite.upcast(y)
            share = 1.0 - (p.exp() if log else p).sum(dim, keepdim=True)
    else:
        further = scale is not None or factor != 1.0 or softcap is not None
        further = of_bias and (further or y.dtype != ctx.in_dtype)
        op = modified_softmax_backward
        dx, dz, dscale, total = (op.kernel if nobody_watches(dy) else op.overload)(
            dy, y, x, *given, log, dim, ctx.in_dtype, y.dtype if further else None, of_scale,
            of_sink, invariant,
        )  # fmt: skip
        dz = dz if further else dx
        if of_sink:
            total, share = total.unsqueeze(dim), share.unsqueeze(dim)
    found: list[Any] = [dx.to(ctx.in_dtype)] + [None] * 12
    # eq: maps-sink-gradient
    dsink = -share * total if of_sink else None
    for i, t, like, wanted in zip((1, 4, 7), (dscale, dz, dsink), ctx.like, ctx.needs):
        if wanted:
            found[i] = t.sum_to_size(like[0]).to(like[1])  # pyright: ignore
    return tuple(found)


class _Modified(Function):
    """The derivative for plain calls."""

    @staticmethod
    def forward(ctx, *inputs):
        x, scale, factor, softcap, bias, where, causal, sink, safe, log, dim, dtype, inv = inputs
        modifiers = Modifiers(
            factor if scale is None else scale, softcap, bias, where, causal, sink, safe
        )
        results = run_modified(
            LOG_SOFTMAX if log else SOFTMAX, (x,), (), modifiers, dim, dtype,
            empty=-math.inf if log else 0.0, of_sink=sink is not None, invariant=inv,
        )  # fmt: skip
        output = results if sink is not None else (results[0], None)
        _save_modified(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx, dy, share):
        return _modified_backward(ctx, dy, share)


differentiable_modified = direct(_Modified)
# --8<-- [end:gradient]

modified_softmax = Operator(
    "modified_softmax",
    f"(Tensor x, {_MODIFIERS}, ScalarType dtype, bool batch_invariant) -> (Tensor, Tensor)",
    _modified_kernel,
    _modified_shape,
    autograd=(_save_modified, _modified_backward),
)
modified_softmax_in_place = Operator(
    "modified_softmax_",
    f"(Tensor(a!) x, {_MODIFIERS}, bool batch_invariant) -> ()",
    _modified_in_place_kernel,
    _nothing,
)
modified_softmax_out = Operator(
    "modified_softmax_out",
    f"(Tensor x, {_MODIFIERS}, bool batch_invariant, Tensor(a!) out) -> ()",
    _modified_out_kernel,
    _nothing,
)
modified_softmax_backward = Operator(
    "modified_softmax_backward",
    f"(Tensor grad_output, Tensor output, Tensor? x, {_MODIFIERS}, ScalarType input_dtype, "
    "ScalarType? of_modified, bool of_scale, bool of_sink, bool batch_invariant)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _modified_backward_kernel,
    _modified_backward_shape,
)


# Losses and log-probabilities. Their derivatives are the business of `losses` and `logprobs`.


def cross_entropy_kernel(
    x, target, picked, factor, z_factor, at_target, everywhere, dim, gradient, scale=1.0,
    softcap=None, distribution=None, batch_invariant=False, in_place=False,
):  # fmt: skip
    """Return the losses and log-sum-exps of rows, and the gradient of the losses if it is wanted;
    if not an empty tensor, or with None for False nothing. In place it is written over x."""
    if distribution is not None:
        op = DISTRIBUTION_GRADIENT if gradient else DISTRIBUTION
        inputs = (target, picked, at_target, everywhere, z_factor)
    elif at_target is None:
        op = CROSS_ENTROPY_GRADIENT if gradient else CROSS_ENTROPY
        inputs = (target, picked, factor, z_factor)
    else:
        op = CROSS_ENTROPY_SMOOTHED_GRADIENT if gradient else CROSS_ENTROPY_SMOOTHED
        inputs = (target, picked, factor, z_factor, at_target, everywhere)
    dtype = None if gradient else promote_types(x.dtype, float32)
    if scale == 1.0 and softcap is None and distribution is None:
        inputs = (x, *inputs)
        results = plan_of(op, inputs, dim, dtype, None, batch_invariant, in_place)(*inputs)
    else:
        results = run_modified(
            op, (x,) if distribution is None else (x, distribution), inputs,
            Modifiers(scale, softcap), dim, dtype or x.dtype, after=gradient,
            invariant=batch_invariant, out=x if in_place else None,
        )  # fmt: skip
    if gradient:
        dx, losses, lse = results
        return losses, lse, dx
    return results if gradient is None else (*results, x.new_empty(0))


def _cross_entropy_shape(x, *rest):
    dim, gradient = rest[6:8]
    dx = torch.empty(x.shape if gradient else (0,), dtype=x.dtype, device=x.device)
    return _of_rows(x, dim), _of_rows(x, dim), dx


def _cross_entropy_in_place(x, *rest):
    scalars, (dim, *further) = rest[:6], rest[6:]
    further += (1.0, None, None, False)[len(further) :]
    return cross_entropy_kernel(x, *scalars, dim, True, *further, in_place=True)[:2]


def _cross_entropy_in_place_shape(x, *rest):
    return _of_rows(x, rest[6]), _of_rows(x, rest[6])


def row_statistics_kernel(x, dim, entropy, scale=None, factor=1.0, batch_invariant=False):
    """Return the maximum, log d and entropy of each row; the entropy is empty if not wanted."""
    op, dtype = ENTROPY if entropy else STATISTICS, promote_types(x.dtype, float32)
    if scale is None and factor == 1.0:
        results = plan_of(op, (x,), dim, dtype, None, batch_invariant)(x)
    else:
        modifiers = Modifiers(factor if scale is None else scale)
        results = run_modified(op, (x,), (), modifiers, dim, dtype, invariant=batch_invariant)
    return results if entropy else (*results, x.new_empty(0, dtype=dtype))


def _row_statistics_shape(x, dim, entropy, *_):
    last = _of_rows(x, dim) if entropy else x.new_empty(0, dtype=accumulator(x.dtype))
    return _of_rows(x, dim), _of_rows(x, dim), last


def tokens_backward_kernel(
    x, target, picked, g, g_entropy, dim, scale=None, factor=1.0, of_scale=False,
    batch_invariant=False, in_place=False,
):  # fmt: skip
    """Return the gradients at x and at the scale of each row; the latter is empty if not wanted."""
    op, inputs = SELECTED_VJP, (target, picked, g)
    if g_entropy is not None:
        op, inputs = TOKENS_VJP, (*inputs, g_entropy)
    dx, *found = run_modified(
        op, (x,), inputs, Modifiers(factor if scale is None else scale), dim, x.dtype, after=True,
        of_scale=of_scale, invariant=batch_invariant, out=x if in_place else None,
    )  # fmt: skip
    return dx, *(found or (x.new_empty(0, dtype=accumulator(x.dtype)),))


def _tokens_backward_in_place(*rest):
    return tokens_backward_kernel(*rest, in_place=True)[1]


def _of_scale_shape(
    x, target, picked, g, g_entropy, dim, scale=None, factor=1.0, of_scale=False, *_
):
    if of_scale:
        return _of_rows(x, dim).unsqueeze(dim)
    return torch.empty([0], dtype=accumulator(x.dtype), device=x.device)


def _tokens_backward_shape(x, *rest):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), _of_scale_shape(x, *rest)


FINISHES = {op.name: op for op in composite.FINISH_OF}
"""The operations of `finish`, by the names that an operator can take."""


def finish(
    op: Operation,
    inputs: tuple[Tensor, ...],
    numbers: tuple[Tensor, ...],
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """Return the elements of a result from a summary that is known: `plan.finish`, or where a call
    is watched an operator, into which nobody looks."""
    if not nobody_watches(inputs[0]):
        return finish_rows.overload(list(inputs), list(numbers), op.name, dtype)
    return plan.finish(op, inputs, numbers, dtype, out)


def _finish_kernel(inputs, numbers, operation, dtype):
    return plan.finish(FINISHES[operation], tuple(inputs), tuple(numbers), dtype)


def _finish_shape(inputs, numbers, operation, dtype):
    return inputs[0].new_empty(inputs[0].shape, dtype=dtype)


_SCALARS = (
    "Tensor target, Tensor picked, Tensor factor, Tensor z_factor, "
    "Tensor? at_target, Tensor? everywhere, int dim"
)
_LOSS = (
    "float scale=1.0, float? softcap=None, Tensor? distribution=None, bool batch_invariant=False"
)
_TOKENS = (
    "Tensor target, Tensor picked, Tensor g, Tensor? g_entropy, int dim, Tensor? scale=None, "
    "float factor=1.0, bool of_scale=False, bool batch_invariant=False"
)
cross_entropy_rows = Operator(
    "cross_entropy_rows",
    f"(Tensor x, {_SCALARS}, bool gradient, {_LOSS}) -> (Tensor, Tensor, Tensor)",
    cross_entropy_kernel,
    _cross_entropy_shape,
)
cross_entropy_rows_in_place = Operator(
    "cross_entropy_rows_",
    f"(Tensor(a!) x, {_SCALARS}, {_LOSS}) -> (Tensor, Tensor)",
    _cross_entropy_in_place,
    _cross_entropy_in_place_shape,
)
row_statistics = Operator(
    "row_statistics",
    "(Tensor x, int dim, bool entropy, Tensor? scale=None, float factor=1.0, "
    "bool batch_invariant=False) -> (Tensor, Tensor, Tensor)",
    row_statistics_kernel,
    _row_statistics_shape,
)
tokens_backward = Operator(
    "tokens_backward",
    f"(Tensor x, {_TOKENS}) -> (Tensor, Tensor)",
    tokens_backward_kernel,
    _tokens_backward_shape,
)
tokens_backward_in_place = Operator(
    "tokens_backward_",
    f"(Tensor(a!) x, {_TOKENS}) -> Tensor",
    _tokens_backward_in_place,
    _of_scale_shape,
)
finish_rows = Operator(
    "finish_rows",
    "(Tensor[] inputs, Tensor[] numbers, str operation, ScalarType dtype) -> Tensor",
    _finish_kernel,
    _finish_shape,
)


# Inductor. A short row becomes PyTorch's operators, which Inductor fuses with their neighbours into
# one kernel that reads once as ours does; so does a longer row of a small tensor. Any other row
# becomes the operator without a rule for autograd, which has done its work by then.

LONGEST_FUSED = 1024
"""The longest row that Inductor keeps in registers, and so reads once."""

LONGEST_OF_FEW, FEW_ELEMENTS = 8192, 2**20
"""The longest row of so few elements that reading them again, from the cache, takes less than
calling an operator."""

_entered = False


def _known(number: Any) -> float:
    """Return a size; one that is unknown while shapes are traced counts as it is at this call."""
    if isinstance(number, int):
        return number
    hint = getattr(number.node, "hint", None)
    return math.inf if hint is None else hint


def _taken_apart(op: Operator):
    """Return how Inductor takes an operator apart."""
    of_rows = 1 if op.vjp is None else 0  # the argument that has the rows

    def rule(*args):
        x, (dim, *rest) = args[of_rows], args[of_rows + 1 :]
        if not any(rest[1:]):  # neither a kernel's name nor batch invariance
            length = _known(x.shape[dim]) if x.dim() else 1
            few = length <= LONGEST_OF_FEW and _known(x.numel()) <= FEW_ELEMENTS
            if length <= LONGEST_FUSED or few:
                result = op.composite(*args)  # pyright: ignore[reportOptionalCall]
                return result if result.is_contiguous() else result.contiguous()
        return op.kernel_alone(*args)

    return rule


def enter_in_inductor() -> None:
    """Enter the rules in Inductor's table of decompositions, once, if Inductor is there.

    The table is private to PyTorch; without it the operators stay as they are, and work. The shape
    rules call this, since they run before Inductor looks at the table; what it has lowered before
    must not be taken apart later. Under Triton's interpreter, which is there to show the kernels,
    nothing is taken apart.
    """
    global _entered
    if _entered or arguments.INTERPRETED or "torch._dynamo.convert_frame" not in sys.modules:
        return
    _entered = True
    try:
        # The second table is a copy of the first that Inductor keeps.
        module = importlib.import_module("torch._inductor.decomposition")
        tables = module.decompositions, module.fast_random_decomps()
    except (AttributeError, ImportError):
        return
    lowered = getattr(sys.modules.get("torch._inductor.lowering"), "lowerings", {})
    for op in TABLE:
        if op.alone is not None and op.overload not in lowered:
            for table in tables:
                table[op.overload] = _taken_apart(op)


TABLE = (
    softmax,
    softmax_backward,
    log_softmax,
    log_softmax_backward,
    logsumexp,
    logsumexp_backward,
    modified_softmax,
    modified_softmax_in_place,
    modified_softmax_out,
    modified_softmax_backward,
    cross_entropy_rows,
    cross_entropy_rows_in_place,
    row_statistics,
    tokens_backward,
    tokens_backward_in_place,
    finish_rows,
)

_library = torch.library.Library("triton_softmax", "DEF")


def _define(name: str, op: Operator) -> Any:
    """Define an operator with the schema, kernel and shape of a row, and return it."""
    _library.define(name + op.signature)
    overload = getattr(torch.ops.triton_softmax, name).default
    _library.impl(overload, op.kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(overload, op.shape, lib=_library)
    return overload


for _op in TABLE:
    _op.overload = _define(_op.name, _op)
    if _op.alone is not None:
        _op.kernel_alone = _define(_op.alone, _op)
        torch.library.register_vmap(_op.overload, _batched(_op), lib=_library)
        _library.impl(_op.overload, _differentiably(_op), "Autograd")
    if _op.vjp is not None:
        for _device, _key in (("cuda", "AutocastCUDA"), ("xpu", "AutocastXPU")):
            _library.impl(_op.overload, _autocast(_op, _device), _key)
    if _op.autograd is not None:
        _save, _derivative = _op.autograd
        torch.library.register_autograd(
            _op.overload, _derivative, setup_context=_save, lib=_library
        )
