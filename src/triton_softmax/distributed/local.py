"""What a rank computes by itself, on matrices whose rows are its parts of the rows.

On a GPU, and in Triton's interpreter, kernels do it: a summary is an operation like all others and
runs on the kernel that the library chooses; what follows on the message has two kernels of its own.
On a CPU PyTorch's operators do the same. While a call is traced, operators of the namespace
`triton_softmax` stand for both.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from .. import checks, plan
from ..checks import check_device
from ..dispatch import run
from .kernels import finish_rows_kernel, merge_ranks_kernel
from .operations import FINISHES, SUMMARIES

plan.LOSSES.update(SUMMARIES)

ELEMENTS = 8192
"""Of a program that writes elements."""


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Of the words: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def _by_kernels(x: Tensor) -> bool:
    check_device(x.device)
    return x.device.type != "cpu" or checks.INTERPRETED


def _on_device(x: Tensor):
    return torch.cuda.device(x.device) if x.is_cuda else torch.no_grad()


# --8<-- [start:summary]
def summary(
    operation: str, *inputs: Tensor, implementation: str | None = None
) -> tuple[Tensor, ...]:
    """The summary of each row, a number each of m and the sums; that of nothing if there is
    nothing.

    Args:
        operation: one of `SUMMARIES`.
        inputs: x, or y and dy; matrices.
        implementation: as for `dispatch.plan_of`.
    """
    if torch.compiler.is_compiling():
        return tuple(_ops.rank_summary(list(inputs), operation, implementation))
    op, x = SUMMARIES[operation], inputs[0]
    dtype = accumulator(x.dtype)
    if not x.numel():
        nothing = [x.new_zeros(len(x), dtype=dtype) for _ in range(op.row_results)]
        if op.shifted:
            nothing[0].fill_(-torch.inf)
        return tuple(nothing)
    if _by_kernels(x):
        found = run(operation, inputs, 1, dtype, implementation)
        return (found,) if isinstance(found, Tensor) else tuple(found)
    return _SUMMARIES[operation](*[each.to(dtype) for each in inputs])


# --8<-- [end:summary]


def merged(operation: str, words: Tensor) -> Tensor:
    """The summaries of all ranks as one.

    Args:
        operation: of the summaries.
        words: (ranks, k, n_rows): m, the sums of the operation, and numbers that are added up.

    Returns:
        (k, n_rows).
    """
    if torch.compiler.is_compiling():
        return _ops.rank_merge(words, operation)
    op = SUMMARIES[operation]
    world, k, n_rows = words.shape
    if world == 1 or not n_rows:
        return words[0]
    plain = k - op.row_results
    if not _by_kernels(words):
        return _merged(operation, words)
    out = words.new_empty(k, n_rows)
    block = min(256, triton.next_power_of_2(n_rows))
    with _on_device(words):
        merge_ranks_kernel[(triton.cdiv(n_rows, block),)](
            words, out, world, words.stride(0), n_rows, OP=op, PLAIN=plain, BLOCK=block
        )
    return out


def added_up(words: Tensor) -> Tensor:
    """The sum of (ranks, …) over the ranks, in their order."""
    total = words[0]
    for of_rank in words[1:]:
        total = total + of_rank
    return total


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
        return _ops.rank_finish(list(inputs), list(numbers), operation, dtype)
    op, x = FINISHES[operation], inputs[0]
    if out is None:
        out = torch.empty(x.shape, dtype=dtype, device=x.device)
    if not x.numel():
        return out
    if not _by_kernels(x):
        wide = accumulator(x.dtype)
        spread = [each.unsqueeze(1) for each in numbers]
        return out.copy_(_FINISHES[operation](*[each.to(wide) for each in inputs], *spread))
    n_rows, n_cols = x.shape
    block_cols = min(ELEMENTS, triton.next_power_of_2(n_cols))
    block_rows = min(ELEMENTS // block_cols, triton.next_power_of_2(n_rows))
    n_chunks = triton.cdiv(n_cols, block_cols)
    inputs = tuple(each if each.stride(1) == 1 else each.contiguous() for each in inputs)
    numbers = tuple(each.contiguous() for each in numbers)
    strides = tuple(each.stride(0) for each in inputs)
    with _on_device(x):
        finish_rows_kernel[(triton.cdiv(n_rows, block_rows) * n_chunks,)](
            inputs,
            numbers,
            out,
            strides,
            n_rows,
            n_cols,
            n_chunks,
            OP=op,
            BLOCK_ROWS=block_rows,
            BLOCK_COLS=block_cols,
            num_warps=8,
        )
    return out


# By PyTorch's operators: a CPU, where Triton compiles.


def _exponentials(x: Tensor, m: Tensor) -> Tensor:
    """exp(x − m), and 0 where both are −inf."""
    return (x - torch.where(m == -torch.inf, 0.0, m)).exp()


def _summary(x: Tensor) -> tuple[Tensor, Tensor]:
    m = x.amax(1)
    return m, _exponentials(x, m.unsqueeze(1)).sum(1)


def _shift(m: Tensor) -> Tensor:
    """m, or the largest number where m is +inf; see `operations.logsumexp`."""
    return m.clamp(max=torch.finfo(m.dtype).max)


def _summary_of_infinities(x: Tensor) -> tuple[Tensor, Tensor]:
    m = x.amax(1)
    return m, _exponentials(x, _shift(m).unsqueeze(1)).sum(1)


def _summary_and_sum(x: Tensor) -> tuple[Tensor, ...]:
    return *_summary(x), x.sum(1)


def _weighted(e: Tensor, distance: Tensor) -> Tensor:
    return torch.where(e == 0.0, 0.0, e * distance)


def _summary_and_entropy(x: Tensor) -> tuple[Tensor, ...]:
    m, d = _summary(x)
    e = _exponentials(x, m.unsqueeze(1))
    return m, d, _weighted(e, x - m.unsqueeze(1)).sum(1)


def _products(y: Tensor, dy: Tensor) -> tuple[Tensor]:
    return ((y * dy).sum(1),)


_SUMMARIES = {
    "rank_summary": _summary,
    "rank_summary_of_infinities": _summary_of_infinities,
    "rank_summary_and_sum": _summary_and_sum,
    "rank_summary_and_entropy": _summary_and_entropy,
    "rank_products": _products,
    "rank_gradients": lambda y, dy: (dy.sum(1),),
}


def _merged(operation: str, words: Tensor) -> Tensor:
    """`merge_ranks_kernel`, by operators."""
    shift = _shift if operation == "rank_summary_of_infinities" else lambda m: m
    m, *totals = words[0]
    for m_rank, *of_rank in words[1:]:
        m_both = torch.maximum(m, m_rank)
        old, new = (_exponentials(shift(each), shift(m_both)) for each in (m, m_rank))
        d, d_rank = totals[0] * old, of_rank[0] * new
        both = [d + d_rank]
        if operation == "rank_summary_and_entropy":
            a = totals[1] * old + _weighted(d, m - m_both)
            both.append(a + (of_rank[1] * new + _weighted(d_rank, m_rank - m_both)))
        both += [x + y for x, y in zip(totals[len(both) :], of_rank[len(both) :])]
        m, totals = m_both, both
    return torch.stack([m, *totals])


def _of_gradient(x, m, target, at_target, f, c):
    here = torch.arange(x.shape[1], device=x.device) == target
    e = _exponentials(x, m)
    return torch.where(f == 0.0, 0.0, e * f) - c - torch.where(here, at_target, 0.0)


def _of_tokens_gradient(x, m, target, at_target, f, h):
    here = torch.arange(x.shape[1], device=x.device) == target
    e = _exponentials(x, m)
    return e * f - _weighted(e, x - m) * h + torch.where(here, at_target, 0.0)


_FINISHES = {
    "softmax": lambda x, m, d: _exponentials(x, m) * (1.0 / d),
    "log_softmax": lambda x, m, d: (x - m) - d.log(),
    "softmax_backward": lambda y, dy, s: y * (dy - s),
    "log_softmax_backward": lambda y, dy, s: dy - y.exp() * s,
    "gradient": _of_gradient,
    "tokens_gradient": _of_tokens_gradient,
}


# While a call is traced: operators that a compiler does not look into.

_library = torch.library.Library("triton_softmax", "FRAGMENT")
_ops = torch.ops.triton_softmax


def _traced(schema: str, kernel, shape) -> None:
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"triton_softmax::{name}", shape, lib=_library)


def _summary_shapes(inputs, operation, implementation):
    x = inputs[0]
    dtype = accumulator(x.dtype)
    return [x.new_empty(x.shape[0], dtype=dtype) for _ in range(SUMMARIES[operation].row_results)]


_traced(
    "rank_summary(Tensor[] inputs, str operation, str? implementation) -> Tensor[]",
    lambda inputs, operation, implementation: list(
        summary(operation, *inputs, implementation=implementation)
    ),
    _summary_shapes,
)
_traced(
    "rank_merge(Tensor words, str operation) -> Tensor",
    lambda words, operation: merged(operation, words).clone(),
    lambda words, operation: words.new_empty(words.shape[1:]),
)
_traced(
    "rank_finish(Tensor[] inputs, Tensor[] numbers, str operation, ScalarType dtype) -> Tensor",
    lambda inputs, numbers, operation, dtype: finish(
        operation, tuple(inputs), tuple(numbers), dtype
    ),
    lambda inputs, numbers, operation, dtype: inputs[0].new_empty(inputs[0].shape, dtype=dtype),
)
