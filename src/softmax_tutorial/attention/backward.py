"""The gradient of attention by recomputation: scores are multiplied again, and each weight is
exp(score − lse), with no maximum and no sum to find.

Softmax's gradient ds = p·(dp − ⟨p, dp⟩) needs one number of each row before its first tile. Since
⟨p, dp⟩ = ⟨o, do⟩, a first kernel finds it without scores. The second keeps a tile of keys and
values, walks along the queries that see it, and adds up dk and dv in registers. dq has a part from
every tile of keys: parts are added in memory, in float32, in the order in which they come, so its
last digits may differ from call to call.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from softmax_tutorial.attention.tiles import Tile, addressable, described, empty
from triton_softmax.kernels.device.monoid import LOG2E

ALONE = tl.constexpr(triton.knobs.runtime.interpret)
"""One program runs at a time: in the interpreter, whose descriptors cannot add."""


@triton.jit
def attention_delta_kernel(
    o_desc, do_desc, dlse_ptr, delta_ptr, BLOCK_QUERIES: tl.constexpr, BLOCK_DIMS: tl.constexpr
):
    """⟨o, do⟩ − dlse of BLOCK_QUERIES queries of one head per program.

    Args:
        o_desc: output of attention (batch, heads, n_queries, head_dim), in tiles of BLOCK_QUERIES.
        do_desc: gradient with respect to it, likewise.
        dlse_ptr: gradient with respect to lse, float32, contiguous (batch, heads, n_queries).
        delta_ptr: likewise; written.
        BLOCK_QUERIES, BLOCK_DIMS: sizes of a tile, powers of two.
    """
    n_heads, n_queries = o_desc.shape[1], o_desc.shape[2]
    n_tiles = tl.cdiv(n_queries, BLOCK_QUERIES)
    batch_head = tl.program_id(0) // n_tiles
    first_row = tl.program_id(0) % n_tiles * BLOCK_QUERIES
    batch, head = batch_head // n_heads, batch_head % n_heads
    o = o_desc.load([batch, head, first_row, 0]).reshape(BLOCK_QUERIES, BLOCK_DIMS)
    do = do_desc.load([batch, head, first_row, 0]).reshape(BLOCK_QUERIES, BLOCK_DIMS)

    rows = first_row + tl.arange(0, BLOCK_QUERIES)
    at = batch_head.to(tl.int64) * n_queries + rows
    dlse = tl.load(dlse_ptr + at, mask=rows < n_queries, other=0.0)
    # eq: attention-delta
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), axis=1) - dlse
    tl.store(delta_ptr + at, delta, mask=rows < n_queries)


@triton.jit
def attention_backward_kernel(
    q_desc,
    k_desc,
    v_desc,
    do_desc,
    dk_desc,
    dv_desc,
    dq_desc,
    lse_ptr,
    delta_ptr,
    scale_log2,
    CAUSAL: tl.constexpr,
    TILE: tl.constexpr,
):
    """dk and dv of TILE.keys keys of one head per program, and their part of dq.

    Args:
        q_desc: queries (batch, heads, n_queries, head_dim), in tiles of TILE.queries.
        k_desc: keys (batch, key heads, n_keys, head_dim), in tiles of TILE.keys.
        v_desc: values, likewise.
        do_desc: gradient with respect to the output, like the queries.
        dk_desc, dv_desc: gradients like k and v; written.
        dq_desc: gradient with respect to scale·q, float32, in tiles of TILE.queries; added to.
        lse_ptr: m + log d of each query, float32, contiguous (batch, heads, n_queries).
        delta_ptr: ⟨o, do⟩ − dlse, likewise.
        scale_log2: what inner products are multiplied by, times log₂ e.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        TILE: queries, keys and dimensions of a tile, powers of two.
    """
    BLOCK_QUERIES: tl.constexpr = TILE.queries
    BLOCK_KEYS: tl.constexpr = TILE.keys
    BLOCK_DIMS: tl.constexpr = TILE.dims
    n_heads, n_queries, n_keys = q_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    n_key_heads = k_desc.shape[1]
    group = n_heads // n_key_heads
    n_tiles = tl.cdiv(n_keys, BLOCK_KEYS)
    batch = tl.program_id(0) // n_tiles // n_key_heads
    key_head = tl.program_id(0) // n_tiles % n_key_heads
    first_key = tl.program_id(0) % n_tiles * BLOCK_KEYS
    keys = first_key + tl.arange(0, BLOCK_KEYS)
    k = k_desc.load([batch, key_head, first_key, 0]).reshape(BLOCK_KEYS, BLOCK_DIMS)
    v = v_desc.load([batch, key_head, first_key, 0]).reshape(BLOCK_KEYS, BLOCK_DIMS)

    # The tiles of queries from the first that sees any of the keys, of each head of the group.
    shift = n_keys - n_queries
    first_tile = 0
    if CAUSAL:
        first_tile = tl.maximum(0, first_key - shift) // BLOCK_QUERIES
    n_row_tiles = tl.maximum(0, tl.cdiv(n_queries, BLOCK_QUERIES) - first_tile)

    dk = tl.zeros((BLOCK_KEYS, BLOCK_DIMS), tl.float32)
    dv = tl.zeros((BLOCK_KEYS, BLOCK_DIMS), tl.float32)
    for i in range(0, group * n_row_tiles):
        head = key_head * group + i // n_row_tiles
        first_row = (first_tile + i % n_row_tiles) * BLOCK_QUERIES
        rows = first_row + tl.arange(0, BLOCK_QUERIES)
        q = q_desc.load([batch, head, first_row, 0]).reshape(BLOCK_QUERIES, BLOCK_DIMS)
        do = do_desc.load([batch, head, first_row, 0]).reshape(BLOCK_QUERIES, BLOCK_DIMS)
        at = (batch * n_heads + head).to(tl.int64) * n_queries + rows
        lse = tl.load(lse_ptr + at, mask=rows < n_queries, other=float("inf"))
        delta = tl.load(delta_ptr + at, mask=rows < n_queries, other=0.0)

        # Scores lie transposed, keys down: p and ds are then operands as they are.
        scores = tl.dot(k, q.T, input_precision="ieee")
        dp = tl.dot(v, do.T, input_precision="ieee")
        p = tl.exp2(scores * scale_log2 - (lse * LOG2E)[None, :])
        at_edge = first_key + BLOCK_KEYS > n_keys
        if CAUSAL:
            at_edge = at_edge | (first_row + shift < first_key + BLOCK_KEYS - 1)
        if at_edge:
            seen = (keys < n_keys)[:, None]
            if CAUSAL:
                seen = seen & (keys[:, None] <= (rows + shift)[None, :])
            p = tl.where(seen, p, 0.0)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
        # eq: softmax-vjp
        ds = (p * (dp - delta[None, :])).to(q.dtype)
        dk = tl.dot(ds, q, dk, input_precision="ieee")
        dq = tl.dot(ds.T, k, input_precision="ieee").reshape(1, 1, BLOCK_QUERIES, BLOCK_DIMS)
        if ALONE:
            dq_desc.store(
                [batch, head, first_row, 0], dq_desc.load([batch, head, first_row, 0]) + dq
            )
        else:
            dq_desc.atomic_add([batch, head, first_row, 0], dq)

    dk = (dk * (scale_log2 / LOG2E)).to(dk_desc.dtype).reshape(1, 1, BLOCK_KEYS, BLOCK_DIMS)
    dk_desc.store([batch, key_head, first_key, 0], dk)
    dv = dv.to(dv_desc.dtype).reshape(1, 1, BLOCK_KEYS, BLOCK_DIMS)
    dv_desc.store([batch, key_head, first_key, 0], dv)


def choice(head_dim: int, dtype: torch.dtype) -> tuple[Tile, int, int]:
    """The tile, warps and stages that were fastest on an H100."""
    dims = max(16, triton.next_power_of_2(head_dim))
    if dtype == torch.float32:
        return Tile(16, 32, dims), 8, 1
    if dims <= 64:
        return Tile(64, 64, dims), 4, 2
    return (Tile(64, 128, dims), 8, 2) if dims == 128 else (Tile(32, 64, dims), 8, 1)


def delta_of(o: Tensor, do: Tensor, dlse: Tensor) -> Tensor:
    """⟨o, do⟩ − dlse for each query; o and do are such as descriptors can address."""
    dims = max(16, triton.next_power_of_2(o.shape[3]))
    delta = o.new_empty(o.shape[:3], dtype=torch.float32)
    attention_delta_kernel[(triton.cdiv(o.shape[2], 64) * o.shape[0] * o.shape[1],)](
        described(o, 64, dims), described(do, 64, dims), dlse.contiguous(), delta,
        BLOCK_QUERIES=64, BLOCK_DIMS=dims,
    )  # fmt: skip
    return delta


def attention_backward(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    do: Tensor,
    dlse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to q, k and v.

    Args:
        inputs: q, k and v of the forward pass, and its results o and lse.
        do: gradient with respect to o.
        dlse: gradient with respect to lse, float32.
        causal, scale: of the forward pass.
    """
    q, k, v, o, do = (addressable(each) for each in (*inputs[:4], do))
    lse, delta = inputs[4], delta_of(o, do, dlse)
    dq, dk, dv = (empty(each.shape, each.dtype, each.device) for each in (q, k, v))
    sums = empty(q.shape, torch.float32, q.device).zero_()
    tile, num_warps, num_stages = choice(q.shape[3], q.dtype)

    def by_queries(x: Tensor):
        return described(x, tile.queries, tile.dims)

    def by_keys(x: Tensor):
        return described(x, tile.keys, tile.dims)

    attention_backward_kernel[(triton.cdiv(k.shape[2], tile.keys) * k.shape[0] * k.shape[1],)](
        by_queries(q), by_keys(k), by_keys(v), by_queries(do),
        by_keys(dk), by_keys(dv), by_queries(sums), lse, delta, scale * math.log2(math.e),
        CAUSAL=causal, TILE=tile, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    torch.mul(sums, scale, out=dq)
    return dq, dk, dv
