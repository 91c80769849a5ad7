"""The launcher of `kernels.targets`, with everything but its pointers prepared once."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from .kernels.targets import targets_kernel
from .launch import Launch, cuda_index, current_device

MAX_ROWS = 1 << 17
"""Every program counts all targets; of more than these that would take longer than it saves."""

BLOCK = 1024

_launches: dict[tuple, Launch] = {}
_MAX_LAUNCHES = 1024


def as_three(x: Tensor, dim: int) -> tuple[int, int, int, int] | None:
    """(inner length, strides) of logits seen as (outer, classes, inner); None if they cannot be."""
    if x.dim() == 1:
        return 1, 0, x.stride(0), 0
    if x.dim() == 2 and dim == 1:
        return 1, x.stride(0), x.stride(1), 0
    if not x.is_contiguous():
        return None
    n_inner = math.prod(x.shape[dim + 1 :])
    return n_inner, x.shape[dim] * n_inner, n_inner, 1


def numbers_of_targets(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    dim: int,
    ignore_index: int,
    mean: bool,
    smoothing: float,
    z_loss: float,
) -> tuple[Tensor, Tensor] | None:
    """(marked targets, five numbers of each), the second with a first dimension of 5; None where
    the kernel does not do. See `targets_kernel`."""
    seen = as_three(x, dim)
    if seen is None or target.numel() > MAX_ROWS:
        return None
    index = cuda_index(x)
    if index >= 0 and index != current_device():
        return None
    inputs = (x, target.contiguous())
    if weight is not None:
        inputs += (weight.contiguous(),)
    key = (
        *((each.dtype, each.data_ptr() & 15) for each in inputs),
        (seen, target.numel(), x.shape[dim], ignore_index, mean, smoothing, z_loss, index),
    )
    launch = _launches.get(key)
    if launch is None:
        n_inner, *strides = seen
        n_rows = target.numel()
        if len(_launches) >= _MAX_LAUNCHES:
            _launches.clear()
        numbers = (tuple(strides), n_rows, x.shape[dim], n_inner, ignore_index)
        constants = {"SMOOTHING": smoothing, "Z_LOSS": z_loss, "MEAN": mean, "BLOCK": BLOCK}
        launch = Launch(targets_kernel, triton.cdiv(n_rows, BLOCK), numbers, constants, {})
        _launches[key] = launch
    marked = torch.empty(target.shape, dtype=torch.int64, device=x.device)
    accumulator = torch.promote_types(x.dtype, torch.float32)
    of_each = torch.empty((5, *target.shape), dtype=accumulator, device=x.device)
    launch.run(inputs, (marked, of_each))
    return marked, of_each
