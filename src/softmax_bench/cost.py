"""Model the time that a choice takes, in nanoseconds: the order in which the tuner tries choices.

The time follows from the bytes a program moves, the instructions it issues, and how many programs
fit on a multiprocessor, which depends on registers. The constants describe a multiprocessor,
never the length of a row, and were fitted on an H200.
"""

from typing import Any

from triton_softmax.config import Choice, Device, Traits
from triton_softmax.config.calls import REGISTERS, VECTOR_BYTES, Columns, Rows, ceil_div

# Nanoseconds of a program:
LATENCY = 1000.0  # from start to end, with next to nothing to move or compute
SERIAL = 1.0  # per instruction of a thread
MEETING = 250.0  # per doubling of its warps, whose reductions need barriers
STEP = 575.0  # per further tile of its loop, which it has to wait for
EXCHANGE = 275.0  # if it waits for the status words of others
POLL = 240.0  # per word that one of its threads polls

# Throughput of a multiprocessor per nanosecond, and its load:
BYTES = 24.0  # bytes moved, with all multiprocessors reading
LINE, WHOLE_LINE = 85.0, 40.0  # bytes wasted per unaligned segment, or per one aligned to 16 bytes
INSTRUCTIONS = 270.0  # instructions, counted per lane
PER_ELEMENT, PER_ACCESS = 12.0, 9.0  # instructions; an access has its address to compute

# Most GPUs; where all must be resident, `Device` counts on fewer. Registers run out before warps.
PROGRAMS_AT_ONCE = 32
OVERHEAD, SPARE = 32, 8  # registers per thread besides its elements, and left over
POINTER = 3.5  # registers per access to a tensor, if a thread has elements of several rows


def held(elements: int, itemsize: int, traits: Traits, paired: bool) -> int:
    """Return the registers per thread that hold so many elements of each input."""
    return ceil_div(elements * traits.inputs * max(4, itemsize), 8 if paired else 4)


def work(
    choice: Choice, call: Rows | Columns, traits: Traits
) -> tuple[int, float, int, float, int]:
    """Return the work of a choice: the number of groups, each cut into chunks; then per program the
    bytes moved, the lanes (elements and padding), the accesses to all tensors, and the tiles of its
    loop."""
    how: Any = choice.how
    tensors = traits.inputs + (not traits.reduces)
    if isinstance(call, Columns):
        fold = getattr(how, "fold", 1)
        vector = max(call.vector, how.vector)
        call = call._replace(n_cols=call.n_cols // fold, n_inner=call.n_inner * fold, vector=vector)
        cols, steps = ceil_div(call.n_cols, choice.n_chunks), 1
        lanes = how.block_cols * getattr(how, "tiles", 1) * how.block_inner
        across = min(how.block_inner, call.n_inner)
        words = 8 * choice.n_chunks * how.block_inner if choice.n_chunks > 1 else 0
        if choice.kernel == "two_pass":  # two loops, which both read, and words that are merged
            words = 16 * how.block_inner
            steps = 2 * ceil_div(cols, how.block_cols * how.tiles)
            tensors = tensors + traits.inputs
        wasted = WHOLE_LINE if call.vector * call.itemsize == VECTOR_BYTES else LINE
        moved = cols * tensors * (across * call.itemsize + wasted) + words
        groups = call.groups(how.block_inner)
        return groups, moved, lanes, tensors * lanes / call.vector / min(2, steps), steps
    if choice.kernel == "split_rows":
        side, lanes = 1, how.block
        moved = choice.chunk_cols * call.itemsize * tensors + 8 * choice.n_chunks
    else:
        side, lanes = how.block_rows, how.block_rows * how.block_cols * how.tiles
        moved = side * call.n_cols * call.itemsize * tensors
    edge = 2 * call.vector * side if how.edges else 0
    accesses = tensors * (lanes / how.vector + edge)
    return ceil_div(call.n_rows, side), moved, lanes + edge, accesses, 1


def duration(choice: Choice, call: Rows | Columns, traits: Traits, device: Device) -> float:
    """Return the modelled time of a choice, in nanoseconds."""
    groups, moved, lanes, accesses, steps = work(choice, call, traits)
    how, warps = choice.how, choice.num_warps
    threads = 32 * warps
    vector = call.vector if isinstance(call, Columns) else how.vector
    whole = vector * call.itemsize == VECTOR_BYTES
    paired = call.itemsize == 2 and whole and getattr(how, "barrier", False)
    registers = held(ceil_div(lanes, threads), call.itemsize, traits, paired)
    registers += OVERHEAD
    addresses = accesses / threads / (traits.inputs + (not traits.reduces))
    if getattr(how, "block_rows", 1) > 1:
        registers += int(POINTER * addresses)
    elif isinstance(call, Columns) and not whole:
        registers += int(addresses)
    if choice.max_registers is None and (
        registers > 255 or (registers + SPARE) * threads > REGISTERS
    ):
        return float("inf")  # it would spill
    registers = choice.max_registers or registers
    on_one = min(REGISTERS // (registers * threads), PROGRAMS_AT_ONCE)
    resident = max(1, on_one) * device.multiprocessors
    programs = groups * choice.n_chunks
    waves = programs / min(resident, choice.max_programs or resident)
    issued = steps * (lanes * PER_ELEMENT * traits.inputs + accesses * PER_ACCESS)
    memory = programs * moved / (BYTES * device.multiprocessors)
    computing = ceil_div(programs, device.multiprocessors) * issued / INSTRUCTIONS
    doublings = 0
    while 2 << doublings <= warps:
        doublings += 1
    latency = LATENCY + SERIAL * issued / threads + MEETING * doublings + STEP * (steps - 1)
    if choice.n_chunks > 1 and not choice.apart:
        depth = getattr(how, "depth", 0)
        latency += EXCHANGE * (1 + depth / 2) + POLL * getattr(how, "polls", 0)
        if waves > 1 and not depth:
            memory *= 1 + choice.n_chunks / resident  # programs that wait are not reading
    waiting = latency * max(1.0, waves)
    return latency + (memory**2 + computing**2 + waiting**2) ** 0.5
