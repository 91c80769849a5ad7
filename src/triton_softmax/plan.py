"""Plans: what a call does, decided once from the geometry of its tensors.

A plan is an object that runs a call and can be called again for every call of the same kind; its
`kernels` are the names of the kernels it launches, in this order. `make_plan` makes it. Only the
section `launches` knows what the kernels take.

The operations and their inputs: "softmax" and "log_softmax" take (x,), "softmax_backward" and
"log_softmax_backward" take (y, dy), "logsumexp" takes (x,), "logsumexp_backward" takes
(x, lse, dlse). The first input decides the shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor, empty_like

from . import heuristics
from .checks import check_alike, check_arguments, check_device
from .heuristics import Config, Device
from .kernels import (
    aligned_rows,
    logsumexp,
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

_RUNGS = {
    "naive": naive,
    "three_loops": three_loops,
    "two_loops": two_loops,
    "single_block": single_block,
}


# --8<-- [start:plans]
class Plan(Protocol):
    """What all plans have in common."""

    kernels: tuple[str, ...]

    def __call__(self, *inputs: Tensor) -> Tensor: ...


class Launches:
    """Launch kernels on the tensors as they are.

    Args:
        launches: in this order.
        workspace: what they take after the result, if anything.
        x: a tensor like the first input of all calls.
        dtype: of the result, which is contiguous and has the shape of x.
    """

    def __init__(
        self,
        launches: tuple[Launch, ...],
        workspace: Workspace | None,
        x: Tensor,
        dtype: torch.dtype,
    ):
        self.launches = launches
        self.only = launches[0] if len(launches) == 1 and workspace is None else None
        self.workspace = workspace
        self.like_input = dtype == x.dtype and x.is_contiguous()
        self.dtype = dtype
        self.index = cuda_index(x)
        self.kernels = tuple(launch.kernel.__name__ for launch in launches)

    def __call__(self, *inputs: Tensor) -> Tensor:
        index = self.index
        if index >= 0 and index != current_device():
            with torch.cuda.device(index):
                return self(*inputs)
        if self.like_input:
            out = empty_like(inputs[0])
        else:
            out = empty_like(inputs[0], dtype=self.dtype, memory_format=torch.contiguous_format)
        if self.only is not None:
            self.only.run((*inputs, out))
        else:
            words = () if self.workspace is None else (self.workspace.take(out.device),)
            for launch in self.launches:
                launch.run((*inputs, out, *words))
        return out


class CopyFirst:
    """Run another plan on contiguous copies of the inputs."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.kernels = plan.kernels

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.plan(*[each.contiguous() for each in inputs])


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
        return _own(self.plan(*[each.reshape(1) for each in inputs]), inputs[0].shape)


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


def _own(result: Tensor, shape: torch.Size) -> Tensor:
    """A contiguous result in another shape, and not as a view, which the caller could not change in
    place: PyTorch forbids that for views made inside an autograd function."""
    strides = torch.empty(shape, device="meta").stride()
    storage, offset = result.untyped_storage(), result.storage_offset()
    return result.new_empty(0).set_(storage, offset, shape, strides)


def as_matrix(tensor: Tensor, dim: int) -> Tensor:
    """`tensor` as (n_rows, n_cols) with adjacent columns; a view where possible."""
    matrix = tensor.movedim(dim, -1).reshape(-1, tensor.shape[dim])
    return matrix if matrix.stride(1) == 1 or matrix.shape[1] == 1 else matrix.contiguous()


def from_matrix(matrix: Tensor, shape: torch.Size, dim: int) -> Tensor:
    """The contiguous tensor of which `matrix` holds the rows along `dim`."""
    if matrix.shape == shape and dim == 1:
        return matrix
    moved = shape[:dim] + shape[dim + 1 :] + shape[dim : dim + 1]
    return _own(matrix.view(moved).movedim(-1, dim).contiguous(), shape)


# --8<-- [start:geometry]
def collapse(
    shape: tuple[int, ...], strides: list[tuple[int, ...]], dim: int
) -> list[tuple[int, ...]]:
    """The dimensions other than `dim`, joined where all tensors allow it.

    Args:
        shape: the common shape.
        strides: the strides of each tensor.
        dim: the softmax dimension, counted from the front.

    Returns:
        Groups (size, stride in each tensor), outermost first; none of size 1.

    >>> collapse((2, 3, 4, 5), [(60, 20, 5, 1)], 2)
    [(6, 20), (5, 1)]
    """
    groups: list[tuple[int, ...]] = []
    for i, size in enumerate(shape):
        if i == dim or size == 1:
            continue
        steps = tuple(s[i] for s in strides)
        if groups and all(
            outer == size * step for outer, step in zip(groups[-1][1:], steps, strict=True)
        ):
            groups[-1] = (groups[-1][0] * size, *steps)
        else:
            groups.append((size, *steps))
    return groups


# --8<-- [end:geometry]


def _outer_and_inner(groups: list[tuple[int, ...]], n_tensors: int) -> list[tuple[int, ...]] | None:
    """Exactly two groups, the one with the smaller stride in the first tensor last; None if there
    are more."""
    if len(groups) > 2:
        return None
    groups = [(1,) + (0,) * n_tensors] * (2 - len(groups)) + groups
    return groups if groups[0][1] >= groups[1][1] or groups[0][0] == 1 else groups[::-1]


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
        implementation: one of `triton_softmax.IMPLEMENTATIONS`, or None to choose. "three_loops"
            has no backward pass, and "two_loops" stands in.

    Raises:
        TypeError, IndexError, ValueError, RuntimeError: see `softmax`; the inputs do not have the
            same shape or device; or the implementation cannot take this shape.
    """
    x = inputs[0]
    dim = check_arguments(x, dim, dtype, implementation)
    if implementation != "naive":  # which is made of PyTorch's operators, and they run anywhere
        check_device(x.device)
    dtype = dtype or x.dtype
    without = x.shape[:dim] + x.shape[dim + 1 :]
    reduces = operation.startswith("logsumexp")
    backward = operation.endswith("backward")
    check_alike(x, *inputs[1:], shape=without if reduces else x.shape)
    if x.numel() == 0:
        return Filled(without if operation == "logsumexp" else x.shape, -math.inf, dtype)
    if x.dim() == 0:
        vector = tuple(each.reshape(1) for each in inputs)
        if operation == "logsumexp_backward":
            vector = (vector[0], *inputs[1:])
        return OfScalar(make_plan(operation, vector, 0, dtype, implementation))
    if reduces:
        return _plan_logsumexp(operation, inputs, dim)
    log = operation.startswith("log_")
    if backward and implementation == "three_loops":
        implementation = "two_loops"
    if implementation in _RUNGS:
        return _plan_rung(implementation, backward, log, dim, dtype)
    if torch.float64 in (dtype, *(each.dtype for each in inputs)):
        wide = x.dtype if backward else dtype
        if any(each.dtype != wide for each in inputs) or dtype != wide:
            converted = tuple(each.to(wide) for each in inputs)
            return Convert(make_plan(operation, converted, dim, None, implementation), wide, dtype)
    out = torch.empty(x.shape, dtype=dtype, device="meta")
    plan = _plan_launches((*inputs, out), dim, log, implementation)
    if plan is not None:
        return plan
    if implementation in (None, "strided"):
        contiguous = tuple(each.contiguous() for each in inputs)
        return CopyFirst(make_plan(operation, contiguous, dim, dtype, implementation))
    rows = tuple(as_matrix(each, dim).contiguous() for each in inputs)
    plan = CopyFirst(make_plan(operation, rows, 1, dtype, implementation))
    return OnMatrices(plan, dim, plan.kernels)


# --8<-- [end:make-plan]


def _plan_rung(
    implementation: str, backward: bool, log: bool, dim: int, dtype: torch.dtype
) -> Plan:
    direction = "backward" if backward else "forward"
    function = getattr(_RUNGS[implementation], f"softmax_{direction}")
    argument = {"in_dtype" if backward else "out_dtype": dtype}
    # The naive rung launches PyTorch's kernels and none of ours.
    name = f"softmax_{direction}_{implementation}_kernel"
    kernels = () if implementation == "naive" else (name,)
    return OnMatrices(lambda *rows: function(*rows, log=log, **argument), dim, kernels)


def _plan_launches(
    tensors: tuple[Tensor, ...], dim: int, log: bool, implementation: str | None
) -> Plan | None:
    """The plan for the inputs and the contiguous result, which has no data yet; None if no kernel
    takes their layout."""
    *inputs, out = tensors
    backward = len(inputs) == 2
    x = inputs[0]
    n_cols = x.shape[dim]
    strides = [each.stride() for each in tensors]
    groups = collapse(x.shape, strides, dim)
    itemsize = min(each.element_size() for each in tensors)
    held = max(each.element_size() for each in inputs)
    col_strides = tuple(1 if n_cols == 1 else s[dim] for s in strides)
    addresses = tuple(each.data_ptr() for each in tensors)  # new memory starts on a vector: 0
    device = _device_of(x)

    if all(s == 1 for s in col_strides) and len(groups) <= 1 and implementation != "strided":
        n_rows, *row_strides = groups[0] if groups else (1, *(n_cols,) * len(tensors))
        config = heuristics.choose_rows(
            n_rows,
            n_cols,
            itemsize,
            log=log,
            backward=backward,
            addresses=addresses,
            strides=tuple(row_strides),
            device=device,
            held=held,
            implementation=implementation,
        )
        if config.implementation == "two_loops":
            return _plan_rung("two_loops", backward, log, dim, out.dtype)
        geometry = (config, n_rows, n_cols, tuple(row_strides), log)
        if config.implementation == "split_rows":
            launches, workspace = split_launches(backward, *geometry, device.nvidia)
        else:
            launches, workspace = (tile_launch(backward, *geometry),), None
    else:
        pair = _outer_and_inner(groups, len(tensors))
        if pair is None or implementation not in (None, "strided"):
            return None
        n_inner, *inner_strides = pair[1]
        largest = max(
            (n_cols - 1) * c + (n_inner - 1) * i
            for c, i in zip(col_strides, inner_strides, strict=True)
        )
        vector = heuristics.vector_of_lines(
            itemsize, addresses, (n_inner, *pair[0][1:], *col_strides)
        )
        config = heuristics.strided_config(
            pair[0][0], n_cols, n_inner, held, largest, device, backward, vector
        )
        launches, workspace = strided_launches(backward, config, pair, col_strides, n_cols, log)
    return Launches(launches, workspace, x, out.dtype)


# --8<-- [start:launches]
def _options(config: Config) -> dict:
    options = {"num_warps": config.num_warps}
    if config.max_registers is not None:
        options["maxnreg"] = config.max_registers
    return options


def _kernel(module, backward: bool):
    name = module.__name__.rpartition(".")[2]
    return getattr(module, f"softmax_{'backward' if backward else 'forward'}_{name}_kernel")


def tile_launch(
    backward: bool, config: Config, n_rows: int, n_cols: int, strides: tuple[int, ...], log: bool
) -> Launch:
    """The launch of packed or aligned rows."""
    constants = {
        "LOG": log,
        "VECTOR": config.vector,
        "HOLD": config.hold,
        "BLOCK_ROWS": config.block_rows,
        "BLOCK_COLS": config.block_cols,
    }
    module = aligned_rows if config.implementation == "aligned_rows" else packed_rows
    return Launch(
        _kernel(module, backward),
        triton.cdiv(n_rows, config.block_rows),
        (*strides, n_rows, n_cols),
        constants,
        _options(config),
    )


# --8<-- [start:split-launch]
def split_launches(
    backward: bool,
    config: Config,
    n_rows: int,
    n_cols: int,
    strides: tuple[int, ...],
    log: bool,
    nvidia: bool,
) -> tuple[tuple[Launch, ...], Workspace]:
    """The launch of split rows, or two: publish, then write. One launch looks for words that are
    not there yet; of two, the first writes each word before the second looks."""
    numbers = (*strides, n_rows, n_cols, config.n_chunks, config.chunk_cols, heuristics.MAX_POLLS)
    threads = 32 * config.num_warps
    n_words = max(heuristics.next_power_of_2(config.n_chunks), threads)
    n_tasks = n_rows * config.n_chunks

    def launch(publish: bool, write: bool) -> Launch:
        constants = {
            "LOG": log,
            "VECTOR": config.vector,
            "EDGES": config.edges,
            "PAIRS": config.pairs,
            "HOLD": config.hold,
        }
        if not backward:
            constants["EXP"] = config.keep_exp
        constants |= {
            "AHEAD": config.ahead,
            "LAG": config.lag,
            "WAIT": nvidia and publish and write,
            "NAP": config.nap,
            "PUBLISH": publish,
            "WRITE": write,
            "BLOCK": config.block_cols,
            "WORDS": n_words,
            "LOOKS": n_words // threads,
        }
        return Launch(
            _kernel(split_rows, backward),
            min(n_tasks, config.max_programs or n_tasks),
            numbers,
            constants,
            _options(config),
        )

    steps = [(True, False), (False, True)] if config.two_pass else [(True, True)]
    launches = tuple(launch(publish, write) for publish, write in steps)
    return launches, Workspace(n_tasks, zeroed=not config.two_pass)


# --8<-- [end:split-launch]


# --8<-- [start:strided-launch]
def strided_launches(
    backward: bool,
    config: Config,
    groups: list[tuple[int, ...]],
    col_strides: tuple[int, ...],
    n_cols: int,
    log: bool,
) -> tuple[tuple[Launch, ...], Workspace | None]:
    """The launches of `strided`, of `split_strided`, or of `strided_loops`, once or to publish and
    to write."""
    n_outer, *outer = groups[0]
    n_inner, *inner = groups[1]
    strides = [step for steps in zip(outer, col_strides, inner, strict=True) for step in steps]
    n_groups = n_outer * triton.cdiv(n_inner, config.block_rows)
    constants = {"LOG": log}
    # Of strides that are multiples of 16 Triton sees it by itself.
    vector = config.vector if any(step % 16 for step in (n_inner, *outer, *col_strides)) else 1
    blocks = {
        "VECTOR": vector,
        "INDEX": tl.int64 if config.wide_index else tl.int32,
        "BLOCK_COLS": config.block_cols,
        "BLOCK_INNER": config.block_rows,
    }

    def launch(module, numbers: tuple[int, ...], constants: dict) -> Launch:
        return Launch(
            _kernel(module, backward),
            n_groups * config.n_chunks,
            (*strides, n_cols, n_inner, *numbers),
            constants | blocks,
            _options(config),
        )

    if config.loops:
        numbers = (config.n_chunks, config.chunk_cols)
        steps = (
            [{"PUBLISH": True, "WRITE": False}, {"PUBLISH": False, "WRITE": True}]
            if config.two_pass
            else [{"PUBLISH": True, "WRITE": True}]
        )
        # The second launch reads what the first has written; a single one reads nothing.
        n_words = 2 * n_groups * config.n_chunks * config.block_rows if config.two_pass else 1
        launches = tuple(launch(strided_loops, numbers, constants | step) for step in steps)
        return launches, Workspace(n_words, zeroed=False)
    if config.n_chunks == 1:
        only = constants if backward else constants | {"HOLD": config.hold}
        return (launch(strided, (), only),), None
    threads = 32 * config.num_warps
    chunks = max(
        heuristics.next_power_of_2(config.n_chunks), triton.cdiv(threads, config.block_rows)
    )
    constants |= {"HOLD": config.hold, "WAIT": True}
    blocks |= {"CHUNKS": chunks, "LOOKS": chunks * config.block_rows // threads}
    numbers = (config.n_chunks, heuristics.MAX_POLLS)
    n_words = n_groups * config.n_chunks * config.block_rows
    return (launch(split_strided, numbers, constants),), Workspace(n_words, zeroed=True)


# --8<-- [end:strided-launch]


# --8<-- [start:logsumexp-launches]
class ByRows:
    """Run a plan of log-sum-exp on the rows of x along `dim` and on contiguous numbers per row."""

    def __init__(self, plan: Plan, dim: int, spread: bool):
        self.plan = plan
        self.dim = dim
        self.spread = spread
        self.kernels = plan.kernels

    def __call__(self, x: Tensor, *per_row: Tensor) -> Tensor:
        result = self.plan(as_matrix(x, self.dim), *[each.contiguous() for each in per_row])
        return from_matrix(result, x.shape, self.dim) if self.spread else result


class LogsumexpForward:
    """Each row on one program, or on several that leave summaries for a second launch to merge.

    Args:
        first: the launch that reads x.
        merge: the launch that merges summaries, if there is one.
        n_summaries: how many it merges.
        shape: of the result.
        x: a tensor like the input of all calls.
    """

    def __init__(
        self, first: Launch, merge: Launch | None, n_summaries: int, shape: torch.Size, x: Tensor
    ):
        self.first = first
        self.merge = merge
        self.n_summaries = n_summaries
        self.shape = shape
        self.index = cuda_index(x)
        launches = (first,) if merge is None else (first, merge)
        self.kernels = tuple(launch.kernel.__name__ for launch in launches)

    def __call__(self, x: Tensor) -> Tensor:
        index = self.index
        if index >= 0 and index != current_device():
            with torch.cuda.device(index):
                return self(x)
        lse = x.new_empty(self.shape)
        if self.merge is None:
            self.first.run((x, lse, lse))
        else:
            dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
            m, d = x.new_empty((2, self.n_summaries), dtype=dtype).unbind()
            self.first.run((x, m, d))
            self.merge.run((m, d, lse))
        return lse


class LogsumexpBackward:
    """One launch, whose kernel takes dlse before x and lse."""

    def __init__(self, launch: Launch, x: Tensor):
        self.launch = launch
        self.index = cuda_index(x)
        self.kernels = (launch.kernel.__name__,)

    def __call__(self, x: Tensor, lse: Tensor, dlse: Tensor) -> Tensor:
        index = self.index
        if index >= 0 and index != current_device():
            with torch.cuda.device(index):
                return self(x, lse, dlse)
        dx = empty_like(x, memory_format=torch.contiguous_format)
        self.launch.run((dlse, x, lse, dx))
        return dx


def _plan_logsumexp(operation: str, inputs: tuple[Tensor, ...], dim: int) -> Plan:
    x, *per_row = inputs
    matrix = as_matrix(x, dim)
    in_place = matrix.data_ptr() == x.data_ptr()  # a view, of which a launch sees the address only
    if operation == "logsumexp":
        plan = _logsumexp_forward(matrix, x.shape[:dim] + x.shape[dim + 1 :])
        return plan if in_place else ByRows(plan, dim, spread=False)
    n_rows, n_cols = matrix.shape
    block_size = min(4096, heuristics.next_power_of_2(n_cols))
    n_chunks = triton.cdiv(n_cols, block_size)
    launch = Launch(
        logsumexp.logsumexp_backward_kernel,
        n_rows * n_chunks,
        (*matrix.stride(), n_cols, n_chunks),
        {"BLOCK_SIZE": block_size},
        {},
    )
    plan = LogsumexpBackward(launch, x)
    last = all(size == 1 for size in x.shape[dim + 1 :])
    if in_place and last and all(each.is_contiguous() for each in per_row):
        return plan
    return ByRows(plan, dim, spread=True)


def _logsumexp_forward(matrix: Tensor, shape: torch.Size) -> Plan:
    n_rows, n_cols = matrix.shape
    block_cols = min(8192, heuristics.next_power_of_2(n_cols))
    per_device = _device_of(matrix).multiprocessors
    n_chunks = min(triton.cdiv(n_cols, block_cols), 1024, max(1, 4 * per_device // n_rows))
    chunk_cols = triton.cdiv(triton.cdiv(n_cols, n_chunks), 16) * 16
    n_chunks = triton.cdiv(n_cols, chunk_cols)
    # Several short rows per program, unless there would be too few programs.
    at_most = heuristics.next_power_of_2(n_rows // (2 * per_device))
    block_rows = max(1, min(4096 // block_cols, at_most))

    def launch(finish: bool) -> Launch:
        return Launch(
            logsumexp.logsumexp_forward_kernel,
            triton.cdiv(n_rows, block_rows) * n_chunks,
            (*matrix.stride(), n_rows, n_cols, n_chunks, n_cols if finish else chunk_cols),
            {"FINISH": finish, "BLOCK_ROWS": block_rows, "BLOCK_COLS": block_cols},
            {"num_warps": 8 if block_cols == 8192 else 4},
        )

    if n_chunks == 1:
        return LogsumexpForward(launch(True), None, 0, shape, matrix)
    block = {"BLOCK_SIZE": heuristics.next_power_of_2(n_chunks)}
    merge = Launch(logsumexp.logsumexp_merge_kernel, n_rows, (n_chunks,), block, {})
    return LogsumexpForward(launch(False), merge, n_rows * n_chunks, shape, matrix)


# --8<-- [end:logsumexp-launches]
# --8<-- [end:launches]
