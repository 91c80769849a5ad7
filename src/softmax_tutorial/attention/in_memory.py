"""Attention in PyTorch's lines: the scores of every query with every key are written to memory.

The first rung, what runs on CPU tensors, and what the other rungs are tested against.
"""

from __future__ import annotations

import torch
from torch import Tensor


def attention_in_memory(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention and the logarithm of its denominators, from a matrix of scores.

    Args:
        q: queries (B, H, S, D).
        k: keys (B, H_kv, T, D); H is a multiple of H_kv.
        v: values, like k.
        causal: query i sees keys up to i + T − S.
        scale: what inner products are multiplied by.

    Returns:
        o (B, H, S, D) of q's dtype, and lse (B, H, S); computed in float32, or float64 if q is.
    """
    n_queries, n_keys, group = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = (each.to(wide).repeat_interleave(group, dim=1) for each in (k, v))
    scores = q.to(wide) @ k.mT * scale
    if n_keys == 0:
        return torch.zeros_like(q), scores.sum(-1) - float("inf")
    if causal:
        seen = torch.ones(n_queries, n_keys, dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(~seen.tril(n_keys - n_queries), float("-inf"))
    # A row of −∞ alone would be NaN, and so would its gradient: it is set aside.
    sees_none = (scores == float("-inf")).all(-1, keepdim=True)
    scores = scores.masked_fill(sees_none, 0.0)
    o = (torch.softmax(scores, -1) @ v).masked_fill(sees_none, 0.0)
    lse = torch.logsumexp(scores, -1).masked_fill(sees_none[..., 0], float("-inf"))
    return o.to(q.dtype), lse
