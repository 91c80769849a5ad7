"""Plans of operations with score modifiers, which have one kernel for all.

Masks, biases and scales are views expanded to the shape of x, with stride 0.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from .. import arguments, composite
from ..arguments import Modifiers, Part
from ..config import Modified, in_one_loop
from ..config.calls import vector_of_lines
from ..kernels.modified_rows import NO_SCALE, ONE_SCALE, SCALES, ModifierFlags, modified_rows_kernel
from ..operations.operation import Operation
from ..operations.softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP
from . import (
    Fallback,
    Plan,
    RankPlan,
    choose,
    device_of,
    in_chunks,
    in_every_batch,
    key_of,
    layout,
    line_of,
    make_plan,
    traits_of,
)
from .launch import Launch, Workspace, plans

CACHED = 1 << 23
"""Bytes of mask and bias that stay in the L2 cache while the rows stream through it."""

LOGARITHMS = LOG_SOFTMAX, LOG_SOFTMAX_VJP
"""The operations with −∞ in place of 0 at masked elements."""


def run_modified(
    op: Operation,
    elements: tuple[Tensor, ...],
    numbers: tuple[Tensor, ...],
    modifiers: Modifiers,
    dim: int,
    dtype: torch.dtype,
    *,
    before: bool = True,
    after: bool = False,
    x: Tensor | None = None,
    of_modified: torch.dtype | None = None,
    of_scale: bool = False,
    of_sink: bool = False,
    invariant: bool = False,
    part: Part | None = None,
    out: Tensor | None = None,
    check: Callable[[], object] | None = None,
) -> tuple[Tensor, ...]:
    """Run an operation with score modifiers, in the order in which they apply.

    `elements` are the operation's element tensors, all of one nonempty shape, with any strides;
    `numbers` its row scalars, in that shape without `dim`, which counts from the front; `x` the
    unmodified elements, if they are not among its inputs. See `ModifierFlags` for `before` and
    `after`. `dtype` is that of the elements of the result, written to `out`, or of its row scalars;
    `of_modified` that of the gradient at the modified elements. `check` checks a new kind of call.

    Returns:
        The operation's results; then, as requested, the gradients at the modified elements and at
        the scale (size 1 along `dim`), and the sink's share or row sum (without `dim`).
    """
    scale, softcap, bias, where, causal, sink, safe = modifiers
    if isinstance(scale, Tensor):
        factor, kind = 1.0, SCALES
    else:
        factor, scale, kind = float(scale), None, NO_SCALE if scale == 1.0 else ONE_SCALE
        if kind == ONE_SCALE and dtype == torch.float64:
            # Scalar arguments of a launch are float32.
            scale = torch.full((), factor, dtype=dtype, device=elements[0].device)
            factor, kind = 1.0, SCALES
    sink = sink if before else None
    flags = (
        before, after, kind, softcap or 0.0, bias is not None, where is not None, causal,
        sink is not None, safe, -math.inf if op in LOGARITHMS else 0.0, x is not None,
        of_modified is not None, of_scale, of_sink,
    )  # fmt: skip
    optional = (x, bias, where, scale, sink)
    inputs = (*elements, *numbers, *[each for each in optional if each is not None])
    tensors = inputs if out is None else (*inputs, out)
    key = key_of((op, flags, dim, dtype, of_modified, invariant, part, len(tensors)), tensors)
    plan = plans.get(key)
    if plan is None:
        if check is not None:
            check()
        if part is None and not arguments.by_kernels(elements[0]):
            plan = Fallback(composite.modified_softmax)
        else:
            options = inputs, dim, dtype, of_modified, invariant, part, out
            plan = _plan_modified(op, ModifierFlags(*flags), *options)
        plan = plans.keep(key, plan)
    if type(plan) is Fallback:  # of softmax or log-softmax
        y = composite.modified_softmax(op is LOG_SOFTMAX, elements[0], dim, dtype, modifiers)
        return (y if out is None else out.copy_(y),)
    outs = plan(*inputs, out=out, number=factor)
    outs = outs if isinstance(outs, tuple) else (outs,)
    if of_scale:
        at = op.results + (of_modified is not None)
        parts = outs[at]  # whose order of addition PyTorch chooses by the number of rows
        total: Any = sum(parts.unbind()) if invariant else parts.sum(0)
        outs = (*outs[:at], total.unsqueeze(dim), *outs[at + 1 :])
    return outs


def plan_of_part(
    op: Operation, inputs: tuple[Tensor, ...], dtype: torch.dtype, part: Part, invariant: bool
) -> Any:
    """Return the plan of an operation on matrices, of whose rows ranks have parts; cached."""
    key = (plan_of_part, op, dtype, part, invariant)
    for t in inputs:  # `key_of`, inlined to save a Python call
        key += (t.dtype, t.shape, t.stride(), t.get_device(), t.data_ptr() & 15)
    plan = plans.get(key)
    if plan is None:
        given = op, inputs, 1, dtype
        if invariant or in_chunks(inputs[0], part):
            plan = make_plan(*given, invariant=invariant, part=part)
        else:
            plan = _plan_modified(op, ModifierFlags(), *given[1:], None, False, part, None)
        plan = plans.keep(key, plan)
    return plan


def _plan_modified(
    op: Operation,
    flags: ModifierFlags,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype,
    of_modified: torch.dtype | None,
    invariant: bool,
    part: Part | None,
    out: Tensor | None,
) -> Plan:
    """Plan an operation with score modifiers. The inputs are elements and row scalars, then those
    of x, bias, mask, scale and sink that `flags` has."""
    x, n_inputs = inputs[0], len(inputs)
    shape, n_cols, total = x.shape, x.shape[dim], arguments.row_length(x, dim, part)
    op = in_every_batch(op, inputs, total) if invariant else op
    wide = arguments.accumulator(dtype)
    # The inputs, then the results: whether each has elements along a row, and its view.
    first_modifier = op.inputs + op.numbers
    with_elements = first_modifier + flags.x + flags.bias + flags.where
    along = [i < op.inputs or first_modifier <= i < with_elements for i in range(n_inputs)]
    along += [True] * (not op.reduces) + [False] * op.row_results + [True] * flags.of_modified
    along += [False] * (flags.of_scale + flags.of_sink)
    views = [
        (t.unsqueeze(dim) if op.inputs <= i < first_modifier else t).expand(shape)
        for i, t in enumerate(inputs)
    ]
    outs: list[tuple[Any, torch.dtype]] = []
    for elements in along[n_inputs:]:
        kind = wide if not elements else dtype if not outs else of_modified or dtype
        of_rows = shape[:dim] + shape[dim + 1 :]
        outs.append((shape if elements else of_rows, kind))
        result = torch.empty(outs[-1][0], dtype=kind, device="meta")
        views.append(result if elements else result.unsqueeze(dim).expand(shape))
    if out is not None:
        views[n_inputs] = out

    of_modifiers = [i for i in range(first_modifier + flags.x, n_inputs) if along[i]]
    groups = _groups(views, of_modifiers, dim, flags.causal)
    n_rows = math.prod([group[0] for group in groups])
    # A row of one element has no stride of its own. Row scalars have 0.
    steps = [
        (1 if n_cols == 1 else view.stride(dim)) if elements else 0
        for view, elements in zip(views, along, strict=True)
    ]
    call = _in_numbers(views, along, steps, groups, n_inputs, n_cols, total)
    if part is None:
        choice = choose(call, op, x)
    elif invariant:
        choice = choose(call, op, x)
        how = choice.how._replace(ranks=part.ranks)  # pyright: ignore[reportCallIssue]
        choice = choice._replace(how=how, n_chunks=choice.n_chunks // part.ranks)
    else:
        of_part = call._replace(n_cols=n_cols)
        choice = in_one_loop(of_part, traits_of(op), device_of(x), part.ranks)
    if flags.of_scale:  # a part of each chunk
        at = op.results + flags.of_modified
        steps[n_inputs + at] = n_rows
        outs[at] = (choice.n_chunks, *outs[at][0]), wide
    strides = tuple([(step, *[g[1 + i] for g in groups]) for i, step in enumerate(steps)])
    size = (n_rows, n_cols, shape[-2] if flags.causal else 1)
    sizes = tuple([group[0] for group in groups])
    # Multiply-adds may fuse in one place and not in another, which would change bits.
    options = {"num_warps": choice.num_warps, "enable_fp_fusion": False}
    block_rows = choice.how.block_rows  # pyright: ignore[reportAttributeAccessIssue]
    blocks, of_chunk = triton.cdiv(n_rows, block_rows), (1 + op.sums) * block_rows
    programs, constants = blocks * choice.n_chunks, {"OP": op, "MODIFIERS": flags}
    n_words, known = of_chunk * programs, n_rows * (op.numbers > 1 and part is not None)
    line = choice.n_chunks if part is None else line_of(n_words, wide, known, wide)
    chunks = choice.n_chunks, choice.chunk_cols, line
    given = (strides[:n_inputs], strides[n_inputs:], sizes, size, chunks)
    launches = tuple([
        Launch(modified_rows_kernel, programs, given, {**constants, "HOW": how}, options)
        for how in choice.launches
    ])  # fmt: skip
    if part is not None:
        at = op.inputs + 1 if known else None
        return RankPlan(launches, x, outs, part, n_words, wide, known, at, number=1.0)
    n_words = n_words if choice.apart else 0
    return Plan(launches, x, outs, Workspace(n_words, zeroed=False))


def _groups(
    views: list[Tensor], of_modifiers: list[int], dim: int, causal: bool
) -> list[tuple[int, ...]]:
    """Return the rows of tensors in groups (size, stride in each tensor), the innermost first. Rows
    that share a mask and bias too large for the cache follow each other, so that it has a part."""
    shape = views[0].shape
    strides = [view.stride() for view in views]
    groups = layout.collapse(shape, strides, dim)[::-1] or [(1,) * (1 + len(views))]
    differ = lambda group: any([group[1 + i] for i in of_modifiers])  # noqa: E731
    n_bytes = shape[dim] * sum([views[i].element_size() for i in of_modifiers])
    if n_bytes * math.prod([group[0] for group in groups if differ(group)]) > CACHED and not causal:
        groups.sort(key=differ)
    return groups


def _in_numbers(
    views: list[Tensor], along: list[bool], steps: list[int], groups: list[tuple[int, ...]],
    n_inputs: int, n_cols: int, total: int,
) -> Modified:  # fmt: skip
    """Describe a call to `config`; `along` as in `_plan_modified`, steps are those along a row."""
    n_rows = math.prod([group[0] for group in groups])
    of_elements = [i for i, elements in enumerate(along) if elements]
    adjacent = all([steps[i] <= 1 for i in of_elements])
    counts = [n_cols, *[group[1 + i] for group in groups for i in of_elements]]
    sizes = [views[i].element_size() for i in of_elements if views[i].dtype != torch.bool]
    addresses = tuple([views[i].data_ptr() for i in of_elements])
    return Modified(
        n_rows,
        total,
        sum([views[i].element_size() for i in of_elements if i < n_inputs]),
        vector_of_lines(min(sizes), addresses, tuple(counts)) if adjacent else 1,
        adjacent,
        wide_index=max(n_cols * max(1, *steps), 2 * n_rows) >= 2**31,
    )
