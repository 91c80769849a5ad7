"""Our kernels as the kernels of PyTorch's own operators: `torch_operators`.

PyTorch's dispatcher looks up an operator's kernel by the kind of tensor. Only the entries of plain
CPU and CUDA tensors are overridden, which come last: autograd, autocast, `vmap`, tracing, modes and
tensor subclasses have had their turn by then, and see PyTorch's operators.
"""

import itertools
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .. import arguments
from ..arguments import DTYPES
from ..operations.logsumexp import LOGSUMEXP
from ..operations.operation import Operation
from ..operations.softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP, SOFTMAX, SOFTMAX_VJP
from ..plan import key_of, make_plan, run_one
from ..plan.launch import plans
from .handle import LOCK, Handle, Replacement

Options: TypeAlias = tuple[int, torch.dtype | None]


def torch_operators(batch_invariant: bool = False) -> Handle:
    """Run our kernels wherever PyTorch computes a softmax, a log-softmax, one of their gradients
    or a log-sum-exp, in every thread, until the handle is removed.

    That is `torch.softmax`, `torch.log_softmax`, `torch.logsumexp` and what is made of them, such
    as `F.cross_entropy` and `nn.MultiheadAttention`. Results, derivatives and errors stay those of
    PyTorch, up to rounding. The kernels take float16, bfloat16, float32 and float64, on a GPU, or
    on a CPU if Triton was imported with TRITON_INTERPRET=1. Anything else (other dtypes, `out=`,
    several dimensions of a log-sum-exp, empty and sparse tensors) goes to the kernel that was there
    before. `torch.compile` goes on writing kernels of its own.

    Args:
        batch_invariant: Give a row the same bits in every batch, as `softmax` does.

    Returns:
        The handle, whose `calls` count by PyTorch's name, as in `"aten::_softmax"`.

    Examples:
        >>> import torch
        >>> from triton_softmax.integrations import torch_operators
        >>> with torch_operators() as handle:
        ...     y = torch.softmax(torch.zeros(2, 4), dim=-1)
        >>> handle.active, handle.calls.keys() <= {"aten::_softmax"}
        (False, True)
    """
    return Handle(operators, batch_invariant=batch_invariant)


# The dimension and the dtype of a call, from the operator's arguments, of which PyTorch leaves out
# trailing defaults; None if it is not one for us.


def _forward(x: Tensor, dim: int, half_to_float: bool) -> Options | None:
    if not _takes(x, dim) or (half_to_float and x.dtype != torch.float16):
        return None
    return dim, torch.float32 if half_to_float else None


def _backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Options | None:
    alike = (dy.dtype, dy.shape, dy.device) == (y.dtype, y.shape, y.device)
    fits = dtype == y.dtype or (y.dtype, dtype) == (torch.float32, torch.float16)
    return (dim, dtype) if alike and fits and _takes(y, dim) else None


def _logsumexp(x: Tensor, dims: list[int], keepdim: bool = False) -> Options | None:
    return (dims[0], None) if len(dims) == 1 and _takes(x, dims[0]) else None


def _takes(x: Tensor, dim: int) -> bool:
    n = x.dim()
    return x.dtype in DTYPES and -n <= dim < n and x.numel() > 0


OPERATORS: dict[str, tuple[Operation, Callable[..., Options | None]]] = {
    "aten::_softmax": (SOFTMAX, _forward),
    "aten::_log_softmax": (LOG_SOFTMAX, _forward),
    "aten::_softmax_backward_data": (SOFTMAX_VJP, _backward),
    "aten::_log_softmax_backward_data": (LOG_SOFTMAX_VJP, _backward),
    "aten::logsumexp": (LOGSUMEXP, _logsumexp),
}


def _kernel(name: str, key: str) -> Callable[..., Tensor]:
    """Return the kernel of an operator for a dispatch key. PyTorch passes the keys of the call
    first, for the kernel that was there before. Only a new kind of call is checked: the key of its
    plan has all that the checks read."""
    op, options_of = OPERATORS[name]

    def plan_new(x: Tensor, _: str, invariant: bool, *given: Any) -> Any:
        inputs, options = (*given[: op.inputs - 1], x), options_of(x, *given)
        return None if options is None else make_plan(op, inputs, *options, invariant)

    def forward(keys: torch.DispatchKeySet, x: Tensor, dim: Any, *rest: bool) -> Tensor:
        handles: Any = operators.handles
        if handles:
            invariant = handles[-1].options["batch_invariant"] or arguments.contexts > 0
            head = (name, invariant, tuple(dim) if op is LOGSUMEXP else dim, *rest)
            y = run_one(x, head, plan_new)
            if y is not None:
                handles[-1].count(name)
                return y.unsqueeze(dim[0]) if op is LOGSUMEXP and rest == (True,) else y
        return _as_before(name, key, keys, (x, dim, *rest))

    def backward(keys: torch.DispatchKeySet, dy: Tensor, y: Tensor, *rest: Any) -> Tensor:
        handles: Any = operators.handles
        if handles:
            invariant = handles[-1].options["batch_invariant"] or arguments.contexts > 0
            call = key_of((name, invariant, *rest), (dy, y))
            plan = plans.get(call)
            if plan is None and (made := plan_new(dy, name, invariant, y, *rest)) is not None:
                plan = plans.keep(call, made)
            if plan is not None:
                handles[-1].count(name)
                return plan(y, dy)
        return _as_before(name, key, keys, (dy, y, *rest))

    return forward if op.inputs == 1 else backward


_before: dict[tuple[str, str], Any] = {}
"""The kernel that was there before ours, by operator and key. It stays after `_uninstall`, when a
call of another thread may still be under way."""

_alive: deque[Any] = deque(maxlen=10_000)
"""Our kernels as PyTorch holds them, some hundred bytes each: a thread that has looked one up and
waits for the GIL calls it after it was taken out."""

_library: Any = None


def _as_before(name: str, key: str, keys: torch.DispatchKeySet, given: tuple[Any, ...]) -> Tensor:
    try:
        return _before[name, key].call_boxed(keys, *given)
    except RuntimeError as error:
        if "has been invalidated" not in str(error):
            raise
    with LOCK:  # another package has taken out its override, which was there before ours
        _uninstall()
        _before[name, key] = torch.library.get_kernel(name, key)
        if operators.handles:
            _install()
    return _before[name, key].call_boxed(keys, *given)


def _install() -> None:
    global _library
    # Without the interpreter a CPU keeps PyTorch's kernels. No GPU need be there.
    keys = ["CPU"] * arguments.INTERPRETED + ["CUDA"] * torch.backends.cuda.is_built()
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that a kernel is overridden
        for name, key in itertools.product(OPERATORS, keys):
            _before[name, key] = torch.library.get_kernel(name, key)
            # Not `Library.impl`, after which PyTorch 2.11 refuses an override by others.
            _library.m.impl(name, key, _kernel(name, key), True)
            _alive.append(torch.library.get_kernel(name, key))


def _uninstall() -> None:
    _library.m.reset()


operators = Replacement(_install, _uninstall)
