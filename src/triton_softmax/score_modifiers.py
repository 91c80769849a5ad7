"""Softmax and log-softmax with score modifiers (scale, soft cap, bias, masks, sink) or with `out`.

They apply in this order: cast to `dtype`, scale, soft cap, bias, masks, sink, safe. One kernel does
it all (`kernels.masked_rows`). Transforms of `torch.func`, forward mode, empty tensors, and CPU
tensors outside the interpreter use PyTorch's operators (`composite`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from . import arguments, composite, operators
from .arguments import Modifiers, cast
from .launch import Memo
from .operators import Normalization, differentiable_modified, nobody_watches
from .plan import run_modified

_checked = Memo()
"""The dimension, counted from the front, of each checked plain call, by everything that the checks
read."""


def normalize_modified(
    function: Callable[..., Tensor],
    op: Normalization,
    x: Any,
    dim: Any,
    dtype: Any,
    implementation: str | None,
    invariant: bool,
    modifiers: tuple[Any, ...],
    out: Any,
) -> Tensor:
    """Return the result of `function`, softmax or log-softmax, of a tensor on one device; its
    modifiers come as they were given, in the order of `Modifiers`. See `softmax` for the errors."""
    tensors = []
    for each in (x, *modifiers, out):
        if isinstance(each, Tensor):
            tensors.append(each)
    plain = type(dim) is int and isinstance(x, Tensor) and nobody_watches(*tensors)
    if not plain:
        watched = has_torch_function(tensors) and not torch.compiler.is_compiling()
        if watched or not isinstance(x, Tensor):
            given = {"input": x, "dim": dim, "dtype": dtype, "implementation": implementation}
            given |= {"batch_invariant": invariant, "out": out, **Modifiers(*modifiers)._asdict()}
            return arguments.pass_on(function, tensors if watched else (x,), given)
    if implementation is not None:
        raise ValueError(
            f"implementation={implementation!r} names a kernel, and none supports scale, "
            "softcap, where, bias, causal, safe, sink or out"
        )
    if dtype is not None:
        x = cast(x, dtype)
    elif not plain and x.device.type != "cpu" and arguments.autocasts(x):
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
        except TypeError:  # the checks below reject an unhashable argument
            key = known = None
        # The checks reshape a sink that is a number or has one number per head.
        if known is not None and (sink is None or (isinstance(sink, Tensor) and sink.dim() != 1)):
            if not isinstance(scale, Tensor):
                scale = 1.0 if scale is None else float(scale)
            softcap = None if softcap is None else float(softcap)
            checked = Modifiers(scale, softcap, bias, where, bool(causal), sink, bool(safe))
            return with_modifiers(op, x, known, dtype or x.dtype, checked, invariant, plain)
    dim = arguments.check_arguments(x, arguments.check_int(dim), dtype)
    if not x.is_meta:
        arguments.check_device(x.device)
    checked, dtype = arguments.check_modifiers(x, dim, *modifiers), dtype or x.dtype
    to: Any = out
    vector = x.dim() == 0
    if out is not None:
        wanted = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
        arguments.check_out(out, x, dtype, wanted)
        if operators.transformed():
            raise RuntimeError("out does not support transforms of torch.func or forward mode")
    if vector:  # a row of one element
        x, to = x.reshape(1), None if out is None else out.view(1)
        rows: Any = [each.reshape(1) if isinstance(each, Tensor) else each for each in checked]
        checked = Modifiers(*rows)
    elif key is not None:
        _checked.of(key, lambda: dim)
    if out is not None:
        _into(to, op, x, dim, checked, invariant)
        return out
    y = with_modifiers(op, x, dim, dtype, checked, invariant, plain)
    return y.reshape(()) if vector else y


def with_modifiers(
    op: Normalization,
    x: Tensor,
    dim: int,
    dtype: torch.dtype,
    modifiers: Modifiers,
    invariant: bool,
    plain: bool = False,
) -> Tensor:
    """Return softmax or log-softmax with checked modifiers; `plain` marks a call that may skip the
    dispatcher."""
    log = op is operators.log_softmax
    on_cpu = not arguments.INTERPRETED and x.device.type == "cpu"
    if on_cpu or not x.numel() or (not plain and operators.transformed()):
        return composite.modified_softmax(log, x, dim, dtype, modifiers)
    options = (log, dim, dtype, invariant)
    if not plain:
        given = operators.taken_apart(modifiers)
        return operators.modified_softmax.overload(x, *given, *options)[0]
    scale, bias, sink = modifiers.scale, modifiers.bias, modifiers.sink
    if torch.is_grad_enabled() and (
        x.requires_grad
        or (isinstance(scale, Tensor) and scale.requires_grad)
        or (bias is not None and bias.requires_grad)
        or (sink is not None and sink.requires_grad)
    ):
        return differentiable_modified(x, scale, bias, sink, (True, modifiers, *options))[0]
    return run_modified(op.operation, (x,), (), modifiers, dim, dtype, invariant=invariant)[0]


def _into(
    out: Tensor, op: Normalization, x: Tensor, dim: int, modifiers: Modifiers, invariant: bool
) -> None:
    """Write the result to `out`."""
    # A lazily negated view has no sign in its memory.
    if out.is_neg() or not arguments.by_kernels(x):
        out.copy_(with_modifiers(op, x, dim, out.dtype, modifiers, invariant))
        return
    options = (*operators.taken_apart(modifiers), op is operators.log_softmax, dim, invariant)
    operators.modified_softmax_out.overload(None if out is x else x, *options, out)
    if not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)
