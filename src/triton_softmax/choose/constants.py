"""The constants of each geometry, one value each, and the `Choice` that carries one of them.

A kernel takes its value as a single compile-time constant, `HOW`. So there are plain numbers in it,
and one kernel is compiled for each different value.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


# --8<-- [start:row-tile]
class RowTile(NamedTuple):
    """Whole rows in one program's registers: `packed_rows` and `aligned_rows`."""

    block_rows: int
    """Rows per program, a power of two."""

    block_cols: int
    """Columns of a tile, a power of two."""

    vector: int
    """Elements that one access moves. For packed rows it divides the length and all strides."""

    barrier: bool
    """Keep 16-bit elements in registers as they came, behind a barrier that the optimiser does not
    look through: else it keeps the float32 numbers, in twice the registers."""

    tiles: int = 1
    """Tiles side by side. Together they have at least the columns of a row (aligned rows: of its
    body)."""


# --8<-- [end:row-tile]


class SplitRows(NamedTuple):
    """Chunks of a row, on as many programs at the same time: `split_rows`."""

    block: int
    """Columns of a chunk at most, a power of two."""

    vector: int
    """Elements that one access moves."""

    edges: bool
    """Rows do not all start and end on a vector."""

    pairs: bool
    """Hold two 16-bit elements as one 32-bit number."""

    barrier: bool
    """As in `RowTile`."""

    keep_terms: bool
    """While it waits, a program keeps the exponentials that it has summed, and not the elements.
    Not with depth 2."""

    depth: int
    """Depth of the pipeline. 0: one chunk per program. 1: programs go from chunk to chunk, and load
    the next one before they wait for the words of this one. 2: they also write one chunk later,
    after the next one is published."""

    wait: bool
    """Poll for words that are missing. NVIDIA only, and only in a single launch."""

    backoff: int
    """Nanoseconds before the first poll, which leave the cache to those who still read."""

    publish: bool
    """Summarise the chunk and publish its word. False in the second of two launches."""

    write: bool
    """Read the words of the row and write the chunk. False in the first of two launches."""

    words: int
    """Lanes that read the words of a row: a power of two, at least the number of chunks, and at
    least the number of threads, so that no two threads poll the same word."""

    polls: int
    """Words that a thread polls at once: `words` over the number of threads."""


class StridedTile(NamedTuple):
    """Whole strands side by side: `strided`."""

    block_cols: int
    """Elements along a strand in a tile, a power of two."""

    block_inner: int
    """Strands side by side, a power of two."""

    vector: int
    """Divides the inner dimension's length and all strides but the inner ones; 1 where these are
    all multiples of 16, which Triton sees by itself."""

    barrier: bool
    """As in `RowTile`."""

    wide_index: bool
    """Offsets within one outer slice need 64 bits."""

    tiles: int = 1
    """Tiles one after the other along the strands. Together they have room for whole strands."""


class SplitStrided(NamedTuple):
    """Chunks of strands, on as many programs at the same time: `split_strided`."""

    block_cols: int
    """Elements of a strand in a chunk, a power of two."""

    block_inner: int
    """As in `StridedTile`."""

    vector: int
    """As in `StridedTile`."""

    barrier: bool
    """As in `RowTile`."""

    wide_index: bool
    """As in `StridedTile`."""

    wait: bool
    """Poll for words that are missing; NVIDIA only."""

    chunks: int
    """Lanes per strand that read its words: a power of two, at least the number of chunks, and such
    that the tile of chunks × block_inner has at least as many lanes as there are threads."""

    polls: int
    """Words that a thread polls at once: chunks × block_inner over the number of threads."""


class StridedLoops(NamedTuple):
    """Chunks of very long strands, each walked along tile by tile: `strided_loops`."""

    block_cols: int
    """Elements of a strand in a tile, a power of two."""

    block_inner: int
    """As in `StridedTile`."""

    vector: int
    """As in `StridedTile`."""

    wide_index: bool
    """As in `StridedTile`."""

    publish: bool
    """Summarise the chunk, and leave its summary in the workspace if there are two launches. False
    in the second of them."""

    write: bool
    """Merge the summaries and write the chunk. False in the first of two launches."""


Constants: TypeAlias = RowTile | SplitRows | StridedTile | SplitStrided | StridedLoops


class Choice(NamedTuple):
    """Which kernel, and how it is launched."""

    kernel: str
    """Its module in `kernels`: "packed_rows", "aligned_rows", "split_rows", "strided",
    "split_strided" or "strided_loops"."""

    how: Constants
    """The constants of its geometry."""

    num_warps: int
    """Warps per program."""

    max_registers: int | None = None
    """Registers per thread at most; None lets the compiler choose."""

    n_chunks: int = 1
    """Chunks of a row, or of a strand."""

    chunk_cols: int = 0
    """Columns of a chunk, of which the last may have fewer. For `split_rows` and `strided_loops`,
    whose chunks do not fill their tiles; else 0."""

    max_programs: int | None = None
    """How many programs are launched at most; None for one per chunk."""

    two_launches: bool = False
    """The chunks are published by one launch and written by another."""

    def programs(self, n_groups: int) -> int:
        """How many programs each launch has.

        Args:
            n_groups: what is cut into `n_chunks` chunks: tiles of rows, rows that are split, or
                tiles of strands side by side.
        """
        n_tasks = n_groups * self.n_chunks
        return n_tasks if self.max_programs is None else min(n_tasks, self.max_programs)

    @property
    def launches(self) -> tuple[Constants, ...]:
        """The constants of each launch, in order: `how`, or what publishes and then what writes."""
        if self.two_launches:
            return self.how._replace(write=False), self.how._replace(publish=False)
        return (self.how,)
