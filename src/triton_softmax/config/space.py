"""Define what can be chosen: a call in numbers, each kernel's constants, and a call's choices.

This is plain Python that imports only type names, because the page "Which kernel" runs it in the
reader's browser, in MicroPython. A comment explains each field where its name first occurs; the
name means the same everywhere.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

VECTOR_BYTES = 16  # the widest access of one thread

# Occupancy limits of a multiprocessor that hold on every NVIDIA architecture from sm_80 on.
REGISTERS, RESIDENT_WARPS, RESIDENT_PROGRAMS = 65536, 48, 16

# The NVIDIA GPUs with measured constants, by number of multiprocessors: the H200. An H100 SXM is
# the same chip with slower memory.
TUNED = (132,)

# Polls for missing status words before the recompute fallback: many times longer than a row takes,
# so a program only falls back if its partners are not running.
MAX_POLLS = 1024

# Every program reads the status words of its whole row, so reads grow with the square of the number
# of chunks. This caps the rows that are split at 2^25 columns.
MAX_CHUNKS, LONGEST_CHUNK = 4096, 8192
MAX_SPLIT_COLS = MAX_CHUNKS * LONGEST_CHUNK

# The longest row in one program: if forced by name, and if its bits must be the same in every
# batch; batch-invariant rows beyond that are split, however many there are.
MAX_TILE_COLS, INVARIANT_TILE_COLS = 65536, 8192

MOST_STRANDS = 1024  # columns side by side in any tile

# Registers per thread: for a program that holds a chunk of columns, and in addition for the
# order-independent integer sum.
CHUNK_REGISTERS, INTEGER_SUM_REGISTERS = 128, 40


def ceil_div(n: int, divisor: int) -> int:
    """Return n / divisor, rounded up.

    >>> ceil_div(8, 4), ceil_div(9, 4)
    (2, 3)
    """
    return -(-n // divisor)


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least n.

    >>> [next_power_of_2(n) for n in (0, 1, 2, 3, 4097)]
    [1, 1, 2, 4, 8192]
    """
    power = 1
    while power < n:
        power *= 2
    return power


def group_of(n_cols: int, itemsize: int = 2) -> int:
    """How many adjacent elements a batch-invariant sum adds first: as many as divide a row and an
    access, so that no access, and no tile, holds a part of them.

    >>> [group_of(n, 2) for n in (4096, 1000, 50_258, 50_257)], group_of(4096, 4)
    ([8, 8, 2, 1], 4)
    """
    group = VECTOR_BYTES // itemsize
    while n_cols % group:
        group //= 2
    return group


def parts_of(n_cols: int) -> int:
    """Return how many equal parts a batch-invariant row is cut into before its chunks. Where it is
    long they are 8, so that 2, 4 or 8 ranks may share it: each has whole parts, and no access lies
    in two. Chunks of shorter rows would be too small to be fast.

    >>> parts_of(128_256), parts_of(50_257), parts_of(16_256)
    (8, 1, 1)
    """
    return 1 if n_cols % 128 or n_cols < 16384 else 8


# --- a call in numbers


class Device(NamedTuple):
    """The device that a kernel will run on."""

    multiprocessors: int = 132  # streaming multiprocessors, compute units
    # Elsewhere than on NVIDIA GPUs, kernels set no register limit, use no assembly, and never wait
    # for each other.
    nvidia: bool = False

    @property
    def tuned(self) -> bool:
        """Whether to use measured constants: on the GPUs they were measured on, and on devices
        other than NVIDIA's, which have no model."""
        return not self.nvidia or self.multiprocessors in TUNED

    def resident_programs(self, registers: int, num_warps: int) -> int:
        """How many programs with these registers per thread and warps are resident at once.

        >>> [Device(132).resident_programs(*of) for of in ((128, 4), (32, 4), (32, 1))]
        [528, 1584, 2112]
        """
        registers = ceil_div(registers, 8) * 8  # the allocation granularity
        by_registers = REGISTERS // (registers * 32 * num_warps)
        on_one = min(by_registers, RESIDENT_WARPS // num_warps, RESIDENT_PROGRAMS)
        return on_one * self.multiprocessors


class Traits(NamedTuple):
    """The properties of an operation that a choice depends on.

    >>> softmax, log_softmax = Traits(inputs=1, keeps_terms=True), Traits(inputs=1)
    >>> softmax_vjp, logsumexp = Traits(inputs=2), Traits(inputs=1, reduces=True)
    >>> log_softmax_vjp = Traits(inputs=2, exp_in_finish=True)
    """

    inputs: int  # tensors read: 1 forward, 2 for a vector-Jacobian product
    # The result follows from the summed terms, so a program that waits may keep these and need not
    # recompute them. True of softmax alone.
    keeps_terms: bool = False
    # The epilogue needs an exponential, and registers for it, that the sums do not.
    exp_in_finish: bool = False
    reduces: bool = False  # the results are row scalars only
    # The result must not depend on the order of summation. Sums within a program do not; rows on
    # several programs must be cut alike, however many rows there are.
    any_order: bool = False
    numbers: bool = False  # row scalars come along with the elements, and take registers


class Rows(NamedTuple):
    """Rows of adjacent elements."""

    n_rows: int
    n_cols: int
    itemsize: int  # bytes of the widest input element, as kept in registers
    vector: int  # elements per access, if rows may have edges
    edges: bool  # some rows start or end within a vector
    divisor: int  # elements per access, if no row may have edges

    def without_edges(self) -> "Rows":
        """The rows with narrower accesses, which divide every row."""
        return self._replace(vector=self.divisor, edges=False)


class Masked(NamedTuple):
    """Rows with score modifiers."""

    n_rows: int
    n_cols: int
    held: int  # bytes read per position, over all tensors with elements
    vector: int  # elements per access that lengths and strides allow
    adjacent: bool  # the elements of a row are adjacent in all tensors
    wide_index: bool  # offsets in a row, or the number of rows, need 64 bits


class Columns(NamedTuple):
    """A non-inner reduction, over columns of separate elements: the middle dimension of (n_outer,
    n_cols, n_inner)."""

    n_outer: int
    n_cols: int
    n_inner: int
    itemsize: int
    vector: int  # elements per access across columns
    stated_vector: int  # the vector as a kernel constant: 1 if Triton infers it by itself
    wide_index: bool  # offsets within one outer slice need 64 bits

    def side_by_side(self, wide: int) -> int:
        """Columns side by side in a tile: at most so many, and hardly more than there are."""
        return min(wide, next_power_of_2(self.n_inner))

    def groups(self, block_inner: int) -> int:
        """Groups of so many columns side by side."""
        return self.n_outer * ceil_div(self.n_inner, block_inner)


def vector_of_lines(itemsize: int, addresses: tuple[int, ...], counts: tuple[int, ...]) -> int:
    """Elements per access that divide all counts: the largest power of two, up to a whole vector.

    Args:
        itemsize: bytes of the narrowest element.
        addresses: address of each tensor's first element.
        counts: lengths and strides in elements, except the strides of adjacent elements.

    >>> vector_of_lines(2, (0, 512), (196, 4116)), vector_of_lines(4, (0, 512), (1024, 65536))
    (4, 4)
    >>> vector_of_lines(4, (4, 512), (1024, 65536))  # the first tensor is unaligned
    1
    """
    width = VECTOR_BYTES // itemsize
    if any(address % VECTOR_BYTES for address in addresses):
        return 1
    while any(count % width for count in counts):
        width //= 2
    return width


def rows_of(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    addresses: tuple[int, ...],
    strides: tuple[int, ...],
    held: int | None = None,
) -> Rows:
    """Describe rows of adjacent elements.

    Args:
        n_rows, n_cols: numbers of rows and columns.
        itemsize: bytes of the narrowest element in any tensor; 8 only if all are float64.
        addresses: address of each tensor's first element.
        strides: row stride of each tensor, in elements.
        held: bytes of the widest input element, as programs keep inputs in registers; `itemsize` by
            default.

    >>> rows_of(9, 50257, 2, (0, 512), (50257, 50257)).vector
    8
    >>> rows_of(9, 50257, 2, (0, 512), (50264, 50257)).vector  # rows out of step
    1
    """
    # Rows that may have edges take whole vectors: tensors must be aligned, and rows of the same
    # index equally far from a vector in all of them.
    apart = tuple([stride - strides[0] for stride in strides])
    vector = vector_of_lines(itemsize, addresses, apart)
    vector = vector if vector * itemsize == VECTOR_BYTES else 1
    edges = bool(n_cols % vector) or any(stride % vector for stride in strides)
    # An access that divides everything leaves no edges, but is seldom a whole vector.
    divisor = vector_of_lines(itemsize, addresses, (n_cols,) + tuple(strides))
    return Rows(n_rows, n_cols, held or itemsize, vector, edges, divisor)


def columns_of(
    n_outer: int,
    n_cols: int,
    n_inner: int,
    itemsize: int,
    addresses: tuple[int, ...],
    strides: tuple[tuple[int, int, int], ...],
    held: int | None = None,
) -> Columns:
    """Describe a non-inner reduction: the middle dimension of (n_outer, n_cols, n_inner).

    Args:
        n_outer, n_cols, n_inner: sizes of the dimensions.
        strides: each tensor's strides along these, in elements; any number, including 0.
        itemsize, addresses, held: as in `rows_of`.
    """
    counts = (n_inner,) + tuple([each[0] for each in strides] + [each[1] for each in strides])
    vector = vector_of_lines(itemsize, addresses, counts)
    stated = 1 if all(count % 16 == 0 for count in counts) else vector
    last = max([(n_cols - 1) * each[1] + (n_inner - 1) * each[2] for each in strides])
    # The last tile reaches beyond the last column.
    wide_index = max(last, n_inner + MOST_STRANDS - 1) >= 2**31
    return Columns(n_outer, n_cols, n_inner, held or itemsize, vector, stated, wide_index)


# --- the constants of each kernel
# A kernel takes its constants as one compile-time value, `HOW`, and is compiled once for each.


class RowTile(NamedTuple):
    """Constants of `packed_rows` and `aligned_rows`: whole rows in one program's registers."""

    block_rows: int  # rows per program, a power of two
    block_cols: int  # elements of a tile along the row or column, a power of two
    vector: int  # elements per access; without edges it divides lengths and strides
    # Hold 16-bit elements in registers behind an optimisation barrier: otherwise the compiler keeps
    # their float32 upcasts, in twice the registers.
    barrier: bool
    tiles: int = 1  # tiles that together hold a row (aligned rows: its body) or a column
    edges: bool = False  # rows may start or end within a vector: aligned rows


class SplitRows(NamedTuple):
    """Constants of `split_rows`: chunks of a row on several programs at the same time."""

    block: int  # upper bound of a chunk's columns, a power of two
    vector: int
    edges: bool
    pairs: bool  # hold two 16-bit elements in one 32-bit integer
    barrier: bool
    # While it waits, a program keeps the exponentials it has summed instead of the elements. Never
    # with depth 2.
    keep_terms: bool
    # Pipeline depth. 0: one chunk per program. 1: programs are persistent, and load the next chunk
    # before they wait for this row's status words. 2: they also publish the next chunk before they
    # write this one.
    depth: int
    wait: bool  # poll for missing status words: NVIDIA only, and only in a single launch
    backoff: int  # nanoseconds before the first poll, which leave the cache to programs that load
    publish: bool  # publish the chunk's summary; False in the second of two launches
    write: bool  # merge the partials and write the chunk; False in the first of two launches
    # Lanes that read the status words of a row: a power of two, at least the number of chunks, and
    # at least the number of threads, so that no two threads poll the same word.
    words: int
    polls: int  # words that a thread polls at once


class StridedTile(NamedTuple):
    """Constants of `strided`: whole columns side by side."""

    block_cols: int
    block_inner: int  # columns side by side, a power of two
    vector: int  # what lengths and strides allow; 1 if Triton infers it by itself
    barrier: bool
    wide_index: bool
    tiles: int = 1


class SplitStrided(NamedTuple):
    """Constants of `split_strided`: chunks of columns on several programs at the same time."""

    block_cols: int
    block_inner: int
    vector: int
    barrier: bool
    wide_index: bool
    wait: bool
    chunks: int  # lanes per column that read its status words: a power of two, enough for all
    polls: int


class TwoPass(NamedTuple):
    """Constants of `two_pass`: chunks of very long columns, in loops over tiles."""

    block_cols: int
    block_inner: int
    vector: int
    wide_index: bool
    publish: bool
    write: bool
    tiles: int = 1  # tiles of a step, all on their way at once


class MaskedRows(NamedTuple):
    """Constants of `masked_rows`: whole rows in one program's registers, or rows read twice."""

    block_rows: int
    block_cols: int
    whole: bool  # the tiles hold whole rows, which are read once
    vector: int
    wide_index: bool
    tiles: int = 1
    stages: int = 1  # pipeline stages of a loop: one more than the tiles in flight
    publish: bool = True
    write: bool = True


Constants: TypeAlias = "RowTile | SplitRows | StridedTile | SplitStrided | TwoPass | MaskedRows"

TILE_KERNELS = "packed_rows", "aligned_rows"  # indexed by `edges`


class Choice(NamedTuple):
    """The kernel of a call, and its launch parameters."""

    kernel: str  # the geometry
    how: Constants  # its constants
    num_warps: int  # warps per program
    max_registers: int | None = None  # registers per thread; None lets the compiler choose
    n_chunks: int = 1  # chunks of a row, or of a column
    chunk_cols: int = 0  # columns per chunk (fewer in the last); 0 if chunks fill tiles
    max_programs: int | None = None  # cap on the programs launched; None: one per chunk
    two_launches: bool = False  # one launch publishes the chunks, another writes them
    parts: int = 1  # equal parts of a row, each of which is cut into as many chunks

    def programs(self, n_groups: int) -> int:
        """The programs of each launch, for this many groups, each cut into chunks: tiles of rows,
        split rows, or tiles of columns."""
        n_tasks = n_groups * self.n_chunks
        return n_tasks if self.max_programs is None else min(n_tasks, self.max_programs)

    @property
    def launches(self) -> tuple[Constants, ...]:
        """The constants of each launch: `how`, or one that publishes and one that writes."""
        if self.two_launches:
            return self.how._replace(write=False), self.how._replace(publish=False)
        return (self.how,)


# --- possible choices


class Candidate(NamedTuple):
    """One way to split rows, as a line of the tables says it: a program's resources, and what it
    does while it waits."""

    block: int
    # Per thread. Fewer registers let more programs be resident; these are the fewest that spill
    # nothing, or so little that one more program outweighs it.
    registers: int
    warps: int = 4
    terms: bool = False
    depth: int = 0
    pause: int = 0


def runs_at_once(n_cols: int, candidate: Candidate, device: Device, parts: int = 1) -> bool:
    """Whether all chunks of a row, which wait for each other, are resident at once. Devices that
    cannot wait take only rows of one chunk. Too large a program is never resident."""
    at_once = device.resident_programs(candidate.registers, candidate.warps)
    chunks = parts * ceil_div(n_cols // parts, candidate.block)
    return chunks <= (at_once if device.nvidia else min(1, at_once))


def lanes_and_polls(n_chunks: int, num_warps: int, width: int = 1) -> tuple[int, int]:
    """(lanes, polls): the height of a tile lanes × width that reads one status word per element,
    and the words each thread polls at once. The tile has at least as many elements as the program
    has threads, so that no two threads poll the same word. A chunk has `width` words.

    >>> lanes_and_polls(16, num_warps=4), lanes_and_polls(300, num_warps=4)
    ((128, 1), (512, 4))
    >>> lanes_and_polls(9, num_warps=8, width=32)
    (16, 2)
    """
    threads = 32 * num_warps
    lanes = max(next_power_of_2(n_chunks), ceil_div(threads, width))
    return lanes, lanes * width // threads


def split_as(
    taken: Candidate, rows: Rows, traits: Traits, device: Device, two_launches: bool = False
) -> Choice:
    """The choice that splits rows as a candidate says, in one launch or two."""
    block, registers, num_warps, terms, depth, backoff = taken
    parts = parts_of(rows.n_cols) if traits.any_order else 1
    chunks = ceil_div(rows.n_cols // parts, block)
    n_chunks = parts * chunks
    chunk_cols = ceil_div(ceil_div(rows.n_cols // parts, chunks), rows.vector) * rows.vector
    block = min(block, next_power_of_2(chunk_cols)) if parts > 1 else block
    # If the result is a row scalar, only one program reads the status words: spare lanes cost
    # nothing, and let rows of different lengths share a kernel.
    lanes = max(n_chunks, 128) if traits.reduces else n_chunks
    words, polls = lanes_and_polls(lanes, num_warps)
    pairs = rows.itemsize == 2 and rows.vector > 1
    keep_terms = bool(terms) and traits.keeps_terms
    held = rows.vector, rows.edges, pairs, pairs and device.nvidia, keep_terms, depth
    wait = device.nvidia and not two_launches
    return Choice(
        "split_rows",
        SplitRows(block, *held, wait, backoff, publish=True, write=True, words=words, polls=polls),
        num_warps,
        max_registers=registers if device.nvidia else None,
        n_chunks=n_chunks,
        chunk_cols=chunk_cols,
        max_programs=device.resident_programs(registers, num_warps) if depth else None,
        two_launches=two_launches,
        parts=parts,
    )


def split_in_two_launches(rows: Rows, traits: Traits, device: Device) -> Choice:
    """Split rows for which no candidate works: the first launch only publishes; the second rereads
    the row, finds all status words and never waits."""
    two = traits.inputs > 1 and rows.itemsize == 4  # two tensors, an element to a register
    block = 2048 if not device.nvidia else 4096 if two else LONGEST_CHUNK
    if rows.n_cols > MAX_CHUNKS * block:
        block = LONGEST_CHUNK
    return split_as(Candidate(block, 128), rows, traits, device, two_launches=True)


def split_strided(
    block_cols: int, block_inner: int, num_warps: int, columns: Columns, device: Device
) -> Choice | None:
    """The choice that splits columns in a given way; None unless the chunks of a column, which wait
    for each other, are all resident at once."""
    block_inner = columns.side_by_side(block_inner)
    n_chunks = ceil_div(columns.n_cols, block_cols)
    programs = columns.groups(block_inner) * n_chunks
    if n_chunks > device.resident_programs(CHUNK_REGISTERS, num_warps) or programs >= 2**31:
        return None
    tile = block_cols, block_inner, columns.stated_vector, columns.itemsize == 2
    words = lanes_and_polls(n_chunks, num_warps, width=block_inner)
    how = SplitStrided(*tile, columns.wide_index, True, *words)
    return Choice("split_strided", how, num_warps, max_registers=CHUNK_REGISTERS, n_chunks=n_chunks)


# --- the choices that the model compares

WARPS = (1, 2, 4, 8, 16)
ELEMENTS = (4, 8, 16, 32, 64)  # most elements per thread
LONGEST_BYTES = 65536  # of a row in one program: a quarter of a multiprocessor's registers
OVERHEAD = 64  # registers per thread besides its elements
MOST_POLLS = 4  # most words that a thread polls at once; each takes two registers


def held(elements: int, itemsize: int, traits: Traits, paired: bool) -> int:
    """Registers per thread that hold so many elements of each input."""
    return ceil_div(elements * traits.inputs * max(4, itemsize), 8 if paired else 4)


def tiles_of(length: int, smallest: int) -> list[tuple[int, int]]:
    """Ways to cover a length, as (columns per tile, tiles): one tile, or several of a quarter or an
    eighth of the next power of two, but never seven."""
    power = next_power_of_2(length)
    found = [(power, 1)]
    for parts in (4, 8):
        tiles = ceil_div(length, max(1, power // parts))
        if power // parts >= smallest and tiles < parts:
            found.append((power // parts, tiles + (tiles == 7)))
    return found


def fits(lanes: int, warps: int) -> bool:
    """Whether each thread of these warps gets some elements of a tile, but not too many."""
    return (warps == 1 or 64 * warps <= lanes) and lanes <= 4096 * warps


def row_tiles(rows: Rows, device: Device) -> Iterator[Choice]:
    """Every way to hold whole rows in tiles."""
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
    """Every way to split rows whose chunks are all resident at once."""
    pairs = rows.itemsize == 2 and rows.vector > 1
    for warps in WARPS[:4]:
        for elements in (16, 32, 64):
            for depth in (0, 2):
                registers = held(elements, rows.itemsize, traits, pairs) * (2 if depth else 1)
                registers = ceil_div(registers + OVERHEAD, 8) * 8
                taken = Candidate(elements * 32 * warps, registers, warps, False, depth)
                few = ceil_div(rows.n_cols, taken.block) <= MAX_CHUNKS
                if registers <= 255 and few and runs_at_once(rows.n_cols, taken, device):
                    choice = split_as(taken, rows, traits, device)
                    if getattr(choice.how, "polls", 0) <= MOST_POLLS:
                        yield choice


def can_be_split(rows: Rows) -> bool:
    """Whether a word holds a summary, words are few enough, and work items fit 31 bits."""
    countable = rows.n_rows * ceil_div(rows.n_cols, 1024) < 2**31
    return rows.itemsize < 8 and rows.n_cols <= MAX_SPLIT_COLS and countable


def row_choices(rows: Rows, traits: Traits, device: Device) -> list[Choice]:
    """Every choice for rows of adjacent elements except loops; two launches only as a last
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
    """Every choice for columns, whole or split, except loops."""
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
            elements = 64 * share // held(64, itemsize, traits, paired)
            block_cols = 32 * warps * elements // block_inner
            if device.nvidia and itemsize <= 4 and 64 <= block_cols < n_cols <= 2**17:
                choice = split_strided(block_cols, block_inner, warps, columns, device)
                if choice:
                    yield choice
