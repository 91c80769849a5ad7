"""Attention as fast as upstream Triton gives on Hopper: groups of warps with a task each. In Gluon,
Triton's language for those who place data and waits themselves.

A tensor core idles while exponentials are computed, unless other products are ready. Here they are,
twice. Each group of four warps has a tile of queries of its own, so one group's products run beside
the other's exponentials; and each multiplies the scores of the next tile of keys while the values
of this one are multiplied. One more warp asks for tiles of keys and values some stages ahead.
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
ROWS = gl.constexpr(64)
"""Rows of a tile whose products a group of four warps computes."""
DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


@gluon.jit
def tasks_of(n_tiles, CAUSAL: gl.constexpr):
    """How many tasks a head has: one for each tile of queries; under a causal mask one for two, a
    long one and a short one, so that tasks are of one length."""
    return gl.cdiv(n_tiles, 2) if CAUSAL else n_tiles


@gluon.jit
def turns_of(task, n_tiles, CAUSAL: gl.constexpr):
    """How many tiles a task of a head has: the one in the middle has no partner."""
    return gl.where(2 * task + 1 < n_tiles, 2, 1) if CAUSAL else 1


@gluon.jit
def tiles_seen(
    first_row, n_rows, n_queries, n_keys, BLOCK_KEYS: gl.constexpr, CAUSAL: gl.constexpr
):
    """How many tiles of keys any of the rows see, and how many of them all rows see whole."""
    n_seen = n_keys
    n_seen_by_all = n_keys
    if CAUSAL:
        shift = n_keys - n_queries
        n_seen = gl.minimum(n_keys, gl.maximum(0, first_row + n_rows + shift))
        n_seen_by_all = gl.minimum(n_keys, gl.maximum(0, first_row + 1 + shift))
    return gl.cdiv(n_seen, BLOCK_KEYS), n_seen_by_all // BLOCK_KEYS


@gluon.jit
def load(desc, at, tiles, barriers, stage):
    """Let the hardware copy a tile to shared memory, and say so to a barrier when it is there."""
    ready, free = barriers
    mbarrier.expect(ready.index(stage), desc.block_type.nbytes)
    tma.async_copy_global_to_shared(desc, at, ready.index(stage), tiles.index(stage))


@gluon.jit
def load_forward(q_desc, k_desc, v_desc, tiles, bars, CAUSAL: gl.constexpr):
    """The warp that loads: each tile when its place is free, the last keys first."""
    q_tiles, k_tiles, v_tiles = tiles
    q_bars, k_bars, v_bars = bars
    GROUPS: gl.constexpr = q_tiles.shape[0]
    STAGES: gl.constexpr = k_tiles.shape[0]
    BLOCK_KEYS: gl.constexpr = k_tiles.shape[3]
    n_heads, n_queries, n_keys = q_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    n_row_tiles = gl.cdiv(n_queries, GROUPS * ROWS)
    n_tasks = tasks_of(n_row_tiles, CAUSAL)
    nth_turn = 0
    nth = 0
    for i in range(gl.program_id(0), q_desc.shape[0] * n_heads * n_tasks, gl.num_programs(0)):
        batch, head, task = i // n_tasks // n_heads, i // n_tasks % n_heads, i % n_tasks
        key_head = head // (n_heads // k_desc.shape[1])
        for turn in range(turns_of(task, n_row_tiles, CAUSAL)):
            tile = gl.where(turn == 0, n_row_tiles - 1 - task, task)
            first_row = tile * GROUPS * ROWS
            n_tiles, _ = tiles_seen(first_row, GROUPS * ROWS, n_queries, n_keys, BLOCK_KEYS, CAUSAL)
            for group in gl.static_range(GROUPS):
                mbarrier.wait(q_bars[1].index(group), (nth_turn & 1) ^ 1)
                load(q_desc, [batch, head, first_row + group * ROWS, 0], q_tiles, q_bars, group)
            for j in range(n_tiles):
                stage = nth % STAGES
                round_ = (nth // STAGES & 1) ^ 1
                at = [batch, key_head, (n_tiles - 1 - j) * BLOCK_KEYS, 0]
                mbarrier.wait(k_bars[1].index(stage), round_)
                load(k_desc, at, k_tiles, k_bars, stage)
                mbarrier.wait(v_bars[1].index(stage), round_)
                load(v_desc, at, v_tiles, v_bars, stage)
                nth += 1
            nth_turn += 1


@gluon.jit
def weigh(scores, m, d, scale_log2, last_key, key, MASKED: gl.constexpr):
    """A tile's weights p, what rescales the sums so far, and the new m and d."""
    if MASKED:
        keys = key + gl.arange(0, scores.shape[1], layout=gl.SliceLayout(0, scores.type.layout))
        scores = gl.where(keys[None, :] <= last_key[:, None], scores, float("-inf"))
    # eq: online-m
    m_new = gl.maximum(m, gl.max(scores, axis=1) * scale_log2)
    m_safe = gl.where(m_new == float("-inf"), 0.0, m_new)
    # eq: exp2-identity
    p = gl.exp2(scores * scale_log2 - m_safe[:, None])
    old = gl.exp2(m - m_safe)
    # eq: online-d
    return p, old, m_new, d * old + gl.sum(p, axis=1)


@gluon.jit
def attend(group: gl.constexpr, q_desc, k_desc, o_desc, lse_ptr, tiles, o_tiles, bars, scale_log2,
           CAUSAL: gl.constexpr):  # fmt: skip
    """Four warps: attention of their ROWS queries in each turn."""
    q_tiles, k_tiles, v_tiles = tiles
    q_bars, k_bars, v_bars = bars
    GROUPS: gl.constexpr = q_tiles.shape[0]
    STAGES: gl.constexpr = k_tiles.shape[0]
    BLOCK_KEYS: gl.constexpr = k_tiles.shape[3]
    DIMS: gl.constexpr = k_tiles.shape[4]
    # How the numbers of a product lie in registers, those of a left factor, and one for each row.
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_KEYS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DIMS, 16])
    FACTOR: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    BY_ROW: gl.constexpr = gl.SliceLayout(1, SCORES)
    n_heads, n_queries, n_keys = q_desc.shape[1], q_desc.shape[2], k_desc.shape[2]
    q = q_tiles.index(group).reshape([ROWS, DIMS])
    zero = gl.zeros([ROWS, BLOCK_KEYS], gl.float32, SCORES)
    n_row_tiles = gl.cdiv(n_queries, GROUPS * ROWS)
    n_tasks = tasks_of(n_row_tiles, CAUSAL)
    nth_turn = 0
    nth = 0
    for i in range(gl.program_id(0), q_desc.shape[0] * n_heads * n_tasks, gl.num_programs(0)):
        batch, head, task = i // n_tasks // n_heads, i // n_tasks % n_heads, i % n_tasks
        for turn in range(turns_of(task, n_row_tiles, CAUSAL)):
            tile = gl.where(turn == 0, n_row_tiles - 1 - task, task)
            first_row = tile * GROUPS * ROWS
            n_tiles, n_whole = tiles_seen(
                first_row, GROUPS * ROWS, n_queries, n_keys, BLOCK_KEYS, CAUSAL
            )
            rows = first_row + group * ROWS + gl.arange(0, ROWS, layout=BY_ROW)
            last_key = rows * 0 + (n_keys - 1)
            if CAUSAL:
                last_key = gl.minimum(rows + (n_keys - n_queries), n_keys - 1)
            m = gl.full([ROWS], float("-inf"), gl.float32, BY_ROW)
            d = gl.zeros([ROWS], gl.float32, BY_ROW)
            a = gl.zeros([ROWS, DIMS], gl.float32, SUMS)
            mbarrier.wait(q_bars[0].index(group), nth_turn & 1)
            if n_tiles > 0:
                # Scores and weights of the first tile, masked whether or not they need be.
                stage = nth % STAGES
                k = k_tiles.index(stage).reshape([BLOCK_KEYS, DIMS])
                mbarrier.wait(k_bars[0].index(stage), nth // STAGES & 1)
                scores = warpgroup_mma(q, k.permute([1, 0]), zero, use_acc=False, is_async=True)
                scores = warpgroup_mma_wait(0, deps=[scores])
                mbarrier.arrive(k_bars[1].index(stage))
                key = (n_tiles - 1) * BLOCK_KEYS
                p, _, m, d = weigh(scores, m, d, scale_log2, last_key, key, True)
                p = gl.convert_layout(p.to(q.dtype), FACTOR)
                nth += 1

                # Of the others those with a mask come first.
                n_masked = gl.maximum(n_tiles - n_whole, 1)
                for WHOLE in gl.static_range(2):
                    start = n_masked if WHOLE else 1
                    end = n_tiles if WHOLE else n_masked
                    for j in range(start, end):
                        # Scores of this tile, and beside them the values of the tile before.
                        stage = nth % STAGES
                        before = (nth - 1) % STAGES
                        k = k_tiles.index(stage).reshape([BLOCK_KEYS, DIMS])
                        v = v_tiles.index(before).reshape([BLOCK_KEYS, DIMS])
                        mbarrier.wait(k_bars[0].index(stage), nth // STAGES & 1)
                        scores = warpgroup_mma(
                            q, k.permute([1, 0]), zero, use_acc=False, is_async=True
                        )
                        mbarrier.wait(v_bars[0].index(before), (nth - 1) // STAGES & 1)
                        # eq: attention-accumulator
                        a = warpgroup_mma(p, v, a, is_async=True)

                        # Weights of this tile while values are multiplied.
                        scores = warpgroup_mma_wait(1, deps=[scores])
                        mbarrier.arrive(k_bars[1].index(stage))
                        key = (n_tiles - 1 - j) * BLOCK_KEYS
                        weights, old, m, d = weigh(
                            scores, m, d, scale_log2, last_key, key, not WHOLE
                        )
                        a = warpgroup_mma_wait(0, deps=[a])
                        mbarrier.arrive(v_bars[1].index(before))
                        a = a * gl.convert_layout(old, gl.SliceLayout(1, SUMS))[:, None]
                        p = gl.convert_layout(weights.to(q.dtype), FACTOR)
                        nth += 1

                # The values of the last tile.
                before = (nth - 1) % STAGES
                v = v_tiles.index(before).reshape([BLOCK_KEYS, DIMS])
                mbarrier.wait(v_bars[0].index(before), (nth - 1) // STAGES & 1)
                a = warpgroup_mma(p, v, a, is_async=True)
                mbarrier.arrive(q_bars[1].index(group))
                a = warpgroup_mma_wait(0, deps=[a])
                mbarrier.arrive(v_bars[1].index(before))
            else:
                mbarrier.arrive(q_bars[1].index(group))

            # A query that sees no key has a = d = 0; its output is 0 and not 0 / 0.
            d_safe = gl.convert_layout(gl.where(d == 0.0, 1.0, d), gl.SliceLayout(1, SUMS))
            o_tile = o_tiles.index(group)
            tma.store_wait(0)  # the output before this one has left its place
            o_tile.reshape([ROWS, DIMS]).store((a / d_safe[:, None]).to(q.dtype))
            fence_async_shared()
            tma.async_copy_shared_to_global(
                o_desc, [batch, head, first_row + group * ROWS, 0], o_tile
            )
            at = lse_ptr + (batch * n_heads + head).to(gl.int64) * n_queries + rows
            gl.store(at, (m + gl.log2(d)) / LOG2E, mask=rows < n_queries)
            nth_turn += 1
    tma.store_wait(0)


@gluon.jit
def barriers(COUNT: gl.constexpr, READERS: gl.constexpr):
    """For each of COUNT places a barrier that says it is loaded, and one that all have read it."""
    ready = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(free.index(i), count=READERS)
    return ready, free


@gluon.jit
def attention_warp_groups_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, scale_log2,
    CAUSAL: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Attention for one task after another, of GROUPS tiles of queries that see the same keys.

    Args:
        q_desc: queries (batch, heads, n_queries, head_dim), in tiles of 64.
        k_desc: keys (batch, key heads, n_keys, head_dim), in tiles of as many as come at once.
        v_desc: values, likewise.
        o_desc: output, like the queries.
        lse_ptr: m + log d of each query, float32, contiguous (batch, heads, n_queries).
        scale_log2: what inner products are multiplied by, times log₂ e; at least 0.
        CAUSAL: query i sees keys up to i + n_keys − n_queries.
        GROUPS: groups of four warps that compute, 2 or 3.
        STAGES: tiles of keys, and of values, for which there is memory.
    """
    q_tiles = gl.allocate_shared_memory(q_desc.dtype, [GROUPS] + q_desc.block_shape, q_desc.layout)
    o_tiles = gl.allocate_shared_memory(o_desc.dtype, [GROUPS] + o_desc.block_shape, o_desc.layout)
    k_tiles = gl.allocate_shared_memory(k_desc.dtype, [STAGES] + k_desc.block_shape, k_desc.layout)
    v_tiles = gl.allocate_shared_memory(v_desc.dtype, [STAGES] + v_desc.block_shape, v_desc.layout)
    tiles = (q_tiles, k_tiles, v_tiles)
    bars = (barriers(GROUPS, 1), barriers(STAGES, GROUPS), barriers(STAGES, GROUPS))
    fence_async_shared()
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (attend, (0, q_desc, k_desc, o_desc, lse_ptr, tiles, o_tiles, bars, scale_log2,
                          CAUSAL)),
                (attend, (1, q_desc, k_desc, o_desc, lse_ptr, tiles, o_tiles, bars, scale_log2,
                          CAUSAL)),
                (load_forward, (q_desc, k_desc, v_desc, tiles, bars, CAUSAL)),
            ],
            [4, 1],
            [240, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (attend, (0, q_desc, k_desc, o_desc, lse_ptr, tiles, o_tiles, bars, scale_log2,
                          CAUSAL)),
                (attend, (1, q_desc, k_desc, o_desc, lse_ptr, tiles, o_tiles, bars, scale_log2,
                          CAUSAL)),
                (attend, (2, q_desc, k_desc, o_desc, lse_ptr, tiles, o_tiles, bars, scale_log2,
                          CAUSAL)),
                (load_forward, (q_desc, k_desc, v_desc, tiles, bars, CAUSAL)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )  # fmt: skip


def tiles_of(x: Tensor, rows: int, dims: int) -> TensorDescriptor:
    """A descriptor as Gluon wants it: with the layout of its tiles in shared memory."""
    plain = described(x, rows, dims)
    layout = gl.NVMMASharedLayout.get_default_for(plain.block_shape, DTYPES[x.dtype])
    return TensorDescriptor(x, plain.shape, plain.strides, plain.block_shape, layout)


def attention_warp_groups(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention and lse as `attention_in_memory` has them, by the kernel; for float16 and bfloat16
    of up to 128 dimensions, on Hopper. A tensor that a descriptor cannot address is copied."""
    q, k, v = (addressable(each) for each in (q, k, v))
    batch, heads, n_queries, head_dim = q.shape
    o = empty(q.shape, q.dtype, q.device)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    dims = max(16, triton.next_power_of_2(head_dim))
    keys, groups, stages = 128, 2, 4 if dims <= 64 else 2
    if dims <= 64 and n_queries >= 2048 and not causal:
        groups, stages = 3, 3  # in other cases three tiles are too many, or do not fit
    n_tiles = triton.cdiv(n_queries, 64 * groups) * batch * heads
    programs = torch.cuda.get_device_properties(q.device).multi_processor_count
    attention_warp_groups_kernel[(min(n_tiles, programs),)](
        tiles_of(q, 64, dims), tiles_of(k, keys, dims), tiles_of(v, keys, dims),
        tiles_of(o, 64, dims), lse, scale * math.log2(math.e),
        CAUSAL=causal, GROUPS=groups, STAGES=stages, num_warps=4,
    )  # fmt: skip
    return o, lse
