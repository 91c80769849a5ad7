"""Every function with all its options, by PyTorch's operators: what tests compare with."""

import math
from typing import Any

import torch
from torch.nn import functional

INF, NAN = math.inf, math.nan


def mapped(x: torch.Tensor, scale: Any = 1.0, softcap: float | None = None) -> torch.Tensor:
    x = x * scale
    return x if softcap is None else softcap * torch.tanh(x / softcap)


def softmax_of(
    x, dim, log, *, safe, scale=1.0, softcap=None, bias=None, where=None, causal=False, **others
):
    sink = others.pop("sink", None)
    assert others.keys() <= {"dtype", "batch_invariant"}  # here it is always float64
    kept = torch.ones_like(x, dtype=torch.bool) if where is None else where.expand(x.shape)
    kept = kept.tril() if causal else kept
    z = mapped(x.masked_fill(~kept, 0.0), scale, softcap)
    z = (z if bias is None else z + bias).masked_fill(~kept, -INF)
    empty = -INF if log else 0.0
    dead = (z == -INF).all(dim, keepdim=True)
    if sink is not None:
        sink = torch.as_tensor(sink, dtype=z.dtype).expand(z.sum(dim, keepdim=True).shape)
        kept = kept & (sink != INF)  # which takes everything
        z = torch.cat([z, torch.where(sink == INF, 0.0, sink)], dim)
        dead = dead & (sink == -INF)
    z = torch.where(dead, 0.0, z) if safe else z
    y = (torch.log_softmax if log else torch.softmax)(z, dim).narrow(dim, 0, x.shape[dim])
    y = torch.where(kept, y, torch.where(dead, NAN, empty).to(y.dtype))
    return torch.where(dead, empty, y) if safe else y


def cross_entropy_of(
    x, target, *, z_loss=0.0, scale=1.0, softcap=None, return_lse=False, **options
):
    for unseen in ("loss_dtype", "inplace_backward", "batch_invariant"):
        options.pop(unseen, None)
    x = mapped(x, scale, softcap)
    loss = functional.cross_entropy(x, target, **options)
    lse = torch.logsumexp(x, min(1, x.dim() - 1))
    if not target.is_floating_point():
        kept = target != options.get("ignore_index", -100)
        lse = torch.where(kept, lse, 0.0)
        squares, reduction = z_loss * lse**2, options.get("reduction", "mean")
        loss = loss + (
            squares if reduction == "none" else squares.sum() / kept.sum() ** (reduction == "mean")
        )
    return (loss, lse.detach()) if return_lse else loss


def linear_of(x, layer, target, *, linear_bias=None, **options):
    logits = functional.linear(x, layer, linear_bias).movedim(-1, 1)
    return cross_entropy_of(logits, target, **options)


def tokens_of(
    x, index, *, temperature=1.0, return_entropy=False, row_mask=None, scale=1.0, softcap=None,
    **unseen,
):  # fmt: skip
    assert unseen.keys() <= {"inplace_backward", "batch_invariant"}
    rows = torch.ones_like(x[..., 0], dtype=torch.bool) if row_mask is None else row_mask != 0
    several = index.dim() == x.dim()
    columns = (index if several else index.unsqueeze(-1)).long().where(rows.unsqueeze(-1), 0)
    x = x.masked_fill(~rows.unsqueeze(-1), 0.0)
    y = torch.log_softmax(mapped(x, scale, softcap) / temperature, -1)
    found = y.gather(-1, columns).where(rows.unsqueeze(-1), 0.0).view(index.shape)
    entropy = entropy_of(y).where(rows, 0.0)
    return (found, entropy) if return_entropy else found


def entropy_of(y):
    return -(y.exp() * y.masked_fill(y == -INF, 0.0)).sum(-1)
