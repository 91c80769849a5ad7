"""From a call to a launch: the tensor's geometry, a `Config` for it, and the prepared `Launch`.

All of that depends only on shape, strides, dtypes, device and alignment, so it is done once for each combination and kept as a plan.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from . import heuristics
from .heuristics import Config, Device
from .kernels import (
    aligned_rows,
    logsumexp,
    naive,
    packed_rows,
    single_block,
    split_rows,
    strided,
    three_loops,
    two_loops,
)
from .launch import INTERPRETED, Launch, words

_RUNGS = {"naive": naive, "three_loops": three_loops, "two_loops": two_loops, "single_block": single_block}

_plans: dict[tuple, object] = {}
_MAX_PLANS = 4096
_last: list[str] = []


def last_launch() -> list[str]:
    """Names of the implementations that the last call of this module launched, for tests."""
    return list(_last)


def clear_plans() -> None:
    """Forget all prepared launches."""
    _plans.clear()


def _device_of(tensor: torch.Tensor) -> Device:
    if tensor.is_cuda:
        properties = torch.cuda.get_device_properties(tensor.device)
        return Device(properties.multi_processor_count, nvidia=torch.version.hip is None)
    return Device()


# --8<-- [start:geometry]
def collapse(shape: tuple[int, ...], strides: list[tuple[int, ...]], dim: int) -> list[tuple[int, ...]]:
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
        if groups and all(outer == size * step for outer, step in zip(groups[-1][1:], steps, strict=True)):
            groups[-1] = (groups[-1][0] * size, *steps)
        else:
            groups.append((size, *steps))
    return groups
# --8<-- [end:geometry]


def _options(config: Config) -> dict:
    options = {"num_warps": config.num_warps}
    if config.max_registers is not None:
        options["maxnreg"] = config.max_registers
    return options


def _tile_launch(kernel, config: Config, n_rows: int, n_cols: int, strides: tuple[int, ...], log: bool) -> Launch:
    constants = {
        "LOG": log,
        "VECTOR": config.vector,
        "HOLD": config.hold,
        "BLOCK_ROWS": config.block_rows,
        "BLOCK_COLS": config.block_cols,
    }
    return Launch(kernel, triton.cdiv(n_rows, config.block_rows), (*strides, n_rows, n_cols), constants, _options(config))


# --8<-- [start:split-launch]
def _split_launches(kernel, config: Config, n_rows: int, n_cols: int, strides: tuple[int, ...], log: bool, forward: bool):
    """The launch, or two (publish, then write) if a row has more chunks than the device holds."""
    max_polls = -1 if INTERPRETED else heuristics.MAX_POLLS
    numbers = (*strides, n_cols, config.n_chunks, config.chunk_cols, max_polls)
    constants = {"LOG": log, "VECTOR": config.vector, "EDGES": config.edges, "PAIRS": config.pairs, "HOLD": config.hold}
    if forward:
        constants["EXP"] = config.keep_exp
    blocks = {
        "BLOCK": config.block_cols,
        "WORDS": max(heuristics.next_power_of_2(config.n_chunks), 64 * config.num_warps),
    }
    grid = n_rows * config.n_chunks
    write = Launch(kernel, grid, numbers, {**constants, "WRITE": True, **blocks}, _options(config))
    if not config.two_pass:
        return [write]
    return [Launch(kernel, grid, numbers, {**constants, "WRITE": False, **blocks}, _options(config)), write]
# --8<-- [end:split-launch]


def _strided_launch(kernel, config: Config, groups: list[tuple[int, ...]], col_strides: tuple[int, ...], n_cols: int, log: bool):
    n_outer, *outer = groups[0]
    n_inner, *inner = groups[1]
    numbers = []
    for o, c, i in zip(outer, col_strides, inner, strict=True):
        numbers += [o, c, i]
    constants = {
        "LOG": log,
        "WHOLE": config.whole,
        "INDEX": tl.int64 if config.wide_index else tl.int32,
        "BLOCK_COLS": config.block_cols,
        "BLOCK_INNER": config.block_rows,
    }
    grid = n_outer * triton.cdiv(n_inner, config.block_rows)
    return Launch(kernel, grid, (*numbers, n_cols, n_inner), constants, _options(config))


def _outer_and_inner(groups: list[tuple[int, ...]]) -> list[tuple[int, ...]] | None:
    """Exactly two groups, the one with the smaller stride in the first tensor last; None if there are more."""
    n_tensors = len(groups[0]) - 1 if groups else 0
    if len(groups) > 2:
        return None
    while len(groups) < 2:
        groups = [(1,) + (0,) * max(n_tensors, 3), *groups]
    return groups if groups[0][1] >= groups[1][1] or groups[0][0] == 1 else groups[::-1]


def _as_matrix(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """`tensor` as (n_rows, n_cols), softmax dimension last; a view where possible."""
    return tensor.movedim(dim, -1).reshape(-1, tensor.shape[dim])


def _from_matrix(matrix: torch.Tensor, shape: torch.Size, dim: int) -> torch.Tensor:
    moved = shape[:dim] + shape[dim + 1 :] + shape[dim : dim + 1]
    return matrix.view(moved).movedim(-1, dim).contiguous()


# --8<-- [start:plan]
def _plan(tensors: tuple[torch.Tensor, ...], out: torch.Tensor, dim: int, log: bool, implementation: str | None):
    """(name, launches, words needed) for tensors of one shape and a contiguous result, or the name of a rung that takes matrices.

    The first of `tensors` is x (forward), or they are y and dy (backward).
    """
    backward = len(tensors) == 2
    x = tensors[0]
    n_cols = x.shape[dim]
    every = (*tensors, out)
    strides = [tensor.stride() for tensor in every]
    groups = collapse(x.shape, strides, dim)
    itemsize = min(tensor.element_size() for tensor in every)
    col_strides = tuple(1 if n_cols == 1 else s[dim] for s in strides)
    direction = "backward" if backward else "forward"

    if all(s == 1 for s in col_strides) and len(groups) <= 1 and implementation != "strided":
        n_rows, *row_strides = groups[0] if groups else (1, *(n_cols,) * len(every))
        config = heuristics.choose_rows(
            n_rows,
            n_cols,
            itemsize,
            log=log,
            backward=backward,
            addresses=tuple(tensor.data_ptr() for tensor in every),
            strides=tuple(row_strides),
            device=_device_of(x),
            implementation=implementation,
        )
        if config.implementation == "two_loops":
            return "two_loops", None, 0
        if config.implementation == "split_rows":
            kernel = getattr(split_rows, f"softmax_{direction}_split_rows_kernel")
            launches = _split_launches(kernel, config, n_rows, n_cols, tuple(row_strides), log, not backward)
            return "split_rows", launches, n_rows * config.n_chunks
        module = aligned_rows if config.implementation == "aligned_rows" else packed_rows
        kernel = getattr(module, f"softmax_{direction}_{config.implementation}_kernel")
        return config.implementation, [_tile_launch(kernel, config, n_rows, n_cols, tuple(row_strides), log)], 0

    pair = _outer_and_inner(groups)
    if pair is None or implementation not in (None, "strided"):
        return "copy", None, 0
    largest = max((n_cols - 1) * c + (pair[1][0] - 1) * i for c, i in zip(col_strides, pair[1][1:], strict=False))
    config = heuristics.strided_config(n_cols, pair[1][0], itemsize, largest)
    kernel = getattr(strided, f"softmax_{direction}_strided_kernel")
    pair = [group[: len(every) + 1] for group in pair]
    return "strided", [_strided_launch(kernel, config, pair, col_strides, n_cols, log)], 0
# --8<-- [end:plan]


def _remember(key: tuple, plan):
    if len(_plans) >= _MAX_PLANS:
        _plans.clear()
    _plans[key] = plan
    return plan


# --8<-- [start:forward]
def softmax_forward(
    x: torch.Tensor, dim: int, *, log: bool = False, out_dtype: torch.dtype | None = None, implementation: str | None = None
) -> torch.Tensor:
    """Softmax (log: its logarithm) of a non-empty tensor along `dim`.

    Args:
        x: any shape with at least one dimension, any strides.
        dim: counted from the front.
        log: return log-softmax.
        out_dtype: dtype of the result, to which x is rounded first; by default that of x.
        implementation: one of `triton_softmax.IMPLEMENTATIONS`, or None to choose.

    Returns:
        A contiguous tensor of the shape of x.

    Raises:
        ValueError: the implementation cannot take this shape.
    """
    if implementation in _RUNGS:
        _last[:] = [implementation]
        return _from_matrix(_RUNGS[implementation].softmax_forward(_as_matrix(x, dim), log=log, out_dtype=out_dtype), x.shape, dim)
    out_dtype = out_dtype or x.dtype
    if (x.dtype == torch.float64) != (out_dtype == torch.float64):
        x = x.to(out_dtype)
    key = (x.shape, x.stride(), x.dtype, out_dtype, dim, log, implementation, x.get_device(), x.data_ptr() % 16)
    y = torch.empty_like(x, dtype=out_dtype, memory_format=torch.contiguous_format)
    plan = _plans.get(key) or _remember(key, _plan((x,), y, dim, log, implementation))
    name, launches, n_words = plan
    _last[:] = (name,)
    if n_words:
        row_words = words.take(n_words, x.device)
        for launch in launches:
            launch(x, y, row_words)
    elif launches:
        launches[0](x, y)
    elif name == "copy":
        if implementation in (None, "strided"):
            return softmax_forward(x.contiguous(), dim, log=log, implementation=implementation, out_dtype=out_dtype)
        matrix = _as_matrix(x, dim).contiguous()
        return _from_matrix(
            softmax_forward(matrix, 1, log=log, implementation=implementation, out_dtype=out_dtype), x.shape, dim
        )
    else:
        return _from_matrix(two_loops.softmax_forward(_as_matrix(x, dim), log=log, out_dtype=out_dtype), x.shape, dim)
    return y
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
        dim: counted from the front.
        log: y is log-softmax.
        in_dtype: dtype of the result; by default that of y.
        implementation: one of `triton_softmax.IMPLEMENTATIONS`, or None to choose.

    Returns:
        A contiguous tensor of the shape of y.

    Raises:
        ValueError: the implementation cannot take this shape.
    """
    if implementation == "three_loops":
        implementation = "two_loops"  # the rung has no backward pass of its own
    if implementation in _RUNGS:
        _last[:] = [implementation]
        return _from_matrix(
            _RUNGS[implementation].softmax_backward(_as_matrix(y, dim), _as_matrix(dy, dim), log=log, in_dtype=in_dtype),
            y.shape,
            dim,
        )
    in_dtype = in_dtype or y.dtype
    if torch.float64 in (y.dtype, dy.dtype, in_dtype) and not y.dtype == dy.dtype == in_dtype:
        return softmax_backward(y, dy.to(y.dtype), dim, log=log, implementation=implementation).to(in_dtype)
    key = (
        y.shape,
        y.stride(),
        dy.stride(),
        y.dtype,
        dy.dtype,
        in_dtype,
        dim,
        log,
        implementation,
        y.get_device(),
        y.data_ptr() % 16,
        dy.data_ptr() % 16,
    )
    dx = torch.empty_like(y, dtype=in_dtype, memory_format=torch.contiguous_format)
    plan = _plans.get(key) or _remember(key, _plan((y, dy), dx, dim, log, implementation))
    name, launches, n_words = plan
    _last[:] = (name,)
    if n_words:
        row_words = words.take(n_words, y.device)
        for launch in launches:
            launch(y, dy, dx, row_words)
    elif launches:
        launches[0](y, dy, dx)
    elif name == "copy":
        if implementation in (None, "strided"):
            y, dy = y.contiguous(), dy.contiguous()
            return softmax_backward(y, dy, dim, log=log, in_dtype=in_dtype, implementation=implementation)
        y2, dy2 = _as_matrix(y, dim).contiguous(), _as_matrix(dy, dim).contiguous()
        return _from_matrix(
            softmax_backward(y2, dy2, 1, log=log, in_dtype=in_dtype, implementation=implementation), y.shape, dim
        )
    else:
        return _from_matrix(
            two_loops.softmax_backward(_as_matrix(y, dim), _as_matrix(dy, dim), log=log, in_dtype=in_dtype), y.shape, dim
        )
    return dx
# --8<-- [end:backward]


def logsumexp_forward(x: torch.Tensor, dim: int) -> torch.Tensor:
    """log(sum(exp(x))) of a non-empty tensor along `dim`, counted from the front; shape of x without `dim`, dtype of x."""
    _last[:] = ["logsumexp"]
    return logsumexp.logsumexp_forward(_as_matrix(x, dim), _device_of(x).multiprocessors).view(
        x.shape[:dim] + x.shape[dim + 1 :]
    )


def logsumexp_backward(dlse: torch.Tensor, x: torch.Tensor, lse: torch.Tensor, dim: int) -> torch.Tensor:
    """Gradient of `logsumexp_forward` at x: dlse · exp(x - lse), contiguous."""
    _last[:] = ["logsumexp"]
    matrix = _as_matrix(x, dim)
    return _from_matrix(logsumexp.logsumexp_backward(dlse.reshape(-1), matrix, lse.reshape(-1)), x.shape, dim)
