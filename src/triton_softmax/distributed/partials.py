"""Partial results: what a rank knows of its part of each row, and how those of all ranks merge.

A rank runs an operation of the library and ends it early, with the maximum m and the sums of its
part. On a GPU, and in Triton's interpreter, kernels do this: the sums come from whichever kernel
the library chooses, and one more kernel merges those of all ranks. On a CPU, and while a call is
traced, the sums of a few ranks are merged by PyTorch's operators.
"""

from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter asks for it where a function is
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .. import arguments, composite, operators
from ..arguments import Modifiers, check_device
from ..composite import upcast, weighted
from ..operations.cross_entropy import CROSS_ENTROPY_SMOOTHED, DISTRIBUTION, GIVEN_GRADIENT
from ..operations.logsumexp import LOGSUMEXP
from ..operations.operation import Operation
from ..operations.softmax import LOG_SOFTMAX_VJP, SOFTMAX, SOFTMAX_VJP
from ..operations.token_statistics import ENTROPY, GIVEN_TOKENS_GRADIENT
from ..plan import Plan, key_of, plan_of
from ..plan.launch import Launch, plans
from .process_group import Shard, received, send
from .rank_kernels import merge_ranks_kernel


@triton.jit
def _maximum_and_sums(m, totals, numbers):
    """m and the sums, as the numbers that are written for a row."""
    return (m,) + totals


@triton.jit
def _sums(m, totals, numbers):
    """The sums of an operation without a maximum."""
    return totals


def partial(name: str, op: Operation) -> Operation:
    """Return what a rank sends of an operation: it ends with m (if it has one) and its sums, as
    numbers of the row."""
    return replace(
        op,
        name=name,
        finish=None,
        finish_terms=None,
        finish_at=None,
        adjust=None,
        numbers=0,
        finish_row=_maximum_and_sums if op.shifted else _sums,
        row_results=op.sums + op.shifted,
    )


NAMES = {
    SOFTMAX: "rank_summary",
    LOGSUMEXP: "rank_summary_of_infinities",
    CROSS_ENTROPY_SMOOTHED: "rank_summary_and_sum",
    ENTROPY: "rank_summary_and_entropy",
    DISTRIBUTION: "rank_summary_and_distribution",
    SOFTMAX_VJP: "rank_products",
    LOG_SOFTMAX_VJP: "rank_gradients",
}
"""The operations that ranks send something of; log-softmax and cross-entropy send what softmax
does."""

PARTIAL = {op.name: partial(name, op) for op, name in NAMES.items()}
"""By the operation's name: a compiler cannot look up an operation itself."""


def partials(op: Operation, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return m, if there is one, and the sums of each row of matrices; those of nothing if there is
    nothing."""
    x, kind = inputs[0], PARTIAL[op.name]
    if x.numel() and (x.device.type != "cpu" or arguments.INTERPRETED):
        dtype = torch.promote_types(x.dtype, torch.float32)
        plain = not torch.compiler.is_compiling()
        if op is DISTRIBUTION or not plain:
            modifiers = Modifiers() if op is DISTRIBUTION else None
            return operators.run_rows(plain, kind, inputs, (), 1, dtype, modifiers)
        found = plan_of(kind, inputs, 1, dtype)(*inputs)
        return found if isinstance(found, tuple) else (found,)
    check_device(x.device)
    return composite.summary(op, tuple([upcast(each) for each in inputs]), 1)


BLOCK = 256
"""Rows of a program of the kernels around the message."""


def plan_rows(
    kernel: Any,
    like: Tensor,
    outs: list[tuple[Any, torch.dtype]],
    numbers: tuple[Any, ...],
    **constants: Any,
) -> Plan:
    """The plan of a kernel that has `BLOCK` rows a program, for as many as a tensor has and on its
    device."""
    constants["BLOCK"] = min(BLOCK, triton.next_power_of_2(len(like)))
    launch = Launch(kernel, triton.cdiv(len(like), BLOCK), numbers, constants, {})
    return Plan((launch,), like.new_empty(0), outs)


def merged(
    op: Operation, n_rows: int, message: tuple[Tensor, Any]
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the partials of all ranks as one, when their messages are there: (m and the sums, one
    tensor for each; further numbers, which are added up, a row for each). The message, as `send`
    has returned it, has n_rows words of each, at least one."""
    most, words = op.sums + op.shifted, received(*message).unflatten(1, (-1, n_rows))
    world, k, _ = words.shape
    if world == 1:
        return words[0, :most].unbind(0), words[0, most:]
    if not op.shifted:
        return (words[:, 0].sum(0),), words[0, 1:]
    # eq: merge
    if torch.compiler.is_compiling() or (words.device.type == "cpu" and not arguments.INTERPRETED):
        parts = words[:, :most].unbind(1)
        return composite.merged(op, *parts), words[:, most:].sum(0)
    plan = plans.get(key := key_of((merged, op), (words,)))
    if plan is None:
        outs, sizes = [((k, n_rows), words.dtype)], (world, words.stride(0), n_rows)
        kinds = {"OP": PARTIAL[op.name], "PLAIN": k - most}
        plan = plan_rows(merge_ranks_kernel, words[0, 0], outs, sizes, **kinds)
        plans.keep(key, plan)
    found = plan(words)
    return found[:most].unbind(0), found[most:]


def columns_here(index: Tensor, n_cols: int, start: int) -> Tensor:
    """Return the columns of classes on this rank; −1 of those on others."""
    column = index.long() - start
    return torch.where((column >= 0) & (column < n_cols), column, -1)


def picked(x: Tensor, columns: Tensor) -> Tensor:
    """Return the elements of the columns (n_rows, k), as (k, n_rows); 0 for a column of −1."""
    if not x.shape[1]:
        return x.new_zeros(columns.shape).T
    return torch.where(columns >= 0, x.gather(1, columns.clamp(min=0)), 0.0).T


class Sums(Function):
    """The sums of all ranks over their parts of the rows of a matrix; what follows from them is a
    few numbers for each row, and PyTorch's operators compute it and its gradient.

    Takes elements x, and what there is of a distribution q, columns of classes (n_rows, k), and a
    further number of rows. Returns the elements of the classes and then the further number,
    (k or k + 1, n_rows); m; and the sums, one tensor for each.
    """

    @staticmethod
    def forward(ctx, x, q, columns, more, op: Operation, shard: Shard, in_place):
        inputs = (x.detach(),) if q is None else (x.detach(), q.detach())
        m, *sums = partials(op, inputs)
        k, numbers = 0, m.new_empty(0, len(m))
        if columns is not None:
            k = columns.shape[1]
            numbers = picked(inputs[0], columns).to(m.dtype)
        if more is not None:
            numbers = torch.cat((numbers, more.unsqueeze(0)))
        if len(x):
            message = send((m, *sums, numbers.reshape(-1)), shard)
            (m, *sums), numbers = merged(op, len(x), message)
        ctx.save_for_backward(x, q, columns, m)
        ctx.arguments = op, k, in_place
        ctx.mark_non_differentiable(m)
        return numbers, m, *sums

    @staticmethod
    @once_differentiable
    def backward(ctx, g_numbers, _, *g):
        x, q, columns, m = ctx.saved_tensors
        of, k, in_place = ctx.arguments
        several, dq = k > 1 and x.shape[1] > 0, None
        if q is not None:  # eq: cross-entropy-distribution-gradient
            g_d, g_w, g_a = [each.unsqueeze(1) for each in g]
            distance = upcast(x) - torch.where(m == -torch.inf, 0.0, m).unsqueeze(1)
            dx = weighted(g_d, distance.exp()) + weighted(g_a, q)
            dq = (g_w + weighted(g_a, distance)).to(q.dtype)
        else:
            zero = torch.zeros_like(m)
            column = columns[:, 0] if k == 1 else torch.full_like(m, -1, dtype=torch.int64)
            at_target = g_numbers[0] if k else zero
            if of is ENTROPY:
                op, numbers = GIVEN_TOKENS_GRADIENT, (at_target, g[0] + g[1], -g[1])
            else:
                c = -g[1] if of is CROSS_ENTROPY_SMOOTHED else zero
                op, numbers = GIVEN_GRADIENT, (-at_target, g[0], c)
            out, dtype = (None, m.dtype) if several else (x if in_place else None, x.dtype)
            dx = operators.finish(op, (x,), (m, column, *numbers), dtype, out)
        if several:
            gained = torch.where(columns >= 0, g_numbers[:k].T, 0.0)
            dx = dx.scatter_add(1, columns.clamp(min=0), gained)
        if in_place:
            dx = x.detach().copy_(dx) if several or q is not None else dx
            torch.autograd.graph.increment_version(x)
        return dx.to(x.dtype), dq, *(None,) * 5
