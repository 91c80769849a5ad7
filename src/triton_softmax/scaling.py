"""The launcher of `kernels.scale_rows`, and what takes its place on a CPU."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from . import checks
from .kernels.scale_rows import scale_rows_kernel

BLOCK = 8192
"""Elements of a chunk."""

PROGRAMS = 1024
"""As many as run at once on a large GPU: most of them only look at a number or two, and end."""


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
    one_for_all = not any(factor.stride())
    if not one_for_all:
        factor = factor.contiguous()
    n_outer, n_cols = math.prod(x.shape[:dim]), x.shape[dim]
    length = x.numel() // n_outer
    n_inner = length // n_cols
    n_chunks = triton.cdiv(length, BLOCK)
    n_tasks = n_outer * n_chunks
    if n_tasks >= 2**31 - PROGRAMS:
        x.mul_(factor.unsqueeze(dim))
        return
    strides = (0, 0) if one_for_all else (n_inner, 1)
    one = one_for_all or n_inner == 1
    with torch.cuda.device(x.device) if x.is_cuda else torch.no_grad():
        scale_rows_kernel[(min(PROGRAMS, n_tasks),)](
            x, factor, length, n_inner, strides, n_chunks, n_tasks, one, BLOCK, num_warps=8
        )
