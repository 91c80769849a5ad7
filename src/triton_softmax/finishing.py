"""The launcher of `kernels.finish_rows`, and what takes its place on a CPU."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from . import checks
from .checks import check_device
from .kernels.finish_rows import finish_rows_kernel
from .launch import Launch, Memo, cuda_index, current_device
from .operations.gradients import GRADIENT, TOKENS_GRADIENT
from .operations.log_softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP
from .operations.operation import Operation
from .operations.softmax import SOFTMAX, SOFTMAX_VJP

FINISHES = {
    "softmax": SOFTMAX,
    "log_softmax": LOG_SOFTMAX,
    "softmax_backward": SOFTMAX_VJP,
    "log_softmax_backward": LOG_SOFTMAX_VJP,
    "gradient": GRADIENT,
    "tokens_gradient": TOKENS_GRADIENT,
}
"""What is written for each element, from a summary that is given."""

ELEMENTS = 4096
"""Of a program, 16 for each thread: with half or twice as many the gradient of log-probabilities
and entropies took 8 and 12 % longer."""

_launches = Memo()


def finish(
    operation: str,
    inputs: tuple[Tensor, ...],
    numbers: tuple[Tensor, ...],
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """The elements of the result, from a summary that is given.

    Args:
        operation: one of `FINISHES`.
        inputs: matrices.
        numbers: m, if the operation has one, and its totals.
        dtype: of the result.
        out: where it goes, contiguous; may be an input.
    """
    if torch.compiler.is_compiling():
        return _ops.finish_rows(list(inputs), list(numbers), operation, dtype)
    op, x = FINISHES[operation], inputs[0]
    if out is None:
        out = torch.empty(x.shape, dtype=dtype, device=x.device)
    if not x.numel():
        return out
    check_device(x.device)
    if x.device.type == "cpu" and not checks.INTERPRETED:
        wide = torch.promote_types(x.dtype, torch.float32)
        spread = [each.unsqueeze(1) for each in numbers]
        return out.copy_(_FINISHES[operation](*[each.to(wide) for each in inputs], *spread))
    index = cuda_index(x)
    if index >= 0 and index != current_device():
        with torch.cuda.device(index):
            return finish(operation, inputs, numbers, dtype, out)
    inputs = tuple([each if each.stride(1) == 1 else each.contiguous() for each in inputs])
    numbers = tuple([each.contiguous() for each in numbers])
    key = (operation, x.shape, index)
    for each in (*inputs, *numbers, out):
        key += (each.dtype, each.stride(), each.data_ptr() & 15)
    launch = _launches.of(key, lambda: _prepared(op, inputs))
    launch.run(inputs, numbers, out)
    return out


def _prepared(op: Operation, inputs: tuple[Tensor, ...]) -> Launch:
    n_rows, n_cols = inputs[0].shape
    block_cols = min(ELEMENTS, triton.next_power_of_2(n_cols))
    block_rows = min(ELEMENTS // block_cols, triton.next_power_of_2(n_rows))
    n_chunks = triton.cdiv(n_cols, block_cols)
    strides = tuple(each.stride(0) for each in inputs)
    return Launch(
        finish_rows_kernel,
        triton.cdiv(n_rows, block_rows) * n_chunks,
        (strides, n_rows, n_cols, n_chunks),
        {"OP": op, "BLOCK_ROWS": block_rows, "BLOCK_COLS": block_cols},
        {"num_warps": 8},
    )


# By PyTorch's operators: a CPU, where Triton compiles.


def exponentials(x: Tensor, m: Tensor) -> Tensor:
    """exp(x − m), and 0 where both are −inf."""
    return (x - torch.where(m == -torch.inf, 0.0, m)).exp()


def weighted(e: Tensor, distance: Tensor) -> Tensor:
    """e · distance, and 0 where e is 0."""
    return torch.where(e == 0.0, 0.0, e * distance)


def _of_gradient(x, m, target, at_target, f, c):
    here = torch.arange(x.shape[1], device=x.device) == target
    e = exponentials(x, m)
    return torch.where(f == 0.0, 0.0, e * f) - c - torch.where(here, at_target, 0.0)


def _of_tokens_gradient(x, m, target, at_target, f, h):
    here = torch.arange(x.shape[1], device=x.device) == target
    e = exponentials(x, m)
    return e * f - weighted(e, x - m) * h + torch.where(here, at_target, 0.0)


_FINISHES = {
    "softmax": lambda x, m, d: exponentials(x, m) * (1.0 / d),
    "log_softmax": lambda x, m, d: (x - m) - d.log(),
    "softmax_backward": lambda y, dy, s: y * (dy - s),
    "log_softmax_backward": lambda y, dy, s: dy - y.exp() * s,
    "gradient": _of_gradient,
    "tokens_gradient": _of_tokens_gradient,
}


# While a call is traced: an operator that a compiler does not look into.

_library = torch.library.Library("triton_softmax", "FRAGMENT")
_ops = torch.ops.triton_softmax
_library.define(
    "finish_rows(Tensor[] inputs, Tensor[] numbers, str operation, ScalarType dtype) -> Tensor"
)


def _traced(inputs, numbers, operation, dtype):
    return finish(operation, tuple(inputs), tuple(numbers), dtype)


def _shape(inputs, numbers, operation, dtype):
    return inputs[0].new_empty(inputs[0].shape, dtype=dtype)


_library.impl("finish_rows", _traced, "CompositeExplicitAutograd")
torch.library.register_fake("triton_softmax::finish_rows", _shape, lib=_library)
