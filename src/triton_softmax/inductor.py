"""What Inductor makes of the operators in a compiled program.

Short rows, and longer ones in small tensors, decompose into PyTorch's operators, which Inductor
fuses with their neighbours into one kernel that reads once, as ours does. Other rows become the
operator without an autograd rule: autograd has already been traced.
"""

import importlib
import math
import sys
from collections.abc import Iterable
from typing import Any

from . import arguments

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


def _decomposition_of(op: Any):
    """Return an operator's decomposition for Inductor."""

    def rule(*args):
        (x, *_), (dim, _, invariant) = op.inputs_and_options(args)
        if not invariant:
            length = _known(x.shape[dim]) if x.dim() else 1
            few = length <= LONGEST_OF_FEW and _known(x.numel()) <= FEW_ELEMENTS
            if length <= LONGEST_FUSED or few:
                return op.composite(*args).contiguous()
        return op.alone(*args)

    return rule


def enter(operators: Iterable[Any]) -> None:
    """Register the decompositions of operators with Inductor, once, if it is loaded.

    The table is private to PyTorch; without it the operators still work, undecomposed. Shape rules
    call this, as they run before Inductor reads the table; what it has lowered already stays so.
    Triton's interpreter is there to show the kernels, so nothing is decomposed under it.
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
    for op in operators:
        if op.overload not in lowered:
            for table in tables:
                table[op.overload] = _decomposition_of(op)
