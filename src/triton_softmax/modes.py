"""Ask PyTorch what it is doing around a call: transforms, tracing, modes, autocast, tensors of
other kinds.

Plain eager calls bypass the dispatcher (`is_plain_eager`). That check uses private names of
PyTorch; if one is missing, every call goes through the operators, some microseconds slower.
"""

from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter

try:
    from torch._C import (
        _are_functorch_transforms_active,
        _get_tracing_state,
        _is_any_autocast_enabled,
        _len_torch_dispatch_stack,
        _len_torch_function_stack,
    )

    forward_ad._current_level  # noqa: B018
    AVAILABLE = True
except (ImportError, AttributeError):
    AVAILABLE = False


def is_plain_eager(*tensors: Tensor) -> bool:
    """Return whether a call on these tensors is plain eager PyTorch, so it can skip the dispatcher.

    Ask about all tensors of a launch whose addresses are taken without the dispatcher, also about
    those that a backward pass has saved: the incoming gradient may be of another kind.
    """
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
    try:
        for t in tensors:
            if (
                (type(t) is not Tensor and type(t) is not Parameter)
                or t.is_nested
                # A lazily negated view (the imaginary part of a conjugate) has no sign in memory.
                or t.is_neg()
                # A tensor that is known to be zero has elements, and no memory.
                or (not t.data_ptr() and (t.is_meta or t.numel()))
            ):
                return False
    except RuntimeError:
        # It has no storage: it is sparse, or a wrapper, such as the one that
        # `torch.autograd.grad(..., is_grads_batched=True)` passes.
        return False
    return True


def in_memory(**named: Tensor | None) -> list[Any]:
    """Return tensors whose memory holds their values, for ranks, which read and send them without
    the dispatcher: where a tensor is lazily negated, known to be zero, or the result of a
    collective under way, what it stands for. Raise a TypeError if one has no memory."""
    tensors: list[Any] = [*named.values()]
    if is_dynamo_compiling():
        return tensors
    for at, (name, t) in enumerate(named.items()):
        if t is None:
            continue
        if type(t).__name__ == "AsyncCollectiveTensor":
            t = t.wait()  # pyright: ignore[reportAttributeAccessIssue]
        if t._is_zerotensor():
            t = torch.zeros(t.shape, dtype=t.dtype, device=t.device)
        tensors[at] = t = t.resolve_neg()
        if type(t) is not Tensor and type(t) is not Parameter and not hasattr(t, "fake_mode"):
            try:
                address = t.data_ptr()
            except RuntimeError:
                address = 0
            if not address and t.numel():
                name = name.replace("_", " ")
                raise TypeError(f"{name} of sharded rows is a {type(t).__name__}, without memory")
    return tensors


def transformed() -> bool:
    """Return whether a call needs more than a reverse-mode first derivative: it is transformed by
    `torch.func`, or in forward mode."""
    if is_dynamo_compiling():
        return False
    try:
        return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    except AttributeError:  # a private name is gone: PyTorch's operators have every derivative
        return True


def exporting() -> bool:
    """Return whether a program is exported. Dynamo asks while it traces: to it, by itself, every
    compilation is an export."""
    return torch.compiler.is_exporting()


# As `torch.compiler.assume_constant_result` does, which would import Dynamo.
setattr(exporting, "_dynamo_marked_constant", True)  # noqa: B010


def by_composite() -> bool:
    """Return whether a call must use the composite because its operator has no derivative: if it is
    transformed; or traced, or exported with gradients enabled, as the program may be differentiated
    later."""
    exported = torch.is_grad_enabled() and exporting()
    if exported or is_dynamo_compiling():
        return exported
    return transformed() or torch._C._get_tracing_state() is not None


def readable(t: Tensor) -> bool:
    """Return whether a tensor's values can be read: it is neither traced nor fake."""
    if torch.compiler.is_compiling() or by_composite() or t.is_meta:
        return False
    fake = getattr(t, "fake_mode", None) is not None
    return not fake and not torch._C._len_torch_dispatch_stack()


def is_batched(t: Tensor) -> bool:
    """Return whether a tensor stands for several, as an incoming gradient does with
    `is_grads_batched=True`: it has no memory of its own."""
    if is_dynamo_compiling():
        return False
    try:
        t.untyped_storage()
    except NotImplementedError:
        return True
    return False


def version_of(t: Tensor) -> int:
    """Return a tensor's version, its number of in-place changes; −1 if unknown."""
    return -1 if torch.compiler.is_compiling() or t.is_inference() else t._version


def may_be_overwritten(x: Tensor, rows: Tensor) -> bool:
    """Return whether a gradient may take the place of x, of which `rows` is a view or a copy. Of a
    view of a leaf it may not: it would overwrite the leaf."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    of_leaf = x.is_leaf or (x._base is not None and x._base.is_leaf)
    return x.requires_grad and not of_leaf and rows.is_contiguous()


def keeps_graph() -> bool:
    """Return whether the running backward pass may be repeated; True if unknown."""
    try:
        return torch._C._autograd._get_current_graph_task_keep_graph()  # pyright: ignore
    except AttributeError:
        return True


def direct(function):
    """Return the C++ `apply` of a `torch.autograd.Function`. It skips the Python wrapper's check
    for transforms, which `is_plain_eager` has already made."""
    return super(Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]
