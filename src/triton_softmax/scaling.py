"""The launcher of `kernels.scale_rows`, and what takes its place on a CPU."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from . import checks
from .kernels.scale_rows import scale_rows_kernel

BLOCK = 16384
"""Elements of a program: many, since most programs only look at a number and end."""


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
    if any(factor.stride()) and not factor.is_contiguous():
        factor = factor.contiguous()
    n_outer, n_cols = math.prod(x.shape[:dim]), x.shape[dim]
    n_inner = x.numel() // (n_outer * n_cols)
    one_for_all = not any(factor.stride())
    outer_stride, inner_stride = (0, 0) if one_for_all else (n_inner, 1)
    one = one_for_all or n_inner == 1
    grid = n_outer, triton.cdiv(n_cols * n_inner, BLOCK)
    if grid[1] > 65535 or n_outer >= 2**31:
        x.mul_(factor.unsqueeze(dim))
        return
    with torch.cuda.device(x.device) if x.is_cuda else torch.no_grad():
        scale_rows_kernel[grid](
            x, factor, n_cols, n_inner, outer_stride, inner_stride, one, BLOCK, num_warps=8
        )
