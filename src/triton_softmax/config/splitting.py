"""Say how a row, or a column, is cut into chunks for several programs, and whether it can be."""

from typing import NamedTuple

from .calls import VECTOR_BYTES, Columns, Device, Rows, Traits, ceil_div, next_power_of_2
from .constants import Choice, SplitRows, SplitStrided

# Polls for missing status words before the recompute fallback: many times longer than a row takes,
# so a program only falls back if its partners are not running.
MAX_POLLS = 1024

# Every program reads all status words of its row, so reads grow with the square of the chunks:
# beyond 2^24 columns, loops read rows of 16 bits faster, and float32 as fast.
MAX_CHUNKS, LONGEST_CHUNK = 4096, 8192
MAX_SPLIT_COLS = 2**24

# The longest row in one program: if named by a caller, and if its bits must be the same in every
# batch; batch-invariant rows beyond that are split, however many there are. The longest column that
# a tile holds in any dtype.
MAX_TILE_COLS, INVARIANT_TILE_COLS, WHOLE_COLUMNS = 65536, 8192, 1024

# Registers per thread: for a program that holds a chunk of columns, and in addition for the
# order-independent integer sum.
CHUNK_REGISTERS, INTEGER_SUM_REGISTERS = 128, 40


def group_of(n_cols: int, itemsize: int = 2) -> int:
    """Return how many adjacent elements a batch-invariant sum adds first: as many as divide a row
    and an access, so that no access and no tile holds only a part of them.

    >>> [group_of(n, 2) for n in (4096, 1000, 50_258, 50_257)], group_of(4096, 4)
    ([8, 8, 2, 1], 4)
    """
    group = VECTOR_BYTES // itemsize
    while n_cols % group:
        group //= 2
    return group


def parts_of(n_cols: int) -> int:
    """Return how many equal parts a batch-invariant row is cut into before its chunks: 8 where it
    is long, so that 2, 4 or 8 ranks may share it. Chunks of shorter rows would be too small to be
    fast.

    >>> parts_of(128_256), parts_of(50_257), parts_of(16_256)
    (8, 1, 1)
    """
    return 1 if n_cols % 128 or n_cols < 16384 else 8


class Candidate(NamedTuple):
    """One way to split rows, a line of the tables: a program's resources, and how it waits."""

    block: int
    # Per thread. Fewer registers let more programs be resident; these are the fewest that spill
    # nothing, or so little that one more program outweighs it.
    registers: int
    warps: int = 4
    terms: bool = False
    depth: int = 0
    pause: int = 0


def runs_at_once(n_cols: int, candidate: Candidate, device: Device, parts: int = 1) -> bool:
    """Return whether all chunks of a row, which wait for each other, are resident at once. Devices
    that cannot wait take only rows of one chunk. Too large a program is never resident."""
    at_once = device.resident_programs(candidate.registers, candidate.warps)
    chunks = parts * ceil_div(n_cols // parts, candidate.block)
    return chunks <= (at_once if device.nvidia else min(1, at_once))


def lanes_and_polls(n_chunks: int, num_warps: int, width: int = 1) -> tuple[int, int]:
    """Return (lanes, polls): the height of a tile lanes × width that reads one status word per
    element, and the words each thread polls at once. No two threads poll the same word: the tile
    has as many elements as the program threads. A chunk has `width` words.

    >>> lanes_and_polls(16, num_warps=4), lanes_and_polls(300, num_warps=4)
    ((128, 1), (512, 4))
    >>> lanes_and_polls(9, num_warps=8, width=32)
    (16, 2)
    """
    threads = 32 * num_warps
    lanes = max(next_power_of_2(n_chunks), ceil_div(threads, width))
    return lanes, lanes * width // threads


def split_as(
    taken: Candidate, rows: Rows, traits: Traits, device: Device, apart: bool = False
) -> Choice:
    """Return the choice that splits rows as a candidate says, in one launch or two."""
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
    wait = device.nvidia and not apart
    return Choice(
        "split_rows",
        SplitRows(block, *held, wait, backoff, publish=True, write=True, words=words, polls=polls),
        num_warps,
        max_registers=registers if device.nvidia else None,
        n_chunks=n_chunks,
        chunk_cols=chunk_cols,
        max_programs=device.resident_programs(registers, num_warps) if depth else None,
        apart=apart,
        parts=parts,
    )


def split_in_two_launches(rows: Rows, traits: Traits, device: Device) -> Choice:
    """Split rows for which no candidate works: the first launch only publishes; the second rereads
    the row, finds all status words and never waits."""
    two = traits.inputs > 1 and rows.itemsize == 4  # two tensors, an element to a register
    block = 2048 if not device.nvidia else 4096 if two else LONGEST_CHUNK
    if rows.n_cols > MAX_CHUNKS * block:
        block = LONGEST_CHUNK
    return split_as(Candidate(block, 128), rows, traits, device, apart=True)


def split_strided(
    block_cols: int, block_inner: int, num_warps: int, columns: Columns, device: Device
) -> Choice | None:
    """Return the choice that splits columns in a given way; None unless the chunks of a column,
    which wait for each other, are all resident at once."""
    block_inner = columns.side_by_side(block_inner)
    n_chunks = ceil_div(columns.n_cols, block_cols)
    programs = columns.groups(block_inner) * n_chunks
    if n_chunks > device.resident_programs(CHUNK_REGISTERS, num_warps) or programs >= 2**31:
        return None
    tile = block_cols, block_inner, columns.stated_vector, columns.itemsize == 2
    words = lanes_and_polls(n_chunks, num_warps, width=block_inner)
    how = SplitStrided(*tile, columns.wide_index, True, *words)
    return Choice("split_strided", how, num_warps, max_registers=CHUNK_REGISTERS, n_chunks=n_chunks)


def can_be_split(rows: Rows) -> bool:
    """Return whether a word holds a summary, words are few enough, and work items fit 31 bits."""
    countable = rows.n_rows * ceil_div(rows.n_cols, 1024) < 2**31
    return rows.itemsize < 8 and rows.n_cols <= MAX_SPLIT_COLS and countable
