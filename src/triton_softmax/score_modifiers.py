"""Softmax and log-softmax with score modifiers: scale, soft cap, bias, masks and a sink; and the
argument `out`.

They apply in this order: cast to `dtype`, scale, soft cap, bias, masks, sink, safe. One kernel does
all of it (`kernels.masked_rows`). A transform of `torch.func`, forward mode, an empty tensor, and a
CPU without Triton's interpreter get the same from PyTorch's operators (`composite`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from . import arguments, composite, operators
from .arguments import (
    Modifiers,
    autocasts,
    cast,
    check_arguments,
    check_device,
    check_int,
    check_modifiers,
    check_out,
)
from .launch import Memo
from .operators import (
    Operator,
    differentiable_modified,
    modified_forward,
    modified_softmax,
    nobody_watches,
    transformed,
)

_checked = Memo()
"""Dimensions, counted from the front, of plain calls that have been checked, by all that the checks
look at."""


def normalize_modified(
    function: Callable[..., Tensor],
    op: Operator,
    x: Any,
    dim: Any,
    dtype: Any,
    implementation: str | None,
    invariant: bool,
    modifiers: tuple[Any, ...],
    out: Any,
) -> Tensor:
    """Return softmax or log-softmax with score modifiers, of a tensor that lies on one device.

    Args:
        function: the public function, for an input that answers its calls itself.
        op: its operator.
        x, dim, dtype, implementation, out: its arguments.
        invariant: whether the call is batch-invariant.
        modifiers: its arguments of the names in `Modifiers`, in that order.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: see `softmax`.
    """
    tensors = []
    for each in (x, *modifiers, out):
        if isinstance(each, Tensor):
            tensors.append(each)
    plain = type(dim) is int and isinstance(x, Tensor) and nobody_watches(*tensors)
    if not plain:
        watched = has_torch_function(tensors) and not torch.compiler.is_compiling()
        if watched or not isinstance(x, Tensor):
            keywords: dict[str, Any] = dict(
                zip((*Modifiers._fields, "out"), (*modifiers, out), strict=True)
            )
            if implementation is not None or not watched:
                keywords["implementation"] = implementation
            if invariant:
                keywords["batch_invariant"] = True
            if not hasattr(x, "__torch_function__"):
                raise TypeError(f"the input must be a torch.Tensor, not {type(x).__name__}")
            return handle_torch_function(
                function, tensors if watched else (x,), x, dim, dtype, **keywords
            )
    if implementation is not None:
        raise ValueError(
            f"implementation={implementation!r} names a kernel, and none of these takes scale, "
            "softcap, where, bias, causal, safe, sink or out"
        )
    if dtype is not None:
        x = cast(x, dtype)
    elif not plain and x.device.type != "cpu" and autocasts(x):
        dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else None
    scale, softcap, bias, where, causal, sink, safe = modifiers
    key = None
    if plain and out is None:
        key = (dim, dtype, x.shape, x.dtype, x.device, causal, softcap, type(softcap))
        for each in (scale, bias, where, sink):
            if isinstance(each, Tensor):
                key += (each.shape, each.dtype, each.device)
            else:
                key += (each, type(each))
        try:
            known = _checked.get(key)
        except TypeError:  # what cannot be hashed is refused below
            key = known = None
        # A number as sink, and one of each head, become tensors of another shape.
        if known is not None and (sink is None or (isinstance(sink, Tensor) and sink.dim() != 1)):
            if not isinstance(scale, Tensor):
                scale = 1.0 if scale is None else float(scale)
            softcap = None if softcap is None else float(softcap)
            checked = Modifiers(scale, softcap, bias, where, bool(causal), sink, bool(safe))
            return with_modifiers(op, x, known, dtype or x.dtype, checked, invariant, plain)
    dim = check_arguments(x, check_int(dim), dtype)
    if not x.is_meta:
        check_device(x.device)
    checked = check_modifiers(x, dim, *modifiers)
    if key is not None:
        _checked.of(key, lambda: dim)
    if out is not None:
        return _into(out, op, x, dim, dtype or x.dtype, checked, invariant)
    return with_modifiers(op, x, dim, dtype or x.dtype, checked, invariant, plain)


def with_modifiers(
    op: Operator,
    x: Tensor,
    dim: int,
    dtype: torch.dtype,
    modifiers: Modifiers,
    invariant: bool,
    plain: bool = False,
) -> Tensor:
    """Return softmax or log-softmax with modifiers that have been checked; `plain` says that nobody
    watches the call."""
    log = op is operators.log_softmax
    if x.dim() == 0:
        return with_modifiers(op, x.reshape(1), 0, dtype, _of_vector(modifiers), invariant).reshape(
            ()
        )
    on_cpu = not arguments.INTERPRETED and x.device.type == "cpu"
    if on_cpu or not x.numel() or (not plain and transformed()):
        return composite.modified_softmax(log, x, dim, dtype, modifiers)
    scale, *others = modifiers
    if plain:
        wanted = torch.is_grad_enabled() and (
            x.requires_grad
            or (isinstance(scale, Tensor) and scale.requires_grad)
            or (modifiers.bias is not None and modifiers.bias.requires_grad)
            or (modifiers.sink is not None and modifiers.sink.requires_grad)
        )
        if not wanted:
            return modified_forward(log, x, dim, dtype, modifiers, invariant)[0]
    scales = (scale, 1.0) if isinstance(scale, Tensor) else (None, scale)
    given = (x, *scales, *others, log, dim, dtype, invariant)
    if plain:
        return differentiable_modified(modifiers, *given)[0]
    return modified_softmax.overload(*given)[0]


def _of_vector(modifiers: Modifiers) -> Modifiers:
    """Return the modifiers of a 0-d tensor, which is taken as a vector of one element."""
    rows: list[Any] = [each.reshape(1) if isinstance(each, Tensor) else each for each in modifiers]
    return Modifiers(*rows)


def _into(
    out: Any,
    op: Operator,
    x: Tensor,
    dim: int,
    dtype: torch.dtype,
    modifiers: Modifiers,
    invariant: bool,
) -> Tensor:
    """Write the result to `out`, and return it.

    Raises:
        TypeError, ValueError, RuntimeError: see `check_out`; or the call is transformed.
    """
    if isinstance(out, Tensor) and x.dim() == out.dim() == 0:
        _into(out.view(1), op, x.reshape(1), 0, dtype, _of_vector(modifiers), invariant)
        return out
    tensors = [each for each in (x, out, *modifiers) if isinstance(each, Tensor)]
    wanted = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    check_out(out, x, dtype, wanted)
    if transformed():
        raise RuntimeError("out goes with no transform of torch.func, and not with forward mode")
    if out.is_neg():
        # Its sign is not in its memory.
        return out.copy_(with_modifiers(op, x, dim, dtype, modifiers, invariant))
    scale, *others = modifiers
    scales = (scale, 1.0) if isinstance(scale, Tensor) else (None, scale)
    options = (*scales, *others, op is operators.log_softmax, dim, invariant)
    if out is x:
        operators.modified_softmax_in_place.overload(out, *options)
    else:
        operators.modified_softmax_out.overload(x, *options, out)
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)
    return out
