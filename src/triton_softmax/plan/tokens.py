"""Plans of log-probabilities and entropies of tokens, and of their gradient."""

import torch
import triton
from torch import Tensor

from .. import arguments
from ..arguments import Part, check_device
from ..config import splitting
from ..kernels.token_rows import Given, TokenRows, token_gradient_kernel, token_rows_kernel
from . import AnyPlan, ByPyTorch, Plan, RankPlan, device_of, key_of, layout
from .launch import Launch, Workspace, plans

ELEMENTS = 4096
"""Elements per program of `gradient_of_tokens`, 16 per thread. With half or twice as many, the
gradient took 8 % and 12 % longer."""

LANES, OF_LANE = 256, 32
"""Lanes of a program of `run_tokens`, at most, and the elements of each in a tile. Shorter rows
have two tiles at least: one lane waits for no other, and the end of a row is half of a short one's
time. With 256 lanes, rows of 4,096 elements took 1.9 times as long."""

RESIDENT = 4
"""Programs of `run_tokens` that a multiprocessor holds at once. Few rows are cut into so many;
more of them would take turns."""

SHORTEST = 1 << 13
"""Columns of a chunk, at least: one tile."""


def run_tokens(
    x: Tensor,
    scale: Tensor | None,
    token: Tensor | None,
    mask: Tensor | None,
    factor: float,
    before: float,
    softcap: float | None,
    entropy: bool,
    invariant: bool,
    part: Part | None = None,
    picked: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The log-probability of one token per row, the entropy of the row, and what
    `gradient_of_tokens` needs (3, …), in the accumulator dtype.

    The logits (…, C) are multiplied by `before`, capped, and multiplied by `factor` and by the
    scale of their row, both positive. Scale, token and mask are of rows (…), or None; without
    tokens the first result holds no values, without `entropy` the second. If ranks have parts of
    the rows, `picked` is what each knows of modified logits; their sum is returned last.
    """
    given = token, mask, scale
    key = key_of((run_tokens, before, softcap, entropy, invariant, part), (x, *given))
    tensors = (x,)
    for each in given:
        tensors += () if each is None else (each,)
    rows_given = token is not None, mask is not None, scale is not None
    has = Given(*rows_given, entropy, before, softcap or 0.0)
    plan = plans.get(key) or plans.keep(key, _plan_tokens(has, tensors, invariant, part))
    return plan(*tensors, number=factor, **({} if picked is None else {"picked": picked}))


def gradient_of_tokens(
    x: Tensor,
    scale: Tensor | None,
    token: Tensor | None,
    mask: Tensor | None,
    factor: float,
    before: float,
    softcap: float | None,
    saved: Tensor,
    g: Tensor,
    g_entropy: Tensor | None,
    of_scale: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The gradient at the logits of `run_tokens`, from those at its results; and that at the scale
    of each row (…), if asked for. `out` is contiguous, and possibly the logits."""
    given = x, token, mask, scale, g, g_entropy, saved
    head = gradient_of_tokens, before, softcap, of_scale, out is None or out.data_ptr() & 15
    key = key_of(head, given)
    tensors = tuple([each for each in given if each is not None])
    rows_given = token is not None, mask is not None, scale is not None
    has = Given(*rows_given, g_entropy is not None, before, softcap or 0.0)
    plan = plans.get(key) or plans.keep(key, _plan_gradient_of_tokens(has, tensors, of_scale))
    found = plan(*tensors, out=out, number=factor)
    return (found[0], found[1].sum(-1)) if of_scale else (found,)


def _as_two(tensors: tuple[Tensor, ...]) -> tuple[tuple, int, int, bool] | None:
    """The strides of logits (…, C) and of tensors (…) for the rows' two dimensions, the size of the
    second, elements per access and whether some rows start or end within one; None if the rows have
    more dimensions or their elements lie apart."""
    x, *rows = tensors
    strides = [x.stride(), *[(*each.stride(), 0) for each in rows]]
    groups = layout.collapse(x.shape, strides, x.dim() - 1)
    if len(groups) > 2 or (x.stride(-1) != 1 and x.shape[-1] > 1):
        return None
    check_device(x.device)
    outer, inner = [(1,) + (0,) * len(strides)] * (2 - len(groups)) + groups
    steps = tuple(zip(outer[1:], inner[1:], strict=True))
    vector = 16 // x.element_size() if x.data_ptr() % 16 == 0 else 1
    return steps, inner[0], vector, any([count % vector for count in (x.shape[-1], *steps[0])])


def _plan_tokens(
    has: Given, inputs: tuple[Tensor, ...], invariant: bool, part: Part | None
) -> AnyPlan:
    x = inputs[0]
    shape, total = x.shape[:-1], arguments.row_length(x, -1, part)
    n_cols, ranks = x.shape[-1], total // max(1, x.shape[-1])
    seen = _as_two(inputs)
    if seen is None or (invariant and not layout.lies_on_vectors(x)):
        copies = tuple([layout.on_vectors(each) for each in inputs])
        return ByPyTorch("copy", _plan_tokens(has, copies, invariant, part), layout.on_vectors)
    steps, n_inner, vector, edges = seen
    if invariant and edges:  # rows start at different places of a vector
        vector, edges = 1, False
    n_rows = shape.numel()
    at_once = RESIDENT * device_of(x).multiprocessors
    n_chunks = max(1, min(at_once // n_rows, n_cols // SHORTEST))
    if invariant or n_cols >= 2**30:
        n_chunks = triton.cdiv(n_cols, 2 * SHORTEST)
    if invariant and splitting.parts_of(total) > 1:
        n_chunks = splitting.parts_of(total) // ranks
    chunk_cols = triton.cdiv(triton.cdiv(n_cols, n_chunks), vector) * vector
    n_chunks = triton.cdiv(n_cols, chunk_cols)
    whole = triton.next_power_of_2(total)
    lanes = max(32, min(LANES, whole // (2 * OF_LANE)))
    of_lane = max(vector, min(OF_LANE, whole // lanes))
    parts = triton.next_power_of_2(n_chunks * ranks)
    how = TokenRows(vector, edges, lanes, of_lane // vector, parts=parts)
    halves = [how._replace(write=False), how._replace(publish=False)]
    options = {"num_warps": lanes // 32, "sanitize_overflow": False}
    if invariant:
        options["enable_fp_fusion"] = False
    launches = [
        Launch(
            token_rows_kernel,
            n_rows * (n_chunks if each.publish else 1),
            (steps, n_inner, n_cols, n_chunks * (1 if each.publish else ranks), chunk_cols),
            {"GIVEN": has, "HOW": each},
            options,
        )
        for each in (halves if parts > 1 else [how])
    ]
    wide = arguments.accumulator(x.dtype)
    results = [(shape, wide), (shape, wide), ((3, *shape), wide)]
    if part is not None:
        words = n_rows, n_chunks, 3
        return RankPlan(tuple(launches), x, results, part, words, torch.float32)
    words = Workspace(3 * n_rows * n_chunks if n_chunks > 1 else 0, zeroed=False)
    return Plan(tuple(launches), x, results, words)


def _plan_gradient_of_tokens(has: Given, inputs: tuple[Tensor, ...], of_scale: bool) -> AnyPlan:
    x = inputs[0]
    seen = _as_two(inputs[:-1])
    if seen is None:
        copies = tuple([each.contiguous() for each in inputs])
        return ByPyTorch("copy", _plan_gradient_of_tokens(has, copies, of_scale), Tensor.contiguous)
    steps, n_inner, vector, edges = seen
    n_rows, n_cols = x.shape[:-1].numel(), x.shape[-1]
    n_chunks = triton.cdiv(n_cols, ELEMENTS)
    launch = Launch(
        token_gradient_kernel,
        n_rows * n_chunks,
        (steps, n_inner, n_cols, n_chunks),
        {"GIVEN": has, "VECTOR": 1 if edges else vector, "BLOCK": ELEMENTS},
        {"num_warps": 8},
    )
    results = [(x.shape, x.dtype)]
    results += [((*x.shape[:-1], n_chunks), arguments.accumulator(x.dtype))] * of_scale
    return Plan((launch,), x, results)
