"""Plans decide once how to run a kind of call, and cache the decision.

Which kernels a call launches depends only on shapes, strides, dtypes, device and alignment. The
first call with a given set of these makes a plan, and `plans` caches it under them. A `Plan` holds
prepared kernel launches; calling it allocates the results and passes the pointers.

`plan_of` plans an operation along a dimension, on the kernel that `config` chooses for the layout.
`run_modified` plans an operation with score modifiers (scale, soft cap, bias, masks), which have a
kernel of their own. `finish`, `scale_rows` and `LossPlan` launch the small kernels around a loss,
`run_tokens` and `gradient_of_tokens` those of tokens and entropies.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import torch
import triton
from torch import Tensor, empty_like

from . import arguments, composite, layout
from .arguments import DTYPES, LossOptions, Modifiers, check_alike, check_arguments, check_device
from .config import Choice, Device, Masked, Traits, chosen, columns_of, rows_of, space
from .config.space import RowTile, SplitRows, SplitStrided, StridedTile, TwoPass, vector_of_lines
from .kernels import masked_rows, split_rows, split_strided, strided, tile, token_rows, two_pass
from .kernels import row_scalars as scalars
from .kernels.masked_rows import NO_SCALE, ONE_SCALE, SCALES, Maps
from .kernels.token_rows import Given, TokenRows
from .launch import Launch, Workspace, addresses_of, cuda_index, current_device, plans
from .operations.cross_entropy import PLAIN, SMOOTHED
from .operations.operation import Operation, in_any_order
from .operations.softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP

GEOMETRIES = {
    "packed_rows": tile.tile_kernel,
    "aligned_rows": tile.tile_kernel,
    "split_rows": split_rows.split_rows_kernel,
    "strided": strided.strided_kernel,
    "split_strided": split_strided.split_strided_kernel,
    "two_pass": two_pass.two_pass_kernel,
}
"""The kernel behind each geometry name that a `Choice` can hold."""


def key_of(head: tuple, tensors: Sequence[Tensor]) -> tuple:
    """The key of a call in `plans`: `head`, then what a plan depends on in each tensor."""
    for t in tensors:  # a kernel in the head would be hashed by its source, slowly
        head += (t.dtype, t.shape, t.stride(), t.get_device(), t.data_ptr() & 15)
    return head


def plan_of(
    op: Operation,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype | None = None,
    kernel: str | None = None,
    invariant: bool = False,
) -> "AnyPlan":
    """The plan of a call, cached: `plan_of(...)(*inputs)` computes the result, and
    `plan_of(...).kernels` names the kernels it launches.

    Only a new kind of call is checked: a cached plan means that a call like it has passed.

    Args:
        op: the operation to compute.
        inputs: its element tensors, all of one shape, then its row scalars, without `dim`.
        dim: the dimension to reduce; negative counts from the end.
        dtype: dtype of the result, to which the input is rounded first; the first input's by
            default.
        kernel: one of `triton_softmax.IMPLEMENTATIONS`, or None to choose.
        invariant: give a row the same bits in every batch.

    Raises:
        TypeError, IndexError, ValueError, RuntimeError: see `softmax`.
    """
    key = (op, dim, dtype, kernel, invariant)
    for t in inputs:  # `key_of`, inlined to save a Python call
        key += (t.dtype, t.shape, t.stride(), t.get_device(), t.data_ptr() & 15)
    plan = plans.get(key)
    if plan is None:
        plan = plans.keep(key, make_plan(op, inputs, dim, dtype, kernel, invariant))
    return plan


def run_one(
    op: Operation, x: Tensor, dim: int, dtype: Any, kernel: str | None, invariant: bool
) -> Any:
    """`plan_of(...)(x)`, in a single Python call if the plan is one launch for one result."""
    address = x.data_ptr()
    of_x = (x.dtype, x.shape, x.stride(), x.get_device(), address & 15)
    plan = plans.get((op, dim, dtype, kernel, invariant, *of_x))
    if plan is None:
        plan = plan_of(op, (x,), dim, dtype, kernel, invariant)
    if type(plan) is not Plan or not plan.alone or -1 != plan.index != current_device():
        return plan(x)
    out = empty_like(x) if plan.same else plan.empty()
    if plan.first.at is None:
        plan.first.run((x,), (out,))
    else:
        plan.first.at((address,), (out.data_ptr(),))
    return out


class Plan:
    """Prepared launches that take the tensors as they lie in memory.

    Args:
        launches: in order; more than one only if they share a workspace.
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
        self.first = launches[0]
        self.workspace = workspace
        self.same = outs[0] == (x.shape, x.dtype) and x.is_contiguous()
        self.empty, *self.further = [empty_of(shape, dtype, x) for shape, dtype in outs]
        self.index = cuda_index(x)
        self.alone = not (self.further or workspace)

    def __call__(
        self, *inputs: Tensor, out: Tensor | None = None, number: float | None = None
    ) -> Any:
        """Launch; return the result, or a tuple of several. The first goes to `out`, if given. A
        kernel that takes a number of each call takes it after the workspace."""
        index = self.index
        if index >= 0 and index != current_device():
            with torch.cuda.device(index):
                return self(*inputs, out=out, number=number)
        if out is None:
            out = empty_like(inputs[0]) if self.same else self.empty()
        outs = (out,)
        for empty in self.further:
            outs += (empty(),)
        at, workspace = self.first.at, self.workspace
        more = () if number is None else (number,)
        if at is None or (workspace is not None and self.launches[-1].at is None):
            words = () if workspace is None else (workspace.take(out.device),)
            for launch in self.launches:
                launch.run(inputs, outs, *words, *more)
            return outs if self.further else out
        # Most operations have one input and one result: this saves two Python calls.
        addresses = (inputs[0].data_ptr(),) if len(inputs) == 1 else addresses_of(inputs)
        results = (out.data_ptr(),) if len(outs) == 1 else addresses_of(outs)
        if workspace is None:
            at(addresses, results, *more)
        else:
            held, words = workspace.reserve(out.device)
            for launch in self.launches:
                launch.at(addresses, results, words, *more)
        return outs if self.further else out


class RankPlan(Plan):
    """The plan of a batch-invariant operation on the parts of rows that this rank has: between its
    launches the ranks tell each other the words of their chunks, in one message.

    With the words goes what each rank knows of the target logits: the second row scalar of a loss,
    or `picked`, which is returned after the results, summed up.

    Args:
        launches, x, outs: as of a `Plan`.
        cut: of the rows.
        shape: of the words in units of 32 bits, where the second dimension is that of chunks.
        dtype: of the words, as the kernel takes them.
        at: which input holds target logits, if one does.
    """

    def __init__(
        self, launches: Any, x: Tensor, outs: Any,
        cut: Any, shape: tuple[int, int, int], dtype: torch.dtype, at: int | None = None,
    ):  # fmt: skip
        super().__init__(launches, x, outs, Workspace(triton.cdiv(math.prod(shape), 2), False))
        self.cut, self.shape, self.dtype, self.at = cut, shape, dtype, at

    def __call__(
        self, *inputs: Tensor, out: Tensor | None = None, number: float | None = None,
        picked: Tensor | None = None,
    ) -> Any:  # fmt: skip
        """Launch, send, and launch; as a `Plan`."""
        x, workspace = inputs[0], cast(Workspace, self.workspace)
        if -1 != self.index != current_device():
            with torch.cuda.device(self.index):
                return self(*inputs, out=out, number=number, picked=picked)
        outs = (self.empty() if out is None else out, *[empty() for empty in self.further])
        words, n_words = workspace.take(x.device), math.prod(self.shape)
        more = () if number is None else (number,)
        self.launches[0].run(inputs, outs, words.view(self.dtype), *more)
        words = words.view(torch.int32)[:n_words]
        known = picked if self.at is None else inputs[self.at]
        if known is not None:
            words = torch.cat((words, known.float().flatten().view(torch.int32)))
        of_all = self.cut.exchange(words)
        words = of_all[:, :n_words].unflatten(1, self.shape)
        words = words.transpose(0, 1).flatten().view(self.dtype)  # chunks of a row side by side
        if known is not None:  # of one rank, and zeros
            of_all = of_all[:, n_words:].contiguous().view(torch.float32).sum(0)
            known = of_all.view(known.shape).to(known.dtype)
            if self.at is not None:
                inputs = (*inputs[: self.at], known, *inputs[self.at + 1 :])
        self.launches[1].run(inputs, outs, words, *more)
        outs += () if picked is None else (known,)
        return outs if len(outs) > 1 else outs[0]


def empty_of(shape: Any, dtype: torch.dtype, x: Tensor) -> Callable[[], Tensor]:
    """A function that allocates a contiguous tensor on the device of x. This is the form that takes
    PyTorch the least time: it has no keywords to read."""
    return partial(x.new_empty(0, dtype=dtype).new_empty_strided, shape, layout.strides_of(shape))


@dataclass(eq=False)
class ByPyTorch:
    """The plan of a call that PyTorch's operators compute, or before and after which they convert
    tensors.

    Args:
        what: names the conversion; None if there is none.
        plan: computes the result from the converted inputs: another plan, or a function.
        before: converts each input.
        after: converts the result, and also takes the original first input.
    """

    what: str | None
    plan: Callable[..., Any]
    before: Callable[[Tensor], Tensor] | None = None
    after: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self):
        self.kernels: tuple[str, ...] = getattr(self.plan, "kernels", ())
        self.launches: tuple[Launch, ...] = getattr(self.plan, "launches", ())

    def __call__(self, *inputs: Tensor, out: Tensor | None = None, **more: Any) -> Any:
        result = self.plan(*(inputs if self.before is None else map(self.before, inputs)), **more)
        result = result if self.after is None else self.after(result, inputs[0])
        if out is None:
            return result
        first, *others = result if isinstance(result, tuple) else (result,)
        return (out.copy_(first), *others) if others else out.copy_(first)


AnyPlan: TypeAlias = Plan | ByPyTorch


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
    implementation: str | None = None,
    invariant: bool = False,
) -> AnyPlan:
    """Check a call and plan all calls like it. The arguments are those of `plan_of`, the errors
    those of `softmax`; inputs may not differ in shape or device either."""
    x = inputs[0]
    dim = check_arguments(x, dim, dtype, implementation)
    check_device(x.device, implementation)
    dtype = dtype or x.dtype
    without = x.shape[:dim] + x.shape[dim + 1 :]
    shape = without if op.reduces else x.shape
    check_alike(x, *inputs[1 : op.inputs], shape=x.shape)
    check_alike(x, *inputs[op.inputs :], shape=without)
    if x.numel() == 0:
        # An empty result, or the log-sum-exp of empty rows.
        return ByPyTorch(None, lambda x, *_: x.new_full(shape, -math.inf, dtype=dtype))
    if x.device.type == "cpu" and implementation is None and not arguments.INTERPRETED:
        function = composite.KERNEL_OF[op]
        return ByPyTorch(None, lambda *inputs: function(*inputs, dim, dtype).contiguous())

    def around(what, before, dim, dtype, after=None):
        plan = make_plan(op, (*map(before, inputs),), dim, dtype, implementation, invariant)
        return ByPyTorch(what, plan, before, after)

    if x.dim() == 0:
        vector = *(each.reshape(1) for each in inputs[: op.inputs]), *inputs[op.inputs :]
        plan = make_plan(op, vector, 0, dtype, implementation, invariant)
        return ByPyTorch(
            "vector", plan, lambda t: t.reshape(1), lambda y, x: layout.own(y, x.shape)
        )
    floats = [each.dtype for each in inputs if each.dtype in DTYPES]
    if torch.float64 in (dtype, *floats):
        wide = dtype if len(inputs) == 1 else x.dtype
        if dtype != wide or any(each != wide for each in floats):
            return around("convert", lambda t: t.to(wide), dim, None, lambda y, _: y.to(dtype))
    outs = [torch.empty(shape, dtype=dtype, device="meta")]
    of_rows = arguments.accumulator(dtype)
    outs += [torch.empty(without, dtype=of_rows, device="meta")] * (op.results - 1)
    plan = _plan_launches(op, inputs, tuple(outs), dim, implementation, invariant)
    if plan is not None:
        return plan
    if implementation in (None, "strided"):
        return around("copy", layout.on_vectors, dim, dtype)
    return around(
        "matrix",
        lambda t: layout.on_vectors(layout.as_matrix(t, dim)),
        1,
        dtype,
        lambda y, x: layout.from_matrix(y, x.shape, dim),
    )


def traits_of(op: Operation) -> Traits:
    """Describe an operation to `config`."""
    keeps_terms = op.finish_terms is not None
    numbers = not op.reduces and op.finish_at is not None
    return Traits(
        op.inputs, keeps_terms, op.exp_in_finish, op.reduces, bool(op.any_order), numbers=numbers
    )


def _invariant(op: Operation, inputs: tuple[Tensor, ...], n_cols: int) -> Operation:
    """The batch-invariant variant of an operation for these tensors and rows of this length."""
    itemsize = min([each.element_size() for each in inputs[: op.inputs]])
    return in_any_order(op, space.group_of(n_cols, itemsize))


def _plan_launches(
    op: Operation,
    inputs: tuple[Tensor, ...],
    outs: tuple[Tensor, ...],
    dim: int,
    implementation: str | None = None,
    invariant: bool = False,
) -> Plan | None:
    """Choose a kernel and make its launches; None if no kernel supports the layout. `outs` are
    contiguous meta tensors."""
    x = inputs[0]
    n_cols, total = x.shape[dim], arguments.n_classes(x, dim, invariant)
    tensors = (*inputs, *outs)
    if invariant:
        op = _invariant(op, inputs, total)
    results = [(each.shape, each.dtype) for each in outs]
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
    traits, device = traits_of(op), device_of(x)
    if all(col_strides[i] == 1 for i in which) and len(groups) <= 1 and implementation != "strided":
        one_row = (1, *(n_cols if i in which else 1 for i in range(len(tensors))))
        n_rows, *steps = groups[0] if groups else one_row
        of_moved = tuple(steps[i] for i in which)
        if op.any_order and total > space.INVARIANT_TILE_COLS:
            # For equal bits, chunks must be aligned alike in all tensors and in every batch.
            if not all(layout.lies_on_vectors(each) for each in inputs if each.dim() == x.dim()):
                return None
        rows = rows_of(n_rows, total, itemsize, addresses, of_moved, held)
        choice = chosen(rows, traits, device, implementation)
        outer, inner = (n_rows, *steps), (1, *(0,) * len(steps))
    else:
        pair = layout.outer_and_inner(groups, len(strides))
        if pair is None or implementation not in (None, "strided") or total != n_cols:
            return None
        outer, inner = pair
        steps = tuple((outer[1 + i], col_strides[i], inner[1 + i]) for i in which)
        columns = columns_of(outer[0], n_cols, inner[0], itemsize, addresses, steps, held)
        choice = chosen(columns, traits, device)
    ranks = total // n_cols
    if ranks > 1:
        choice = choice._replace(
            how=choice.how._replace(wait=False, depth=0),
            n_chunks=choice.n_chunks // ranks, parts=choice.parts // ranks,
            max_programs=None, two_launches=True,
        )  # fmt: skip
        launches, _ = launches_of(op, choice, outer, n_cols, ranks=ranks)
        words = op.sums * outer[0], choice.n_chunks, 2
        at = op.inputs + 1 if op.numbers > 1 else None
        return RankPlan(launches, x, results, invariant, words, torch.int64, at)
    launches, workspace = launches_of(op, choice, outer, n_cols, col_strides, inner)
    return Plan(launches, x, results, workspace)


def launches_of(
    op: Operation,
    choice: Choice,
    outer: tuple[int, ...],
    n_cols: int,
    col_strides: tuple[int, ...] = (),
    inner: tuple[int, ...] = (),
    ranks: int = 1,
) -> tuple[tuple[Launch, ...], Workspace | None]:
    """The launches of a choice: one for each set of constants, which are two if chunks are
    published and written separately; and the words that they share.

    `outer` and `inner` hold a size, then the strides of the inputs and results. Row geometries take
    the rows as `outer`, and look at no other strides. The rows are parts of those of so many ranks.
    """
    how, kernel = choice.how, choice.kernel
    if isinstance(how, (RowTile, SplitRows)):
        n_rows, *strides = outer
        blocks = triton.cdiv(n_rows, how.block_rows) if isinstance(how, RowTile) else n_rows
        sizes = (n_rows, n_cols)
    else:
        how = cast(StridedTile | SplitStrided | TwoPass, how)
        strides = [*zip(outer[1:], col_strides, inner[1:], strict=True)]
        blocks = outer[0] * triton.cdiv(inner[0], how.block_inner)
        sizes = (n_cols, inner[0])
    grid, workspace = choice.programs(blocks), None
    numbers = (tuple(strides[: -op.results]), tuple(strides[-op.results :]), *sizes)
    if kernel == "split_rows":
        # A single launch polls for status words, so they must start as zeros; of two launches, the
        # first writes every word before the second reads.
        workspace = Workspace(op.sums * blocks * choice.n_chunks, zeroed=not choice.two_launches)
        parts = choice.n_chunks // choice.parts, n_cols // choice.parts, choice.n_chunks * ranks
        numbers += ((choice.n_chunks, choice.chunk_cols, *parts), space.MAX_POLLS)
    elif isinstance(how, SplitStrided):
        workspace = Workspace(op.sums * grid * how.block_inner, zeroed=True)
        numbers += (choice.n_chunks, space.MAX_POLLS)
    elif isinstance(how, TwoPass):
        n_words = (1 + op.sums) * grid * how.block_inner if choice.two_launches else 0
        workspace = Workspace(n_words, zeroed=False)
        numbers += (choice.n_chunks, choice.chunk_cols)
    options = {"num_warps": choice.num_warps}
    if op.any_order:
        # Multiply-adds fuse differently from kernel to kernel, which would change bits.
        options["enable_fp_fusion"] = False
    if choice.max_registers is not None:
        options["maxnreg"] = choice.max_registers
    launches = [
        Launch(GEOMETRIES[kernel], grid, numbers, {"OP": op, "HOW": each}, options)
        for each in choice.launches
    ]
    return tuple(launches), workspace


# Score modifiers. Masks, biases and scales are views expanded to the shape of x, with stride 0.

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
    of_mapped: torch.dtype | None = None,
    of_scale: bool = False,
    of_sink: bool = False,
    invariant: Any = False,
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Run an operation with score modifiers.

    Args:
        op: the operation.
        elements: its element tensors, all of one nonempty shape, with any strides.
        numbers: its row scalars, in that shape without `dim`.
        modifiers: scale, soft cap, bias and masks, in the order in which they apply.
        dim: the dimension of the rows, counted from the front.
        dtype: dtype of the result's elements, or of its row scalars if it has no elements.
        before, after: see `Maps`.
        x: the unmodified elements, if they are not among the operation's inputs.
        of_mapped: dtype of the gradient at the modified elements; None omits it.
        of_scale, of_sink: return the gradient at the scale, and what the sink's needs.
        invariant: give a row the same bits in every batch.
        out: where to write the elements of the result.

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
    maps = (
        before, after, kind, softcap or 0.0, bias is not None, where is not None, causal,
        sink is not None, safe, -math.inf if op in LOGARITHMS else 0.0, x is not None,
        of_mapped is not None, of_scale, of_sink,
    )  # fmt: skip
    optional = (x, bias, where, scale, sink)
    inputs = (*elements, *numbers, *[each for each in optional if each is not None])
    tensors = inputs if out is None else (*inputs, out)
    key = key_of((op, maps, dim, dtype, of_mapped, invariant, len(tensors)), tensors)
    plan = plans.get(key)
    if plan is None:
        more = (inputs, dim, dtype, of_mapped, invariant, out)
        plan = plans.keep(key, _plan_modified(op, Maps(*maps), *more))
    outs = plan(*inputs, out=out, number=factor)
    outs = outs if isinstance(outs, tuple) else (outs,)
    if of_scale:
        at = op.results + (of_mapped is not None)
        outs = (*outs[:at], outs[at].sum(0).unsqueeze(dim), *outs[at + 1 :])
    return outs


def _plan_modified(
    op: Operation,
    maps: Maps,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype,
    of_mapped: torch.dtype | None,
    invariant: Any,
    out: Tensor | None,
) -> Plan:
    """Plan an operation with score modifiers. The inputs are the operation's elements and row
    scalars, then those of x, bias, mask, scale and sink that `maps` has."""
    x, n_inputs = inputs[0], len(inputs)
    shape, total = x.shape, arguments.n_classes(x, dim, invariant)
    ranks = total // x.shape[dim]
    op = _invariant(op, inputs, total) if invariant else op
    without = shape[:dim] + shape[dim + 1 :]
    wide = arguments.accumulator(dtype)
    first_map = op.inputs + op.numbers
    of_rows = first_map + maps.x + maps.bias + maps.where
    # Whether each input, then each result, has elements along a row.
    along = [i < op.inputs or first_map <= i < of_rows for i in range(n_inputs)]
    views = [
        (t.unsqueeze(dim) if op.inputs <= i < first_map else t).expand(shape)
        for i, t in enumerate(inputs)
    ]
    results = [(True, dtype)] * (not op.reduces) + [(False, wide)] * op.row_results
    results += [(True, of_mapped or dtype)] * maps.of_mapped
    results += [(False, wide)] * (maps.of_scale + maps.of_sink)
    for elements, kind in results:
        result = torch.empty(shape if elements else without, dtype=kind, device="meta")
        views.append(result if elements else result.unsqueeze(dim).expand(shape))
        along.append(elements)
    if out is not None:
        views[n_inputs] = out
    n_cols = shape[dim]
    one_row = [(1,) * (1 + len(views))]
    groups = layout.collapse(shape, [view.stride() for view in views], dim)[::-1] or one_row
    n_rows = torch.Size([group[0] for group in groups]).numel()
    of_maps = [i for i in range(first_map + maps.x, n_inputs) if along[i]]
    moving = [g[0] for g in groups if any([g[1 + i] for i in of_maps])]
    rows_of_maps = torch.Size(moving).numel()
    bytes_of_maps = rows_of_maps * n_cols * sum([views[i].element_size() for i in of_maps])
    if bytes_of_maps > CACHED and not maps.causal:
        # Order rows so that those sharing a mask and bias are adjacent and hit the cache.
        groups.sort(key=lambda group: any([group[1 + i] for i in of_maps]))
    # A row of one element has no stride of its own. Row scalars have 0.
    steps = [
        (1 if n_cols == 1 else view.stride(dim)) if elements else 0
        for view, elements in zip(views, along, strict=True)
    ]
    of_elements = [i for i, elements in enumerate(along) if elements]
    adjacent = all([steps[i] <= 1 for i in of_elements])
    counts = [n_cols, *[group[1 + i] for group in groups for i in of_elements]]
    numeric = [views[i].element_size() for i in of_elements if views[i].dtype != torch.bool]
    addresses = tuple([views[i].data_ptr() for i in of_elements])
    masked = Masked(
        n_rows,
        total,
        sum([views[i].element_size() for i in of_elements if i < n_inputs]),
        vector_of_lines(min(numeric), addresses, tuple(counts)) if adjacent else 1,
        adjacent,
        wide_index=max(n_cols * max(1, *steps), 2 * n_rows) >= 2**31,
    )
    choice = chosen(masked, traits_of(op), device_of(x))
    choice = choice._replace(n_chunks=choice.n_chunks // ranks)
    outs: list[tuple[Any, torch.dtype]] = [(shape if e else without, kind) for e, kind in results]
    if maps.of_scale:
        at = op.results + maps.of_mapped
        steps[n_inputs + at] = n_rows
        outs[at] = (choice.n_chunks, *without), wide
    strides = tuple([(step, *[g[1 + i] for g in groups]) for i, step in enumerate(steps)])
    sizes = tuple([group[0] for group in groups])
    size = (n_rows, n_cols, shape[-2] if maps.causal else 1)
    chunks = (choice.n_chunks, choice.chunk_cols, choice.n_chunks * ranks)
    given = (strides[:n_inputs], strides[n_inputs:], sizes, size, chunks)
    # Multiply-adds may fuse in one place and not in another, which would change bits.
    options = {"num_warps": choice.num_warps, "enable_fp_fusion": False}
    block_rows = choice.how.block_rows  # pyright: ignore[reportAttributeAccessIssue]
    programs = triton.cdiv(n_rows, block_rows) * choice.n_chunks
    n_words = (1 + op.sums) * programs * block_rows if choice.two_launches else 0
    kernel, constants = masked_rows.masked_rows_kernel, {"OP": op, "MAPS": maps}
    launches = [
        Launch(kernel, programs, given, {**constants, "HOW": how}, options)
        for how in choice.launches
    ]
    if ranks > 1:
        size = programs // choice.n_chunks, choice.n_chunks, (1 + op.sums) * block_rows
        at = op.inputs + 1 if op.numbers > 1 else None
        return RankPlan(tuple(launches), x, outs, invariant, size, torch.float32, at)
    return Plan(tuple(launches), x, outs, Workspace(n_words, zeroed=False))


# The small kernels around a loss.

ELEMENTS = 4096
"""Elements per program of `finish`, 16 per thread. With half or twice as many, the gradient of
log-probabilities and entropies took 8 % and 12 % longer."""


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
    entropy: bool,
    invariant: Any,
    picked: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The log-probability of one token per row, the entropy of the row, and what
    `gradient_of_tokens` needs (3, …), in the accumulator dtype.

    Args:
        x: logits (…, C).
        scale, token, mask: of rows (…), each None if there is none. Without tokens the first result
            holds no values.
        factor: multiplies the logits, besides the scales.
        entropy: without it the second result holds no values.
        invariant: give a row the same bits in every batch.
        picked: if ranks have parts of the rows, what each knows of logits. Their sum is returned
            last.
    """
    given = token, mask, scale
    key, tensors = _key_and_tensors((run_tokens, entropy, invariant), (x, *given))
    plan = plans.get(key)
    if plan is None:
        plan = plans.keep(key, _plan_tokens(_given(*given, entropy), tensors, invariant))
    return plan(*tensors, number=factor, **({} if picked is None else {"picked": picked}))


def gradient_of_tokens(
    x: Tensor,
    scale: Tensor | None,
    token: Tensor | None,
    mask: Tensor | None,
    factor: float,
    saved: Tensor,
    g: Tensor,
    g_entropy: Tensor | None,
    of_scale: bool = False,
    out: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The gradient at the logits of `run_tokens`, from those at its results; and that at the scale
    of each row (…), if asked for. `out` is contiguous, and possibly the logits."""
    given = token, mask, scale
    head = (gradient_of_tokens, of_scale, out is None or out.data_ptr() & 15)
    key, tensors = _key_and_tensors(head, (x, *given, g, g_entropy, saved))
    plan = plans.get(key)
    if plan is None:
        has = _given(*given, g_entropy is not None)
        plan = plans.keep(key, _plan_gradient_of_tokens(has, tensors, of_scale))
    found = plan(*tensors, out=out, number=factor)
    return (found[0], found[1].sum(-1)) if of_scale else (found,)


def _key_and_tensors(
    head: tuple, given: tuple[Tensor | None, ...]
) -> tuple[tuple, tuple[Tensor, ...]]:
    """`key_of` a call, where None stands for what it lacks, and the tensors that it has."""
    tensors = ()
    for t in given:
        if t is None:
            head += (None,)
        else:
            head += (t.dtype, t.shape, t.stride(), t.get_device(), t.data_ptr() & 15)
            tensors += (t,)
    return head, tensors


def _given(token: Any, mask: Any, scale: Any, entropy: bool) -> Given:
    return Given(token is not None, mask is not None, scale is not None, entropy)


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


def _plan_tokens(has: Given, inputs: tuple[Tensor, ...], invariant: Any) -> AnyPlan:
    x = inputs[0]
    shape, total = x.shape[:-1], arguments.n_classes(x, -1, invariant)
    n_cols, ranks = x.shape[-1], total // max(1, x.shape[-1])
    seen = _as_two(inputs)
    if seen is None or (invariant and not layout.lies_on_vectors(x)):
        copies = tuple([layout.on_vectors(each) for each in inputs])
        return ByPyTorch("copy", _plan_tokens(has, copies, invariant), layout.on_vectors)
    steps, n_inner, vector, edges = seen
    if invariant and edges:  # rows start at different places of a vector
        vector, edges = 1, False
    n_rows = shape.numel()
    at_once = RESIDENT * device_of(x).multiprocessors
    n_chunks = max(1, min(at_once // n_rows, n_cols // SHORTEST))
    if invariant or n_cols >= 2**30:
        n_chunks = triton.cdiv(n_cols, 2 * SHORTEST)
    if invariant and space.parts_of(total) > 1:
        n_chunks = space.parts_of(total) // ranks
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
            token_rows.token_rows_kernel,
            n_rows * (n_chunks if each.publish else 1),
            (steps, n_inner, n_cols, n_chunks * (1 if each.publish else ranks), chunk_cols),
            {"GIVEN": has, "HOW": each},
            options,
        )
        for each in (halves if parts > 1 else [how])
    ]
    wide = arguments.accumulator(x.dtype)
    results = [(shape, wide), (shape, wide), ((3, *shape), wide)]
    if ranks > 1:
        words = n_rows, n_chunks, 3
        return RankPlan(tuple(launches), x, results, invariant, words, torch.float32)
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
        token_rows.token_gradient_kernel,
        n_rows * n_chunks,
        (steps, n_inner, n_cols, n_chunks),
        {"GIVEN": has, "VECTOR": 1 if edges else vector, "BLOCK": ELEMENTS},
        {"num_warps": 8},
    )
    results = [(x.shape, x.dtype)]
    results += [((*x.shape[:-1], n_chunks), arguments.accumulator(x.dtype))] * of_scale
    return Plan((launch,), x, results)


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
    n_cols = arguments.n_classes(x, dim, options.invariant)
    here = getattr(options.invariant, "start", 0), x.shape[dim]
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
                invariant=options.invariant, out=out,
            )  # fmt: skip
        inputs = (x, *numbers)
        main: Any = plan_of(op, inputs, options.dim, self.dtype, None, options.invariant)
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
