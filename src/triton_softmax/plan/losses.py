"""Plans of the small kernels around a loss: its targets, its gradient, a factor of each row."""

from typing import Any

import torch
import triton
from torch import Tensor, empty_like

from .. import arguments, composite
from ..arguments import LossOptions, Modifiers, check_device
from ..kernels import row_scalars as scalars
from ..operations.cross_entropy import PLAIN, SMOOTHED
from ..operations.operation import Operation
from . import Plan, empty_of, key_of, plan_of
from .launch import Launch, addresses_of, cuda_index, current_device, plans
from .modified import run_modified

ELEMENTS = 4096
"""Elements per program of `finish`, 16 per thread."""


def finish(
    op: Operation,
    inputs: tuple[Tensor, ...],
    numbers: tuple[Tensor, ...],
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """Compute an operation's elements from known row summaries: its epilogue alone. The inputs are
    matrices; `numbers` are the maximum m of each row, if the operation has one, and its totals;
    `out` is contiguous, and possibly an input."""
    x = inputs[0]
    if not x.numel():
        return torch.empty(x.shape, dtype=dtype, device=x.device) if out is None else out
    if x.device.type == "cpu" and not arguments.INTERPRETED:
        columns = [each.unsqueeze(1) for each in numbers]
        result = composite.FINISH_OF[op](*map(composite.upcast, inputs), *columns).to(dtype)
        return result if out is None else out.copy_(result)
    tensors = []
    for each in inputs:
        tensors.append(each if each.stride(1) == 1 else each.contiguous())
    for each in numbers:
        tensors.append(each.contiguous())
    key = (finish, op, dtype, out is None or out.data_ptr() & 15)
    for t in tensors:  # `key_of`, inlined to save a Python call
        key += (t.dtype, t.shape, t.stride(), t.get_device(), t.data_ptr() & 15)
    plan = plans.get(key)
    if plan is None:
        check_device(x.device)
        plan = plans.keep(key, _plan_finish(op, tensors, dtype))
    return plan(*tensors, out=out)


def _plan_finish(op: Operation, tensors: list[Tensor], dtype: torch.dtype) -> Plan:
    x = tensors[0]
    n_rows, n_cols = x.shape
    block_cols = min(ELEMENTS, triton.next_power_of_2(n_cols))
    block_rows = min(ELEMENTS // block_cols, triton.next_power_of_2(n_rows))
    n_chunks = triton.cdiv(n_cols, block_cols)
    strides = tuple([each.stride(0) for each in tensors[: op.inputs]])
    wide = n_chunks * block_cols >= 2**31
    launch = Launch(
        scalars.finish_rows_kernel,
        triton.cdiv(n_rows, block_rows) * n_chunks,
        (strides, n_rows, n_cols, n_chunks),
        {"OP": op, "BLOCK_ROWS": block_rows, "BLOCK_COLS": block_cols, "WIDE": wide},
        {"num_warps": 8},
    )
    return Plan((launch,), x, [(x.shape, dtype)])


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
    if plan.launches[0].grid:
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

    `targets` are the plans that prepare the targets. There are none where the scalars of rows come
    from PyTorch's operators: for probabilities, class weights with label smoothing, a layout that
    the target kernels do not take, and where no kernel computes. `reads_classes` says whether a
    call reads the classes on the host, to check them.
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
        smoothed = weight is not None and options.label_smoothing != 0.0
        if smoothed or target.is_floating_point() or not arguments.by_kernels(x):
            return
        op = (SMOOTHED if options.label_smoothing else PLAIN)[gradient]
        self.op, self.in_place = op, in_place
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
        self.scalar_offsets, self.discarded_lse_offset = starts[: op.numbers], starts[-1]
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
        scalars = x.new_empty(self.words)
        base, at_x = scalars.data_ptr(), x.data_ptr()
        addresses = (at_x, target.data_ptr())
        if weight is not None:
            addresses += (weight.data_ptr(),)
        if len(self.targets) == 2:
            parts = self.targets[0].empty()
            self.targets[0].launches[0].launch_at(addresses, (parts.data_ptr(),))
            addresses += (parts.data_ptr(),)
        self.targets[-1].launches[0].launch_at(addresses, (base, base + self.scalar_offsets[1]))
        outs = (self.of_rows(),)
        results = (outs[0].data_ptr(), base + self.discarded_lse_offset)
        if with_lse:
            outs += (self.of_rows(),)
            results = addresses_of(outs)
        if not self.op.reduces:
            dx = x if self.in_place else empty_like(x)
            outs, results = (dx, *outs), (dx.data_ptr(), *results)
        addresses = (at_x, *map(base.__add__, self.scalar_offsets))
        if main.workspace is None:
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
        numbers = (marked, *of_each.unbind()[: op.numbers - 1])
        out = x if self.in_place else None
        if options.scale != 1.0 or options.softcap is not None:
            return run_modified(
                op, (x,), numbers, self.modifiers, options.dim, self.dtype, after=not op.reduces,
                invariant=options.invariant, part=options.part, out=out,
            )  # fmt: skip
        inputs = (x, *numbers)
        more = options.invariant, options.part
        main: Any = plan_of(op, inputs, options.dim, self.dtype, *more)
        results = main(*inputs, out=out)
        launched = self.takes_addresses and type(main) is Plan
        for plan in (*self.targets, main):
            launched = launched and plan.launches[0].launch_at is not None
        self.main = main if launched else None
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
