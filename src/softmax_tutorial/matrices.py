"""What every launcher does around the launch: check the matrix, allocate the result."""

from __future__ import annotations

import torch

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The types the kernels take. float64 is computed in float64, all others in float32."""


def check_rows(*tensors: torch.Tensor) -> tuple[int, int]:
    """The common (n_rows, n_cols) of matrices that a kernel can walk by rows.

    Raises:
        ValueError: a tensor is not a non-empty matrix of one of `DTYPES`, has columns that do not
            lie side by side, or has another shape than the first. The stride between rows is free,
            and 0 (an expanded row) is fine.
    """
    for tensor in tensors:
        if tensor.ndim != 2 or tensor.numel() == 0:
            raise ValueError(
                "a kernel takes a non-empty matrix (n_rows, n_cols), not a tensor of shape "
                f"{tuple(tensor.shape)}"
            )
        if tensor.dtype not in DTYPES:
            raise ValueError(
                f"a kernel takes float16, bfloat16, float32 or float64, not {tensor.dtype}"
            )
        if tensor.stride(1) != 1 and tensor.shape[1] > 1:
            raise ValueError(
                "a kernel takes rows whose elements lie side by side, not a column stride of "
                f"{tensor.stride(1)}"
            )
        if tensor.shape != tensors[0].shape:
            raise ValueError(
                f"the shapes differ: {tuple(tensors[0].shape)} and {tuple(tensor.shape)}"
            )
    n_rows, n_cols = tensors[0].shape
    return n_rows, n_cols


def result_like(x: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix of the same shape and dtype, uninitialised."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
