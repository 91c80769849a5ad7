"""From a call to a launch: the tensor's geometry, a `Choice` for it, and the prepared `Launch`.

All of that depends only on shape, strides, dtypes, device and alignment, so it is done once for
each combination and kept as a plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .choose import Choice, Device, Traits, choose_rows, choose_strided, polling
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
from .launch import Launch, current_device, words

_RUNGS = {
    "naive": naive,
    "three_loops": three_loops,
    "two_loops": two_loops,
    "single_block": single_block,
}

_plans: dict[tuple, Plan] = {}
_MAX_PLANS = 4096
_last = ""


def last_launch() -> list[str]:
    """Names of the implementations that the last call of this module launched, for tests."""
    return [_last]


def clear_plans() -> None:
    """Forget all prepared launches."""
    _plans.clear()


def _device_of(tensor: torch.Tensor) -> Device:
    if tensor.is_cuda:
        properties = torch.cuda.get_device_properties(tensor.device)
        return Device(properties.multi_processor_count, nvidia=torch.version.hip is None)
    return Device()


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


def _traits(log: bool, backward: bool) -> Traits:
    if backward:
        return Traits(inputs=2, exp_in_finish=log)
    return Traits(inputs=1, keeps_terms=not log, exp_in_finish=not log)


def _options(choice: Choice) -> dict:
    options = {"num_warps": choice.num_warps}
    if choice.max_registers is not None:
        options["maxnreg"] = choice.max_registers
    return options


def _tile_launch(
    kernel, choice: Choice, n_rows: int, n_cols: int, strides: tuple[int, ...], log: bool
) -> Launch:
    how = choice.how
    constants = {
        "LOG": log,
        "VECTOR": how.vector,
        "HOLD": how.barrier,
        "BLOCK_ROWS": how.block_rows,
        "BLOCK_COLS": how.block_cols,
    }
    return Launch(
        kernel,
        choice.programs(triton.cdiv(n_rows, how.block_rows)),
        (*strides, n_rows, n_cols),
        constants,
        _options(choice),
    )


# --8<-- [start:split-launch]
def _split_launches(
    kernel,
    choice: Choice,
    n_rows: int,
    n_cols: int,
    strides: tuple[int, ...],
    log: bool,
    forward: bool,
) -> tuple[Launch, ...]:
    """The launch, or two: publish, then write."""
    numbers = (*strides, n_rows, n_cols, choice.n_chunks, choice.chunk_cols, polling.MAX_POLLS)
    n_programs = choice.programs(n_rows)

    def constants(how) -> dict:
        kept = {"EXP": how.keep_terms} if forward else {}
        return kept | {
            "LOG": log,
            "VECTOR": how.vector,
            "EDGES": how.edges,
            "PAIRS": how.pairs,
            "HOLD": how.barrier,
            "AHEAD": how.depth >= 1,
            "LAG": how.depth == 2,
            "WAIT": how.wait,
            "NAP": how.backoff,
            "PUBLISH": how.publish,
            "WRITE": how.write,
            "BLOCK": how.block,
            "WORDS": how.words,
            "LOOKS": how.polls,
        }

    return tuple(
        Launch(kernel, n_programs, numbers, constants(how), _options(choice))
        for how in choice.launches
    )


# --8<-- [end:split-launch]


# --8<-- [start:strided-launch]
_STRIDED = {
    "strided": strided,
    "split_strided": split_strided,
    "strided_loops": strided_loops,
}


def _strided_launches(
    backward: bool,
    choice: Choice,
    groups: list[tuple[int, ...]],
    col_strides: tuple[int, ...],
    n_cols: int,
    log: bool,
) -> tuple[tuple[Launch, ...], int]:
    """(launches, words): of `strided`, of `split_strided`, or of `strided_loops`, once or to
    publish and to write."""
    n_outer, *outer = groups[0]
    n_inner, *inner = groups[1]
    strides = [step for steps in zip(outer, col_strides, inner, strict=True) for step in steps]
    direction = "backward" if backward else "forward"
    kernel = getattr(_STRIDED[choice.kernel], f"softmax_{direction}_{choice.kernel}_kernel")
    n_programs = choice.programs(n_outer * triton.cdiv(n_inner, choice.how.block_inner))
    more, n_words = {
        "strided": ((), 0),
        "split_strided": (
            (choice.n_chunks, polling.MAX_POLLS),
            n_programs * choice.how.block_inner,
        ),
        "strided_loops": (
            (choice.n_chunks, choice.chunk_cols),
            2 * n_programs * choice.how.block_inner if choice.two_launches else 1,
        ),
    }[choice.kernel]

    def constants(how) -> dict:
        constants = {
            "LOG": log,
            "VECTOR": how.vector,
            "INDEX": tl.int64 if how.wide_index else tl.int32,
            "BLOCK_COLS": how.block_cols,
            "BLOCK_INNER": how.block_inner,
        }
        if choice.kernel == "strided_loops":
            return constants | {"PUBLISH": how.publish, "WRITE": how.write}
        if choice.kernel == "split_strided":
            waiting = {"WAIT": how.wait, "CHUNKS": how.chunks, "LOOKS": how.polls}
            return constants | waiting | {"HOLD": how.barrier}
        return constants if backward else constants | {"HOLD": how.barrier}

    numbers = (*strides, n_cols, n_inner, *more)
    return tuple(
        Launch(kernel, n_programs, numbers, constants(how), _options(choice))
        for how in choice.launches
    ), n_words


# --8<-- [end:strided-launch]


def _outer_and_inner(groups: list[tuple[int, ...]], n_tensors: int) -> list[tuple[int, ...]] | None:
    """Exactly two groups, the one with the smaller stride in the first tensor last; None if there
    are more."""
    if len(groups) > 2:
        return None
    groups = [(1,) + (0,) * n_tensors] * (2 - len(groups)) + groups
    return groups if groups[0][1] >= groups[1][1] or groups[0][0] == 1 else groups[::-1]


def _as_matrix(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """`tensor` as (n_rows, n_cols) with adjacent columns; a view where possible."""
    matrix = tensor.movedim(dim, -1).reshape(-1, tensor.shape[dim])
    return matrix if matrix.stride(1) == 1 or matrix.shape[1] == 1 else matrix.contiguous()


def _on_matrices(
    name: str, function: str, tensors: tuple[torch.Tensor, ...], dim: int, **arguments
) -> torch.Tensor:
    """Let a rung of the ladder work on the tensors as matrices."""
    global _last
    _last = name
    matrices = (_as_matrix(tensor, dim) for tensor in tensors)
    return _from_matrix(
        getattr(_RUNGS[name], function)(*matrices, **arguments), tensors[0].shape, dim
    )


def _from_matrix(matrix: torch.Tensor, shape: torch.Size, dim: int) -> torch.Tensor:
    moved = shape[:dim] + shape[dim + 1 :] + shape[dim : dim + 1]
    return matrix.view(moved).movedim(-1, dim).contiguous()


# --8<-- [start:plan]
@dataclass(frozen=True)
class Plan:
    """How to run calls of one kind: the launches, or the name of a rung that takes matrices.

    Attributes:
        name: the implementation.
        launches: kernels to launch in this order; none if the rung's own launcher is called, or
            ("copy") a contiguous copy is needed first.
        n_words: zeroed words they need.
        like_input: the result has the dtype and the strides of the first tensor.
    """

    name: str
    launches: tuple[Launch, ...] = ()
    n_words: int = 0
    like_input: bool = False


def _plan(
    tensors: tuple[torch.Tensor, ...],
    out: torch.Tensor,
    dim: int,
    log: bool,
    implementation: str | None,
) -> Plan:
    """The plan for tensors of one shape and a contiguous result `out`.

    `tensors` is x (forward), or y and dy (backward).
    """
    backward = len(tensors) == 2
    direction = "backward" if backward else "forward"
    x = tensors[0]
    n_cols = x.shape[dim]
    every = (*tensors, out)
    strides = [tensor.stride() for tensor in every]
    groups = collapse(x.shape, strides, dim)
    itemsize = min(tensor.element_size() for tensor in every)
    col_strides = tuple(1 if n_cols == 1 else s[dim] for s in strides)
    like_input = out.dtype == x.dtype and out.stride() == x.stride()

    if all(s == 1 for s in col_strides) and len(groups) <= 1 and implementation != "strided":
        n_rows, *row_strides = groups[0] if groups else (1, *(n_cols,) * len(every))
        row_strides = tuple(row_strides)
        choice = choose_rows(
            n_rows,
            n_cols,
            itemsize,
            traits=_traits(log, backward),
            addresses=tuple(tensor.data_ptr() for tensor in every),
            strides=row_strides,
            device=_device_of(x),
            held=max(tensor.element_size() for tensor in tensors),
            implementation=implementation,
        )
        if choice.kernel == "two_loops":
            return Plan("two_loops")
        if choice.kernel == "split_rows":
            kernel = getattr(split_rows, f"softmax_{direction}_split_rows_kernel")
            launches = _split_launches(
                kernel, choice, n_rows, n_cols, row_strides, log, not backward
            )
            return Plan("split_rows", launches, n_rows * choice.n_chunks, like_input)
        module = aligned_rows if choice.kernel == "aligned_rows" else packed_rows
        kernel = getattr(module, f"softmax_{direction}_{choice.kernel}_kernel")
        launches = (_tile_launch(kernel, choice, n_rows, n_cols, row_strides, log),)
        return Plan(choice.kernel, launches, like_input=like_input)

    pair = _outer_and_inner(groups, len(every))
    if pair is None or implementation not in (None, "strided"):
        return Plan("copy")
    (n_outer, *outer_strides), (n_inner, *inner_strides) = pair
    choice = choose_strided(
        n_outer,
        n_cols,
        n_inner,
        itemsize,
        traits=_traits(log, backward),
        addresses=tuple(tensor.data_ptr() for tensor in every),
        outer_strides=tuple(outer_strides),
        col_strides=col_strides,
        inner_strides=tuple(inner_strides),
        device=_device_of(x),
        held=max(tensor.element_size() for tensor in tensors),
    )
    launches, n_words = _strided_launches(backward, choice, pair, col_strides, n_cols, log)
    return Plan("strided", launches, n_words, like_input)


def _remember(key: tuple, plan: Plan) -> Plan:
    global _last
    if len(_plans) >= _MAX_PLANS:
        _plans.clear()
    if plan.launches:
        _plans[key] = plan
    _last = plan.name
    return plan


def _run(plan: Plan, *tensors: torch.Tensor) -> None:
    if plan.n_words:
        with torch.cuda.device(
            tensors[0].get_device()
        ):  # whose current stream the words belong to; -1 changes nothing
            tensors = (*tensors, words.take(plan.n_words, tensors[0].device))
    for launch in plan.launches:
        launch(*tensors)


# --8<-- [end:plan]


# --8<-- [start:replay]
def replay_forward(
    x: torch.Tensor, dim: int, log: bool, out_dtype: torch.dtype | None, implementation: str | None
) -> torch.Tensor | None:
    """What `softmax_forward` returns, if a call like this one has been planned, checked and
    launched before; else None."""
    global _last
    address = x.data_ptr()
    plan = _plans.get(
        (
            x.shape,
            x.stride(),
            dim,
            x.dtype,
            out_dtype,
            log,
            implementation,
            x.get_device(),
            address & 15,
        )
    )
    if plan is None:
        return None
    _last = plan.name
    if plan.like_input:
        y = torch.empty_like(x)
    else:
        y = torch.empty_like(x, dtype=out_dtype, memory_format=torch.contiguous_format)
    launches = plan.launches
    index = x.get_device()
    if (
        index >= 0
        and index == current_device()
        and launches[0].launch is not None
        and launches[-1].launch is not None
    ):
        if plan.n_words:
            row_words = words.take(plan.n_words, x.device)
            for launch in launches:
                launch.repeat(index, (address, y.data_ptr(), row_words.data_ptr()))
        else:
            launches[0].repeat(index, (address, y.data_ptr()))
    else:
        _run(plan, x, y)
    return y


# --8<-- [end:replay]


# --8<-- [start:forward]
def softmax_forward(
    x: torch.Tensor,
    dim: int,
    *,
    log: bool = False,
    out_dtype: torch.dtype | None = None,
    implementation: str | None = None,
) -> torch.Tensor:
    """Softmax (log: its logarithm) of a non-empty tensor along `dim`.

    Args:
        x: any shape with at least one dimension, any strides.
        dim: the softmax dimension; negative counts from the end.
        log: return log-softmax.
        out_dtype: dtype of the result, to which x is rounded first; by default that of x.
        implementation: one of `triton_softmax.IMPLEMENTATIONS`, or None to choose.

    Returns:
        A contiguous tensor of the shape of x.

    Raises:
        ValueError: the implementation cannot take this shape.
    """
    y = replay_forward(x, dim, log, out_dtype, implementation)
    if y is not None:
        return y
    given_dim, dim = dim, dim % x.dim()
    if implementation in _RUNGS:
        return _on_matrices(
            implementation, "softmax_forward", (x,), dim, log=log, out_dtype=out_dtype
        )
    if torch.float64 in (x.dtype, out_dtype) and out_dtype not in (None, x.dtype):
        return softmax_forward(x.to(out_dtype), dim, log=log, implementation=implementation)
    y = torch.empty_like(x, dtype=out_dtype, memory_format=torch.contiguous_format)
    key = (
        x.shape,
        x.stride(),
        given_dim,
        x.dtype,
        out_dtype,
        log,
        implementation,
        x.get_device(),
        x.data_ptr() & 15,
    )
    plan = _remember(key, _plan((x,), y, dim, log, implementation))
    if plan.launches:
        _run(plan, x, y)
        return y
    if plan.name == "copy" and implementation in (None, "strided"):
        return softmax_forward(
            x.contiguous(), dim, log=log, out_dtype=out_dtype, implementation=implementation
        )
    if plan.name == "copy":
        matrix = _as_matrix(x, dim).contiguous()
        y = softmax_forward(matrix, 1, log=log, out_dtype=out_dtype, implementation=implementation)
        return _from_matrix(y, x.shape, dim)
    return _on_matrices(plan.name, "softmax_forward", (x,), dim, log=log, out_dtype=out_dtype)


# --8<-- [end:forward]


# --8<-- [start:backward]
def softmax_backward(
    y: torch.Tensor,
    dy: torch.Tensor,
    dim: int,
    *,
    log: bool = False,
    in_dtype: torch.dtype | None = None,
    implementation: str | None = None,
) -> torch.Tensor:
    """Gradient at the input of `softmax_forward` from its output and the gradient there.

    Args:
        y: output of the forward pass, non-empty, any strides.
        dy: gradient with respect to y, same shape, any strides.
        dim: the softmax dimension; negative counts from the end.
        log: y is log-softmax.
        in_dtype: dtype of the result; by default that of y.
        implementation: one of `triton_softmax.IMPLEMENTATIONS`, or None to choose; "three_loops"
            has no backward pass, and "two_loops" stands in.

    Returns:
        A contiguous tensor of the shape of y.

    Raises:
        ValueError: the implementation cannot take this shape.
    """
    global _last
    alignment = (y.data_ptr() & 15, dy.data_ptr() & 15)
    types = (y.dtype, dy.dtype, in_dtype)
    key = (
        y.shape,
        y.stride(),
        dy.stride(),
        dim,
        types,
        log,
        implementation,
        y.get_device(),
        alignment,
    )
    plan = _plans.get(key)
    if plan is not None:
        _last = plan.name
        if plan.like_input:
            dx = torch.empty_like(y)
        else:
            dx = torch.empty_like(y, dtype=in_dtype, memory_format=torch.contiguous_format)
        _run(plan, y, dy, dx)
        return dx
    dim %= y.dim()
    if implementation == "three_loops":
        implementation = "two_loops"
    if implementation in _RUNGS:
        return _on_matrices(
            implementation, "softmax_backward", (y, dy), dim, log=log, in_dtype=in_dtype
        )
    if torch.float64 in types and not y.dtype == dy.dtype == (in_dtype or y.dtype):
        return softmax_backward(y, dy.to(y.dtype), dim, log=log, implementation=implementation).to(
            in_dtype or y.dtype
        )
    dx = torch.empty_like(y, dtype=in_dtype, memory_format=torch.contiguous_format)
    plan = _remember(key, _plan((y, dy), dx, dim, log, implementation))
    if plan.launches:
        _run(plan, y, dy, dx)
        return dx
    if plan.name == "copy" and implementation in (None, "strided"):
        y, dy = y.contiguous(), dy.contiguous()
        return softmax_backward(
            y, dy, dim, log=log, in_dtype=in_dtype, implementation=implementation
        )
    if plan.name == "copy":
        matrices = _as_matrix(y, dim).contiguous(), _as_matrix(dy, dim).contiguous()
        dx = softmax_backward(
            *matrices, 1, log=log, in_dtype=in_dtype, implementation=implementation
        )
        return _from_matrix(dx, y.shape, dim)
    return _on_matrices(plan.name, "softmax_backward", (y, dy), dim, log=log, in_dtype=in_dtype)


# --8<-- [end:backward]


def logsumexp_forward(x: torch.Tensor, dim: int) -> torch.Tensor:
    """log(sum(exp(x))) of a non-empty tensor along `dim`, counted from the front; shape of x
    without `dim`, dtype of x."""
    global _last
    _last = "logsumexp"
    return logsumexp.logsumexp_forward(_as_matrix(x, dim), _device_of(x).multiprocessors).view(
        x.shape[:dim] + x.shape[dim + 1 :]
    )


def logsumexp_backward(
    dlse: torch.Tensor, x: torch.Tensor, lse: torch.Tensor, dim: int
) -> torch.Tensor:
    """Gradient of `logsumexp_forward` at x: dlse · exp(x - lse), contiguous."""
    global _last
    _last = "logsumexp"
    matrix = _as_matrix(x, dim)
    return _from_matrix(
        logsumexp.logsumexp_backward(dlse.reshape(-1), matrix, lse.reshape(-1)), x.shape, dim
    )
