"""Softmax and its losses on rows that lie on several GPUs, each with a part of every row.

A rank summarises its part as a program summarises a chunk. One message takes the summaries to all
ranks, which merge them in the order of the ranks, so that all hold the same bits, and write their
own part of the result. The modules, in the order in which a call passes them:

- `dtensor`: `DTensor`s, taken apart into shards and put together again
- `sharded_softmax`: `softmax`, `log_softmax`, `logsumexp` of shards; `sharded_losses`:
  `cross_entropy` and `token_logprobs`
- `process_group`: the ranks agree on what they call, once; messages
- `partials`: what a rank knows of its part, and how that of all ranks merges; `rank_kernels`: the
  kernels around the message
- `symmetric_memory`: softmax without a message, where GPUs see each other's memory

The functions here are what the rest of the library calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from ..arguments import LossOptions, Modifiers, check_implementation
from ..operations.operation import Operation
from . import sharded_losses, sharded_softmax

PLAIN = (Tensor, Parameter)
"""Types of tensors that lie on one device."""


def on_mesh(x: Any, start: int | None = None) -> bool:
    """Return whether the input of a call without a group is a `DTensor`; a ValueError if such a
    call names a first class."""
    if start is not None:
        raise ValueError("vocab_start and vocab_size say which part of a group's classes is here")
    return type(x).__name__ == "DTensor"


def _refuse(x: Any) -> None:
    """Raise for an input of a group's call that is not a tensor, or is a `DTensor`."""
    if not isinstance(x, Tensor):
        raise TypeError(f"the input must be a torch.Tensor, not {type(x).__name__}")
    if type(x).__name__ == "DTensor":
        raise ValueError("a DTensor knows the group of each of its dimensions: leave out group=")


def _dtensor() -> Any:
    """The module of `DTensor`s, which is imported at the first of them: `torch.distributed.tensor`
    takes half a second, and most programs do not need it."""
    return importlib.import_module(".dtensor", __name__)


def normalize(
    function: Callable[..., Tensor],
    op: Operation,
    x: Any,
    group: Any,
    dim: int,
    dtype: Any,
    implementation: str | None,
    invariant: bool,
    modifiers: Any = None,
    out: Any = None,
) -> Any:
    """Return softmax or log-softmax.

    Args:
        function: the public function, for the shards of a `DTensor`.
        op: its operation.
        x, group, dim, dtype, implementation, out: its arguments.
        invariant: whether the call is batch-invariant.
        modifiers: its arguments of the names in `Modifiers`, in that order.

    Raises:
        NotImplementedError: causal, a sink, or `out`.
    """
    if implementation is not None:
        check_implementation(implementation)
    if modifiers is not None:
        modifiers = Modifiers(*modifiers)
        if modifiers.causal or modifiers.sink is not None or out is not None:
            raise NotImplementedError("causal, sink and out do not work on rows that are cut")
    if group is None:
        options = {"implementation": implementation, "batch_invariant": invariant}
        return _dtensor().normalize(function, x, dim, dtype, modifiers, options)
    if type(x) not in PLAIN:
        _refuse(x)
    if implementation is not None:
        raise ValueError("implementation= names a kernel for whole rows; a group has parts of them")
    return sharded_softmax.normalize(op, x, group, dim, dtype, invariant, modifiers)


def logsumexp(
    function: Callable[..., Tensor], x: Any, dim: Any, keepdim: bool, group: Any, invariant: bool
) -> Any:
    """Return log-sum-exp, the same on all ranks."""
    if group is None:
        return _dtensor().logsumexp(function, x, dim, keepdim, invariant)
    if type(x) not in PLAIN:
        _refuse(x)
    return sharded_softmax.logsumexp(x, dim, keepdim, group, invariant)


def cross_entropy(
    x: Any,
    target: Tensor,
    weight: Tensor | None,
    group: Any,
    start: int | None,
    total: int | None,
    options: LossOptions,
    in_place: bool,
) -> tuple[Tensor, Tensor]:
    """Return (loss, log-sum-exps), the same on all ranks."""
    if group is None:
        return _dtensor().cross_entropy(x, target, weight, options, in_place)
    if type(x) not in PLAIN:
        _refuse(x)
    return sharded_losses.cross_entropy(x, target, weight, group, start, total, options, in_place)


def token_logprobs(
    function: Callable[..., Any],
    x: Any,
    index: Tensor,
    group: Any,
    start: int | None,
    total: int | None,
    entropy: bool,
    in_place: bool,
    invariant: bool,
) -> tuple[Tensor, Tensor]:
    """Return (log-probabilities, entropies), the same on all ranks."""
    if group is None:
        return _dtensor().token_logprobs(function, x, index, in_place, invariant)
    if type(x) not in PLAIN:
        _refuse(x)
    return sharded_losses.token_logprobs(
        x, index, group, start, total, entropy, in_place, invariant
    )
