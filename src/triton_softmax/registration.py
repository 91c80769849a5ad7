"""Registration with PyTorch: what makes the kernels citizens of autograd, `torch.func`, autocast
and `torch.compile`.

Six operators live in the namespace `triton_softmax`, reachable as
`torch.ops.triton_softmax.<name>`:

- `softmax(x, dim, dtype=None, implementation=None) -> y`
- `softmax_backward(grad_output, output, dim, input_dtype, implementation=None) -> dx`
- `log_softmax`, as `softmax`
- `log_softmax_backward`, as `softmax_backward`
- `logsumexp(x, dim, implementation=None) -> lse`, without the dimension `dim`
- `logsumexp_backward(grad_output, x, dim, implementation=None) -> dx`

There is each of them with an underscore before its name too, without a rule for autograd: what
`inductor` leaves of them.

Each has a kernel (`dispatch.run`), a shape rule for tracing, a differentiation rule in both modes
(`derivatives`), a batching rule, and the autocast rule of PyTorch's operator of the same name. The
derivative of a backward operator is made of these operators and of PyTorch's own, so derivatives of
any order exist.
"""

from __future__ import annotations

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.autograd import Function

from . import inductor, mapped
from .checks import check_arguments, check_dim
from .derivatives import (
    LogsumexpBackwardFunction,
    LogsumexpFunction,
    SoftmaxBackwardFunction,
    SoftmaxFunction,
)
from .dispatch import run
from .operations.distribution import DISTRIBUTION, DISTRIBUTION_GRADIENT
from .operations.tokens import SELECTED_VJP, TOKENS_VJP
from .plan import LOSSES

_library = torch.library.Library("triton_softmax", "DEF")
_FORWARD = "Tensor x, int dim, ScalarType? dtype=None, str? implementation=None"
_BACKWARD = (
    "Tensor grad_output, Tensor output, int dim, ScalarType input_dtype, str? implementation=None"
)
_SCHEMAS = {
    "softmax": f"({_FORWARD}) -> Tensor",
    "log_softmax": f"({_FORWARD}) -> Tensor",
    "logsumexp": "(Tensor x, int dim, str? implementation=None) -> Tensor",
    "softmax_backward": f"({_BACKWARD}) -> Tensor",
    "log_softmax_backward": f"({_BACKWARD}) -> Tensor",
    "logsumexp_backward": (
        "(Tensor grad_output, Tensor x, int dim, str? implementation=None) -> Tensor"
    ),
}
for _name, _schema in _SCHEMAS.items():
    _library.define(_name + _schema)
    _library.define(f"_{_name}{_schema}")

_ops = torch.ops.triton_softmax
softmax = _ops.softmax.default
log_softmax = _ops.log_softmax.default
logsumexp = _ops.logsumexp.default
softmax_backward = _ops.softmax_backward.default
log_softmax_backward = _ops.log_softmax_backward.default
logsumexp_backward = _ops.logsumexp_backward.default


# The kernels, for plain tensors on every backend (CompositeExplicitAutograd; the checks of a plan
# refuse the others), and the shapes of the results, for tracing. A traced tensor may stand for a
# device that this machine does not have.


def _softmax_kernel(operation: str):
    def kernel(x, dim, dtype=None, implementation=None):
        return run(operation, (x,), dim, dtype, implementation)

    return kernel


def _softmax_backward_kernel(operation: str):
    def kernel(grad_output, output, dim, input_dtype, implementation=None):
        return run(operation, (output, grad_output), dim, input_dtype, implementation)

    return kernel


def _logsumexp_kernel(x, dim, implementation=None):
    return run("logsumexp", (x,), dim, None, implementation)


def _logsumexp_backward_kernel(grad_output, x, dim, implementation=None):
    return run("logsumexp_backward", (x, grad_output), dim, None, implementation)


def _softmax_shape(x, dim, dtype=None, implementation=None):
    inductor.register()
    check_arguments(x, dim, dtype, implementation)
    return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)


def _softmax_backward_shape(grad_output, output, dim, input_dtype, implementation=None):
    inductor.register()
    check_arguments(output, dim, input_dtype, implementation)
    return torch.empty(output.shape, dtype=input_dtype, device=output.device)


def _logsumexp_shape(x, dim, implementation=None):
    inductor.register()
    dim = check_arguments(x, dim, None, implementation)
    return torch.empty([*x.shape[:dim], *x.shape[dim + 1 :]], dtype=x.dtype, device=x.device)


def _logsumexp_backward_shape(grad_output, x, dim, implementation=None):
    inductor.register()
    check_arguments(x, dim, None, implementation)
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


# Batching (`torch.vmap`): the mapped dimension goes to the front, and `dim` counts one more from
# there. Where each element of the batch is 0-d, it gets a dimension for the time of the call.


def _to_front(info, in_dims, *tensors: Tensor) -> list[Tensor]:
    return [
        t.expand(info.batch_size, *t.shape) if in_dim is None else t.movedim(in_dim, 0)
        for t, in_dim in zip(tensors, in_dims)
    ]


def _softmax_batching(op):
    def rule(info, in_dims, x, dim, dtype=None, implementation=None):
        (x,) = _to_front(info, in_dims, x)
        dim = check_dim(dim, x.dim() - 1)
        if x.dim() == 1:
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


def _logsumexp_batched(info, in_dims, x, dim, implementation=None):
    (x,) = _to_front(info, in_dims, x)
    dim = check_dim(dim, x.dim() - 1)
    return logsumexp(x.unsqueeze(1) if x.dim() == 1 else x, dim + 1, implementation), 0


def _logsumexp_backward_batched(info, in_dims, grad_output, x, dim, implementation=None):
    dlse, x = _to_front(info, in_dims, grad_output, x)
    dim = check_dim(dim, x.dim() - 1)
    if x.dim() == 1:
        return logsumexp_backward(dlse, x.unsqueeze(1), 1, implementation).squeeze(1), 0
    return logsumexp_backward(dlse, x, dim + 1, implementation), 0


# --8<-- [start:autograd-key]
def _differentiably(op, function: type[Function], defaults: tuple, *constants):
    """The kernel of `op` for the Autograd key: `function` when a derivative may be asked for, `op`
    itself if not.

    PyTorch's `register_autograd` covers reverse mode only: under `torch.func.jvp` such an operator
    returns a tangent of zero, in silence, and under `torch.func.grad` it raises. The `Function`s
    have both modes and are bound to the key itself, below the transforms of `torch.func`, where
    they nest to any depth.
    """
    # `Function.apply` looks for transforms itself.
    apply = super(Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]

    def kernel(*args):
        args += defaults[len(args) :]
        if torch._C._are_functorch_transforms_active():
            # We are inside one level of `torch.func`; to this level the function is an ordinary
            # autograd operator.
            utils = torch._functorch.utils  # pyright: ignore[reportAttributeAccessIssue]
            with utils.enable_single_level_autograd_function():
                return apply(*args, *constants)
        if forward_ad._current_level >= 0 or (
            torch.is_grad_enabled() and torch._C._any_requires_grad(*args)
        ):
            return apply(*args, *constants)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return kernel


# --8<-- [end:autograd-key]


def _register(op, kernel, shape, batching, function: type[Function], defaults=(), *constants):
    alone = getattr(_ops, f"_{op._opname}").default
    for each in (op, alone):
        _library.impl(each, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(each, shape, lib=_library)
    torch.library.register_vmap(op, batching, lib=_library)
    _library.impl(op, _differentiably(op, function, defaults, *constants), "Autograd")


for _name, _op, _backward_op, _log in (
    ("softmax", softmax, softmax_backward, False),
    ("log_softmax", log_softmax, log_softmax_backward, True),
):
    _register(
        _op,
        _softmax_kernel(_name),
        _softmax_shape,
        _softmax_batching(_op),
        SoftmaxFunction,
        (None,) * 4,
        _log,
    )
    _register(
        _backward_op,
        _softmax_backward_kernel(f"{_name}_backward"),
        _softmax_backward_shape,
        _softmax_backward_batching(_backward_op),
        SoftmaxBackwardFunction,
        (None,) * 5,
        _log,
    )
_register(
    logsumexp,
    _logsumexp_kernel,
    _logsumexp_shape,
    _logsumexp_batched,
    LogsumexpFunction,
    (None,) * 3,
)
_register(
    logsumexp_backward,
    _logsumexp_backward_kernel,
    _logsumexp_backward_shape,
    _logsumexp_backward_batched,
    LogsumexpBackwardFunction,
    (None,) * 4,
)


# Autocast. PyTorch's lists, as of torch 2.13: on GPUs softmax and log_softmax get dtype=float32
# unless the caller names a dtype, and logsumexp gets its input in float32; float64 is left alone.
# On CPU none of the three is listed.


# --8<-- [start:autocast]
def _register_autocast(device_type: str, key: str) -> None:
    def without_autocast(op, *args):
        torch.set_autocast_enabled(device_type, False)
        try:
            return op(*args)
        finally:
            torch.set_autocast_enabled(device_type, True)

    def eligible(x: Tensor) -> bool:
        of_type = x.is_floating_point() and x.dtype != torch.float64
        return of_type and x.device.type == device_type

    def autocast_softmax(op):
        def kernel(x, dim, dtype=None, implementation=None):
            dtype = torch.float32 if dtype is None and eligible(x) else dtype
            return without_autocast(op, x, dim, dtype, implementation)

        return kernel

    def autocast_logsumexp(x, dim, implementation=None):
        x = x.float() if eligible(x) else x
        return without_autocast(logsumexp, x, dim, implementation)

    _library.impl(softmax, autocast_softmax(softmax), key)
    _library.impl(log_softmax, autocast_softmax(log_softmax), key)
    _library.impl(logsumexp, autocast_logsumexp, key)


# --8<-- [end:autocast]
_register_autocast("cuda", "AutocastCUDA")
_register_autocast("xpu", "AutocastXPU")


# The operators around the softmax. Each is a pass of a kernel without a derivative of its own: that
# is the business of `losses` and `tokens`, which go by PyTorch's operators where a transform looks.

_ROWS = (
    "Tensor target, Tensor picked, Tensor factor, Tensor z_factor, "
    "Tensor? at_target, Tensor? everywhere, int dim"
)
_MAPPED = (
    "float scale=1.0, float? softcap=None, Tensor? distribution=None, str? implementation=None"
)
_library.define(
    f"cross_entropy_rows(Tensor x, {_ROWS}, bool gradient, {_MAPPED}) -> (Tensor, Tensor, Tensor)"
)
_library.define(f"cross_entropy_rows_(Tensor(a!) x, {_ROWS}, {_MAPPED}) -> (Tensor, Tensor)")
_SCALED = "Tensor? scale=None, float factor=1.0, str? implementation=None"
_library.define(
    f"row_statistics(Tensor x, int dim, bool entropy, {_SCALED}) -> (Tensor, Tensor, Tensor)"
)
_TOKENS = "Tensor target, Tensor picked, Tensor g, Tensor? g_entropy, int dim"
_library.define(
    f"tokens_backward(Tensor x, {_TOKENS}, {_SCALED}, bool of_scale=False) -> (Tensor, Tensor)"
)
_library.define(
    f"tokens_backward_(Tensor(a!) x, {_TOKENS}, {_SCALED}, bool of_scale=False) -> Tensor"
)

cross_entropy_rows = _ops.cross_entropy_rows.default
cross_entropy_rows_ = _ops.cross_entropy_rows_.default
row_statistics = _ops.row_statistics.default
tokens_backward = _ops.tokens_backward.default
tokens_backward_ = _ops.tokens_backward_.default


KERNELS = {}
"""What these operators do, for calls past PyTorch's dispatcher."""


def _accumulator(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _without(x: Tensor, dim: int) -> Tensor:
    shape = [*x.shape[:dim], *x.shape[dim + 1 :]]
    return torch.empty(shape, dtype=_accumulator(x), device=x.device)


def _numbers(target, picked, factor, z_factor, at_target, everywhere) -> tuple[str, tuple]:
    """The name of the operation, and the numbers of the row that it takes."""
    if at_target is None:
        return "cross_entropy", (target, picked, factor, z_factor)
    numbers = (target, picked, factor, z_factor, at_target, everywhere)
    return "cross_entropy_smoothed", numbers


def _cross_entropy(x, rows, dim, gradient, in_place, further):
    """The results of the operation: by a plan, or with maps or a distribution by their kernel."""
    scale, softcap, distribution, implementation = further + _NO_MAPS[len(further) :]
    if scale == 1.0 and softcap is None and distribution is None:
        name, numbers = _numbers(*rows)
        name += ("_gradient_" if in_place else "_gradient") if gradient else ""
        dtype = None if gradient else _accumulator(x)
        return run(name, (x, *numbers), dim, dtype, implementation)
    elements = (x,) if distribution is None else (x, distribution)
    if distribution is not None:
        target, picked, _, z_factor, at_target, everywhere = rows
        op = DISTRIBUTION_GRADIENT if gradient else DISTRIBUTION
        numbers = (target, picked, at_target, everywhere, z_factor)
    else:
        name, numbers = _numbers(*rows)
        op = LOSSES[f"{name}_gradient" if gradient else name]
    return mapped.run(
        op,
        elements,
        numbers,
        mapped.Way(scale, softcap),
        dim,
        x.dtype if gradient else _accumulator(x),
        after=gradient,
        invariant=implementation is not None,
        out=x if in_place else None,
    )


_NO_MAPS = (1.0, None, None, None)


def _cross_entropy_rows(x, *arguments):
    rows, (dim, gradient, *further) = arguments[:6], arguments[6:]
    results = _cross_entropy(x, rows, dim, gradient, False, tuple(further))
    if not gradient:
        return *results, x.new_empty(0)
    dx, losses, lse = results
    return losses, lse, dx


def _cross_entropy_rows_shape(x, *arguments):
    dim, gradient = arguments[6:8]
    dx = torch.empty(x.shape if gradient else (0,), dtype=x.dtype, device=x.device)
    return _without(x, dim), _without(x, dim), dx


def _cross_entropy_rows_in_place(x, *arguments):
    rows, (dim, *further) = arguments[:6], arguments[6:]
    _, losses, lse = _cross_entropy(x, rows, dim, True, True, tuple(further))
    return losses, lse


def _cross_entropy_rows_in_place_shape(x, *arguments):
    return _without(x, arguments[6]), _without(x, arguments[6])


def _row_statistics(x, dim, entropy, scale=None, factor=1.0, implementation=None):
    if scale is None and factor == 1.0:
        name = "entropy" if entropy else "statistics"
        results = run(name, (x,), dim, _accumulator(x), implementation)
    else:
        way = mapped.Way(factor if scale is None else scale)
        op, invariant = LOSSES["entropy" if entropy else "statistics"], implementation is not None
        results = mapped.run(op, (x,), (), way, dim, _accumulator(x), invariant=invariant)
    return results if entropy else (*results, x.new_empty(0, dtype=_accumulator(x)))


def _row_statistics_shape(x, dim, entropy, *_):
    last = _without(x, dim) if entropy else x.new_empty(0, dtype=_accumulator(x))
    return _without(x, dim), _without(x, dim), last


def _tokens_backward(
    x,
    target,
    picked,
    g,
    g_entropy,
    dim,
    scale=None,
    factor=1.0,
    implementation=None,
    of_scale=False,
    *,
    in_place=False,
):
    op, numbers = SELECTED_VJP, (target, picked, g)
    if g_entropy is not None:
        op, numbers = TOKENS_VJP, (*numbers, g_entropy)
    dx, *found = mapped.run(
        op,
        (x,),
        numbers,
        mapped.Way(factor if scale is None else scale),
        dim,
        x.dtype,
        after=True,
        of_scale=of_scale,
        invariant=implementation is not None,
        out=x if in_place else None,
    )
    return dx, *(found or (x.new_empty(0, dtype=_accumulator(x)),))


def _tokens_backward_in_place(*arguments):
    return _tokens_backward(*arguments, in_place=True)[1]


def _of_scale_shape(x, *arguments):
    shape = list(x.shape)
    shape[arguments[4]] = 1
    wanted = len(arguments) > 8 and arguments[8]
    return torch.empty(shape if wanted else [0], dtype=_accumulator(x), device=x.device)


def _tokens_backward_shape(x, *arguments):
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return dx, _of_scale_shape(x, *arguments)


def _nothing(*_):
    return None


for _op, _kernel, _shape in (
    (cross_entropy_rows, _cross_entropy_rows, _cross_entropy_rows_shape),
    (cross_entropy_rows_, _cross_entropy_rows_in_place, _cross_entropy_rows_in_place_shape),
    (row_statistics, _row_statistics, _row_statistics_shape),
    (tokens_backward, _tokens_backward, _tokens_backward_shape),
    (tokens_backward_, _tokens_backward_in_place, _of_scale_shape),
):
    KERNELS[_op] = _kernel
    _library.impl(_op, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(_op, _shape, lib=_library)
