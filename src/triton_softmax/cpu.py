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


def _losses(x: Tensor, numbers: tuple[Tensor, ...], dim: int) -> tuple[Tensor, Tensor]:
    target, picked, r, z, *smoothing = numbers
    b, c = smoothing or (r, torch.zeros_like(r))
    x = _wide(x)
    m = x.amax(dim)
    log_d = (x - m.unsqueeze(dim)).exp().sum(dim).log()
    lse = m + log_d
    loss = r * log_d + b * (m - picked) + z * lse * lse
    if smoothing:
        loss = loss + (r - b) * m - c * x.sum(dim)
    kept = target >= 0
    return torch.where(kept, loss, z), torch.where(kept, lse, 0.0)


def _with_gradient(
    x: Tensor, numbers: tuple[Tensor, ...], dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    target, _, r, z, *smoothing = numbers
    b, c = smoothing or (r, torch.zeros_like(r))
    losses, lse = _losses(x, numbers, dim)
    dx = torch.softmax(_wide(x), dim) * (r + 2.0 * z * lse).unsqueeze(dim) - c.unsqueeze(dim)
    kept = (target >= 0).unsqueeze(dim)
    there = target.clamp(min=0).unsqueeze(dim)
    dx = torch.where(kept, dx, 0.0).scatter_add(dim, there, torch.where(kept, -b.unsqueeze(dim), 0))
    return dx.to(dtype), losses, lse


def cross_entropy(x: Tensor, *arguments):
    *numbers, dim, dtype = arguments
    losses, lse = _losses(x, tuple(numbers), dim)
    return losses.to(dtype), lse.to(dtype)


def cross_entropy_gradient(x: Tensor, *arguments):
    *numbers, dim, dtype = arguments
    return _with_gradient(x, tuple(numbers), dim, dtype)


cross_entropy_smoothed = cross_entropy
cross_entropy_smoothed_gradient = cross_entropy_gradient


def _distances(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """m, x − m, exp(x − m), and exp(x − m)·(x − m) where that is not 0."""
    x = _wide(x)
    m = x.amax(dim, keepdim=True)
    distance = torch.where(m == -torch.inf, x, x - m)
    e = distance.exp()
    return m, distance, e, torch.where(e == 0.0, 0.0, e * distance)


def statistics(x: Tensor, dim: int, dtype: torch.dtype):
    m, _, e, _ = _distances(x, dim)
    return m.squeeze(dim).to(dtype), e.sum(dim).log().to(dtype)


def entropy(x: Tensor, dim: int, dtype: torch.dtype):
    m, _, e, weighted = _distances(x, dim)
    d = e.sum(dim)
    return tuple(t.to(dtype) for t in (m.squeeze(dim), d.log(), d.log() - weighted.sum(dim) / d))
