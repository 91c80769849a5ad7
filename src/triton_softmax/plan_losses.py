"""Plans of the small kernels around a loss (its targets, its gradient, a factor of each row), and
of log-probabilities and entropies: one token per row, and their gradient.
"""

from typing import Any

import torch
import triton
from torch import Tensor, empty_like

from . import arguments, layout
from .arguments import LossOptions, Modifiers, Part, check_device
from .config import splitting
from .kernels import row_scalars as scalars
from .kernels.token_rows import Given, TokenRows, token_gradient_kernel, token_rows_kernel
from .launch import Launch, Workspace, addresses_of, cuda_index, current_device, plans
from .operations.cross_entropy import PLAIN, SMOOTHED
from .plan import AnyPlan, ByPyTorch, Plan, RankPlan, device_of, empty_of, key_of, line_of, plan_of
from .plan_masked import plan_of_part, run_modified

ELEMENTS = 4096
"""Elements per program of `gradient_of_tokens`, 16 per thread. With half or twice as many, it took
8 % and 12 % longer."""


CHUNK = 8192
"""Elements per chunk of `scale_rows`."""

PROGRAMS = 1024
"""Programs of `scale_rows`, enough to fill a large GPU: most read a factor or two and exit."""


def scale_rows(x: Tensor, factor: Tensor, dim: int) -> None:
    """Multiply each row of a contiguous tensor by its factor, in place. The factors have the shape
    of x without `dim`, or are one number, possibly expanded."""
    if not x.numel():
        return
    for_all = not any(factor.stride())
    factor = factor if for_all else factor.contiguous()
    key = key_of((scale_rows, dim, for_all), (x, factor))
    plan = plans.get(key) or plans.keep(key, _plan_scale(x, factor, dim, for_all))
    if plan.first.grid:
        plan(factor, out=x)
    else:
        x.mul_(factor.unsqueeze(dim) if factor.dim() else factor)


def _plan_scale(x: Tensor, factor: Tensor, dim: int, for_all: bool) -> Plan:
    """Plan `scale_rows`; a grid of 0 if the work items overflow 32 bits."""
    n_outer = 1 if for_all else x.shape[:dim].numel()
    length = x.numel() // n_outer
    n_inner = 1 if for_all else length // x.shape[dim]
    n_chunks = triton.cdiv(length, CHUNK)
    n_tasks = n_outer * n_chunks
    numbers = (length, n_inner, n_chunks, n_tasks)
    constants = {"FOR_ALL": for_all, "ONE": n_inner == 1, "BLOCK": CHUNK}
    grid = min(PROGRAMS, n_tasks) if n_tasks < 2**31 - PROGRAMS else 0
    launch = Launch(scalars.scale_rows_kernel, grid, numbers, constants, {"num_warps": 8})
    return Plan((launch,), factor, [(x.shape, x.dtype)])


MAX_TARGETS = 1 << 24
"""Beyond this, PyTorch takes over: every program sums all counts, which would cost too much."""

BLOCK = 1024
"""Targets per program."""

FEW = 8 * BLOCK
"""Up to this many targets every program counts them all; beyond, a first launch counts parts."""


def plan_targets(inputs: tuple[Tensor, ...], options: LossOptions) -> tuple[Plan, ...]:
    """The plans that prepare the targets: a count first if needed; none if unsupported."""
    dim, ignore_index, reduction, smoothing, z_loss, *_ = options
    x, target = inputs[:2]
    seen = _as_three(x, dim)
    n_rows = target.numel()
    if seen is None or n_rows > MAX_TARGETS:
        return ()
    n_inner, *strides = seen
    n_cols = arguments.row_length(x, dim, options.part)
    here = options.part.start if options.part else 0, x.shape[dim]
    programs = triton.cdiv(n_rows, BLOCK)
    accumulator = arguments.accumulator(x.dtype)
    count = "none" if reduction != "mean" else "here" if n_rows <= FEW else "parts"
    numbers = (tuple(strides), n_rows, n_cols, n_inner, here, ignore_index)
    constants = {"SMOOTHING": smoothing, "Z_LOSS": z_loss, "COUNT": count, "BLOCK": BLOCK}
    launch = Launch(scalars.targets_kernel, programs, numbers, constants, {})
    outs = [(target.shape, torch.int64), ((5, *target.shape), accumulator)]
    last = Plan((launch,), x, outs)
    if count != "parts":
        return (last,)
    numbers = (n_rows, n_cols, ignore_index)
    launch = Launch(scalars.count_targets_kernel, programs, numbers, {"BLOCK": BLOCK}, {})
    return Plan((launch,), x, [((2, programs), accumulator)]), last


class LossPlan:
    """The plan of a cross-entropy with class targets, from targets to row losses.

    The target kernels compute the row scalars, then the operation runs. Each tensor and key between
    them would cost a microsecond or more on the host, so the kernels share one allocation by
    address. That requires unmodified logits and a layout the kernels take as it is; any other call
    passes tensors. `targets` are the plans that prepare the targets; none if unsupported.
    """

    def __init__(
        self,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None,
        options: LossOptions,
        gradient: bool,
        in_place: bool,
    ):
        op = (SMOOTHED if options.label_smoothing else PLAIN)[gradient]
        self.op, self.options, self.in_place = op, options, in_place
        given = (target,) if weight is None else (target, weight)
        as_they_lie = [each.is_contiguous() for each in given]
        inputs = (x, *[each.contiguous() for each in given])
        self.targets = plan_targets(inputs, options)
        self.accumulator = arguments.accumulator(x.dtype)
        self.dtype = self.accumulator if op.reduces else x.dtype
        self.modifiers = Modifiers(options.scale, options.softcap)
        n = target.numel()
        size = self.accumulator.itemsize
        # The targets, then five scalars for each (see `targets_kernel`), then the log-sum-exps.
        self.words = n * (8 + 6 * size) // x.element_size()
        starts = (0, *(8 * n + k * n * size for k in range(6)))
        self.offsets, self.unasked = starts[: op.numbers], starts[-1]
        self.of_rows = empty_of(target.shape, self.accumulator, x)
        self.index = cuda_index(x)
        self.same = all(as_they_lie) and (in_place or x.is_contiguous())
        self.main: Any = None

    def __call__(
        self, x: Tensor, target: Tensor, weight: Tensor | None, with_lse: bool = True
    ) -> tuple[Tensor, ...]:
        """Run the target kernels and the operation; return the operation's results, the last of
        which, the log-sum-exps, take no memory of their own unless requested."""
        main, index = self.main, self.index
        if main is None:
            results = self._by_tensors(x, target, weight)
            return results if with_lse else results[:-1]
        if index != current_device():
            with torch.cuda.device(index):
                return self(x, target, weight, with_lse)
        scalars = x.new_empty(self.words)
        base, at_x = scalars.data_ptr(), x.data_ptr()
        addresses = (at_x, target.data_ptr())
        if weight is not None:
            addresses += (weight.data_ptr(),)
        if len(self.targets) == 2:
            parts = self.targets[0].empty()
            self.targets[0].first.at(addresses, (parts.data_ptr(),))
            addresses += (parts.data_ptr(),)
        self.targets[-1].first.at(addresses, (base, base + self.offsets[1]))
        outs = (self.of_rows(),)
        results = (outs[0].data_ptr(), base + self.unasked)
        if with_lse:
            outs += (self.of_rows(),)
            results = addresses_of(outs)
        if not self.op.reduces:
            dx = x if self.in_place else empty_like(x)
            outs, results = (dx, *outs), (dx.data_ptr(), *results)
        addresses = (at_x, *map(base.__add__, self.offsets))
        if main.workspace is None:
            main.first.at(addresses, results)
        else:
            held, words = main.workspace.reserve(x.device)
            for launch in main.launches:
                launch.at(addresses, results, words)
        return outs

    def _by_tensors(self, x: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, ...]:
        """The call with tensors, as each kernel's first launch needs them."""
        op, options = self.op, self.options
        inputs = (x, target.contiguous())
        inputs += () if weight is None else (weight.contiguous(),)
        for plan in self.targets[:-1]:
            inputs += (plan(*inputs),)
        marked, of_each = self.targets[-1](*inputs)
        numbers = (marked, *of_each.unbind()[: op.numbers - 1])
        out = x if self.in_place else None
        if options.scale != 1.0 or options.softcap is not None:
            return run_modified(
                op, (x,), numbers, self.modifiers, options.dim, self.dtype, after=not op.reduces,
                invariant=options.invariant, part=options.part, out=out,
            )  # fmt: skip
        inputs = (x, *numbers)
        main: Any = (
            plan_of(op, inputs, options.dim, self.dtype, None, options.invariant)
            if options.part is None
            else plan_of_part(op, inputs, self.dtype, options.part, options.invariant)
        )
        results = main(*inputs, out=out)
        known = self.same and type(main) is Plan
        for plan in (*self.targets, main):
            known = known and plan.first.at is not None
        self.main = main if known else None
        return results


def _as_three(x: Tensor, dim: int) -> tuple[int, int, int, int] | None:
    """View logits as (outer, classes, inner): (inner size, strides); None if that needs a copy."""
    if x.dim() == 1:
        return 1, 0, x.stride(0), 0
    if x.dim() == 2 and dim == 1:
        return 1, x.stride(0), x.stride(1), 0
    if not x.is_contiguous():
        return None
    n_inner = x.shape[dim + 1 :].numel()
    return n_inner, x.shape[dim] * n_inner, n_inner, 1


# One token per row.

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
    n_known = 0 if picked is None else picked.numel()
    plan, tensors = plan_of_tokens(x, given, before, softcap, entropy, invariant, part, n_known)
    return plan(*tensors, number=factor, **({} if picked is None else {"known": picked}))


def plan_of_tokens(
    x: Tensor,
    given: tuple[Tensor | None, Tensor | None, Tensor | None],
    before: float,
    softcap: float | None,
    entropy: bool,
    invariant: bool,
    part: Part | None = None,
    n_known: int = 0,
) -> tuple[Any, tuple[Tensor, ...]]:
    """The plan of `run_tokens`, cached, and the tensors that it takes; `given` are token, mask and
    scale."""
    key = key_of((run_tokens, before, softcap, entropy, invariant, part, n_known), (x, *given))
    tensors = (x,)
    for each in given:
        tensors += () if each is None else (each,)
    token, mask, scale = given
    rows_given = token is not None, mask is not None, scale is not None
    has = Given(*rows_given, entropy, before, softcap or 0.0)
    plan = plans.get(key)
    plan = plan or plans.keep(key, _plan_tokens(has, tensors, invariant, part, n_known))
    return plan, tensors


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
    has: Given, inputs: tuple[Tensor, ...], invariant: bool, part: Part | None, n_known: int = 0
) -> AnyPlan:
    x = inputs[0]
    shape, total = x.shape[:-1], arguments.row_length(x, -1, part)
    n_cols, ranks = x.shape[-1], 1 if part is None else part.ranks
    seen = _as_two(inputs)
    if seen is None or (invariant and not layout.lies_on_vectors(x)):
        copies = tuple([layout.on_vectors(each) for each in inputs])
        plan = _plan_tokens(has, copies, invariant, part, n_known)
        return ByPyTorch("copy", plan, layout.on_vectors)
    steps, n_inner, vector, edges = seen
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
    lanes = max(32, min(LANES, whole // (2 * OF_LANE)))
    of_lane = max(vector, min(OF_LANE, whole // lanes))
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
            (steps, n_inner, n_cols, (n_chunks, line) if each.ranks > 1 else n_chunks, chunk_cols),
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
