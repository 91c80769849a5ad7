"""What each geometry reads and writes, counted: the matrix as often as the table says, and what it
needs to agree about a row besides."""

import pytest
import torch

from kernel_cases import (
    EVERY_OPERATION,
    INTERPRETED,
    OPERATIONS,
    operands,
    quiet,
    run_columns,
    run_rows,
    watch_accesses,
)
from softmax_bench import traffic
from triton_softmax.config import Choice
from triton_softmax.config.space import (
    RowTile,
    SplitRows,
    SplitStrided,
    StridedTile,
    TwoPass,
)

pytestmark = [
    quiet,
    pytest.mark.skipif(not INTERPRETED, reason="only interpreted kernels are counted"),
]
M, N, CHUNK = 2, 43, 16
N_CHUNKS = 3
SPLIT = SplitRows(
    CHUNK, 4, True, False, False, False, 0, False, 0, publish=True, write=True, words=4, polls=1
)
LOOPS = TwoPass(8, 2, 1, False, publish=True, write=True)
ROWS = {
    "packed_rows": Choice("packed_rows", RowTile(2, 64, 1, False), 4),
    "aligned_rows": Choice("aligned_rows", RowTile(2, 64, 4, False, edges=True), 4),
    "split_rows": Choice("split_rows", SPLIT, 4, n_chunks=N_CHUNKS, chunk_cols=CHUNK),
}
COLUMNS = {
    "strided": Choice("strided", StridedTile(64, 2, 1, False, False), 4),
    "split_strided": Choice(
        "split_strided",
        SplitStrided(CHUNK, 2, 1, False, False, False, chunks=4, polls=1),
        4,
        n_chunks=N_CHUNKS,
    ),
    "two_pass": Choice("two_pass", LOOPS, 4, n_chunks=1, chunk_cols=48),
    "two_pass, two launches": Choice(
        "two_pass", LOOPS, 4, n_chunks=N_CHUNKS, chunk_cols=CHUNK, two_launches=True
    ),
}


def counted(operation, reads_of_matrix, programs=1):
    """(reads, writes) of the matrices: once or twice each input; one result, or a number a row.
    The weight of a row is read by each of its programs."""
    op = OPERATIONS[operation]
    reads = (1 if op.reduces else reads_of_matrix) * op.inputs * M * N + op.numbers * programs * M
    return reads, M if op.reduces else M * N


def moved(accesses):
    """Elements that were loaded and stored."""
    return sum(map(len, accesses.loads)), sum(map(len, accesses.stores))


@EVERY_OPERATION
@pytest.mark.parametrize("geometry", ROWS)
def test_rows(geometry, operation):
    """Edges are part of the row: no element is read or written twice for them. Words are read once
    by each program that polls, beside the row, if all are there."""
    inputs = operands(operation, M, N, torch.float32, gaps=(0, 4))
    words = torch.zeros(M * N_CHUNKS, dtype=torch.int64) if geometry == "split_rows" else None
    run_rows(operation, ROWS[geometry], inputs, gap=8, words=words)  # publishes all words
    with watch_accesses() as accesses:
        run_rows(operation, ROWS[geometry], inputs, gap=8, words=words)
    reads, writes = counted(operation, 1, N_CHUNKS if geometry == "split_rows" else 1)
    if geometry == "split_rows":
        polling = M * (1 if OPERATIONS[operation].reduces else N_CHUNKS)
        reads += polling * N_CHUNKS
    assert moved(accesses) == (reads, writes)
    if operation == "softmax":
        table = traffic.FORWARD[geometry]
        assert counted(operation, 1) == (table.reads(M, N), table.writes(M, N))
    elif operation == "softmax_backward":
        table = traffic.BACKWARD[geometry]
        assert counted(operation, 1) == (table.reads(M, N), table.writes(M, N))


@EVERY_OPERATION
@pytest.mark.parametrize("geometry", COLUMNS)
def test_columns(geometry, operation):
    """Loops read twice; in two launches they also leave two numbers for each column and chunk, and
    every program reads those of its columns."""
    inputs = tuple(each.movedim(0, -1)[None] for each in operands(operation, M, N, torch.float32))
    choice = COLUMNS[geometry]
    op = OPERATIONS[operation]
    words = torch.zeros(2 * M * N_CHUNKS, dtype=torch.int64) if geometry != "strided" else None
    run_columns(operation, choice, inputs, words=words)
    with watch_accesses() as accesses:
        run_columns(operation, choice, inputs, words=words)
    twice = 2 if choice.kernel == "two_pass" else 1
    reads, writes = counted(operation, twice, choice.n_chunks)
    mergers = M * (1 if op.reduces else N_CHUNKS)
    if choice.kernel == "split_strided":
        reads += 2 * mergers * N_CHUNKS  # each word is polled for, and then merged
    elif choice.two_launches:
        writes += 2 * M * N_CHUNKS
        reads += (2 if op.shifted else 1) * mergers * N_CHUNKS
    assert moved(accesses) == (reads, writes)
