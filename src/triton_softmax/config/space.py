"""What there is to choose from: a call in numbers, the constants of every kernel, and which
constants a call may have.

Plain Python that imports names of types only; the page "Which kernel" runs this file in
the reader's browser, in MicroPython. A field is explained where its name first occurs, by the
comment above or behind it, and means the same wherever it occurs again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

VECTOR_BYTES = 16  # the widest access of one thread

# What a multiprocessor has room for, on every NVIDIA architecture from sm_80 on.
REGISTERS, RESIDENT_WARPS, RESIDENT_PROGRAMS = 65536, 48, 16

# The NVIDIA GPUs on which constants were measured, by their multiprocessors: an H200. An H100 in
# the same socket is the same chip with slower memory.
TUNED = (132,)

# A program polls so often for missing words before it recomputes them: many times what a row takes,
# so that it only happens when its partners are not running.
MAX_POLLS = 1024

# Every program reads the words of its whole row, so their number grows with the square of the
# chunks. So the longest row that is split has 2^25 columns.
MAX_CHUNKS, LONGEST_CHUNK = 4096, 8192
MAX_SPLIT_COLS = MAX_CHUNKS * LONGEST_CHUNK

# The longest row of one program: if it is asked for by name, and if its bits must be the same in
# every batch; whatever is longer is split then, however many rows there are.
MAX_TILE_COLS, INVARIANT_TILE_COLS = 65536, 8192

MOST_STRANDS = 1024  # side by side in any tile

# Registers per thread: of a program that holds a chunk of columns, and those that a sum of integers
# takes besides, which no order changes.
CHUNK_REGISTERS, INTEGER_SUM_REGISTERS = 128, 40


def ceil_div(n: int, divisor: int) -> int:
    """n / divisor, rounded up.

    >>> ceil_div(8, 4), ceil_div(9, 4)
    (2, 3)
    """
    return -(-n // divisor)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n.

    >>> [next_power_of_2(n) for n in (0, 1, 2, 3, 4097)]
    [1, 1, 2, 4, 8192]
    """
    power = 1
    while power < n:
        power *= 2
    return power


# --- a call in numbers


class Device(NamedTuple):
    """The device that a kernel will run on."""

    multiprocessors: int = 132  # streaming multiprocessors, compute units
    # Kernels are compiled for an NVIDIA GPU. Elsewhere no register limit is set, no assembly is
    # used, and no program waits for another.
    nvidia: bool = False

    @property
    def tuned(self) -> bool:
        """Whether measured constants are used: on the GPUs on which they were measured, and on
        devices that are not NVIDIA's, which have no model."""
        return not self.nvidia or self.multiprocessors in TUNED

    def resident_programs(self, registers: int, num_warps: int) -> int:
        """How many programs of `num_warps` warps, with so many registers per thread, run at once.

        >>> Device(132).resident_programs(registers=128, num_warps=4)
        528
        """
        registers = ceil_div(registers, 8) * 8  # as they are handed out
        by_registers = REGISTERS // (registers * 32 * num_warps)
        on_one = min(by_registers, RESIDENT_WARPS // num_warps, RESIDENT_PROGRAMS)
        return on_one * self.multiprocessors


class Traits(NamedTuple):
    """What a choice depends on in an operation.

    >>> softmax, log_softmax = Traits(inputs=1, keeps_terms=True), Traits(inputs=1)
    >>> softmax_vjp, logsumexp = Traits(inputs=2), Traits(inputs=1, reduces=True)
    >>> log_softmax_vjp = Traits(inputs=2, exp_in_finish=True)
    """

    inputs: int  # tensors read: 1 forward, 2 for a vector-Jacobian product
    # The result follows from the terms that were summed, so a program that waits may keep those and
    # need not compute them again. True of softmax alone.
    keeps_terms: bool = False
    # Writing an element takes an exponential that summing does not, and registers for it.
    exp_in_finish: bool = False
    reduces: bool = False  # only numbers of the row are written, and no elements
    # The result must not depend on the order of summing. It does not as long as one program adds
    # all terms, so rows of several programs must be cut alike, however many rows there are.
    any_order: bool = False
    numbers: bool = False  # numbers of the row go in or come out as well, and take registers


class Rows(NamedTuple):
    """Rows of adjacent elements."""

    n_rows: int
    n_cols: int
    itemsize: int  # bytes of the widest element that is read, which a program keeps in registers
    vector: int  # elements that one access moves where rows may have edges
    edges: bool  # rows do not all start and end on a vector
    divisor: int  # elements that one access moves if no row is to have edges

    def without_edges(self) -> Rows:
        """The rows, moved by what divides all of them."""
        return self._replace(vector=self.divisor, edges=False)


class Columns(NamedTuple):
    """Columns, whose elements do not lie side by side: the middle dimension of (n_outer, n_cols,
    n_inner)."""

    n_outer: int
    n_cols: int
    n_inner: int
    itemsize: int
    vector: int  # elements that one access across columns may move
    stated_vector: int  # what the kernel is told of it: 1 where Triton sees it by itself
    wide_index: bool  # offsets within one outer slice need 64 bits


def vector_of_lines(itemsize: int, addresses: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """Elements per access that divide all counts: the largest power of two, up to a whole vector.

    Args:
        itemsize: bytes of the narrowest element.
        addresses: of the tensors' first elements, in bytes.
        counts: lengths and strides in elements: all but those of adjacent elements.

    >>> vector_of_lines(2, (0, 512), (196, 4116)), vector_of_lines(4, (0, 512), (1024, 65536))
    (4, 4)
    >>> vector_of_lines(4, (4, 512), (1024, 65536))  # the first tensor starts within a vector
    1
    """
    width = VECTOR_BYTES // itemsize
    if any(address % VECTOR_BYTES for address in addresses):
        return 1
    while any(count % width for count in counts):
        width //= 2
    return width


def vector_width(itemsize: int, addresses: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements per access that rows of these tensors allow: a whole vector, or 1. A vector works if
    every tensor starts on one and all rows with the same number start equally far from one.

    >>> vector_width(2, (0, 512), (50257, 50257))
    8
    >>> vector_width(2, (0, 512), (50264, 50257))  # rows out of step
    1
    """
    apart = tuple([stride - strides[0] for stride in strides])
    width = vector_of_lines(itemsize, addresses, apart)
    return width if width * itemsize == VECTOR_BYTES else 1


def rows_of(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    addresses: tuple[int, ...],
    strides: tuple[int, ...],
    held: int | None = None,
) -> Rows:
    """The numbers of rows; the arguments are those of `choose_rows`."""
    vector = vector_width(itemsize, addresses, strides)
    edges = bool(n_cols % vector) or any(stride % vector for stride in strides)
    # What divides everything is seldom a whole vector, but then rows have no edges.
    divisor = vector_of_lines(itemsize, addresses, (n_cols,) + tuple(strides))
    return Rows(n_rows, n_cols, held or itemsize, vector, edges, divisor)


# --- the constants of each kernel
# A kernel takes its constants as a single compile-time value, `HOW`, and is compiled for each
# different one.


class RowTile(NamedTuple):
    """Whole rows in one program's registers: packed rows or, with edges, aligned rows."""

    block_rows: int  # rows per program, a power of two
    block_cols: int  # elements along a row or column in a tile, a power of two
    vector: int  # elements that one access moves; without edges it divides lengths and strides
    # Keep 16-bit elements in registers as they came, behind a barrier that the optimiser does not
    # look through: else it keeps the float32 numbers, in twice the registers.
    barrier: bool
    tiles: int = 1  # tiles that together hold a row (aligned rows: its body) or a column
    edges: bool = False  # rows may start and end between vectors: aligned rows


class SplitRows(NamedTuple):
    """Chunks of a row, on as many programs at the same time: `split_rows`."""

    block: int  # columns of a chunk at most, a power of two
    vector: int
    edges: bool
    pairs: bool  # hold two 16-bit elements as one 32-bit number
    barrier: bool
    # While it waits, a program keeps the exponentials that it has summed, and not the elements. Not
    # with depth 2.
    keep_terms: bool
    # Depth of the pipeline. 0: one chunk per program. 1: programs go from chunk to chunk, and load
    # the next one before they wait for the words of this one. 2: they also write one chunk later,
    # after the next one is published.
    depth: int
    wait: bool  # poll for words that are missing; NVIDIA only, and only in a single launch
    backoff: int  # nanoseconds before the first poll, which leave the cache to those who still read
    publish: bool  # summarise the chunk for the others; False in the second of two launches
    write: bool  # merge the summaries and write the chunk; False in the first of two launches
    # Lanes that read the words of a row: a power of two, at least the number of chunks, and at
    # least the number of threads, so that no two threads poll the same word.
    words: int
    polls: int  # words that a thread polls at once


class StridedTile(NamedTuple):
    """Whole columns side by side: `strided`."""

    block_cols: int
    block_inner: int  # columns side by side, a power of two
    vector: int  # what lengths and strides allow; 1 where Triton sees it by itself
    barrier: bool
    wide_index: bool
    tiles: int = 1


class SplitStrided(NamedTuple):
    """Chunks of columns, on as many programs at the same time: `split_strided`."""

    block_cols: int
    block_inner: int
    vector: int
    barrier: bool
    wide_index: bool
    wait: bool
    chunks: int  # lanes per column that read its words: a power of two, at least their number
    polls: int


class TwoPass(NamedTuple):
    """Chunks of very long columns, each walked along tile by tile: `two_pass`."""

    block_cols: int
    block_inner: int
    vector: int
    wide_index: bool
    publish: bool
    write: bool


class MaskedRows(NamedTuple):
    """Whole rows in one program's registers, or rows walked along twice: `masked_rows`."""

    block_rows: int
    block_cols: int
    whole: bool  # the tiles have room for whole rows, which are read once
    vector: int
    wide_index: bool
    tiles: int = 1
    stages: int = 1  # where rows are walked along, one more than the tiles that are on their way
    publish: bool = True
    write: bool = True


Constants: TypeAlias = "RowTile | SplitRows | StridedTile | SplitStrided | TwoPass | MaskedRows"

TILE_KERNELS = "packed_rows", "aligned_rows"  # whole rows in one program, without edges and with


class Choice(NamedTuple):
    """Which kernel, and how it is launched."""

    kernel: str  # the geometry
    how: Constants  # its constants
    num_warps: int  # warps per program
    max_registers: int | None = None  # registers per thread; None lets the compiler choose
    n_chunks: int = 1  # chunks of a row, or of a column
    chunk_cols: int = 0  # columns of a chunk, the last may have fewer; 0 where chunks fill tiles
    max_programs: int | None = None  # programs that are launched at most; None: one per chunk
    two_launches: bool = False  # the chunks are published by one launch and written by another

    def programs(self, n_groups: int) -> int:
        """How many programs each launch has, of so many groups that are cut into chunks: tiles of
        rows, rows that are split, or tiles of columns."""
        n_tasks = n_groups * self.n_chunks
        return n_tasks if self.max_programs is None else min(n_tasks, self.max_programs)

    @property
    def launches(self) -> tuple[Constants, ...]:
        """The constants of each launch, in order: `how`, or what publishes and then what writes."""
        if self.two_launches:
            return self.how._replace(write=False), self.how._replace(publish=False)
        return (self.how,)


# --- what is possible


class Candidate(NamedTuple):
    """One way to split rows: what a program takes, and what it does while it waits."""

    block: int
    # Per thread. The fewer, the more programs a multiprocessor holds; these are the smallest that
    # spill nothing, or so little that one more program outweighs it.
    registers: int
    num_warps: int = 4
    keep_terms: bool = False
    depth: int = 0
    backoff: int = 0


def runs_at_once(n_cols: int, candidate: Candidate, device: Device) -> bool:
    """Whether all chunks of a row, which wait for each other, run at once. Where waiting is not
    known to work the row must be one chunk. A large program may not run at all."""
    at_once = device.resident_programs(candidate.registers, candidate.num_warps)
    return ceil_div(n_cols, candidate.block) <= (at_once if device.nvidia else min(1, at_once))


def lanes_and_polls(n_chunks: int, num_warps: int, width: int = 1) -> tuple[int, int]:
    """(lanes, polls): a tile of lanes × width that reads a word in each lane, and how many of its
    words one thread polls at once. There are at least as many lanes as threads, so that no two
    threads poll the same word. A chunk has as many words as a tile has columns: `width`.

    >>> lanes_and_polls(16, num_warps=4), lanes_and_polls(300, num_warps=4)
    ((128, 1), (512, 4))
    >>> lanes_and_polls(9, num_warps=8, width=32)
    (16, 2)
    """
    threads = 32 * num_warps
    lanes = max(next_power_of_2(n_chunks), ceil_div(threads, width))
    return lanes, lanes * width // threads


def split_rows(
    taken: Candidate, rows: Rows, traits: Traits, device: Device, two_launches: bool = False
) -> Choice:
    """Rows split in a given way, by one launch or by two."""
    block, registers, num_warps, keep_terms, depth, backoff = taken
    n_chunks = ceil_div(rows.n_cols, block)
    # Where a number is written for a row, one program reads its words: lanes to spare cost nothing,
    # and rows of other lengths find the same kernel.
    lanes = max(n_chunks, 128) if traits.reduces else n_chunks
    words, polls = lanes_and_polls(lanes, num_warps)
    pairs = rows.itemsize == 2 and rows.vector > 1
    held = rows.vector, rows.edges, pairs, pairs and device.nvidia, keep_terms, depth
    wait = device.nvidia and not two_launches
    return Choice(
        "split_rows",
        SplitRows(block, *held, wait, backoff, publish=True, write=True, words=words, polls=polls),
        num_warps,
        max_registers=registers if device.nvidia else None,
        n_chunks=n_chunks,
        chunk_cols=ceil_div(ceil_div(rows.n_cols, n_chunks), rows.vector) * rows.vector,
        max_programs=device.resident_programs(registers, num_warps) if depth else None,
        two_launches=two_launches,
    )


def split_in_two_launches(rows: Rows, traits: Traits, device: Device) -> Choice:
    """Rows of which no candidate can be taken: the first launch only publishes; the second reads
    again, finds all words there and never waits."""
    block = LONGEST_CHUNK
    if not device.nvidia:
        block = 2048
    elif traits.inputs > 1 and rows.itemsize == 4:  # two tensors, an element to a register
        block = 4096
    if rows.n_cols > MAX_CHUNKS * block:
        block = LONGEST_CHUNK
    return split_rows(Candidate(block, 128), rows, traits, device, two_launches=True)


def split_strided(
    block_cols: int, block_inner: int, num_warps: int, columns: Columns, device: Device
) -> Choice | None:
    """Columns split in a given way; None if the chunks of a column, which wait for each other, do
    not run at once."""
    block_inner = min(block_inner, next_power_of_2(columns.n_inner))
    n_chunks = ceil_div(columns.n_cols, block_cols)
    programs = columns.n_outer * ceil_div(columns.n_inner, block_inner) * n_chunks
    if n_chunks > device.resident_programs(CHUNK_REGISTERS, num_warps) or programs >= 2**31:
        return None
    tile = block_cols, block_inner, columns.stated_vector, columns.itemsize == 2
    words = lanes_and_polls(n_chunks, num_warps, width=block_inner)
    how = SplitStrided(*tile, columns.wide_index, True, *words)
    return Choice("split_strided", how, num_warps, max_registers=CHUNK_REGISTERS, n_chunks=n_chunks)


# --- all that a model chooses between

WARPS = (1, 2, 4, 8, 16)
ELEMENTS = (4, 8, 16, 32, 64)  # of a thread, at most
LONGEST_BYTES = 65536  # of a row of one program: a quarter of the registers of a multiprocessor
OVERHEAD = 64  # registers of a thread beside its elements
MOST_POLLS = 4  # words that a thread polls at once, each of which takes two registers


def held(elements: int, itemsize: int, traits: Traits, paired: bool) -> int:
    """Registers of a thread for so many elements of each input."""
    return ceil_div(elements * traits.inputs * max(4, itemsize), 8 if paired else 4)


def tiles_of(length: int, smallest: int) -> list[tuple[int, int]]:
    """(columns of a tile, tiles) that hold a length: one tile, or some of a quarter or an eighth of
    the next power of two, but never seven."""
    power = next_power_of_2(length)
    found = [(power, 1)]
    for parts in (4, 8):
        tiles = ceil_div(length, max(1, power // parts))
        if power // parts >= smallest and tiles < parts:
            found.append((power // parts, tiles + (tiles == 7)))
    return found


def fits(lanes: int, warps: int) -> bool:
    """Whether every thread of so many warps has some elements of a tile, and not too many."""
    return (warps == 1 or 64 * warps <= lanes) and lanes <= 4096 * warps


def row_tiles(rows: Rows, device: Device) -> Iterator[Choice]:
    """Tiles of whole rows."""
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
    """Ways to split rows whose chunks run at once."""
    pairs = rows.itemsize == 2 and rows.vector > 1
    for warps in WARPS[:4]:
        for elements in (16, 32, 64):
            for depth in (0, 2):
                registers = held(elements, rows.itemsize, traits, pairs) * (2 if depth else 1)
                registers = ceil_div(registers + OVERHEAD, 8) * 8
                taken = Candidate(elements * 32 * warps, registers, warps, False, depth)
                few = ceil_div(rows.n_cols, taken.block) <= MAX_CHUNKS
                if registers <= 255 and few and runs_at_once(rows.n_cols, taken, device):
                    choice = split_rows(taken, rows, traits, device)
                    if getattr(choice.how, "polls", 0) <= MOST_POLLS:
                        yield choice


def can_be_split(rows: Rows) -> bool:
    """Whether a word holds a summary, words are few enough, and programs are counted in 31 bits."""
    countable = rows.n_rows * ceil_div(rows.n_cols, 1024) < 2**31
    return rows.itemsize < 8 and rows.n_cols <= MAX_SPLIT_COLS and countable


def row_choices(rows: Rows, traits: Traits, device: Device) -> list[Choice]:
    """What rows of adjacent elements may get, but for loops. Two launches only if there is no
    other way."""
    if rows.vector == 1:
        rows = rows.without_edges()
    short = rows.n_cols * rows.itemsize <= LONGEST_BYTES
    found = list(row_tiles(rows, device)) if short else []
    if can_be_split(rows) and rows.n_cols > 1024:
        found += list(splits(rows, traits, device))
        found = found or [split_in_two_launches(rows, traits, device)]
    return found


def strided_choices(columns: Columns, traits: Traits, device: Device) -> Iterator[Choice]:
    """Tiles of whole columns and chunks of them."""
    n_cols, itemsize = columns.n_cols, columns.itemsize
    for wide in (8, 16, 32, 64, 128):
        block_inner = min(wide, next_power_of_2(columns.n_inner))
        for warps in WARPS:
            for block_cols, tiles in tiles_of(n_cols, 2) if n_cols <= 2048 else ():
                lanes = block_cols * tiles * block_inner
                barrier = device.nvidia and itemsize == 2 and lanes > 64 * 32 * warps
                if fits(lanes, warps):
                    tile = block_cols, block_inner, columns.stated_vector, barrier
                    how = StridedTile(*tile, columns.wide_index, tiles)
                    yield Choice("strided", how, warps)
            # Elements in half of the registers that a chunk has.
            paired = itemsize == 2 and columns.vector > 1
            block_cols = 32 * warps * 64 * 64 // held(64, itemsize, traits, paired) // block_inner
            if device.nvidia and itemsize <= 4 and 64 <= block_cols < n_cols <= 2**17:
                choice = split_strided(block_cols, block_inner, warps, columns, device)
                if choice:
                    yield choice
