"""The launcher of `kernels.targets`, with everything but its pointers prepared once."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from .kernels.targets import count_targets_kernel, targets_kernel
from .launch import Launch, Memo, cuda_index, current_device

MAX_ROWS = 1 << 24
"""Every program adds up what all have counted; of more that would take longer than it saves."""

BLOCK = 1024
"""Rows of a program."""

FEW = 8 * BLOCK
"""So many targets every program counts itself; of more, a launch before counts a part each."""

_launches = Memo()


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
    n_rows, device = target.numel(), x.device
    weights = () if weight is None else (weight.contiguous(),)
    inputs = (x, target.contiguous(), *weights)
    key = (
        *((each.dtype, each.data_ptr() & 15) for each in inputs),
        (seen, n_rows, x.shape[dim], ignore_index, mean, smoothing, z_loss, index),
    )
    programs = triton.cdiv(n_rows, BLOCK)

    def prepare() -> tuple[Launch, ...]:
        n_inner, *strides = seen
        count = "none" if not mean else "here" if n_rows <= FEW else "parts"
        numbers = (tuple(strides), n_rows, x.shape[dim], n_inner, ignore_index)
        constants = {"SMOOTHING": smoothing, "Z_LOSS": z_loss, "COUNT": count, "BLOCK": BLOCK}
        last = Launch(targets_kernel, programs, numbers, constants, {})
        if count != "parts":
            return (last,)
        numbers = (n_rows, ignore_index)
        return Launch(count_targets_kernel, programs, numbers, {"BLOCK": BLOCK}, {}), last

    launches = _launches.of(key, prepare)
    accumulator = torch.promote_types(x.dtype, torch.float32)
    marked = torch.empty(target.shape, dtype=torch.int64, device=device)
    of_each = torch.empty((5, *target.shape), dtype=accumulator, device=device)
    if len(launches) == 2:
        parts = torch.empty((2, programs), dtype=accumulator, device=device)
        launches[0].run(inputs, (parts,))
        inputs = (*inputs, parts)
    launches[-1].run(inputs, (marked, of_each))
    return marked, of_each
