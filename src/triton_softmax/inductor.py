"""What Inductor, the compiler behind `torch.compile`, makes of the operators.

An operator is opaque to it: what stands before and after a softmax cannot be fused with it, and
calling it costs the host two rounds through PyTorch's dispatcher. So, when Inductor takes the
operators apart, a short row becomes PyTorch's own operators, which it fuses with their neighbours
into one kernel that reads once as ours does. So does a longer row of a small tensor, which takes
less time to read again than an operator to call. Any other becomes an operator that is our kernels
and nothing else, without the rule for autograd that has done its work by then.

The table of what Inductor takes apart is private to PyTorch. Without it the operators stay as they
are, and work.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import cpu
from .checks import INTERPRETED

LONGEST_FUSED = 1024
"""The longest row that Inductor keeps in registers, and so reads once."""

LONGEST_OF_FEW, FEW_ELEMENTS = 8192, 2**20
"""The longest row of so few elements that reading them again, from the cache, takes less than
calling an operator does."""

_ops = torch.ops.triton_softmax
_done = False


def _known(number: Any) -> float:
    """A number that is not known while shapes are traced counts as it is at this call."""
    if isinstance(number, int):
        return number
    hint = getattr(number.node, "hint", None)
    return math.inf if hint is None else hint


def _fuses(x: Tensor, dim: int, implementation: str | None) -> bool:
    if implementation is not None:
        return False
    length = _known(x.shape[dim]) if x.dim() else 1
    few = length <= LONGEST_OF_FEW and _known(x.numel()) <= FEW_ELEMENTS
    return length <= LONGEST_FUSED or few


def _contiguous(result: Tensor) -> Tensor:
    return result if result.is_contiguous() else result.contiguous()


def _forward(name: str) -> Callable[..., Tensor]:
    def rule(x, dim, dtype=None, implementation=None):
        if _fuses(x, dim, implementation):
            return _contiguous(getattr(cpu, name)(x, dim, dtype or x.dtype))
        return getattr(_ops, f"_{name}").default(x, dim, dtype, implementation)

    return rule


def _backward(name: str) -> Callable[..., Tensor]:
    def rule(grad_output, output, dim, input_dtype, implementation=None):
        if _fuses(output, dim, implementation):
            return _contiguous(getattr(cpu, name)(output, grad_output, dim, input_dtype))
        return getattr(_ops, f"_{name}").default(
            grad_output, output, dim, input_dtype, implementation
        )

    return rule


def _logsumexp(x, dim, implementation=None):
    if _fuses(x, dim, implementation):
        return _contiguous(cpu.logsumexp(x, dim, x.dtype))
    return _ops._logsumexp.default(x, dim, implementation)


def _logsumexp_backward(grad_output, x, dim, implementation=None):
    if _fuses(x, dim, implementation):
        return _contiguous(cpu.logsumexp_backward(x, grad_output, dim, x.dtype))
    return _ops._logsumexp_backward.default(grad_output, x, dim, implementation)


RULES: dict[str, Callable[..., Any]] = {
    "softmax": _forward("softmax"),
    "log_softmax": _forward("log_softmax"),
    "softmax_backward": _backward("softmax_backward"),
    "log_softmax_backward": _backward("log_softmax_backward"),
    "logsumexp": _logsumexp,
    "logsumexp_backward": _logsumexp_backward,
}
"""How each operator is taken apart."""


def register() -> None:
    """Enter the rules in Inductor's table, if Inductor is there and they are not yet.

    Called by the shape rules of the operators, which run while a function is traced, and so before
    the table is looked at, or even there: then it is loaded, since what Inductor has once lowered
    as it is must not be taken apart later. Under the interpreter, which is there to show the
    kernels, nothing is taken apart.
    """
    global _done
    if _done or INTERPRETED or "torch._dynamo.convert_frame" not in sys.modules:
        return
    _done = True
    try:
        # The second is a copy of the first that Inductor keeps.
        module = importlib.import_module("torch._inductor.decomposition")
        tables = module.decompositions, module.fast_random_decomps()
    except (AttributeError, ImportError):
        return
    lowered = getattr(sys.modules.get("torch._inductor.lowering"), "lowerings", {})
    for name, rule in RULES.items():
        operator = getattr(_ops, name).default
        if operator not in lowered:
            for table in tables:
                table[operator] = rule
