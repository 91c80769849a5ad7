"""What a call does inside the library: which kernels it launches, and which way it takes there.

Tests that have to look behind the public functions do it here, so that a change of the library's
layout is a change of this one file of the tests.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import triton
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction

from softmax_site.computed.road import frames_of
from triton_softmax import plan
from triton_softmax.distributed import process_group
from triton_softmax.operations import OPERATIONS
from triton_softmax.operations.operation import NAMED, Operation


def forget() -> None:
    """Make every plan anew, and every call over ranks a new kind of call."""
    plan.plans.clear()
    for agreement in process_group.agreements.values():
        agreement.calls.clear()


def plan_of(
    operation: str,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: Any = None,
    kernel: str | None = None,
) -> plan.AnyPlan:
    """The plan of an operation, or of one that is named, on plain tensors; with its `kernels` and
    `launches`."""
    op = operation if isinstance(operation, Operation) else (NAMED | OPERATIONS)[operation]
    invariant = kernel == "batch_invariant"
    return plan.plan_of(op, inputs, dim, dtype, invariant, kernel=None if invariant else kernel)


def run(operation: str, inputs: tuple[Tensor, ...], *arguments: Any) -> Any:
    """The result of such a call."""
    return plan_of(operation, inputs, *arguments)(*inputs)


@contextlib.contextmanager
def launches() -> Iterator[list[str]]:
    """The names of the kernels that are launched meanwhile, in order."""
    names: list[str] = []
    if triton.knobs.runtime.interpret:
        shipped = InterpretedFunction.run

        def noted(self: InterpretedFunction, *arguments: Any, **named: Any) -> Any:
            names.append(self.__name__)
            return shipped(self, *arguments, **named)

        InterpretedFunction.run = noted
        try:
            yield names
        finally:
            InterpretedFunction.run = shipped
    else:
        hook = triton.knobs.runtime.launch_enter_hook
        note = lambda metadata: names.append(metadata.get()["name"])  # noqa: E731
        hook.add(note)
        try:
            yield names
        finally:
            hook.remove(note)


def kernels_of(call: Callable[[], object]) -> list[str]:
    """The names of the kernels that a call launches, in order."""
    with launches() as names:
        call()
    return names


class Operators(TorchDispatchMode):
    """The operators that are called through the dispatcher meanwhile, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), more: Any = None):
        self.names.append(str(function))
        return function(*arguments, **(more or {}))


class Way(NamedTuple):
    """The way of a call through the library, up to its kernels."""

    frames: list[str]
    """The functions of the library that are entered, as `module:function`, in order."""

    @property
    def files(self) -> set[str]:
        """The files that these functions are in."""
        return {each.partition(":")[0] for each in self.frames}


def way_of(call: Callable[[], object]) -> Way:
    """The functions of the library that a later call enters."""
    return Way([frame.name for frame in frames_of(call)])
