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


def forward_operands(
    x: torch.Tensor, out_dtype: torch.dtype | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(x, y) for a forward kernel, y contiguous and uninitialised.

    The kernel rounds x to the type of y as it reads; only between float64 and the other types x is
    converted beforehand, so that a kernel computes either in float64 or in float32.
    """
    out_dtype = out_dtype or x.dtype
    if torch.float64 in (x.dtype, out_dtype):
        x = x.to(out_dtype)
    return x, torch.empty(x.shape, dtype=out_dtype, device=x.device)


def backward_operands(
    y: torch.Tensor, dy: torch.Tensor, in_dtype: torch.dtype | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(y, dy, dx) for a backward kernel, dx contiguous and uninitialised.

    dx has `in_dtype` unless float64 meets another type: then it has the type of y, and the launcher
    converts it afterwards.
    """
    in_dtype = in_dtype or y.dtype
    if torch.float64 in (y.dtype, dy.dtype, in_dtype):
        dy = dy.to(y.dtype)
        in_dtype = y.dtype
    return y, dy, torch.empty(y.shape, dtype=in_dtype, device=y.device)
