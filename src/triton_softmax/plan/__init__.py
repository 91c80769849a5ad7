"""Plans decide once how to run a kind of call, and cache the decision.

Which kernels a call launches depends only on shapes, strides, dtypes, device and alignment. The
first call with a given set of these makes a plan, and `plans` caches it under them. A `Plan` holds
prepared kernel launches; calling it allocates the results and passes the pointers.

`plan_of` plans an operation along a dimension, on the kernel that `config` chooses for the layout.
`modified` has the plans of score modifiers, `losses` those of the small kernels around a loss,
`tokens` those of log-probabilities and entropies. `launch` holds a kernel's compiled variant and
later calls it directly, and `layout` describes how tensors lie in memory.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import torch
import triton
from torch import Tensor, empty_like

from .. import arguments, composite
from ..arguments import DTYPES, Part, check_alike, check_arguments, check_device
from ..config import (
    Choice,
    Device,
    Modified,
    Traits,
    chosen,
    columns_of,
    on_ranks,
    rows_of,
    splitting,
)
from ..config.calls import Columns, Rows
from ..config.constants import RowTile, SplitRows, SplitStrided, StridedTile, TwoPass
from ..kernels import split_rows, split_strided, strided, tile, two_pass
from ..operations.operation import Operation, in_any_order
from . import layout
from .launch import Launch, Workspace, addresses_of, cuda_index, current_device, plans

GEOMETRIES = {
    "packed_rows": tile.tile_kernel,
    "aligned_rows": tile.tile_kernel,
    "split_rows": split_rows.split_rows_kernel,
    "strided": strided.strided_kernel,
    "split_strided": split_strided.split_strided_kernel,
    "two_pass": two_pass.two_pass_kernel,
}
"""The kernel behind each geometry name that a `Choice` can hold."""

KERNELS = "packed_rows", "aligned_rows", "split_rows", "strided"
"""The geometries that a caller can name."""


def key_of(head: tuple, tensors: Sequence[Tensor | None]) -> tuple:
    """Return the key of a call in `plans`: `head`, then what a plan depends on in each tensor."""
    for t in tensors:  # a kernel in the head would be hashed by its source, slowly
        if t is None:
            head += (None,)
        else:
            head += (t.dtype, t.shape, t.stride(), t.get_device(), t.data_ptr() & 15)
    return head


def plan_of(
    op: Operation,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype | None = None,
    invariant: bool = False,
    kernel: str | None = None,
) -> "AnyPlan":
    """Return the plan of a call, cached: `plan_of(...)(*inputs)` computes the result, and
    `plan_of(...).kernels` names the kernels it launches. Only a new kind of call is checked.

    Args:
        op: the operation to compute.
        inputs: its element tensors, all of one shape, then its row scalars, without `dim`.
        dim: the dimension to reduce; negative counts from the end.
        dtype: dtype of the result, to which the input is rounded first; the first input's by
            default.
        invariant: give a row the same bits in every batch.
        kernel: one of `KERNELS`, to compare them; None to choose.

    Raises:
        TypeError, IndexError, ValueError, RuntimeError: see `softmax`; a ValueError also if the
            kernel is unknown or does not support the call.
    """
    key = (op, dim, dtype, invariant)
    if kernel is not None:
        key += (kernel,)
    for t in inputs:  # `key_of`, inlined to save a Python call
        key += (t.dtype, t.shape, t.stride(), t.get_device(), t.data_ptr() & 15)
    plan = plans.get(key)
    return plan or plans.keep(key, make_plan(op, inputs, dim, dtype, invariant, None, kernel))


def run_one(x: Tensor, head: tuple, plan_new: Callable[..., Any] | None = None) -> Any:
    """Return `plan_of(...)(x)`, in a single Python call if the plan is one launch for one result.
    `head` is the operation, then the options. A caller with checks of its own has another `head`,
    and `plan_new(x, *head)` in its words; None if there is no plan, and then no result."""
    address = x.data_ptr()
    key = (*head, x.dtype, x.shape, x.stride(), x.get_device(), address & 15)
    plan = plans.get(key)
    if plan is None:
        op, *options = head
        made = plan_new(x, *head) if plan_new else make_plan(op, (x,), *options)
        if made is None:
            return None
        plan = plans.keep(key, made)
    if type(plan) is not Plan or not plan.one_launch_one_result:
        return plan(x)
    if -1 != plan.index != current_device():
        return plan(x)
    out = empty_like(x) if plan.out_is_like_x else plan.empty()
    launch = plan.launches[0]
    if launch.launch_at is None:
        launch.run((x,), (out,))
    else:
        launch.launch_at((address,), (out.data_ptr(),))
    return out


class Plan:
    """Prepared launches that take the tensors as they lie in memory; several share a workspace.

    Args:
        launches: in order.
        x: a tensor like the first input of every call.
        outs: shape and dtype of each (contiguous) result.
        workspace: the kernels' scratch memory, if they need any.
    """

    def __init__(
        self,
        launches: tuple[Launch, ...],
        x: Tensor,
        outs: Sequence[tuple[Any, torch.dtype]],
        workspace: Workspace | None = None,
    ):
        self.launches = launches
        self.kernels = tuple(launch.kernel.__name__ for launch in launches)
        self.workspace = workspace
        self.out_is_like_x = outs[0] == (x.shape, x.dtype) and x.is_contiguous()
        self.empty, *self.more_outs = [empty_of(shape, dtype, x) for shape, dtype in outs]
        self.index = cuda_index(x)
        self.one_launch_one_result = not (self.more_outs or workspace)

    def __call__(
        self, *inputs: Tensor, out: Tensor | None = None, number: float | None = None
    ) -> Any:
        """Launch; return the result, or a tuple of several. The first goes to `out`, if given. A
        `number` of each call follows the workspace."""
        index = self.index
        if index >= 0 and index != current_device():
            with torch.cuda.device(index):
                return self(*inputs, out=out, number=number)
        if out is None:
            out = empty_like(inputs[0]) if self.out_is_like_x else self.empty()
        outs = (out,)
        for empty in self.more_outs:
            outs += (empty(),)
        launch_at, workspace = self.launches[0].launch_at, self.workspace
        more = () if number is None else (number,)
        if launch_at is None or (workspace is not None and self.launches[-1].launch_at is None):
            words = () if workspace is None else (workspace.take(out.device),)
            for launch in self.launches:
                launch.run(inputs, outs, *words, *more)
            return outs if self.more_outs else out
        # Most operations have one input and one result: this saves two Python calls.
        addresses = (inputs[0].data_ptr(),) if len(inputs) == 1 else addresses_of(inputs)
        results = (out.data_ptr(),) if len(outs) == 1 else addresses_of(outs)
        if workspace is None:
            launch_at(addresses, results, *more)
        else:
            held, words = workspace.reserve(out.device)
            for launch in self.launches:
                launch.launch_at(addresses, results, words, *more)
        return outs if self.more_outs else out


class RankPlan(Plan):
    """The plan of an operation on the parts of rows that this rank has: a rank is a chunk, or some.

    The first launch publishes words of this rank's chunks, a message takes them to all ranks, and
    the second launch writes from the words of all. Behind the words stand numbers that one rank
    knows, and for which the others send 0: the target logits of a loss, its row scalar number `at`,
    or `n_known` numbers of the caller.

    Args:
        launches: the one that publishes, and the one that writes.
        x, outs: as for a `Plan`.
        part: which part of the rows is here.
        n_words, dtype: the words of this rank, as kernels take them, and their dtype.
        n_known, at: numbers behind the words, and the input that holds them, if one does.
        number: what the kernels take of each call if the caller has none.
    """

    def __init__(
        self, launches: Any, x: Tensor, outs: Any, part: Part, n_words: int, dtype: torch.dtype,
        n_known: int = 0, at: int | None = None, number: float | None = None,
    ):  # fmt: skip
        super().__init__(launches, x, outs)
        self.part, self.n_words, self.n_known, self.at = part, n_words, n_known, at
        self.more = () if number is None else (number,)
        self.wide, self.dtype = arguments.accumulator(x.dtype), dtype
        self.nothing = tuple([x.new_empty(0, dtype=dtype) for _, dtype in outs])
        self.line = line_of(n_words, dtype, n_known, self.wide)
        self.message: Any = partial(x.new_empty(0, dtype=dtype).new_empty, self.line)

    def __call__(
        self, *inputs: Tensor, out: Tensor | None = None, number: float | None = None,
        known: Tensor | None = None,
    ) -> Any:  # fmt: skip
        """Publish, send, and write; as a `Plan`. The sum of what is known, if given, is returned
        last."""
        message = self.publish(*inputs, number=number, known=known)
        lines, work = self.part.exchange(message, self.part.group)
        if work is not None:
            work.wait()
        return self.write(lines, *inputs, out=out, number=number, known=known)

    def publish(
        self, *inputs: Tensor, number: float | None = None, known: Tensor | None = None
    ) -> Tensor:
        """Return the message of this rank."""
        if -1 != self.index != current_device():
            with torch.cuda.device(self.index):
                return self.publish(*inputs, number=number, known=known)
        message = self.message()
        known = inputs[self.at] if self.at is not None else known
        if known is not None and self.n_known:
            behind = message[self.n_words :].view(self.wide)
            behind[: self.n_known].copy_(known.reshape(-1))
        if self.launches[0].grid:
            more = self.more if number is None else (number,)
            self.launches[0].run(inputs, self.nothing, message, *more)
        return message

    def write(
        self, lines: Tensor, *inputs: Tensor, out: Tensor | None = None,
        number: float | None = None, known: Tensor | None = None,
    ) -> Any:  # fmt: skip
        """Return the results, from the messages of all ranks."""
        if -1 != self.index != current_device():
            with torch.cuda.device(self.index):
                return self.write(lines, *inputs, out=out, number=number, known=known)
        outs: Any = (self.empty() if out is None else out,)
        for empty in self.more_outs:
            outs += (empty(),)
        if self.launches[0].grid:
            more = self.more if number is None else (number,)
            self.launches[1].run(inputs, outs, lines, *more)
        if known is not None:
            behind = lines[:, self.n_words :].view(self.wide)[:, : self.n_known]
            outs += (behind.sum(0).view(known.shape).to(known.dtype),)
        return outs if len(outs) > 1 else outs[0]


def line_of(n_words: int, dtype: torch.dtype, n_known: int, wide: torch.dtype) -> int:
    """Return the length of a message, in words: the words, and what is known behind them."""
    return n_words + triton.cdiv(n_known * wide.itemsize, dtype.itemsize)


SHORTEST_PART = 2048
"""Columns of the largest part, at least, of which ranks send words of chunks: shorter ones would
leave most of a program idle."""


def in_chunks(x: Tensor, part: Part) -> bool:
    """Return whether `split_rows` reads parts of rows: adjacent elements of at most 32 bits, if
    ranks know how long parts are. Else a loop reads each."""
    n_chunks = triton.cdiv(part.widest, splitting.LONGEST_CHUNK)
    few = n_chunks * part.ranks <= splitting.MAX_CHUNKS and len(x) * n_chunks < 2**30
    return part.widest >= SHORTEST_PART and x.dtype != torch.float64 and few


def empty_of(shape: Any, dtype: torch.dtype, x: Tensor) -> Callable[[], Tensor]:
    """Return a function that allocates a contiguous tensor on the device of x. This form takes
    PyTorch the least time: it has no keywords to read."""
    return partial(x.new_empty(0, dtype=dtype).new_empty_strided, shape, layout.strides_of(shape))


@dataclass(eq=False)
class Fallback:
    """The plan of a call that `function` computes from its tensors: by PyTorch's operators, or by
    `plan` with conversions around it."""

    function: Callable[..., Any]
    plan: "AnyPlan | None" = None

    def __post_init__(self):
        self.kernels: tuple[str, ...] = self.plan.kernels if self.plan else ()
        self.launches: tuple[Launch, ...] = self.plan.launches if self.plan else ()

    def __call__(self, *inputs: Tensor, out: Tensor | None = None, **more: Any) -> Any:
        result = self.function(*inputs, **more)
        if out is None:
            return result
        first, *others = result if isinstance(result, tuple) else (result,)
        return (out.copy_(first), *others) if others else out.copy_(first)


def converted(
    plan: "AnyPlan",
    before: Callable[[Tensor], Tensor],
    after: Callable[[Any, Tensor], Any] = lambda result, _: result,
) -> Fallback:
    """Return a plan whose inputs `before` converts for another plan. `after` converts the result
    back, and also takes the first input."""
    return Fallback(
        lambda x, *others, **more: after(plan(*map(before, (x, *others)), **more), x), plan
    )


AnyPlan: TypeAlias = Plan | Fallback


def device_of(tensor: Tensor) -> Device:
    """Describe the tensor's device to `config`."""
    if tensor.is_cuda:
        properties = torch.cuda.get_device_properties(tensor.device)
        return Device(properties.multi_processor_count, nvidia=torch.version.hip is None)
    return Device()


def make_plan(
    op: Operation,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype | None = None,
    invariant: bool = False,
    part: Part | None = None,
    kernel: str | None = None,
) -> AnyPlan:
    """Check a call and plan all calls like it; see `plan_of` for arguments and errors. Inputs may
    not differ in shape or device either."""
    x = inputs[0]
    dim = check_arguments(x, dim, dtype)
    check_device(x.device)
    if kernel not in (None, *KERNELS):
        raise ValueError(f"unknown kernel {kernel!r}; expected None or one of {KERNELS}")
    dtype = dtype or x.dtype
    without = x.shape[:dim] + x.shape[dim + 1 :]
    shape = without if op.reduces else x.shape
    check_alike(x, *inputs[1 : op.inputs], shape=x.shape)
    check_alike(x, *inputs[op.inputs :], shape=without)
    if x.numel() == 0 and part is None:
        # An empty result, or the log-sum-exp of empty rows.
        return Fallback(lambda x, *_: x.new_full(shape, -math.inf, dtype=dtype))
    if x.device.type == "cpu" and not arguments.INTERPRETED:
        function = composite.KERNEL_OF[op]
        return Fallback(lambda *inputs: function(*inputs, dim, dtype).contiguous())

    def around(before, dim, dtype, *after):
        plan = make_plan(op, (*map(before, inputs),), dim, dtype, invariant, part, kernel)
        return converted(plan, before, *after)

    floats = [each.dtype for each in inputs if each.dtype in DTYPES]
    if torch.float64 in (dtype, *floats):
        wide = dtype if len(inputs) == 1 else x.dtype
        if dtype != wide or any(each != wide for each in floats):
            return around(lambda t: t.to(wide), dim, None, lambda y, _: y.to(dtype))
    outs = [torch.empty(shape, dtype=dtype, device="meta")]
    of_rows = arguments.accumulator(dtype)
    outs += [torch.empty(without, dtype=of_rows, device="meta")] * (op.results - 1)
    plan = _plan_launches(op, inputs, tuple(outs), dim, invariant, part, kernel)
    if plan is not None:
        return plan
    if all(map(layout.lies_on_vectors, inputs)):
        raise ValueError(f"{kernel} does not support dim={dim} of shape {tuple(x.shape)}")
    return around(layout.on_vectors, dim, dtype)


def choose(
    call: Rows | Columns | Modified, op: Operation, x: Tensor, kernel: str | None = None
) -> Choice:
    """Return the choice for a call of an operation, on the device of x."""
    return chosen(call, traits_of(op), device_of(x), kernel)


def traits_of(op: Operation) -> Traits:
    """Describe an operation to `config`."""
    keeps_terms = op.finish_terms is not None
    numbers = op.numbers if op.sums > 1 or op.finish_at and not op.reduces else 0
    return Traits(
        op.inputs, keeps_terms, op.exp_in_finish, op.reduces, bool(op.any_order), numbers=numbers
    )


def in_every_batch(op: Operation, inputs: tuple[Tensor, ...], n_cols: int) -> Operation:
    """Return the batch-invariant variant of an operation for these tensors and this row length."""
    itemsize = min([each.element_size() for each in inputs[: op.inputs]])
    return in_any_order(op, splitting.group_of(n_cols, itemsize))


def _plan_launches(
    op: Operation,
    inputs: tuple[Tensor, ...],
    outs: tuple[Tensor, ...],
    dim: int,
    invariant: bool,
    part: Part | None,
    kernel: str | None,
) -> Plan | None:
    """Choose a kernel and make its launches; None if no kernel supports the layout. `outs` are
    contiguous meta tensors."""
    results = [(each.shape, each.dtype) for each in outs]
    if not inputs[0].dim():  # elements as vectors
        n, n_outs = op.inputs, int(not op.reduces)
        inputs = *[each.reshape(1) for each in inputs[:n]], *inputs[n:]
        outs = *[each.reshape(1) for each in outs[:n_outs]], *outs[n_outs:]
    x = inputs[0]
    n_cols, total = x.shape[dim], arguments.row_length(x, dim, part)
    tensors = (*inputs, *outs)
    if invariant:
        op = in_every_batch(op, inputs, total)
    # Row scalars lack the dimension: broadcast them along it, with stride 0.
    strides = [
        each.stride() if each.dim() == x.dim() else each.unsqueeze(dim).expand(x.shape).stride()
        for each in tensors
    ]
    groups = layout.collapse(x.shape, strides, dim)
    col_strides = tuple(1 if n_cols == 1 else s[dim] for s in strides)
    # The choice depends only on the tensors that have elements along the rows.
    which = [i for i, each in enumerate(tensors) if each.dim() == x.dim()]
    moved = [tensors[i] for i in which]
    itemsize = min(each.element_size() for each in moved)
    addresses = tuple(each.data_ptr() for each in moved)  # 0 (aligned) for a result
    held = max(each.element_size() for each in inputs[: op.inputs])
    # For equal bits, chunks must be aligned alike in all tensors and in every batch.
    alike = not op.any_order or all(map(layout.lies_on_vectors, moved))
    if all(col_strides[i] == 1 for i in which) and len(groups) <= 1 and kernel != "strided":
        one_row = (1, *(n_cols if i in which else 1 for i in range(len(tensors))))
        n_rows, *steps = groups[0] if groups else one_row
        of_moved = tuple(steps[i] for i in which)
        as_rows = x.shape[dim + 1 :].numel() == 1  # once it is contiguous
        longest = splitting.INVARIANT_TILE_COLS if as_rows else splitting.WHOLE_COLUMNS
        if not alike and total > longest:
            return None
        outer, inner = (n_rows, *steps), (1, *(0,) * len(steps))
        if part is not None:
            rows = rows_of(n_rows, n_cols, itemsize, addresses, of_moved, held)
            rows = rows._replace(n_cols=total if invariant else part.widest)
            choice = on_ranks(rows, traits_of(op), device_of(x), part.ranks, op.sums)
            known = n_rows * (op.numbers > 1)
            n_words = op.sums * n_rows * choice.n_chunks
            line = line_of(n_words, torch.int64, known, torch.float32)
            launches, _ = launches_of(op, choice, outer, n_cols, line=line)
            at = op.inputs + 1 if known else None
            return RankPlan(launches, x, results, part, n_words, torch.int64, known, at)
        rows = rows_of(n_rows, total, itemsize, addresses, of_moved, held)
        choice = choose(rows, op, x, kernel)
    else:
        pair = layout.outer_and_inner(groups, len(strides))
        if pair is None or kernel not in (None, "strided") or part is not None:
            return None
        outer, inner = pair
        steps = tuple((outer[1 + i], col_strides[i], inner[1 + i]) for i in which)
        columns = columns_of(outer[0], n_cols, inner[0], itemsize, addresses, steps, held)
        choice = choose(columns, op, x)
        if not alike and choice.kernel != "strided":
            return None
    launches, workspace = launches_of(op, choice, outer, n_cols, col_strides, inner)
    return Plan(launches, x, results, workspace)


def launches_of(
    op: Operation,
    choice: Choice,
    outer: tuple[int, ...],
    n_cols: int,
    col_strides: tuple[int, ...] = (),
    inner: tuple[int, ...] = (),
    line: int = 0,
) -> tuple[tuple[Launch, ...], Workspace | None]:
    """Return the launches of a choice, several if chunks are published and written separately; and
    the words that they share.

    `outer` and `inner` hold a size, then the strides of inputs and results; row geometries look at
    `outer` alone. Ranks that share rows have `line` words each.
    """
    how, kernel = choice.how, choice.kernel
    if isinstance(how, (RowTile, SplitRows)):
        n_rows, *strides = outer
        blocks = triton.cdiv(n_rows, how.block_rows) if isinstance(how, RowTile) else n_rows
        sizes = (n_rows, n_cols)
    else:
        how = cast(StridedTile | SplitStrided | TwoPass, how)
        fold = how.fold if isinstance(how, TwoPass) else 1
        along = tuple([fold * stride for stride in col_strides])
        strides = [*zip(outer[1:], along, inner[1:], strict=True)]
        blocks = outer[0] * triton.cdiv(fold * inner[0], how.block_inner)
        sizes = (n_cols // fold, fold * inner[0])
    grid, workspace = choice.programs(blocks), None
    numbers = (tuple(strides[: -op.results]), tuple(strides[-op.results :]), *sizes)
    if kernel == "split_rows":
        # A single launch polls for status words, so they must start as zeros; of two launches, the
        # first writes every word before the second reads.
        workspace = Workspace(op.sums * blocks * choice.n_chunks, zeroed=not choice.apart)
        parts = choice.n_chunks // choice.parts, n_cols // choice.parts, line or choice.n_chunks
        numbers += (choice.n_chunks, choice.chunk_cols, *parts, splitting.MAX_POLLS)
    elif isinstance(how, SplitStrided):
        workspace = Workspace(op.sums * grid * how.block_inner, zeroed=True)
        numbers += (choice.n_chunks, splitting.MAX_POLLS)
    elif isinstance(how, TwoPass):
        n_words = (1 + op.sums) * outer[0] * choice.n_chunks * sizes[1]
        shared = choice.apart or how.fold > 1
        workspace = Workspace(n_words if shared else 0, zeroed=False)
        numbers += (choice.n_chunks, choice.chunk_cols)
    options = {"num_warps": choice.num_warps}
    if op.any_order:
        # Multiply-adds fuse differently from kernel to kernel, which would change bits.
        options["enable_fp_fusion"] = False
    if choice.max_registers is not None:
        options["maxnreg"] = choice.max_registers
    launches = []
    for each in choice.launches:
        function, programs, its_options = GEOMETRIES[kernel], grid, options
        if isinstance(each, TwoPass) and not (each.publish or each.write):
            function = two_pass.merge_chunks_kernel
            programs = outer[0] * triton.cdiv(inner[0], each.merged)
            its_options = options | {"num_warps": 8}  # of float64, fewer would spill
        constants = {"OP": op, "HOW": each}
        launches.append(Launch(function, programs, numbers, constants, its_options))
    if isinstance(how, TwoPass) and op.reduces:
        del launches[2:]  # column scalars are written where they are merged
    return tuple(launches), workspace
