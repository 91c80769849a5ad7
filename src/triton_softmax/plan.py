"""Plans: what a call does, decided once from the geometry of its tensors.

A plan is an object that runs a call and can be called again for every call of the same kind; its
`kernels` are the names of the kernels it launches, in this order. `make_plan` makes it. Only the
section `launches` knows what the kernels take.

The operations and their inputs: "softmax" and "log_softmax" take (x,), "softmax_backward" and
"log_softmax_backward" take (y, dy), "logsumexp" takes (x,), "logsumexp_backward" takes (x, dlse).
The first input decides the shape; dlse lacks `dim`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
import triton
from torch import Tensor, empty_like

from . import checks, cpu
from .checks import BATCH_INVARIANT, check_alike, check_arguments, check_device
from .choose import Choice, Device, Traits, choose_rows, choose_strided, polling, row_tiles
from .choose.constants import RowTile, SplitStrided, StridedLoops, StridedTile
from .kernels import (
    aligned_rows,
    naive,
    packed_rows,
    single_block,
    split_rows,
    split_strided,
    strided,
    strided_loops,
    three_loops,
    two_loops,
)
from .launch import Launch, Workspace, cuda_index, current_device
from .layout import (
    as_matrix,
    collapse,
    from_matrix,
    lies_on_vectors,
    on_vectors,
    outer_and_inner,
    own,
)
from .operations.cross_entropy import (
    CROSS_ENTROPY,
    CROSS_ENTROPY_GRADIENT,
    CROSS_ENTROPY_SMOOTHED,
    CROSS_ENTROPY_SMOOTHED_GRADIENT,
)
from .operations.log_softmax import LOG_SOFTMAX, LOG_SOFTMAX_VJP
from .operations.logsumexp import LOGSUMEXP, LOGSUMEXP_VJP
from .operations.operation import Operation, in_any_order
from .operations.softmax import SOFTMAX, SOFTMAX_VJP
from .operations.tokens import ENTROPY, STATISTICS

OPERATIONS = {
    "softmax": SOFTMAX,
    "softmax_backward": SOFTMAX_VJP,
    "log_softmax": LOG_SOFTMAX,
    "log_softmax_backward": LOG_SOFTMAX_VJP,
    "logsumexp": LOGSUMEXP,
    "logsumexp_backward": LOGSUMEXP_VJP,
}

LOSSES = {
    "cross_entropy": CROSS_ENTROPY,
    "cross_entropy_smoothed": CROSS_ENTROPY_SMOOTHED,
    "cross_entropy_gradient": CROSS_ENTROPY_GRADIENT,
    "cross_entropy_smoothed_gradient": CROSS_ENTROPY_SMOOTHED_GRADIENT,
    "statistics": STATISTICS,
    "entropy": ENTROPY,
}
"""What stands around a softmax: operations with numbers of the row, among the inputs or the
results. With an underscore behind its name, one writes the elements over those of the input."""


def operation_of(name: str) -> Operation:
    """The operation of this name; in place or not."""
    return OPERATIONS.get(name) or LOSSES[name.removesuffix("_")]


_RUNGS = {
    "naive": naive,
    "three_loops": three_loops,
    "two_loops": two_loops,
    "single_block": single_block,
}

_SPELLED_OUT = ("softmax", "softmax_backward", "log_softmax", "log_softmax_backward")
"""What the rungs compute; all other operations are for geometries alone."""

GEOMETRIES = {
    "packed_rows": packed_rows.packed_rows_kernel,
    "aligned_rows": aligned_rows.aligned_rows_kernel,
    "split_rows": split_rows.split_rows_kernel,
    "strided": strided.strided_kernel,
    "split_strided": split_strided.split_strided_kernel,
    "strided_loops": strided_loops.strided_loops_kernel,
}


# --8<-- [start:plans]
class Plan(Protocol):
    """What all plans have in common."""

    kernels: tuple[str, ...]

    def __call__(self, *inputs: Tensor) -> Any: ...


class Launches:
    """Launch kernels on the tensors as they are.

    Args:
        launches: in this order; one, unless they share a workspace.
        workspace: what they take after the results, if anything.
        x: a tensor like the first input of all calls.
        outs: tensors like the results of all calls, contiguous.
        in_place: the first result takes the place of the first input.
    """

    def __init__(
        self,
        launches: tuple[Launch, ...],
        workspace: Workspace | None,
        x: Tensor,
        outs: tuple[Tensor, ...],
        in_place: bool = False,
    ):
        self.launches = launches
        self.first = launches[0]
        self.workspace = workspace
        out = outs[0]
        self.shape = out.shape
        self.in_place = in_place
        self.like_input = out.shape == x.shape
        self.same = self.like_input and out.dtype == x.dtype and x.is_contiguous()
        self.dtype = out.dtype
        self.further = [(each.shape, each.dtype) for each in outs[1:]]
        self.index = cuda_index(x)
        self.kernels = tuple(launch.kernel.__name__ for launch in launches)

    def __call__(self, *inputs: Tensor):
        index = self.index
        if index >= 0 and index != current_device():
            with torch.cuda.device(index):
                return self(*inputs)
        if self.in_place:
            out = inputs[0]
        elif self.same:
            out = empty_like(inputs[0])
        elif self.like_input:
            out = empty_like(inputs[0], dtype=self.dtype, memory_format=torch.contiguous_format)
        else:
            out = inputs[0].new_empty(self.shape, dtype=self.dtype)
        outs = (out,)
        if self.further:
            outs += (*(out.new_empty(shape, dtype=dtype) for shape, dtype in self.further),)
        if self.workspace is None:
            self.first.run(inputs, outs)
        else:
            words = self.workspace.take(out.device)
            for launch in self.launches:
                launch.run(inputs, outs, words)
        return outs if self.further else out


class ByPyTorch:
    """Call PyTorch's own operators: for a CPU tensor where Triton compiles."""

    kernels = ()

    def __init__(self, operation: str, dim: int, dtype: torch.dtype):
        self.function = getattr(cpu, operation.removesuffix("_"))
        self.arguments = dim, dtype
        self.in_place = operation.endswith("_")

    def __call__(self, *inputs: Tensor):
        result = self.function(*inputs, *self.arguments)
        if self.in_place:
            first, *others = result if isinstance(result, tuple) else (result,)
            inputs[0].copy_(first)
            return (inputs[0], *others) if others else inputs[0]
        if isinstance(result, tuple):
            return tuple([each.contiguous() for each in result])
        return result.contiguous()


class CopyFirst:
    """Run another plan on contiguous inputs that start on a vector: copies where they do not."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.kernels = plan.kernels

    def __call__(self, *inputs: Tensor):
        return self.plan(*map(on_vectors, inputs))


class Convert:
    """Run another plan on inputs of one dtype, and convert its result."""

    def __init__(self, plan: Plan, dtype: torch.dtype, out_dtype: torch.dtype):
        self.plan = plan
        self.dtype = dtype
        self.out_dtype = out_dtype
        self.kernels = plan.kernels

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.plan(*[each.to(self.dtype) for each in inputs]).to(self.out_dtype)


class OnMatrices:
    """Let a function work on the inputs as matrices whose rows lie along `dim`."""

    def __init__(self, function: Callable[..., Tensor], dim: int, kernels: tuple[str, ...]):
        self.function = function
        self.dim = dim
        self.kernels = kernels

    def __call__(self, *inputs: Tensor) -> Tensor:
        result = self.function(*[as_matrix(each, self.dim) for each in inputs])
        return from_matrix(result, inputs[0].shape, self.dim)


class OfScalar:
    """Run another plan on a 0-d tensor as on a vector of one element."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.kernels = plan.kernels

    def __call__(self, *inputs: Tensor) -> Tensor:
        return own(self.plan(*[each.reshape(1) for each in inputs]), inputs[0].shape)


class Filled:
    """Nothing goes in, so nothing is computed: the result is empty, or the sum over nothing."""

    kernels = ()

    def __init__(self, shape: torch.Size, value: float, dtype: torch.dtype):
        self.shape = shape
        self.value = value
        self.dtype = dtype

    def __call__(self, *inputs: Tensor) -> Tensor:
        return inputs[0].new_full(self.shape, self.value, dtype=self.dtype)


# --8<-- [end:plans]


def _device_of(tensor: Tensor) -> Device:
    if tensor.is_cuda:
        properties = torch.cuda.get_device_properties(tensor.device)
        return Device(properties.multi_processor_count, nvidia=torch.version.hip is None)
    return Device()


# --8<-- [start:make-plan]
def make_plan(
    operation: str,
    inputs: tuple[Tensor, ...],
    dim: int,
    dtype: torch.dtype | None,
    implementation: str | None,
) -> Plan:
    """Check a call and decide how to run it and all calls like it.

    Args:
        operation: one of those above.
        inputs: its tensors.
        dim: the dimension; negative counts from the end.
        dtype: of the result, to which the input is rounded first; by default that of the first
            input.
        implementation: one of `triton_softmax.IMPLEMENTATIONS`, or None to choose, or
            `BATCH_INVARIANT` to choose what gives a row the same bits in every batch.
            "three_loops" has no backward pass, and "two_loops" stands in.

    Raises:
        TypeError, IndexError, ValueError, RuntimeError: see `softmax`; the inputs do not have the
            same shape or device; or the implementation cannot take this shape.
    """
    x = inputs[0]
    dim = check_arguments(x, dim, dtype, implementation)
    check_device(x.device, implementation)
    dtype = dtype or x.dtype
    without = x.shape[:dim] + x.shape[dim + 1 :]
    op = operation_of(operation)
    shape = without if op.reduces else x.shape
    backward = operation in OPERATIONS and operation.endswith("backward")
    check_alike(x, *inputs[1 : op.inputs], shape=x.shape)
    check_alike(x, *inputs[op.inputs :], shape=without)
    if x.numel() == 0:
        return Filled(shape, -math.inf, dtype)
    chosen = implementation in (None, BATCH_INVARIANT)
    if x.device.type == "cpu" and chosen and not checks.INTERPRETED:
        return ByPyTorch(operation, dim, dtype)
    if x.dim() == 0:
        vector = *(each.reshape(1) for each in inputs[: op.inputs]), *inputs[op.inputs :]
        return OfScalar(make_plan(operation, vector, 0, dtype, implementation))
    if backward and implementation == "three_loops":
        implementation = "two_loops"
    if implementation in _RUNGS:
        if operation not in _SPELLED_OUT:
            raise ValueError(f"{implementation} is a rung that does not compute {operation}")
        return _plan_rung(implementation, operation, dim, dtype)
    if operation in OPERATIONS and torch.float64 in (dtype, *(each.dtype for each in inputs)):
        wide = x.dtype if backward else dtype
        if any(each.dtype != wide for each in inputs) or dtype != wide:
            converted = tuple(each.to(wide) for each in inputs)
            return Convert(make_plan(operation, converted, dim, None, implementation), wide, dtype)
    out = torch.empty(shape, dtype=dtype, device="meta")
    of_rows = torch.promote_types(dtype, torch.float32)
    numbers = torch.empty(without, dtype=of_rows, device="meta")
    outs = (out, *(numbers,) * (op.results - 1))
    plan = _plan_launches(operation, inputs, outs, dim, implementation)
    if plan is not None:
        return plan
    if chosen or implementation == "strided":
        contiguous = tuple(map(on_vectors, inputs))
        return CopyFirst(make_plan(operation, contiguous, dim, dtype, implementation))
    rows = tuple(as_matrix(each, dim).contiguous() for each in inputs)
    plan = CopyFirst(make_plan(operation, rows, 1, dtype, implementation))
    return OnMatrices(plan, dim, plan.kernels)


# --8<-- [end:make-plan]


def _plan_rung(implementation: str, operation: str, dim: int, dtype: torch.dtype) -> Plan:
    backward, log = operation.endswith("backward"), operation.startswith("log_")
    direction = "backward" if backward else "forward"
    function = getattr(_RUNGS[implementation], f"softmax_{direction}")
    argument = {"in_dtype" if backward else "out_dtype": dtype}
    # The naive rung launches PyTorch's kernels and none of ours.
    name = f"softmax_{direction}_{implementation}_kernel"
    kernels = () if implementation == "naive" else (name,)
    return OnMatrices(lambda *rows: function(*rows, log=log, **argument), dim, kernels)


def traits_of(op: Operation) -> Traits:
    """What a choice has to know of an operation."""
    keeps_terms = op.finish_terms is not None
    numbers = not op.reduces and op.finish_at is not None
    return Traits(
        op.inputs, keeps_terms, op.exp_in_finish, op.reduces, op.any_order, numbers=numbers
    )


def _plan_launches(
    operation: str,
    inputs: tuple[Tensor, ...],
    outs: tuple[Tensor, ...],
    dim: int,
    implementation: str | None,
) -> Plan | None:
    """The plan for the inputs and the contiguous results, which have no data yet; None if no kernel
    takes their layout."""
    op = operation_of(operation)
    in_place = operation.endswith("_")
    if implementation == BATCH_INVARIANT:
        op, implementation = in_any_order(op), None
    x = inputs[0]
    n_cols = x.shape[dim]
    tensors = (*inputs, *outs)
    # A tensor without the dimension does not move along it.
    strides = [
        each.stride() if each.dim() == x.dim() else each.unsqueeze(dim).expand(x.shape).stride()
        for each in tensors
    ]
    groups = collapse(x.shape, strides, dim)
    col_strides = tuple(1 if n_cols == 1 else s[dim] for s in strides)
    # What a choice has to know: of all tensors that are moved element by element.
    which = [i for i, each in enumerate(tensors) if each.dim() == x.dim()]
    moved = [tensors[i] for i in which]
    itemsize = min(each.element_size() for each in moved)
    facts = {
        "traits": traits_of(op),
        "addresses": tuple(each.data_ptr() for each in moved),  # new memory starts on a vector: 0
        "device": _device_of(x),
        "held": max(each.element_size() for each in inputs[: op.inputs]),
    }
    if all(col_strides[i] == 1 for i in which) and len(groups) <= 1 and implementation != "strided":
        one_row = (1, *(n_cols if i in which else 1 for i in range(len(tensors))))
        n_rows, *steps = groups[0] if groups else one_row
        of_moved = tuple(steps[i] for i in which)
        if op.any_order and n_cols > row_tiles.LONGEST_OF_FEW:
            # Chunks must lie alike in all tensors, and rows start where their number says.
            if not all(lies_on_vectors(each) for each in inputs if each.dim() == x.dim()):
                return None
        choice = choose_rows(
            n_rows, n_cols, itemsize, strides=of_moved, implementation=implementation, **facts
        )
        if choice.kernel != "strided_loops":
            launches, workspace = row_launches(op, choice, n_rows, n_cols, tuple(steps))
            return Launches(launches, workspace, x, outs, in_place)
        outer, inner = (n_rows, *steps), (1, *(0,) * len(steps))
    else:
        pair = outer_and_inner(groups, len(strides))
        if pair is None or implementation not in (None, "strided"):
            return None
        outer, inner = pair
        choice = choose_strided(
            outer[0],
            n_cols,
            inner[0],
            itemsize,
            outer_strides=tuple(outer[1 + i] for i in which),
            col_strides=tuple(col_strides[i] for i in which),
            inner_strides=tuple(inner[1 + i] for i in which),
            **facts,
        )
    launches, workspace = strided_launches(op, choice, outer, inner, col_strides, n_cols)
    return Launches(launches, workspace, x, outs, in_place)


def _launches(
    op: Operation, choice: Choice, grid: int, numbers: tuple[object, ...]
) -> tuple[Launch, ...]:
    """One launch for each of the choice's constants."""
    options = {"num_warps": choice.num_warps}
    if op.any_order:
        # Fused, a product would be rounded in one kernel and not in another.
        options["enable_fp_fusion"] = False
    if choice.max_registers is not None:
        options["maxnreg"] = choice.max_registers
    kernel = GEOMETRIES[choice.kernel]
    return tuple(
        Launch(kernel, grid, numbers, {"OP": op, "HOW": how}, options) for how in choice.launches
    )


def row_launches(
    op: Operation, choice: Choice, n_rows: int, n_cols: int, strides: tuple[int, ...]
) -> tuple[tuple[Launch, ...], Workspace | None]:
    """The launches of a geometry of rows; strides are those of the inputs, then of the results.

    Split rows need a word for each chunk. A single launch polls for words that are not there yet;
    of two, the first writes each word before the second looks.
    """
    numbers = (strides[: -op.results], strides[-op.results :], n_rows, n_cols)
    if isinstance(choice.how, RowTile):
        grid = choice.programs(triton.cdiv(n_rows, choice.how.block_rows))
        return _launches(op, choice, grid, numbers), None
    numbers += (choice.n_chunks, choice.chunk_cols, polling.MAX_POLLS)
    workspace = Workspace(op.sums * n_rows * choice.n_chunks, zeroed=not choice.two_launches)
    return _launches(op, choice, choice.programs(n_rows), numbers), workspace


def strided_launches(
    op: Operation,
    choice: Choice,
    outer: tuple[int, ...],
    inner: tuple[int, ...],
    col_strides: tuple[int, ...],
    n_cols: int,
) -> tuple[tuple[Launch, ...], Workspace | None]:
    """The launches of a strided geometry; outer and inner are a size, then the strides of the
    inputs and of the results."""
    (n_outer, *outer_strides), (n_inner, *inner_strides) = outer, inner
    strides = tuple(zip(outer_strides, col_strides, inner_strides, strict=True))
    block_inner = cast(StridedTile | SplitStrided | StridedLoops, choice.how).block_inner
    grid = choice.programs(n_outer * triton.cdiv(n_inner, block_inner))
    numbers = (strides[: -op.results], strides[-op.results :], n_cols, n_inner)
    if choice.kernel == "strided":
        return _launches(op, choice, grid, numbers), None
    if choice.kernel == "split_strided":
        numbers += (choice.n_chunks, polling.MAX_POLLS)
        workspace = Workspace(op.sums * grid * block_inner, zeroed=True)
        return _launches(op, choice, grid, numbers), workspace
    n_words = (1 + op.sums) * grid * block_inner if choice.two_launches else 1
    numbers += (choice.n_chunks, choice.chunk_cols)
    return _launches(op, choice, grid, numbers), Workspace(n_words, zeroed=False)
