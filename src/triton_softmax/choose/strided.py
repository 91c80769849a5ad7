"""Softmax along a dimension whose elements lie apart, seen as (n_outer, n_cols, n_inner).

What one softmax is taken of is a strand: n_cols elements along the middle dimension. Strands lie
side by side along the last.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .constants import Choice, SplitStrided, StridedLoops, StridedTile
from .device import Device
from .polling import lanes_and_polls
from .traits import Traits
from .vectors import ceil_div, next_power_of_2

CHUNK_REGISTERS = 128
"""Registers per thread of a program that holds a chunk of the softmax dimension."""

LONGEST_SPLIT = 65536
"""The longest strand that is split into chunks. Longer ones have so many that a second read costs
less than waiting for all of them."""

LONGEST_SPLIT_NARROW = 16384
"""The same if elements have to be accessed one by one or two by two."""


class Columns(NamedTuple):
    """The strands of a tensor, as all strided geometries see them."""

    n_outer: int
    """Size of the first dimension."""

    n_cols: int
    """Size of the softmax dimension: the length of a strand."""

    n_inner: int
    """Size of the last dimension: strands side by side."""

    itemsize: int
    """Bytes of the widest element that is read."""

    vector: int
    """Elements that one access across strands may move."""

    stated_vector: int
    """The same as the kernel is told: 1 where Triton sees it by itself."""

    wide_index: bool
    """Offsets within one outer slice need 64 bits."""


# --8<-- [start:columns]
def choose_columns(columns: Columns, traits: Traits, device: Device) -> Choice:
    """A tile of whole strands if they are short, else chunks of them, else loops.

    Very long strands, for whose many chunks there would be too many words to read, are walked along
    in loops. So are all long ones where waiting is not known to work, and, unless they are few,
    those whose elements have to be accessed one by one or (16-bit, forward) two by two.
    """
    itemsize, forward = columns.itemsize, traits.inputs == 1
    block_cols = next_power_of_2(columns.n_cols)
    longest_tile = 1024 if itemsize == 4 and forward else 512
    # Narrow accesses take longer than reading twice, unless programs are few.
    groups = columns.n_outer * ceil_div(columns.n_inner, 32)
    too_narrow = 2 if itemsize == 2 and forward else 1
    longest_split = LONGEST_SPLIT if columns.vector > 2 else LONGEST_SPLIT_NARROW
    if groups < device.multiprocessors and not traits.any_order:
        too_narrow = 0
    if traits.any_order:
        longest_tile = 2048  # one program as long as it can: it alone adds in any order
        columns = columns._replace(n_outer=1)
    if (
        (device.nvidia and itemsize <= 4 and columns.vector > too_narrow)
        and (block_cols > longest_tile and columns.n_cols <= longest_split)
        and (split := choose_split_strided(columns, traits, device))
    ):
        return split
    if block_cols <= (2048 if itemsize <= 4 else 1024):
        return choose_strided_tile(columns, traits, device)
    return choose_strided_loops(columns, traits, device)


# --8<-- [end:columns]


# --8<-- [start:tile]
def choose_strided_tile(columns: Columns, traits: Traits, device: Device) -> Choice:
    """Whole strands, and as many side by side as make whole cache lines, or as registers allow."""
    sixteen, forward = columns.itemsize == 2, traits.inputs == 1
    power = next_power_of_2(columns.n_cols)
    block_cols, tiles = power, 1
    if columns.n_cols < power:
        block_cols = max(1, power // 8)
        tiles = ceil_div(columns.n_cols, block_cols)
    if power <= 64:
        block_inner = max(64, 1024 // power)
    elif power <= 512:
        half_lines = sixteen and (power <= 256 or not forward)  # else, of so few 16-bit elements
        block_inner = 64 if half_lines else 32
    else:
        block_inner = 16
    block_inner = min(block_inner, next_power_of_2(columns.n_inner))
    groups = columns.n_outer * ceil_div(columns.n_inner, block_inner)
    while block_inner > 8 and (
        columns.n_outer * ceil_div(columns.n_inner, block_inner) < device.multiprocessors
    ):
        block_inner //= 2
    how = StridedTile(
        block_cols,
        block_inner,
        columns.stated_vector,
        # A large 16-bit tile: as float32 numbers it would fill the registers.
        barrier=device.nvidia and sixteen and power >= (512 if forward else 256),
        wide_index=columns.wide_index,
        tiles=tiles,
    )
    per_thread = 80 if sixteen else 48 if columns.itemsize == 4 else 32
    if tiles == 1 and power > 512:
        per_thread = 64
    if groups < device.multiprocessors and columns.itemsize <= 4:
        per_thread = 20 // traits.inputs  # all of it on its way at once
    num_warps = 1
    while num_warps < 16 and tiles * block_cols * block_inner > 32 * per_thread * num_warps:
        num_warps *= 2
    if device.multiprocessors <= groups < 4 * device.multiprocessors and columns.itemsize <= 4:
        num_warps = min(16, 2 * num_warps)
    return Choice("strided", how, num_warps)


# --8<-- [end:tile]


# --8<-- [start:split]
def chunk_tile(n_cols: int, itemsize: int, traits: Traits) -> tuple[int, int, int]:
    """(block_cols, block_inner, warps) of a chunk of strands that are too long for a tile.

    The taller the chunks, the fewer words there are to read; the smaller the tiles, the more
    programs run beside one that waits.
    """
    if traits.inputs == 1:
        if itemsize == 4:
            return (512, 32, 8) if n_cols <= 16384 else (1024, 16, 8)
        if n_cols <= 8192:
            return 512, 32, 4
        return (1024, 32, 8) if n_cols <= 32768 else (2048, 16, 8)
    if itemsize == 2:
        return (512, 32, 8) if n_cols <= 8192 else (1024, 32, 16)
    if n_cols <= 4096:
        return 256, 32, 8
    return (512, 32, 16) if n_cols <= 16384 else (1024, 16, 16)


def choose_split_strided(columns: Columns, traits: Traits, device: Device) -> Choice | None:
    """Chunks of strands on as many programs; None if the chunks of a strand, and so all that wait
    for each other, do not run at once."""
    block_cols, block_inner, num_warps = chunk_tile(columns.n_cols, columns.itemsize, traits)
    programs = columns.n_outer * ceil_div(columns.n_inner, 32) * ceil_div(columns.n_cols, 512)
    if programs < 2 * device.multiprocessors:
        # Narrower than a cache line's half only if not even every fourth multiprocessor has one.
        narrow = columns.itemsize == 4 or 4 * programs < device.multiprocessors
        block_cols, block_inner, num_warps = 256, 8 if narrow else 16, 4
    return split_strided_as((block_cols, block_inner, num_warps), columns, device)


def split_strided_as(tile: tuple[int, int, int], columns: Columns, device: Device) -> Choice | None:
    """The same with a given (block_cols, block_inner, warps) of a chunk."""
    block_cols, block_inner, num_warps = tile
    block_inner = min(block_inner, next_power_of_2(columns.n_inner))
    n_chunks = ceil_div(columns.n_cols, block_cols)
    programs = columns.n_outer * ceil_div(columns.n_inner, block_inner) * n_chunks
    if n_chunks > device.resident_programs(CHUNK_REGISTERS, num_warps) or programs >= 2**31:
        return None
    chunks, polls = lanes_and_polls(n_chunks, num_warps, width=block_inner)
    how = SplitStrided(
        block_cols,
        block_inner,
        columns.stated_vector,
        barrier=columns.itemsize == 2,
        wide_index=columns.wide_index,
        wait=True,
        chunks=chunks,
        polls=polls,
    )
    return Choice("split_strided", how, num_warps, max_registers=CHUNK_REGISTERS, n_chunks=n_chunks)


# --8<-- [end:split]


# --8<-- [start:loops]
def loop_tile(columns: Columns, traits: Traits) -> tuple[int, int, int]:
    """(block_cols, block_inner, warps) of a tile that walks along a chunk."""
    if columns.itemsize == 8:
        return 64, 32, 4
    if columns.itemsize == 4:
        return (64, 64, 4) if traits.inputs == 1 else (64, 64, 8)
    if traits.inputs == 1:
        return (256, 32, 4) if columns.n_cols > 16384 else (64, 32, 2)
    return (64, 128, 4) if columns.vector == 8 else (64, 32, 4)


def choose_strided_loops(columns: Columns, traits: Traits, device: Device) -> Choice:
    """Long strands walked along twice, in as many chunks as keep the device busy.

    But every program of the second launch reads the summaries of all chunks of its strands, which
    should be no more than the elements of its own chunk.
    """
    n_cols, itemsize = columns.n_cols, columns.itemsize
    tall, wide, num_warps = loop_tile(columns, traits)
    block_inner = min(wide, next_power_of_2(columns.n_inner))
    block_cols = tall * wide // block_inner  # the fewer columns, the taller the tile
    groups = columns.n_outer * ceil_div(columns.n_inner, block_inner)
    # n summaries of 8 bytes are as much as a chunk if 8 · n is the bytes of a strand over n.
    as_much = math.isqrt(n_cols * itemsize * traits.inputs // 8)
    few_summaries = min(as_much, max(256, 512 // groups))
    busy = 32 * device.multiprocessors // groups
    n_chunks = max(1, min(few_summaries, busy, ceil_div(n_cols, block_cols)))
    chunk_cols = ceil_div(n_cols, n_chunks * block_cols) * block_cols  # whole tiles
    n_chunks = ceil_div(n_cols, chunk_cols)
    how = StridedLoops(
        block_cols,
        block_inner,
        columns.stated_vector,
        wide_index=columns.wide_index,
        publish=True,
        write=True,
    )
    return Choice(
        "strided_loops",
        how,
        num_warps,
        n_chunks=n_chunks,
        chunk_cols=chunk_cols,
        two_launches=n_chunks > 1,
    )


# --8<-- [end:loops]


def choose_loops(n_rows: int, n_cols: int, itemsize: int, traits: Traits, device: Device) -> Choice:
    """Rows of adjacent elements walked in loops, as a tensor (n_rows, n_cols, 1): what is left for
    rows that no geometry of rows takes."""
    columns = Columns(n_rows, n_cols, 1, itemsize, vector=1, stated_vector=1, wide_index=False)
    return choose_strided_loops(columns._replace(wide_index=n_cols >= 2**31), traits, device)
