"""The operations by PyTorch's own operators, for CPU tensors where Triton compiles.

So a model, and the tests of a model, run where there is no GPU. Whoever wants to see the kernels
themselves there sets TRITON_INTERPRET=1. Each function takes the inputs of its operation, which
lie where they like, a dimension that counts from the front, and the dtype of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor

_aten = torch.ops.aten


def softmax(x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.softmax(x, dim, dtype)


def softmax_backward(y: Tensor, dy: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return _aten._softmax_backward_data.default(dy.to(y.dtype), y, dim, y.dtype).to(dtype)


def log_softmax(x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.log_softmax(x, dim, dtype)


def log_softmax_backward(y: Tensor, dy: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return _aten._log_softmax_backward_data.default(dy.to(y.dtype), y, dim, y.dtype).to(dtype)


def logsumexp(x: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.logsumexp(x, dim).to(dtype)


def logsumexp_backward(x: Tensor, dlse: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    m = x.amax(dim, keepdim=True)
    # Beside an infinite element the finite ones are 0, where softmax has no value.
    p = torch.where(m == torch.inf, (x - m).exp(), torch.softmax(x, dim))
    return (p * (dlse.unsqueeze(dim) if x.dim() else dlse)).to(dtype)
