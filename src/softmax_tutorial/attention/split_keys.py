"""Attention for few queries and many keys: keys are split among programs, whose results merge.

A model that writes a word has one query per head, too few for a program each to fill the GPU; and
the keys and values, read once, are all that takes time. So every program takes a chunk of the keys,
with all queries that share it. Attention over a chunk and its lse are a summary like (m, d): a
second kernel merges them.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from softmax_tutorial.attention.tiles import addressable, described, empty
from triton_softmax.kernels.device.monoid import LOG2E, exp_shifted


@triton.jit
def attention_chunk_kernel(
    q_desc,
    k_desc,
    v_desc,
    o_desc,
    lse_ptr,
    n_queries,
    chunk,
    scale_log2,
    CAUSAL: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIMS: tl.constexpr,
):
    """Attention of BLOCK_ROWS queries that share a head of keys over a chunk of these, a program.

    Args:
        q_desc: queries (batch, key heads, n_rows, head_dim), where a row is a query of one of the
            heads that share keys, in tiles of BLOCK_ROWS.
        k_desc: keys (batch, key heads, n_keys, head_dim), in tiles of BLOCK_KEYS.
        v_desc: values, likewise.
        o_desc: output for each chunk, float32 (batch · key heads, chunks, n_rows, head_dim).
        lse_ptr: m + log d likewise, contiguous (batch · key heads, chunks, n_rows).
        n_queries: rows that are of one head.
        chunk: keys of a chunk, a multiple of BLOCK_KEYS.
        scale_log2: what inner products are multiplied by, times log₂ e; at least 0.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        BLOCK_ROWS, BLOCK_KEYS, BLOCK_DIMS: sizes of a tile, powers of two.
    """
    n_key_heads, n_rows, n_keys = k_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    n_chunks = tl.cdiv(n_keys, chunk)
    n_tiles = tl.cdiv(n_rows, BLOCK_ROWS)
    part = tl.program_id(0) % n_chunks
    first_row = tl.program_id(0) // n_chunks % n_tiles * BLOCK_ROWS
    batch_head = tl.program_id(0) // n_chunks // n_tiles
    batch, head = batch_head // n_key_heads, batch_head % n_key_heads
    rows = first_row + tl.arange(0, BLOCK_ROWS)
    q = q_desc.load([batch, head, first_row, 0]).reshape(BLOCK_ROWS, BLOCK_DIMS)

    m = tl.full((BLOCK_ROWS,), float("-inf"), tl.float32)
    d = tl.zeros((BLOCK_ROWS,), tl.float32)
    a = tl.zeros((BLOCK_ROWS, BLOCK_DIMS), tl.float32)
    for key in range(part * chunk, tl.minimum((part + 1) * chunk, n_keys), BLOCK_KEYS):
        k = k_desc.load([batch, head, key, 0]).reshape(BLOCK_KEYS, BLOCK_DIMS)
        scores = tl.dot(q, k.T, input_precision="ieee")
        keys = key + tl.arange(0, BLOCK_KEYS)
        seen = (keys < n_keys)[None, :]
        if CAUSAL:
            seen = seen & (keys[None, :] <= (rows % n_queries + n_keys - n_queries)[:, None])
        scores = tl.where(seen, scores, float("-inf"))

        # eq: online-m
        m_new = tl.maximum(m, tl.max(scores, axis=1) * scale_log2)
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        # eq: exp2-identity
        p = tl.exp2(scores * scale_log2 - m_safe[:, None])
        old = tl.exp2(m - m_safe)
        # eq: online-d, attention-accumulator
        d = d * old + tl.sum(p, axis=1)
        v = v_desc.load([batch, head, key, 0]).reshape(BLOCK_KEYS, BLOCK_DIMS)
        a = tl.dot(p.to(v.dtype), v, a * old[:, None], input_precision="ieee")
        m = m_new

    # A query that sees no key of the chunk has a = d = 0; its output is 0 and not 0 / 0.
    o = a / tl.where(d == 0.0, 1.0, d)[:, None]
    o_desc.store([batch_head, part, first_row, 0], o.reshape(1, 1, BLOCK_ROWS, BLOCK_DIMS))
    at = (batch_head * n_chunks + part).to(tl.int64) * n_rows + rows
    tl.store(lse_ptr + at, (m + tl.log2(d)) / LOG2E, mask=rows < n_rows)


@triton.jit
def attention_merge_kernel(
    o_parts_ptr,
    lse_parts_ptr,
    o_ptr,
    lse_ptr,
    o_parts_row_stride,
    o_row_stride,
    n_rows,
    n_chunks,
    head_dim,
    BLOCK_CHUNKS: tl.constexpr,
    BLOCK_DIMS: tl.constexpr,
):
    """Merge what the chunks have for one row per program.

    Args:
        o_parts_ptr: output for each chunk, float32 (heads, n_chunks, n_rows) of rows.
        lse_parts_ptr: lse likewise, contiguous.
        o_ptr: output (heads, n_rows) of rows.
        lse_ptr: lse likewise, contiguous.
        o_parts_row_stride, o_row_stride: elements from one row to the next.
        n_rows, n_chunks, head_dim: sizes.
        BLOCK_CHUNKS, BLOCK_DIMS: powers of two, at least n_chunks and head_dim.
    """
    head = tl.program_id(0).to(tl.int64) // n_rows
    row = tl.program_id(0) % n_rows
    chunks = tl.arange(0, BLOCK_CHUNKS)
    dims = tl.arange(0, BLOCK_DIMS)
    at = (head * n_chunks + chunks) * n_rows + row
    lse_parts = tl.load(lse_parts_ptr + at, mask=chunks < n_chunks, other=float("-inf"))
    o_at = o_parts_ptr + at[:, None] * o_parts_row_stride + dims[None, :]
    o_mask = (chunks < n_chunks)[:, None] & (dims < head_dim)[None, :]
    o_parts = tl.load(o_at, mask=o_mask, other=0.0)

    # eq: attention-merge
    m = tl.max(lse_parts, axis=0)
    p = exp_shifted(lse_parts, m)
    d = tl.sum(p, axis=0)
    o = tl.sum(p[:, None] * o_parts, axis=0) / tl.where(d == 0.0, 1.0, d)
    to = o_ptr + (head * n_rows + row) * o_row_stride + dims
    tl.store(to, o.to(o_ptr.dtype.element_ty), mask=dims < head_dim)
    tl.store(lse_ptr + head * n_rows + row, m + tl.log(d))


def chunk_of(q: Tensor, k: Tensor, multiprocessors: int) -> int:
    """Keys of a chunk, for about two programs on each multiprocessor; 0 where there are programs
    enough without a split, or so many queries that each chunk would be read again and again.

    >>> q, k = torch.empty(1, 8, 1, 128), torch.empty(1, 8, 65_536, 128)
    >>> chunk_of(q, k, 132), chunk_of(q.expand(64, 8, 1, 128), k.expand(64, 8, 65_536, 128), 132)
    (2048, 0)
    """
    heads = k.shape[0] * k.shape[1]
    n_rows = q.shape[1] // k.shape[1] * q.shape[2]
    if n_rows > 64 or heads > multiprocessors or k.shape[2] < 1024:
        return 0
    n_chunks = min(-(-2 * multiprocessors // heads), 128, k.shape[2] // 256)
    return -(-k.shape[2] // n_chunks // 64) * 64


def attention_split(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, chunk: int
) -> tuple[Tensor, Tensor]:
    """Attention and lse as `attention_in_memory` has them, by one program for each `chunk` of keys,
    a multiple of 64."""
    k, v = addressable(k), addressable(v)
    batch, heads, n_queries, head_dim = q.shape
    key_heads, n_keys = k.shape[1:3]
    n_rows, n_chunks = heads // key_heads * n_queries, triton.cdiv(n_keys, chunk)
    q = addressable(q.reshape(batch, key_heads, n_rows, head_dim))
    o = empty(q.shape, q.dtype, q.device)
    o_parts = empty((batch * key_heads, n_chunks, n_rows, head_dim), torch.float32, q.device)
    lse_parts = o_parts.new_empty(o_parts.shape[:3])
    lse = o_parts.new_empty(batch, heads, n_queries)
    rows = 16 if n_rows <= 16 else 64
    dims = max(16, triton.next_power_of_2(head_dim))
    attention_chunk_kernel[(n_chunks * triton.cdiv(n_rows, rows) * batch * key_heads,)](
        described(q, rows, dims), described(k, 64, dims), described(v, 64, dims),
        described(o_parts, rows, dims), lse_parts, n_queries, chunk, scale * math.log2(math.e),
        CAUSAL=causal, BLOCK_ROWS=rows, BLOCK_KEYS=64, BLOCK_DIMS=dims,
        num_warps=4, num_stages=3 if dims <= 128 and q.dtype != torch.float32 else 1,
    )  # fmt: skip
    attention_merge_kernel[(batch * key_heads * n_rows,)](
        o_parts, lse_parts, o, lse, o_parts.stride(2), o.stride(2), n_rows, n_chunks, head_dim,
        BLOCK_CHUNKS=triton.next_power_of_2(n_chunks), BLOCK_DIMS=dims,
    )  # fmt: skip
    return o.reshape(batch, heads, n_queries, head_dim), lse
