"""Chunks of a row on several programs: how long, and what a program does while it waits."""

from __future__ import annotations

from typing import NamedTuple

from .constants import Choice, SplitRows
from .device import Device
from .polling import lanes_and_polls
from .traits import Traits
from .vectors import ceil_div

MAX_CHUNKS = 4096
"""The most chunks of a row. Every program reads the words of its whole row, so that their number
grows with the square of the chunks: of longer rows it is more than the row itself."""

LONGEST_BLOCK = 8192
"""Columns of the longest chunk."""

MAX_COLS = MAX_CHUNKS * LONGEST_BLOCK
"""The longest row: 2^25 columns."""

FOR_INTEGERS = 40
"""Registers per thread that a sum of integers takes besides, which no order changes."""

ANY_LENGTH = 2**31
"""More columns than any row has."""


# --8<-- [start:candidate]
class Candidate(NamedTuple):
    """One way to split rows: what a program takes, and what it does while it waits."""

    block: int
    """Columns of a chunk."""

    registers: int
    """Per thread. The fewer, the more programs a multiprocessor holds; these are the smallest that
    spill nothing, or so little that one more program outweighs it."""

    num_warps: int = 4
    """Warps per program."""

    keep_terms: bool = False
    depth: int = 0
    backoff: int = 0
    """These three as in `SplitRows`."""

    def resident_programs(self, device: Device) -> int:
        """How many programs run at once."""
        return device.resident_programs(self.registers, self.num_warps)


# --8<-- [end:candidate]


# --8<-- [start:many-rows]
def candidates_for_many_rows(
    itemsize: int, vector: int, edges: bool, traits: Traits
) -> list[tuple[int, Candidate]]:
    """(longest row, candidate) in the order of preference.

    Rows of few chunks do best with programs that do one chunk each, since others of the same
    multiprocessor are busy while one waits. Longer rows keep more programs waiting at once, and
    each has to use that time itself: by loading its next chunk (depth 1), then by writing one chunk
    later (depth 2). Each step costs registers, so that fewer programs run at once or chunks are
    shorter.
    """
    if traits.reduces:
        # One program per row waits, and none keeps anything: finer chunks cost only words.
        if itemsize == 4:
            return [(ANY_LENGTH, Candidate(8192, 96))]
        return [
            (262_144, Candidate(2048, 96, num_warps=1)),
            (1_048_576, Candidate(4096, 96, num_warps=2)),
            (ANY_LENGTH, Candidate(8192, 128)),  # more words than this would spill
        ]
    if itemsize == 4 and traits.inputs == 1:
        # What is kept decides about registers: terms need only a factor, elements an exponential.
        if not traits.keeps_terms:
            one_chunk_each = (262_144, Candidate(8192, 128))
        elif edges:
            one_chunk_each = (524_288, Candidate(8192, 112, keep_terms=True))
        else:
            one_chunk_each = (1_048_576, Candidate(8192, 96, keep_terms=True))
        return [one_chunk_each, (ANY_LENGTH, Candidate(4096, 128, depth=2))]
    if itemsize == 4:
        # Two tensors, an element to a register; edges and exponentials take some more.
        if edges:
            one_chunk_each = (262_144, Candidate(8192, 168))
        else:
            one_chunk_each = (131_072, Candidate(8192, 168 if traits.exp_in_finish else 160))
        # Fewer programs, but longer chunks: together they hold more of a row at once. Accesses of
        # two elements have so many addresses that a chunk this long would spill.
        longer = Candidate(8192, 168) if vector > 2 else Candidate(4096, 168, depth=1)
        return [
            one_chunk_each,
            (ANY_LENGTH, Candidate(2048, 128, depth=2)),
            (1_622_016, longer),
            # A multiprocessor's only program. It spills some, but reads once what else is read
            # twice.
            (ANY_LENGTH, Candidate(16384, 128, num_warps=16, depth=1)),
        ]
    if traits.inputs == 1:
        # Numbers of the row take registers, which a next chunk would need.
        if edges:  # body and edges are reduced; within one warp that needs no barrier
            longest = 262_144 if traits.numbers else 114_688
            one_chunk_each = (longest, Candidate(2048, 72, num_warps=1, backoff=300))
        else:
            longest = 655_360 if traits.numbers else 196_608
            one_chunk_each = (longest, Candidate(8192, 64))
        if traits.keeps_terms and not edges:  # softmax, which computes least to write
            next_chunk = [(1_310_720, Candidate(8192, 80, depth=1))]
            if vector == 8:
                next_chunk += [(3_145_728, Candidate(16384, 80, num_warps=8, depth=1))]
        else:
            next_chunk = [(2_097_152, Candidate(8192, 96, depth=1, backoff=500))]
        return [
            one_chunk_each,
            *next_chunk,
            (ANY_LENGTH, Candidate(16384, 128, num_warps=8, depth=2)),
        ]
    if edges:
        one_chunk_each = [
            # Rows this short would fill half of the lanes of a longer chunk.
            (24_576, Candidate(4096, 128, num_warps=2)),
            (262_144, Candidate(8192, 128)),
        ]
    else:
        one_chunk_each = [(131_072, Candidate(8192, 128))]
    if vector == 8 and not edges:  # few addresses: the next chunk fits, but for some words
        longer = [Candidate(16384, 128, num_warps=8, depth=1)]
    else:
        longer = [Candidate(8192, 168, depth=1), Candidate(16384, 128, num_warps=8)]
    return [
        *one_chunk_each,
        (ANY_LENGTH, Candidate(4096, 128, depth=2)),
        *((ANY_LENGTH, each) for each in longer),
    ]


# --8<-- [end:many-rows]


def candidates_out_of_step(traits: Traits) -> list[tuple[int, Candidate]]:
    """(longest row, candidate) for rows that are moved element by element. Each access takes an
    address, and 16-bit elements a register each, so that chunks are shorter."""
    if traits.inputs > 1:
        return [
            (65_536, Candidate(2048, 96, depth=1)),
            (ANY_LENGTH, Candidate(4096, 80, num_warps=8, depth=1)),
        ]
    one_chunk_each = Candidate(4096, 128)
    if traits.keeps_terms:
        one_chunk_each = Candidate(4096, 40, num_warps=8, keep_terms=True)
    found = [(524_288, one_chunk_each)]
    if not traits.reduces:
        found += [(ANY_LENGTH, Candidate(4096, 80, num_warps=8, depth=2))]
    return found


# --8<-- [start:few-rows]
def candidate_for_few_rows(
    n_rows: int, n_cols: int, itemsize: int, traits: Traits, device: Device
) -> Candidate | None:
    """Smaller chunks, so that every multiprocessor has some, and several to keep it busy; None if
    there are plenty anyway.

    As long as all chunks fit on the device at once, each is a program of its own, and the finer the
    better. But every program reads the words of its whole row, so a row of more than a hundred
    chunks is cut more coarsely.
    """

    wide = traits.inputs > 1 and itemsize == 4  # two tensors, an element to a register
    registers = 168 if traits.inputs > 1 else 128
    fine = Candidate(2048, registers, num_warps=2, keep_terms=traits.keeps_terms)
    middle = fine._replace(block=4096, num_warps=4 if wide else 2)
    coarse = fine._replace(block=8192, num_warps=4)
    if wide:
        coarse = coarse._replace(registers=128, num_warps=8)

    def chunks_of_row(candidate: Candidate) -> int:
        return ceil_div(n_cols, candidate.block)

    def per_multiprocessor(candidate: Candidate) -> float:
        return n_rows * chunks_of_row(candidate) / device.multiprocessors

    for candidate in (fine, middle):
        if per_multiprocessor(candidate) <= 8 and chunks_of_row(candidate) <= 96:
            return candidate
    if per_multiprocessor(coarse) <= 4:
        return coarse
    if per_multiprocessor(coarse) < 16 and chunks_of_row(middle) <= 128:
        # The next chunk is in registers while this one waits; float32 takes more of them.
        return middle._replace(registers=168 if itemsize == 4 else registers, depth=1)
    return None


# --8<-- [end:few-rows]


def candidates(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    vector: int,
    edges: bool,
    traits: Traits,
    device: Device,
) -> list[tuple[int, Candidate]]:
    """(longest row, candidate) in the order of preference, for rows of this number."""
    if vector == 1:
        return candidates_out_of_step(traits)
    few = candidate_for_few_rows(n_rows, n_cols, itemsize, traits, device)
    return [
        *([(ANY_LENGTH, few)] if few else []),
        *candidates_for_many_rows(itemsize, vector, edges, traits),
    ]


# --8<-- [start:choice]
def runs_at_once(n_cols: int, candidate: Candidate, device: Device) -> bool:
    """Whether all chunks of a row, and so all that wait for each other, run at once. On a device
    whose waiting is not known nobody may wait: the row must be one chunk. A program of many warps
    that each ask for many registers may not run at all."""
    n_chunks = ceil_div(n_cols, candidate.block)
    at_once = candidate.resident_programs(device)
    return n_chunks <= (at_once if device.nvidia else min(1, at_once))


def for_two_launches(n_cols: int, itemsize: int, traits: Traits, device: Device) -> Candidate:
    """How to split a row if no candidate can be taken: the first launch only publishes, and the
    second reads again, finds all words there and never waits."""
    if not device.nvidia:
        block = 2048
    elif traits.inputs > 1 and itemsize == 4:  # two tensors, an element to a register
        block = 4096
    else:
        block = LONGEST_BLOCK
    return Candidate(block if n_cols <= MAX_CHUNKS * block else LONGEST_BLOCK, 128)


def choose_split_rows(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    vector: int,
    edges: bool,
    traits: Traits,
    device: Device,
) -> Choice:
    """The first candidate for rows of this length whose chunks run at once; else two launches.

    Args:
        n_rows: number of rows.
        n_cols: number of columns.
        itemsize: bytes of the widest element that is read, 2 or 4.
        vector: elements that one access moves.
        edges: rows do not all start and end on a vector.
        traits: of the operation.
        device: what the kernel will run on.
    """
    in_order = candidates(n_rows, n_cols, itemsize, vector, edges, traits, device)
    if traits.any_order:
        in_order = [
            (longest, each._replace(registers=each.registers + FOR_INTEGERS))
            for longest, each in in_order
        ]
    possible = [
        candidate
        for longest, candidate in in_order
        if n_cols <= longest and runs_at_once(n_cols, candidate, device)
    ]
    two_launches = not possible
    chosen = for_two_launches(n_cols, itemsize, traits, device) if two_launches else possible[0]
    return split_as(chosen, n_cols, itemsize, vector, edges, traits, device, two_launches)


def split_as(
    chosen: Candidate,
    n_cols: int,
    itemsize: int,
    vector: int,
    edges: bool,
    traits: Traits,
    device: Device,
    two_launches: bool = False,
) -> Choice:
    """Rows split in a given way; the other arguments as above."""
    n_chunks = ceil_div(n_cols, chosen.block)
    # Where a number is written for a row, one program reads its words: lanes to spare cost nothing,
    # and rows of other lengths find the same kernel.
    lanes = max(n_chunks, 128) if traits.reduces else n_chunks
    words, polls = lanes_and_polls(lanes, chosen.num_warps)
    pairs = itemsize == 2 and vector > 1
    how = SplitRows(
        block=chosen.block,
        vector=vector,
        edges=edges,
        pairs=pairs,
        barrier=pairs and device.nvidia,
        keep_terms=chosen.keep_terms,
        depth=chosen.depth,
        wait=device.nvidia and not two_launches,
        backoff=chosen.backoff,
        publish=True,
        write=True,
        words=words,
        polls=polls,
    )
    return Choice(
        "split_rows",
        how,
        chosen.num_warps,
        max_registers=chosen.registers if device.nvidia else None,
        n_chunks=n_chunks,
        chunk_cols=ceil_div(ceil_div(n_cols, n_chunks), vector) * vector,
        max_programs=chosen.resident_programs(device) if chosen.depth else None,
        two_launches=two_launches,
    )


# --8<-- [end:choice]
