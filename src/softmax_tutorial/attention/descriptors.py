"""Attention whose tiles the hardware copies: tensor descriptors, and loads some stages ahead.

A descriptor holds a tensor's address, shape and strides. One thread asks for a tile by its
coordinates; the copy into shared memory runs while the tensor cores work on the tiles before it,
takes no registers for addresses, and reads 0 outside the tensor. So every mask of a load or store
is gone. (GPUs without such hardware read the same tiles through pointers.)
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from softmax_tutorial.attention.tiles import Tile, addressable, described, empty
from triton_softmax.kernels.device.monoid import LOG2E


@triton.jit
def attention_descriptors_kernel(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    lse_ptr,
    scale_log2,
    CAUSAL: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIMS: tl.constexpr,
):
    """Attention for BLOCK_QUERIES queries of one head per program.

    Args:
        q_desc: queries (batch, heads, n_queries, head_dim), in tiles of BLOCK_QUERIES.
        k_desc: keys (batch, key heads, n_keys, head_dim), in tiles of BLOCK_KEYS.
        v_desc: values, likewise.
        o_desc: output, like the queries.
        lse_ptr: m + log d of each query, float32, contiguous (batch, heads, n_queries).
        scale_log2: what inner products are multiplied by, times log₂ e; at least 0.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        BLOCK_QUERIES, BLOCK_KEYS, BLOCK_DIMS: sizes of a tile, powers of two.
    """
    n_heads, n_queries, n_keys = q_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    # Consecutive programs share keys, which the cache then holds; the longest rows start first.
    n_tiles = tl.cdiv(n_queries, BLOCK_QUERIES)
    batch_head = tl.program_id(0) // n_tiles
    first_row = (n_tiles - 1 - tl.program_id(0) % n_tiles) * BLOCK_QUERIES
    batch, head = batch_head // n_heads, batch_head % n_heads
    key_head = head // (n_heads // k_desc.shape[1])
    rows = first_row + tl.arange(0, BLOCK_QUERIES)
    q = q_desc.load([batch, head, first_row, 0]).reshape(BLOCK_QUERIES, BLOCK_DIMS)

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
        for key in range(start, end, BLOCK_KEYS):
            k = k_desc.load([batch, key_head, key, 0]).reshape(BLOCK_KEYS, BLOCK_DIMS)
            scores = tl.dot(q, k.T, input_precision="ieee")
            if MASKED:
                keys = key + tl.arange(0, BLOCK_KEYS)
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
            v = v_desc.load([batch, key_head, key, 0]).reshape(BLOCK_KEYS, BLOCK_DIMS)
            a = tl.dot(p.to(v.dtype), v, a * old[:, None], input_precision="ieee")
            m = m_new

    # A query that sees no key has a = d = 0; its output is 0 and not 0 / 0.
    d_safe = tl.where(d == 0.0, 1.0, d)
    o = (a / d_safe[:, None]).to(o_desc.dtype)
    o_desc.store([batch, head, first_row, 0], o.reshape(1, 1, BLOCK_QUERIES, BLOCK_DIMS))
    lse = (m + tl.log2(d)) / LOG2E
    at = lse_ptr + batch_head.to(tl.int64) * n_queries + rows
    tl.store(at, lse, mask=rows < n_queries)


def choice(head_dim: int, dtype: torch.dtype) -> tuple[Tile, int, int]:
    """The tile, warps and stages that were fastest on an H100; float32 has smaller tiles, since
    products that are not rounded to 16 bits take registers."""
    dims = max(16, triton.next_power_of_2(head_dim))
    if dtype == torch.float32:
        return Tile(32 if dims < 256 else 16, 32, dims), 8, 1
    if dims <= 64:
        return Tile(64, 128, dims), 4, 2
    return (Tile(128, 128, dims), 8, 3) if dims == 128 else (Tile(128, 64, dims), 8, 2)


def attention_descriptors(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention and lse as `attention_in_memory` has them, by the kernel; a tensor that a
    descriptor cannot address is copied."""
    q, k, v = (addressable(each) for each in (q, k, v))
    batch, heads, n_queries, head_dim = q.shape
    o = empty(q.shape, q.dtype, q.device)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    tile, num_warps, num_stages = choice(head_dim, q.dtype)
    by_queries = (described(each, tile.queries, tile.dims) for each in (q, o))
    by_keys = (described(each, tile.keys, tile.dims) for each in (k, v))
    q_desc, o_desc = by_queries
    attention_descriptors_kernel[(triton.cdiv(n_queries, tile.queries) * batch * heads,)](
        q_desc, *by_keys, o_desc, lse, scale * math.log2(math.e),
        CAUSAL=causal, BLOCK_QUERIES=tile.queries, BLOCK_KEYS=tile.keys, BLOCK_DIMS=tile.dims,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o, lse
