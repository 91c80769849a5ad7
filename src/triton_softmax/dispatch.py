"""From a call to its plan: one key, one look-up.

All that a call does depends only on shape, strides, dtypes, device and alignment, so it is decided
once for each combination and kept.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from .plan import Plan, make_plan

_plans: dict[tuple, Plan] = {}
_MAX_PLANS = 4096
_lock = threading.Lock()


# --8<-- [start:plan-of]
def plan_of(
    operation: str,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype | None = None,
    implementation: str | None = None,
) -> Plan:
    """What a call does: `plan_of(...)(*inputs)` is its result, `plan_of(...).kernels` names the
    kernels it launches.

    A call like an earlier one has passed the checks, so nothing is checked again.

    Args:
        operation: "softmax", "log_softmax" or "logsumexp", or one of these with "_backward".
        inputs: (x,); for a backward pass (y, dy), and of log-sum-exp (x, dlse).
        dim: the dimension; negative counts from the end.
        dtype: of the result; by default that of the first input.
        implementation: one of `triton_softmax.IMPLEMENTATIONS`, or None to choose.

    Raises:
        TypeError, IndexError, ValueError, RuntimeError: see `plan.make_plan`.
    """
    x = inputs[0]
    key = (
        operation,
        dim,
        dtype,
        implementation,
        x.shape,
        x.stride(),
        x.dtype,
        x.get_device(),
        x.data_ptr() & 15,
    )
    for x in inputs[1:]:
        key += (x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() & 15)
    plan = _plans.get(key)
    if plan is None:
        plan = make_plan(operation, inputs, dim, dtype, implementation)
        with _lock:
            if len(_plans) >= _MAX_PLANS:
                _plans.clear()
            plan = _plans.setdefault(key, plan)
    return plan


# --8<-- [end:plan-of]


def run(
    operation: str,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype | None = None,
    implementation: str | None = None,
) -> Tensor:
    """The result of a call on plain tensors, outside autograd; the arguments are those of
    `plan_of`.

    Returns:
        A contiguous tensor that shares no memory with the inputs.
    """
    return plan_of(operation, inputs, dim, dtype, implementation)(*inputs)


def clear_plans() -> None:
    """Forget all plans."""
    with _lock:
        _plans.clear()
