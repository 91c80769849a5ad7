"""The operations by PyTorch's own operators, for CPU tensors where Triton compiles.

So a model, and the tests of a model, run where there is no GPU. Whoever wants to see the kernels
themselves there sets TRITON_INTERPRET=1. Each function takes the inputs of its operation, which
lie where they like, a dimension that counts from the front, and the dtype of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _wide(t: Tensor) -> Tensor:
    """16-bit numbers are computed with in float32, as in the kernels."""
    return t.to(torch.promote_types(t.dtype, torch.float32))


def softmax(x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.softmax(x, dim, dtype)


def softmax_backward(y: Tensor, dy: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    y, dy = _wide(y), _wide(dy)
    return (y * (dy - (y * dy).sum(dim, keepdim=True))).to(dtype)


def log_softmax(x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.log_softmax(x, dim, dtype)


def log_softmax_backward(y: Tensor, dy: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    y, dy = _wide(y), _wide(dy)
    return (dy - y.exp() * dy.sum(dim, keepdim=True)).to(dtype)


def logsumexp(x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.logsumexp(x, dim).to(dtype)


def logsumexp_backward(x: Tensor, dlse: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    x, dlse = _wide(x), dlse.unsqueeze(dim) if x.dim() else dlse
    m = x.amax(dim, keepdim=True)
    # Beside an infinite element the finite ones are 0, where softmax has no value.
    p = torch.where(m == torch.inf, (x - m).exp(), torch.softmax(x, dim))
    return (p * dlse).to(dtype)
