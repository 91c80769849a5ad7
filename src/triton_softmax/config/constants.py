"""The compile-time constants of each kernel, and the choice of a kernel with its constants.

A kernel takes its constants as one compile-time value, `HOW`, and is compiled once for each.
"""

from typing import NamedTuple, TypeAlias


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
    ranks: int = 1  # that have as many chunks of a row each


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
    """Constants of `two_pass`: chunks of columns, or small slices, in loops over tiles. A launch
    that neither publishes nor writes merges."""

    block_cols: int
    block_inner: int
    vector: int
    wide_index: bool
    publish: bool
    write: bool
    tiles: int = 1  # tiles of a step, all on their way at once
    fold: int = 1  # adjacent lines of n_inner elements that count as one, a power of two
    # Columns of a program that merges, and the partials of each that it reads at once; both are
    # powers of two.
    merged: int = 4
    at_once: int = 1024


class ModifiedRows(NamedTuple):
    """Constants of `modified_rows`: whole rows in one program's registers, or rows read twice."""

    block_rows: int
    block_cols: int
    whole: bool  # the tiles hold whole rows, which are read once
    vector: int
    wide_index: bool
    tiles: int = 1
    stages: int = 1  # pipeline stages of a loop: one more than the tiles in flight
    publish: bool = True
    write: bool = True
    ranks: int = 1


Constants: TypeAlias = "RowTile | SplitRows | StridedTile | SplitStrided | TwoPass | ModifiedRows"

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
    # A launch publishes the chunks, and another writes them; of columns, one merges them between.
    apart: bool = False
    parts: int = 1  # equal parts of a row, each of which is cut into as many chunks

    def programs(self, n_groups: int) -> int:
        """Return the programs of each launch for so many groups: tiles of rows or columns, or
        rows."""
        n_tasks = n_groups * self.n_chunks
        return n_tasks if self.max_programs is None else min(n_tasks, self.max_programs)

    @property
    def launches(self) -> tuple[Constants, ...]:
        """Return the constants of each launch, in order: `how`, if there is one launch."""
        if not self.apart:
            return (self.how,)
        first, last = self.how._replace(write=False), self.how._replace(publish=False)
        if isinstance(self.how, TwoPass):
            # What a launch does not read would only make another kernel of it.
            loops = {"merged": 0, "at_once": 0}
            tile = {"block_cols": 0, "block_inner": 0, "vector": 1, "wide_index": False, "tiles": 1}
            merge = first._replace(publish=False, **tile)
            return first._replace(**loops), merge, last._replace(**loops)
        return first, last
