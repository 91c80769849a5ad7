"""The launcher of `kernels.scale_rows`, and what takes its place on a CPU."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from . import checks
from .kernels.scale_rows import scale_rows_kernel
from .launch import Launch, Memo, cuda_index, current_device

BLOCK = 8192
"""Elements of a chunk."""

PROGRAMS = 1024
"""As many as run at once on a large GPU: most of them only look at a number or two, and end."""

_launches = Memo()


def scale_rows(x: Tensor, factor: Tensor, dim: int) -> None:
    """Multiply x by a number for each row along `dim`, in place.

    Args:
        x: contiguous.
        factor: of the shape of x without `dim`; a single number may be expanded.
        dim: counts from the front.
    """
    if not x.numel():
        return
    if not x.is_cuda and not checks.INTERPRETED:
        if not bool((factor == 1).all()):
            x.mul_(factor.unsqueeze(dim))
        return
    index = cuda_index(x)
    if index >= 0 and index != current_device():
        with torch.cuda.device(index):
            return scale_rows(x, factor, dim)
    for_all = not any(factor.stride())
    factor = factor if for_all else factor.contiguous()
    alignment = x.data_ptr() & 15, factor.data_ptr() & 15
    key = (x.shape, x.dtype, factor.dtype, dim, for_all, index, *alignment)
    launch = _launches.of(key, lambda: _prepared(x, dim, for_all))
    if launch.grid:
        launch.run((factor,), (x,))
    else:
        x.mul_(factor.unsqueeze(dim))


def _prepared(x: Tensor, dim: int, for_all: bool) -> Launch:
    """The launch for tensors like these; of no program if there are more tasks than can be
    counted."""
    n_outer = 1 if for_all else math.prod(x.shape[:dim])
    length = x.numel() // n_outer
    n_inner = 1 if for_all else length // x.shape[dim]
    n_chunks = triton.cdiv(length, BLOCK)
    n_tasks = n_outer * n_chunks
    numbers = (length, n_inner, n_chunks, n_tasks)
    constants = {"FOR_ALL": for_all, "ONE": n_inner == 1, "BLOCK": BLOCK}
    grid = min(PROGRAMS, n_tasks) if n_tasks < 2**31 - PROGRAMS else 0
    return Launch(scale_rows_kernel, grid, numbers, constants, {"num_warps": 8})
