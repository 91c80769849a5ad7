"""How long a choice takes, by a model, in nanoseconds.

The time follows from what a program moves, from the instructions it issues, and from how many
programs a multiprocessor holds, which its registers decide. No constant here is about the length of
a row; they describe a multiprocessor and were fitted on an H200. Another GPU has others, but only
their ratios decide, and these differ less.
"""

from __future__ import annotations

from typing import Any

from .space import (
    OVERHEAD,
    REGISTERS,
    VECTOR_BYTES,
    Choice,
    Columns,
    Device,
    Rows,
    Traits,
    ceil_div,
    held,
)

# Nanoseconds of a program:
LATENCY = 1000.0  # from its start to its end, if it moves and computes next to nothing
SERIAL = 1.0  # for each instruction of a thread
MEETING = 250.0  # for each time that its warps double: their reductions need barriers
STEP = 575.0  # for each further tile that it walks along, and has to wait for
EXCHANGE = 275.0  # if it waits for the words of others
POLL = 240.0  # for each word that one of its threads polls

# What a multiprocessor does in a nanosecond, and what it has to:
BYTES = 24.0  # moved, if all ask for them
LINE, WHOLE_LINE = 85.0, 40.0  # wasted per segment that begins anywhere, or at 16 bytes
INSTRUCTIONS = 270.0  # of single lanes
PER_ELEMENT, PER_ACCESS = 12.0, 9.0  # of them; the address of an access has to be found

# What it has room for on most GPUs; where all have to run at once, `Device` counts on fewer.
WARPS_AT_ONCE, PROGRAMS_AT_ONCE = 64, 32
POINTER = 3.5  # registers for each access to a tensor where a thread has places in several rows


def work(
    choice: Choice, call: Rows | Columns, traits: Traits
) -> tuple[int, float, int, float, int]:
    """What is to be done: groups, of which each is cut into chunks, and of each program the bytes
    that it moves, its lanes (elements, and what lies beyond a row), their accesses to all tensors,
    and the tiles that it walks along."""
    how: Any = choice.how
    tensors = traits.inputs + (not traits.reduces)
    if isinstance(call, Columns):
        cols, steps = ceil_div(call.n_cols, choice.n_chunks), 1
        lanes = how.block_cols * getattr(how, "tiles", 1) * how.block_inner
        across = min(how.block_inner, call.n_inner)
        words = 8 * choice.n_chunks * how.block_inner if choice.n_chunks > 1 else 0
        if choice.kernel == "two_pass":  # walked along twice, and read both times
            steps, tensors = 2 * ceil_div(cols, how.block_cols), tensors + traits.inputs
        wasted = WHOLE_LINE if call.vector * call.itemsize == VECTOR_BYTES else LINE
        moved = cols * tensors * (across * call.itemsize + wasted) + words
        groups = call.n_outer * ceil_div(call.n_inner, how.block_inner)
        return groups, moved, lanes, tensors * lanes / call.vector / min(2, steps), steps
    edge = 2 * call.vector if how.edges else 0
    if choice.kernel == "split_rows":
        moved = choice.chunk_cols * call.itemsize * tensors + 8 * choice.n_chunks
        accesses = tensors * (how.block / how.vector + edge)
        return call.n_rows, moved, how.block + edge, accesses, 1
    edge *= how.block_rows
    lanes = how.block_rows * how.block_cols * how.tiles
    moved = how.block_rows * call.n_cols * call.itemsize * tensors
    accesses = tensors * (lanes / how.vector + edge)
    return ceil_div(call.n_rows, how.block_rows), moved, lanes + edge, accesses, 1


def duration(choice: Choice, call: Rows | Columns, traits: Traits, device: Device) -> float:
    """Nanoseconds that a choice takes."""
    groups, moved, lanes, accesses, steps = work(choice, call, traits)
    how, warps = choice.how, choice.num_warps
    paired = call.itemsize == 2 and getattr(how, "barrier", False)
    registers = held(ceil_div(lanes, 32 * warps), call.itemsize, traits, paired) + OVERHEAD // 2
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
    doublings = 0
    while 2 << doublings <= warps:
        doublings += 1
    latency = LATENCY + SERIAL * issued / (32 * warps) + MEETING * doublings + STEP * (steps - 1)
    if choice.n_chunks > 1 and not choice.two_launches:
        depth = getattr(how, "depth", 0)
        latency += EXCHANGE * (1 + depth / 2) + POLL * getattr(how, "polls", 0)
        if waves > 1 and not depth:
            memory *= 1 + choice.n_chunks / resident  # who waits together does not read together
    waiting = latency * max(1.0, waves)
    return latency + (memory**2 + computing**2 + waiting**2) ** 0.5
