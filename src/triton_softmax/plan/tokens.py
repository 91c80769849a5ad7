"""Plans of log-probabilities and entropies of tokens, and of their gradient."""

from typing import Any, NamedTuple

import triton
from torch import Tensor

from .. import arguments
from ..arguments import Part, check_device
from ..config import splitting
from ..kernels.token_rows import Given, TokenRows, token_gradient_kernel, token_rows_kernel
from . import AnyPlan, Plan, RankPlan, converted, device_of, key_of, layout, line_of
from .launch import Launch, Workspace, plans

ELEMENTS = 4096
"""Elements per program of `gradient_of_tokens`, 16 per thread. With half or twice as many, the
gradient took 8 % and 12 % longer."""

MAX_LANES, ELEMENTS_PER_LANE = 256, 32
"""Lanes of a program of `run_tokens`, at most, and the elements of each in a tile. Lanes merge only
at the end of a row, which takes half the time of a short one; two tiles halve the lanes. With 256
lanes, rows of 4,096 elements took 1.9 times as long."""

RESIDENT = 4
"""Programs of `run_tokens` that a multiprocessor holds at once. Few rows are cut into so many;
more of them would take turns."""

SHORTEST = 1 << 13
"""Columns of a chunk, at least: one tile."""


class TokenCall(NamedTuple):
    """What a call asks about its logits. These are multiplied by `before`, capped, and multiplied
    by `factor` and by the scale of their row, both positive."""

    factor: float
    before: float
    softcap: float | None
    entropy: bool
    """Whether the entropies of rows are wanted."""
    invariant: bool
    part: Part | None = None
    key: tuple[Any, ...] | None = None
    """That of the plan, if the call is plain: of what the caller was given, and the options."""


def run_tokens(
    inputs: tuple[Tensor | None, ...], call: TokenCall, known: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return the log-probability of one token per row, the entropy of the row, and what
    `gradient_of_tokens` needs (3, …), in the accumulator dtype.

    The inputs are logits (…, C), and tokens, mask and scales of rows (…), or None. Without tokens
    the first result holds no values, without entropies the second. If ranks have parts of the rows,
    `known` is what each knows of modified logits; their sum is returned last.
    """
    tensors: tuple[Any, ...] = ()
    for each in inputs:
        tensors += () if each is None else (each,)
    plan = plans.get(call.key)
    if plan is None:
        plan = plan_of_tokens(inputs, call, 0 if known is None else known.numel())
    if known is None:
        return plan(*tensors, number=call.factor)
    return plan(*tensors, number=call.factor, known=known)


def plan_of_tokens(inputs: tuple[Tensor | None, ...], call: TokenCall, n_known: int = 0) -> Any:
    """Return the plan of `run_tokens`, cached. It takes the inputs that are not None."""
    _, before, softcap, entropy, invariant, part, key = call
    if key is None:
        key = key_of((run_tokens, before, softcap, entropy, invariant, part, n_known), inputs)
    plan = plans.get(key)
    if plan is None:
        has = given_of(inputs, entropy, before, softcap)
        tensors = tuple([each for each in inputs if each is not None])
        plan = plans.keep(key, _plan_tokens(has, tensors, invariant, part, n_known))
    return plan


def gradient_of_tokens(
    inputs: tuple[Tensor | None, ...],
    call: TokenCall,
    saved: Tensor,
    g: Tensor,
    g_entropy: Tensor | None,
    of_scale: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return the gradient at the logits of `run_tokens` from those at its results, and with
    `of_scale` that at the scale of each row. `out` is contiguous, and possibly the logits."""
    factor, before, softcap, *_ = call
    head = gradient_of_tokens, before, softcap, of_scale, out is None or out.data_ptr() & 15
    further = g, g_entropy, saved
    key = key_of(head, (*inputs, *further))
    tensors = tuple([each for each in (*inputs, *further) if each is not None])
    plan = plans.get(key)
    if plan is None:
        has = given_of(inputs, g_entropy is not None, before, softcap)
        plan = plans.keep(key, _plan_gradient_of_tokens(has, tensors, of_scale))
    results = plan(*tensors, out=out, number=factor)
    return (results[0], results[1].sum(-1)) if of_scale else (results,)


def given_of(
    inputs: tuple[Tensor | None, ...], entropy: bool, before: float, softcap: float | None
) -> Given:
    """Return what kernels are given of a call, as their constant."""
    token, mask, scale = [each is not None for each in inputs[1:]]
    return Given(token, mask, scale, entropy, before, softcap or 0.0)


class RowLayout(NamedTuple):
    """How rows of adjacent elements lie in memory, in two dimensions."""

    strides: tuple[tuple[int, int], ...]
    """Of the logits and of each tensor of rows, along the outer and the inner dimension of rows."""
    n_inner: int
    """The size of the inner dimension."""
    vector: int
    """Elements per access."""
    edges: bool
    """Whether some rows start or end within an access."""


def row_layout(tensors: tuple[Tensor, ...]) -> RowLayout | None:
    """Return how logits (…, C) and tensors of rows (…) lie in memory; None if the rows have more
    dimensions, or their elements lie apart."""
    x, *rows = tensors
    strides = [x.stride(), *[(*each.stride(), 0) for each in rows]]
    groups = layout.collapse(x.shape, strides, x.dim() - 1)
    if len(groups) > 2 or (x.stride(-1) != 1 and x.shape[-1] > 1):
        return None
    check_device(x.device)
    outer, inner = [(1,) + (0,) * len(strides)] * (2 - len(groups)) + groups
    steps = tuple(zip(outer[1:], inner[1:], strict=True))
    vector = 16 // x.element_size() if x.data_ptr() % 16 == 0 else 1
    edges = any([count % vector for count in (x.shape[-1], *steps[0])])
    return RowLayout(steps, inner[0], vector, edges)


def _plan_tokens(
    has: Given, inputs: tuple[Tensor, ...], invariant: bool, part: Part | None, n_known: int = 0
) -> AnyPlan:
    x = inputs[0]
    shape, total = x.shape[:-1], arguments.row_length(x, -1, part)
    n_cols, ranks = x.shape[-1], 1 if part is None else part.ranks
    rows = row_layout(inputs)
    if rows is None or (invariant and not layout.lies_on_vectors(x)):
        copies = tuple([layout.on_vectors(each) for each in inputs])
        plan = _plan_tokens(has, copies, invariant, part, n_known)
        return converted(plan, layout.on_vectors)
    vector, edges = rows.vector, rows.edges
    if invariant and edges:  # rows start at different places of a vector
        vector, edges = 1, False
    n_rows = shape.numel()
    at_once = RESIDENT * device_of(x).multiprocessors
    n_chunks = max(1, min(at_once // n_rows, n_cols // SHORTEST))
    if part is not None:  # of which other ranks need not know how long it is
        n_chunks = 1
    if invariant or n_cols >= 2**30:
        n_chunks = triton.cdiv(n_cols, 2 * SHORTEST)
    if invariant and splitting.parts_of(total) > 1:
        n_chunks = splitting.parts_of(total) // ranks
    chunk_cols = triton.cdiv(triton.cdiv(max(1, n_cols), n_chunks), vector) * vector
    n_chunks = triton.cdiv(max(1, n_cols), chunk_cols)
    whole = triton.next_power_of_2(total if invariant else max(1, n_cols))
    lanes = max(32, min(MAX_LANES, whole // (2 * ELEMENTS_PER_LANE)))
    of_lane = max(vector, min(ELEMENTS_PER_LANE, whole // lanes))
    parts = triton.next_power_of_2(n_chunks * ranks)
    how = TokenRows(vector, edges, lanes, of_lane // vector, parts=parts)
    halves = [how._replace(write=False), how._replace(publish=False, ranks=ranks)]
    wide, n_words = arguments.accumulator(x.dtype), 3 * n_rows * n_chunks
    line = line_of(n_words, wide, n_known, wide)
    options = {"num_warps": lanes // 32, "sanitize_overflow": False}
    if invariant:
        options["enable_fp_fusion"] = False
    launches = [
        Launch(
            token_rows_kernel,
            n_rows * (n_chunks if each.publish else 1),
            (*rows[:2], n_cols, (n_chunks, line) if each.ranks > 1 else n_chunks, chunk_cols),
            {"GIVEN": has, "HOW": each},
            options,
        )
        for each in (halves if parts > 1 or part is not None else [how])
    ]
    results = [(shape, wide), (shape, wide), ((3, *shape), wide)]
    if part is not None:
        return RankPlan(tuple(launches), x, results, part, n_words, wide, n_known)
    words = Workspace(3 * n_rows * n_chunks if n_chunks > 1 else 0, zeroed=False)
    return Plan(tuple(launches), x, results, words)


def _plan_gradient_of_tokens(has: Given, inputs: tuple[Tensor, ...], of_scale: bool) -> AnyPlan:
    x = inputs[0]
    rows = row_layout(inputs[:-1])
    if rows is None:
        copies = tuple([each.contiguous() for each in inputs])
        return converted(_plan_gradient_of_tokens(has, copies, of_scale), Tensor.contiguous)
    n_rows, n_cols = x.shape[:-1].numel(), x.shape[-1]
    n_chunks = triton.cdiv(n_cols, ELEMENTS)
    launch = Launch(
        token_gradient_kernel,
        n_rows * n_chunks,
        (*rows[:2], n_cols, n_chunks),
        {"GIVEN": has, "VECTOR": 1 if rows.edges else rows.vector, "BLOCK": ELEMENTS},
        {"num_warps": 8},
    )
    results = [(x.shape, x.dtype)]
    results += [((*x.shape[:-1], n_chunks), arguments.accumulator(x.dtype))] * of_scale
    return Plan((launch,), x, results)
