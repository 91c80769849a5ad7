"""Plans of the small kernels around a loss: its targets, its gradient, a factor of each row."""

from typing import Any

import torch
import triton
from torch import Tensor, empty_like

from .. import arguments
from ..arguments import LossOptions, Modifiers
from ..kernels import row_scalars as scalars
from ..operations.cross_entropy import PLAIN, SMOOTHED
from . import Plan, RankPlan, empty_of, key_of, plan_of
from .launch import Launch, addresses_of, cuda_index, current_device, plans
from .modified import plan_of_part, run_modified

CHUNK = 8192
"""Elements per chunk of `scale_rows`."""

PROGRAMS = 1024
"""Programs of `scale_rows`, enough to fill a large GPU: most read a factor or two and exit."""


def scale_rows(x: Tensor, factor: Tensor, dim: int) -> None:
    """Multiply each row of a contiguous tensor by its factor, in place; or all by one factor, which
    may be expanded."""
    if not x.numel():
        return
    for_all = not any(factor.stride())
    factor = factor if for_all else factor.contiguous()
    key = key_of((scale_rows, dim, for_all), (x, factor))
    plan = plans.get(key) or plans.keep(key, _plan_scale(x, factor, dim, for_all))
    if plan.launches[0].grid:
        plan(factor, out=x)
    else:
        x.mul_(factor.unsqueeze(dim) if factor.dim() else factor.view((1,) * x.dim()))


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
    """Return the plans that prepare the targets: a count first if needed; none if unsupported."""
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
    passes tensors.

    `targets` are the plans that prepare the targets; none where PyTorch's operators compute the
    scalars of rows: for probabilities, label smoothing with class weights or in every batch, some
    layouts, or without kernels. `reads_classes` says whether a call reads the classes on the host,
    to check them.
    """

    def __init__(
        self,
        x: Tensor,
        target: Tensor,
        weight: Tensor | None,
        options: LossOptions,
        gradient: bool,
        in_place: bool,
        reads_classes: bool = False,
    ):
        self.options, self.reads_classes = options, reads_classes
        self.targets: tuple[Plan, ...] = ()
        # The operators and the kernel round a class's share differently.
        smoothed = options.label_smoothing and (weight is not None or options.invariant)
        on_kernels = options.part is not None or arguments.by_kernels(x)
        if smoothed or target.is_floating_point() or not on_kernels:
            return
        op = (SMOOTHED if options.label_smoothing else PLAIN)[gradient]
        self.op, self.in_place = op, in_place
        # Which of the scalars of `targets_kernel` the operation takes.
        self.which = (0, 3, 2, 4) if options.label_smoothing else (0, 1, 2)
        given = (target,) if weight is None else (target, weight)
        as_they_lie = [each.is_contiguous() for each in given]
        inputs = (x, *[each.contiguous() for each in given])
        self.targets = plan_targets(inputs, options)
        self.accumulator = arguments.accumulator(x.dtype)
        self.dtype = self.accumulator if op.reduces else x.dtype
        self.modifiers = Modifiers(options.scale, options.softcap)
        self.of_rows = empty_of(target.shape, self.accumulator, x)
        self.index = cuda_index(x)
        self.takes_addresses = all(as_they_lie) and (in_place or x.is_contiguous())
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
        memory = self.memory()
        base, at_x = memory.data_ptr(), x.data_ptr()
        addresses = (at_x, target.data_ptr())
        if weight is not None:
            addresses += (weight.data_ptr(),)
        if len(self.targets) == 2:
            parts = self.targets[0].empty()
            self.targets[0].launches[0].launch_at(addresses, (parts.data_ptr(),))
            addresses += (parts.data_ptr(),)
        at = base + self.scalar_offsets[0], base + self.scalar_offsets[1]
        self.targets[-1].launches[0].launch_at(addresses, at)
        outs = (self.of_rows(),)
        results = (outs[0].data_ptr(), base + self.discarded_lse_offset)
        if with_lse:
            outs += (self.of_rows(),)
            results = addresses_of(outs)
        if not self.op.reduces:
            dx = x if self.in_place else empty_like(x)
            outs, results = (dx, *outs), (dx.data_ptr(), *results)
        addresses = (at_x, *map(base.__add__, self.scalar_offsets))
        if self.options.part is not None:
            main.launches[0].launch_at(addresses, results, base, *main.more)
            lines, work = main.part.exchange(memory[: main.line], main.part.group)
            if work is not None:
                work.wait()
            main.launches[1].launch_at(addresses, results, lines.data_ptr(), *main.more)
        elif main.workspace is None:
            main.launches[0].launch_at(addresses, results)
        else:
            held, words = main.workspace.reserve(x.device)
            for launch in main.launches:
                launch.launch_at(addresses, results, words)
        return outs

    def _by_tensors(self, x: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, ...]:
        """Run the call with tensors, as each kernel's first launch needs them."""
        op, options = self.op, self.options
        inputs = (x, target.contiguous())
        inputs += () if weight is None else (weight.contiguous(),)
        for plan in self.targets[:-1]:
            inputs += (plan(*inputs),)
        marked, of_each = self.targets[-1](*inputs)
        numbers = (marked, *map(of_each.unbind().__getitem__, self.which))
        out = x if self.in_place else None
        if options.scale != 1.0 or options.softcap is not None:
            return run_modified(
                op, (x,), numbers, self.modifiers, options.dim, self.dtype, after=not op.reduces,
                invariant=options.invariant, part=options.part, out=out,
            )  # fmt: skip
        inputs = (x, *numbers)
        main: Any = (
            plan_of(op, inputs, options.dim, self.dtype, options.invariant)
            if options.part is None
            else plan_of_part(op, inputs, self.dtype, options.part, options.invariant)
        )
        results = main(*inputs, out=out)
        launched = self.takes_addresses and isinstance(main, Plan)
        for plan in (*self.targets, main):
            launched = launched and plan.launches[-1].launch_at is not None
        if launched:
            self._lay_out(main, x, target.numel())
        return results

    def _lay_out(self, main: Any, x: Tensor, n: int) -> None:
        """Keep the plan of the operation, and lay out the memory that the kernels share: five
        scalars for each target (see `targets_kernel`), the log-sum-exps, and the targets. On ranks
        words come first: a message is these and the first scalars, target logits. Where scalars
        would not be aligned behind the words, calls go on with tensors."""
        ranks, size = isinstance(main, RankPlan), self.accumulator.itemsize
        dtype = main.dtype if ranks else x.dtype
        first = main.n_words * dtype.itemsize if ranks else 0
        if first % 16:  # kernels are compiled for scalars that begin where an access may
            return
        starts = [first + k * n * size for k in range(6)]
        lse = -(-starts[5] // 16) * 16
        marked = -(-(lse + n * size) // 16) * 16
        self.scalar_offsets = marked, *map(starts.__getitem__, self.which)
        self.discarded_lse_offset = lse
        self.memory = empty_of((-(-(marked + 8 * n) // dtype.itemsize),), dtype, x)
        self.main = main


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
