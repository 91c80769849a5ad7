"""Register the operators `torch.ops.triton_softmax.*`, and let plain eager calls bypass them.

An operator tells PyTorch how to treat a function: its kernel, the shape of its result under
tracing, its derivative, and its rules for `vmap`, autocast and Inductor. Kernels compute values and
first derivatives. For anything more (transforms of `torch.func`, forward mode, second derivatives),
PyTorch differentiates the equivalent composite of its own operators (`composite`).

Plain eager calls bypass the dispatcher to save host time (`nobody_watches`), through one small
`torch.autograd.Function` if they need a gradient. That check uses private names of PyTorch; if one
is missing, every call goes through the operators, some microseconds slower.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
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
from .operations.cross_entropy import OF_DISTRIBUTION, PLAIN, SMOOTHED
from .operations.log_softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP
from .operations.logsumexp import LOGSUMEXP, LOGSUMEXP_VJP
from .operations.operation import Operation
from .operations.softmax import SOFTMAX, SOFTMAX_VJP
from .operations.token_statistics import ENTROPY, SELECTED_VJP, STATISTICS, TOKENS_VJP
from .plan import plan_of, run, run_modified, run_one

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


def nobody_watches(*tensors: Tensor) -> bool:
    """Return whether a call on these tensors is plain eager PyTorch, so it can skip the
    dispatcher."""
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
    for t in tensors:
        if (
            (type(t) is not Tensor and type(t) is not Parameter)
            # A wrapper, such as the one `torch.autograd.grad(..., is_grads_batched=True)` passes.
            or not _has_storage(t)
            or t.is_meta
            or t.is_nested
            # A lazily negated view (the imaginary part of a conjugate) has no sign in its memory.
            or t.is_neg()
        ):
            return False
    return True


def transformed() -> bool:
    """Return whether a call needs more than the first derivative of reverse mode: in a transform of
    `torch.func`, or in forward mode."""
    if is_dynamo_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def exporting() -> bool:
    """Return whether a program is exported. Dynamo asks while it traces: to it, by itself, every
    compilation is an export."""
    return torch.compiler.is_exporting()


# As `torch.compiler.assume_constant_result` does, which would import Dynamo.
setattr(exporting, "_dynamo_marked_constant", True)  # noqa: B010


def by_composite() -> bool:
    """Return whether a call must use the composite because its operator has no derivative: if it is
    transformed, or exported or traced, as the program may be differentiated later."""
    if is_dynamo_compiling():
        return exporting()
    return exporting() or transformed() or torch._C._get_tracing_state() is not None


def readable(t: Tensor) -> bool:
    """Return whether a tensor's values can be read: it is neither traced nor fake."""
    if torch.compiler.is_compiling() or by_composite() or t.is_meta:
        return False
    fake = getattr(t, "fake_mode", None) is not None
    return not fake and not torch._C._len_torch_dispatch_stack()


def is_batched(t: Tensor) -> bool:
    """Return whether a tensor stands for several, as an incoming gradient does in
    `torch.autograd.grad(..., is_grads_batched=True)`: it has no memory of its own."""
    return not is_dynamo_compiling() and not torch._C._has_storage(t)


def version_of(t: Tensor) -> int:
    """Return a tensor's version, its number of in-place changes; −1 if unknown."""
    return -1 if torch.compiler.is_compiling() or t.is_inference() else t._version


def may_be_overwritten(x: Tensor, rows: Tensor) -> bool:
    """Return whether a gradient may take the place of x, of which `rows` is a view or a copy."""
    mine = x.requires_grad and not x.is_leaf and torch.is_grad_enabled()
    return mine and rows.is_contiguous() and not torch.compiler.is_compiling()


def keeps_graph() -> bool:
    """Return whether the running backward pass may be repeated; True if unknown."""
    try:
        return torch._C._autograd._get_current_graph_task_keep_graph()  # pyright: ignore
    except AttributeError:
        return True


def direct(function):
    """Return the C++ `apply` of a `torch.autograd.Function`. It skips the Python wrapper's check
    for transforms, which `nobody_watches` has already made."""
    return super(Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]


# --- the table

_library = torch.library.Library("triton_softmax", "DEF")


def _define(schema: str, kernel: Callable[..., Any], shape: Callable[..., Any]) -> Any:
    """Define an operator, and return it."""
    _library.define(schema)
    overload = getattr(torch.ops.triton_softmax, schema.partition("(")[0]).default
    _library.impl(overload, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(overload, shape, lib=_library)
    return overload


class Operator:
    """An operator and the functions behind it.

    Args:
        schema: its signature, in the namespace `triton_softmax`.
        kernel: computes on plain tensors, on every backend; checks the arguments.
        shape: the fake kernel: returns results without data for tracing.
        composite: the equivalent in PyTorch's operators.
        differentiable: the function with a first derivative by kernels. Only differentiable
            operators have these two.

    Attributes:
        overload: the registered operator.
    """

    def __init__(
        self,
        schema: str,
        kernel: Callable[..., Any],
        shape: Callable[..., Any],
        composite: Callable[..., Any] | None = None,
        differentiable: Callable[..., Any] | None = None,
    ):
        self.kernel, self.shape = kernel, shape
        self.overload = _define(schema, kernel, shape)
        if composite is not None and differentiable is not None:
            rule = _differentiably(self.overload, composite, differentiable)
            _library.impl(self.overload, rule, "Autograd")


def _like_rows(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return a fake tensor with one scalar per row."""
    shape = [*x.shape[:dim], *x.shape[dim + 1 :]]
    return torch.empty(shape, dtype=dtype or accumulator(x.dtype), device=x.device)


def _nothing(x: Tensor) -> Tensor:
    """Return an empty tensor, in place of row scalars that were not requested."""
    return x.new_empty(0, dtype=accumulator(x.dtype))


def _differentiably(
    overload: Any, composite: Callable[..., Any], differentiable: Callable[..., Any]
):
    """Return an operator's kernel for the Autograd dispatch key.

    PyTorch's `register_autograd` covers reverse mode only: under `torch.func.jvp` such an operator
    silently returns a zero tangent, and under `torch.func.grad` it raises. A composite has every
    derivative, at every level of nested transforms.
    """

    def kernel(*args):
        if transformed():
            return composite(*args)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            return differentiable(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return overload(*args)

    return kernel


# --- softmax, log-softmax and log-sum-exp, forward and backward

_DEFAULTS = (None, None, False)


class Normalization(Operator):
    """Softmax, log-softmax or log-sum-exp, or the backward pass of one.

    A backward operator takes the output gradient, the saved tensor, and the forward options. Its
    operation takes the first two swapped.

    Attributes:
        operation: the operation it computes.
        vjp: the backward operator; None if this is one.
        alone: a twin operator without an autograd rule, for Inductor.
    """

    def __init__(self, name: str, operation: Operation, vjp: Normalization | None = None):
        self.operation, self.vjp = operation, vjp
        given = "Tensor grad_output, Tensor saved, int dim, ScalarType? input_dtype=None"
        if vjp is not None:
            given = "Tensor x, int dim, ScalarType? dtype=None"
        schema = f"{name}({given}, str? implementation=None, bool batch_invariant=False) -> Tensor"
        super().__init__(
            schema, self._kernel, self._shape, self.composite, self._with_first_derivative
        )
        self.alone = _define(f"_{schema}", self._kernel, self._shape)
        torch.library.register_vmap(self.overload, self._batched, lib=_library)
        if vjp is not None:
            for device, key in (("cuda", "AutocastCUDA"), ("xpu", "AutocastXPU")):
                _library.impl(self.overload, _autocast(self, device), key)

    def inputs_and_options(self, args: tuple[Any, ...]) -> tuple[tuple[Tensor, ...], tuple]:
        """Return the operation's inputs and (dim, dtype, implementation, batch_invariant); PyTorch
        omits trailing defaults, which this restores."""
        n_tensors = 2 if self.vjp is None else 1
        given = args[n_tensors:]
        return args[:n_tensors][::-1], given + _DEFAULTS[len(given) - 1 :]

    def _kernel(self, *args):
        inputs, options = self.inputs_and_options(args)
        return run(self.operation, inputs, *options)

    def _shape(self, *args):
        enter_in_inductor()
        (x, *_), (dim, dtype, implementation, _) = self.inputs_and_options(args)
        dim = check_arguments(x, dim, dtype, implementation)
        if self.operation.reduces:
            return _like_rows(x, dim, dtype or x.dtype)
        return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)

    def composite(self, *args):
        """Compute the operation with PyTorch's operators."""
        (x, *more), (dim, dtype, implementation, _) = self.inputs_and_options(args)
        dim = check_arguments(x, dim, dtype, implementation)
        return composite.KERNEL_OF[self.operation](x, *more, dim, dtype or x.dtype)

    def _with_first_derivative(self, *args):
        if self.vjp is None:
            return self.composite(*args)
        (x,), options = self.inputs_and_options(args)
        return differentiable(x, (self, False, *options))

    def _batched(self, info, in_dims, *args):
        """The rule for `torch.vmap`: move the mapped dimension to the front, and shift `dim` by
        one. 0-d examples get a temporary dimension."""
        inputs, (dim, *options) = self.inputs_and_options(args)
        x, *others = [
            each.expand(info.batch_size, *each.shape) if at is None else each.movedim(at, 0)
            for each, at in zip(inputs, in_dims[: len(inputs)][::-1])
        ]
        dim = check_dim(dim, x.dim() - 1) + 1
        if x.dim() > 1:
            return self.overload(*others, x, dim, *options), 0
        if not self.operation.numbers:
            others = [each.unsqueeze(1) for each in others]
        y = self.overload(*others, x.unsqueeze(1), dim, *options)
        return y.reshape(info.batch_size), 0


def _autocast(op: Operator, device_type: str):
    """Return the autocast rule, as for PyTorch's operator of the same name: on a GPU, compute in
    float32 unless the caller names a dtype or the input is float64. A CPU has no rule."""

    def kernel(x, dim, dtype=None, *options):
        narrow = x.is_floating_point() and x.dtype != torch.float64
        if dtype is None and narrow and x.device.type == device_type:
            dtype = torch.float32
        torch.set_autocast_enabled(device_type, False)
        try:
            return op.overload(x, dim, dtype, *options)
        finally:
            torch.set_autocast_enabled(device_type, True)

    return kernel


class FirstDerivative(Function):
    """Softmax, log-softmax and log-sum-exp with a first derivative by kernels.

    Log-sum-exp saves its input, the others their output. `arguments` packs the operator, whether
    the call is plain, and the options into one object, because `apply` inspects each argument.
    """

    @staticmethod
    def forward(ctx, x, arguments):
        op, plain, *rest = arguments
        if plain:
            y = run_one(op.operation, x, *rest)
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

softmax_backward = Normalization("softmax_backward", SOFTMAX_VJP)
log_softmax_backward = Normalization("log_softmax_backward", LOG_SOFTMAX_VJP)
logsumexp_backward = Normalization("logsumexp_backward", LOGSUMEXP_VJP)
softmax = Normalization("softmax", SOFTMAX, softmax_backward)
log_softmax = Normalization("log_softmax", LOG_SOFTMAX, log_softmax_backward)
logsumexp = Normalization("logsumexp", LOGSUMEXP, logsumexp_backward)


# --- softmax and log-softmax with score modifiers, in the order of `Modifiers`

_MODIFIERS = (
    "Tensor? scale, float factor, float? softcap, Tensor? bias, Tensor? where, bool causal, "
    "Tensor? sink, bool safe, bool log, int dim"
)
_MODIFIED = 8
"""How many of these are modifiers. The scale comes as a tensor `scale` or a number `factor`."""


def _modifiers(scale, factor, *others) -> Modifiers:
    return Modifiers(factor if scale is None else scale, *others)


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
    """Launch the kernel; return (y,), or (y, share of the sink)."""
    return run_modified(
        LOG_SOFTMAX if log else SOFTMAX, (x,), (), modifiers, dim, dtype,
        empty=-math.inf if log else 0.0, of_sink=of_sink, invariant=invariant, out=out,
    )  # fmt: skip


def _modified_kernel(x, *args):
    modifiers, (log, dim, dtype, invariant) = _modifiers(*args[:_MODIFIED]), args[_MODIFIED:]
    share = modifiers.sink is not None
    results = modified_forward(log, x, dim, dtype, modifiers, invariant, share)
    return results if share else (*results, _nothing(results[0]))


def _modified_shape(x, *args):
    sink, (_, dim, dtype, _) = args[_MODIFIED - 2], args[_MODIFIED:]
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    return y, _nothing(y) if sink is None else _like_rows(y, dim)


def _modified_out_kernel(x, *args):
    modifiers, (log, dim, invariant, out) = _modifiers(*args[:_MODIFIED]), args[_MODIFIED:]
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
    else:  # writing a row could overwrite another before it is read
        out.copy_(modified_forward(log, x, dim, out.dtype, modifiers, invariant)[0])


def _modified_backward_kernel(dy, y, x, *args):
    """Return the gradients at x, at the modified elements and at the scale, and the row sum that
    the sink's gradient needs; those not requested are empty."""
    log, dim, input_dtype, of_modified, of_scale, of_sink, invariant = args[_MODIFIED:]
    dx, *found = run_modified(
        LOG_SOFTMAX_VJP if log else SOFTMAX_VJP, (y, dy), (), _modifiers(*args[:_MODIFIED]), dim,
        input_dtype, before=False, after=True, empty=-math.inf if log else 0.0, x=x,
        of_mapped=of_modified, of_scale=of_scale, of_sink=of_sink, invariant=invariant,
    )  # fmt: skip
    wanted = (of_modified is not None, of_scale, of_sink)
    return dx, *[found.pop(0) if each else _nothing(y) for each in wanted]


def _modified_backward_shape(dy, y, x, *args):
    _, dim, input_dtype, of_modified, of_scale, of_sink, _ = args[_MODIFIED:]
    shape = [0] if of_modified is None else y.shape
    return (
        torch.empty(y.shape, dtype=input_dtype, device=y.device),
        torch.empty(shape, dtype=of_modified or accumulator(y.dtype), device=y.device),
        _like_rows(y, dim).unsqueeze(dim) if of_scale else _nothing(y),
        _like_rows(y, dim) if of_sink else _nothing(y),
    )


class ModifiedDerivative(Function):
    """Softmax and log-softmax with score modifiers and a first derivative by kernels. A plain call
    passes the modifiers first, as one object."""

    @staticmethod
    def forward(ctx, modifiers, *inputs):
        x, scale, factor, softcap, bias, where, causal, sink, safe, *ctx.rest = inputs
        log, dim, dtype, invariant = ctx.rest
        if modifiers is not None:
            with_sink = sink is not None
            results = modified_forward(log, x, dim, dtype, modifiers, invariant, with_sink)
            y, share = results if with_sink else (results[0], None)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                y, share = modified_softmax.overload(*inputs)
        needs = ctx.needs_input_grad
        ctx.needs = needs[2], needs[5], needs[8]  # scale, bias, sink
        with_x = softcap is not None or needs[2]
        ctx.save_for_backward(y, x if with_x else None, scale, where, share if needs[8] else None)
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
        return y, share

    @staticmethod
    def backward(ctx, dy, _):
        found: list[Any] = [None] * 14
        if dy is None:
            return tuple(found)
        y, x, scale, where, share = ctx.saved_tensors
        factor, softcap, bias, causal, sink, safe = ctx.options
        log, dim, _, invariant = ctx.rest
        given = (scale, factor, softcap, bias, where, causal, sink, safe)
        of_scale, of_bias, of_sink = ctx.needs
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # A second derivative may follow, which only the composite has.
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
        found[1] = dx.to(ctx.in_dtype)
        # eq: modifiers-sink-gradient
        gradients: Any = dscale, dz, -share * total if of_sink else None
        for i, t, like, wanted in zip((2, 5, 8), gradients, ctx.like, ctx.needs):
            if wanted:
                found[i] = t.sum_to_size(like[0]).to(like[1])
        return tuple(found)


differentiable_modified = direct(ModifiedDerivative)


def _modified_composite(x, *args):
    """Compute it with PyTorch's operators. Nobody reads the second result, so it has no values."""
    modifiers, (log, dim, dtype, _) = _modifiers(*args[:_MODIFIED]), args[_MODIFIED:]
    y = composite.modified_softmax(log, x, dim, dtype, modifiers)
    return y, _nothing(y) if modifiers.sink is None else _like_rows(y, dim)


modified_softmax = Operator(
    f"modified_softmax(Tensor x, {_MODIFIERS}, ScalarType dtype, bool batch_invariant)"
    " -> (Tensor, Tensor)",
    _modified_kernel,
    _modified_shape,
    _modified_composite,
    lambda *args: differentiable_modified(None, *args),
)
modified_softmax_in_place = Operator(
    f"modified_softmax_(Tensor(a!) x, {_MODIFIERS}, bool batch_invariant) -> ()",
    lambda x, *args: _modified_out_kernel(x, *args, x),
    lambda *_: None,
)
modified_softmax_out = Operator(
    f"modified_softmax_out(Tensor x, {_MODIFIERS}, bool batch_invariant, Tensor(a!) out) -> ()",
    _modified_out_kernel,
    lambda *_: None,
)
modified_softmax_backward = Operator(
    f"modified_softmax_backward(Tensor grad_output, Tensor output, Tensor? x, {_MODIFIERS}, "
    "ScalarType input_dtype, ScalarType? of_modified, bool of_scale, bool of_sink, "
    "bool batch_invariant) -> (Tensor, Tensor, Tensor, Tensor)",
    _modified_backward_kernel,
    _modified_backward_shape,
)


# --- losses and log-probabilities; `losses` and `logprobs` define their derivatives


def _in_place(schema: str, op: Operator) -> Operator:
    """Return the in-place variant of an operator: it writes the first result over x, and returns
    the rest."""

    def kernel(*args):
        return others(op.kernel(*args, in_place=True))

    def shape(*args):
        return others(op.shape(*args))

    def others(results):
        return results[1:] if len(results) > 2 else results[1]

    return Operator(schema, kernel, shape)


def _cross_entropy_kernel(
    x, target, picked, factor, z_factor, at_target, everywhere, dim, gradient, scale=1.0,
    softcap=None, distribution=None, batch_invariant=False, in_place=False,
):  # fmt: skip
    """Return the gradient of the losses (empty unless requested), and the loss and log-sum-exp of
    each row. In place, the gradient overwrites x."""
    if distribution is not None:
        op, inputs = OF_DISTRIBUTION[gradient], (target, picked, at_target, everywhere, z_factor)
    elif at_target is None:
        op, inputs = PLAIN[gradient], (target, picked, factor, z_factor)
    else:
        op, inputs = SMOOTHED[gradient], (target, picked, factor, z_factor, at_target, everywhere)
    dtype = x.dtype if gradient else promote_types(x.dtype, float32)
    if scale == 1.0 and softcap is None and distribution is None:
        inputs = (x, *inputs)
        results = plan_of(op, inputs, dim, dtype, None, batch_invariant, in_place)(*inputs)
    else:
        results = run_modified(
            op, (x,) if distribution is None else (x, distribution), inputs,
            Modifiers(scale, softcap), dim, dtype, after=gradient, invariant=batch_invariant,
            out=x if in_place else None,
        )  # fmt: skip
    return results if gradient else (x.new_empty(0), *results)


def _cross_entropy_shape(x, *rest):
    dim, gradient = rest[6:8]
    dx = torch.empty(x.shape if gradient else (0,), dtype=x.dtype, device=x.device)
    return dx, _like_rows(x, dim), _like_rows(x, dim)


def _row_statistics_kernel(x, dim, entropy, scale=None, factor=1.0, batch_invariant=False):
    """Return the maximum, log d and entropy (empty unless requested) of each row."""
    op, dtype = ENTROPY if entropy else STATISTICS, promote_types(x.dtype, float32)
    if scale is None and factor == 1.0:
        results = plan_of(op, (x,), dim, dtype, None, batch_invariant)(x)
    else:
        modifiers = Modifiers(factor if scale is None else scale)
        results = run_modified(op, (x,), (), modifiers, dim, dtype, invariant=batch_invariant)
    return results if entropy else (*results, x.new_empty(0, dtype=dtype))


def _row_statistics_shape(x, dim, entropy, *_):
    of_rows = [_like_rows(x, dim) for _ in range(3)]
    return *of_rows[:2], of_rows[2] if entropy else _nothing(x)


def _tokens_backward_kernel(
    x, target, picked, g, g_entropy, dim, scale=None, factor=1.0, of_scale=False,
    batch_invariant=False, in_place=False,
):  # fmt: skip
    """Return the gradients at x and, if requested, at the scale of each row."""
    op, inputs = SELECTED_VJP, (target, picked, g)
    if g_entropy is not None:
        op, inputs = TOKENS_VJP, (*inputs, g_entropy)
    results = run_modified(
        op, (x,), inputs, Modifiers(factor if scale is None else scale), dim, x.dtype, after=True,
        of_scale=of_scale, invariant=batch_invariant, out=x if in_place else None,
    )  # fmt: skip
    return results if of_scale else (*results, _nothing(x))


def _tokens_backward_shape(
    x, target, picked, g, g_entropy, dim, scale=None, factor=1.0, of_scale=False, *_
):
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return dx, _like_rows(x, dim).unsqueeze(dim) if of_scale else _nothing(x)


FINISHES = {op.name: op for op in composite.FINISH_OF}
"""The operations of `finish` by name, as an operator cannot take them as objects."""


def finish(
    op: Operation,
    inputs: tuple[Tensor, ...],
    numbers: tuple[Tensor, ...],
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """Compute an operation's elements from known row summaries: `plan.finish`, or an opaque
    operator if the call is not plain."""
    if not nobody_watches(inputs[0]):
        result = finish_rows.overload(list(inputs), list(numbers), op.name, dtype)
        return result if out is None or is_dynamo_compiling() else out.copy_(result)
    return plan.finish(op, inputs, numbers, dtype, out)


def _finish_kernel(inputs, numbers, operation, dtype):
    return plan.finish(FINISHES[operation], tuple(inputs), tuple(numbers), dtype)


_LOSS = (
    "Tensor target, Tensor picked, Tensor factor, Tensor z_factor, Tensor? at_target, "
    "Tensor? everywhere, int dim, bool gradient, float scale=1.0, float? softcap=None, "
    "Tensor? distribution=None, bool batch_invariant=False"
)
_TOKENS = (
    "Tensor target, Tensor picked, Tensor g, Tensor? g_entropy, int dim, Tensor? scale=None, "
    "float factor=1.0, bool of_scale=False, bool batch_invariant=False"
)
cross_entropy_rows = Operator(
    f"cross_entropy_rows(Tensor x, {_LOSS}) -> (Tensor, Tensor, Tensor)",
    _cross_entropy_kernel,
    _cross_entropy_shape,
)
cross_entropy_rows_in_place = _in_place(
    f"cross_entropy_rows_(Tensor(a!) x, {_LOSS}) -> (Tensor, Tensor)", cross_entropy_rows
)
row_statistics = Operator(
    "row_statistics(Tensor x, int dim, bool entropy, Tensor? scale=None, float factor=1.0, "
    "bool batch_invariant=False) -> (Tensor, Tensor, Tensor)",
    _row_statistics_kernel,
    _row_statistics_shape,
)
tokens_backward = Operator(
    f"tokens_backward(Tensor x, {_TOKENS}) -> (Tensor, Tensor)",
    _tokens_backward_kernel,
    _tokens_backward_shape,
)
tokens_backward_in_place = _in_place(
    f"tokens_backward_(Tensor(a!) x, {_TOKENS}) -> Tensor", tokens_backward
)
finish_rows = Operator(
    "finish_rows(Tensor[] inputs, Tensor[] numbers, str operation, ScalarType dtype) -> Tensor",
    _finish_kernel,
    lambda inputs, numbers, operation, dtype: inputs[0].new_empty(inputs[0].shape, dtype=dtype),
)


# --- Inductor
# Short rows, and longer ones in small tensors, decompose into PyTorch's operators, which Inductor
# fuses with their neighbours into one kernel that reads once, as ours does. Other rows become the
# operator without an autograd rule: autograd has already been traced.

LONGEST_FUSED = 1024
"""The longest row that Inductor keeps in registers and so reads only once."""

LONGEST_OF_FEW, FEW_ELEMENTS = 8192, 2**20
"""The longest row of a tensor small enough that rereading it from the cache costs less than
calling an operator."""

_entered = False


def _known(number: Any) -> float:
    """Return a size; a symbolic one counts as its value at this call."""
    if isinstance(number, int):
        return number
    hint = getattr(number.node, "hint", None)
    return math.inf if hint is None else hint


def _taken_apart(op: Normalization):
    """Return an operator's decomposition for Inductor."""

    def rule(*args):
        (x, *_), (dim, _, implementation, invariant) = op.inputs_and_options(args)
        if implementation is None and not invariant:
            length = _known(x.shape[dim]) if x.dim() else 1
            few = length <= LONGEST_OF_FEW and _known(x.numel()) <= FEW_ELEMENTS
            if length <= LONGEST_FUSED or few:
                return op.composite(*args).contiguous()
        return op.alone(*args)

    return rule


def enter_in_inductor() -> None:
    """Register the decompositions with Inductor, once, if it is loaded.

    The table is private to PyTorch; without it the operators still work, undecomposed. The shape
    rules call this because they run before Inductor reads the table; an operator that it has
    already lowered must not be decomposed later. Triton's interpreter is there to show the kernels,
    so nothing is decomposed under it.
    """
    global _entered
    if _entered or arguments.INTERPRETED or "torch._dynamo.convert_frame" not in sys.modules:
        return
    _entered = True
    try:
        # Inductor keeps a copy of the first table: the second.
        module = importlib.import_module("torch._inductor.decomposition")
        tables = module.decompositions, module.fast_random_decomps()
    except (AttributeError, ImportError):
        return
    lowered = getattr(sys.modules.get("torch._inductor.lowering"), "lowerings", {})
    backward = softmax_backward, log_softmax_backward, logsumexp_backward
    for op in (softmax, log_softmax, logsumexp, *backward):
        if op.overload not in lowered:
            for table in tables:
                table[op.overload] = _taken_apart(op)
