"""Choices for a GPU that nobody has tuned on: every possible one is given a time, and the shortest
wins.

The time follows from what a program moves, from the instructions it issues, and from how many
programs a multiprocessor holds, which its registers decide. No constant here is about a length of a
row; they describe a multiprocessor, in nanoseconds, and were fitted on an H200. Another GPU has
others, but it is their ratios that choose, and these differ less.
"""

from __future__ import annotations

from .constants import Choice, RowTile, StridedTile
from .device import Device
from .row_tiles import Rows
from .split_rows import MAX_COLS, Candidate, for_two_launches, runs_at_once, split_as
from .strided import Columns, choose_loops, choose_strided_loops, split_strided_as
from .traits import Traits
from .vectors import ceil_div, next_power_of_2

LATENCY = 1200.0
"""From the start of a program to its end, if it moves and computes next to nothing."""

MEETING = 60.0
"""More for each time the warps of a program double: their reductions need barriers."""

EXCHANGE = 1500.0
"""More for a program that waits for the words of others."""

BYTES = 32.0
"""That memory moves for a multiprocessor in a nanosecond, if all of them ask for it."""

INSTRUCTIONS = 230.0
"""Of single lanes that a multiprocessor issues in a nanosecond."""

PER_ELEMENT, PER_ACCESS = 9, 6
"""Instructions for an element, and for an access, whose address has to be found."""

FETCH = 4.0
"""For the instructions of one more element to a thread, which come from memory too."""

OVERHEAD = 64
"""Registers of a thread beside its elements."""

LONGEST = 65536
"""Bytes of the longest row of one program: a quarter of the registers of a multiprocessor, so that
others run beside it."""

ELEMENTS = (4, 8, 16, 32, 64)
"""Of a thread, at most."""

WARPS = (1, 2, 4, 8, 16)
"""Of a program."""


def held(per_thread: int, itemsize: int, traits: Traits, paired: bool) -> int:
    """Registers for so many elements of each input."""
    return ceil_div(per_thread * traits.inputs * max(4, itemsize), 8 if paired else 4)


def duration(
    choice: Choice,
    groups: int,
    cells: int,
    lanes: int,
    accesses: float,
    itemsize: int,
    traits: Traits,
    device: Device,
) -> float:
    """Nanoseconds that a choice takes.

    Args:
        choice: what is launched.
        groups: of which each is cut into the chunks of the choice.
        cells: bytes that a program reads and writes.
        lanes: of a program: its elements, and those that lie beyond a row.
        accesses: of all lanes, to one tensor.
        itemsize, traits, device: as in other choices.
    """
    how, warps = choice.how, choice.num_warps
    per_thread = ceil_div(lanes, 32 * warps)
    paired = itemsize == 2 and getattr(how, "barrier", False)
    registers = choice.max_registers or held(per_thread, itemsize, traits, paired) + OVERHEAD // 2
    resident = device.resident_programs(min(255, registers), warps)
    if not resident or registers > 255:
        return float("inf")
    programs = groups * choice.n_chunks
    busiest = ceil_div(programs, device.multiprocessors)
    tensors = traits.inputs + (not traits.reduces)
    memory = busiest * cells / BYTES
    computing = busiest * (lanes * PER_ELEMENT * traits.inputs + accesses * tensors * PER_ACCESS)
    latency = LATENCY + per_thread * FETCH + MEETING * (warps.bit_length() - 1)
    if choice.n_chunks > 1 and not choice.two_launches:
        latency += EXCHANGE
        memory *= 1 + choice.n_chunks / resident  # who waits together does not read together
    waiting = latency * max(1.0, programs / resident)
    return latency + (memory**2 + (computing / INSTRUCTIONS) ** 2 + waiting**2) ** 0.5


def tiles_of(length: int, smallest: int) -> list[tuple[int, int]]:
    """(columns of a tile, tiles) that hold a length: one tile, or some of a quarter or an eighth of
    the next power of two."""
    power = next_power_of_2(length)
    found = [(power, 1)]
    for parts in (4, 8):
        tiles = ceil_div(length, max(1, power // parts))
        if power // parts >= smallest and tiles < parts:
            found.append((power // parts, tiles + (tiles == 7)))
    return found


def row_tiles(rows: Rows, traits: Traits, device: Device):
    """(time, choice) of all tiles of whole rows."""
    n_rows, n_cols, itemsize, vector, edges, divisor = rows
    kinds = [("packed_rows", divisor, n_cols, 0)]
    if edges and n_cols >= 2 * vector > 2:
        kinds.append(("aligned_rows", vector, n_cols // vector * vector, 2 * vector))
    for kernel, width, body, edge in kinds:
        for block_cols, tiles in tiles_of(body, max(2, width)):
            room = block_cols * tiles
            for warps in WARPS:
                for elements in ELEMENTS:
                    block_rows = max(1, elements * 32 * warps // next_power_of_2(room))
                    lanes = block_rows * room
                    if not (warps == 1 or 64 * warps <= lanes) or lanes > 4096 * warps:
                        continue
                    barrier = device.nvidia and itemsize == 2 and lanes > 64 * 32 * warps
                    how = RowTile(block_rows, block_cols, width, barrier, tiles)
                    choice = Choice(kernel, how, warps)
                    moved = block_rows * n_cols * itemsize * (traits.inputs + (not traits.reduces))
                    accesses = lanes / width + block_rows * edge
                    facts = lanes + block_rows * edge, accesses, itemsize, traits, device
                    yield duration(choice, ceil_div(n_rows, block_rows), moved, *facts), choice


def split_rows(rows: Rows, traits: Traits, device: Device):
    """(time, choice) of all ways to split rows."""
    n_rows, n_cols, itemsize, vector, edges, _ = rows
    for warps in WARPS[:4]:
        for elements in (16, 32, 64):
            for depth in (0, 2):
                paired = itemsize == 2 and vector > 1
                registers = held(elements, itemsize, traits, paired) * (2 if depth else 1)
                registers = ceil_div(registers + OVERHEAD, 8) * 8
                block = elements * 32 * warps
                candidate = Candidate(block, registers, warps, False, depth)
                if registers > 255 or not runs_at_once(n_cols, candidate, device):
                    continue
                if ceil_div(n_cols, block) > MAX_COLS // 8192:
                    continue
                choice = split_as(candidate, n_cols, itemsize, vector, edges, traits, device)
                moved = choice.chunk_cols * itemsize * (traits.inputs + (not traits.reduces))
                moved += 8 * choice.n_chunks
                accesses = block / vector + (2 * vector if edges else 0)
                facts = block, accesses, itemsize, traits, device
                yield duration(choice, n_rows, moved, *facts), choice


def adjacent(rows: Rows, traits: Traits, device: Device) -> list[tuple[float, Choice]]:
    """(time, choice) of all that is possible for rows of adjacent elements."""
    n_rows, n_cols, itemsize, vector, edges, divisor = rows
    if vector == 1:
        vector, edges = divisor, False
        rows = rows._replace(vector=vector, edges=edges)
    found = list(row_tiles(rows, traits, device)) if n_cols * itemsize <= LONGEST else []
    if itemsize < 8 and 1024 < n_cols <= MAX_COLS and n_rows * ceil_div(n_cols, 1024) < 2**31:
        found += split_rows(rows, traits, device)
        if not found:
            chosen = for_two_launches(n_cols, itemsize, traits, device)
            choice = split_as(chosen, n_cols, itemsize, vector, edges, traits, device, True)
            found = [(0.0, choice)]
    return found or [(0.0, choose_loops(n_rows, n_cols, itemsize, traits, device))]


def choose_adjacent(rows: Rows, traits: Traits, device: Device) -> Choice:
    """The choice for rows of adjacent elements."""
    return min(adjacent(rows, traits, device), key=lambda each: each[0])[1]


def strided_tiles(columns: Columns, traits: Traits, device: Device):
    """(time, choice) of all tiles of whole strands, and of all chunks of them."""
    n_outer, n_cols, n_inner, itemsize, vector, stated, wide = columns
    tensors = traits.inputs + (not traits.reduces)
    for block_inner in (8, 16, 32, 64, 128):
        block_inner = min(block_inner, next_power_of_2(n_inner))
        groups = n_outer * ceil_div(n_inner, block_inner)
        lost = 1 + 32 / (block_inner * itemsize)  # lines that are not read whole
        for warps in WARPS:
            for block_cols, tiles in tiles_of(n_cols, 2) if n_cols <= 2048 else ():
                lanes = block_cols * tiles * block_inner
                if not (warps == 1 or 64 * warps <= lanes) or lanes > 4096 * warps:
                    continue
                barrier = device.nvidia and itemsize == 2 and lanes > 64 * 32 * warps
                how = StridedTile(block_cols, block_inner, stated, barrier, wide, tiles)
                choice = Choice("strided", how, warps)
                moved = n_cols * block_inner * itemsize * tensors * lost
                facts = lanes, lanes / vector, itemsize, traits, device
                yield duration(choice, groups, moved, *facts), choice
            # Elements in 64 registers of the 128 that a chunk has.
            lanes = (
                32 * warps * 64 // held(1, itemsize, traits, False) * (2 if itemsize == 2 else 1)
            )
            block_cols = lanes // block_inner
            if device.nvidia and itemsize <= 4 and 64 <= block_cols < n_cols:
                tile = block_cols, block_inner, warps
                choice = split_strided_as(tile, columns, device)
                if choice:
                    moved = n_cols * block_inner * itemsize * tensors * lost / choice.n_chunks
                    moved += 8 * choice.n_chunks * block_inner
                    facts = lanes, lanes / vector, itemsize, traits, device
                    yield duration(choice, groups, moved, *facts), choice


def apart(columns: Columns, traits: Traits, device: Device) -> list[tuple[float, Choice]]:
    """(time, choice) of all that is possible for elements that lie apart."""
    possible = list(strided_tiles(columns, traits, device))
    if columns.n_cols > 512:
        choice = choose_strided_loops(columns, traits, device)
        how = choice.how
        groups = columns.n_outer * ceil_div(columns.n_inner, how.block_inner)
        cols = min(choice.chunk_cols, columns.n_cols)
        tensors = 2 * traits.inputs + (not traits.reduces)
        lost = 1 + 32 / (how.block_inner * columns.itemsize)
        moved = cols * how.block_inner * columns.itemsize * tensors * lost
        lanes = cols * how.block_inner
        flat = choice._replace(max_registers=96, two_launches=True)
        facts = 2 * lanes, 2 * lanes / columns.vector, columns.itemsize, traits, device
        time = duration(flat, groups, moved, *facts)
        possible.append((time, choice))
    return possible


def choose_columns(columns: Columns, traits: Traits, device: Device) -> Choice:
    """The choice for elements that lie apart."""
    return min(apart(columns, traits, device), key=lambda each: each[0])[1]
