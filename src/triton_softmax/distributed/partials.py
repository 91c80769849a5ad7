"""Partial results: what a rank knows of its part of each row, and how those of all ranks merge.

A rank runs an operation of the library and ends it early, with the maximum m and the sums of its
part. On a GPU, and in Triton's interpreter, kernels do this: the sums come from whichever kernel
the library chooses, and one more kernel merges those of all ranks. On a CPU, and while a call is
traced, the sums of a few ranks are merged by PyTorch's operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter asks for it where a function is
from torch import Tensor

from .. import arguments
from ..arguments import Modifiers, check_device
from ..composite import accumulator, exponentials, maximum, upcast, weighted
from ..launch import Launch, plans
from ..operations.cross_entropy import CROSS_ENTROPY_SMOOTHED, DISTRIBUTION
from ..operations.log_softmax import LOG_SOFTMAX_VJP
from ..operations.logsumexp import LOGSUMEXP
from ..operations.operation import Operation
from ..operations.softmax import SOFTMAX, SOFTMAX_VJP
from ..operations.token_statistics import ENTROPY
from ..plan import Plan, key_of, plan_of, run_modified
from .rank_kernels import merge_ranks_kernel


# --8<-- [start:partials]
@triton.jit
def _maximum_and_sums(m, totals, numbers):
    """m and the sums, as the numbers that are written for a row."""
    return (m,) + totals


@triton.jit
def _sums(m, totals, numbers):
    """The sums of an operation without a maximum."""
    return totals


class Partials(NamedTuple):
    """What a rank sends of an operation."""

    name: str
    op: Operation
    """The operation, which ends with m (if it has one) and its sums as numbers of the row."""
    sums: Callable[..., tuple[Tensor, ...]]
    """(inputs, m) → its sums, in PyTorch's operators."""
    rescaled: Callable[..., tuple[Tensor, ...]] | None = None
    """(sums, m_part, m) → the sums relative to another maximum; None if there is no maximum."""

    @classmethod
    def of(cls, name: str, op: Operation, *formulas: Callable[..., Any]) -> Partials:
        """Return the partials of an operation, under a name of their own."""
        end = _maximum_and_sums if op.shifted else _sums
        partial = replace(
            op,
            name=name,
            finish=None,
            finish_terms=None,
            finish_at=None,
            adjust=None,
            numbers=0,
            finish_row=end,
            row_results=op.sums + op.shifted,
        )
        return cls(name, partial, *formulas)


# --8<-- [end:partials]


def _column(m: Tensor) -> Tensor:
    return m.unsqueeze(1)


def _finite(m: Tensor) -> Tensor:
    """Return m, or the largest number where m is +inf; see `operations.logsumexp`."""
    return m.clamp(max=torch.finfo(m.dtype).max)


def _sum_of_exponentials(x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    return (exponentials(x, _column(m)).sum(1),)


def _rescaled(totals: tuple[Tensor, ...], m_part: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    """Return the first sum, of exponentials, relative to m, and the others, which are plain."""
    return totals[0] * exponentials(m_part, m), *totals[1:]


def _with_sum(x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    return *_sum_of_exponentials(x, m), x.sum(1)


def _with_entropy(x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    e = exponentials(x, _column(m))
    return e.sum(1), weighted(e, x - _column(m)).sum(1)


def _rescaled_entropy(totals: tuple[Tensor, ...], m_part: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    # eq: entropy-merge
    d, a = [each * exponentials(m_part, m) for each in totals]
    return d, a + weighted(d, m_part - m)


def _with_distribution(x: Tensor, q: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    distance = x - _column(torch.where(m == -torch.inf, 0.0, m))
    return distance.exp().sum(1), q.sum(1), (q * distance).sum(1)


def _rescaled_distribution(
    totals: tuple[Tensor, ...], m_part: Tensor, m: Tensor
) -> tuple[Tensor, ...]:
    # eq: distribution-merge
    d, w, a = totals
    still = (m_part == -torch.inf) | (m_part == m)
    return d * exponentials(m_part, m), w, a + torch.where(still, 0.0, w * (m_part - m))


SUMMARY = Partials.of("rank_summary", SOFTMAX, _sum_of_exponentials, _rescaled)
"""m and the denominator d, of softmax, log-softmax and cross-entropy."""

SUMMARY_OF_INFINITIES = Partials.of(
    "rank_summary_of_infinities",
    LOGSUMEXP,
    lambda x, m: _sum_of_exponentials(x, _finite(m)),
    lambda totals, m_part, m: _rescaled(totals, _finite(m_part), _finite(m)),
)
"""m and d of log-sum-exp, whose result may be +inf."""

SUMMARY_AND_SUM = Partials.of("rank_summary_and_sum", CROSS_ENTROPY_SMOOTHED, _with_sum, _rescaled)
"""m, d and the sum of x."""

SUMMARY_AND_ENTROPY = Partials.of(
    "rank_summary_and_entropy", ENTROPY, _with_entropy, _rescaled_entropy
)
"""m, d and the sum of exp(x − m)·(x − m)."""

SUMMARY_AND_DISTRIBUTION = Partials.of(
    "rank_summary_and_distribution", DISTRIBUTION, _with_distribution, _rescaled_distribution
)
"""m, d, the sum of a distribution q, and that of q·(x − m)."""

PRODUCTS = Partials.of("rank_products", SOFTMAX_VJP, lambda y, dy: ((y * dy).sum(1),))
"""The sum of y·dy."""

GRADIENTS = Partials.of("rank_gradients", LOG_SOFTMAX_VJP, lambda y, dy: (dy.sum(1),))
"""The sum of dy."""

ALL = {
    each.name: each
    for each in (
        SUMMARY,
        SUMMARY_OF_INFINITIES,
        SUMMARY_AND_SUM,
        SUMMARY_AND_ENTROPY,
        SUMMARY_AND_DISTRIBUTION,
        PRODUCTS,
        GRADIENTS,
    )
}
"""Partials by the names that an operator can take."""


def partials(
    kind: Partials, inputs: tuple[Tensor, ...], invariant: bool = False
) -> tuple[Tensor, ...]:
    """Return m, if there is one, and the sums of each row; those of nothing if there is nothing.

    Args:
        kind: of what.
        inputs: matrices.
        invariant: give a row the same bits in every batch.
    """
    if torch.compiler.is_compiling():
        return tuple(_ops.rank_partials(list(inputs), kind.name, invariant))
    x = inputs[0]
    if x.numel() and (x.device.type != "cpu" or arguments.INTERPRETED):
        dtype = torch.promote_types(x.dtype, torch.float32)
        if kind is SUMMARY_AND_DISTRIBUTION:
            modifiers = Modifiers()
            return run_modified(kind.op, inputs, (), modifiers, 1, dtype, invariant=invariant)
        found = plan_of(kind.op, inputs, 1, dtype, None, invariant)(*inputs)
        return found if isinstance(found, tuple) else (found,)
    check_device(x.device)
    wide = [upcast(each) for each in inputs]
    if not kind.op.shifted:
        return kind.sums(*wide)
    m = maximum(wide[0], 1)
    return m, *kind.sums(*wide, m)


def merged(kind: Partials, words: Tensor) -> tuple[Tensor, ...]:
    """Return the partials of all ranks as one.

    Args:
        kind: of what.
        words: (ranks, k, n_rows): m, the sums of the operation, and numbers that are added up.

    Returns:
        As many tensors of n_rows numbers as there are words.
    """
    if kind.rescaled is None:
        return (words[:, 0].sum(0),)
    world, k, n_rows = words.shape
    if world == 1 or not n_rows:
        return words[0].unbind(0)
    # eq: merge
    if torch.compiler.is_compiling() or (words.device.type == "cpu" and not arguments.INTERPRETED):
        m_parts, *totals = words.unbind(1)
        m, n = m_parts.amax(0), 1 + kind.op.sums
        totals[: n - 1] = kind.rescaled(tuple(totals[: n - 1]), m_parts, m)
        return m, *[each.sum(0) for each in totals]
    plan = plans.get(key := key_of((merge_ranks_kernel, kind.op), (words,)))
    if plan is None:
        block = min(256, triton.next_power_of_2(n_rows))
        plain = k - kind.op.row_results
        launch = Launch(
            merge_ranks_kernel,
            triton.cdiv(n_rows, block),
            (world, words.stride(0), n_rows),
            {"OP": kind.op, "PLAIN": plain, "BLOCK": block},
            {},
        )
        plan = plans.keep(key, Plan((launch,), words, [((k, n_rows), words.dtype)]))
    return plan(words).unbind(0)


# While a call is traced: an operator that a compiler does not look into.

_library = torch.library.Library("triton_softmax", "FRAGMENT")
_ops = torch.ops.triton_softmax


def _kernel(inputs: list[Tensor], operation: str, batch_invariant: bool) -> list[Tensor]:
    return list(partials(ALL[operation], tuple(inputs), batch_invariant))


def _shape(inputs: list[Tensor], operation: str, batch_invariant: bool) -> list[Tensor]:
    x = inputs[0]
    dtype = accumulator(x.dtype)
    return [x.new_empty(x.shape[0], dtype=dtype) for _ in range(ALL[operation].op.row_results)]


_library.define("rank_partials(Tensor[] inputs, str operation, bool batch_invariant) -> Tensor[]")
_library.impl("rank_partials", _kernel, "CompositeExplicitAutograd")
torch.library.register_fake("triton_softmax::rank_partials", _shape, lib=_library)
