"""Choices for a GPU that nobody has tuned on: every possible one is given a time, and the shortest
wins.

The time follows from what a program moves, from the instructions it issues, and from how many
programs a multiprocessor holds, which its registers decide. No constant here is about a length of a
row; they describe a multiprocessor, in nanoseconds, and were fitted on an H200. Another GPU has
others, but it is their ratios that choose, and these differ less.
"""

from __future__ import annotations

from typing import Any

from .constants import Choice, RowTile, StridedTile
from .device import REGISTERS, Device
from .row_tiles import Rows
from .split_rows import MAX_CHUNKS, Candidate, for_two_launches, runs_at_once, split_as
from .strided import Columns, choose_loops, choose_strided_loops, split_strided_as
from .traits import Traits
from .vectors import VECTOR_BYTES, ceil_div, next_power_of_2

LATENCY = 1000.0
"""From the start of a program to its end, if it moves and computes next to nothing."""

SERIAL = 1.0
"""More for each instruction of a thread."""

MEETING = 250.0
"""More for each time the warps of a program double: their reductions need barriers."""

STEP = 575.0
"""More for each further tile that a program walks along, and has to wait for."""

EXCHANGE = 275.0
"""More for a program that waits for the words of others."""

POLL = 240.0
"""More for each word that a thread of it polls."""

BYTES = 24.0
"""That memory moves for a multiprocessor in a nanosecond, if all of them ask for it."""

LINE, WHOLE_LINE = 85.0, 40.0
"""Bytes that are moved in vain for each piece of memory that lies apart: if it begins anywhere, and
if it begins at a multiple of 16 bytes."""

INSTRUCTIONS = 270.0
"""Of single lanes that a multiprocessor issues in a nanosecond."""

PER_ELEMENT, PER_ACCESS = 12.0, 9.0
"""Instructions for an element, and for an access, whose address has to be found."""

WARPS_AT_ONCE, PROGRAMS_AT_ONCE = 64, 32
"""That a multiprocessor has room for, of most GPUs; where all have to run at once, `Device` counts
on fewer."""

OVERHEAD = 64
"""Registers of a thread beside its elements."""

POINTER = 3.5
"""More of them for each access to a tensor, where a thread has places in several rows."""

LONGEST = 65536
"""Bytes of the longest row of one program: a quarter of the registers of a multiprocessor, so that
others run beside it."""

ELEMENTS = (4, 8, 16, 32, 64)
"""Of a thread, at most."""

MOST_POLLS = 4
"""Words that a thread polls at once, at most: each takes two registers."""

WARPS = (1, 2, 4, 8, 16)
"""Of a program."""


def held(elements: int, itemsize: int, traits: Traits, paired: bool) -> int:
    """Registers of a thread for so many elements of each input."""
    return ceil_div(elements * traits.inputs * max(4, itemsize), 8 if paired else 4)


def duration(
    choice: Choice,
    groups: int,
    moved: float,
    lanes: int,
    accesses: float,
    itemsize: int,
    traits: Traits,
    device: Device,
    steps: int = 1,
) -> float:
    """Nanoseconds that a choice takes.

    Args:
        choice: what is launched.
        groups: of which each is cut into the chunks of the choice.
        moved: bytes that a program reads and writes.
        lanes: of a program: its elements, and those that lie beyond a row.
        accesses: of all lanes, to all tensors.
        itemsize, traits, device: as in other choices.
        steps: how many tiles a program walks along.
    """
    how: Any = choice.how
    warps = choice.num_warps
    per_thread = ceil_div(lanes, 32 * warps)
    paired = itemsize == 2 and getattr(how, "barrier", False)
    registers = held(per_thread, itemsize, traits, paired) + OVERHEAD // 2
    if getattr(how, "block_rows", 1) > 1:
        tensors = traits.inputs + (not traits.reduces)
        registers += int(POINTER * accesses / tensors / (32 * warps))
    registers = choice.max_registers or registers
    if registers > 255:
        return float("inf")
    on_one = min(REGISTERS // (registers * 32 * warps), WARPS_AT_ONCE // warps, PROGRAMS_AT_ONCE)
    resident = max(1, on_one) * device.multiprocessors
    programs = groups * choice.n_chunks
    waves = programs / min(resident, choice.max_programs or resident)
    issued = steps * (lanes * PER_ELEMENT * traits.inputs + accesses * PER_ACCESS)
    memory = programs * moved / (BYTES * device.multiprocessors)
    computing = ceil_div(programs, device.multiprocessors) * issued / INSTRUCTIONS
    latency = LATENCY + SERIAL * issued / (32 * warps) + MEETING * (warps.bit_length() - 1)
    latency += STEP * (steps - 1)
    if choice.n_chunks > 1 and not choice.two_launches:
        depth = getattr(how, "depth", 0)
        latency += EXCHANGE * (1 + depth / 2) + POLL * how.polls
        if waves > 1 and not depth:
            memory *= 1 + choice.n_chunks / resident  # who waits together does not read together
    waiting = latency * max(1.0, waves)
    return latency + (memory**2 + computing**2 + waiting**2) ** 0.5


def time_of_rows(choice: Choice, rows: Rows, traits: Traits, device: Device) -> float:
    """Nanoseconds that a choice takes for rows."""
    how: Any = choice.how
    itemsize = rows.itemsize
    tensors = traits.inputs + (not traits.reduces)
    if isinstance(how, RowTile):
        edge = 2 * rows.vector if choice.kernel == "aligned_rows" else 0
        lanes = how.block_rows * how.block_cols * how.tiles
        accesses = tensors * (lanes / how.vector + how.block_rows * edge)
        moved = how.block_rows * rows.n_cols * itemsize * tensors
        groups, lanes = ceil_div(rows.n_rows, how.block_rows), lanes + how.block_rows * edge
    else:
        edge = 2 * rows.vector if how.edges else 0
        lanes, groups = how.block + edge, rows.n_rows
        accesses = tensors * (how.block / how.vector + edge)
        moved = choice.chunk_cols * itemsize * tensors + 8 * choice.n_chunks
    return duration(choice, groups, moved, lanes, accesses, itemsize, traits, device)


def time_of_columns(choice: Choice, columns: Columns, traits: Traits, device: Device) -> float:
    """Nanoseconds that a choice takes for elements that lie apart."""
    how: Any = choice.how
    itemsize = columns.itemsize
    groups = columns.n_outer * ceil_div(columns.n_inner, how.block_inner)
    tensors = traits.inputs + (not traits.reduces)
    cols = ceil_div(columns.n_cols, choice.n_chunks)
    lanes = how.block_cols * getattr(how, "tiles", 1) * how.block_inner
    across = min(how.block_inner, columns.n_inner)
    words = 8 * choice.n_chunks * how.block_inner if choice.n_chunks > 1 else 0
    steps = 1
    if choice.kernel == "strided_loops":  # walked along twice, and read both times
        steps, tensors = 2 * ceil_div(cols, how.block_cols), tensors + traits.inputs
    in_vain = WHOLE_LINE if columns.vector * itemsize == VECTOR_BYTES else LINE
    moved = cols * tensors * (across * itemsize + in_vain) + words
    accesses = tensors * lanes / columns.vector / min(2, steps)
    return duration(choice, groups, moved, lanes, accesses, itemsize, traits, device, steps)


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
    """All tiles of whole rows."""
    kinds = [("packed_rows", rows.divisor, rows.n_cols)]
    if rows.edges and rows.n_cols >= 2 * rows.vector > 2:
        kinds.append(("aligned_rows", rows.vector, rows.n_cols // rows.vector * rows.vector))
    for kernel, vector, body in kinds:
        for block_cols, tiles in tiles_of(body, max(2, vector)):
            for warps in WARPS:
                for elements in ELEMENTS:
                    power = next_power_of_2(block_cols * tiles)
                    block_rows = max(1, elements * 32 * warps // power)
                    lanes = block_rows * block_cols * tiles
                    if not (warps == 1 or 64 * warps <= lanes) or lanes > 4096 * warps:
                        continue
                    barrier = device.nvidia and rows.itemsize == 2 and lanes > 64 * 32 * warps
                    how = RowTile(block_rows, block_cols, vector, barrier, tiles)
                    yield Choice(kernel, how, warps)


def split_rows(rows: Rows, traits: Traits, device: Device):
    """All ways to split rows that need no second launch."""
    n_cols, itemsize, vector = rows.n_cols, rows.itemsize, rows.vector
    for warps in WARPS[:4]:
        for elements in (16, 32, 64):
            for depth in (0, 2):
                registers = held(elements, itemsize, traits, itemsize == 2 and vector > 1)
                registers = ceil_div(registers * (2 if depth else 1) + OVERHEAD, 8) * 8
                candidate = Candidate(elements * 32 * warps, registers, warps, False, depth)
                few = ceil_div(n_cols, candidate.block) <= MAX_CHUNKS
                if registers <= 255 and few and runs_at_once(n_cols, candidate, device):
                    facts = n_cols, itemsize, vector, rows.edges, traits, device
                    choice = split_as(candidate, *facts)
                    how: Any = choice.how
                    if how.polls <= MOST_POLLS:
                        yield choice


def adjacent(rows: Rows, traits: Traits, device: Device) -> list[tuple[float, Choice]]:
    """(time, choice) of all that is possible for rows of adjacent elements."""
    n_rows, n_cols, itemsize, vector, edges, divisor = rows
    if vector == 1:
        rows = rows._replace(vector=divisor, edges=False)
    found = list(row_tiles(rows, traits, device)) if n_cols * itemsize <= LONGEST else []
    if (
        itemsize < 8
        and 1024 < n_cols <= MAX_CHUNKS * 8192
        and n_rows * ceil_div(n_cols, 1024) < 2**31
    ):
        found += split_rows(rows, traits, device)
        if not found:
            chosen = for_two_launches(n_cols, itemsize, traits, device)
            facts = n_cols, itemsize, rows.vector, rows.edges, traits, device
            return [(0.0, split_as(chosen, *facts, True))]
    if not found:
        return [(0.0, choose_loops(n_rows, n_cols, itemsize, traits, device))]
    return [(time_of_rows(each, rows, traits, device), each) for each in found]


def choose_adjacent(rows: Rows, traits: Traits, device: Device) -> Choice:
    """The choice for rows of adjacent elements."""
    return min(adjacent(rows, traits, device), key=lambda each: each[0])[1]


def strided_tiles(columns: Columns, traits: Traits, device: Device):
    """All tiles of whole strands, all chunks of them, and loops."""
    _, n_cols, n_inner, itemsize, _, stated, wide = columns
    for block_inner in (8, 16, 32, 64, 128):
        block_inner = min(block_inner, next_power_of_2(n_inner))
        for warps in WARPS:
            for block_cols, tiles in tiles_of(n_cols, 2) if n_cols <= 2048 else ():
                lanes = block_cols * tiles * block_inner
                if not (warps == 1 or 64 * warps <= lanes) or lanes > 4096 * warps:
                    continue
                barrier = device.nvidia and itemsize == 2 and lanes > 64 * 32 * warps
                how = StridedTile(block_cols, block_inner, stated, barrier, wide, tiles)
                yield Choice("strided", how, warps)
            # Elements in half of the 128 registers that a chunk has.
            paired = itemsize == 2 and columns.vector > 1
            block_cols = 32 * warps * 64 * 64 // held(64, itemsize, traits, paired)
            block_cols //= block_inner
            if device.nvidia and itemsize <= 4 and 64 <= block_cols < n_cols <= 2**17:
                choice = split_strided_as((block_cols, block_inner, warps), columns, device)
                if choice:
                    yield choice
    if n_cols > 512:
        yield choose_strided_loops(columns, traits, device)


def apart(columns: Columns, traits: Traits, device: Device) -> list[tuple[float, Choice]]:
    """(time, choice) of all that is possible for elements that lie apart."""
    found = strided_tiles(columns, traits, device)
    return [(time_of_columns(each, columns, traits, device), each) for each in found]


def choose_columns(columns: Columns, traits: Traits, device: Device) -> Choice:
    """The choice for elements that lie apart."""
    return min(apart(columns, traits, device), key=lambda each: each[0])[1]
