"""What a rank computes by itself, on matrices whose rows are its parts of the rows.

On a GPU, and in Triton's interpreter, kernels do it: a summary is an operation like all others and
runs on the kernel that the library chooses; another merges those of all ranks. On a CPU PyTorch's
operators do the same. While a call is traced, operators of the namespace `triton_softmax` stand for
both.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from .. import checks, plan
from ..checks import check_device
from ..dispatch import run
from ..finishing import exponentials, weighted
from ..launch import Launch, Memo, cuda_index, current_device
from .kernels import merge_ranks_kernel
from .operations import SUMMARIES

plan.LOSSES.update(SUMMARIES)

_launches = Memo()


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Of the words: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def by_kernels(x: Tensor) -> bool:
    """Whether kernels compute with x; else PyTorch's operators do."""
    check_device(x.device)
    return x.device.type != "cpu" or checks.INTERPRETED


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
    if by_kernels(x):
        found = run(operation, inputs, 1, dtype, implementation)
        return (found,) if isinstance(found, Tensor) else tuple(found)
    return _SUMMARIES[operation](*[each.to(dtype) for each in inputs])


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
    if not by_kernels(words):
        return _merged(operation, words)
    out = words.new_empty(k, n_rows)
    index = cuda_index(words)
    if index >= 0 and index != current_device():
        with torch.cuda.device(index):
            return merged(operation, words)

    def prepare() -> Launch:
        block = min(256, triton.next_power_of_2(n_rows))
        constants = {"OP": op, "PLAIN": plain, "BLOCK": block}
        numbers = (world, words.stride(0), n_rows)
        return Launch(merge_ranks_kernel, triton.cdiv(n_rows, block), numbers, constants, {})

    key = (operation, words.shape, words.stride(), words.dtype, words.data_ptr() & 15, index)
    _launches.of(key, prepare).run((words,), (out,))
    return out


def added_up(words: Tensor) -> Tensor:
    """The sum of (ranks, …) over the ranks, in their order."""
    total = words[0]
    for of_rank in words[1:]:
        total = total + of_rank
    return total


# By PyTorch's operators: a CPU, where Triton compiles.


def _summary(x: Tensor) -> tuple[Tensor, Tensor]:
    m = x.amax(1)
    return m, exponentials(x, m.unsqueeze(1)).sum(1)


def _shift(m: Tensor) -> Tensor:
    """m, or the largest number where m is +inf; see `operations.logsumexp`."""
    return m.clamp(max=torch.finfo(m.dtype).max)


def _summary_of_infinities(x: Tensor) -> tuple[Tensor, Tensor]:
    m = x.amax(1)
    return m, exponentials(x, _shift(m).unsqueeze(1)).sum(1)


def _summary_and_sum(x: Tensor) -> tuple[Tensor, ...]:
    return *_summary(x), x.sum(1)


def _summary_and_entropy(x: Tensor) -> tuple[Tensor, ...]:
    m, d = _summary(x)
    e = exponentials(x, m.unsqueeze(1))
    return m, d, weighted(e, x - m.unsqueeze(1)).sum(1)


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
        old, new = (exponentials(shift(each), shift(m_both)) for each in (m, m_rank))
        d, d_rank = totals[0] * old, of_rank[0] * new
        both = [d + d_rank]
        if operation == "rank_summary_and_entropy":
            a = totals[1] * old + weighted(d, m - m_both)
            both.append(a + (of_rank[1] * new + weighted(d_rank, m_rank - m_both)))
        both += [x + y for x, y in zip(totals[len(both) :], of_rank[len(both) :])]
        m, totals = m_both, both
    return torch.stack([m, *totals])


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
