"""Attention as fast as upstream Triton gives on Hopper: two tiles of queries per program, and warps
that only load. In Gluon, Triton's language for those who place data and waits themselves.

A tensor core idles while exponentials are computed, unless other products are ready. Here they are,
twice. Two groups of four warps have a tile of queries each and take turns as they like; and each
group multiplies the scores of the next tile of keys while the values of this one are multiplied. A
third group has one warp at work: it asks for tiles of keys and values some stages ahead, and waits
so that others need not. Programs are as many as multiprocessors, and go on to the next tile.
"""

from __future__ import annotations

import math

import torch
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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from softmax_tutorial.attention.tiles import addressable, described, empty

LOG2E = gl.constexpr(math.log2(math.e))
DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


@gluon.jit
def place_of(task, q_desc, k_desc, CAUSAL: gl.constexpr, BLOCK_ROWS: gl.constexpr):
    """Where a task is: batch, head, key head, first row, how many tiles of keys its rows see, and
    how many of them all rows see whole. The longest rows of a head come first."""
    BLOCK_KEYS: gl.constexpr = k_desc.block_shape[2]
    n_heads, n_queries, n_keys = q_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    n_tiles = gl.cdiv(n_queries, BLOCK_ROWS)
    batch = task // n_tiles // n_heads
    head = task // n_tiles % n_heads
    first_row = (n_tiles - 1 - task % n_tiles) * BLOCK_ROWS
    n_seen = n_keys
    n_seen_by_all = n_keys
    if CAUSAL:
        shift = n_keys - n_queries
        n_seen = gl.minimum(n_keys, gl.maximum(0, first_row + BLOCK_ROWS + shift))
        n_seen_by_all = gl.minimum(n_keys, gl.maximum(0, first_row + 1 + shift))
    key_head = head // (n_heads // k_desc.shape[1])
    return (
        batch,
        head,
        key_head,
        first_row,
        gl.cdiv(n_seen, BLOCK_KEYS),
        n_seen_by_all // BLOCK_KEYS,
    )


@gluon.jit
def load_tiles(q_desc, k_desc, v_desc, q_tiles, k_tiles, v_tiles, ready, free, n_tasks,
               CAUSAL: gl.constexpr):  # fmt: skip
    """What the loading warp does: ask for each tile when its place is free, last keys first."""
    q_ready, k_ready, v_ready = ready
    q_free, k_free, v_free = free
    STAGES: gl.constexpr = k_tiles.shape[0]
    HALF: gl.constexpr = q_desc.block_shape[2]
    BLOCK_KEYS: gl.constexpr = k_desc.block_shape[2]
    nth_task = 0
    nth = 0
    for task in range(gl.program_id(0), n_tasks, gl.num_programs(0)):
        batch, head, key_head, first_row, n_tiles, _ = place_of(
            task, q_desc, k_desc, CAUSAL, 2 * HALF
        )
        for half in gl.static_range(2):
            mbarrier.wait(q_free.index(half), (nth_task & 1) ^ 1)
            mbarrier.expect(q_ready.index(half), q_desc.block_type.nbytes)
            at = [batch, head, first_row + half * HALF, 0]
            tma.async_copy_global_to_shared(q_desc, at, q_ready.index(half), q_tiles.index(half))
        for i in range(n_tiles):
            stage = nth % STAGES
            was_used = (nth // STAGES & 1) ^ 1
            at = [batch, key_head, (n_tiles - 1 - i) * BLOCK_KEYS, 0]
            mbarrier.wait(k_free.index(stage), was_used)
            mbarrier.expect(k_ready.index(stage), k_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(k_desc, at, k_ready.index(stage), k_tiles.index(stage))
            mbarrier.wait(v_free.index(stage), was_used)
            mbarrier.expect(v_ready.index(stage), v_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(v_desc, at, v_ready.index(stage), v_tiles.index(stage))
            nth += 1
        nth_task += 1


@gluon.jit
def weigh(scores, m, d, scale_log2, last_key, key, n_keys, MASKED: gl.constexpr):
    """A tile's weights p, what rescales the sums so far, and the new m and d."""
    if MASKED:
        keys = key + gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, scores.type.layout))
        seen = (keys < n_keys)[None, :] & (keys[None, :] <= last_key[:, None])
        scores = gl.where(seen, scores, float("-inf"))
    # eq: online-m
    m_new = gl.maximum(m, gl.max(scores, axis=1) * scale_log2)
    m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
    # eq: exp2-identity
    p = gl.exp2(scores * scale_log2 - m_safe[:, None])
    old = gl.exp2(m - m_safe)
    # eq: online-d
    return p, old, m_new, d * old + gl.sum(p, axis=1)


@gluon.jit
def next_tile(q, k_tiles, v_tiles, ready, free, p, a, m, d, scale_log2, last_key, key, n_keys, nth,
              MASKED: gl.constexpr, SCORES: gl.constexpr):  # fmt: skip
    """Scores of tile `nth` while the values of the tile before are multiplied, then its weights."""
    _, k_ready, v_ready = ready
    _, k_free, v_free = free
    STAGES: gl.constexpr = k_tiles.shape[0]
    BLOCK_KEYS: gl.constexpr = k_tiles.shape[3]
    ROWS: gl.constexpr = q.shape[0]
    DIMS: gl.constexpr = q.shape[1]
    stage = nth % STAGES
    before = (nth - 1) % STAGES
    k = k_tiles.index(stage).reshape([BLOCK_KEYS, DIMS])
    v = v_tiles.index(before).reshape([BLOCK_KEYS, DIMS])
    mbarrier.wait(k_ready.index(stage), nth // STAGES & 1)
    zero = gl.zeros([ROWS, BLOCK_KEYS], gl.float32, SCORES)
    scores = warpgroup_mma(q, k.permute([1, 0]), zero, use_acc=False, is_async=True)
    mbarrier.wait(v_ready.index(before), (nth - 1) // STAGES & 1)
    # eq: attention-accumulator
    a = warpgroup_mma(p, v, a, is_async=True)

    scores = warpgroup_mma_wait(1, deps=[scores])
    mbarrier.arrive(k_free.index(stage))
    weights, old, m, d = weigh(scores, m, d, scale_log2, last_key, key, n_keys, MASKED)
    a = warpgroup_mma_wait(0, deps=[a])
    mbarrier.arrive(v_free.index(before))
    a = a * gl.convert_layout(old, gl.SliceLayout(1, a.type.layout))[:, None]
    return gl.convert_layout(weights.to(q.dtype), p.type.layout), a, m, d


@gluon.jit
def attend(half: gl.constexpr, q_desc, k_desc, o_desc, lse_ptr, q_tiles, k_tiles, v_tiles, ready,
           free, n_tasks, scale_log2, CAUSAL: gl.constexpr):  # fmt: skip
    """What four warps do: attention of one of the two tiles of queries of each task."""
    q_ready, k_ready, v_ready = ready
    q_free, k_free, v_free = free
    STAGES: gl.constexpr = k_tiles.shape[0]
    BLOCK_KEYS: gl.constexpr = k_tiles.shape[3]
    HALF: gl.constexpr = q_tiles.shape[3]
    DIMS: gl.constexpr = q_tiles.shape[4]
    # How the numbers of a product lie in registers, those of a left factor, and one for each row.
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_KEYS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIMS, 16])
    FACTOR: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    BY_ROW: gl.constexpr = gl.SliceLayout(1, SCORES)
    n_queries, n_keys = q_desc.shape[2], k_desc.shape[2]
    q = q_tiles.index(half).reshape([HALF, DIMS])
    nth_task = 0
    nth = 0
    for task in range(gl.program_id(0), n_tasks, gl.num_programs(0)):
        batch, head, _, first_row, n_tiles, n_whole = place_of(
            task, q_desc, k_desc, CAUSAL, 2 * HALF
        )
        rows = first_row + half * HALF + gl.arange(0, HALF, layout=BY_ROW)
        last_key = rows + (n_keys - n_queries) if CAUSAL else rows * 0 + n_keys
        m = gl.full([HALF], float("-inf"), gl.float32, BY_ROW)
        d = gl.zeros([HALF], gl.float32, BY_ROW)
        a = gl.zeros([HALF, DIMS], gl.float32, SUMS)
        mbarrier.wait(q_ready.index(half), nth_task & 1)
        if n_tiles > 0:
            # The scores of the first tile, which are masked whether or not they need be.
            stage = nth % STAGES
            k = k_tiles.index(stage).reshape([BLOCK_KEYS, DIMS])
            mbarrier.wait(k_ready.index(stage), nth // STAGES & 1)
            zero = gl.zeros([HALF, BLOCK_KEYS], gl.float32, SCORES)
            scores = warpgroup_mma(q, k.permute([1, 0]), zero, use_acc=False, is_async=True)
            scores = warpgroup_mma_wait(0, deps=[scores])
            mbarrier.arrive(k_free.index(stage))
            key = (n_tiles - 1) * BLOCK_KEYS
            p, old, m, d = weigh(scores, m, d, scale_log2, last_key, key, n_keys, True)
            p = gl.convert_layout(p.to(q.dtype), FACTOR)
            nth += 1

            # The others: those on the diagonal, then those without a mask.
            n_masked = gl.maximum(n_tiles - n_whole, 1)
            for i in range(1, n_masked):
                key = (n_tiles - 1 - i) * BLOCK_KEYS
                p, a, m, d = next_tile(
                    q, k_tiles, v_tiles, ready, free, p, a, m, d, scale_log2, last_key, key,
                    n_keys, nth, True, SCORES,
                )  # fmt: skip
                nth += 1
            for i in range(n_masked, n_tiles):
                key = (n_tiles - 1 - i) * BLOCK_KEYS
                p, a, m, d = next_tile(
                    q, k_tiles, v_tiles, ready, free, p, a, m, d, scale_log2, last_key, key,
                    n_keys, nth, False, SCORES,
                )  # fmt: skip
                nth += 1

            # The values of the last tile.
            before = (nth - 1) % STAGES
            mbarrier.wait(v_ready.index(before), (nth - 1) // STAGES & 1)
            a = warpgroup_mma(
                p, v_tiles.index(before).reshape([BLOCK_KEYS, DIMS]), a, is_async=True
            )
            a = warpgroup_mma_wait(0, deps=[a])
            mbarrier.arrive(v_free.index(before))

        # A query that sees no key has a = d = 0; its output is 0 and not 0 / 0.
        d_safe = gl.convert_layout(gl.where(d == 0.0, 1.0, d), gl.SliceLayout(1, SUMS))
        q.store((a / d_safe[:, None]).to(q.dtype))  # the queries are read: their place is free
        fence_async_shared()
        at = [batch, head, first_row + half * HALF, 0]
        tma.async_copy_shared_to_global(o_desc, at, q_tiles.index(half))
        to = lse_ptr + (batch * q_desc.shape[1] + head).to(gl.int64) * n_queries + rows
        gl.store(to, (m + gl.log2(d)) / LOG2E, mask=rows < n_queries)
        tma.store_wait(0)
        mbarrier.arrive(q_free.index(half))
        nth_task += 1


@gluon.jit
def attention_two_tiles_kernel(q_desc, k_desc, v_desc, o_desc, lse_ptr, n_tasks, scale_log2,
                               CAUSAL: gl.constexpr, STAGES: gl.constexpr):  # fmt: skip
    """Attention for two tiles of queries of one head after another, in programs that go on.

    Args:
        q_desc: queries (batch, heads, n_queries, head_dim), in tiles of 64.
        k_desc: keys (batch, key heads, n_keys, head_dim), in tiles of as many as come at once.
        v_desc: values, likewise.
        o_desc: output, like the queries.
        lse_ptr: m + log d of each query, float32, contiguous (batch, heads, n_queries).
        n_tasks: pairs of tiles of queries, of all heads.
        scale_log2: what inner products are multiplied by, times log₂ e; at least 0.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        STAGES: tiles of keys, and of values, for which there is memory.
    """
    # Tiles in shared memory, each with a barrier that says it is loaded, and one that it is read.
    q_tiles = gl.allocate_shared_memory(q_desc.dtype, [2] + q_desc.block_shape, q_desc.layout)
    k_tiles = gl.allocate_shared_memory(k_desc.dtype, [STAGES] + k_desc.block_shape, k_desc.layout)
    v_tiles = gl.allocate_shared_memory(v_desc.dtype, [STAGES] + v_desc.block_shape, v_desc.layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for half in gl.static_range(2):
        mbarrier.init(q_ready.index(half), count=1)
        mbarrier.init(q_free.index(half), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_ready.index(stage), count=1)
        mbarrier.init(k_free.index(stage), count=2)  # both groups have read it
        mbarrier.init(v_ready.index(stage), count=1)
        mbarrier.init(v_free.index(stage), count=2)
    fence_async_shared()
    ready = (q_ready, k_ready, v_ready)
    free = (q_free, k_free, v_free)
    gl.warp_specialize(
        [
            (attend, (0, q_desc, k_desc, o_desc, lse_ptr, q_tiles, k_tiles, v_tiles, ready, free,
                      n_tasks, scale_log2, CAUSAL)),
            (attend, (1, q_desc, k_desc, o_desc, lse_ptr, q_tiles, k_tiles, v_tiles, ready, free,
                      n_tasks, scale_log2, CAUSAL)),
            (load_tiles, (q_desc, k_desc, v_desc, q_tiles, k_tiles, v_tiles, ready, free, n_tasks,
                          CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def attention_two_tiles(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention and lse as [`attention_in_memory`][softmax_tutorial.attention.in_memory.\
attention_in_memory] has them, by the kernel; for float16 and bfloat16 on Hopper. A tensor that a
descriptor cannot address is copied."""
    q, k, v = (addressable(each) for each in (q, k, v))
    batch, heads, n_queries, head_dim = q.shape
    o = empty(q.shape, q.dtype, q.device)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    dims = max(16, triton.next_power_of_2(head_dim))
    keys, stages = (64 if dims == 256 else 128), (4 if dims <= 64 else 2)

    def tiles_of(x: Tensor, rows: int) -> TensorDescriptor:
        plain = described(x, rows, dims)
        layout = gl.NVMMASharedLayout.get_default_for(plain.block_shape, DTYPES[x.dtype])
        return TensorDescriptor(x, plain.shape, plain.strides, plain.block_shape, layout)

    n_tasks = triton.cdiv(n_queries, 128) * batch * heads
    programs = torch.cuda.get_device_properties(q.device).multi_processor_count
    attention_two_tiles_kernel[(min(n_tasks, programs),)](
        tiles_of(q, 64), tiles_of(k, keys), tiles_of(v, keys), tiles_of(o, 64), lse, n_tasks,
        scale * math.log2(math.e), CAUSAL=causal, STAGES=stages, num_warps=4,
    )  # fmt: skip
    return o, lse
