"""The function that the rungs lead to, with its checks and its gradient."""

from __future__ import annotations

import math
from numbers import Real

import torch
import triton
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from softmax_tutorial.attention.backward import attention_backward
from softmax_tutorial.attention.descriptors import attention_descriptors
from softmax_tutorial.attention.in_memory import attention_in_memory
from softmax_tutorial.attention.split_keys import attention_split, chunk_of
from softmax_tutorial.attention.warp_groups import attention_warp_groups
from softmax_tutorial.attention.warp_groups_backward import attention_warp_groups_backward

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale · q kᵀ) v, without the matrix of scores.

    A query that sees no key gets 0. NaN and ∞ in a query stay in its row; those of a value may
    reach queries that do not see its key, since 0 · NaN is NaN. Memory is linear in the lengths,
    for gradients too. Strides are free; a tensor whose rows are no adjacent elements, or start at
    no multiples of 16 bytes, is copied. Gradients of gradients are not computed. On CPU tensors
    PyTorch's operators run, unless `TRITON_INTERPRET=1` lets the interpreter run the kernels.

    Args:
        q: queries (B, H, S, D) of float16, bfloat16 or float32, with D from 16 to 256.
        k: keys (B, H_kv, T, D) of the same dtype; each serves H / H_kv heads of queries.
        v: values, like k.
        causal: let query i see keys up to i + T − S: the last query sees all.
        scale: what inner products are multiplied by; by default 1 / √D.
        return_lse: return also lse, the logarithm of each query's sum of exponentials.

    Returns:
        o, like q; with `return_lse` also lse, float32 (B, H, S), through which gradients flow. It
        is −∞ for a query that sees no key. Results for two sets of keys merge with softmax of
        their two lse as weights.

    Raises:
        TypeError: an argument is no tensor, or not of these dtypes; `causal` is no bool, or
            `scale` no number.
        ValueError: shapes, dtypes or devices do not fit, or `scale` is not finite.
    """
    _check(q, k, v, causal, scale)
    factor = 1 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    if factor <= 0:  # kernels take the maximum, and mask, before they multiply
        q, factor = (-q, -factor) if factor else (0 * q, 1.0)
    interpreted = triton.knobs.runtime.interpret
    if q.is_cpu and not interpreted:
        o, lse = attention_in_memory(q, k, v, causal, factor)
    elif interpreted and q.dtype == torch.bfloat16:
        # The interpreter multiplies matrices of bfloat16 as if their bits were integers.
        o, lse = _Attention.apply(q.float(), k.float(), v.float(), causal, factor)
        o = o.bfloat16()
    else:
        o, lse = _Attention.apply(q, k, v, causal, factor)
    return (o, lse) if return_lse else o


def _check(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> None:
    """Refuse what `attention` does not take."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(x).__name__}")
        if x.dtype not in DTYPES:
            raise TypeError(f"{name} must be float16, bfloat16 or float32, not {x.dtype}")
        if x.dim() != 4 or not 16 <= x.shape[3] <= 256:
            raise ValueError(
                f"{name} must be (batch, heads, length, 16 to 256), not {tuple(x.shape)}"
            )
        if x.dtype != q.dtype or x.device != q.device:
            raise ValueError(
                f"{name} must be {q.dtype} on {q.device} as q is, not {x.dtype} on {x.device}"
            )
    for name, x in (("k", k), ("v", v)):
        if x.shape[0] != q.shape[0] or x.shape[3] != q.shape[3]:
            raise ValueError(
                f"{name} must agree with q {tuple(q.shape)} in the first and the last size, "
                f"not {tuple(x.shape)}"
            )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"k must have a number of heads that divides {q.shape[1]}, not {k.shape[1]}"
        )
    if v.shape != k.shape:
        raise ValueError(f"v must be {tuple(k.shape)} as k is, not {tuple(v.shape)}")
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be a bool, not {type(causal).__name__}")
    if scale is not None:
        if not isinstance(scale, Real) or isinstance(scale, bool):
            raise TypeError(f"scale must be a number, not {type(scale).__name__}")
        if not math.isfinite(scale):
            raise ValueError(f"scale must be finite, not {scale}")


def _by_groups(q: Tensor) -> bool:
    """Whether the kernels in Gluon take these tensors."""
    if not q.is_cuda or triton.knobs.runtime.interpret or torch.version.hip is not None:
        return False
    is_hopper = torch.cuda.get_device_properties(q.device).major == 9
    return is_hopper and q.dtype != torch.float32 and q.shape[3] <= 128


def _forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """The rung that is fastest for these tensors."""
    on_gpu = q.is_cuda and not triton.knobs.runtime.interpret
    programs = torch.cuda.get_device_properties(q.device).multi_processor_count if on_gpu else 1
    chunk = chunk_of(q, k, programs)
    if chunk:
        return attention_split(q, k, v, causal, scale, chunk)
    forward = attention_warp_groups if _by_groups(q) else attention_descriptors
    return forward(q, k, v, causal, scale)


class _Attention(Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, scale):
        if q.numel() == 0 or k.numel() == 0:
            o, lse = torch.zeros_like(q), q.new_full(q.shape[:3], -math.inf, dtype=torch.float32)
        else:
            with torch.cuda.device_of(q):
                o, lse = _forward(q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.arguments = causal, scale
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx, do, dlse):
        q, k, v, *_ = inputs = ctx.saved_tensors
        if q.numel() == 0 or k.numel() == 0:
            gradients = tuple(torch.zeros_like(each) for each in (q, k, v))
        else:
            backward = attention_warp_groups_backward if _by_groups(q) else attention_backward
            gradients = backward(inputs, do, dlse, *ctx.arguments)
        return *gradients, None, None
