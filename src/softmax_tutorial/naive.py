"""Softmax as PyTorch lines: no kernel of ours, and the rung below all the others.

Each line of [`softmax_naive_torch`][softmax_tutorial.reference.softmax_naive_torch] launches a
kernel of PyTorch's that reads its operands from memory and writes its result back. Here they stand
behind the same launchers as the kernels, so that they can be named and compared.

Source: the first version of the Triton tutorial "Fused Softmax".
"""

from __future__ import annotations

import torch

from softmax_tutorial import reference
from softmax_tutorial.matrices import check_rows


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def softmax_forward(x: torch.Tensor, *, log: bool = False) -> torch.Tensor:
    """Softmax along the rows of a matrix, one PyTorch operation after the other.

    Args:
        x: matrix (n_rows, n_cols).
        log: return log-softmax.

    Returns:
        A contiguous matrix of the same shape and dtype.

    Raises:
        ValueError: x is not such a matrix.
    """
    check_rows(x)
    softmax = reference.log_softmax_naive_torch if log else reference.softmax_naive_torch
    return softmax(x.to(_accumulator(x.dtype))).to(x.dtype).contiguous()


def softmax_backward(y: torch.Tensor, dy: torch.Tensor, *, log: bool = False) -> torch.Tensor:
    """Gradient at the input of a softmax along the rows of a matrix, one PyTorch operation after
    the other.

    Args:
        y: output of the forward pass, matrix (n_rows, n_cols).
        dy: gradient with respect to it, same shape.
        log: y is log-softmax.

    Returns:
        A contiguous matrix of the same shape and dtype.

    Raises:
        ValueError: y or dy is not such a matrix, or their shapes differ.
    """
    check_rows(y, dy)
    acc_dtype = _accumulator(y.dtype)
    vjp = reference.log_softmax_vjp_torch if log else reference.softmax_vjp_torch
    return vjp(y.to(acc_dtype), dy.to(acc_dtype)).to(y.dtype).contiguous()
