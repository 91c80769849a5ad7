"""Attention with a cheaper exponential, and a mask for those tiles only that have an edge.

Two changes. Exponentials are powers of two, and scale·log₂ e is folded into the one fused
multiplication that also subtracts the maximum, so m is kept in that unit. And keys are parted in
two: tiles that every query of the program sees, which need no mask, then the tiles on the diagonal
and at the last key. Tiles beyond the diagonal are never read.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from softmax_tutorial.attention.tiles import Tile
from triton_softmax.kernels.device.monoid import LOG2E


@triton.jit
def attention_diagonal_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    group,
    n_queries,
    n_keys,
    head_dim,
    scale_log2,
    CAUSAL: tl.constexpr,
    TILE: tl.constexpr,
):
    """Attention for TILE.queries queries of one head per program.

    Args:
        q_ptr: queries, contiguous (heads, n_queries, head_dim), with all heads of a batch in a row.
        k_ptr: keys, contiguous (heads / group, n_keys, head_dim).
        v_ptr: values, likewise.
        o_ptr: output, like the queries.
        lse_ptr: m + log d of each query, float32 (heads, n_queries).
        group: heads of queries that share a head of keys.
        n_queries, n_keys, head_dim: sizes.
        scale_log2: what inner products are multiplied by, times log₂ e; at least 0.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        TILE: queries, keys and dimensions of a tile, powers of two.
    """
    BLOCK_QUERIES: tl.constexpr = TILE.queries
    BLOCK_KEYS: tl.constexpr = TILE.keys
    BLOCK_DIMS: tl.constexpr = TILE.dims
    head = tl.program_id(1).to(tl.int64)
    first_row = tl.program_id(0) * BLOCK_QUERIES
    rows = first_row + tl.arange(0, BLOCK_QUERIES)
    dims = tl.arange(0, BLOCK_DIMS)
    in_head = (dims < head_dim)[None, :]
    q_at = (head * n_queries + rows)[:, None] * head_dim + dims[None, :]
    q_mask = (rows < n_queries)[:, None] & in_head
    q = tl.load(q_ptr + q_at, mask=q_mask, other=0.0)

    # Keys before n_seen_by_all need no mask, those from n_seen on are seen by no query.
    shift = n_keys - n_queries
    n_seen = n_keys
    n_seen_by_all = n_keys
    if CAUSAL:
        n_seen = tl.minimum(n_keys, tl.maximum(0, first_row + BLOCK_QUERIES + shift))
        n_seen_by_all = tl.minimum(n_keys, tl.maximum(0, first_row + 1 + shift))
    n_seen_by_all = n_seen_by_all // BLOCK_KEYS * BLOCK_KEYS

    m = tl.full((BLOCK_QUERIES,), float("-inf"), tl.float32)
    d = tl.zeros((BLOCK_QUERIES,), tl.float32)
    a = tl.zeros((BLOCK_QUERIES, BLOCK_DIMS), tl.float32)
    for MASKED in tl.static_range(2):
        start = n_seen_by_all if MASKED else 0
        end = n_seen if MASKED else n_seen_by_all
        for start_of_tile in range(start, end, BLOCK_KEYS):
            keys = start_of_tile + tl.arange(0, BLOCK_KEYS)
            k_at = (head // group * n_keys + keys)[:, None] * head_dim + dims[None, :]
            k_mask = (keys < n_keys)[:, None] & in_head
            k = tl.load(k_ptr + k_at, mask=k_mask, other=0.0)
            v = tl.load(v_ptr + k_at, mask=k_mask, other=0.0)
            scores = tl.dot(q, k.T, input_precision="ieee")
            if MASKED:
                seen = (keys < n_keys)[None, :]
                if CAUSAL:
                    seen = seen & (keys[None, :] <= (rows + shift)[:, None])
                scores = tl.where(seen, scores, float("-inf"))

            # eq: online-m
            m_new = tl.maximum(m, tl.max(scores, axis=1) * scale_log2)
            m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
            # eq: exp2-identity
            p = tl.exp2(scores * scale_log2 - m_safe[:, None])
            old = tl.exp2(m - m_safe)
            # eq: online-d, attention-accumulator
            d = d * old + tl.sum(p, axis=1)
            a = tl.dot(p.to(v.dtype), v, a * old[:, None], input_precision="ieee")
            m = m_new

    # A query that sees no key has a = d = 0; its output is 0 and not 0 / 0.
    d_safe = tl.where(d == 0.0, 1.0, d)
    o = a / d_safe[:, None]
    tl.store(o_ptr + q_at, o.to(o_ptr.dtype.element_ty), mask=q_mask)
    lse = (m + tl.log2(d)) / LOG2E
    tl.store(lse_ptr + head * n_queries + rows, lse, mask=rows < n_queries)


def attention_diagonal(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """Attention and lse as `attention_in_memory` has them, by the kernel; tensors are copied unless
    they are contiguous."""
    q, k, v = (each.contiguous() for each in (q, k, v))
    (batch, heads, n_queries, head_dim), n_keys = q.shape, k.shape[2]
    o = torch.empty_like(q)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    tile = tile or Tile(64, 64, triton.next_power_of_2(head_dim))
    attention_diagonal_kernel[(triton.cdiv(n_queries, tile.queries), batch * heads)](
        q, k, v, o, lse, heads // k.shape[1], n_queries, n_keys, head_dim,
        scale * math.log2(math.e), CAUSAL=causal, TILE=tile,
    )  # fmt: skip
    return o, lse
