"""The gradient of attention by groups of warps, in two kernels and without a sum in memory.

One kernel has tiles of keys and walks along the queries, for dk and dv; the other has tiles of
queries and walks along the keys, for dq. Scores and dp are multiplied in both, seven products for
the five of one kernel, and that pays: what is multiplied next is in registers already, where one
kernel sends ds through shared memory and adds up dq in memory. The result is the same every time.
"""

from __future__ import annotations

import math

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from softmax_tutorial.attention.backward import delta_of
from softmax_tutorial.attention.tiles import addressable, empty
from softmax_tutorial.attention.warp_groups import LOG2E, ROWS, barriers, load, tiles_of, tiles_seen

# --- dk and dv


@gluon.jit
def queries_of(first_key, n_queries, n_keys, BLOCK_QUERIES: gl.constexpr, CAUSAL: gl.constexpr):
    """The first tile of queries that sees a key from `first_key` on, the first of which all queries
    see all 2 · ROWS keys, and how many there are."""
    n_tiles = gl.cdiv(n_queries, BLOCK_QUERIES)
    first = 0
    first_whole = 0
    if CAUSAL:
        shift = n_keys - n_queries
        first = gl.minimum(n_tiles, gl.maximum(0, first_key - shift) // BLOCK_QUERIES)
        last_key = gl.minimum(first_key + 2 * ROWS, n_keys) - 1
        first_whole = gl.cdiv(gl.maximum(0, last_key - shift), BLOCK_QUERIES)
        first_whole = gl.minimum(n_tiles, gl.maximum(first, first_whole))
    return first, first_whole, n_tiles


@gluon.jit
def load_for_keys(q_desc, k_desc, v_desc, do_desc, tiles, bars, CAUSAL: gl.constexpr):
    """The warp that loads: keys and values once, then tiles of q and do."""
    q_tiles, k_tiles, v_tiles, do_tiles = tiles
    q_bars, k_bars, v_bars, do_bars = bars
    STAGES: gl.constexpr = q_tiles.shape[0]
    BLOCK_QUERIES: gl.constexpr = q_tiles.shape[3]
    n_queries, n_keys, n_key_heads = q_desc.shape[2], k_desc.shape[2], k_desc.shape[1]
    n_key_tiles = gl.cdiv(n_keys, 2 * ROWS)
    batch = gl.program_id(0) // n_key_tiles // n_key_heads
    key_head = gl.program_id(0) // n_key_tiles % n_key_heads
    first_key = gl.program_id(0) % n_key_tiles * 2 * ROWS
    group = q_desc.shape[1] // n_key_heads
    first, _, n_tiles = queries_of(first_key, n_queries, n_keys, BLOCK_QUERIES, CAUSAL)
    for half in gl.static_range(2):
        at = [batch, key_head, first_key + half * ROWS, 0]
        load(k_desc, at, k_tiles, k_bars, half)
        load(v_desc, at, v_tiles, v_bars, half)
    nth = 0
    for head in range(key_head * group, (key_head + 1) * group):
        for tile in range(first, n_tiles):
            stage = nth % STAGES
            round_ = (nth // STAGES & 1) ^ 1
            at = [batch, head, tile * BLOCK_QUERIES, 0]
            mbarrier.wait(q_bars[1].index(stage), round_)
            load(q_desc, at, q_tiles, q_bars, stage)
            mbarrier.wait(do_bars[1].index(stage), round_)
            load(do_desc, at, do_tiles, do_bars, stage)
            nth += 1


@gluon.jit
def differentiate_keys(half: gl.constexpr, q_desc, k_desc, dk_desc, dv_desc, lse_ptr, delta_ptr,
                       tiles, bars, scale_log2, CAUSAL: gl.constexpr):  # fmt: skip
    """Four warps: dk and dv of ROWS keys."""
    q_tiles, k_tiles, v_tiles, do_tiles = tiles
    q_bars, k_bars, v_bars, do_bars = bars
    STAGES: gl.constexpr = q_tiles.shape[0]
    BLOCK_QUERIES: gl.constexpr = q_tiles.shape[3]
    DIMS: gl.constexpr = q_tiles.shape[4]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_QUERIES, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIMS, 16])
    FACTOR: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    BY_QUERY: gl.constexpr = gl.SliceLayout(0, SCORES)
    n_heads, n_queries, n_keys = q_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    n_key_heads = k_desc.shape[1]
    n_key_tiles = gl.cdiv(n_keys, 2 * ROWS)
    batch = gl.program_id(0) // n_key_tiles // n_key_heads
    key_head = gl.program_id(0) // n_key_tiles % n_key_heads
    first_key = gl.program_id(0) % n_key_tiles * 2 * ROWS
    group = n_heads // n_key_heads
    first, first_whole, n_tiles = queries_of(first_key, n_queries, n_keys, BLOCK_QUERIES, CAUSAL)
    # Query i sees key j from i = j − shift on.
    first_query = first_key + half * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, SCORES))
    first_query -= n_keys - n_queries
    k = k_tiles.index(half).reshape([ROWS, DIMS])
    v = v_tiles.index(half).reshape([ROWS, DIMS])
    zero = gl.zeros([ROWS, BLOCK_QUERIES], gl.float32, SCORES)
    dk = gl.zeros([ROWS, DIMS], gl.float32, SUMS)
    dv = gl.zeros([ROWS, DIMS], gl.float32, SUMS)
    mbarrier.wait(k_bars[0].index(half), 0)
    mbarrier.wait(v_bars[0].index(half), 0)
    nth = 0
    for head in range(key_head * group, (key_head + 1) * group):
        for WHOLE in gl.static_range(2):
            start = first_whole if WHOLE else first
            end = n_tiles if WHOLE else first_whole
            for tile in range(start, end):
                stage = nth % STAGES
                now = nth // STAGES & 1
                queries = tile * BLOCK_QUERIES + gl.arange(0, BLOCK_QUERIES, layout=BY_QUERY)
                at = (batch * n_heads + head).to(gl.int64) * n_queries + queries
                lse = gl.load(lse_ptr + at, mask=queries < n_queries, other=float("inf")) * LOG2E
                q = q_tiles.index(stage).reshape([BLOCK_QUERIES, DIMS])
                do = do_tiles.index(stage).reshape([BLOCK_QUERIES, DIMS])
                mbarrier.wait(q_bars[0].index(stage), now)
                scores = warpgroup_mma(k, q.permute([1, 0]), zero, use_acc=False, is_async=True)
                mbarrier.wait(do_bars[0].index(stage), now)
                dp = warpgroup_mma(v, do.permute([1, 0]), zero, use_acc=False, is_async=True)

                scores = warpgroup_mma_wait(1, deps=[scores])
                p = gl.exp2(scores * scale_log2 - lse[None, :])
                if not WHOLE:
                    p = gl.where(first_query[:, None] <= queries[None, :], p, 0.0)
                factor = gl.convert_layout(p.to(q.dtype), FACTOR)
                dv = warpgroup_mma(factor, do, dv, is_async=True)
                delta = gl.load(delta_ptr + at, mask=queries < n_queries, other=0.0)
                dp = warpgroup_mma_wait(1, deps=[dp])
                # eq: softmax-vjp
                ds = gl.convert_layout((p * (dp - delta[None, :])).to(q.dtype), FACTOR)
                dk = warpgroup_mma(ds, q, dk, is_async=True)
                dv = warpgroup_mma_wait(1, deps=[dv])
                mbarrier.arrive(do_bars[1].index(stage))
                dk = warpgroup_mma_wait(0, deps=[dk])
                mbarrier.arrive(q_bars[1].index(stage))
                nth += 1

    # Keys and values are read: their place is free.
    k.store((dk * (scale_log2 / LOG2E)).to(k.dtype))
    v.store(dv.to(v.dtype))
    fence_async_shared()
    at = [batch, key_head, first_key + half * ROWS, 0]
    tma.async_copy_shared_to_global(dk_desc, at, k_tiles.index(half))
    tma.async_copy_shared_to_global(dv_desc, at, v_tiles.index(half))
    tma.store_wait(0)


@gluon.jit
def attention_gradient_of_keys_kernel(
    q_desc, k_desc, v_desc, do_desc, dk_desc, dv_desc, lse_ptr, delta_ptr, scale_log2,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dk and dv of two tiles of 64 keys of one head per program.

    Args:
        q_desc: queries (batch, heads, n_queries, head_dim), in tiles of as many as come at once.
        k_desc: keys (batch, key heads, n_keys, head_dim), in tiles of 64.
        v_desc: values, likewise.
        do_desc: gradient with respect to the output, like the queries.
        dk_desc, dv_desc: gradients like k and v; written.
        lse_ptr: m + log d of each query, float32, contiguous (batch, heads, n_queries).
        delta_ptr: ⟨o, do⟩ − dlse, likewise.
        scale_log2: what inner products are multiplied by, times log₂ e.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        STAGES: tiles of queries for which there is memory.
    """
    k_tiles = gl.allocate_shared_memory(k_desc.dtype, [2] + k_desc.block_shape, k_desc.layout)
    v_tiles = gl.allocate_shared_memory(k_desc.dtype, [2] + k_desc.block_shape, k_desc.layout)
    q_tiles = gl.allocate_shared_memory(q_desc.dtype, [STAGES] + q_desc.block_shape, q_desc.layout)
    do_tiles = gl.allocate_shared_memory(q_desc.dtype, [STAGES] + q_desc.block_shape, q_desc.layout)
    tiles = (q_tiles, k_tiles, v_tiles, do_tiles)
    bars = (barriers(STAGES, 2), barriers(2, 1), barriers(2, 1), barriers(STAGES, 2))
    fence_async_shared()
    gl.warp_specialize(
        [
            (differentiate_keys, (0, q_desc, k_desc, dk_desc, dv_desc, lse_ptr, delta_ptr, tiles,
                                  bars, scale_log2, CAUSAL)),
            (differentiate_keys, (1, q_desc, k_desc, dk_desc, dv_desc, lse_ptr, delta_ptr, tiles,
                                  bars, scale_log2, CAUSAL)),
            (load_for_keys, (q_desc, k_desc, v_desc, do_desc, tiles, bars, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


# --- dq


@gluon.jit
def load_for_queries(q_desc, k_desc, v_desc, do_desc, tiles, bars, CAUSAL: gl.constexpr):
    """The warp that loads: q and do once, then tiles of keys and values."""
    q_tiles, k_tiles, v_tiles, do_tiles = tiles
    q_bars, k_bars, v_bars, do_bars = bars
    STAGES: gl.constexpr = k_tiles.shape[0]
    BLOCK_KEYS: gl.constexpr = k_tiles.shape[3]
    n_heads, n_queries, n_keys = q_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    n_row_tiles = gl.cdiv(n_queries, 2 * ROWS)
    batch = gl.program_id(0) // n_row_tiles // n_heads
    head = gl.program_id(0) // n_row_tiles % n_heads
    first_row = (n_row_tiles - 1 - gl.program_id(0) % n_row_tiles) * 2 * ROWS
    n_tiles, _ = tiles_seen(first_row, 2 * ROWS, n_queries, n_keys, BLOCK_KEYS, CAUSAL)
    for half in gl.static_range(2):
        at = [batch, head, first_row + half * ROWS, 0]
        load(q_desc, at, q_tiles, q_bars, half)
        load(do_desc, at, do_tiles, do_bars, half)
    for i in range(n_tiles):
        stage = i % STAGES
        round_ = (i // STAGES & 1) ^ 1
        at = [batch, head // (n_heads // k_desc.shape[1]), i * BLOCK_KEYS, 0]
        mbarrier.wait(k_bars[1].index(stage), round_)
        load(k_desc, at, k_tiles, k_bars, stage)
        mbarrier.wait(v_bars[1].index(stage), round_)
        load(v_desc, at, v_tiles, v_bars, stage)


@gluon.jit
def differentiate_queries(half: gl.constexpr, q_desc, k_desc, dq_desc, lse_ptr, delta_ptr, tiles,
                          bars, scale_log2, CAUSAL: gl.constexpr):  # fmt: skip
    """Four warps: dq of ROWS queries."""
    q_tiles, k_tiles, v_tiles, do_tiles = tiles
    q_bars, k_bars, v_bars, do_bars = bars
    STAGES: gl.constexpr = k_tiles.shape[0]
    BLOCK_KEYS: gl.constexpr = k_tiles.shape[3]
    DIMS: gl.constexpr = k_tiles.shape[4]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_KEYS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIMS, 16])
    FACTOR: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    n_heads, n_queries, n_keys = q_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    n_row_tiles = gl.cdiv(n_queries, 2 * ROWS)
    batch = gl.program_id(0) // n_row_tiles // n_heads
    head = gl.program_id(0) // n_row_tiles % n_heads
    first_row = (n_row_tiles - 1 - gl.program_id(0) % n_row_tiles) * 2 * ROWS
    n_tiles, n_whole = tiles_seen(first_row, 2 * ROWS, n_queries, n_keys, BLOCK_KEYS, CAUSAL)
    rows = first_row + half * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, SCORES))
    last_key = rows * 0 + (n_keys - 1)
    if CAUSAL:
        last_key = gl.minimum(rows + (n_keys - n_queries), n_keys - 1)
    at = (batch * n_heads + head).to(gl.int64) * n_queries + rows
    lse = gl.load(lse_ptr + at, mask=rows < n_queries, other=float("inf")) * LOG2E
    delta = gl.load(delta_ptr + at, mask=rows < n_queries, other=0.0)
    q = q_tiles.index(half).reshape([ROWS, DIMS])
    do = do_tiles.index(half).reshape([ROWS, DIMS])
    zero = gl.zeros([ROWS, BLOCK_KEYS], gl.float32, SCORES)
    dq = gl.zeros([ROWS, DIMS], gl.float32, SUMS)
    mbarrier.wait(q_bars[0].index(half), 0)
    mbarrier.wait(do_bars[0].index(half), 0)
    for MASKED in gl.static_range(2):
        start = n_whole if MASKED else 0
        end = n_tiles if MASKED else n_whole
        for i in range(start, end):
            stage = i % STAGES
            now = i // STAGES & 1
            k = k_tiles.index(stage).reshape([BLOCK_KEYS, DIMS])
            v = v_tiles.index(stage).reshape([BLOCK_KEYS, DIMS])
            mbarrier.wait(k_bars[0].index(stage), now)
            scores = warpgroup_mma(q, k.permute([1, 0]), zero, use_acc=False, is_async=True)
            mbarrier.wait(v_bars[0].index(stage), now)
            dp = warpgroup_mma(do, v.permute([1, 0]), zero, use_acc=False, is_async=True)

            scores = warpgroup_mma_wait(1, deps=[scores])
            p = gl.exp2(scores * scale_log2 - lse[:, None])
            if MASKED:
                keys = i * BLOCK_KEYS + gl.arange(0, BLOCK_KEYS, layout=gl.SliceLayout(0, SCORES))
                p = gl.where(keys[None, :] <= last_key[:, None], p, 0.0)
            dp = warpgroup_mma_wait(0, deps=[dp])
            mbarrier.arrive(v_bars[1].index(stage))
            # eq: softmax-vjp
            ds = gl.convert_layout((p * (dp - delta[:, None])).to(q.dtype), FACTOR)
            dq = warpgroup_mma(ds, k, dq, is_async=True)
            dq = warpgroup_mma_wait(0, deps=[dq])
            mbarrier.arrive(k_bars[1].index(stage))

    q.store((dq * (scale_log2 / LOG2E)).to(q.dtype))  # the queries are read: their place is free
    fence_async_shared()
    at = [batch, head, first_row + half * ROWS, 0]
    tma.async_copy_shared_to_global(dq_desc, at, q_tiles.index(half))
    tma.store_wait(0)


@gluon.jit
def attention_gradient_of_queries_kernel(
    q_desc, k_desc, v_desc, do_desc, dq_desc, lse_ptr, delta_ptr, scale_log2,
    CAUSAL: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """dq of two tiles of 64 queries of one head per program.

    Args:
        q_desc: queries (batch, heads, n_queries, head_dim), in tiles of 64.
        k_desc: keys (batch, key heads, n_keys, head_dim), in tiles of as many as come at once.
        v_desc: values, likewise.
        do_desc: gradient with respect to the output, like the queries.
        dq_desc: gradient like the queries; written.
        lse_ptr: m + log d of each query, float32, contiguous (batch, heads, n_queries).
        delta_ptr: ⟨o, do⟩ − dlse, likewise.
        scale_log2: what inner products are multiplied by, times log₂ e.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        STAGES: tiles of keys, and of values, for which there is memory.
    """
    q_tiles = gl.allocate_shared_memory(q_desc.dtype, [2] + q_desc.block_shape, q_desc.layout)
    do_tiles = gl.allocate_shared_memory(q_desc.dtype, [2] + q_desc.block_shape, q_desc.layout)
    k_tiles = gl.allocate_shared_memory(k_desc.dtype, [STAGES] + k_desc.block_shape, k_desc.layout)
    v_tiles = gl.allocate_shared_memory(k_desc.dtype, [STAGES] + k_desc.block_shape, k_desc.layout)
    tiles = (q_tiles, k_tiles, v_tiles, do_tiles)
    bars = (barriers(2, 1), barriers(STAGES, 2), barriers(STAGES, 2), barriers(2, 1))
    fence_async_shared()
    gl.warp_specialize(
        [
            (differentiate_queries, (0, q_desc, k_desc, dq_desc, lse_ptr, delta_ptr, tiles, bars,
                                     scale_log2, CAUSAL)),
            (differentiate_queries, (1, q_desc, k_desc, dq_desc, lse_ptr, delta_ptr, tiles, bars,
                                     scale_log2, CAUSAL)),
            (load_for_queries, (q_desc, k_desc, v_desc, do_desc, tiles, bars, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def attention_warp_groups_backward(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    do: Tensor,
    dlse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to q, k and v as `attention_backward` has them; for float16 and
    bfloat16 of up to 128 dimensions, on Hopper."""
    q, k, v, o, do = (addressable(each) for each in (*inputs[:4], do))
    lse = inputs[4]
    dq, dk, dv = (empty(each.shape, each.dtype, each.device) for each in (q, k, v))
    delta = delta_of(o, do, dlse)
    dims = max(16, triton.next_power_of_2(q.shape[3]))
    stages = 4 if dims <= 64 else 3
    scale_log2 = scale * math.log2(math.e)
    q_desc, do_desc, dq_desc, k_rows, v_rows = (
        tiles_of(each, 64, dims) for each in (q, do, dq, k, v)
    )
    dk_desc, dv_desc = tiles_of(dk, 64, dims), tiles_of(dv, 64, dims)
    attention_gradient_of_keys_kernel[(triton.cdiv(k.shape[2], 128) * k.shape[0] * k.shape[1],)](
        q_desc, k_rows, v_rows, do_desc, dk_desc, dv_desc, lse, delta, scale_log2,
        CAUSAL=causal, STAGES=stages, num_warps=4,
    )  # fmt: skip
    attention_gradient_of_queries_kernel[(triton.cdiv(q.shape[2], 128) * q.shape[0] * q.shape[1],)](
        q_desc, k_rows, v_rows, do_desc, dq_desc, lse, delta, scale_log2,
        CAUSAL=causal, STAGES=stages, num_warps=4,
    )  # fmt: skip
    return dq, dk, dv
