"""Every choice that the tuner can try for a call, with the time that the model gives it.

The library's tables name one choice per call. The tuner compares it with all others here, and uses
the [model][softmax_bench.cost] only to try the likely ones first.
"""

from __future__ import annotations

from collections.abc import Iterator

from softmax_bench import cost
from triton_softmax.config import Choice, Device, Traits, choose
from triton_softmax.config.calls import Columns, Rows, ceil_div, next_power_of_2
from triton_softmax.config.constants import TILE_KERNELS, RowTile, StridedTile
from triton_softmax.config.splitting import (
    MAX_CHUNKS,
    Candidate,
    can_be_split,
    runs_at_once,
    split_as,
    split_in_two_launches,
    split_strided,
)

WARPS = (1, 2, 4, 8, 16)
ELEMENTS = (4, 8, 16, 32, 64)  # most elements per thread
LONGEST_BYTES = 65536  # of a row in one program: a quarter of a multiprocessor's registers
OVERHEAD = 64  # registers per thread besides its elements
MOST_POLLS = 4  # most words that a thread polls at once; each takes two registers


def tiles_of(length: int, smallest: int) -> list[tuple[int, int]]:
    """Return the ways to cover a length, as (columns per tile, tiles): one tile, or several of a
    quarter or an eighth of the next power of two."""
    power = next_power_of_2(length)
    found = [(power, 1)]
    for parts in (4, 8):
        width = power // parts
        if width >= smallest and length <= (parts - 1) * width:
            found.append((width, choose.count_tiles(length, width)))
    return found


def fits(lanes: int, warps: int) -> bool:
    """Return whether each thread of these warps gets some elements of a tile, but not too many."""
    return (warps == 1 or 64 * warps <= lanes) and lanes <= 4096 * warps


def row_tiles(rows: Rows, device: Device) -> Iterator[Choice]:
    """Yield every way to hold whole rows in tiles."""
    kinds = [(False, rows.divisor, rows.n_cols)]
    if rows.edges and rows.n_cols >= 2 * rows.vector > 2:
        kinds.append((True, rows.vector, rows.n_cols // rows.vector * rows.vector))
    for edges, vector, body in kinds:
        for block_cols, tiles in tiles_of(body, max(2, vector)):
            for warps in WARPS:
                for elements in ELEMENTS:
                    power = next_power_of_2(block_cols * tiles)
                    block_rows = max(1, elements * 32 * warps // power)
                    lanes = block_rows * block_cols * tiles
                    barrier = device.nvidia and rows.itemsize == 2 and lanes > 64 * 32 * warps
                    if fits(lanes, warps):
                        how = RowTile(block_rows, block_cols, vector, barrier, tiles, edges)
                        yield Choice(TILE_KERNELS[edges], how, warps)


def splits(rows: Rows, traits: Traits, device: Device) -> Iterator[Choice]:
    """Yield every way to split rows whose chunks are all resident at once."""
    pairs = rows.itemsize == 2 and rows.vector > 1
    for warps in WARPS[:4]:
        for elements in (16, 32, 64):
            for depth in (0, 2):
                registers = cost.held(elements, rows.itemsize, traits, pairs) * (2 if depth else 1)
                registers = ceil_div(registers + OVERHEAD, 8) * 8
                taken = Candidate(elements * 32 * warps, registers, warps, False, depth)
                few = ceil_div(rows.n_cols, taken.block) <= MAX_CHUNKS
                if registers <= 255 and few and runs_at_once(rows.n_cols, taken, device):
                    choice = split_as(taken, rows, traits, device)
                    if getattr(choice.how, "polls", 0) <= MOST_POLLS:
                        yield choice


def row_choices(rows: Rows, traits: Traits, device: Device) -> list[Choice]:
    """Return every choice for rows of adjacent elements except loops; two launches only as a last
    resort."""
    if rows.vector == 1:
        rows = rows.without_edges()
    short = rows.n_cols * rows.itemsize <= LONGEST_BYTES
    found = list(row_tiles(rows, device)) if short else []
    if can_be_split(rows) and rows.n_cols > 1024:
        found += list(splits(rows, traits, device))
        found = found or [split_in_two_launches(rows, traits, device)]
    return found


def strided_choices(columns: Columns, traits: Traits, device: Device) -> Iterator[Choice]:
    """Yield every choice for columns, whole or split, except loops."""
    n_cols, itemsize = columns.n_cols, columns.itemsize
    for wide in (8, 16, 32, 64, 128):
        block_inner = columns.side_by_side(wide)
        for warps in WARPS:
            for block_cols, tiles in tiles_of(n_cols, 2) if n_cols <= 2048 else ():
                lanes = block_cols * tiles * block_inner
                barrier = device.nvidia and itemsize == 2 and lanes > 64 * 32 * warps
                if fits(lanes, warps):
                    tile = block_cols, block_inner, columns.stated_vector, barrier
                    how = StridedTile(*tile, columns.wide_index, tiles)
                    yield Choice("strided", how, warps)
            # The elements take half of a chunk's registers; 16-bit ones, which are converted, a
            # quarter. Spilling some float32 elements costs less than smaller tiles.
            paired = itemsize == 2 and columns.vector > 1
            share = 64 if itemsize == 4 else 32
            elements = 64 * share // cost.held(64, itemsize, traits, paired)
            block_cols = 32 * warps * elements // block_inner
            if device.nvidia and itemsize <= 4 and 64 <= block_cols < n_cols <= 2**17:
                choice = split_strided(block_cols, block_inner, warps, columns, device)
                if choice:
                    yield choice


def timed(call: Rows | Columns, traits: Traits, device: Device) -> list[tuple[float, Choice]]:
    """Return (modelled time, choice) of every choice."""
    if isinstance(call, Rows):
        found = row_choices(call, traits, device)
        if not found:
            return [(0.0, choose.row_loops(call, traits, device))]
    else:
        found = list(strided_choices(call, traits, device))
        if call.n_cols > 512:
            found.append(choose.two_pass(call, traits, device))
    return [(cost.duration(each, call, traits, device), each) for each in found]
