"""Whole rows in one program: which rows fit, how many go side by side, with how many warps."""

from __future__ import annotations

from typing import NamedTuple

from .constants import Choice, RowTile
from .device import Device
from .traits import Traits
from .vectors import VECTOR_BYTES, ceil_div, next_power_of_2

MAX_COLS = 65536
"""The longest row that packed and aligned rows take when they are asked for by name; the registers
end before."""

LONGEST = {
    # (bytes of an element, edges): of one input, of two
    (2, False): (20480, 16384),
    (2, True): (16384, 16384),
    (4, False): (32768, 12288),
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

SHORT = 128
"""The longest row that is short: a program has many of it, and lanes without an element cost more
than anything else."""

LONGEST_ODD = {2: (96, 40), 4: (24, 16), 8: (24, 16)}
"""The longest row of an odd length that is moved element by element, by bytes of an element, with
one input and with two. Such rows are mostly edges, and so they have none."""

LONGEST_TILE = {(2, False): 256, (2, True): 512, (4, False): 1024, (4, True): 1024}
"""The longest row, or body, that lies in a single tile, by bytes of an element and edges; 1024 for
all others."""

TILES = {4: (3, 4), 8: (5, 6, 8)}
"""How many tiles a row may take, where a tile is a quarter or an eighth of the next power of two.
With seven eighths as well, less would be wasted in one length of four, and one kernel more would be
compiled for each power of two."""

ELEMENTS_PER_THREAD = {2: 64, 4: 64, 8: 16}
"""Elements of a longer row that a thread holds, by their bytes: as many as leave room for several
programs on a multiprocessor."""


class Rows(NamedTuple):
    """Rows of adjacent elements, as a choice sees them."""

    n_rows: int
    """Number of rows."""

    n_cols: int
    """Number of columns."""

    itemsize: int
    """Bytes of the widest element that is read, which is what a program keeps in registers."""

    vector: int
    """Elements that one access moves where rows may have edges."""

    edges: bool
    """Rows do not all start and end on a vector."""

    divisor: int
    """Elements that one access moves if no row is to have edges."""


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
    return n_cols <= longest


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
    kernel = "aligned_rows" if edges else "packed_rows"
    enough_for_all = max(1, next_power_of_2(n_rows // (2 * device.multiprocessors)))
    if n_cols <= SHORT and not edges:
        return _short_rows(n_cols, enough_for_all, itemsize, vector, traits)
    if body > 1024:
        few = n_rows < 4 * device.multiprocessors and body <= LONGEST_OF_FEW and itemsize <= 4
        if few:
            return _row_of_few(kernel, body, itemsize, vector)
        return _row_in_tiles(kernel, body, itemsize, vector, traits, device)
    longest_tile = LONGEST_TILE.get((itemsize, edges), 1024)
    if edges and traits.inputs == 2:
        longest_tile = min(longest_tile, 32)
    if body > longest_tile and enough_for_all > 1 and itemsize == 2 and vector == 8:
        return _rows_in_tiles(kernel, body, enough_for_all, edges, traits, device)
    block_cols = max(16, next_power_of_2(body))
    rows = min(_rows(block_cols, itemsize, edges, traits), enough_for_all)
    how = RowTile(rows, block_cols, vector, barrier=False)
    if edges and itemsize == 4 and 32 < body < 64:  # up to half of a tile of 64 would be empty
        how = how._replace(block_cols=16, tiles=ceil_div(body, 16))
        return Choice(kernel, how, num_warps=max(1, rows // 4))
    steps = _warp_steps(itemsize, edges, traits)
    return Choice(kernel, how, next(warps for longest, warps in steps if block_cols <= longest))


def longest_without_edges(itemsize: int, divisor: int, traits: Traits) -> int:
    """The longest row that is packed even if it does not consist of whole vectors.

    Args:
        itemsize: bytes of the widest element that is read.
        divisor: the largest power of two, up to a vector, that divides length and strides.
        traits: of the operation.
    """
    if divisor > 1 or traits.reduces:
        return SHORT
    one_input, two_inputs = LONGEST_ODD[itemsize]
    return one_input if traits.inputs == 1 else two_inputs


def _short_rows(
    n_cols: int, enough_for_all: int, itemsize: int, vector: int, traits: Traits
) -> Choice:
    """Many short rows, 2 KiB of them to a program; if there are too few rows for that, still as
    many as give each thread something to do."""
    power = next_power_of_2(n_cols)
    whole = vector * itemsize == VECTOR_BYTES
    block_cols = _cols_of_short_rows(n_cols, vector, whole, traits)
    tiles = ceil_div(n_cols, block_cols)
    if tiles > 4:
        tiles = next(each for each in TILES[8] if each >= tiles)
    rows = 2048 // itemsize // power * (2 if traits.reduces else 1)
    rows = min(rows, max(enough_for_all, 256 // power))
    how = RowTile(rows, block_cols, vector, barrier=False, tiles=tiles)
    return Choice("packed_rows", how, _warps_of_short_rows(n_cols, how, itemsize, traits))


def _cols_of_short_rows(n_cols: int, vector: int, whole: bool, traits: Traits) -> int:
    """Columns of tiles so narrow that few lanes are empty, or of a single one that has few anyway.
    A tile more costs the accesses of another one, to each tensor."""
    power = next_power_of_2(n_cols)
    nearly_full = whole and traits.inputs == 2 and 4 * n_cols > 3 * power
    if n_cols == power or power <= 4 or nearly_full:
        return power
    widest = 32 if whole and not traits.reduces else 16
    return max(2, vector, min(widest, power // 4))


def _warps_of_short_rows(n_cols: int, how: RowTile, itemsize: int, traits: Traits) -> int:
    """Two; or one, where a thread has whole vectors of two tensors on their way at once; or four,
    where accesses are of one element or two, so that a program has many of them."""
    if how.vector * itemsize == VECTOR_BYTES:
        return 1 if traits.inputs == 2 and n_cols > 32 else 2
    if how.vector * itemsize > 4 or traits.reduces or n_cols == 3:
        return 2
    enough = how.block_rows * how.block_cols >= 128 * how.vector  # an access for each thread
    several = how.vector == 1 or traits.inputs == 2 or not 2 < n_cols <= 32
    return 4 if several and enough else 2


def _row_of_few(kernel: str, body: int, itemsize: int, vector: int) -> Choice:
    """A row that has much of a multiprocessor for itself: 32 bytes to a thread, so that all of it
    is on its way at once."""
    power = next_power_of_2(body)
    how = RowTile(block_rows=1, block_cols=power, vector=vector, barrier=False)
    return Choice(kernel, how, num_warps=min(8, power * itemsize // 1024))


def _row_in_tiles(
    kernel: str, body: int, itemsize: int, vector: int, traits: Traits, device: Device
) -> Choice:
    """A long row by itself, in tiles of an eighth of the next power of two."""
    power = next_power_of_2(body)
    block_cols = power // 8
    tiles = next(tiles for tiles in TILES[8] if tiles * block_cols >= body)
    full = itemsize == 2 and power >= 16384  # so many 16-bit elements fill the registers
    per_thread = ELEMENTS_PER_THREAD[itemsize]
    if full and (traits.inputs == 1 or tiles == 8):  # two tensors in less: more warps are faster
        per_thread *= 2
    how = RowTile(
        block_rows=1,
        block_cols=block_cols,
        vector=vector,
        barrier=device.nvidia and itemsize == 2 and (full or traits.reduces or traits.numbers),
        tiles=tiles,
    )
    return Choice(kernel, how, num_warps=max(1, min(32, power // (32 * per_thread))))


def _rows_in_tiles(
    kernel: str, body: int, enough_for_all: int, edges: bool, traits: Traits, device: Device
) -> Choice:
    """A few rows of some hundred 16-bit elements, in tiles of a quarter of the next power of
    two."""
    power = next_power_of_2(body)
    block_cols = power // 4
    both = edges and traits.inputs == 2
    if both:  # rows enough to hide the two reads of an edge
        rows, num_warps = max(1, min(8, 4096 // power)), 2 if power <= 128 else 4
    else:
        rows, num_warps = 2048 // power, 1 if edges or traits.reduces else 2
    how = RowTile(
        block_rows=min(rows, enough_for_all),
        block_cols=block_cols,
        vector=8,
        barrier=device.nvidia and traits.reduces,
        tiles=next(tiles for tiles in TILES[4] if tiles * block_cols >= body),
    )
    return Choice(kernel, how, num_warps)


def _rows(block_cols: int, itemsize: int, edges: bool, traits: Traits) -> int:
    """Rows of a tile, if there are rows enough."""
    if edges:
        # Edges take two vectors of lanes per row besides; in short rows, as many as the body.
        return min(16, max(1, 1024 // block_cols))
    if itemsize == 2 and traits.inputs == 1:
        # A narrow element is half the bytes, so it takes twice as many to keep memory busy.
        return max(1, (4096 if traits.reduces else 2048) // block_cols)
    return max(1, 1024 // block_cols)


# (block_cols up to, warps). Few warps, because a reduction within one warp needs no barrier; many,
# to move more at a time. Which weighs more was measured, for each kind of row.
EDGES_NARROW = ((128, 2), (1024, 1))
EDGES_WIDE = ((128, 2), (256, 1), (512, 2), (1024, 4))
REDUCED = ((64, 2), (1024, 1))
OTHERS = ((1024, 4),)


def _warp_steps(itemsize: int, edges: bool, traits: Traits) -> tuple[tuple[int, int], ...]:
    if edges and itemsize == 2:
        return EDGES_NARROW
    if traits.reduces:
        return REDUCED
    return EDGES_WIDE if edges else OTHERS
