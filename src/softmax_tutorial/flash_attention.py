"""Attention with numbers for queries, keys and values, in one loop over the keys: the online
recurrence with one more running sum.

o_i = sum_j softmax_j(q_i·k_j)·v_j needs the scores of all keys for their maximum and denominator,
and again for the sum. The recurrence carries the sum along: whenever the maximum grows, what was
accumulated is rescaled just as the denominator is. No score reaches memory.

Source: Triton Puzzles 9 ("simple FlashAttention"). The puzzle's solutions write -10⁶ for -inf; here
it is -inf.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from softmax_tutorial.matrices import DTYPES
from triton_softmax.kernels.device.monoid import exp_shifted, merge


# --8<-- [start:forward]
@triton.jit
def attention_forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    n_queries,
    n_keys,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    """Attention for BLOCK_QUERIES scalar queries per program, in one loop over tiles of BLOCK_KEYS
    keys and values.

    Args:
        q_ptr: queries, n_queries numbers.
        k_ptr: keys, n_keys numbers.
        v_ptr: values, n_keys numbers.
        o_ptr: output, n_queries numbers.
        n_queries: number of queries.
        n_keys: number of keys and of values.
        BLOCK_QUERIES: queries per program, a power of two.
        BLOCK_KEYS: keys per tile, a power of two.
    """
    acc_type: tl.constexpr = tl.float64 if o_ptr.dtype.element_ty == tl.float64 else tl.float32
    queries = tl.program_id(0).to(tl.int64) * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    q = tl.load(q_ptr + queries, mask=queries < n_queries, other=0.0).to(acc_type)

    m = tl.full((BLOCK_QUERIES,), float("-inf"), acc_type)
    d = tl.zeros((BLOCK_QUERIES,), acc_type)
    a = tl.zeros((BLOCK_QUERIES,), acc_type)
    for start in range(0, n_keys, BLOCK_KEYS):
        keys = start + tl.arange(0, BLOCK_KEYS)
        k = tl.load(k_ptr + keys, mask=keys < n_keys, other=0.0).to(acc_type)
        v = tl.load(v_ptr + keys, mask=keys < n_keys, other=0.0).to(acc_type)
        scores = tl.where((keys < n_keys)[None, :], q[:, None] * k[None, :], float("-inf"))

        m_tile = tl.max(scores, axis=1)
        d_tile = tl.sum(exp_shifted(scores, m_tile[:, None]), axis=1)
        # eq: online-m, online-d
        m_new, d = merge(m, d, m_tile, d_tile)

        # eq: attention-accumulator
        a = a * exp_shifted(m, m_new) + tl.sum(
            exp_shifted(scores, m_new[:, None]) * v[None, :], axis=1
        )
        m = m_new

    o = a / d
    tl.store(o_ptr + queries, o.to(o_ptr.dtype.element_ty), mask=queries < n_queries)


# --8<-- [end:forward]


def attention_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    block_queries: int = 64,
    block_keys: int = 32,
) -> torch.Tensor:
    """Attention with scalar queries, keys and values: softmax(q[:, None] * k, dim=-1) @ v without
    the matrix.

    Args:
        q: queries, a contiguous vector (n_queries,).
        k: keys, a contiguous vector (n_keys,).
        v: values, a contiguous vector (n_keys,).
        block_queries: queries per program, a power of two.
        block_keys: keys per tile, a power of two.

    Returns:
        A vector (n_queries,) of the dtype of q.

    Raises:
        ValueError: an argument is not a non-empty contiguous vector of a floating-point dtype, the
            dtypes differ, or k and v differ in length.
    """
    for name, vector in (("q", q), ("k", k), ("v", v)):
        if vector.ndim != 1 or vector.numel() == 0 or not vector.is_contiguous():
            raise ValueError(
                f"attention takes a non-empty contiguous vector as {name}, not a tensor of shape "
                f"{tuple(vector.shape)}"
            )
        if vector.dtype not in DTYPES or vector.dtype != q.dtype:
            raise ValueError(
                "attention takes q, k and v of one floating-point dtype, not "
                f"{vector.dtype} as {name}"
            )
    if k.shape != v.shape:
        raise ValueError(
            f"attention takes one value per key, not {v.numel()} values for {k.numel()} keys"
        )
    o = torch.empty_like(q)
    grid = (triton.cdiv(q.numel(), block_queries),)
    attention_forward_kernel[grid](
        q, k, v, o, q.numel(), k.numel(), BLOCK_QUERIES=block_queries, BLOCK_KEYS=block_keys
    )
    return o
