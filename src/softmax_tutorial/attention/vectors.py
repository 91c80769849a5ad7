"""Attention on vectors in one loop over the keys, with the triple (m, d, a): no score reaches
memory.

The scalar kernel of `softmax_tutorial.flash_attention` with a matrix product in place of each
product, and nothing else: every tile of keys is masked, exponentials are those of the monoid.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from softmax_tutorial.attention.tiles import Tile
from triton_softmax.kernels.device.monoid import exp_shifted, merge


@triton.jit
def attention_vectors_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    group,
    n_queries,
    n_keys,
    head_dim,
    scale,
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
        scale: what inner products are multiplied by.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        TILE: queries, keys and dimensions of a tile, powers of two.
    """
    BLOCK_QUERIES: tl.constexpr = TILE.queries
    BLOCK_KEYS: tl.constexpr = TILE.keys
    BLOCK_DIMS: tl.constexpr = TILE.dims
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    dims = tl.arange(0, BLOCK_DIMS)
    in_head = (dims < head_dim)[None, :]
    q_at = (head * n_queries + rows)[:, None] * head_dim + dims[None, :]
    q_mask = (rows < n_queries)[:, None] & in_head
    q = tl.load(q_ptr + q_at, mask=q_mask, other=0.0)

    # eq: online-start
    m = tl.full((BLOCK_QUERIES,), float("-inf"), tl.float32)
    d = tl.zeros((BLOCK_QUERIES,), tl.float32)
    a = tl.zeros((BLOCK_QUERIES, BLOCK_DIMS), tl.float32)
    for start in range(0, n_keys, BLOCK_KEYS):
        keys = start + tl.arange(0, BLOCK_KEYS)
        k_at = (head // group * n_keys + keys)[:, None] * head_dim + dims[None, :]
        k_mask = (keys < n_keys)[:, None] & in_head
        k = tl.load(k_ptr + k_at, mask=k_mask, other=0.0)
        v = tl.load(v_ptr + k_at, mask=k_mask, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        seen = (keys < n_keys)[None, :]
        if CAUSAL:
            seen = seen & (keys[None, :] <= (rows + n_keys - n_queries)[:, None])
        scores = tl.where(seen, scores, float("-inf"))

        m_tile = tl.max(scores, axis=1)
        d_tile = tl.sum(exp_shifted(scores, m_tile[:, None]), axis=1)
        # eq: online-m, online-d
        m_new, d = merge(m, d, m_tile, d_tile)

        # eq: attention-accumulator
        p = exp_shifted(scores, m_new[:, None]).to(v.dtype)
        a = tl.dot(p, v, a * exp_shifted(m, m_new)[:, None], input_precision="ieee")
        m = m_new

    # A query that sees no key has a = d = 0; its output is 0 and not 0 / 0.
    d_safe = tl.where(d == 0.0, 1.0, d)
    o = a / d_safe[:, None]
    tl.store(o_ptr + q_at, o.to(o_ptr.dtype.element_ty), mask=q_mask)
    tl.store(lse_ptr + head * n_queries + rows, m + tl.log(d), mask=rows < n_queries)


def attention_vectors(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """Attention and lse as `attention_in_memory` has them, by the kernel; tensors are copied unless
    they are contiguous."""
    q, k, v = (each.contiguous() for each in (q, k, v))
    (batch, heads, n_queries, head_dim), n_keys = q.shape, k.shape[2]
    o = torch.empty_like(q)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    tile = tile or Tile(64, 64, triton.next_power_of_2(head_dim))
    attention_vectors_kernel[(triton.cdiv(n_queries, tile.queries), batch * heads)](
        q, k, v, o, lse, heads // k.shape[1], n_queries, n_keys, head_dim, scale,
        CAUSAL=causal, TILE=tile,
    )  # fmt: skip
    return o, lse
