"""Whole rows in one program: which rows fit, how many go side by side, with how many warps."""

from __future__ import annotations

from .constants import Choice, RowTile
from .device import Device
from .traits import Traits
from .vectors import next_power_of_2

MAX_COLS = 65536
"""The longest row that packed and aligned rows take when they are asked for by name; the registers
end before."""

LONGEST = {
    # (bytes of an element, edges): of one input, of two
    (2, False): (16384, 16384),
    (2, True): (16384, 8192),
    (4, False): (32768, 8192),
    (4, True): (16384, 16384),
    (8, False): (8192, 8192),
    (8, True): (8192, 8192),
}
"""The longest row that should be one program's, if there are rows enough. A program that fills a
multiprocessor alone cannot hide its waiting behind another one. 16-bit rows, which have to be twice
as fast as float32, need that earlier; two inputs take twice the registers."""

LONGEST_REDUCED = {2: 32768, 4: 16384, 8: 8192}
"""The same where one number is written per row, by bytes of an element: nothing waits in registers
to be written."""

LONGEST_OF_FEW = 8192
"""The same if there are few rows: longer ones are split, or most of the device idles."""


def fits_one_program(
    n_rows: int, n_cols: int, itemsize: int, edges: bool, traits: Traits, device: Device
) -> bool:
    """Whether a row should be one program's, held in its registers."""
    one_input, two_inputs = LONGEST[itemsize, edges]
    longest = one_input if traits.inputs == 1 else two_inputs
    if traits.reduces:
        longest = LONGEST_REDUCED[itemsize]
    if 2 * n_rows < device.multiprocessors:
        longest = min(longest, LONGEST_OF_FEW)
    # A body of little more than half a tile wastes the rest of it.
    half_empty = edges and itemsize == 2 and traits.inputs == 1 and 8200 <= n_cols <= 12288
    return n_cols <= longest and (traits.reduces or not half_empty)


def choose_row_tile(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    vector: int,
    edges: bool,
    traits: Traits,
    device: Device,
) -> Choice:
    """One program for one row or several: `aligned_rows` if rows have edges, else `packed_rows`.

    As many rows as make up enough elements to keep a program busy, but not so many that programs
    become fewer than the device can run.

    Args:
        n_rows: number of rows.
        n_cols: number of columns.
        itemsize: bytes of the widest element that is read.
        vector: elements that one access moves.
        edges: rows do not all start and end on a vector.
        traits: of the operation.
        device: what the kernel will run on.
    """
    body = n_cols // vector * vector if edges else n_cols  # 4,097 columns have a body of 4,096
    half_vector = itemsize == 2 and vector == 4 and not edges
    block_cols = max(32 if half_vector else 16, next_power_of_2(body))
    enough_for_all = max(1, next_power_of_2(n_rows // (2 * device.multiprocessors)))
    how = RowTile(
        block_rows=min(_rows(block_cols, itemsize, half_vector, edges, traits), enough_for_all),
        block_cols=block_cols,
        vector=vector,
        barrier=device.nvidia and itemsize == 2 and _barrier(block_cols, edges, traits),
    )
    steps = _warp_steps(itemsize, half_vector, edges, traits)
    return Choice(
        "aligned_rows" if edges else "packed_rows",
        how,
        num_warps=next((warps for longest, warps in steps if block_cols <= longest), 32),
    )


def _rows(block_cols: int, itemsize: int, half_vector: bool, edges: bool, traits: Traits) -> int:
    """Rows of a tile, if there are rows enough."""
    if edges:
        # Edges take two vectors of lanes per row besides; in short rows, as many as the body.
        return min(16, max(1, 1024 // block_cols))
    if itemsize == 2 and traits.inputs == 1 and not half_vector:
        # A narrow element is half the bytes, so it takes twice as many to keep memory busy.
        if traits.reduces:
            return max(1, (2048 if block_cols >= 512 else 4096) // block_cols)
        return 2 if block_cols == 4096 else max(1, 2048 // block_cols)
    return max(1, 1024 // block_cols)


# (block_cols up to, warps). Few warps, because a reduction within one warp needs no barrier; many,
# because a long row fills the registers of many threads. Which weighs more was measured, for each
# kind of row. Tiles beyond the last step take as many warps as there are.
EDGES_NARROW = ((128, 2), (2048, 1), (4096, 2), (8192, 4), (16384, 8), (32768, 16))
EDGES_NARROW_TWO_INPUTS = ((128, 2), (1024, 1), (2048, 2), (4096, 4), (8192, 8), (32768, 16))
EDGES_WIDE = ((128, 2), (256, 1), (512, 2), (2048, 4), (4096, 8), (8192, 16), (32768, 8))
HALF_VECTORS = ((64, 2), (32768, 1))
NARROW = ((2048, 4), (8192, 16), (16384, 8), (32768, 16))
FLOAT32 = ((1024, 4), (2048, 1), (4096, 2), (32768, 16))
TWO_INPUTS_OR_FLOAT64 = ((2048, 4), (32768, 16))
REDUCED = ((64, 2), (1024, 1), (2048, 2), (4096, 4), (8192, 8), (32768, 16))
REDUCED_EDGES_NARROW = ((128, 2), (1024, 1), (4096, 2), (8192, 4), (16384, 8), (32768, 16))


def _warp_steps(
    itemsize: int, half_vector: bool, edges: bool, traits: Traits
) -> tuple[tuple[int, int], ...]:
    if traits.reduces:
        return REDUCED_EDGES_NARROW if edges and itemsize == 2 else REDUCED
    if edges and itemsize == 2:
        return EDGES_NARROW if traits.inputs == 1 else EDGES_NARROW_TWO_INPUTS
    if edges:
        return EDGES_WIDE
    if half_vector:
        return HALF_VECTORS
    if traits.inputs > 1 or itemsize == 8:
        return TWO_INPUTS_OR_FLOAT64
    return NARROW if itemsize == 2 else FLOAT32


def _barrier(block_cols: int, edges: bool, traits: Traits) -> bool:
    """Whether 16-bit elements are worth converting again: where the registers are full."""
    if traits.inputs > 1:
        return block_cols == 16384 and not edges
    if traits.reduces:
        return block_cols >= (4096 if edges else 8192)
    return block_cols >= (2048 if edges else 8192)
